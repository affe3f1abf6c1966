"""Ops that a warp program yields: one class for each PTX instruction or CUDA intrinsic.

An op is data. It contains no time: the engine assigns the cost of each op (``engine/ops_*.cpp``). A role is a group of warps
that run one program in lockstep: a producer warp, a consumer warpgroup. Counts in an op are for all warps of the role,
except ``num_instructions`` and ``num_issues``, which are per warp (wgmma: per warpgroup). Fields that several ops have:

* ``tile``: (panel, step). A panel is all that one work tile reads of a tensor: of A, a block row. A step is one slice of
  that panel. Two roles that name the same tile share its lines in L2. Loads of one tile read the same lines. Stores in a
  row of one role to one tile store different parts of it.
* ``access``: requests, sectors, lines, wavefronts and bytes, summed over the warps of the role.
* ``allocates_in_l1``: False for ``ld.global.L1::no_allocate``, ``ld.global.cg`` and ``cp.async.cg``.
* ``buffer``, ``stage``: stage of a ring in shared memory. An empty ``buffer`` is scratch memory, which has no stages.
* ``barrier``, ``stage``: mbarrier of a ring.
* ``cta_rank``: rank of the other CTA in the cluster.
* ``is_chain``: whether each instruction waits for the result of the one before.
* ``data``: the elements that the op moves or multiplies, for functional runs (``workload/data_access.py``). Timing runs
  ignore it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from gpusim.workload.atoms import MmaAtom
from gpusim.workload.data_access import Data as Data  # noqa: PLC0414  # exported as part of the vocabulary
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
    """``ld.global`` through L1. Waits for the MIO queue and the load/store unit; its :class:`Token` stands for the data."""

    tensor: str
    tile: Tile
    access: AccessPattern
    allocates_in_l1: bool = True
    cache_hint: CacheHint = "evict_normal"
    data: Data | None = field(default=None, compare=False, repr=False)


@made_quickly
@dataclass(frozen=True, slots=True)
class GlobalStore(Op):
    """``st.global``. Waits until all of it is in the store queue, not until it has arrived in L2: fences do that."""

    tensor: str
    tile: Tile
    access: AccessPattern
    cache_hint: CacheHint = "evict_normal"
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GlobalAtomic(Op):
    """``atom.global`` (``returns``: yields a :class:`Token`) or ``red.global``. Waits for the LSU; L2 resolves it."""

    tensor: str
    tile: Tile
    access: AccessPattern
    returns: bool = False
    data: Data | None = field(default=None, compare=False, repr=False)


@made_quickly
@dataclass(frozen=True, slots=True)
class Use(Op):
    """The first instruction that reads loaded registers. Waits for the data of ``token`` (long or short scoreboard)."""

    token: Token


# ---------------------------------------------------------------------------------------------- cp.async
@made_quickly
@dataclass(frozen=True, slots=True)
class CpAsync(Op):
    """``cp.async.ca|cg.shared.global``: copies from global to shared memory without passing through registers.

    The next :class:`CpAsyncCommitGroup` of the role closes its group. Waits for the MIO queue and the load/store unit only.

    * ``num_rows``: rows of the tile that are not contiguous in global memory.
    * ``num_between``: address instructions per warp between two copies (integer instructions and moves).
    * ``promoted_tiles``, ``new_fraction``: L2 promotion, as in :class:`TmaLoad`.
    * ``fetches``: sectors and line requests of rows that do not begin on a line; None: full sectors of full lines.
    * ``num_passes``: passes through the copy stage that bypasses L1 (``line_fetches.num_passes``), at least one a row.
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
    promoted_tiles: tuple[Tile, ...] = ()
    fetches: Fetches | None = None
    num_passes: float = 0.0
    new_fraction: float = 1.0
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CpAsyncCommitGroup(Op):
    """``cp.async.commit_group``: closes the role's open group of copies.

    ``is_held``: whether code right after it overwrites the copies' address registers. Then warps wait until the MIO queue
    has issued the copies.
    """

    is_held: bool = False


@dataclass(frozen=True, slots=True)
class CpAsyncWaitGroup(Op):
    """``cp.async.wait_group N``: waits until at most ``num_pending`` of the role's latest groups are in flight."""

    num_pending: int


@dataclass(frozen=True, slots=True)
class CpAsyncMbarrierArrive(Op):
    """``cp.async.mbarrier.arrive.noinc``: one arrival a thread when its earlier ``cp.async`` have completed. No wait."""

    barrier: str
    stage: int


