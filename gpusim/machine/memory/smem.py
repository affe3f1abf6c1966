"""Shared memory: 32 banks, served a wavefront at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import GapPipe
from gpusim.units import WAVEFRONT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemSpec:
    """Shared memory of one SM."""

    wavefronts_per_cycle: float
    load_latency_cycles: float
    """From issue to use of an access of one wavefront."""
    warp_cycles_per_wavefront: float
    """What a lone warp waits for each wavefront of its own beyond the first."""
    vector_word_cycles: float
    """What each 32 bits of a lane's vector beyond the first add to the latency of a load (``ldmatrix`` has none)."""
    atomic_latency_cycles: float
    store_latency_cycles: float
    """From when the data stage has served a store to when its registers may be written and a fence is past it."""
    replay_wavefronts: float
    """Wavefronts that wait past the line before the data stage, so that what stands behind them passes: stores' registers
    have been read then, loads of global memory are on their way. 0: these wait for nothing."""
    global_load_wavefronts: float
    """What a wavefront of global loads, hit or miss, takes of the data stage, in wavefronts of shared memory's."""
    global_store_wavefronts: float
    """The same of a line of global stores."""
    copied_row_wavefronts: float
    """The same of a row of a tile, or a line of it, that cp.async copies around L1."""
    operand_load_registers_per_cycle: float
    """What loads of warps return beside operand reads of wgmma, in registers of a warp (128 bytes)."""
    operand_store_wavefronts_per_cycle: float
    """What stores of warps, to shared memory or past it, take of the stage beside them at most."""


COMMIT_WAVEFRONTS = 3.0
"""What Nsight Compute counts for a warp's commit of cp.async. Source: kernels/shared_counter, h200_sxm, 2026-11-22."""


TURN_WAVEFRONTS = 32.0
"""After which an access of an SM that runs wgmma looks anew whether operands are read.
Source: choice, shorter than most wgmma."""

EPSILON_WAVEFRONTS = EPSILON_CYCLES = 1e-6
"""What rounding may leave of an access, and of a wait."""


SASS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"
"""Nsight Compute's wavefronts by opcode begin so."""


