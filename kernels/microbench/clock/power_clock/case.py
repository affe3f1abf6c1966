"""At what clock does the SM run under which work, and how does that change with time? Tensor work, streams and both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import fragment_places, read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.clock_parameters import least_squares, limiter
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import Launch, RoleContext, WarpRole
from gpusim.workload.smem.access import AccessPattern

NUM_SMS, NUM_THREADS, STREAM_THREADS = measured_gpu().num_sms, 384, 224
M, N, K = 64, 256, 256
"""Of the operands in shared memory."""
BURST_WGMMAS = 64
FLOPS_PER_WGMMA = 2 * 64 * 256 * 16
ROUND_BYTES = 8 * STREAM_THREADS * 16
"""What the streaming warps of a CTA read at a time."""
STREAM_BYTES = {"hbm": 256 * 2**20, "l2": 16 * 2**20}
"""Walked through: more than L2 holds, and well below what it holds."""
SMEM_BYTES = (M + N) * K * 2

SINGLE_US = 250
"""As long as one launch of every mix takes."""
SINGLE_PERIOD_NS, SUSTAINED_PERIOD_NS = 5_000, 100_000
SUSTAINED_US = 500_000
MARKS_US = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000)
"""Ends of the windows in which the clock of a long run is given."""
APART = 2e-3
"""Relative difference from which on two SMs count as of different clocks."""

DUTIES = (12, 25, 37, 50, 62, 75, 87, 100)


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    run_us: int
    tensor_duty: int = 0
    stream: str = "none"
    stream_duty: int = 0
    data: str = "random"

    @property
    def kernel(self) -> str:
        """The entry point."""
        return "work"


def _mixes(run_us: int) -> list[Row]:
    both = ("random", "zeros")
    found = [Row(run_us, duty, data=data) for data in both for duty in DUTIES]
    found += [Row(run_us, 0, stream, duty, data) for data in both for stream in ("hbm", "l2") for duty in (25, 50, 75, 100)]
    found += Row.sweep(run_us=run_us, stream=("hbm", "l2"), tensor_duty=(25, 50, 75, 87, 100), stream_duty=(50, 100))
    return found + Row.sweep(run_us=run_us, stream=("hbm", "l2"), tensor_duty=(75, 100), stream_duty=100, data="zeros")


def single() -> list[Row]:
    """One launch: of several lengths, and of every mix at a quarter of a millisecond."""
    found = [Row(SINGLE_US), *_mixes(SINGLE_US)]
    for run_us in (25, 50, 100, 500, 1000):
        for data in ("random", "zeros"):
            found += [Row(run_us, tensor_duty=duty, data=data) for duty in (50, 100)]
            found.append(Row(run_us, tensor_duty=100, stream="hbm", stream_duty=100, data=data))
            found.append(Row(run_us, stream="hbm", stream_duty=100, data=data))
    return found


def sustained() -> list[Row]:
    """Half a second, in one launch: every mix."""
    return [Row(SUSTAINED_US), *_mixes(SUSTAINED_US)]


# ---------------------------------------------------------------------------------------------- operands and streams
def includes() -> dict[str, str]:
    """The one instruction, with its 128 accumulators."""
    sums = ", ".join(f"%{i}" for i in range(128))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(128))
    return {
        "wgmma.inc": f"""__device__ __forceinline__ void wgmma(float (&d)[128], uint64_t a, uint64_t b, int adds) {{
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %130, 0; "
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{sums}}}, %128, %129, p, 1, 1, 0, 0; }}"
                 : {outputs} : "l"(a), "l"(b), "r"(adds));
}}
"""
    }


@cache
def numbers(data: str, rows: int) -> NDArray[np.float32]:
    """An operand, float32[rows, K] that bf16 holds exactly; normal, or zeros."""
    made = np.random.default_rng(rows).standard_normal((rows, K), dtype=np.float32)
    made = (made.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return made if data == "random" else np.zeros_like(made)


def _image(data: str, rows: int) -> NDArray[np.uint16]:
    """It in shared memory: panels of 64 columns, 128 bytes a row, chunks of 16 bytes XORed with the row."""
    bits = (numbers(data, rows).view(np.uint32) >> 16).astype("<u2")
    row, column = np.arange(rows)[:, None], np.arange(K)
    places = column // 64 * rows * 64 + row * 64 + (column % 64 ^ row % 8 * 8)
    made = np.empty(rows * K, dtype="<u2")
    made[places] = bits
    return made


@cache
def operands(data: str) -> NDArray[np.uint16]:
    """Both images, A before B; copied to the GPU once."""
    return read_only(np.concatenate([_image(data, M), _image(data, N)]))


@cache
def stream_buffer(stream: str, data: str) -> NDArray[np.uint8]:
    """What is streamed: normal floats, or zeros; copied to the GPU once."""
    num = STREAM_BYTES[stream] // 4 if stream != "none" else 4
    if data == "random":
        made = np.random.default_rng(num).standard_normal(num, dtype=np.float32).view(np.uint8)
    else:
        made = np.zeros(4 * num, dtype=np.uint8)
    return read_only(made)


def period_ns(config: Row) -> int:
    """From one reading of the clocks to the next."""
    return SUSTAINED_PERIOD_NS if config.run_us >= SUSTAINED_US else SINGLE_PERIOD_NS


def num_samples(config: Row) -> int:
    """Readings of the clocks on each SM, the one at the start and the one at the end included."""
    return config.run_us * 1000 // period_ns(config) + 1


def plan_of(config: Row, *rest: int) -> np.void:
    """Structure of a launch: nanoseconds of the run and between readings of the clocks, and the rest of it."""
    plan = np.zeros(1, dtype=[("ns", "<u8", 2), ("rest", "<u4", len(rest))])
    plan["ns"], plan["rest"] = (config.run_us * 1000, period_ns(config)), rest
    return by_value(plan)


def launch(config: Row) -> KernelLaunch:
    """A CTA on every SM, for so long."""
    stream = config.stream
    plan = plan_of(
        config, config.tensor_duty, config.stream_duty, STREAM_BYTES.get(stream, 0), stream == "l2", num_samples(config), 0
    )
    return KernelLaunch(
        kernel="work",
        arguments=(
            plan, Input(operands(config.data)), Input(stream_buffer(stream, config.data)),
            Output("samples", np.zeros((NUM_SMS, num_samples(config), 2), dtype="<u8")),
            Output("done", np.zeros((NUM_SMS, 4), dtype="<u8")),
            Output("d", np.full((128, 128), np.nan, dtype="<f4")),
        ),
        grid=(NUM_SMS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


@cache
def product(data: str) -> NDArray[np.float64]:
    """What each thread holds after a burst, float64[register, thread]: A times B, four times over, as wgmma has it."""
    whole = 4.0 * numbers(data, M).astype(np.float64) @ numbers(data, N).astype(np.float64).T
    return np.asarray(whole[fragment_places(N)])


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Clocks over time and over SMs, and how much was done.

    Raises:
        WrongAnswer: sums that are not the product, words that the stream does not hold, work that was not done, or clocks
            that stand still.
    """
    done = outputs["done"].astype(np.int64)
    tensor, stream = config.tensor_duty, config.stream
    if ((done[:, 0] > 0) != (tensor > 0)).any() or ((done[:, 1] > 0) != (stream != "none")).any():
        raise WrongAnswer("a CTA has done nothing of its work, or what was not asked")
    if tensor:
        off = np.abs(outputs["d"] - product(config.data)).max()
        wrong_if(not off <= 0.05, f"a sum is off by {off}")
    if stream != "none":
        _check_stream(config, done)
    run_s, found = config.run_us * 1e-6, clocks_of(outputs)
    if tensor:
        found["tflops"] = float(done[:, 0].sum()) * BURST_WGMMAS * FLOPS_PER_WGMMA / run_s * 1e-12
    if stream != "none":
        found["gb_per_s"] = float(done[:, 1].sum()) * ROUND_BYTES / run_s * 1e-9
    return found


