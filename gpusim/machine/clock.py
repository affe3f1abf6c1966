"""SM clock that a kernel sustains under the power limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.errors import ConfigError
from gpusim.machine.exact_math import power


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSpec:
    """Clock range, power limits and the energy of each kind of work."""

    max_mhz: float
    """Highest SM clock (vendor)."""
    min_mhz: float
    """Lowest SM clock, at idle (vendor)."""
    power_limit_w: float
    """Sustained limit of board power (vendor)."""
    single_power_w: float
    """Limit of board power for a single launch, before the limiter has averaged it (power_clock)."""
    single_power_delay_us: float
    """Run time of a single launch before its power limit takes effect (power_clock)."""
    idle_power_w: float
    """Board power of an active GPU that executes nothing: leakage, HBM refresh, fans (board_power)."""
    voltage_slope: float
    """Relative change of voltage per relative change of clock, near the top of its range (power_clock)."""
    tensor_pj_per_flop: Mapping[str, float]
    """Energy of tensor math with operand reads, at ``max_mhz`` on random data, by type class; fp16 under its name
    (power_clock, power_tma)."""
    tensor_zeros_fraction: float
    """Energy of tensor math on zeros, relative to random data (board_power)."""
    mma_sync_extra_fraction: float
    """Extra energy of mma.sync, with operands and sums in registers, relative to wgmma (power_mma)."""
    tensor_mhz: float
    """Highest SM clock while tensor cores work, at any rate and on any data (power_mma)."""
    tensor_burst_mhz_us: float
    """Clock loss times its duration, per burst of tensor math after a rest. Simulated kernels report no bursts
    (power_clock)."""
    tensor_rest_us: float
    """Longest pause of tensor cores that counts as no rest, for example between tiles of a kernel (power_bursts)."""
    tensor_min_mhz: float
    """Lowest SM clock that bursts of tensor math cause. Simulated kernels report no bursts (power_bursts)."""
    load_line_mhz_per_w: float
    """Clock loss of a single launch per watt of tensor-core power; a sustained run has none (power_clock)."""
    fp32_pj_per_flop: float
    """Energy of FP32 math on FMA units (power_mma)."""
    smem_pj_per_byte: float
    """Energy of warps' shared-memory wavefronts; wgmma reads and TMA writes count as tensor math and fills (power_mma)."""
    l2_pj_per_byte: float
    """Energy of threads' global loads and stores, L1 and registers included (board_power)."""
    l2_zeros_fraction: float
    """Energy of zeros in L2 and shared memory, relative to random data (board_power)."""
    bulk_pj_per_byte: float
    """Energy of L2 reads by TMA; coalesced or multicast requests count once (power_tma)."""
    fill_pj_per_byte: float
    """Energy of TMA writes to shared memory, in addition to the L2 reads (power_tma)."""
    hbm_pj_per_byte: float
    """Energy of HBM reads and writes (board_power)."""
    hbm_zeros_fraction: float
    """Energy of HBM accesses to zeros, relative to random data (board_power)."""
    sm_busy_w: float
    """Power of all SMs while they issue instructions, at ``max_mhz`` (board_power)."""
    l2_clock_coupling_fraction: float
    """Coupling of the L2 and crossbar clock to the SM clock: 0 independent, 1 proportional (power_tma)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Work of a kernel, from which its power follows."""

    cycles: float
    num_flops: float
    rate_class: str
    """Type class of its math, or the type itself."""
    l2_bytes: float
    """Bytes of threads' loads and stores and of bulk stores at L2."""
    hbm_bytes: float
    busy_fraction: float
    """Fraction of all SM cycles with a resident CTA."""
    bulk_bytes: float = 0.0
    """Bytes that TMA reads from L2; no part of ``l2_bytes``."""
    fill_bytes: float = 0.0
    """Bytes that TMA writes to shared memory; coalesced and multicast requests count at each SM."""
    smem_bytes: float = 0.0
    """Bytes of the wavefronts of warps' shared-memory accesses."""
    is_mma_sync: bool = False
    """Whether the tensor math is mma.sync."""
    tensor_share: float = 1.0
    """Fraction of time with tensor math, where tensor cores rest for microseconds; shorter rests do not count."""
    num_tensor_bursts: float = 0.0
    """Bursts of an SM's tensor math after rests of microseconds."""


