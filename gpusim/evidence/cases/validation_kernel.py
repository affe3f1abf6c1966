"""Cases of validation kernels: Nsight Compute counts and times of a kernel, predicted by its kernel model.

In: the name of a kernel model, a function from a config to its options, what is launched. Out: a :class:`Case` whose rows
judge the model and never calibrate it. Cycles are predicted at the clock of the counted launch. Time and clock are predicted
with the model's clock. Metric names are in :mod:`gpusim.evidence.cases.judged_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import ConfigError, LaunchError, nearest
from gpusim.evidence.cases.case import Answer, Case, Config, Group
from gpusim.evidence.cases.judged_metrics import (
    CLOCK,
    CLOCK_LIMIT,
    COUNTED,
    CTAS_OF_SM,
    CYCLES,
    DRAM,
    DRAM_ACCESS,
    DURATION,
    EMPTY,
    ESTIMATED_CYCLES,
    EXACT,
    EXACT_LIMIT,
    FLOOR_SHARE,
    GEMM_LIMITS,
    HIT_RATE,
    JUDGED_COUNTS,
    LIMITS,
    POWER,
    PRODUCT_TIERS,
    REGISTERS,
    SHARED,
    SINGLE,
    SUSTAINED,
    TENSOR,
    THREAD_NUMBERS,
    TIERS,
    TIMED_WAVEFRONTS,
    tiers_of,
)
from gpusim.evidence.cases.known_options import without_compiled, without_registers
from gpusim.evidence.cases.rows import number_in
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.streaming import StreamParams
from gpusim.simulate.plan import check
from gpusim.simulate.run import simulate
from gpusim.workload.launch import Launch, RoleContext, WarpRole

if TYPE_CHECKING:
    from gpusim.kernel_models.options import KernelParams
    from gpusim.machine.config import GpuSpec
    from gpusim.simulate.result import Result
    from gpusim.workload import ops

__all__ = [
    "CLOCK",
    "CLOCK_LIMIT",
    "COUNTED",
    "CTAS_OF_SM",
    "CYCLES",
    "DRAM",
    "DRAM_ACCESS",
    "DURATION",
    "EMPTY",
    "ESTIMATED_CYCLES",
    "EXACT",
    "EXACT_LIMIT",
    "FLOOR_SHARE",
    "GEMM_LIMITS",
    "HIT_RATE",
    "JUDGED_COUNTS",
    "LIMITS",
    "POWER",
    "PRODUCT_TIERS",
    "REGISTERS",
    "SHARED",
    "SINGLE",
    "SUSTAINED",
    "TENSOR",
    "THREAD_NUMBERS",
    "TIERS",
    "TIMED_WAVEFRONTS",
]
"""Names that cases of validation kernels import, with those of ``judged_metrics``."""

MIB = 2**20
SIZES = (MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB)
"""Bytes of the main input."""

PATTERN_BYTES = 64 * MIB
"""Bytes after which the contents of an input repeat."""

WHOLE_BYTES = 4 * MIB
"""Bytes up to which an output is checked in full."""
NUM_WINDOWS, WINDOW_BYTES = 12, 64 * 1024
"""Number and bytes of the windows that are checked in larger outputs."""


# ---------------------------------------------------------------------------------------------- data
@cache
def pattern(dtype: Literal["fp32", "bf16", "fp16"], seed: int = 0) -> NDArray[Any]:
    """Read-only normal random numbers, 64 MiB; bf16 as uint16 bits, truncated from fp32.

    For :class:`gpusim.evidence.cases.case.Repeated`. Different seeds give different numbers.
    """
    num = PATTERN_BYTES // (4 if dtype == "fp32" else 2)
    made: NDArray[Any] = np.random.default_rng(seed).standard_normal(num, dtype=np.float32)
    if dtype == "bf16":
        made = (made.view(np.uint32) >> 16).astype("<u2")
    elif dtype == "fp16":
        made = made.astype("<f2")
    made.setflags(write=False)
    return made


@cache
def pattern_words(seed: int, end: int = 2**32) -> NDArray[np.uint32]:
    """Random uint32[PATTERN_BYTES / 4] below ``end``, read-only: contents of arrays that hold no floating-point type."""
    made = np.random.default_rng(seed).integers(0, end, PATTERN_BYTES // 4, dtype=np.uint32)
    made.setflags(write=False)
    return made


def windows(num_bytes: int, *, unit_bytes: int = 16, seed: int = 0) -> tuple[tuple[int, int], ...]:
    """(start, length) in bytes of the parts of an output that are checked.

    A small output is checked in full. A larger one is checked in a dozen windows, including its first and last bytes.
    ``unit_bytes``: starts, lengths and ``num_bytes`` are multiples of it.

    >>> windows(1024)
    ((0, 1024),)
    >>> found = windows(2**30)
    >>> len(found), found[0], found[-1], sorted(found) == list(found)
    (12, (0, 65536), (1073676288, 65536), True)

    Raises:
        ConfigError: ``num_bytes`` is no multiple of ``unit_bytes``.
    """
    if num_bytes % unit_bytes:
        raise ConfigError(f"an output of {num_bytes} bytes is no multiple of {unit_bytes}: use windows of your own")
    if num_bytes <= WHOLE_BYTES:
        return ((0, num_bytes),)
    size = max(1, WINDOW_BYTES // unit_bytes) * unit_bytes
    places = np.random.default_rng(seed).integers(0, (num_bytes - size) // unit_bytes, NUM_WINDOWS - 2) * unit_bytes
    return ((0, size), *((int(place), size) for place in np.sort(places)), (num_bytes - size, size))


def whole_group(
    configs: Callable[[int], list[Config]], *, rank: int = 4, metrics: tuple[str, ...] = COUNTED,
    least_capability: tuple[int, int] = (8, 0),
) -> Group:
    """Group of a validation kernel: counted with caches flushed, and timed in both protocols."""
    return Group(
        configs=configs, metrics=metrics, rank=rank, least_capability=least_capability, is_cold=True,
        times=("single", "sustained"),
    )  # fmt: skip


WIDTHS = {"fp32": 4, "bf16": 2}
"""Bytes of an element, by type."""


def floats(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.float64]:
    """Values of raw bytes in fp32 or bf16, as float64.

    >>> floats(np.array([0x80, 0x3F], dtype=np.uint8), "bf16").tolist()
    [1.0]
    """
    if dtype == "fp32":
        return raw.view("<f4").astype(np.float64)
    return (raw.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSweep:
    """Configs of a kernel that works on rows: every shape at every input size. Some are timed, in a separate group.

    Args:
        way: column that says how rows are processed, for example ``per``.
        shapes: (value of ``way``, type, columns) of each shape.
        timed: shapes that are timed.
        timed_from_bytes: smallest input, in bytes, that is timed.
        kernel: (value of ``way``, type, columns) to the entry point's name.
    """

    way: str
    shapes: tuple[tuple[str, str, int], ...]
    timed: tuple[tuple[str, str, int], ...]
    timed_from_bytes: int
    kernel: Callable[[str, str, int], str]

    def _configs(self, sizes: Iterable[int], shapes: Iterable[tuple[str, str, int]]) -> list[Config]:
        of_sizes = tuple(sizes)
        return [
            {
                "kernel": self.kernel(way, dtype, columns), self.way: way, "dtype": dtype,
                "rows": str(size // (columns * WIDTHS[dtype])), "columns": str(columns),
            }
            for way, dtype, columns in shapes for size in of_sizes
        ]  # fmt: skip

    def of_sizes(self, seed: int) -> list[Config]:
        """Configs of every shape and size that are not timed."""
        timed = self.of_timed(seed)
        return [config for config in self._configs(SIZES, self.shapes) if config not in timed]

    def of_timed(self, seed: int) -> list[Config]:
        """Configs of the timed shapes at large sizes."""
        del seed  # a sweep, the same for every seed
        return self._configs((size for size in SIZES if size >= self.timed_from_bytes), self.timed)


# ---------------------------------------------------------------------------------------------- the case
def validation_case(
    case: Case, *, model: str | Callable[[Any], str], options: Callable[[Any], Mapping[str, Any]],
    thread_numbers: int = THREAD_NUMBERS,
) -> Case:
    """Case of a validation kernel that ``KERNEL_MODELS`` predicts.

    Args:
        case: what :class:`Case` requires of any kernel; its ``limits`` are those that differ from :data:`LIMITS`.
        model: a key of ``KERNEL_MODELS``, or a function from a config to it.
        options: config to the model's options, named as the fields of its parameters.
        thread_numbers: reads of ``SR_TID`` by each warp, from SASS.
    """
    kind = KERNEL_MODELS[model].params if isinstance(model, str) and model in KERNEL_MODELS else StreamParams
    has_rule = "registers" in kind.model_fields and not issubclass(kind, StreamParams)  # whose registers are looked up

    def params(config: Any, gpu: GpuSpec, known: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict) -> KernelParams:
        name = model if isinstance(model, str) else model(config)
        if name not in KERNEL_MODELS:
            raise ConfigError(f"{name!r} is no kernel model; {nearest(name, KERNEL_MODELS)}")
        return KERNEL_MODELS[name].params.model_validate(dict(known(options(config)))).resolved(gpu)

    def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
        """Counters, us and MHz at the clock of a single launch, for a config without a measured row."""
        result = _simulated(params(config, gpu).launch(gpu), gpu, clock="single")
        return {**result.counters, SINGLE[0]: result.time_us, SINGLE[1]: result.sm_clock_mhz}

    def predict_row(config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]) -> dict[str, Answer]:
        found = answers(params(config, gpu).launch(gpu), row, gpu, names, thread_numbers=thread_numbers)
        if has_rule and {REGISTERS, CTAS_OF_SM} & set(names):
            found |= by_rule(params(config, gpu, without_registers).launch(gpu), gpu)
        if ESTIMATED_CYCLES in names:
            found |= before_written(params(config, gpu, without_compiled).launch(gpu), row, gpu)
        return found

    def model_options(config: Config, gpu: GpuSpec) -> dict[str, Any]:
        given = options(config).get("compiled_code")
        return {**params(config, gpu).as_options(), **({} if given is None else {"compiled_code": given})}

    judged = replace(
        case, predict=predict, predict_row=predict_row, limits={**LIMITS, **case.limits}, is_validation=True,
        derived=DERIVED if has_rule else {}, model_options=model_options,
    )
    tiers = tiers_of(judged.names, has_rule=has_rule)
    return replace(judged, tiers={
        name: tier for name, tier in tiers.items() if model == "gemm" or name != ESTIMATED_CYCLES
    })


def _simulated(launch: Launch, gpu: GpuSpec, *, clock: Any, l2: Literal["cold", "warm", "flushed"] = "cold") -> Result:
    return simulate(launch, gpu, clock=clock, l2=l2, data="random")


def before_written(launch: Launch, row: Mapping[str, str], gpu: GpuSpec) -> dict[str, Answer]:
    """Cycles of a launch with estimated code, at the row's clock and with L2 flushed."""
    cycles = _simulated(launch, gpu, clock=row_clock_mhz(row, gpu), l2="flushed").cycles
    return {ESTIMATED_CYCLES: Answer(value=cycles)}


