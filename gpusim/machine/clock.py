"""What SM clock a kernel sustains under the power limit."""

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
    zeros_fraction: float
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
    tensor_least_mhz: float
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
    """Energy of threads' loads and stores of zeros, relative to random data (board_power)."""
    bulk_pj_per_byte: float
    """Energy of L2 reads by TMA; coalesced or multicast requests count once (power_tma)."""
    fill_pj_per_byte: float
    """Energy of TMA writes to shared memory, in addition to the L2 reads (power_tma)."""
    bulk_zeros_fraction: float
    """Energy of TMA copies of zeros, L2 reads and fills, relative to random data (guess)."""
    hbm_pj_per_byte: float
    """Energy of HBM reads and writes (board_power)."""
    hbm_zeros_fraction: float
    """Energy of HBM accesses to zeros, relative to random data (board_power)."""
    sm_busy_w: float
    """Power of all SMs while they issue instructions, at ``max_mhz`` (board_power)."""
    l2_follow_fraction: float
    """Coupling of the L2 and crossbar clock to the SM clock: 0 independent, 1 proportional (power_tma)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a kernel did, for the power it draws."""

    cycles: float
    num_flops: float
    rate_class: str
    """Class of type, or the type itself."""
    l2_bytes: float
    """Of threads' loads and stores, and of bulk stores."""
    hbm_bytes: float
    busy_fraction: float
    """SM-cycles with a CTA, of all."""
    bulk_bytes: float = 0.0
    """Out of L2 for TMA; no part of ``l2_bytes``."""
    fill_bytes: float = 0.0
    """Into shared memory by TMA: what merged and multicast requests brought counts for each SM."""
    smem_bytes: float = 0.0
    """Of wavefronts of threads' accesses to shared memory."""
    is_mma_sync: bool = False
    """Whether the tensor cores' work is mma.sync."""
    tensor_share: float = 1.0
    """Part of the time in which tensor cores work, where they rest for microseconds; shorter rests are none."""
    num_tensor_bursts: float = 0.0
    """Bursts of an SM's tensor cores behind such rests."""


class PowerLimiter:
    """The clock at which the power drawn meets the limit, and the voltage that reaches the SMs holds.

    Models: energy by kind of work (a byte by TMA takes less than a thread's load, mma.sync more than wgmma), at a voltage
    that falls with the clock; a higher limit for a single launch than for half a second, and none in its first microseconds;
    zeros against random data; a lower highest clock while tensor cores work, at whatever rate (FFMA, shared memory, L2 and
    memory do not lower it), a load line below it for a single launch; what bursts behind rests cost, where they are told of
    (kernels/power_clock and power_bursts; no simulated kernel tells of its own).
    Ignores: temperature, the card's own leakage and binning, the limiter's oscillation, clock per GPC; how a load line fades
    in the first half of a millisecond; rests of tensor cores within a kernel; a dip of some 2 %, 100 us after a launch;
    energy of integers; operands of wgmma from registers (a tenth less) and of narrow tiles.
    Source: the GPU's description; kernels/power_mma, power_clock, h200_sxm, 2026-11-22.
    """

    def __init__(self, spec: ClockSpec) -> None:
        """A limiter of ``spec``."""
        self.spec = spec

    def power_w(self, activity: Activity, *, mhz: float, data: str) -> float:
        """Board power when ``activity`` runs at ``mhz``, in watts."""
        spec, is_zeros = self.spec, data == "zeros"
        seconds = max(activity.cycles, 1.0) / (mhz * 1e6)
        arithmetic = self.tensor_w(activity, mhz=mhz, data=data)
        if activity.rate_class == "fp32":
            arithmetic = activity.num_flops * spec.fp32_pj_per_flop * 1e-12 / seconds * self.voltage_squared(mhz)
        bulk = activity.bulk_bytes * spec.bulk_pj_per_byte + activity.fill_bytes * spec.fill_pj_per_byte
        bulk *= spec.bulk_zeros_fraction if is_zeros else 1.0
        each = spec.l2_pj_per_byte * (spec.l2_zeros_fraction if is_zeros else 1.0)
        l2 = (activity.l2_bytes * each + bulk) * 1e-12 / seconds
        busy = spec.sm_busy_w * activity.busy_fraction * mhz / spec.max_mhz
        memory = activity.hbm_bytes * spec.hbm_pj_per_byte * (spec.hbm_zeros_fraction if is_zeros else 1.0) * 1e-12 / seconds
        smem = activity.smem_bytes * spec.smem_pj_per_byte * (spec.l2_zeros_fraction if is_zeros else 1.0) * 1e-12 / seconds
        return spec.idle_power_w + memory + arithmetic + (l2 + smem + busy) * self.voltage_squared(mhz)

    def voltage_squared(self, mhz: float) -> float:
        """What energy goes with: of the voltage that ``mhz`` takes, over what the highest clock takes."""
        voltage = 1.0 + self.spec.voltage_slope * (mhz / self.spec.max_mhz - 1.0)
        return voltage * voltage

    def tensor_w(self, activity: Activity, *, mhz: float, data: str) -> float:
        """Power of the tensor cores when ``activity`` runs at ``mhz``, in watts."""
        spec = self.spec
        each = spec.tensor_pj_per_flop.get(activity.rate_class, 0.0) * (spec.zeros_fraction if data == "zeros" else 1.0)
        each *= 1.0 + (spec.mma_sync_extra_fraction if activity.is_mma_sync else 0.0)
        return activity.num_flops * each * 1e-12 * mhz * 1e6 / max(activity.cycles, 1.0) * self.voltage_squared(mhz)

    def is_sustained(self, activity: Activity, *, mhz: float, data: str, limit_w: float, is_single: bool = False) -> bool:
        """Whether ``activity`` may run at ``mhz``: the limit asks for no less, nor do tensor cores that work."""
        if self.power_w(activity, mhz=mhz, data=data) > limit_w:
            return False
        spec, tensor_w = self.spec, self.tensor_w(activity, mhz=mhz, data=data)
        if not tensor_w:
            return mhz <= spec.max_mhz
        dropped = self._dropped_mhz(activity, time_us=max(activity.cycles, 1.0) / mhz)
        dropped += spec.load_line_mhz_per_w * tensor_w if is_single else 0.0
        return mhz + dropped <= spec.max_mhz

    def _dropped_mhz(self, activity: Activity, *, time_us: float) -> float:
        """How much slower than ever SMs run for their tensor cores' work, power aside."""
        spec, num = self.spec, activity.num_tensor_bursts
        rested_us = (1.0 - activity.tensor_share) * time_us
        if rested_us <= spec.tensor_rest_us * num or not num:
            return spec.max_mhz - spec.tensor_mhz
        dropped = (spec.max_mhz - spec.tensor_mhz) * activity.tensor_share + spec.tensor_burst_mhz_us * num / time_us
        return min(dropped, spec.max_mhz - spec.tensor_least_mhz)

    def l2_cycles(self, mhz: float) -> float:
        """Cycles of L2 and crossbar in an SM cycle at ``mhz``, where at the highest clock it is one."""
        return power(self.spec.max_mhz / mhz, 1.0 - self.spec.l2_follow_fraction)

    def clock_mhz(self, activity: Activity, *, mode: str, data: str) -> float:
        """Highest clock that tensor cores and the limit of ``mode`` (``single`` or ``sustained``) leave ``activity``.

        Of a single launch the mean over its time: its limit holds from some us after the start on.

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
