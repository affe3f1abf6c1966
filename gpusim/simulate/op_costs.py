"""What one op costs wherever it is issued again: wgmma, TMA loads, mma.sync; worked out at its first use.

In: ops, the launch and the machine that runs it. Out: cycles by the op's identity; counters, from how often each ran.

Models: an op costs the same each time but for who is beside it, which the parts know.
Ignores: ops whose cost depends on when they run.
"""

from __future__ import annotations

from gpusim.errors import LaunchError
from gpusim.machine.build import Machine
from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.l2 import StoreKind
from gpusim.machine.memory.merging import Zeros
from gpusim.machine.memory.tma import Tma
from gpusim.units import LINE_BYTES, SECTOR_BYTES
from gpusim.workload.access import AccessPattern
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.gmma import wgmma_wavefronts
from gpusim.workload.launch import Launch
from gpusim.workload.ops import TmaLoad, Wgmma


class WgmmaCost:
    """What one Wgmma op costs, and how often it ran."""

    __slots__ = (
        "conflict_share", "cycles", "free_share", "num_warp_instructions", "op", "queued_cycles", "reads", "tail_cycles",
        "times", "wavefronts",
    )

    def __init__(self, op: Wgmma) -> None:
        """``op`` is kept, so that its identity stays its own."""
        self.op = op
        self.reads = op.reads
        self.cycles = 0.0
        self.tail_cycles = 0.0
        self.queued_cycles = 0.0
        """How much of the pipe's work may be left when the last of them has been issued."""
        self.free_share = self.conflict_share = 1.0
        self.wavefronts = 0.0
        self.num_warp_instructions = 0
        self.times = 0.0


class TmaCost:
    """What one TmaLoad op costs its engine, and how often it ran; with what the op says, as it is asked for each time."""

    __slots__ = (
        "barrier", "buffer", "come_along", "cycles", "fetches", "latency_cycles", "multicast", "new_fraction", "num_boxes",
        "num_bytes", "num_fetched_bytes", "num_lines", "num_rows", "op", "stage", "tensor", "tile", "times", "zeros",
    )

    def __init__(
        self, op: TmaLoad, cycles: float, latency_cycles: float, num_lines: float, zeros: Zeros | None = None
    ) -> None:
        """``op`` is kept, so that its identity stays its own; ``num_lines`` are asked for, each as often as rows need it."""
        self.op = op
        self.tensor, self.tile, self.fetches, self.come_along = op.tensor, op.tile, op.fetches, op.come_along
        self.new_fraction = op.new_fraction
        self.buffer, self.stage, self.barrier, self.multicast = op.buffer, op.stage, op.barrier, op.multicast
        self.num_bytes, self.num_fetched_bytes = op.num_bytes, op.num_fetched_bytes
        self.num_rows, self.num_boxes = op.num_rows, op.num_boxes
        self.cycles = cycles
        self.latency_cycles = latency_cycles
        self.num_lines = num_lines
        self.zeros = zeros
        self.times = 0.0


FIRST_ZERO_ROWS = 64
"""Rows outside of its tensor of a box that is in part inside, beyond which further ones cost what all do of boxes outside.

Source: kernels/edges_beside_loads (l2), h100_sxm, 2026-11-25: of 128 SMs and four stages 10 to 12 cycles each up to 64 rows,
1 to 9 beyond; of two stages 8 to 13 each, with no such end.
"""


class AccessCost:
    """What an access pattern says, as numbers of the machine, which asks for them each time."""

    __slots__ = ("access", "num_bytes", "num_lines", "num_requests", "num_sectors", "num_wavefronts", "posted_cycles")

    def __init__(self, access: AccessPattern) -> None:
        """``access`` is kept, so that its identity stays its own."""
        self.access = access
        self.num_requests, self.num_sectors = float(access.num_requests), float(access.num_sectors)
        self.num_lines, self.num_wavefronts = float(access.num_lines), float(access.num_wavefronts)
        self.num_bytes = float(access.num_bytes)
        self.posted_cycles: dict[int, float] = {}
        """Of stores to shared memory, by warps: see :func:`gpusim.simulate.costs.shared.posted_cycles`."""


class StoreCost:
    """How a store to memory waits in its queue, by bytes of the port's time."""

    __slots__ = ("all_bytes", "lead_bytes", "parts", "passed_bytes")

    def __init__(self, all_bytes: float, num_bytes: float, lead_bytes: float, passed_bytes: float) -> None:
        """``num_bytes`` of ``all_bytes`` are left."""
        self.all_bytes = all_bytes
        self.lead_bytes = lead_bytes
        """What may still wait when its warps go on."""
        self.passed_bytes = passed_bytes
        """What an instruction behind it overtakes no more, but need not wait for."""
        self.parts: list[tuple[float, float]] = []
        """(bytes, share of all) of its first part, what the schedulers hold of it, and what is past them."""
        begin = 0.0
        for end in (num_bytes - lead_bytes, num_bytes - passed_bytes, num_bytes):
            if end > begin:
                self.parts.append((end - begin, (end - begin) / all_bytes))
                begin = end


