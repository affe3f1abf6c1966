"""Ops that a warp program yields: one class for each PTX instruction or CUDA intrinsic.

An op is data. It contains no time: the engine assigns the cost of each op (``engine/ops_*.cpp``).

A role is a group of warps that run one program in lockstep: a producer warp, a consumer warpgroup. Counts in an op are
for all warps of the role unless the text says "per warp".

``tile`` is a pair (panel, step). A panel is all that one work tile reads of a tensor: of A, a block row.
A step is one slice of that panel. Two roles that name the same tile share its lines in L2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from gpusim.workload.atoms import MmaAtom
from gpusim.workload.fast_init import made_quickly
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.token import Token as Token  # noqa: PLC0414  # exported as part of the vocabulary

Tile = tuple[int, int]
CacheHint = Literal["evict_normal", "evict_first", "evict_last"]


class Op:
    """Base class of all ops."""

    __slots__ = ()


# ---------------------------------------------------------------------------------------------- global memory


@made_quickly
@dataclass(frozen=True, slots=True)
class GlobalLoad(Op):
    """``ld.global``: loads registers from global memory through L1. Yields a :class:`Token`.

    Waits for a place in the MIO queue and for the load/store unit, not for the data: :class:`Use` does that.

    * ``access``: sectors, lines and tag wavefronts of all warps of the role.
    * ``allocates_in_l1``: False for ``ld.global.L1::no_allocate`` and ``ld.global.cg``.
    """

    tensor: str
    tile: Tile
    access: AccessPattern
    allocates_in_l1: bool = True
    cache_hint: CacheHint = "evict_normal"


@made_quickly
@dataclass(frozen=True, slots=True)
class GlobalStore(Op):
    """``st.global``: stores registers to global memory.

    Waits until the last part of the store is in the store queue, not until it arrives in L2: fences do that.

    * ``access``: sectors, lines and packets of all warps of the role.
    """

    tensor: str
    tile: Tile
    access: AccessPattern
    cache_hint: CacheHint = "evict_normal"


@dataclass(frozen=True, slots=True)
class GlobalAtomic(Op):
    """``atom.global`` or ``red.global``: a read-modify-write that L2 resolves.

    Waits for the load/store unit, not for L2.

    * ``returns``: True for ``atom``, which yields a :class:`Token` for the old value; False for ``red``, which yields
      nothing.
    """

    tensor: str
    tile: Tile
    access: AccessPattern
    returns: bool = False


@made_quickly
@dataclass(frozen=True, slots=True)
class Use(Op):
    """The first instruction that reads a loaded register. Waits until the data of ``token`` have arrived.

    Nsight Compute counts the wait as long scoreboard (global memory, DSMEM) or short scoreboard (shared memory).
    """

    token: Token


# ---------------------------------------------------------------------------------------------- cp.async


@made_quickly
@dataclass(frozen=True, slots=True)
class CpAsync(Op):
    """``cp.async.ca|cg.shared.global``: copies from global to shared memory without passing through registers.

    The next :class:`CpAsyncCommitGroup` of the role closes the group that the copy belongs to.
    Waits for a place in the MIO queue and for the load/store unit, not for the data.

    * ``access``: sectors in global memory, and wavefronts of the write to shared memory.
    * ``buffer``, ``stage``: destination in shared memory.
    * ``allocates_in_l1``: True for ``.ca``, False for ``.cg``.
    * ``num_rows``: rows of the tile that are not contiguous in global memory.
    * ``num_between``: address instructions per warp between two copies (integer instructions and moves).
    * ``come_along``, ``new_fraction``: L2 promotion, as in :class:`TmaLoad`.
    * ``fetches``: sectors and line requests of rows that do not begin on a line; None: all rows are full sectors of full
      lines.
    * ``num_passes``: passes of all rows through the copy stage that bypasses L1, at least one a row; see
      :func:`gpusim.workload.gmem.line_fetches.num_passes`.
    """

    tensor: str
    tile: Tile
    access: AccessPattern
    buffer: str
    stage: int
    allocates_in_l1: bool = False
    num_rows: int = 1
    cache_hint: CacheHint = "evict_normal"
    num_between: float = 0.0
    come_along: tuple[Tile, ...] = ()
    fetches: Fetches | None = None
    num_passes: float = 0.0
    new_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class CpAsyncCommitGroup(Op):
    """``cp.async.commit_group``: closes the role's open group of copies.

    * ``is_held``: whether code right after the commit overwrites the address registers of the group. Then the warps wait
      until the copies have left the MIO queue.
    """

    is_held: bool = False


@dataclass(frozen=True, slots=True)
class CpAsyncWaitGroup(Op):
    """``cp.async.wait_group N``: waits until at most ``num_pending`` of the role's latest groups are in flight."""

    num_pending: int


