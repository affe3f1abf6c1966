"""At what clock does the SM run where TMA brings the bytes, beside tensor work of several types and into its operands?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from importlib import import_module
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import fragment_places, read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer, load_case
from gpusim.evidence.cases.clock_parameters import least_squares, limiter
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.encode import draw, encode
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, MappedTensor, Output
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
from gpusim.workload.atoms.mma import MmaAtom
from gpusim.workload.dtypes import BF16, dtype
from gpusim.workload.launch import Buffer, Launch, Mbarrier, RoleContext, WarpRole
from gpusim.workload.tma.boxes import TensorMap

loads = import_module(load_case("power_clock").launch.__module__)
"""Clocks, their readings and the search of energies are those of kernels/power_clock."""
types = import_module(load_case("wgmma_rate").launch.__module__)
"""Numbers of a type and how they are rounded, as in kernels/wgmma_rate."""

NUM_SMS, NUM_THREADS = 132, 192
M, N, K_BYTES = 64, 256, 512
"""Of the operands in shared memory; K in bytes of a row."""
NUM_PANELS, PANEL_BYTES, BOX_ROWS, ROW_BYTES = 4, 128, 64, 128
BOX_BYTES = BOX_ROWS * ROW_BYTES
BOXES_PER_PANEL = (M + N) // BOX_ROWS
PANEL_ROWS = M + N
NUM_SLOTS = 8
"""Of the boxes that are streamed: as many are in flight."""
BURST_WGMMAS, PASSES = 64, 4
SMEM_BYTES = (NUM_PANELS * BOXES_PER_PANEL + NUM_SLOTS) * BOX_BYTES
STREAM_BYTES = loads.STREAM_BYTES
SLICE_ROWS = STREAM_BYTES["l2"] // NUM_SMS // BOX_BYTES * BOX_ROWS
"""Of what a CTA goes through in L2."""
SINGLE_US, SUSTAINED_US = 250, 500_000
MARKS_US = loads.MARKS_US

TYPES = {"bf16": "bf16", "bf16_rs": "bf16", "fp16": "fp16", "tf32": "tf32", "fp8": "fp8", "int8": "int8"}
"""Kinds of tensor work: their types; ``_rs``: A comes from registers."""
FED = ("bf16", "fp8")


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    run_us: int
    _: KW_ONLY
    tensor_duty: int = 0
    stream: str = "none"
    stream_duty: int = 0
    num_boxes: int = 0
    data: str = "random"

    @property
    def work(self) -> str:
        """Type that wgmma multiplies, a key of ``TYPES``."""
        return self.kernel.partition("_")[2]


def _row(run_us: int, *, work: str = "bf16", stream: str = "none", **others: Any) -> Row:
    return Row(f"{'fed' if stream.startswith('fed') else 'stream'}_{work}", run_us, stream=stream, **others)


def _mixes(run_us: int) -> list[Row]:
    found = [
        _row(run_us, stream=stream, stream_duty=duty, data=data)
        for data in ("random", "zeros") for stream in ("hbm", "l2") for duty in (100, 75, 50, 25)
    ]  # fmt: skip
    found += [
        _row(run_us, tensor_duty=tensor, stream=stream, stream_duty=duty)
        for stream in ("hbm", "l2") for duty in (100, 50) for tensor in (100, 75, 50)
    ]  # fmt: skip
    found += [
        _row(run_us, tensor_duty=tensor, stream=stream, stream_duty=100, data="zeros")
        for stream in ("hbm", "l2") for tensor in (100, 87)
    ]  # fmt: skip
    found += [_row(run_us, tensor_duty=100, stream="fed_own", num_boxes=boxes) for boxes in (0, 1, 2, 3, 5)]
    found += [_row(run_us, tensor_duty=100, stream="fed_same", num_boxes=boxes) for boxes in (1, 2, 3, 5)]
    found += [_row(run_us, tensor_duty=100, stream=stream, num_boxes=3, data="zeros") for stream in ("fed_own", "fed_same")]
    found += [_row(run_us, work="fp8", tensor_duty=100, stream="fed_own", num_boxes=boxes) for boxes in (2, 3)]
    return found + [
        _row(run_us, work=work, tensor_duty=tensor, data=data)
        for work in TYPES for data, tensor in (
            ("random", 100), ("random", 87), ("random", 75), ("random", 62), ("random", 50), ("zeros", 75), ("zeros", 100),
        )
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- operands and streams
def work_of(config: Mapping[str, str]) -> str:
    """The kind of tensor work, a key of ``TYPES``."""
    return config["kernel"].partition("_")[2]


def atom_of(work: str) -> MmaAtom:
    """The one instruction."""
    return wgmma(N, dtype(TYPES[work]), "registers" if work.endswith("_rs") else "smem")


def includes() -> dict[str, str]:
    """``shapes.inc``: the one instruction of each kind, with its 128 sums, and the kernels."""
    kernels = [f"POWER_KERNEL(stream_{work}, {work}, false)\n" for work in TYPES]
    kernels += [f"POWER_KERNEL(fed_{work}, {work}, true)\n" for work in FED]
    return {"shapes.inc": "".join(_struct(work) for work in TYPES) + "".join(kernels)}


def _struct(work: str) -> str:
    atom, is_register = atom_of(work), work.endswith("_rs")
    word, letter = ("int32_t", "r") if TYPES[work] == "int8" else ("float", "f")
    sums = ", ".join(f"%{i}" for i in range(128))
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(128))
    a = "{%128, %129, %130, %131}" if is_register else "%128"
    inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])' if is_register else '"l"(a_at)'
    b, adds = ("%132", "%133") if is_register else ("%129", "%130")
    others = "" if TYPES[work] == "int8" else ", 1, 1"
    if dtype(TYPES[work]).bits == 16:
        others += ", 0" if is_register else ", 0, 0"
    return f"""struct {work} {{
    using Sum = {word};
    static constexpr int kRegisters = {16 if is_register else 1};
    static __device__ __forceinline__ void issue(Sum (&d)[128], const uint32_t (&a)[4], uint64_t a_at, uint64_t b_at,
                                                 int adds) {{
        asm volatile("{{ .reg .pred p; setp.ne.b32 p, {adds}, 0; {atom.ptx} {{{sums}}}, {a}, {b}, p{others}; }}"
                     : {outputs} : {inputs}, "l"(b_at), "r"(adds));
    }}
}};
"""


@cache
def numbers(work: str, data: str, rows: int) -> NDArray[np.float64]:
    """An operand, float64[rows, k], of numbers that the type has; normal, or zeros."""
    num_k = K_BYTES * 8 // dtype(TYPES[work]).bits
    return np.asarray(draw(rows, num_k, TYPES[work], 7)) if data == "random" else np.zeros((rows, num_k))


@cache
def operands(work: str, data: str, num_copies: int) -> NDArray[np.uint8]:
    """A and B by panels in memory, uint8[rows, 128]: 64 rows of A, 256 of B, the next panel; copied to the GPU once."""
    parts = [
        np.ascontiguousarray(encode(numbers(work, data, rows), TYPES[work])).view(np.uint8).reshape(rows, K_BYTES)
        for rows in (M, N)
    ]
    rows = np.concatenate(parts).reshape(PANEL_ROWS, NUM_PANELS, PANEL_BYTES).transpose(1, 0, 2).reshape(-1, PANEL_BYTES)
    return read_only(np.ascontiguousarray(np.tile(rows, (num_copies, 1))))


def rows_map(num_rows: int) -> TensorMap:
    """Boxes of 64 rows of 128 bytes, swizzled."""
    return TensorMap(
        dtype=BF16, global_dim=(ROW_BYTES // 2, num_rows), global_strides_bytes=(ROW_BYTES,),
        box_dim=(ROW_BYTES // 2, BOX_ROWS), swizzle="128B", l2_promotion="none",
    )  # fmt: skip


def stream_bytes(config: Row) -> NDArray[np.uint8]:
    """What is streamed, in rows of 128 bytes; some zeros where nothing is."""
    return np.asarray(_stream_bytes(config.stream if config.stream in STREAM_BYTES else "", config.data))


@cache
def _stream_bytes(stream: str, data: str) -> NDArray[np.uint8]:
    if stream:
        return np.asarray(loads.stream_buffer(stream, data))
    return read_only(np.zeros(BOX_BYTES, dtype=np.uint8))


def launch(config: Row) -> KernelLaunch:
    """A CTA on every SM, for so long."""
    stream, work, data = config.stream, work_of(config), config.data
    streamed, operand = stream_bytes(config), operands(work, data, NUM_SMS if stream == "fed_own" else 1)
    plan = loads.plan_of(
        config, config.tensor_duty, config.stream_duty, stream == "l2",
        SLICE_ROWS if stream == "l2" else len(streamed) // ROW_BYTES, config.num_boxes, stream == "fed_own",
        loads.num_samples(config), 0,
    )  # fmt: skip
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            plan, MappedTensor(operand, rows_map(len(operand))), Input(operands(work, data, 1)),
            MappedTensor(streamed, rows_map(len(streamed) // ROW_BYTES)),
            Output("samples", np.zeros((NUM_SMS, loads.num_samples(config), 2), dtype="<u8")),
            Output("done", np.zeros((NUM_SMS, 6), dtype="<u8")),
            Output("d", np.full((128, 128), -1, dtype="<i4" if TYPES[work] == "int8" else "<f4")),
        ),
        grid=(NUM_SMS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


@cache
def products(work: str, data: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each thread holds after a burst, float64[register, thread]: A times B, four times over; and of their sizes."""
    a, b = numbers(work, data, M), numbers(work, data, N)
    whole, sizes = PASSES * a @ b.T, PASSES * np.abs(a) @ np.abs(b).T
    return np.asarray(whole[fragment_places(N)]), np.asarray(sizes[fragment_places(N)])


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Clocks over time and over SMs, and how much was done.

    Raises:
        WrongAnswer: sums that are not the product, words that the stream does not hold, work that was not done, a wait that
            was given up, or clocks that stand still.
    """
    done = outputs["done"].astype(np.int64)
    has_tensor, has_stream = config.tensor_duty > 0, config.stream != "none" and config.num_boxes > 0
    has_stream |= config.stream in STREAM_BYTES
    wrong_if(done[:, 4].any(), "an mbarrier never completed, the wait was given up")
    if ((done[:, 0] > 0) != has_tensor).any() or ((done[:, 1] > 0) != has_stream).any():
        raise WrongAnswer("a CTA has done nothing of its work, or what was not asked")
    if has_tensor:
        wanted, sizes = products(work_of(config), config.data)
        if not (np.abs(outputs["d"] - wanted) <= types.TOLERANCES[TYPES[work_of(config)]] * sizes).all():
            raise WrongAnswer(f"a sum is off by {np.abs(outputs['d'] - wanted).max()}")
    if config.stream in STREAM_BYTES:
        _check_stream(config, done)
    run_s = config.run_us * 1e-6
    found: dict[str, float] = loads.clocks_of(outputs)
    if has_tensor:
        found["tflops"] = float(done[:, 0].sum()) * BURST_WGMMAS * atom_of(work_of(config)).num_flops / run_s * 1e-12
    if has_stream:
        found["gb_per_s"] = float(done[:, 1].sum()) * BOX_BYTES / run_s * 1e-9
    return found


def _check_stream(config: Row, done: NDArray[np.int64]) -> None:
    words = stream_bytes(config).view("<u4").reshape(-1, BOX_BYTES // 4)
    for cta, (_, _, row, seen, *_) in enumerate(done):
        if row % BOX_ROWS or row // BOX_ROWS >= len(words) or int(np.bitwise_xor.reduce(words[row // BOX_ROWS])) != seen:
            raise WrongAnswer(f"CTA {cta} has copied other words from row {row} than there are")


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_BURSTS = 4
TWIN_ROUNDS, WAITED_ROUNDS = 16, 4
"""Rounds of a stream alone; those that are simulated to know what one takes that is waited for."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The clock that the power limit allows: of one launch, or at the end of half a second; the same on all SMs.

    Nothing for a GPU without wgmma or TMA. A GPU of another number of SMs works on all of its own.
    """
    if not {"wgmma", "tma"} <= gpu.features:
        return {}

    def run(mhz: float) -> tuple[Launch, Any]:
        made = twin(config, gpu, mhz)
        return made, _run(made, gpu, mhz, config.stream, loads.as_modelled(config.data))

    found, time_us, _, result = loads.settled(config, gpu, run, TWIN_BURSTS)
    num_bytes = result.counters[TMA_BYTES]
    return dict(found) | ({"gb_per_s": num_bytes / time_us / 1e3} if num_bytes else {})


TMA_BYTES = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"


def _run(made: Launch, gpu: GpuSpec, mhz: float, stream: str, data: str, recorded_sms: Collection[int] = ()) -> Any:
    state = "cold" if stream == "hbm" else "warm"
    return simulate(made, loads.endless(gpu), clock=mhz, l2=state, data=data, recorded_sms=recorded_sms)


def burst_cycles(work: str, gpu: GpuSpec) -> float:
    """What a burst takes alone."""
    assert gpu.tensor_core is not None  # of compute capability 9.0
    atom, rows = atom_of(work), N if work.endswith("_rs") else M + N
    each = gpu.tensor_core.wgmma_cycles(rate_class=atom.rate_class, num_flops=atom.num_flops, num_wavefronts=rows * 32 / 128)
    return float(BURST_WGMMAS * each)


def twin(config: Row, gpu: GpuSpec, mhz: float) -> Launch:
    """Some bursts on every SM in the simulator's words, and boxes until they are over; rests are fences of their length."""
    tensor, stream, duty = config.tensor_duty, config.stream, config.stream_duty
    num_bursts = TWIN_BURSTS if tensor else 0
    if stream.startswith("fed"):
        copier = _feeder(config.num_boxes, TWIN_BURSTS * BURST_WGMMAS // NUM_PANELS, is_own=stream == "fed_own")
        return _launch(config, gpu, copier, TWIN_BURSTS)
    if not duty:
        return _launch(config, gpu, loads.nothing, num_bursts)
    rest_cycles = 0.0
    if duty < 100:
        waited = _launch(config, gpu, _streamer(stream, [WAITED_ROUNDS] * gpu.num_sms, is_waited=True), 0)
        rest_cycles = _run(waited, gpu, mhz, stream, "random").cycles / WAITED_ROUNDS * (100 - duty) / duty

    def launched(rounds: Sequence[int]) -> Launch:
        copier = _streamer(stream, rounds, is_waited=duty < 100, rest_cycles=rest_cycles)
        return _launch(config, gpu, copier, num_bursts)

    num_rounds, made = TWIN_ROUNDS, launched([TWIN_ROUNDS] * gpu.num_sms)
    while tensor:  # a program says beforehand how many rounds it has: first more than go beside the bursts
        ends = _ends(_run(made, gpu, mhz, stream, "random", recorded_sms=range(gpu.num_sms)))
        over, last = ([ends[role, cta] for cta in range(gpu.num_sms)] for role in ("multiply", "copy"))
        if all(rounds[-1] >= bursts[-1] for bursts, rounds in zip(over, last, strict=True)):
            of_cta = [int(np.searchsorted(rounds, bursts[-1])) + 1 for bursts, rounds in zip(over, last, strict=True)]
            return launched(of_cta)
        late = max(bursts[-1] / rounds[-1] for bursts, rounds in zip(over, last, strict=True))
        num_rounds = ceil(num_rounds * late) + 1
        made = launched([num_rounds] * gpu.num_sms)
    return made


def _ends(result: Any) -> dict[tuple[str, int], list[float]]:
    """When each burst, or round, of a role of a CTA was over."""
    return {(role.role, role.cta_idx): [mark.end_cycle for mark in role.sections] for role in result.timeline.roles}


Program = Callable[[RoleContext], Iterator[Any]]


def _launch(config: Row, gpu: GpuSpec, copier: Program, num_bursts: int) -> Launch:
    work = work_of(config)
    roles = (
        WarpRole(name="multiply", num_warps=4, program=_multiplier(config, gpu, num_bursts)),
        WarpRole(name="copy", num_warps=1, program=copier), WarpRole(name="watch", num_warps=1, program=loads.nothing),
    )  # fmt: skip
    return Launch(
        kernel=config.kernel, num_ctas=gpu.num_sms, num_tiles=gpu.num_sms, roles=roles, registers_per_thread=232,
        buffers=(
            Buffer(name="panels", stage_bytes=BOXES_PER_PANEL * BOX_BYTES, num_stages=NUM_PANELS),
            Buffer(name="slots", stage_bytes=BOX_BYTES, num_stages=NUM_SLOTS),
        ),
        mbarriers=(
            Mbarrier(name="full", num_arrivals=1, num_stages=NUM_SLOTS),
            Mbarrier(name="empty", num_arrivals=1, num_stages=NUM_PANELS),
        ),
        num_flops=gpu.num_sms * num_bursts * BURST_WGMMAS * atom_of(work).num_flops,
        math_class=atom_of(work).rate_class if num_bursts else "",
    )  # fmt: skip


def _multiplier(config: Row, gpu: GpuSpec, num_bursts: int) -> Program:
    work, tensor, is_fed = work_of(config), config.tensor_duty, config.stream.startswith("fed")
    reads = config.num_boxes > 0
    atom, num_panels = atom_of(work), BURST_WGMMAS // 4
    rest = burst_cycles(work, gpu) * (100 - tensor) / tensor if tensor else 0.0
    rest += loads.BURST_CYCLES + (loads.LATE_CYCLES if tensor < 100 else 0.0)

    def multiply(_cta: RoleContext) -> Iterator[ops.Op]:
        for burst in range(num_bursts):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            for step in range(num_panels):
                panel = step % NUM_PANELS
                if is_fed:
                    yield ops.MbarrierWait("full", panel, (burst * num_panels + step) // NUM_PANELS & 1)
                yield ops.Wgmma(atom, 4, reads=(("panels", panel),) if reads else ())
                yield ops.WgmmaCommitGroup()
                yield ops.WgmmaWaitGroup(1)
                if is_fed and step:
                    yield ops.MbarrierArrive("empty", (step - 1) % NUM_PANELS)
            yield ops.WgmmaWaitGroup(0)
            if is_fed:
                yield ops.MbarrierArrive("empty", NUM_PANELS - 1)
            for _ in range(round(rest / loads.REST_CYCLES)):
                yield ops.FenceProxyAsync()
            yield ops.RangeEnd()

    return multiply


def _streamer(stream: str, rounds: Sequence[int], *, is_waited: bool, rest_cycles: float = 0.0) -> Program:
    """As many rounds as each CTA has."""

    def copy(cta: RoleContext) -> Iterator[ops.Op]:
        num_rounds = rounds[cta.cta_idx]
        for turn in range(num_rounds):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            for slot in range(NUM_SLOTS):
                if turn and not is_waited:
                    yield ops.MbarrierWait("full", slot, turn & 1 ^ 1, by_lane=True)
                yield ops.MbarrierArriveExpectTx("full", slot, BOX_BYTES)
                box = turn * NUM_SLOTS + slot
                tile = (cta.cta_idx, box if stream == "hbm" else box % (SLICE_ROWS // BOX_ROWS))
                yield ops.TmaLoad("stream", tile, BOX_BYTES, BOX_BYTES, BOX_ROWS, "slots", slot, "full")
            if is_waited:
                for slot in range(NUM_SLOTS):
                    yield ops.MbarrierWait("full", slot, turn & 1, by_lane=True)
                for _ in range(round(rest_cycles / loads.REST_CYCLES)):
                    yield ops.FenceProxyAsync()
            yield ops.RangeEnd()
        if not is_waited:
            for slot in range(NUM_SLOTS):
                yield ops.MbarrierWait("full", slot, num_rounds & 1 ^ 1, by_lane=True)

    return copy


def _feeder(num_boxes: int, num_steps: int, *, is_own: bool) -> Program:
    def feed(cta: RoleContext) -> Iterator[ops.Op]:
        box = 0
        for step in range(num_steps):
            panel = step % NUM_PANELS
            yield ops.MbarrierWait("empty", panel, step // NUM_PANELS & 1 ^ 1, by_lane=True)
            if not num_boxes:
                yield ops.MbarrierArrive("full", panel)
                continue
            yield ops.MbarrierArriveExpectTx("full", panel, num_boxes * BOX_BYTES)
            for idx in range(num_boxes):
                tile = (cta.cta_idx if is_own else 0, panel * BOXES_PER_PANEL + (box + idx) % BOXES_PER_PANEL)
                yield ops.TmaLoad("operands", tile, BOX_BYTES, BOX_BYTES, BOX_ROWS, "panels", panel, "full")
            if panel == NUM_PANELS - 1:
                box += num_boxes

    return feed


# ---------------------------------------------------------------------------------------------- parameters

BEGIN = {
    "tensor_pj_per_flop.bf16_rs": 0.8, "tensor_pj_per_flop.fp16": 1.0, "tensor_pj_per_flop.tf32": 1.6,
    "tensor_pj_per_flop.fp8": 0.4, "tensor_pj_per_flop.int8": 0.4, "bulk_pj_per_byte": 30.0, "fill_pj_per_byte": 10.0,
}  # fmt: skip
"""What is searched together, and where it begins."""
NAMELESS = ("tensor_pj_per_flop.bf16_rs",)
"""Of these, what the machine has no name for."""
OF_CLOCKS = {
    "voltage_slope": 0.6173, "tensor_pj_per_flop.16bit": 0.9288, "tensor_burst_mhz_us": 684.3,
    "load_line_mhz_per_w": 0.1724, "single_power_w": 886.8,
}  # fmt: skip
"""What kernels/power_clock gives: as described of the H200."""
OWN_ENERGY = ("bf16_rs", "fp16")
"""Kinds of 16-bit work that are told apart."""
SERVED = {"fed_same": 0.27}
"""Bytes that leave L2 for each that comes. Source: sectors counted where all SMs share tiles, kernels/tile_sharing, the
median of the calibrating rows."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Energy of a byte by TMA, and of tensor work of the other types: by the clocks of all runs at once."""
    ran = [
        row for row in rows
        if _has_rates(row) and loads.is_steady(row) and (row["data"] != "zeros" or row["stream"] == "none")  # no watts known
    ]  # fmt: skip
    highest = max((loads.clock_mhz(row) for row in ran), default=0.0)

    solved = least_squares(
        BEGIN, lambda values: limiter_of(values, highest), lambda model, row: (
            model.clock_mhz(activity_of(row), mode=row["group"], data=row["data"]) / loads.clock_mhz(row) - 1.0
        ), ran,
    )  # fmt: skip
    how = (
        f"least squares over the clocks of {len(ran)} runs, with what kernels/power_clock gives of bf16 and the load line, "
        f"{loads.HOW_OF_WATTS}"
    )
    return [
        Fitted(parameter=f"clock.{name}", value=value, how=how) for name, value in solved.items() if name not in NAMELESS
    ] + _of_l2(rows)


def _of_l2(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """How far L2's clock follows: streams out of it that never rest, beside tensor work that lowers the SMs' clock."""
    ran = [
        (np.log(float(row.get("mhz") or loads.clock_mhz(row))), np.log(float(row["gb_per_s"])))
        for row in rows if row["stream"] == "l2" and row["stream_duty"] == "100" and row.get("gb_per_s")
    ]  # fmt: skip
    if not ran:
        return []
    fastest = max(ran)
    slopes = [(fastest[1] - rate) / (fastest[0] - clock) for clock, rate in ran if clock < fastest[0] - 0.05]
    how = "streams by TMA out of L2 beside wgmma, GB/s over clock: slope of logarithms from the fastest on, median"
    return fitted("clock.l2_clock_coupling_fraction", slopes, how)


def _has_rates(row: Mapping[str, str]) -> bool:
    """Whether all of the work has a rate."""
    has_bytes = row["stream"] in STREAM_BYTES or row["num_boxes"] != "0"
    has_tensor = row["tensor_duty"] == "0" or bool(row.get("tflops"))
    return has_tensor and (not has_bytes or bool(row.get("gb_per_s"))) and bool(loads.clock_mhz(row) > 0.0)


def activity_of(row: Mapping[str, str]) -> Activity:
    """What a run does, in cycles of its own clock."""
    mhz, run_us, atom = loads.clock_mhz(row), float(row["run_us"]), atom_of(work_of(row))
    whole = float(row.get("mhz") or mhz)
    num_bytes = float(row.get("gb_per_s") or 0.0) * 1e3 * run_us
    num_flops = float(row.get("tflops") or 0.0) * 1e6 * run_us
    num_flops = max(0.0, num_flops - 0.5 * NUM_SMS * BURST_WGMMAS * atom.num_flops)  # half a burst was done later
    activity = Activity(
        cycles=mhz * run_us, num_flops=num_flops * mhz / whole, l2_bytes=0.0,
        rate_class=work_of(row) if work_of(row) in OWN_ENERGY else atom.rate_class,
        bulk_bytes=num_bytes * SERVED.get(row["stream"], 1.0), fill_bytes=num_bytes,
        hbm_bytes=num_bytes if row["stream"] == "hbm" else 0.0, busy_fraction=1.0,
    )  # fmt: skip
    found: Activity = loads.in_bursts(
        activity, duty=int(row["tensor_duty"]), flops_per_burst=NUM_SMS * BURST_WGMMAS * atom.num_flops
    )
    return found


def limiter_of(values: dict[str, float], highest_mhz: float) -> PowerLimiter:
    """The machine's part with these values of ``BEGIN``."""
    known = loads.POWER_LIMIT | loads.OF_TENSOR | loads.OF_WATTS | OF_CLOCKS | values
    return limiter(highest_mhz, known)


CASE = Case(
    name="power_tma",
    question="At what clock does the SM run where TMA brings the bytes, beside tensor work and into its operands?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={
        name: Group(configs=partial(_mixes, run_us), rank=3, least_capability=(9, 0), num_sms=132)
        for name, run_us in (("single", SINGLE_US), ("sustained", SUSTAINED_US))
    },
    values=loads.CASE.values,
    tiers={"mhz": 4, "last_mhz": 4, "tflops": 4},
)  # fmt: skip