class PowerLimiter:
    """Highest clock at which power stays within its limit and tensor cores keep their voltage.

    Models:

    * energy by kind of work: a byte by TMA costs less than one of a thread's load, mma.sync more than wgmma
      (power_tma, power_mma);
    * voltage that falls with the clock (power_clock);
    * a higher power limit for a single launch than for half a second, and none in its first microseconds (power_clock);
    * less energy for zeros than for random data (board_power);
    * a lower highest clock while tensor cores work, at any rate (power_mma);
    * FFMA, shared memory, L2 and HBM lower the clock by their power alone;
    * a load line below that clock for a single launch (power_clock);
    * clock lost to bursts of tensor math after rests (power_clock, power_bursts); simulated kernels report none.

    Ignores:

    * temperature, leakage and binning of the individual card, oscillation of the limiter, a clock per GPC;
    * how a load line fades in the first half of a millisecond;
    * rests of tensor cores within a kernel;
    * a dip of some 2 %, 100 us after a launch;
    * energy of integer math;
    * energy of wgmma with operands from registers (a tenth less) and with narrow tiles.

    Source: the GPU's description; kernels/power_mma, power_clock, h200_sxm, 2026-11-22.
    """

    def __init__(self, spec: ClockSpec) -> None:
        """Limiter with the parameters ``spec``."""
        self.spec = spec

    def power_w(self, activity: Activity, *, mhz: float, data: str) -> float:
        """Board power when ``activity`` runs at ``mhz``, in watts."""
        return self._power_w(activity, self.tensor_w(activity, mhz=mhz, data=data), mhz=mhz, is_zeros=data == "zeros")

    def _power_w(self, activity: Activity, tensor_w: float, *, mhz: float, is_zeros: bool) -> float:
        spec, arithmetic = self.spec, tensor_w
        seconds = max(activity.cycles, 1.0) / (mhz * 1e6)
        if activity.rate_class == "fp32":
            arithmetic = activity.num_flops * spec.fp32_pj_per_flop * 1e-12 / seconds * self.voltage_squared(mhz)
        bulk = activity.bulk_bytes * spec.bulk_pj_per_byte + activity.fill_bytes * spec.fill_pj_per_byte
        bulk *= spec.l2_zeros_fraction if is_zeros else 1.0
        each = spec.l2_pj_per_byte * (spec.l2_zeros_fraction if is_zeros else 1.0)
        l2 = (activity.l2_bytes * each + bulk) * 1e-12 / seconds
        busy = spec.sm_busy_w * activity.busy_fraction * mhz / spec.max_mhz
        memory = activity.hbm_bytes * spec.hbm_pj_per_byte * (spec.hbm_zeros_fraction if is_zeros else 1.0) * 1e-12 / seconds
        smem = activity.smem_bytes * spec.smem_pj_per_byte * (spec.l2_zeros_fraction if is_zeros else 1.0) * 1e-12 / seconds
        return spec.idle_power_w + memory + arithmetic + (l2 + smem + busy) * self.voltage_squared(mhz)

    def voltage_squared(self, mhz: float) -> float:
        """Square of the voltage at ``mhz``, relative to the highest clock: the factor on energy."""
        voltage = 1.0 + self.spec.voltage_slope * (mhz / self.spec.max_mhz - 1.0)
        return voltage * voltage

    def tensor_w(self, activity: Activity, *, mhz: float, data: str) -> float:
        """Power of the tensor cores when ``activity`` runs at ``mhz``, in watts."""
        spec = self.spec
        each = spec.tensor_pj_per_flop.get(activity.rate_class, 0.0)
        each *= spec.tensor_zeros_fraction if data == "zeros" else 1.0
        each *= 1.0 + (spec.mma_sync_extra_fraction if activity.is_mma_sync else 0.0)
        return activity.num_flops * each * 1e-12 * mhz * 1e6 / max(activity.cycles, 1.0) * self.voltage_squared(mhz)

    def is_sustained(self, activity: Activity, *, mhz: float, data: str, limit_w: float, is_single: bool = False) -> bool:
        """Whether ``activity`` may run at ``mhz``, by the power limit and by its tensor math."""
        spec, tensor_w = self.spec, self.tensor_w(activity, mhz=mhz, data=data)
        if limit_w < math.inf and self._power_w(activity, tensor_w, mhz=mhz, is_zeros=data == "zeros") > limit_w:
            return False
        if not tensor_w:
            return mhz <= spec.max_mhz
        dropped = self._dropped_mhz(activity, time_us=max(activity.cycles, 1.0) / mhz)
        dropped += spec.load_line_mhz_per_w * tensor_w if is_single else 0.0
        return mhz + dropped <= spec.max_mhz

    def _dropped_mhz(self, activity: Activity, *, time_us: float) -> float:
        """Clock lost to tensor math without any power limit, in MHz."""
        spec, num = self.spec, activity.num_tensor_bursts
        rested_us = (1.0 - activity.tensor_share) * time_us
        if rested_us <= spec.tensor_rest_us * num or not num:
            return spec.max_mhz - spec.tensor_mhz
        dropped = (spec.max_mhz - spec.tensor_mhz) * activity.tensor_share + spec.tensor_burst_mhz_us * num / time_us
        return min(dropped, spec.max_mhz - spec.tensor_min_mhz)

    def l2_cycles(self, mhz: float) -> float:
        """L2 and crossbar cycles per SM cycle at ``mhz``, relative to the highest clock."""
        return power(self.spec.max_mhz / mhz, 1.0 - self.spec.l2_clock_coupling_fraction)

    def clock_mhz(self, activity: Activity, *, mode: str, data: str) -> float:
        """Highest clock of ``activity`` under the power limit of ``mode`` (``single`` or ``sustained``), in MHz.

        For a single launch it is the mean over time: the limit takes effect some microseconds after the start.

        Raises:
            ConfigError: another mode.
        """
        spec = self.spec
        limits = {"single": spec.single_power_w, "sustained": spec.power_limit_w}
        if mode == "max":
            return spec.max_mhz
        if mode not in limits:
            raise ConfigError(f"clock: {mode!r} is no mode, wants max, single, sustained or a number of MHz")
        settled = self._highest_mhz(activity, data=data, limit_w=limits[mode], is_single=mode == "single")
        if mode == "sustained":
            return settled
        free = self._highest_mhz(activity, data=data, limit_w=math.inf, is_single=True)
        delay_us = spec.single_power_delay_us
        late_cycles = max(0.0, activity.cycles - free * delay_us)
        if not late_cycles or settled == free:
            return free
        return min(free, activity.cycles / (delay_us + late_cycles / settled)) if delay_us else settled

    def _highest_mhz(self, activity: Activity, *, data: str, limit_w: float, is_single: bool) -> float:
        low, high = self.spec.min_mhz, self.spec.max_mhz
        if self.is_sustained(activity, mhz=high, data=data, limit_w=limit_w, is_single=is_single):
            return high
        for _ in range(40):
            middle = (low + high) / 2
            if self.is_sustained(activity, mhz=middle, data=data, limit_w=limit_w, is_single=is_single):
                low = middle
            else:
                high = middle
        return low