def by_rule(launch: Launch, gpu: GpuSpec) -> dict[str, Answer]:
    """Estimated registers per thread and resident CTAs per SM of a launch without given registers; 0 CTAs if none fits."""
    try:
        num_ctas = check(launch, gpu).ctas_per_sm
    except LaunchError:
        num_ctas = 0
    return {REGISTERS: Answer(value=launch.registers_per_thread), CTAS_OF_SM: Answer(value=num_ctas)}


def ctas_of_sm(row: Mapping[str, str]) -> float | None:
    """Resident CTAs per SM: the smallest occupancy limit that was counted; None where none was counted."""
    limits = [
        number_in(row, name) for of in ("registers", "shared_mem", "warps", "blocks")
        if row.get(name := f"launch__occupancy_limit_{of}")
    ]  # fmt: skip
    return min(limits, default=None)


DERIVED: Mapping[str, Callable[[Mapping[str, str]], float | None]] = MappingProxyType({
    CTAS_OF_SM: ctas_of_sm, ESTIMATED_CYCLES: lambda row: number_in(row, CYCLES) if row.get(CYCLES) else None,
})


def answers(
    launch: Launch, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str], *, thread_numbers: int = THREAD_NUMBERS
) -> dict[str, Answer]:
    """Predictions for the ``names`` of a measured row of ``launch``. Each protocol is simulated only if requested.

    Counts and cycles are at the row's clock, with L2 flushed before each kernel. ``single_*`` begins with a cold L2,
    ``sustained_*`` with the L2 contents that the previous launch left. Both run at the model's clock and include the time of
    the events or launches themselves.
    """
    has = {name for name in names if row.get(name)}
    roof_us = roofline_us(launch, gpu)
    found: dict[str, Answer] = {}
    if has - {*SINGLE, *SUSTAINED, POWER}:
        mhz = row_clock_mhz(row, gpu)
        counters = as_counted(_simulated(launch, gpu, clock=mhz, l2="flushed").counters, thread_numbers)
        floor = FLOOR_SHARE * touched_bytes(launch)
        for name in has & set(counters):
            value = float(round(counters[name])) if name in (*EXACT, TENSOR) else counters[name]  # sums of fractions
            if name in DRAM:  # the roofline moves every touched byte once
                found[name] = Answer(value=value, floor=floor, roofline=touched_bytes(launch, (DRAM_ACCESS[name],)))
            else:
                found[name] = Answer(value=value)
        if CYCLES in found and roof_us is not None:
            found[CYCLES] = Answer(value=counters[CYCLES], roofline=roof_us * mhz)
    for protocol, clock in ((SINGLE, "single"), (SUSTAINED, "sustained")):
        if has & {*protocol, *([POWER] if protocol == SUSTAINED else [])}:
            l2: Literal["cold", "warm"] = "cold" if protocol == SINGLE else "warm"
            result = _simulated(launch, gpu, clock=clock, l2=l2)
            more_us = event_us(row, f"empty_{protocol[0]}", gpu, l2=l2)
            found[protocol[0]] = Answer(value=result.time_us + more_us, roofline=roof_us and roof_us + more_us)
            found[protocol[1]] = Answer(value=result.sm_clock_mhz, roofline=gpu.clock.max_mhz)
            if protocol == SUSTAINED:
                found[POWER] = Answer(value=result.power_w, roofline=gpu.clock.power_limit_w)
    return found