@dataclass(frozen=True, slots=True)
class CpAsyncMbarrierArrive(Op):
    """``cp.async.mbarrier.arrive.noinc``: one arrival for each thread, as soon as its earlier ``cp.async`` have completed.

    Does not wait.
    """

    barrier: str
    stage: int


# ---------------------------------------------------------------------------------------------- TMA


@dataclass(frozen=True, slots=True)
class TmaLoad(Op):
    """``cp.async.bulk.tensor...shared::cluster.global.mbarrier::complete_tx::bytes``: TMA copies boxes to shared memory.

    Waits for space in TMA's instruction queue. The data complete the phase of ``barrier[stage]``: :class:`MbarrierWait`.

    * ``num_bytes``: bytes that arrive and count on the mbarrier, zeros for out-of-bounds elements included.
    * ``num_fetched_bytes``: bytes that are read from global memory.
    * ``num_rows``: box rows that TMA generates requests for.
    * ``num_zero_rows``: those rows that are outside of the tensor.
    * ``num_outside_rows``: rows of boxes that are completely outside of the tensor.
    * ``num_boxes``: instructions, one a box.
    * ``multicast``: cluster ranks that receive the data, each on its own mbarrier; empty: this CTA alone.
    * ``come_along``: tiles of the tensor, of the same size, that L2 fetches from memory together with this one if it misses.
      The cause is L2 promotion: the instruction or its tensor map requests more bytes than a row of the tile has.
    * ``new_fraction``: fraction of the tile's rows that begin a new block of memory and fetch it. The other rows were
      fetched with the tile before.
    * ``fetches``: as in :class:`CpAsync`.
    """

    tensor: str
    tile: Tile
    num_bytes: int
    num_fetched_bytes: int
    num_rows: int
    buffer: str
    stage: int
    barrier: str
    multicast: tuple[int, ...] = ()
    num_boxes: int = 1
    cache_hint: CacheHint = "evict_normal"
    come_along: tuple[Tile, ...] = ()
    fetches: Fetches | None = None
    num_zero_rows: int = 0
    num_outside_rows: int = 0
    new_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class TmaStore(Op):
    """``cp.async.bulk.tensor...global.shared::cta.bulk_group``: TMA copies boxes from shared to global memory.

    Waits for space in TMA's instruction queue. The copy belongs to the group that :class:`BulkCommitGroup` closes.

    * ``num_rows``: box rows.
    * ``num_boxes``: instructions, one a box.
    * ``reduce``: True for ``cp.reduce.async.bulk.tensor``, which adds to global memory.
    """

    tensor: str
    tile: Tile
    num_bytes: int
    num_rows: int
    buffer: str
    stage: int
    num_boxes: int = 1
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class BulkCommitGroup(Op):
    """``cp.async.bulk.commit_group``: closes the role's open group of bulk stores. Does not wait."""


@dataclass(frozen=True, slots=True)
class BulkWaitGroup(Op):
    """``cp.async.bulk.wait_group[.read] N``: waits until at most ``num_pending`` of the role's latest groups are in flight.

    * ``read``: True for ``.read``, which waits only until the source in shared memory has been read.
    """

    num_pending: int
    read: bool = True


