"""Do fills of shared memory share a port with wgmma's operand reads? Both rates, alone and together, by the fill's pace."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole
from gpusim.evidence.cases.array import fragment_places, k_major_descriptors, read_only, swizzled
from gpusim.evidence.cases.background_wgmma import K_STEPS, K, M, atom_of, encode, image, operand, struct
from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.microbenchmark import range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted, fitted_constant
from gpusim.units import LINE_BYTES, SECTOR_BYTES
from gpusim.workload import ops
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext
from gpusim.workload.ops import Op
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.smem.wgmma_operands import wgmma_wavefronts
from gpusim.workload.tma.boxes import TensorMap

SOURCES, SOME_N = ("ss", "rs"), (64, 128, 256)
TRAIN_CYCLES = 40_000
"""About how long a train takes alone, and a fill that has none beside it."""
FILL_BYTES, SLOT_BYTES, NUM_SLOTS = 65536, 8192, 8
LOAD_WORDS = 4096 // 4
"""Of a warp's turn of loads."""

FILLS = {"none": 0, "tma": 1, "tma_outside": 2, "cp_async": 3, "st_shared": 4, "ld_shared": 5}
"""As kernel.cu numbers them; ``tma_outside``: boxes outside of the tensor, which are zeros and fetch nothing."""
TURN_BYTES = {
    "none": 0, "tma": SLOT_BYTES, "tma_outside": SLOT_BYTES, "cp_async": SLOT_BYTES, "st_shared": 16384, "ld_shared": 16384,
}  # fmt: skip
"""What all warps of a fill move in a turn."""
PACES = (0, 8, 16, 24, 32, 48, 64, 80, 96, 112)
"""Bytes a cycle that the fill is held to; 0 for as fast as it goes."""

