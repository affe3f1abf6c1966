"""What SM clock a kernel sustains under the power limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.errors import ConfigError
from gpusim.machine.component import Component


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSpec:
    """Clock range, power limits and the energy of each kind of work."""

    max_mhz: float
    min_mhz: float
    power_limit_w: float
    """Sustained board power."""
    single_power_w: float
    """What one launch may draw before the limiter has averaged it down."""
    idle_power_w: float
    """Board power of an active GPU that does nothing (leakage, HBM refresh, fans' share)."""
    voltage_slope: float
    """Relative change of voltage for a relative change of clock, near the top of the range."""
    tensor_pj_per_flop: Mapping[str, float]
    """Energy of tensor arithmetic with its operand reads, at ``max_mhz``, on random data, by class of type."""
    zeros_fraction: float
    """Energy of tensor work on zeros, of that on random data."""
    fp32_pj_per_flop: float
    l2_pj_per_byte: float
    hbm_pj_per_byte: float
    sm_busy_w: float
    """Power of all SMs issuing, at ``max_mhz``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a kernel did, for the power it draws."""

    cycles: float
    num_flops: float
    rate_class: str
    l2_bytes: float
    hbm_bytes: float
    busy_fraction: float
    """SM-cycles with a CTA, of all."""


class PowerLimiter(Component):
    """The clock at which the power drawn meets the limit.

    Models: energy by kind of work, at a voltage that falls with the clock; a higher limit for a single launch than
    for half a second of them; zeros against random data.
    Ignores: temperature, the card's own leakage and binning, the limiter's oscillation, clock per GPC.
    Source: the GPU's description.
    """

    kind = "clock"

    def __init__(self, spec: ClockSpec) -> None:
        """A limiter of ``spec``."""
        self.spec = spec

    def power_w(self, activity: Activity, *, mhz: float, data: str) -> float:
        """Board power when ``activity`` runs at ``mhz``, in watts."""
        spec = self.spec
        seconds = max(activity.cycles, 1.0) / (mhz * 1e6)
        voltage = 1.0 + spec.voltage_slope * (mhz / spec.max_mhz - 1.0)
        if activity.rate_class == "fp32":
            arithmetic = spec.fp32_pj_per_flop
        else:
            arithmetic = spec.tensor_pj_per_flop.get(activity.rate_class, 0.0)
            arithmetic *= spec.zeros_fraction if data == "zeros" else 1.0
        switched = (
            activity.num_flops * arithmetic + activity.l2_bytes * spec.l2_pj_per_byte
        ) * 1e-12 / seconds + spec.sm_busy_w * activity.busy_fraction * mhz / spec.max_mhz
        memory = activity.hbm_bytes * spec.hbm_pj_per_byte * 1e-12 / seconds
        return spec.idle_power_w + memory + switched * voltage**2

    def clock_mhz(self, activity: Activity, *, mode: str, data: str) -> float:
        """Highest clock at which ``activity`` stays within the limit of ``mode`` (``single`` or ``sustained``).

        Raises:
            ConfigError: another mode.
        """
        spec = self.spec
        limits = {"single": spec.single_power_w, "sustained": spec.power_limit_w}
        if mode == "max":
            return spec.max_mhz
        if mode not in limits:
            raise ConfigError(f"clock: {mode!r} is no mode, wants max, single, sustained or a number of MHz")
        limit = limits[mode]
        low, high = spec.min_mhz, spec.max_mhz
        if self.power_w(activity, mhz=high, data=data) <= limit:
            return high
        for _ in range(40):
            middle = (low + high) / 2
            if self.power_w(activity, mhz=middle, data=data) <= limit:
                low = middle
            else:
                high = middle
        return low