def _check_stream(config: Row, done: NDArray[np.int64]) -> None:
    words = stream_buffer(config.stream, config.data).view("<u4")
    for cta, (_, _, offset, seen) in enumerate(done):
        at = offset // 4 + np.arange(8)[:, None] * (STREAM_THREADS * 4) + np.arange(4)
        if at.max() >= len(words) or int(np.bitwise_xor.reduce(words[at].reshape(-1))) != seen:
            raise WrongAnswer(f"CTA {cta} has read other words at byte {offset} than there are")


def clocks_of(outputs: Outputs) -> dict[str, float]:
    """:func:`clocks` of a launch.

    Raises:
        WrongAnswer: a clock stands still.
    """
    samples = outputs["samples"].astype(np.int64)
    wrong_if((np.diff(samples, axis=1) <= 0).any(), "a clock stands still")
    return clocks(samples[:, :, 0], samples[:, :, 1])


def clocks(nanoseconds: NDArray[np.int64], cycles: NDArray[np.int64]) -> dict[str, float]:
    """MHz by SM and by time, from readings of both clocks, int64[SM, sample]."""

    def mhz(first: int, last: int) -> NDArray[np.float64]:
        return np.asarray((cycles[:, last] - cycles[:, first]) / (nanoseconds[:, last] - nanoseconds[:, first]) * 1e3)

    last = nanoseconds.shape[1] - 1
    whole = mhz(0, last)
    ordered = np.sort(whole)
    steps = np.diff(np.median(cycles - cycles[:, :1], axis=0)) / np.diff(np.median(nanoseconds - nanoseconds[:, :1], axis=0))
    found = {
        "mhz": float(np.median(whole)), "least_mhz": float(whole.min()), "most_mhz": float(whole.max()),
        "num_clocks": 1.0 + float((np.diff(ordered) > APART * ordered[:-1]).sum()),
        "least_step_mhz": float(steps.min()) * 1e3, "p10_step_mhz": float(np.quantile(steps, 0.1)) * 1e3,
        "p90_step_mhz": float(np.quantile(steps, 0.9)) * 1e3, "most_step_mhz": float(steps.max()) * 1e3,
        "first_mhz": float(np.median(mhz(0, max(1, last // 5)))),
        "last_mhz": float(np.median(mhz(last - max(1, last // 5), last))),
    }  # fmt: skip
    if nanoseconds[0, last] - nanoseconds[0, 0] >= MARKS_US[-1] * 900:
        since = (nanoseconds[0] - nanoseconds[0, 0]) / 1e3
        edges = [0, *(int(np.argmin(np.abs(since - mark))) for mark in MARKS_US)]
        for mark, first, end in zip(MARKS_US, edges[:-1], edges[1:], strict=True):
            found[f"mhz_at_{mark}_us"] = float(np.median(mhz(first, end)))
    return found


# ---------------------------------------------------------------------------------------------- the simulator's answer

TWIN_BURSTS, REST_CYCLES, NUM_READERS, NUM_TURNS, SETTLED = 2, 50.0, 7, 5, 0.004
BURST_CYCLES, LATE_CYCLES = 150.0, 120.0
"""From one burst to the next without a rest; how much longer than asked a rest of NANOSLEEPs takes. From long runs without
streams that calibrate: rate over clock, at duty 100; at 25 to 75."""


def endless(gpu: GpuSpec) -> GpuSpec:
    """The GPU with a launch that takes no time, as it weighs nothing in a quarter of a millisecond; its fences are rests."""
    return replace(
        gpu, warp_scheduler=replace(gpu.warp_scheduler, fence_cycles=REST_CYCLES),
        dispatcher=replace(
            gpu.dispatcher, launch_cycles=0.0, dispatch_cycles_per_cta=0.0, round_cycles=0.0, cta_start_cycles=0.0,
            cold_start_cycles=0.0, cta_exit_cycles=0.0, retire_cycles_per_cta=0.0, drain_cycles=0.0,
        ),
    )  # fmt: skip


def burst_cycles(gpu: GpuSpec) -> float:
    """What a burst takes alone."""
    assert gpu.tensor_core is not None  # of compute capability 9.0
    each = gpu.tensor_core.wgmma_cycles(rate_class="16bit", num_flops=FLOPS_PER_WGMMA, num_wavefronts=(M + N) * 16 * 2 / 128)
    return BURST_WGMMAS * each


def round_cycles(stream: str, gpu: GpuSpec, mhz: float) -> float:
    """What a round takes when all SMs stream at a clock, about: so that both kinds of work end together."""
    in_l2 = gpu.l2.num_slices * gpu.l2.slice_bytes_per_cycle * gpu.l2.sustained_fraction
    from_memory = gpu.hbm.sustained_read_gb_per_s / mhz * 1e3
    return ROUND_BYTES * gpu.num_sms / (from_memory if stream == "hbm" else in_l2)


def twin(config: Row, gpu: GpuSpec, mhz: float) -> Launch:
    """Some bursts and rounds on every SM in the simulator's words; rests are fences of the length that is wanted.

    As many rounds as go beside the bursts at ``mhz``.
    """
    tensor, stream, stream_duty = config.tensor_duty, config.stream, config.stream_duty
    burst, one_round = burst_cycles(gpu), round_cycles(stream, gpu, mhz)
    size = ROUND_BYTES // NUM_READERS
    access = AccessPattern(num_requests=size // 512, num_sectors=size // 32, num_lines=size // 128, num_bytes=size)
    num_bursts = TWIN_BURSTS if tensor else 0
    whole_cycles = TWIN_BURSTS * burst * (100 / tensor if tensor else 4.0)
    num_rounds = max(1, round(whole_cycles / one_round * stream_duty / 100)) if stream != "none" else 0
    atom, unit = wgmma(256, BF16), REST_CYCLES

    def multiply(cta: RoleContext) -> Iterator[ops.Op]:
        for _ in range(num_bursts):
            for _ in range(BURST_WGMMAS // 4):
                yield ops.Wgmma(atom, 4)
                yield ops.WgmmaCommitGroup()
                yield ops.WgmmaWaitGroup(1)
            yield ops.WgmmaWaitGroup(0)
            rest = burst * (100 - tensor) / tensor + (LATE_CYCLES if tensor < 100 else 0.0)
            for _ in range(round((BURST_CYCLES + rest) / unit)):
                yield ops.FenceProxyAsync()

    def reader(who: int) -> Callable[[RoleContext], Iterator[Any]]:
        def read(cta: RoleContext) -> Iterator[Any]:
            for idx in range(num_rounds):
                tile = (idx if stream == "hbm" else idx % 4) * NUM_READERS + who
                token = yield ops.GlobalLoad("stream", (cta.cta_idx, tile), access, allocates_in_l1=False)
                yield ops.Use(token)
                for _ in range(round(one_round * (100 - stream_duty) / stream_duty / unit)):
                    yield ops.FenceProxyAsync()

        return read

    roles = [
        WarpRole(name="multiply", num_warps=4, program=multiply), WarpRole(name="watch", num_warps=1, program=nothing),
        *(WarpRole(name=f"read{who}", num_warps=1, program=reader(who)) for who in range(NUM_READERS)),
    ]  # fmt: skip
    return Launch(
        kernel="work", num_ctas=gpu.num_sms, num_tiles=gpu.num_sms, roles=tuple(roles), registers_per_thread=168,
        extra_smem_bytes=SMEM_BYTES, num_flops=gpu.num_sms * num_bursts * BURST_WGMMAS * FLOPS_PER_WGMMA,
        math_class="16bit" if num_bursts else "", params={"num_rounds": num_rounds}, has_uniform_programs=True,
    )  # fmt: skip


def as_long(activity: Activity, cycles: float) -> Activity:
    """The same work, over and over, for so many cycles."""
    times = cycles / activity.cycles
    return replace(
        activity, cycles=cycles, num_flops=activity.num_flops * times, l2_bytes=activity.l2_bytes * times,
        hbm_bytes=activity.hbm_bytes * times, bulk_bytes=activity.bulk_bytes * times,
        fill_bytes=activity.fill_bytes * times, smem_bytes=activity.smem_bytes * times,
        num_tensor_bursts=activity.num_tensor_bursts * times,
    )  # fmt: skip


def in_bursts(activity: Activity, *, duty: int, flops_per_burst: float) -> Activity:
    """The same, whose tensor cores rest between bursts of ``flops_per_burst`` (all SMs') unless ``duty`` is 100."""
    if duty in (0, 100):
        return activity
    num = activity.num_flops / flops_per_burst
    return replace(activity, tensor_share=min(1.0, num * WORKING_CYCLES / activity.cycles), num_tensor_bursts=num)


def nothing(_cta: RoleContext) -> Iterator[ops.Op]:
    """A warp that looks at the clock now and then."""
    yield ops.Alu(1)


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The clock that the power limit allows: of one launch, or at the end of half a second; the same on all SMs.

    Nothing for an idle GPU, nor for one without wgmma. A GPU of another number of SMs works on all of its own.
    """
    if (not config.tensor_duty and config.stream == "none") or "wgmma" not in gpu.features:
        return {}

    def run(mhz: float) -> tuple[Launch, Any]:
        made = twin(config, gpu, mhz)
        l2: Literal["warm", "cold"] = "warm" if config.stream == "l2" else "cold"
        return made, simulate(made, endless(gpu), clock=mhz, l2=l2, data=as_modelled(config.data))

    found, time_us, made, _ = settled(config, gpu, run, TWIN_BURSTS)
    if config.stream != "none":
        found["gb_per_s"] = gpu.num_sms * int(str(made.params["num_rounds"])) * ROUND_BYTES / time_us / 1e3
    return found


def as_modelled(data: str) -> Literal["random", "zeros"]:
    """Data that the machine's energies know."""
    return "zeros" if data == "zeros" else "random"


def settled(
    config: Row, gpu: GpuSpec, run: Callable[[float], tuple[Launch, Any]], num_bursts: int
) -> tuple[dict[str, float], float, Launch, Any]:
    """Clock and rate of tensor cores, microseconds of the simulated launch, the launch and its result.

    ``run`` simulates the launch at a clock, ``num_bursts`` bursts of it. Memory keeps its own clock: at a lower one of the
    SMs' more bytes go beside a burst.
    """
    is_long, now = config.run_us >= SUSTAINED_US, gpu.clock.max_mhz
    for _ in range(NUM_TURNS if config.stream == "hbm" else 1):
        mhz = now
        made, result = run(mhz)
        activity = in_bursts(result.activity, duty=config.tensor_duty, flops_per_burst=made.num_flops / num_bursts)
        activity = as_long(activity, float(config.run_us) * now)
        mode: Literal["sustained", "single"] = "sustained" if is_long else "single"
        now = PowerLimiter(gpu.clock).clock_mhz(activity, mode=mode, data=as_modelled(config.data))
        if abs(now - mhz) < SETTLED * mhz:
            break
    found, time_us = {"last_mhz" if is_long else "mhz": now}, result.cycles / now
    if made.num_flops:
        carried = 0.5 * made.num_flops / num_bursts  # the last burst is carried through: half of one, on average
        found["tflops"] = (made.num_flops / time_us + carried / float(config.run_us)) / 1e6
    return found, time_us, made, result


# ---------------------------------------------------------------------------------------------- parameters

LIMIT_W = 700.0
"""The data sheet's: clocks know no watt."""
OF_WATTS = {
    "idle_power_w": 134.3, "sm_busy_w": 31.6, "l2_pj_per_byte": 39.3, "l2_zeros_fraction": 0.5313,
    "hbm_pj_per_byte": 64.13, "hbm_zeros_fraction": 0.728, "tensor_zeros_fraction": 0.1772,
}  # fmt: skip
"""What kernels/board_power gives, where no limit lowers the clock: as described of the H200."""
OF_TENSOR = {"tensor_mhz": 1809.6, "tensor_rest_us": 1.75, "tensor_min_mhz": 1760.0}
"""What kernels/power_mma gives, where tensor cores never rest, and power_bursts: as described of the H200."""
WORKING_CYCLES = 64 * 128
"""Of a burst, that tensor cores work: of every type."""
HOW_OF_WATTS = f"{LIMIT_W:.0f} W as the limit of a long one, and what kernels/board_power gives of bytes, zeros and SMs"
DELAY_US = 60.0
"""In the first fifth of 250 us clocks are those of shorter launches; in the last fifth of 100 us they are not."""
POWER_LIMIT = {"power_limit_w": LIMIT_W, "single_power_delay_us": DELAY_US}
BEGIN = {
    "voltage_slope": 0.7, "tensor_pj_per_flop.16bit": 0.8, "tensor_burst_mhz_us": 500.0, "load_line_mhz_per_w": 0.2,
    "single_power_w": 900.0,
}  # fmt: skip
"""What is fitted, and where the search begins."""
STEADY = 1.05
"""Repeats' highest clock over their lowest, beyond which a run had not settled and tells no power."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Tensor energy, the voltage's slope, bursts, load line, what one launch may draw: by the clocks of all runs at once."""
    ran = [row for row in rows if _has_rates(row) and is_steady(row)]
    highest = max((clock_mhz(row) for row in ran), default=0.0)
    solved = least_squares(
        BEGIN, lambda values: limiter(highest, POWER_LIMIT | OF_WATTS | OF_TENSOR | values),
        lambda model, row: model.clock_mhz(_activity(row), mode=row["group"], data=row["data"]) / clock_mhz(row) - 1.0, ran,
    )  # fmt: skip
    how = f"least squares over the clocks of {len(ran)} runs, with {HOW_OF_WATTS}"
    return [Fitted(parameter=f"clock.{name}", value=value, how=how) for name, value in solved.items()]


def _has_rates(row: Mapping[str, str]) -> bool:
    """Whether there was work, and all of it has a rate."""
    has_tensor = row["tensor_duty"] == "0" or bool(row.get("tflops"))
    has_work = row["tensor_duty"] != "0" or row["stream"] != "none"
    return has_work and has_tensor and (row["stream"] == "none" or bool(row.get("gb_per_s"))) and clock_mhz(row) > 0.0


def is_steady(row: Mapping[str, str]) -> bool:
    """Whether its repeats agree."""
    name = "last_mhz" if row["group"] == "sustained" else "mhz"
    return float(row.get(f"{name}_max") or 1.0) <= STEADY * float(row.get(f"{name}_min") or 1.0)


def clock_mhz(row: Mapping[str, str]) -> float:
    """At the end of a long run, or of a short one, all of it; 0 where it is not told."""
    return float(row.get("last_mhz" if row["group"] == "sustained" else "mhz") or 0.0)


def _activity(row: Mapping[str, str]) -> Activity:
    """What a run does, in cycles of its own clock."""
    mhz, run_us = clock_mhz(row), float(row["run_us"])
    whole = float(row.get("mhz") or mhz)
    num_bytes = float(row.get("gb_per_s") or 0.0) * 1e3 * run_us
    num_flops = float(row.get("tflops") or 0.0) * 1e6 * run_us
    num_flops = max(0.0, num_flops - 0.5 * NUM_SMS * BURST_WGMMAS * FLOPS_PER_WGMMA)  # half a burst was done later
    activity = Activity(
        cycles=mhz * run_us, num_flops=num_flops * mhz / whole,  # the rate is of all of it
        rate_class="16bit", l2_bytes=num_bytes, hbm_bytes=num_bytes if row["stream"] == "hbm" else 0.0, busy_fraction=1.0,
    )  # fmt: skip
    return in_bursts(activity, duty=int(row["tensor_duty"]), flops_per_burst=NUM_SMS * BURST_WGMMAS * float(FLOPS_PER_WGMMA))


CASE = Case(
    name="power_clock",
    question="At what clock does the SM run under which work, and how does that change with time?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={
        "single": Group(configs=single, rank=3, least_capability=(9, 0)),
        "sustained": Group(configs=sustained, rank=3, least_capability=(9, 0)),
    },
    values={
        "mhz": "SM cycles a microsecond over the whole run, the median of the SMs",
        "least_mhz": "the least of the SMs",
        "most_mhz": "the most of the SMs",
        "num_clocks": "groups of SMs whose clocks differ by more than 0.2 %",
        "least_step_mhz": "the least between two readings of the clocks, 5 us apart or 100 us in a long run",
        "p10_step_mhz": "of these steps",
        "p90_step_mhz": "of these steps",
        "most_step_mhz": "the most of these steps",
        "first_mhz": "in the first fifth of the run",
        "last_mhz": "in the last fifth of the run",
        "tflops": "wgmma of all SMs, rests included",
        "gb_per_s": "read by all SMs, rests included",
        **{f"mhz_at_{mark}_us": f"from the mark before until {mark} us after the start" for mark in MARKS_US},
    },
    tiers={"mhz": 4, "last_mhz": 4, "tflops": 4},
)  # fmt: skip
