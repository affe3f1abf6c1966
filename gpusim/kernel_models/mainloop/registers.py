"""Registers of an MMA kernel: accumulators, fragments, and an overhead by schedule.

Source: ``kernels/probes/register_probe/registers.csv``, 171 probe kernels compiled by ptxas of CUDA 13.0. The rule is
within 6 registers of each tensor-core probe, and within 45 of the FMA ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.kernel_models.registers import launch_limit

OVERHEADS = {
    ("multistage", "mma_sync", "cp_async"): 18,
    ("multistage", "mma_sync", "tma"): 26,
    ("multistage", "wgmma", "cp_async"): 8,
    ("multistage", "wgmma", "tma"): 26,
    ("specialized", "wgmma", "tma"): 32,
    ("specialized", "wgmma", "cp_async"): 32,
    ("multistage", "fma", "cp_async"): 28,
}
"""Registers besides accumulators, fragments and copies. Three kinds were not probed and have the nearest class's value:
mma.sync with TMA, specialized cp.async, and LDG, which has that of cp.async."""

WGMMA_FLOOR = 26
"""Registers that wgmma needs besides its accumulators. With fewer, ptxas serializes (C7511) or refuses (C7602)."""

MMA_SYNC_FLOOR = 23
"""Registers that mma.sync needs besides accumulators and fragments. With more than 232 of 255 ptxas spills."""

COPY_REGISTERS = 2
"""Address registers for each 16-byte cp.async of a thread and stage."""

LOADED_REGISTERS = 4
"""Registers for each 16 bytes of a k-step that a thread loads by LDG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterNeed:
    """Registers that one thread of the math warps needs."""

    accumulators: int
    fragments: int
    overhead: int
    loaded: int = 0
    """Part of the overhead: registers that hold what LDG loads."""

    @property
    def total(self) -> int:
        """Sum of all registers, before rounding to 8."""
        return self.accumulators + self.fragments + self.overhead

    @property
    def story(self) -> str:
        """The terms of the sum as text."""
        return f"{self.accumulators} accumulators + {self.fragments} fragments + {self.overhead} overhead"


def register_need(
    *, is_specialized: bool, math: str, copy: str, accumulators: int, fragments: int, copies_per_thread: int
) -> RegisterNeed:
    """Registers of one schedule. ``copies_per_thread``: 16-byte cp.async of a thread and stage."""
    by_threads = "cp_async" if copy == "ldg" else copy
    overhead = OVERHEADS["specialized" if is_specialized else "multistage", math, by_threads]
    if by_threads == "cp_async":
        overhead += COPY_REGISTERS * copies_per_thread
    loaded = LOADED_REGISTERS * copies_per_thread if copy == "ldg" else 0
    overhead += loaded
    if math == "wgmma":
        overhead = max(overhead, WGMMA_FLOOR)
    return RegisterNeed(accumulators=accumulators, fragments=fragments, overhead=overhead, loaded=loaded)


def most_accumulators(need: RegisterNeed, *, math: str, ceiling: int) -> int:
    """Maximum accumulators of a thread with at most ``ceiling`` registers, without spills or serialized wgmma.

    Near its ceiling ptxas saves registers of the overhead: in tensor-core kernels down to a floor, in fma kernels to a half.
    """
    half = need.overhead - need.overhead // 2
    floor = {"wgmma": WGMMA_FLOOR, "mma_sync": MMA_SYNC_FLOOR, "fma": half}[math]
    return ceiling - need.fragments - floor - need.loaded


def widest_wgmma_n(num_warps: int) -> int:
    """The widest wgmma that ptxas accepts in a CTA of ``num_warps`` warps, for any setmaxnreg.

    One instruction's n / 2 accumulators and the floor must fit in the registers of the launch.

    >>> widest_wgmma_n(12), widest_wgmma_n(16)
    (256, 204)
    """
    return min(256, 2 * (launch_limit(num_warps) - WGMMA_FLOOR))


def launch_registers(need: RegisterNeed, *, math: str, num_warps: int, setmaxnreg: int) -> int:
    """Registers per thread of a launch: those of ``setmaxnreg``, or a multiple of 8, at most the limit of one CTA.

    An fma kernel that fits two CTAs' launch bounds without spills is launched with these.
    """
    limit = launch_limit(num_warps)
    if math == "fma":
        squeezed = launch_limit(num_warps, ctas_per_sm=2)
        if need.accumulators <= most_accumulators(need, math=math, ceiling=squeezed):
            limit = squeezed
    return min(limit, setmaxnreg or -(-need.total // 8) * 8)
