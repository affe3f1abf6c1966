"""At what clock and power do mma.sync, what feeds it, FFMA and integers run?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Answer, Case, Fitted, Group, Limit, Outputs, WrongAnswer, load_case
from gpusim.evidence.cases.clock_parameters import least_squares, limiter
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output
from gpusim.evidence.cases.measured_gpu import measured_gpu
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted
from gpusim.evidence.cases.rows import number_in
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec

loads = import_module(load_case("power_clock").launch.__module__)
"""Clocks, their readings, streams, wgmma and the search of energies are those of kernels/power_clock."""

NUM_SMS, MOST_WARPS = measured_gpu().num_sms, 16
NUM_THREADS, WGMMA_THREADS = (MOST_WARPS + 1) * 32, 160
A_ROWS, B_ROWS, K = 256, 128, 128
"""Of the operands in shared memory, of 16-bit numbers."""
STEPS, WGMMA_STEPS = 64, 16
"""Before sums start anew."""
COPY_BYTES, READ_BYTES, NUM_SLOTS = 512, 512, 4
SMEM_BYTES = (A_ROWS + B_ROWS) * K * 2
SLICE_BYTES = loads.STREAM_BYTES["l2"] // NUM_SMS // (MOST_WARPS * COPY_BYTES) * MOST_WARPS * COPY_BYTES
"""Of the stream: a CTA's own."""
FLOPS_PER_STEP = {"mma": 16 * 4096, "fma": 64 * 64, "add": 64 * 32, "wgmma": 4 * loads.FLOPS_PER_WGMMA}
"""Of a warp; of wgmma of the warpgroup."""
LONG_US = 1_000
POWER, CLOCK = "sustained_power_w", "sustained_clock_mhz"


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    run_us: int
    _: KW_ONLY
    num_warps: int = 16
    duty: int = 100
    grain: int = STEPS
    together: bool = False
    data: str = "random"