SMALL_PART = 0.05
"""Of a store, what is not worth an event of its own."""


class OpCosts:
    """Of one launch on one machine."""

    def __init__(self, launch: Launch, gpu: GpuSpec, machine: Machine) -> None:
        """Nothing is known yet."""
        self._launch, self._gpu, self._machine = launch, gpu, machine
        self.wgmma: dict[int, WgmmaCost] = {}
        self.tma: dict[int, TmaCost] = {}
        self.mma_sync: dict[int, tuple[float, float]] = {}
        self._accesses: dict[int, AccessCost] = {}
        self._last: AccessCost | None = None
        """That which was asked for last: most launches have few, and ask for one again and again."""
        self._stores: dict[tuple[int, int, StoreKind], StoreCost] = {}

    def of_access(self, access: AccessPattern) -> AccessCost:
        """Its numbers, looked up at its first use."""
        last = self._last
        if last is not None and last.access is access:
            return last
        cost = self._accesses.get(id(access))
        if cost is None:
            cost = self._accesses[id(access)] = AccessCost(access)
        self._last = cost
        return cost

    def of_store(self, access: AccessPattern, num_warps: int, kind: StoreKind) -> StoreCost:
        """Of one that is whole, worked out at its first use."""
        key = id(access), num_warps, kind
        cost = self._stores.get(key)
        if cost is None:
            cost = self._stores[key] = self.cost_of_store(access, num_warps, kind, 1.0)
        return cost

    def cost_of_store(self, access: AccessPattern, num_warps: int, kind: StoreKind, whole_share: float) -> StoreCost:
        """Of one of which a ``whole_share`` is left."""
        sm, xbar = self._machine.sms[0], self._machine.xbar
        spec, rate = sm.l1.spec, xbar.spec.sm_write_bytes_per_cycle
        num_requests = max(access.num_requests, 1)
        all_bytes = xbar.packet_bytes(access.num_lines, access.num_sectors, access.num_bytes, kind=kind)
        num_bytes = all_bytes * whole_share
        lead = rate * spec.posted_cycles(
            num_bytes / rate, num_requests=num_requests * whole_share, num_bytes=access.num_bytes * whole_share,
            num_schedulers=min(num_warps, sm.warp_scheduler.spec.num_schedulers),
        )
        passed = min(lead, all_bytes / num_requests * spec.shared_places(num_requests, access.num_bytes))
        if not self._launch.smem_bytes and num_bytes - passed < SMALL_PART * num_bytes:
            passed = lead  # instructions to shared memory alone would tell them apart
        return StoreCost(all_bytes, num_bytes, lead, passed)

    def of_wgmma(self, op: Wgmma, num_warpgroups: int, num_warps: int) -> WgmmaCost:
        """Cost of one op, worked out at its first use."""
        atom, rates = op.atom, self._gpu.tensor_core.wgmma_flops_per_cycle
        if num_warps % 4 or op.num_issues < 1:
            raise LaunchError(
                f"{self._launch.kernel}: {op.num_issues} wgmma by {num_warps} warps, "
                "wants 1 or more by whole warpgroups of 4"
            )
        if op.num_between < 0:
            raise LaunchError(f"{self._launch.kernel}: {op.num_between} instructions between wgmma, wants 0 or more")
        if not rates:
            raise LaunchError(
                f"{self._launch.kernel}: {self._gpu.name} (compute capability {self._gpu.compute_capability}) has no "
                f"wgmma, which needs 9.0a"
            )
        if atom.rate_class not in rates:
            raise LaunchError(
                f"{self._launch.kernel}: {self._gpu.name} states no wgmma rate for {atom.rate_class}, it has "
                f"{', '.join(rates)}"
            )
        wavefronts = float(wgmma_wavefronts(atom))
        core = self._machine.sms[0].tensor_core
        each = core.wgmma_cycles(rate_class=atom.rate_class, num_flops=atom.num_flops, num_wavefronts=wavefronts)
        num_issues = op.num_issues * num_warpgroups
        cost = WgmmaCost(op)
        cost.cycles = num_issues * each
        cost.tail_cycles = core.wgmma_tail_cycles(
            rate_class=atom.rate_class, num_flops=atom.num_flops, num_wavefronts=wavefronts,
            has_register_a=atom.a_source == "registers",
        )
        cost.queued_cycles = core.spec.wgmma_max_queued * each
        cost.free_share = core.free_share(wavefronts, each)
        cost.conflict_share = core.conflict_share(cost.free_share)
        cost.wavefronts = num_issues * wavefronts
        cost.num_warp_instructions = op.num_issues * num_warps
        self.wgmma[id(op)] = cost
        return cost

    def of_tma(self, op: TmaLoad, tma: Tma) -> TmaCost:
        """Cost of one op, worked out at its first use."""
        held = {buffer.name: buffer.stage_bytes for buffer in self._launch.buffers}.get(op.buffer, op.num_bytes)
        if not 0 < op.num_bytes <= held or not 0 <= op.num_fetched_bytes <= op.num_bytes:
            raise LaunchError(
                f"{self._launch.kernel}: a TmaLoad of {op.num_bytes} bytes, {op.num_fetched_bytes} of them fetched, into "
                f"{op.buffer!r}, whose stages hold {held}; wants no more than that"
            )
        if op.num_rows < 1 or op.num_boxes < 1:
            raise LaunchError(
                f"{self._launch.kernel}: a TmaLoad of {op.num_rows} rows in {op.num_boxes} boxes, wants 1 or more of each"
            )
        if not 0 <= op.num_outside_rows <= op.num_zero_rows <= op.num_rows:
            raise LaunchError(
                f"{self._launch.kernel}: a TmaLoad of {op.num_rows} rows, {op.num_zero_rows} of them outside of its tensor, "
                f"{op.num_outside_rows} in boxes all outside, wants no more than all"
            )
        if op.num_fetched_bytes * op.num_rows > op.num_bytes * (op.num_rows - op.num_zero_rows):
            raise LaunchError(
                f"{self._launch.kernel}: a TmaLoad of {op.num_rows} rows and {op.num_bytes} bytes fetches "
                f"{op.num_fetched_bytes}, wants no more than rows inside have: {op.num_zero_rows} lie outside"
            )
        num_requests = op.num_rows if op.fetches is None else max(op.num_rows, op.fetches.num_requests)
        cycles, extra = tma.walk_cycles(
            op.num_bytes, num_boxes=op.num_boxes, num_rows=num_requests, port=self._machine.xbar.alone_bytes_per_cycle
        )
        lines = op.num_bytes / LINE_BYTES
        if lines < op.num_rows:  # narrow rows lie in lines of their own
            extra += self._machine.l2.spread_cycles(op.num_rows) - self._machine.l2.spread_cycles(lines)
        num_lines = max(op.num_fetched_bytes / LINE_BYTES, float(num_requests - op.num_zero_rows))
        cost = self.tma[id(op)] = TmaCost(op, cycles, tma.spec.latency_cycles + extra, num_lines, _zeros_of(op, tma))
        return cost

    def settle(self) -> None:
        """Counters of wgmma and TMA loads, from how often each op ran."""
        sm = self._machine.sms[0]
        tensor, scheduler = sm.tensor_core.counters, sm.warp_scheduler.counters
        for cost in self.wgmma.values():
            tensor.gmma_instructions += cost.num_warp_instructions * cost.times
            tensor.busy_cycles += cost.cycles * cost.times
            scheduler.instructions += cost.num_warp_instructions * cost.times
            sm.smem.count_gmma(cost.wavefronts * cost.times)
        if sm.tma is not None:
            for copy in self.tma.values():
                sm.tma.counters.load_instructions += copy.op.num_boxes * copy.times
                num_receivers = max(1, len(copy.op.multicast))
                fetches = copy.op.fetches
                num_bytes = 0.0 if copy.zeros is None else copy.zeros.num_bytes
                num_bytes += copy.op.num_fetched_bytes if fetches is None else fetches.num_crossing * SECTOR_BYTES
                sm.tma.counters.load_bytes += num_bytes * num_receivers * copy.times

    def of_mma_sync(self, atom: MmaAtom) -> tuple[float, float]:
        """(cycles between two mma.sync of a sub-core, from issue to sums)."""
        cycles = self.mma_sync.get(id(atom))
        if cycles is None:
            rates = self._gpu.tensor_core.mma_sync_flops_per_cycle
            if atom.rate_class not in rates:
                raise LaunchError(
                    f"{self._launch.kernel}: {self._gpu.name} has no mma.sync for {atom.rate_class}, it has "
                    f"{', '.join(rates)}"
                )
            core = self._machine.sms[0].tensor_core
            interval = core.mma_sync_interval_cycles(
                rate_class=atom.rate_class, num_flops=atom.num_flops, num_sum_registers=atom.accumulator_registers
            )
            cycles = self.mma_sync[id(atom)] = interval, core.mma_sync_latency_cycles(atom.k * atom.a_dtype.bits / 8)
        return cycles


def _zeros_of(op: TmaLoad, tma: Tma) -> Zeros | None:
    """What of the copy are rows outside of its tensor; None where there are none."""
    if not op.num_zero_rows:
        return None
    num_bytes = op.num_bytes / op.num_rows * op.num_zero_rows
    in_part = op.num_zero_rows - op.num_outside_rows if op.num_fetched_bytes else 0
    num_boxes = op.num_boxes * (1.0 - op.num_outside_rows / op.num_rows)
    first = min(in_part, FIRST_ZERO_ROWS * num_boxes)
    carried = tma.spec.zero_row_bytes * first + tma.spec.outside_row_bytes * (op.num_zero_rows - first)
    return Zeros(num_bytes, max(num_bytes, carried))
