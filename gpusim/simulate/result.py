"""Result of a simulation: cycles, counters, bottleneck, power and timelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusim.machine.clock import Activity
from gpusim.machine.exact_math import sum_in_order
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.simulate.bottleneck import Bottleneck
from gpusim.simulate.timeline import Timeline, WarpState


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Cycles, counters and timelines of one launch.

    ``cycles`` is Nsight Compute's ``sm__cycles_elapsed.max``: launch, ramp and drain included.
    """

    kernel: str
    gpu: str
    params: Mapping[str, Any]
    settings: Mapping[str, Any]
    """Settings of the simulation: clock, l2, data."""
    cycles: float
    sm_clock_mhz: float
    clock_mode: str
    time_us: float
    tflops: float
    peak_tflops_at_clock: float
    peak_tflops_datasheet: float
    bottleneck: Bottleneck
    """Word, sentence and shares of the time on what bounds the kernel."""
    occupancy: Occupancy
    num_ctas: int
    num_tiles: int
    ctas_at_once: int
    waves: float
    registers_per_thread: int
    registers_source: str
    smem_bytes: int
    power_w: float
    power_limit_w: float
    activity: Activity
    counters: Mapping[str, float]
    busy: Mapping[str, float]
    """Share of the kernel's cycles in which each part was busy."""
    states: Mapping[str, Mapping[str, float]]
    """Share of its life that each role spent in each warp state, by role and state."""
    sources: Mapping[str, int]
    """Number of parameters used, by class of source: measured, published, inferred, guess."""
    guesses: tuple[str, ...]
    num_events: int
    wall_s: float
    simulated_mhz: float = 0.0
    """SM clock in MHz at which the launch was simulated. ``sm_clock_mhz`` and the cycles there follow from it.

    0 where several kernels had one clock each."""
    ideals: tuple[str, ...] = ()
    """Names of :data:`gpusim.simulate.idealize.IDEALS` that apply to the launch."""
    remarks: tuple[str, ...] = ()
    peak_memory_gb_per_s: float = 0.0
    """Peak bandwidth of memory by the data sheet, in GB/s."""
    fill_wavefronts: float = 0.0
    """Shared-memory wavefronts of the data that cp.async writes. No counter of Nsight Compute shows them."""
    timeline: Timeline = field(default_factory=Timeline)
    engine: str = "native"
    """Name of the engine that ran the launch."""

    @property
    def bound_by(self) -> str:
        """Word for what bounds the kernel."""
        return self.bottleneck.bound_by

    @property
    def reason(self) -> str:
        """Sentence on what bounds the kernel, and on what its time is spent."""
        return self.bottleneck.reason

    @property
    def time_shares(self) -> Mapping[str, float]:
        """Shares of the time of launch, fill, main loop, exposed epilogue and tail. They add up to 1."""
        return self.bottleneck.time_shares

    @property
    def energy_mj(self) -> float:
        """Energy of the board while the kernel runs, in millijoules: power times time."""
        return self.power_w * self.time_us * 1e-3

    @property
    def pct_of_peak_at_clock(self) -> float:
        """Throughput as percent of the arithmetic units' peak at the clock of this run."""
        return 100.0 * self.tflops / self.peak_tflops_at_clock if self.peak_tflops_at_clock else 0.0

    @property
    def pct_of_peak_datasheet(self) -> float:
        """Throughput as percent of the data sheet's dense peak."""
        return 100.0 * self.tflops / self.peak_tflops_datasheet if self.peak_tflops_datasheet else 0.0

    @property
    def memory_gb_per_s(self) -> float:
        """Bytes read from and written to memory, divided by the time, in GB/s."""
        num_bytes = sum_in_order(self.counters.get(f"dram__bytes_{way}.sum", 0.0) for way in ("read", "write"))
        return num_bytes / self.time_us * 1e-3 if self.time_us else 0.0

    @property
    def pct_of_peak_memory(self) -> float:
        """Memory bandwidth as percent of the data sheet's peak."""
        return 100.0 * self.memory_gb_per_s / self.peak_memory_gb_per_s if self.peak_memory_gb_per_s else 0.0

    @property
    def stall_reasons(self) -> dict[str, str]:
        """Stall reasons of Nsight Compute for each state in ``states``; ``n/a`` where none is known."""
        seen = {name for shares in self.states.values() for name in shares}
        return {state.label: state.stall_reason for state in WarpState if state.label in seen}

    def as_dict(self) -> dict[str, Any]:
        """Contents of the JSON document of a prediction."""
        return {name: _plain(getattr(self, name)) for name in DOCUMENT}


DOCUMENT = (
    "kernel", "gpu", "params", "settings", "cycles", "time_us", "energy_mj", "sm_clock_mhz", "clock_mode", "tflops",
    "peak_tflops_at_clock", "peak_tflops_datasheet", "pct_of_peak_at_clock", "pct_of_peak_datasheet", "memory_gb_per_s",
    "peak_memory_gb_per_s", "pct_of_peak_memory", "bound_by", "reason", "time_shares", "occupancy", "registers_per_thread",
    "registers_source", "smem_bytes", "num_ctas", "num_tiles", "ctas_at_once", "waves", "power_w", "power_limit_w",
    "counters", "busy", "states", "stall_reasons", "sources", "guesses", "remarks", "engine", "num_events", "wall_s",
)  # fmt: skip
"""Names in the JSON document of a result, in order."""


OCCUPANCY = ("ctas_per_sm", "warps_per_sm", "max_warps_per_sm", "pct", "limited_by", "limits")


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Occupancy):
        return {name: _plain(getattr(value, name)) for name in OCCUPANCY}
    if isinstance(value, Mapping):
        return {name: dict(each) if isinstance(each, Mapping) else each for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