def unmeasured(launch: Launch, row: Mapping[str, str], gpu: GpuSpec) -> dict[str, float]:
    """Predicted counts, cycles, times (us) and clocks (MHz) for a launch without measured numbers.

    Counts and cycles are at the clock of a single launch. The only measured number in ``row`` that is used is the time of
    the events around an empty kernel, where the row has it.
    """
    single = _simulated(launch, gpu, clock="single")
    sustained = _simulated(launch, gpu, clock="sustained", l2="warm")
    beside = event_us(row, EMPTY[0], gpu), event_us(row, EMPTY[1], gpu, l2="warm")
    return {
        **as_counted(single.counters),
        SINGLE[0]: single.time_us + beside[0], SINGLE[1]: single.sm_clock_mhz,
        SUSTAINED[0]: sustained.time_us + beside[1], SUSTAINED[1]: sustained.sm_clock_mhz,
    }  # fmt: skip


def as_counted(counters: Mapping[str, float], thread_numbers: int = THREAD_NUMBERS) -> dict[str, float]:
    """Simulated counters plus what Nsight Compute counts in addition: one wavefront per warp for each ``thread_numbers``."""
    warps = counters["launch__grid_size"] * counters["launch__block_size"] / 32
    return {**counters, SHARED: counters[SHARED] + thread_numbers * warps}