@dataclass(frozen=True, slots=True)
class PrefetchTensormap(Op):
    """``prefetch.tensormap``: fetches the TMA descriptors of ``tensors`` before their first use, one instruction each.

    Does not wait for the descriptors.
    """

    tensors: tuple[str, ...]


# ---------------------------------------------------------------------------------------------- mbarriers, fences


@dataclass(frozen=True, slots=True)
class MbarrierInit(Op):
    """``mbarrier.init`` for each stage of a ring. The Launch declares the arrival counts."""

    barrier: str


@dataclass(frozen=True, slots=True)
class MbarrierArrive(Op):
    """``mbarrier.arrive``: ``count`` arrivals on ``barrier[stage]``. Does not wait for the phase.

    * ``cta_rank``: rank of the CTA in the cluster whose mbarrier it is (``mapa`` and a remote arrive); None: this CTA.
    """

    barrier: str
    stage: int
    count: int = 1
    cta_rank: int | None = None


@dataclass(frozen=True, slots=True)
class MbarrierArriveExpectTx(Op):
    """``mbarrier.arrive.expect_tx``: one arrival that adds ``num_bytes`` to the bytes that the current phase waits for."""

    barrier: str
    stage: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class MbarrierWait(Op):
    """``mbarrier.try_wait.parity`` in a loop: waits until the phase with parity ``parity`` (0 or 1) has completed."""

    barrier: str
    stage: int
    parity: int
    by_lane: bool = False
    """Whether a single lane waits while the other lanes of its warp have diverged. Such a lane polls less often."""


@dataclass(frozen=True, slots=True)
class BarSync(Op):
    """``bar.sync``: waits until all threads of a named barrier have arrived. The Launch declares the barrier."""

    barrier: str


@dataclass(frozen=True, slots=True)
class BarArrive(Op):
    """``bar.arrive``: arrives on a named barrier. Does not wait for the other threads."""

    barrier: str


@dataclass(frozen=True, slots=True)
class Syncthreads(Op):
    """``__syncthreads()``: waits until all threads of the CTA have arrived."""


@dataclass(frozen=True, slots=True)
class ClusterArrive(Op):
    """``barrier.cluster.arrive``: arrives on the cluster's barrier. Does not wait for the other threads."""


@dataclass(frozen=True, slots=True)
class ClusterWait(Op):
    """``barrier.cluster.wait``: waits until all threads of all CTAs of the cluster have arrived."""


@dataclass(frozen=True, slots=True)
class FenceProxyAsync(Op):
    """``fence.proxy.async.shared::cta``: makes generic-proxy writes to shared memory visible to TMA and wgmma.

    Waits until the role's earlier stores to shared memory are delivered.
    """


@dataclass(frozen=True, slots=True)
class FenceMbarrierInit(Op):
    """``fence.mbarrier_init.release.cluster``: makes initialized mbarriers visible to the cluster. Costs one issue slot."""


@dataclass(frozen=True, slots=True)
class FenceAcqRel(Op):
    """``fence.acq_rel`` at scope gpu or cluster, alone or as part of an arrival that releases at such a scope.

    Waits until the role's earlier stores to global memory and to other CTAs of the cluster have arrived.
    """


# ---------------------------------------------------------------------------------------------- shared memory


@made_quickly
@dataclass(frozen=True, slots=True)
class SharedLoad(Op):
    """``ld.shared``: loads registers from shared memory. Yields a :class:`Token`. Its cost is its wavefronts.

    * ``buffer``: name of the buffer; empty: scratch memory, which has no stages.
    * ``num_parts``: equal parts of the load that are used one after the other. The token is ready when the first part has
      arrived; the others arrive while it is used.
    """

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    num_parts: int = 1


@made_quickly
@dataclass(frozen=True, slots=True)
class SharedStore(Op):
    """``st.shared``: stores registers to shared memory. Its cost is its wavefronts.

    Waits until the last instruction is in the store queue.

    * ``has_token``: whether it yields a :class:`Token`, which is ready when the source registers have been read.
    """

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    has_token: bool = False