def mixes() -> list[Row]:
    """Each kind of work by duty, warps that rest when they like: for watts, and the clock beside."""
    found = [Row("mma_bf16", LONG_US, num_warps=0)]
    for kernel, duties in (
        ("mma_bf16", (100, 75, 50, 25)), ("mma_fp16", (100, 50)), ("feed_bf16", (75, 100, 25, 50)),
        ("feed2_bf16", (100, 50)),
        ("copy1_bf16", (50, 100)), ("copy2_bf16", (100, 50)), ("read_smem", (100, 75, 50, 25)), ("copy_l2", (50, 100)),
        ("fma_fp32", (100, 75, 50, 25)), ("add_int32", (50, 100)),
    ):  # fmt: skip
        found += [Row(kernel, LONG_US, duty=duty) for duty in duties]
    found += [Row("mma_bf16", LONG_US, num_warps=warps) for warps in (4, 8)]
    for data in ("zeros", "integers"):
        found += [Row("mma_bf16", LONG_US, duty=duty, data=data) for duty in (100, 50)]
    return found + [
        Row(kernel, LONG_US, duty=duty, data="zeros")
        for kernel, duty in (("feed_bf16", 100), ("feed_bf16", 50), ("read_smem", 50), ("read_smem", 100), ("copy_l2", 100))
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- operands
def includes() -> dict[str, str]:
    """wgmma, as in power_clock."""
    return dict(loads.includes())


def arithmetic_of(config: Mapping[str, str]) -> str:
    """``mma``, ``wgmma``, ``fma``, ``add``, or nothing."""
    kind = config["kernel"].partition("_")[0]
    if config["num_warps"] == "0":
        return ""
    return {"feed": "mma", "feed2": "mma", "copy1": "mma", "copy2": "mma", "read": "", "copy": ""}.get(kind, kind)


def num_loads(kernel: str) -> int:
    """ldmatrix.x4, of 512 bytes each, of a step: four of A and two of B; ``feed2``: A again for the second half of N."""
    return {"feed": 6, "copy1": 6, "copy2": 6, "read": 6, "feed2": 10}.get(kernel.partition("_")[0], 0)


def num_copies(kernel: str) -> int:
    """Copies of 512 bytes of a step, out of L2."""
    return {"copy1": 1, "copy2": 2, "copy": 2}.get(kernel.partition("_")[0], 0)


@cache
def numbers(kernel: str, data: str) -> NDArray[np.float32]:
    """A, then B, float32[rows, K] that the type holds exactly: normal, whole numbers from -4 to 4, or zeros."""
    shape = (A_ROWS + B_ROWS, K)
    if data == "zeros":
        return np.zeros(shape, dtype=np.float32)
    if data == "integers":
        return np.random.default_rng(5).integers(-4, 5, shape).astype(np.float32)
    made = np.random.default_rng(4).standard_normal(shape, dtype=np.float32)
    if kernel == "mma_fp16":
        return made.astype(np.float16).astype(np.float32)
    return (made.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@cache
def words(kernel: str, data: str) -> NDArray[np.uint32]:
    """The operands' bits, two numbers a word: uint32[rows, K / 2]."""
    made = numbers(kernel, data)
    is_half = kernel == "mma_fp16"
    bits = made.astype(np.float16).view(np.uint16) if is_half else (made.view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(bits).view("<u4")


@cache
def operands(kernel: str, data: str) -> NDArray[np.uint32]:
    """What lies in shared memory; of FFMA and sums, 16 numbers of each of 512 threads; copied to the GPU once."""
    if kernel == "wgmma_bf16":
        return np.asarray(loads.operands(data)).view("<u4")
    if kernel in ("fma_fp32", "add_int32"):
        made = np.zeros(SMEM_BYTES // 4, dtype="<u4")
        made[: 16 * 512] = thread_numbers(kernel, data).reshape(-1)
    else:
        row, chunk = np.arange(A_ROWS + B_ROWS)[:, None], np.arange(16)
        made = np.empty((A_ROWS + B_ROWS, 16, 4), dtype="<u4")
        made[row, chunk ^ row % 8] = words(kernel, data).reshape(-1, 16, 4)
        made = made.reshape(-1)
    return read_only(made)


@cache
def thread_numbers(kernel: str, data: str) -> NDArray[np.uint32]:
    """Bits of what each thread multiplies or adds, uint32[16, 512]."""
    draw = np.random.default_rng(6)
    if data == "zeros":
        return np.zeros((16, 512), dtype="<u4")
    if kernel == "add_int32":
        return draw.integers(0, 2**32, (16, 512), dtype=np.uint32)
    return draw.standard_normal((16, 512), dtype=np.float32).view("<u4")


def launch(config: Row) -> KernelLaunch:
    """A CTA on every SM, for so long."""
    kernel, data, copies = config.kernel, config.data, num_copies(config.kernel)
    is_wgmma = kernel == "wgmma_bf16"
    plan = loads.plan_of(
        config, config.duty, config.grain, config.together, config.num_warps, SLICE_BYTES, loads.num_samples(config), 0, 0
    )
    stream = loads.stream_buffer("l2" if copies else "none", loads.as_modelled(data))
    return KernelLaunch(
        kernel=kernel,
        arguments=(
            plan, Input(operands(kernel, data)), Input(stream),
            Output("samples", np.zeros((NUM_SMS, loads.num_samples(config), 2), dtype="<u8")),
            Output("done", np.zeros((NUM_SMS, MOST_WARPS + 2), dtype="<u8")),
            Output("d", np.full((128, 128) if is_wgmma else (64, 512), np.nan, dtype="<f4")),
        ),
        grid=(NUM_SMS, 1, 1), block=(WGMMA_THREADS if is_wgmma else NUM_THREADS, 1, 1),
        smem_bytes=loads.SMEM_BYTES if is_wgmma else SMEM_BYTES + MOST_WARPS * NUM_SLOTS * copies * COPY_BYTES,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- answers
def _places() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of A times B that a thread's registers are of, int64[64, 512] each."""
    register, thread = np.arange(64)[:, None], np.arange(512)
    warp, lane = thread // 32, thread % 32
    rows = warp % 4 * 64 + register // 16 * 16 + lane // 4 + register // 2 % 2 * 8
    return rows, warp // 4 * 32 + register // 4 % 4 * 8 + lane % 4 * 2 + register % 2


@cache
def product(kernel: str, data: str) -> NDArray[np.float64]:
    """What each thread holds after all steps, float64[64, 512]: A times B eight times, or its first 16 of K each time."""
    ks, times = (K, STEPS * 16 // K) if num_loads(kernel) else (16, STEPS)
    both = numbers(kernel, data)[:, :ks].astype(np.float64)
    whole = times * both[:A_ROWS] @ both[A_ROWS:].T
    return np.asarray(whole[_places()])


def fragment_words(kernel: str, data: str) -> NDArray[np.uint32]:
    """A thread's last fragments, all words XORed, uint32[512]."""
    bits, thread = words(kernel, data), np.arange(512)
    warp, lane = thread // 32, thread % 32
    a_row, b_row, word = warp % 4 * 64 + lane // 4, A_ROWS + warp // 4 * 32 + lane // 4, (STEPS - 1) % 8 * 8 + lane % 4
    found = np.zeros(512, dtype=np.uint32)
    for half in (0, 4):
        for rows in (*(a_row + 8 * idx for idx in range(8)), *(b_row + 8 * idx for idx in range(4))):
            found ^= bits[rows, word + half]
    return found


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Clocks over time and over SMs, and how much was done.

    Raises:
        WrongAnswer: sums or words that are not the reference's, work that was not done, or clocks that stand still.
    """
    kernel, num_warps = config.kernel, config.num_warps
    done = outputs["done"].astype(np.int64)
    if not (done[:, :num_warps] > 0).all() or done[:, num_warps:MOST_WARPS].any():
        raise WrongAnswer("a warp has done nothing of its work, or what was not asked")
    if num_warps:
        _check_sums(config, outputs["d"])
    if num_copies(kernel) and num_warps:
        _check_copies(config, done)
    found: dict[str, float] = loads.clocks_of(outputs)
    run_s, num_bursts, what = config.run_us * 1e-6, float(done[:, :MOST_WARPS].sum()), arithmetic_of(config)
    if what == "wgmma":
        found["tflops"] = num_bursts / 4 * WGMMA_STEPS * FLOPS_PER_STEP[what] / run_s * 1e-12
    elif what:
        found["tops" if what == "add" else "tflops"] = num_bursts * STEPS * FLOPS_PER_STEP[what] / run_s * 1e-12
    if num_loads(kernel) and num_warps:
        found["smem_gb_per_s"] = num_bursts * STEPS * num_loads(kernel) * READ_BYTES / run_s * 1e-9
    if num_copies(kernel) and num_warps:
        found["gb_per_s"] = num_bursts * STEPS * num_copies(kernel) * COPY_BYTES / run_s * 1e-9
    return found


def _check_sums(config: Row, d: NDArray[np.float32]) -> None:
    kernel, data, num_threads = config.kernel, config.data, config.num_warps * 32
    what = arithmetic_of(config)
    if what == "wgmma":
        wanted, limit = loads.product(data), np.full((128, 128), 0.05)
    elif what == "mma":
        wanted = product(kernel, data)[:, :num_threads]
        limit = 1e-4 * STEPS * 16 + 1e-4 * np.abs(wanted)
    elif what == "fma":
        x, y = thread_numbers(kernel, data).view("<f4").astype(np.float64).reshape(2, 8, 512)[:, :, :num_threads]
        wanted = STEPS * (x[:, None] * y).reshape(64, num_threads)
        limit = 1e-5 * np.abs(wanted)
    else:
        if what == "add":
            words_of = thread_numbers(kernel, data)[8 + np.arange(64) % 8] * np.uint32(STEPS)
        elif num_loads(kernel):
            words_of = fragment_words(kernel, data)[None]
        else:
            return
        seen = d.view("<u4")[: len(words_of), :num_threads]
        wrong_if(not (seen == words_of[:, :num_threads]).all(), "a thread holds other words than it has read or summed up")
        return
    off = np.abs(d[:, : wanted.shape[1]] - wanted)
    wrong_if(not (off <= limit).all(), f"a sum is off by {np.nanmax(off)}")


def _check_copies(config: Row, done: NDArray[np.int64]) -> None:
    there = loads.stream_buffer("l2", loads.as_modelled(config.data)).view("<u4")
    for cta, (offset, seen) in enumerate(done[:, MOST_WARPS:]):
        at = offset // 4 + np.arange(4)
        if offset // SLICE_BYTES != cta or int(np.bitwise_xor.reduce(there[at])) != seen:
            raise WrongAnswer(f"CTA {cta} has copied other words from byte {offset} than there are")


# ---------------------------------------------------------------------------------------------- the machine's answer
def work_of(row: Mapping[str, str], mhz: float) -> Activity:
    """What a launch of a row did at ``mhz``; arithmetic follows the clock."""
    run_us = float(row["run_us"])
    same = mhz / number_in(row, "mhz")
    flops = float(row.get("tflops") or 0.0) * 1e6 * run_us * same
    return Activity(
        cycles=mhz * run_us, num_flops=flops, rate_class=_rate_class(row),
        l2_bytes=float(row.get("gb_per_s") or 0.0) * 1e3 * run_us, hbm_bytes=0.0,
        smem_bytes=float(row.get("smem_gb_per_s") or 0.0) * 1e3 * run_us * same,
        is_mma_sync=arithmetic_of(row) == "mma", busy_fraction=0.0 if row["num_warps"] == "0" else 1.0,
    )  # fmt: skip


def _rate_class(row: Mapping[str, str]) -> str:
    what = arithmetic_of(row)
    return "fp32" if what in ("fma", "add", "") else "fp16" if row["kernel"] == "mma_fp16" else "16bit"


def predict_row(config: Row, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> dict[str, Answer]:
    """Clock and watts by the machine's energies, of the work that was done."""
    if not number_in(row, "mhz"):
        return {}
    model, data = PowerLimiter(gpu.clock), loads.as_modelled(config.data)
    found = {}
    if "mhz" in names:
        activity = work_of(row, number_in(row, "mhz"))
        found["mhz"] = Answer(value=model.clock_mhz(activity, mode="single", data=data))
    if POWER in names and row.get(POWER):
        mhz = number_in(row, CLOCK)
        found[POWER] = Answer(value=model.power_w(work_of(row, mhz), mhz=mhz, data=data))
    return found


# ---------------------------------------------------------------------------------------------- parameters

BEGIN = {"mma_sync_extra_fraction": 0.2, "smem_pj_per_byte": 3.0, "fp32_pj_per_flop": 5.0}
"""What is searched together by watts, and where it begins."""
OF_CLOCKS = {"voltage_slope": 0.6173, "tensor_pj_per_flop.16bit": 0.9288, "tensor_pj_per_flop.fp16": 0.9976}
"""What kernels/power_clock and power_tma give: as described of the H200."""
FREE = 0.9
"""A board's power over the limit, up to which that has not lowered the clock."""
MAX_MHZ = 1980.0


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """The clock of tensor cores that work: the median of all rates and data. By watts: mma.sync, shared memory, FFMA."""
    ran = [row for row in rows if row.get(POWER) and row.get(CLOCK) and number_in(row, POWER) <= FREE * loads.LIMIT_W]
    tensor = [number_in(row, CLOCK) for row in ran if arithmetic_of(row) == "mma"]
    told = [row for row in ran if arithmetic_of(row) != "add" and row["num_warps"] != "0" and row["data"] != "integers"]

    solved = least_squares(
        BEGIN, limiter_of, lambda model, row: (
            model.power_w(work_of(row, number_in(row, CLOCK)), mhz=number_in(row, CLOCK), data=row["data"])
            / number_in(row, POWER) - 1.0
        ), told,
    )  # fmt: skip
    if not solved or not tensor:
        return []
    how = (
        f"least squares over the power of {len(told)} rows, relative, with what kernels/board_power gives of idle, busy SMs "
        "and bytes, and kernels/power_clock and power_tma of wgmma and voltage"
    )
    least = f"median of {len(tensor)} rows of mma.sync below {FREE:.0%} of the limit, whatever rate and data"
    return [
        *fitted("clock.tensor_mhz", tensor, least),
        *(Fitted(parameter=f"clock.{name}", value=value, how=how) for name, value in solved.items()),
    ]


def limiter_of(values: Mapping[str, float]) -> PowerLimiter:
    """The machine's part with these values of ``BEGIN``; what sets a clock is of no account."""
    return limiter(MAX_MHZ, {**OF_CLOCKS, **loads.OF_WATTS, **values})


# ---------------------------------------------------------------------------------------------- the case

CASE = Case(
    name="power_mma",
    question="At what clock and power do mma.sync, ldmatrix, cp.async, FFMA and integers run?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict_row=predict_row,
    groups={"mixes": Group(configs=mixes, rank=4, least_capability=(9, 0), times=("sustained",))},
    values={
        **loads.CASE.values,
        "tflops": "arithmetic of all SMs, rests included",
        "tops": "sums of integers of all SMs, rests included",
        "smem_gb_per_s": "read by ldmatrix of all SMs, rests included",
        "gb_per_s": "copied by cp.async of all SMs, rests included",
    },
    tiers={"mhz": 4, POWER: 7},
    limits={POWER: Limit(mean_pct=10.0)}, fit=fit, includes=includes,
)  # fmt: skip