# ---------------------------------------------------------------------------------------------- TMA
@dataclass(frozen=True, slots=True)
class TmaLoad(Op):
    """``cp.async.bulk.tensor...shared::cluster.global.mbarrier::complete_tx::bytes``: TMA copies boxes to shared memory.

    Waits for space in TMA's instruction queue. Its bytes complete on ``barrier``: see :class:`MbarrierWait`.

    * ``num_bytes``: bytes that arrive and count on the mbarrier, zeros for out-of-bounds elements included.
    * ``num_fetched_bytes``: bytes that are read from global memory.
    * ``num_rows``: box rows that TMA generates requests for; ``num_zero_rows`` of them are outside of the tensor.
    * ``num_outside_rows``: rows of boxes that are completely outside of the tensor. ``num_boxes``: one instruction each.
    * ``multicast``: cluster ranks that receive the data, each on its own mbarrier; empty: this CTA alone.
    * ``promoted_tiles``: tiles of the same size that L2 fetches together with this one if it misses. The cause is L2
      promotion: the instruction or its tensor map requests more bytes than a row of the tile has.
    * ``new_fraction``: fraction of the tile's rows that begin a new block of memory and fetch it. The other rows were
      fetched with the tile before.
    * ``fetches``: as in :class:`CpAsync`. ``swizzle``: of the tensor map (empty: not stated), for the order check alone.
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
    promoted_tiles: tuple[Tile, ...] = ()
    fetches: Fetches | None = None
    num_zero_rows: int = 0
    num_outside_rows: int = 0
    new_fraction: float = 1.0
    swizzle: str = ""
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TmaStore(Op):
    """``cp.async.bulk.tensor...global.shared::cta.bulk_group`` (``reduce``: ``cp.reduce...``). Waits for TMA's queue."""

    tensor: str
    tile: Tile
    num_bytes: int
    num_rows: int
    buffer: str
    stage: int
    num_boxes: int = 1
    reduce: bool = False
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BulkCommitGroup(Op):
    """``cp.async.bulk.commit_group``: closes the role's open group of bulk stores. Does not wait."""


@dataclass(frozen=True, slots=True)
class BulkWaitGroup(Op):
    """``cp.async.bulk.wait_group[.read] N``: waits for all but ``num_pending`` groups; ``read``: until sources are read."""

    num_pending: int
    read: bool = True


@dataclass(frozen=True, slots=True)
class PrefetchTensormap(Op):
    """``prefetch.tensormap``: fetches the TMA descriptors of ``tensors``, one instruction each. Does not wait for them."""

    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FenceProxyTensormap(Op):
    """``tensormap.cp_fenceproxy`` and ``fence.proxy.tensormap`` of TMA descriptors that the CTA has made, for ``tensors``.

    Waits until L2 has the descriptors. The SM forgets older ones of these tensors, so their next copies fetch them.
    """

    tensors: tuple[str, ...]


# ---------------------------------------------------------------------------------------------- mbarriers, fences
@dataclass(frozen=True, slots=True)
class MbarrierInit(Op):
    """``mbarrier.init`` for each stage of a ring. The Launch declares the arrival counts."""

    barrier: str


@dataclass(frozen=True, slots=True)
class MbarrierArrive(Op):
    """``mbarrier.arrive``: ``count`` arrivals; with ``cta_rank``, ``mapa`` and a remote arrive. Does not wait."""

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
    """``fence.proxy.async.shared::cta``: makes stores to shared memory visible to TMA and wgmma. Waits for these stores."""


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
    """``ld.shared``: yields a :class:`Token` for the data. Its cost is its wavefronts.

    ``num_parts``: equal parts that are used in turn. The token is ready with the first; the others arrive during its use.
    """

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    num_parts: int = 1
    data: Data | None = field(default=None, compare=False, repr=False)


@made_quickly
@dataclass(frozen=True, slots=True)
class SharedStore(Op):
    """``st.shared``. Waits for the store queue. ``has_token``: yields a :class:`Token`, ready when registers are read."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    has_token: bool = False
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SharedAtomic(Op):
    """``atom.shared`` or ``red.shared``: a read-modify-write in shared memory. Yields a :class:`Token`."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Ldmatrix(Op):
    """``ldmatrix.sync.aligned``: loads 8x8 matrices from shared memory as MMA fragments. Yields a :class:`Token`."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Stmatrix(Op):
    """``stmatrix.sync.aligned``: stores MMA fragments as 8x8 matrices. Waits like :class:`SharedStore`, with its token."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    has_token: bool = False
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DsmemLoad(Op):
    """``ld.shared::cluster``: loads ``num_bytes`` from another CTA of the cluster. Yields a :class:`Token`."""

    cta_rank: int
    num_bytes: int
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DsmemStore(Op):
    """``st.shared::cluster``: stores ``num_bytes`` to another CTA of the cluster. Does not wait for the arrival."""

    cta_rank: int
    num_bytes: int
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StAsync(Op):
    """``st.async.shared::cluster.mbarrier::complete_tx::bytes``: its bytes complete on the other CTA's mbarrier. No wait."""

    cta_rank: int
    num_bytes: int
    barrier: str
    stage: int
    data: Data | None = field(default=None, compare=False, repr=False)