@dataclass(frozen=True, slots=True)
class SharedAtomic(Op):
    """``atom.shared`` or ``red.shared``: a read-modify-write in shared memory. Yields a :class:`Token`."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Ldmatrix(Op):
    """``ldmatrix.sync.aligned``: loads 8x8 matrices from shared memory as MMA fragments. Yields a :class:`Token`."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Stmatrix(Op):
    """``stmatrix.sync.aligned``: stores MMA fragments as 8x8 matrices in shared memory. Waits like :class:`SharedStore`.

    * ``has_token``: as in :class:`SharedStore`.
    """

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    has_token: bool = False


@dataclass(frozen=True, slots=True)
class DsmemLoad(Op):
    """``ld.shared::cluster``: loads ``num_bytes`` from the cluster's CTA of rank ``cta_rank``. Yields a :class:`Token`."""

    cta_rank: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class DsmemStore(Op):
    """``st.shared::cluster``: stores ``num_bytes`` to the CTA of rank ``cta_rank`` in the cluster. Does not wait."""

    cta_rank: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class StAsync(Op):
    """``st.async.shared::cluster.mbarrier::complete_tx::bytes``: an asynchronous store to another CTA of the cluster.

    Its ``num_bytes`` complete on ``barrier[stage]`` of the CTA of rank ``cta_rank``. Does not wait.
    """

    cta_rank: int
    num_bytes: int
    barrier: str
    stage: int


# ---------------------------------------------------------------------------------------------- arithmetic


@dataclass(frozen=True, slots=True)
class MmaSync(Op):
    """``mma.sync``: ``num_issues`` instructions per warp, on independent accumulators. Waits for the tensor cores."""

    atom: MmaAtom
    num_issues: int


@dataclass(frozen=True, slots=True)
class WgmmaFence(Op):
    """``wgmma.fence.sync.aligned``: orders register accesses before the next wgmma. Costs a fixed number of cycles."""


@dataclass(frozen=True, slots=True)
class Wgmma(Op):
    """``wgmma.mma_async``: ``num_issues`` instructions per warpgroup of the role. Waits for space in the wgmma queue.

    * ``reads``: the (buffer, stage) pairs in shared memory that the matrix descriptors point to.
    * ``num_between``: dependent instructions of a warp between its first and last wgmma. They run while wgmma waits in the
      queue.

    Ignores:
    * That a wgmma after such instructions may be too late to follow the previous one without a gap.
    """

    atom: MmaAtom
    num_issues: int
    reads: tuple[tuple[str, int], ...] = ()
    num_between: float = 0.0


@dataclass(frozen=True, slots=True)
class WgmmaCommitGroup(Op):
    """``wgmma.commit_group``: closes the role's open group of wgmma. Does not wait."""


@dataclass(frozen=True, slots=True)
class WgmmaWaitGroup(Op):
    """``wgmma.wait_group N``: waits until at most ``num_pending`` of the role's latest groups are in flight."""

    num_pending: int


@dataclass(frozen=True, slots=True)
class Code(Op):
    """Instruction fetch: a block of straight-line code begins here. No PTX instruction.

    Waits if the SM's instruction caches do not hold the code. The ops after it give the cost of the instructions.
    A program without this op runs from the caches, like a kernel that is launched repeatedly.

    * ``num_bytes``: size of the code, 16 bytes an instruction.
    """

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class LoopCode(Op):
    """Instruction fetch: one iteration of a loop begins here. No PTX instruction.

    A sub-core's instruction cache may be smaller than the loop. Then part of the code is fetched again in each iteration.
    Waits for this fetch only if the sub-core has a single warp, and as far as the loop's instructions do not hide it.

    * ``num_fma``: FFMA instructions of an iteration.
    * ``num_others``: its other instructions.
    * ``bank_reads``: as in :class:`Fma`.
    """

    num_fma: float
    num_others: float
    bank_reads: float = 1.0