GMMA_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"
METRICS = (
    GMMA_WAVEFRONTS, "l1tex__data_bank_conflicts_type_arbitration.sum", "l1tex__data_bank_reads.sum",
    "l1tex__data_bank_writes.sum",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- shapes and configs
def shape_name(source: str, n: int) -> str:
    """A in shared memory (``ss``) or registers (``rs``)."""
    return f"{source}_n{n}"


def includes() -> dict[str, str]:
    """``shapes.inc``: a struct with the instruction, and a kernel, for every shape."""
    shapes = [(shape_name(source, n), source, n) for source in SOURCES for n in SOME_N]
    return {"shapes.inc": "".join(f"{struct(*shape)}BESIDE_KERNEL({shape[0]})\n" for shape in shapes)}


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    source: str
    n: int
    fill: str
    pace_bytes_per_cycle: int
    has_train: bool

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"beside_{shape_name(self.source, self.n)}"

    @property
    def num_groups(self) -> int:
        """Groups of a train, whose wgmma take N / 2 alone, roughly."""
        return round(TRAIN_CYCLES / (K_STEPS * (self.n / 2))) if self.has_train else 0

    @property
    def interval_cycles(self) -> int:
        """From one turn of the fill to the next."""
        return round(TURN_BYTES[self.fill] / self.pace_bytes_per_cycle) if self.pace_bytes_per_cycle else 0


def alone() -> list[Row]:
    """Every train without a fill, and every fill without a train."""
    trains = Row.sweep(source=SOURCES, n=SOME_N, fill="none", pace_bytes_per_cycle=0, has_train=True)
    fills = [fill for fill in FILLS if fill != "none"]
    return trains + Row.sweep(source="ss", n=64, fill=fills, pace_bytes_per_cycle=PACES, has_train=False)


def together() -> list[Row]:
    """Every train with every fill at every pace."""
    fills = [fill for fill in FILLS if fill != "none"]
    return Row.sweep(source=SOURCES, n=SOME_N, fill=fills, pace_bytes_per_cycle=PACES, has_train=True)


# ---------------------------------------------------------------------------------------------- operands
@cache
def a_rows() -> NDArray[np.uint8]:
    """A, row by row, for registers."""
    return read_only(encode(operand(M, 0)))


@cache
def product(n: int) -> NDArray[np.int64]:
    """What a group adds, int64[64, n]."""
    return np.asarray(operand(M, 0) @ operand(n, 1).T)


def accumulators(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """What each thread holds of (m, n), int64[n / 2, 128]: PTX's fragment of D."""
    return np.asarray(sums[fragment_places(sums.shape[1])])


@cache
def region() -> NDArray[np.uint8]:
    """What is in the filled shared memory beforehand, and in the tensor that TMA and cp.async fill it from."""
    return read_only(np.random.default_rng(5).integers(1, 256, FILL_BYTES, dtype=np.uint8))


@cache
def fill_map() -> TensorMap:
    """Boxes of 64 rows of 128 bytes."""
    return TensorMap(
        dtype=BF16, global_dim=(64, FILL_BYTES // 128), global_strides_bytes=(128,), box_dim=(64, SLOT_BYTES // 128),
        swizzle="128B", l2_promotion="none",
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
def launch(config: Row) -> KernelLaunch:
    """The same, counted or not."""
    n = config.n
    a_bytes, b_bytes = M * K * 2, n * K * 2
    starts = np.array([*k_major_descriptors(M), *k_major_descriptors(n)], dtype="<u8")
    others = [a_bytes, b_bytes, config.num_groups, TRAIN_CYCLES, FILLS[config.fill], config.interval_cycles]
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.concatenate([starts.view("<u4"), np.array(others, dtype="<u4")])),
            Input(image(M, 0)), Input(image(n, 1)),
            Input(a_rows()), MappedTensor(region(), fill_map()), Input(region()),
            Output("d", np.full((n // 2, 128), -1, dtype="<f4")),
            Output("smem", np.zeros(FILL_BYTES, dtype=np.uint8)), Output("seen", np.full(20, 0xFFFFFFFF, dtype="<u4")),
        ),
        block=(256, 1, 1), smem_bytes=a_bytes + b_bytes + FILL_BYTES,
    )  # fmt: skip


def filled(fill: str) -> NDArray[np.uint8]:
    """The filled shared memory at the end."""
    if fill == "tma":
        return swizzled(region())
    if fill == "tma_outside":
        return np.zeros(FILL_BYTES, dtype=np.uint8)
    if fill == "st_shared":
        threads = np.arange(128, 256, dtype=np.uint64).reshape(4, 1, 32, 1)
        words = threads * 0x9E3779B1 + 1 + np.arange(4, dtype=np.uint64)
        return np.ascontiguousarray(np.broadcast_to(words, (4, 32, 32, 4)).astype("<u4")).view(np.uint8).reshape(-1)
    return region()


def load_sums() -> NDArray[np.uint32]:
    """What a turn of loads adds up to, for each warp."""
    words = region().view("<u4").reshape(4, -1)[:, :LOAD_WORDS]
    return np.asarray(words.sum(axis=1, dtype=np.uint64).astype("<u4"))


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Both rates, if sums and bytes are right.

    Raises:
        WrongAnswer: accumulators or shared memory hold something else, or a wait was given up.
    """
    train_cycles, has_failed = (int(number) for number in outputs["seen"][:2])
    wrong_if(has_failed, "an mbarrier never completed, the wait was given up")
    if (outputs["d"] != config.num_groups * accumulators(product(config.n))).any():
        raise WrongAnswer("the accumulators are not so many times the product")
    fill = config.fill
    wrong_if((outputs["smem"] != filled(fill)).any(), f"the shared memory that {fill} fills holds other bytes")
    values = {"train_cycles": float(train_cycles)}
    if config.num_groups:
        values["wgmma_cycles"] = train_cycles / (K_STEPS * config.num_groups)
    wrong_if(not 0 < train_cycles < 1e8, f"the clock says {train_cycles} cycles")
    return values | (_fill_values(config, outputs["seen"][4:].reshape(4, 4)) if fill != "none" else {})


def _fill_values(config: Row, seen: NDArray[np.uint32]) -> dict[str, float]:
    fill = config.fill
    warps = seen[:1] if fill.startswith("tma") else seen
    cycles, turns = warps[:, 0].astype(np.int64), warps[:, 1].astype(np.int64)
    if (turns <= 0).any() or (turns > 1 << 24).any() or (cycles <= 0).any():
        raise WrongAnswer(f"the fill says {turns} turns in {cycles} cycles")
    if fill == "ld_shared" and (warps[:, 2] != (load_sums().astype(np.int64) * turns).astype("<u4")).any():
        raise WrongAnswer("the loads do not add up")
    share = TURN_BYTES[fill] / len(warps)
    return {"fill_bytes_per_cycle": float((share * turns / cycles).sum())}


# ---------------------------------------------------------------------------------------------- the simulator's answer
def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """Both rates, for fills without a pace or held to more than hardly any reaches; the counts of operand reads.

    Nothing for boxes outside of the tensor, and for paces that a fill just keeps.
    """
    values: dict[str, float] = {}
    fill, has_train, pace = config.fill, config.has_train, config.pace_bytes_per_cycle
    atom = atom_of(config.source, config.n)
    values[GMMA_WAVEFRONTS] = float(K_STEPS * config.num_groups * wgmma_wavefronts(atom))
    has_fill = fill not in ("none", "tma_outside") and (not pace or pace >= LEAST_PACE)
    if not has_train and not has_fill:
        return values
    beside = fill if has_fill else "none"
    spans = _simulated(gpu, config.source, config.n, beside, has_train=has_train, is_paced=bool(pace))
    if has_train:
        values["wgmma_cycles"] = spans["train"] / (twin_groups(config.n, beside) * K_STEPS)
    if has_fill:
        rate = TURN_BYTES[fill] * TWIN_TURNS[fill] / spans["fill"]
        values["fill_bytes_per_cycle"] = min(rate, TURN_BYTES[fill] / config.interval_cycles) if pace else rate
    return values


LEAST_PACE = 80
"""Bytes a cycle: fills that are held to more judge what binds them."""
TWIN_CYCLES = {"tma": 12000, "cp_async": 12000, "st_shared": 40000, "ld_shared": 40000, "none": 8000}
"""About how long a train takes that is simulated beside a fill: so that all turns of the fill are beside it."""
TWIN_TURNS = {"tma": 16, "cp_async": 64, "st_shared": 4, "ld_shared": 4}
WARM_TURNS = {"tma": NUM_SLOTS, "cp_async": NUM_SLOTS, "st_shared": 1, "ld_shared": 1}
"""Before the clock is looked at."""


def twin_groups(n: int, fill: str) -> int:
    """Groups of a train that is simulated."""
    return round(TWIN_CYCLES[fill] / (K_STEPS * n / 2))


def _simulated(gpu: GpuSpec, source: str, n: int, fill: str, *, has_train: bool, is_paced: bool) -> dict[str, float]:
    roles, buffers, mbarriers = [], [Buffer(name="operands", stage_bytes=(M + n) * K * 2)], []
    if has_train:
        roles.append(WarpRole(name="train", num_warps=4, program=_train(source, n, fill)))
    if fill != "none":
        num_fills = num_roles(fill)
        num_warps = 1 if fill == "tma" else 4 // num_fills
        program = _fill(fill, is_paced=is_paced)
        roles += [WarpRole(name=f"fill{idx}", num_warps=num_warps, program=program) for idx in range(num_fills)]
        buffers.append(Buffer(name="slots", stage_bytes=SLOT_BYTES, num_stages=NUM_SLOTS))
        mbarriers.append(Mbarrier(name="full", num_arrivals=1, num_stages=NUM_SLOTS))
    launch = Launch(
        kernel="fill_beside_wgmma", num_ctas=1, num_tiles=1, roles=tuple(roles), buffers=tuple(buffers),
        mbarriers=tuple(mbarriers), registers_per_thread=168, math_class="16bit",
        num_flops=2 * M * n * K * twin_groups(n, fill) if has_train else 0,
    )  # fmt: skip
    spans = {name: cycles[0] for name, cycles in range_cycles(launch, gpu).items()}
    fills = [cycles for name, cycles in spans.items() if name.startswith("fill")]
    return {name: cycles for name, cycles in spans.items() if name == "train"} | ({"fill": fmean(fills)} if fills else {})


def wait(cycles: float) -> Op:
    """Instructions that take a warp so long, each of which waits for the one before."""
    return ops.Alu(cycles / 4, is_chain=True)


def _train(source: str, n: int, fill: str) -> Any:
    def program(_cta: RoleContext) -> Iterator[Any]:
        lines = (M + n) * K * 2 // LINE_BYTES
        access = AccessPattern(num_requests=lines, num_wavefronts=lines, num_bytes=lines * LINE_BYTES)
        yield ops.SharedStore(access, "operands", 0)
        yield ops.FenceProxyAsync()
        yield ops.RangeStart(ops.Section.MAINLOOP)
        for _ in range(twin_groups(n, fill)):
            yield ops.WgmmaFence()
            yield ops.Wgmma(atom_of(source, n), K_STEPS, reads=(("operands", 0),))
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(1)
        yield ops.WgmmaWaitGroup(0)
        yield ops.RangeEnd()

    return program


def num_roles(fill: str) -> int:
    """Warps that store are each where its own queue lets it be; those that wait for what they load go in step."""
    return 4 if fill == "st_shared" else 1


FLAG_CHAIN, STORE_CHAIN = 2.5, 4.0
"""Instructions of a turn of stores before it looks whether it is over, and at its end, each of which waits for the one
before; from SASS."""
TURN_CYCLES = {"tma": 202.0, "cp_async": 58.7}
"""The rest of a turn, which nothing overlaps: addresses, commits, branches, loops over lanes that could differ."""
PACE_CYCLES = {"tma": 60.0, "cp_async": 35.0, "st_shared": 43.0, "ld_shared": 52.0}
"""What a look at the clock, a comparison and a branch add to a turn that has a pace."""


def _fill(fill: str, *, is_paced: bool) -> Any:
    turn_bytes = TURN_BYTES[fill] // num_roles(fill)
    num_warps = 1 if fill == "tma" else 4 // num_roles(fill)
    flag = AccessPattern(num_requests=num_warps, num_wavefronts=num_warps, num_bytes=num_warps * 128)
    lines = turn_bytes // LINE_BYTES
    requests = turn_bytes // 512
    access = AccessPattern(
        num_requests=requests, num_sectors=turn_bytes // SECTOR_BYTES if fill == "cp_async" else 0,
        num_lines=lines if fill == "cp_async" else 0, num_wavefronts=lines, num_bytes=turn_bytes,
    )  # fmt: skip

    def program(_cta: RoleContext) -> Generator[Any, Any, None]:
        for turn in range(WARM_TURNS[fill] + TWIN_TURNS[fill]):
            slot = turn % NUM_SLOTS
            if is_paced:
                yield wait(PACE_CYCLES[fill])
            if fill == "tma":
                yield ops.Use((yield ops.SharedLoad(flag)))
            if fill == "tma" and turn >= NUM_SLOTS:
                yield ops.MbarrierWait("full", slot, turn // NUM_SLOTS & 1 ^ 1, by_lane=True)
            if turn == WARM_TURNS[fill]:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            if fill == "tma":
                yield ops.MbarrierArriveExpectTx("full", slot, SLOT_BYTES)
                yield ops.TmaLoad("T", (0, slot), SLOT_BYTES, SLOT_BYTES, SLOT_BYTES // 128, "slots", slot, "full")
                yield wait(TURN_CYCLES[fill])
            elif fill == "cp_async":
                yield ops.Use((yield ops.SharedLoad(flag)))  # the copies wait for it
                yield ops.CpAsync("T", (0, slot), access, "slots", slot)
                yield ops.CpAsyncCommitGroup()
                yield ops.CpAsyncWaitGroup(NUM_SLOTS - 1)
                yield wait(TURN_CYCLES[fill])
            elif fill == "st_shared":
                yield ops.Alu(FLAG_CHAIN, is_chain=True)
                yield ops.Use((yield ops.SharedLoad(flag)))
                yield ops.SharedStore(access)
                yield ops.Alu(STORE_CHAIN, is_chain=True)
            else:
                yield ops.Use((yield ops.SharedLoad(access)))
        yield ops.RangeEnd()
        if fill == "tma":
            for turn in range(TWIN_TURNS[fill], NUM_SLOTS + TWIN_TURNS[fill]):
                yield ops.MbarrierWait("full", turn % NUM_SLOTS, turn // NUM_SLOTS & 1)

    return program


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What loads return, and stores bring, beside wgmma whose operands leave them more."""
    found: list[Fitted] = []
    for fill, word, parameter in (
        ("ld_shared", "loads", "wgmma_lds_registers_per_cycle"),
        ("st_shared", "stores", "wgmma_sts_wavefronts_per_cycle"),
    ):  # fmt: skip
        rates = [
            float(row["fill_bytes_per_cycle"]) / LINE_BYTES for row in rows
            if row["group"] == "together" and row["fill"] == fill and row["pace_bytes_per_cycle"] == "0"
            and operand_share(row) < MOST_OPERAND_SHARE
        ]  # fmt: skip
        found += fitted(f"smem.{parameter}", rates, f"{word} of 128 bits beside wgmma whose operands leave more, median")
    return found


MOST_OPERAND_SHARE = 0.7
"""Of the data stage; wgmma that reads less leaves more than loads take."""


def operand_share(row: Mapping[str, str]) -> float:
    """What operand reads take of the data stage."""
    return wgmma_wavefronts(atom_of(row["source"], int(row["n"]))) / float(row["wgmma_cycles"])


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What fills that run alone take of a turn beyond what is simulated, without a pace and with one that is too fast."""
    turns: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["group"] == "alone" and row.get("fill_bytes_per_cycle"):
            fill, pace = row["fill"], row["pace_bytes_per_cycle"]
            turns[fill, pace] = TURN_BYTES[fill] / float(row["fill_bytes_per_cycle"])
    found: list[FittedConstant] = []
    for fill, cycles in TURN_CYCLES.items():
        if (fill, "0") in turns:
            spans = _simulated(gpu, "ss", SOME_N[0], fill, has_train=False, is_paced=False)
            value = cycles + turns[fill, "0"] - spans["fill"] / TWIN_TURNS[fill]
            found += fitted_constant("TURN_CYCLES", [value], "alone, without a pace", fill)
    for fill in PACE_CYCLES:
        if (fill, "0") in turns and (fill, FASTEST) in turns:
            value = turns[fill, FASTEST] - turns[fill, "0"]
            found += fitted_constant("PACE_CYCLES", [value], "alone, at the fastest pace, less none", fill)
    return found


FASTEST = "96"
"""Of the paces that calibrate, in bytes a cycle: more than any fill reaches."""


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """What both take of 128 bytes a cycle, if operands and fill went through one port: 1 or less if so."""
    if not row.get("wgmma_cycles"):
        return {}
    operands = 128.0 * wgmma_wavefronts(atom_of(row["source"], int(row["n"]))) / float(row["wgmma_cycles"])
    return {
        "operand_bytes_per_cycle": operands,
        "port_share": (operands + float(row.get("fill_bytes_per_cycle") or 0)) / 128.0,
    }


CASE = Case(
    name="fill_beside_wgmma",
    question="Do fills of shared memory (TMA, cp.async, stores) share a port with wgmma's operand reads?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, fitted_constants=fitted_constants,
    derive=derive, includes=includes,
    groups={
        "alone": Group(configs=alone, metrics=METRICS, rank=2, least_capability=(9, 0)),
        "together": Group(configs=together, metrics=METRICS, rank=3, least_capability=(9, 0)),
    },
    values={
        "train_cycles": "SM cycles from before the train's first wgmma to after the wait for all; without one, of idling",
        "wgmma_cycles": "SM cycles of one wgmma of the train, mean",
        "fill_bytes_per_cycle": "bytes that the fill moved in an SM cycle, while the train ran",
    },
    tiers={GMMA_WAVEFRONTS: 3, "wgmma_cycles": 4, "fill_bytes_per_cycle": 4},
)  # fmt: skip