@dataclass(slots=True)
class SmemCounters(Counters):
    """Wavefronts of the LSU pipe, as Nsight Compute counts them (kernels/shared_counter).

    A shuffle is one, however many lanes take part, and so is a proxy fence or a wait for bulk stores; votes, redux,
    arrivals, tries and TMA are none. A copy by cp.async is one where it goes through L1 and none where it goes around
    it, beside what its commit is. Ignored: what a CTA's first barriers are (one or two a CTA).
    """

    wavefronts: float = field(default=0.0, metadata={"ncu": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"})
    load_wavefronts: float = field(
        default=0.0, metadata={"ncu": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"}
    )
    store_wavefronts: float = field(
        default=0.0, metadata={"ncu": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"}
    )
    gmma_wavefronts: float = field(
        default=0.0, metadata={"ncu": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"}
    )
    plain_load_wavefronts: float = field(default=0.0, metadata={"ncu": f"{SASS}_ld.sum"})
    matrix_load_wavefronts: float = field(default=0.0, metadata={"ncu": f"{SASS}_ldsm.sum"})
    plain_store_wavefronts: float = field(default=0.0, metadata={"ncu": f"{SASS}_st.sum"})
    matrix_store_wavefronts: float = field(default=0.0, metadata={"ncu": f"{SASS}_stsm.sum"})
    copy_wavefronts: float = field(default=0.0, metadata={"ncu": f"{SASS}_ldgsts.sum"})
    """Of cp.async through L1; what the counter shows of copies around it is not known."""
    plain_loads: float = field(default=0.0, metadata={"ncu": "smsp__inst_executed_op_shared_ld.sum"})
    plain_stores: float = field(default=0.0, metadata={"ncu": "smsp__inst_executed_op_shared_st.sum"})
    matrix_loads: float = field(default=0.0, metadata={"ncu": "smsp__inst_executed_op_ldsm.sum"})
    matrix_stores: float = field(default=0.0, metadata={"ncu": "sm__inst_executed_op_shared_stsm.sum"})
    fill_wavefronts: float = 0.0
    """Of what cp.async writes, which no counter shows."""


class Smem(Component):
    """The data stage of one SM's shared memory.

    Models: one wavefront a cycle for all warps of the SM, latency, and the slower pace of one warp's own wavefronts,
    whether it reads, writes or swaps; a vector's words return one after the other; operand reads of wgmma go first (the
    tensor core's own rate covers them): until they end, accesses of warps have what they leave, of which loads use no more
    than returns so many registers a cycle, stores so much; then the whole stage, until operands are read again; what
    cp.async brings, and global loads and stores of threads, go in between the wavefronts of the warps, one by one, and
    where they leave cycles idle; these loads wait for all that warps asked for ahead of them but some wavefronts
    (kernels/behind_conflicts), and so do copies around L1. Those through it take the stage in turn with what warps load,
    for as long as the load/store unit works on them, and what is left when their data come goes in between
    (kernels/narrow_copies). Copies around L1, their commits and a part of a wavefront for each of their rows stand in the
    way there: they wait for what was asked for ahead of them, and what is asked for behind them until the queue of their
    rows has room for the last (kernels/copies_beside_reads); conflicts of loads do not stand there, so that rows, and what
    is behind them, pass while the stage replays them (kernels/mma_loops, padded rows). Beside operand reads a line of
    global stores is a wavefront like those of warps' stores (kernels/turn_taking, beside N = 64, 128 and 256: 0.03, 0.24
    and 0.38 lines a cycle, where they leave 0.04, 0.25, 0.38).
    Who has which turn where loads are long is ``simulate/load_line.py``'s.
    Ignores: that what copies through L1 bring waits for a stage that is busy when it comes (it takes its time of the
    stage when it is known to come), and that these copies wait for stage and load/store unit together; that global
    stores wait so, too, and warps for the registers that these read (with it a larger L2 can slow a product); that
    global accesses wait so beside operand reads, too, and what is behind copies for the conflicts ahead of these (steps
    of mma.sync whose fragments conflict come too slow by it: which goes first there is not known so well); that two
    loads are served side by side; that wgmma loses up to 3 % to them; arbitration with TMA and cp.async fills (beside
    operand reads they lose 5 to 10 %); that fills, global accesses and operand reads stand in the way to the stage,
    too, and that conflicts of stores may not; that copies of one warp and reads of another of its sub-core take turns
    (readers beside copiers get a third less here than measured); why loads return no faster beside operand reads
    (perhaps as sums take the registers' ports); the pace of one sub-partition; that a store comes three cycles later to
    the data stage than a load; how long an atomic's verb takes.
    Source: the GPU's description; wavefronts come from ``workload/access.py``; operands first: kernels/pipe_beside_wgmma,
    h200_sxm, 2026-11-22 (loads beside one warpgroup's wgmma and beside two's, steps within 3 % wherever loads bind).
    """

    kind = "smem"

    def __init__(self, spec: SmemSpec, *, counters: SmemCounters) -> None:
        """``counters`` are shared by all SMs."""
        self.spec = spec
        self.wavefronts_per_cycle, self.warp_cycles_per_wavefront = spec.wavefronts_per_cycle, spec.warp_cycles_per_wavefront
        self.load_latency_cycles, self.store_latency_cycles = spec.load_latency_cycles, spec.store_latency_cycles
        self._vector_word_cycles, self._replay_wavefronts = spec.vector_word_cycles, spec.replay_wavefronts
        self.global_load_wavefronts = spec.global_load_wavefronts
        self.global_store_wavefronts = spec.global_store_wavefronts
        self._copied_row_wavefronts = spec.copied_row_wavefronts
        self.counters = counters
        self.data = GapPipe(units_per_cycle=spec.wavefronts_per_cycle)
        self.way = GapPipe(units_per_cycle=spec.wavefronts_per_cycle)
        """The way there: what it is used for is looked at from the first copy around L1 on."""
        self._is_way_watched = False
        self._operands_until = 0.0
        self._asked_until = 0.0
        """When the last of what warps have asked for here will have been served."""
        self._most_stored = spec.operand_store_wavefronts_per_cycle / spec.wavefronts_per_cycle
        self._free_share = self._conflict_share = 1.0
        self._filling = 0.0
        self._idle_since = 0.0

    def load(
        self, num_wavefronts: float, *, registers_per_wavefront: float, at_cycle: float, weight: float,
        way_wavefronts: float | None = None, is_counted: bool = False,
    ) -> tuple[float, float]:
        """Read; returns the cycle at which what could be read has been, and the wavefronts that must ask again then.

        ``way_wavefronts``: what it takes of the way there, all by default; none where it asks again.
        """
        most = 1.0
        if at_cycle < self._operands_until and registers_per_wavefront > 0.0:
            most = self.spec.operand_load_registers_per_cycle / registers_per_wavefront / self.data.rate
            if registers_per_wavefront < 1.0 and self._conflict_share < most:
                most = self._conflict_share
        if self._is_way_watched and way_wavefronts != 0.0:
            at_cycle = self._on_way(num_wavefronts if way_wavefronts is None else way_wavefronts, at_cycle)
        end, left = self._take(num_wavefronts, at_cycle, weight, most)
        if end > self._asked_until:
            self._asked_until = end
        if not is_counted:
            self.count_wavefronts((num_wavefronts - left) * weight)
        return end, left

    def count_wavefronts(self, num_wavefronts: float) -> None:
        """Count what loads read: where they take turns, when they are issued, as the kernel may end before."""
        self.counters.wavefronts += num_wavefronts
        self.counters.load_wavefronts += num_wavefronts

    @property
    def takes_turns(self) -> bool:
        """Whether long loads take turns: not where operands of wgmma are read, which make turns of their own."""
        return not self._operands_until

    def ready(self, end_cycle: float, *, wavefronts_per_warp: float, words_per_lane: float = 1.0, at_cycle: float) -> float:
        """The cycle at which the last register is there of loads asked for at ``at_cycle`` and read by ``end_cycle``."""
        own = at_cycle + (wavefronts_per_warp - 1.0) * self.warp_cycles_per_wavefront
        shared = end_cycle - 1.0 / self.wavefronts_per_cycle
        vector = (words_per_lane - 1.0) * self._vector_word_cycles if words_per_lane > 1.0 else 0.0
        return (shared if shared > own else own) + self.load_latency_cycles + vector

    def count_load(self, num_wavefronts: float, num_instructions: float, *, is_matrix: bool) -> None:
        """Count loads by opcode."""
        if is_matrix:
            self.counters.matrix_load_wavefronts += num_wavefronts
            self.counters.matrix_loads += num_instructions
        else:
            self.counters.plain_load_wavefronts += num_wavefronts
            self.counters.plain_loads += num_instructions

    def count_store(self, num_wavefronts: float, num_instructions: float, *, is_matrix: bool) -> None:
        """Count stores by opcode."""
        if is_matrix:
            self.counters.matrix_store_wavefronts += num_wavefronts
            self.counters.matrix_stores += num_instructions
        else:
            self.counters.plain_store_wavefronts += num_wavefronts
            self.counters.plain_stores += num_instructions

    def count(self, num_wavefronts: float) -> None:
        """Count what passes with a pace of its own: shuffles, commits of cp.async, its copies through L1."""
        self.counters.wavefronts += num_wavefronts

    def fill(self, num_wavefronts: float, *, at_cycle: float, weight: float) -> float:
        """Write what a copy brings, beside the warps' own accesses; returns the cycle at which the last could be in.

        It is counted when the copy is issued (``count_fill``).
        """
        self._passing(0.0, at_cycle)
        self._filling += num_wavefronts
        self.data.busy_cycles += num_wavefronts / self.data.rate * weight
        return max(at_cycle, self.data.free_at) + self._filling / self.data.rate

    def count_fill(self, num_wavefronts: float) -> None:
        """Count what a copy writes."""
        self.counters.fill_wavefronts += num_wavefronts

    def pass_copies(self, num_wavefronts: float, *, at_cycle: float, weight: float) -> float:
        """Let copies through L1 pass, in turn with what warps ask for here; returns the cycle at which the last has."""
        if self._is_way_watched:
            at_cycle = self._on_way(num_wavefronts, at_cycle)
        end = self._reserve(num_wavefronts, at_cycle, weight)
        if end > self._asked_until:
            self._asked_until = end
        return end

    def copy_rows(self, num_rows: float, *, at_cycle: float, weight: float) -> float:
        """Write rows of copies around L1 that come to the way at ``at_cycle``; returns when they are at its head."""
        num_wavefronts = num_rows * self._copied_row_wavefronts
        way = self._watched_way()
        if not num_wavefronts:
            return max(at_cycle, way.free_at)
        begin = self._on_way(num_wavefronts, at_cycle)
        self.data.reserve(num_wavefronts, at_cycle=begin, weight=weight)
        return begin

    def pass_rows(self, num_wavefronts: float, *, until: float, at_cycle: float, weight: float) -> None:
        """Let copies around L1 pass: what warps ask for later waits ``until`` their queue has room for the last of them."""
        way = self._watched_way()
        self.counters.fill_wavefronts += num_wavefronts * weight
        blocked = until - max(at_cycle, way.free_at)
        if blocked > 0.0:
            way.reserve(blocked * way.rate, at_cycle=at_cycle)

    def pass_commits(self, num_cycles: float, *, at_cycle: float, weight: float) -> None:
        """Let commits of copies pass, which are counted elsewhere: what is behind them waits, the stage works on."""
        way = self._watched_way()
        way.reserve(num_cycles * way.rate, at_cycle=at_cycle, weight=weight)

    def _watched_way(self) -> GapPipe:
        """The way here; it is as busy as the stage when the first copy comes."""
        if not self._is_way_watched:
            self._is_way_watched = True
            self.way.become(self.data)
        return self.way

    def _on_way(self, num_wavefronts: float, at_cycle: float) -> float:
        """The cycle from which an access that is asked for at ``at_cycle`` can be served."""
        way = self.way
        return way.reserve(num_wavefronts, at_cycle=at_cycle) - num_wavefronts / way.rate

    def passes_at(self, at_cycle: float, num_waiting: float) -> float:
        """The cycle at which a load of global memory, asked for at ``at_cycle``, is past what was asked for here before.

        ``num_waiting``: wavefronts that wait for their turn, and go before it.
        """
        if not self._replay_wavefronts or at_cycle < self._operands_until:
            return at_cycle
        past = self._asked_until + (num_waiting - self._replay_wavefronts) / self.wavefronts_per_cycle
        return past if past > at_cycle else at_cycle

    def pass_global(self, num_wavefronts: float, *, at_cycle: float, weight: float) -> None:
        """Let global accesses of threads pass the data stage, beside the warps' own of shared memory, uncounted."""
        self._passing(0.0, at_cycle)
        self._filling += num_wavefronts
        self.data.busy_cycles += num_wavefronts / self.data.rate * weight

    def is_read(self, cycle: float) -> bool:
        """Whether operands are read then."""
        return cycle < self._operands_until - EPSILON_CYCLES

    def pass_lines(self, num_lines: float, *, at_cycle: float, weight: float) -> tuple[float, float]:
        """Let lines of global stores pass beside operand reads; returns (end, lines that must ask again then)."""
        return self._take(num_lines, at_cycle, weight, self._most_stored)

    def _reserve(self, num_wavefronts: float, at_cycle: float, weight: float) -> float:
        """Queue an access, and what fills pass on the way; those are counted already."""
        data, passing = self.data, self._passing(num_wavefronts, at_cycle)
        end = data.reserve(num_wavefronts + passing, at_cycle=at_cycle, weight=weight)
        data.busy_cycles -= passing / data.rate * weight
        return end

    def _passing(self, num_wavefronts: float, at_cycle: float) -> float:
        """Wavefronts of fills that go in ``num_wavefronts`` of an access, one by one, after idle cycles."""
        filling = self._filling
        if not filling:
            return 0.0
        idle = at_cycle - max(self._idle_since, self.data.free_at)
        if idle > 0.0:
            filling = max(0.0, filling - idle * self.data.rate)
            self._idle_since = at_cycle
        passing = min(filling, num_wavefronts)
        self._filling = filling - passing
        return passing

    def store(
        self, num_wavefronts: float, *, at_cycle: float, weight: float, is_again: bool = False
    ) -> tuple[float, float]:
        """Write; returns the cycle at which what could be written is in, and the wavefronts that must ask again then.

        ``is_again``: it asks again, and is past the way there.
        """
        if self._is_way_watched and not is_again:
            at_cycle = self._on_way(num_wavefronts, at_cycle)
        end, left = self._take(num_wavefronts, at_cycle, weight, self._most_stored)
        if end > self._asked_until:
            self._asked_until = end
        self.counters.wavefronts += (num_wavefronts - left) * weight
        self.counters.store_wavefronts += (num_wavefronts - left) * weight
        return end, left

    def replay_cycles(self, num_wavefronts: float, num_bytes: float, *, backlog_cycles: float) -> float:
        """How long before stores are in they have been taken, where so much of the data stage's work is ahead."""
        if num_wavefronts * WAVEFRONT_BYTES <= num_bytes or not self._replay_wavefronts:
            return 0.0
        share = 1.0 - num_bytes / (num_wavefronts * WAVEFRONT_BYTES)
        return min(self._replay_wavefronts / self.wavefronts_per_cycle, share * backlog_cycles)

    def swap(self, num_wavefronts: float, *, wavefronts_per_warp: float, at_cycle: float, weight: float) -> float:
        """Read and write in one; returns the cycle at which the last register is there."""
        spec = self.spec
        end, left = self.store(num_wavefronts, at_cycle=at_cycle, weight=weight)
        while left:
            end, left = self.store(left, at_cycle=end, weight=weight, is_again=True)
        own = at_cycle + (wavefronts_per_warp - 1.0) * spec.warp_cycles_per_wavefront + 1.0 / spec.wavefronts_per_cycle
        return (end if end > own else own) + spec.atomic_latency_cycles

    def read_operands(self, free_share: float, conflict_share: float, until_cycle: float) -> None:
        """Operand reads leave ``free_share`` of the data stage until then, ``conflict_share`` to loads with conflicts."""
        self._free_share, self._conflict_share = free_share, conflict_share
        self._operands_until = until_cycle

    def _take(
        self, num_wavefronts: float, at_cycle: float, weight: float, most_share: float = 1.0
    ) -> tuple[float, float]:
        """Use the data stage, or what operand reads leave of it; returns (end, wavefronts that they leave no room for)."""
        share = min(self._free_share, most_share)
        until = self._operands_until
        if not until or share >= 1.0:
            return self._reserve(num_wavefronts, at_cycle, weight), 0.0
        if not self.is_read(at_cycle):  # wgmma may begin soon
            passing = min(num_wavefronts, TURN_WAVEFRONTS)
            return self._reserve(passing, at_cycle, weight), num_wavefronts - passing
        begin = max(at_cycle, self.data.free_at)
        if begin >= until:
            return until, num_wavefronts
        room = (until - begin) * self.data.rate * share
        passing = min(num_wavefronts, room)
        waited = passing / share - passing
        self.data.busy_cycles -= waited / self.data.rate * weight  # the operands' cycles are none of the warps'
        end = self._reserve(passing + waited, at_cycle, weight)
        if num_wavefronts <= room + EPSILON_WAVEFRONTS:
            return end, 0.0
        return max(end, until), num_wavefronts - passing

    def count_gmma(self, num_wavefronts: float) -> None:
        """Count operand reads of wgmma (their time is in the tensor core's rate)."""
        self.counters.wavefronts += num_wavefronts
        self.counters.gmma_wavefronts += num_wavefronts