@dataclass(frozen=True, slots=True)
class FarCode(Op):
    """Cold instruction fetch: code ``begin_bytes`` to ``end_bytes`` after the start of the kernel. No PTX instruction.

    Waits only if the instruction caches were flushed (``--l2 flushed``) and the launch does not prefetch code that far.

    * ``own_cycles``: cycles that a warp takes for the overhead instructions among these, from the ops that follow.
    """

    name: str
    begin_bytes: int
    end_bytes: int
    own_cycles: float


@dataclass(frozen=True, slots=True)
class Fma(Op):
    """``fma.rn.f32`` and other FP32 instructions: ``num_instructions`` per warp. Waits for the FP32 pipe.

    * ``is_chain``: whether each instruction waits for the one before; False: enough of them are independent to fill the
      pipe.
    * ``bank_reads``: registers that an instruction reads from the fuller of its scheduler's two register banks, on average.
    * ``num_runs``: runs of FFMA in a GEMM's main loop, each of which waits for vectors from shared memory. With several CTAs
      on an SM, one CTA issues until it stalls, and ``cp.async`` of the other CTAs wait. 0: no such runs.
    * ``by_age``: whether older CTAs issue first. That holds if runs never wait for copies; it is equal for all CTAs of an
      SM.
    """

    num_instructions: float
    is_chain: bool = False
    bank_reads: float = 1.0
    num_runs: int = 0
    by_age: bool = False


@dataclass(frozen=True, slots=True)
class Alu(Op):
    """Integer, logic, conversion and move instructions: ``num_instructions`` per warp. Waits for the integer pipe.

    * ``is_chain``: whether each instruction waits for the one before.
    * ``num_beside``: equivalent length of a chain while wgmma runs on the SM, if that is longer.
    * ``num_more``: independent instructions between those of a chain. They take issue slots and wait for nothing.
    """

    num_instructions: float
    is_chain: bool = False
    num_beside: float = 0.0
    num_more: float = 0.0


@dataclass(frozen=True, slots=True)
class MadWide(Op):
    """``mad.wide`` (``IMAD.WIDE`` in SASS): ``num_instructions`` per warp, 64-bit multiply-adds for addresses.

    IMAD.WIDE and wgmma do not overlap on an SM: each waits for the other, and so do the warp's younger instructions.

    * ``is_apart``: whether other instructions lie in between. Then warps arrive at different times, and each one delays
      wgmma separately.
    * ``sets_pace``: whether they belong to a k-step whose warps copy their operands themselves. If several CTAs share an SM,
      the pace of such a k-step differs from SM to SM.
    """

    num_instructions: float
    is_apart: bool = False
    sets_pace: bool = False


@dataclass(frozen=True, slots=True)
class Mufu(Op):
    """``ex2.approx``, ``rcp.approx`` and other MUFU instructions: ``num_instructions`` per warp. Waits for the MUFU pipe."""

    num_instructions: float


@dataclass(frozen=True, slots=True)
class Shfl(Op):
    """``shfl.sync``: ``num_instructions`` per warp. Waits for the shuffle pipe.

    * ``is_chain``: whether each instruction waits for the result of the one before.
    """

    num_instructions: float
    is_chain: bool = False
    num_warps: int | None = None
    """Warps of the role that issue it; None: all."""


@dataclass(frozen=True, slots=True)
class SetMaxNReg(Op):
    """``setmaxnreg.inc|dec.sync.aligned.u32``: changes the warp's registers to ``num_registers`` per thread.

    * ``direction``: ``inc`` waits until the CTA's pool has enough registers; ``dec`` returns registers to the pool.
    """

    num_registers: int
    direction: Literal["inc", "dec"]


# ---------------------------------------------------------------------------------------------- marks


class Section(Enum):
    """Sections of a kernel. A counterfactual can remove the cost of a section."""

    PROLOGUE = "prologue"
    MAINLOOP = "mainloop"
    EPILOGUE = "epilogue"


@dataclass(frozen=True, slots=True)
class RangeStart(Op):
    """Begins a named section of the timeline, as an NVTX range does. No PTX instruction."""

    section: Section


@dataclass(frozen=True, slots=True)
class RangeEnd(Op):
    """Ends the innermost section of the timeline. No PTX instruction."""