def row_clock_mhz(row: Mapping[str, str], gpu: GpuSpec) -> float:
    """SM clock of the counted launch in MHz: the counted clock, or cycles over duration, limited to the range of ``gpu``.

    Raises:
        ConfigError: the row has neither.
    """
    if row.get(CLOCK):
        return min(max(number_in(row, CLOCK) * 1e-6, gpu.clock.min_mhz), gpu.clock.max_mhz)
    for name in (CYCLES, DURATION):
        if not row.get(name):
            raise ConfigError(f"a row has no {name}: its clock is not known, measure it again")
    mhz = number_in(row, CYCLES) / number_in(row, DURATION) * 1e3
    return min(max(mhz, gpu.clock.min_mhz), gpu.clock.max_mhz)


def event_us(row: Mapping[str, str], name: str, gpu: GpuSpec, *, l2: Literal["cold", "warm"] = "cold") -> float:
    """Time in us that a protocol adds: a measured empty kernel minus its simulated time; 0 where the row has none."""
    return number_in(row, name) - empty_us(gpu, l2=l2) if row.get(name) else 0.0


def empty_us(gpu: GpuSpec, *, l2: Literal["cold", "warm"] = "cold") -> float:
    """Simulated time in us of a kernel that does nothing, at the highest clock."""
    def nothing(cta: RoleContext) -> Iterator[ops.Op]:
        del cta
        yield from ()

    role = WarpRole(name="warp", num_warps=1, program=nothing)
    return _simulated(Launch(kernel="nothing", num_ctas=1, num_tiles=1, roles=(role,)), gpu, clock="max", l2=l2).time_us


def touched_bytes(launch: Launch, accesses: Collection[str] = ("read", "write")) -> float:
    """Bytes that a launch reads or writes, each once per direction. Only footprints of ``accesses`` count."""
    tiles = np.arange(launch.num_tiles, dtype=np.int64)
    total = 0.0
    for footprint in launch.footprints:
        if footprint.access not in accesses:
            continue
        _, first = np.unique(footprint.panel_of(tiles), return_index=True)
        num_bytes = float(footprint.panel_bytes(tiles[first]).sum())
        total += min(num_bytes, footprint.table_bytes or num_bytes)
    return total


def roofline_us(launch: Launch, gpu: GpuSpec) -> float | None:
    """Time in us at the data sheet's peaks: touched bytes over memory bandwidth, or arithmetic, whichever is longer.

    None where a launch has neither bytes nor FLOPs.
    """
    peak = gpu.device.peak_tflops.get(launch.math_class, 0.0)
    math_us = launch.num_flops / peak * 1e-6 if peak else 0.0
    return max(math_us, touched_bytes(launch) / gpu.hbm.peak_gb_per_s * 1e-3) or None