# ---------------------------------------------------------------------------------------------- arithmetic
@dataclass(frozen=True, slots=True)
class MmaSync(Op):
    """``mma.sync``: ``num_issues`` instructions per warp, on independent accumulators. Waits for the tensor cores."""

    atom: MmaAtom
    num_issues: int
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WgmmaFence(Op):
    """``wgmma.fence.sync.aligned``: orders register accesses before the next wgmma. Costs a fixed number of cycles."""


@dataclass(frozen=True, slots=True)
class Wgmma(Op):
    """``wgmma.mma_async``: ``num_issues`` instructions per warpgroup of the role. Waits for space in the wgmma queue.

    ``reads``: the (buffer, stage) pairs that matrix descriptors, of one ``swizzle``, point to. ``num_between``: dependent
    instructions of a warp between its first and last wgmma, which run while wgmma waits in the queue.
    Ignores: that a wgmma after such instructions may be too late to follow the previous one without a gap.
    """

    atom: MmaAtom
    num_issues: int
    reads: tuple[tuple[str, int], ...] = ()
    num_between: float = 0.0
    swizzle: str = ""
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WgmmaCommitGroup(Op):
    """``wgmma.commit_group``: closes the role's open group of wgmma. Does not wait."""


@dataclass(frozen=True, slots=True)
class WgmmaWaitGroup(Op):
    """``wgmma.wait_group N``: waits until at most ``num_pending`` of the role's latest groups are in flight."""

    num_pending: int


@dataclass(frozen=True, slots=True)
class FetchCode(Op):
    """Instruction fetch: straight-line code of ``num_bytes`` begins here (16 bytes an instruction). No PTX instruction.

    Waits if the SM's instruction caches do not hold the code. The ops after it give the cost of the instructions. A program
    without this op runs from the caches, like a kernel that is launched repeatedly.
    """

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class LoopBody(Op):
    """Instruction fetch: one iteration of a loop begins here. No PTX instruction.

    A sub-core's instruction cache may be smaller than the loop. Then part of the code is fetched again in each iteration.
    Waits for it only if the sub-core has a single warp, and as far as the loop's instructions do not hide it. ``num_fma``:
    FFMA of an iteration. ``num_others``: its other instructions. ``bank_reads``: as in :class:`Fma`.
    """

    num_fma: float
    num_others: float
    bank_reads: float = 1.0


@dataclass(frozen=True, slots=True)
class FetchColdCode(Op):
    """Cold instruction fetch: code ``begin_bytes`` to ``end_bytes`` after the start of the kernel. No PTX instruction.

    Waits only if the instruction caches were flushed (``--l2 flushed``) and the launch does not prefetch code that far.
    ``overhead_cycles``: cycles that a warp takes for the overhead instructions among these, from the ops that follow.
    """

    name: str
    begin_bytes: int
    end_bytes: int
    overhead_cycles: float


@dataclass(frozen=True, slots=True)
class Fma(Op):
    """``fma.rn.f32`` and other FP32 instructions: ``num_instructions`` per warp. Waits for the FP32 pipe.

    * ``is_chain``: False means that enough instructions are independent to fill the pipe.
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
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Alu(Op):
    """Integer, logic, conversion and move instructions: ``num_instructions`` per warp. Waits for the integer pipe.

    ``num_beside``: equivalent length of a chain while wgmma runs on the SM, if that is longer. ``num_more``: independent
    instructions between those of a chain, which take issue slots and wait for nothing.
    """

    num_instructions: float
    is_chain: bool = False
    num_beside: float = 0.0
    num_more: float = 0.0
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ImadWide(Op):
    """``mad.wide`` (``IMAD.WIDE`` in SASS): ``num_instructions`` per warp, 64-bit multiply-adds for addresses.

    IMAD.WIDE and wgmma do not overlap on an SM: each waits for the other, and so do the warp's younger instructions.
    ``is_interleaved``: whether other instructions lie in between. Then warps arrive at different times, and each one delays
    wgmma separately. ``sets_pace``: whether they belong to a k-step whose warps copy their operands themselves. If several
    CTAs share an SM, the pace of such a k-step differs from SM to SM.
    """

    num_instructions: float
    is_interleaved: bool = False
    sets_pace: bool = False


@dataclass(frozen=True, slots=True)
class Mufu(Op):
    """``ex2.approx``, ``rcp.approx`` and other MUFU instructions: ``num_instructions`` per warp. Waits for the MUFU pipe."""

    num_instructions: float


@dataclass(frozen=True, slots=True)
class Shfl(Op):
    """``shfl.sync``: ``num_instructions`` per warp, of ``num_warps`` warps (None: all). Waits for the shuffle pipe."""

    num_instructions: float
    is_chain: bool = False
    num_warps: int | None = None


@dataclass(frozen=True, slots=True)
class SetMaxNReg(Op):
    """``setmaxnreg.inc|dec.sync.aligned.u32``: ``inc`` waits until the CTA's pool has enough registers."""

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
    data: Data | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RangeEnd(Op):
    """Ends the innermost section of the timeline. No PTX instruction."""
