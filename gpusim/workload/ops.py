"""The op vocabulary: what a warp can be told to do, each word named after its PTX instruction or CUDA intrinsic.

An op is data and knows no time; ``simulate/warp.py`` gives each its cost. A role (a producer warp, a consumer
warpgroup) runs its warps in lockstep, so counts in an op are for the whole role unless they say "per warp".

``tile`` names what is accessed: ``(panel, step)``, where a panel is what one work tile reads from a tensor from
end to end (a block row of A) and step is its slice. Two roles that name the same tile share its lines in L2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from gpusim.workload.atoms import MmaAtom
from gpusim.workload.fast_init import made_quickly
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.token import Token as Token  # noqa: PLC0414  # a word of the vocabulary, too

Tile = tuple[int, int]
CacheHint = Literal["evict_normal", "evict_first", "evict_last"]


class Op:
    """Any word of the vocabulary."""

    __slots__ = ()


# ---------------------------------------------------------------------------------------------- global memory


@made_quickly
@dataclass(frozen=True, slots=True)
class GlobalLoad(Op):
    """``ld.global``: registers from global memory, through L1. Yields a :class:`Token`.

    ``access`` holds the sectors and tag wavefronts of all warps of the role. ``allocates_in_l1`` is false for
    ``ld.global.L1::no_allocate`` and ``.cg``.
    """

    tensor: str
    tile: Tile
    access: AccessPattern
    allocates_in_l1: bool = True
    cache_hint: CacheHint = "evict_normal"


@made_quickly
@dataclass(frozen=True, slots=True)
class GlobalStore(Op):
    """``st.global``: global memory from registers. The warp goes on once the LSU has taken the store."""

    tensor: str
    tile: Tile
    access: AccessPattern
    cache_hint: CacheHint = "evict_normal"


@dataclass(frozen=True, slots=True)
class GlobalAtomic(Op):
    """``atom.global`` (``returns``, yields a :class:`Token`) or ``red.global`` (does not), resolved in L2."""

    tensor: str
    tile: Tile
    access: AccessPattern
    returns: bool = False


@made_quickly
@dataclass(frozen=True, slots=True)
class Use(Op):
    """The first instruction that needs a loaded register: waits for the token."""

    token: Token


# ---------------------------------------------------------------------------------------------- cp.async


@made_quickly
@dataclass(frozen=True, slots=True)
class CpAsync(Op):
    """``cp.async.ca|cg.shared.global``: shared memory from global memory past the registers.

    ``access`` holds global sectors and the wavefronts of the write into shared memory. Belongs to the group that
    the role's next :class:`CpAsyncCommitGroup` closes. ``num_rows`` is the number of rows of the tile, each of which lies
    elsewhere in memory. ``num_between`` are integer instructions and moves of a warp for each of its copies, between
    which they stand: they make the addresses.
    ``come_along``, ``new_fraction``: as of :class:`TmaLoad`.
    ``fetches``: what rows that do not begin on a line fetch; None: whole sectors of whole lines.
    ``num_passes``: how often its rows pass their stage on the way around L1 (``fetches.num_passes``), once each at least.
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
    """``cp.async.commit_group``.

    ``is_held``: the registers that the group's addresses lie in are written anew right behind it, so that its warps wait
    until the copies have left the queue to the load/store unit.
    """

    is_held: bool = False


@dataclass(frozen=True, slots=True)
class CpAsyncWaitGroup(Op):
    """``cp.async.wait_group N``: until at most ``num_pending`` of the role's latest groups are in flight."""

    num_pending: int


@dataclass(frozen=True, slots=True)
class CpAsyncMbarrierArrive(Op):
    """``cp.async.mbarrier.arrive.noinc``: one arrival a thread, when its earlier cp.async are there."""

    barrier: str
    stage: int


# ---------------------------------------------------------------------------------------------- TMA


@dataclass(frozen=True, slots=True)
class TmaLoad(Op):
    """``cp.async.bulk.tensor...shared::cluster.global.mbarrier::complete_tx::bytes``.

    ``num_bytes`` is what arrives and counts on the mbarrier, out-of-bounds zeros included; ``num_fetched_bytes``
    what really crosses from memory. ``num_rows`` is the number of box rows that the engine walks,
    ``num_zero_rows`` those of them that lie outside of the tensor, ``num_outside_rows`` those of boxes all outside.
    ``multicast`` lists cluster ranks that receive the data (empty: this CTA alone), each on its own barrier.
    ``come_along`` are the tiles of that tensor, of as many bytes each, that L2 takes from memory together with this one
    where it does not have it: the instruction or its tensor map asks for more bytes than the tile's rows have. Where rows
    lie at unlike places in such blocks of memory, ``new_fraction`` of a tile's rows begin one, and bring it; the others have
    come along with the tile before.
    ``fetches``: as of :class:`CpAsync`.
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
    """``cp.async.bulk.tensor...global.shared::cta.bulk_group``; with ``reduce``, ``cp.reduce.async.bulk.tensor``."""

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
    """``cp.async.bulk.commit_group``."""


@dataclass(frozen=True, slots=True)
class BulkWaitGroup(Op):
    """``cp.async.bulk.wait_group[.read] N``; with ``read``, only until the source has been read."""

    num_pending: int
    read: bool = True


@dataclass(frozen=True, slots=True)
class PrefetchTensormap(Op):
    """``prefetch.tensormap``: brings the descriptors of ``tensors`` in before their first use, one instruction each."""

    tensors: tuple[str, ...]


# ---------------------------------------------------------------------------------------------- mbarriers, fences


@dataclass(frozen=True, slots=True)
class MbarrierInit(Op):
    """``mbarrier.init``, once for each stage of a ring. The counts are declared in the Launch."""

    barrier: str


@dataclass(frozen=True, slots=True)
class MbarrierArrive(Op):
    """``mbarrier.arrive``; with ``cta_rank``, ``mapa`` and a remote arrive on that CTA of the cluster."""

    barrier: str
    stage: int
    count: int = 1
    cta_rank: int | None = None


@dataclass(frozen=True, slots=True)
class MbarrierArriveExpectTx(Op):
    """``mbarrier.arrive.expect_tx``: one arrival, and ``num_bytes`` more to wait for in this phase."""

    barrier: str
    stage: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class MbarrierWait(Op):
    """``mbarrier.try_wait.parity`` in a loop: until the phase of parity ``parity`` has completed."""

    barrier: str
    stage: int
    parity: int
    by_lane: bool = False
    """One lane waits while the others of its warp stand elsewhere: it looks more seldom."""


@dataclass(frozen=True, slots=True)
class BarSync(Op):
    """``bar.sync`` (``barrier.sync``) on a named barrier that the Launch declares; waits for all its threads."""

    barrier: str


@dataclass(frozen=True, slots=True)
class BarArrive(Op):
    """``bar.arrive``: arrives on a named barrier and goes on."""

    barrier: str


@dataclass(frozen=True, slots=True)
class Syncthreads(Op):
    """``__syncthreads()``: all threads of the CTA."""


@dataclass(frozen=True, slots=True)
class ClusterArrive(Op):
    """``barrier.cluster.arrive``."""


@dataclass(frozen=True, slots=True)
class ClusterWait(Op):
    """``barrier.cluster.wait``: all threads of all CTAs of the cluster have arrived."""


@dataclass(frozen=True, slots=True)
class FenceProxyAsync(Op):
    """``fence.proxy.async.shared::cta``: generic writes become visible to TMA and wgmma."""


@dataclass(frozen=True, slots=True)
class FenceMbarrierInit(Op):
    """``fence.mbarrier_init.release.cluster``: orders, and is no instruction of its own."""


@dataclass(frozen=True, slots=True)
class FenceAcqRel(Op):
    """``fence.acq_rel`` of scope gpu or cluster, alone or as part of an arrival that releases at such a scope.

    Waits until the stores before it, to global memory and to other CTAs of the cluster, have arrived.
    """


# ---------------------------------------------------------------------------------------------- shared memory


@made_quickly
@dataclass(frozen=True, slots=True)
class SharedLoad(Op):
    """``ld.shared``. Yields a :class:`Token`; the cost is its wavefronts. ``buffer`` may be empty (scratch).

    Of ``num_parts`` alike, read one after the other, the first is waited for: the others come while that is used.
    """

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    num_parts: int = 1


@made_quickly
@dataclass(frozen=True, slots=True)
class SharedStore(Op):
    """``st.shared``. With ``has_token`` it gives a token that is ready when its registers have been read."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    has_token: bool = False


@dataclass(frozen=True, slots=True)
class SharedAtomic(Op):
    """``atom.shared`` or ``red.shared``. Yields a :class:`Token`."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Ldmatrix(Op):
    """``ldmatrix.sync.aligned``. Yields a :class:`Token`."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Stmatrix(Op):
    """``stmatrix.sync.aligned``. With ``has_token`` as :class:`SharedStore`."""

    access: AccessPattern
    buffer: str = ""
    stage: int = 0
    has_token: bool = False


@dataclass(frozen=True, slots=True)
class DsmemLoad(Op):
    """``ld.shared::cluster`` from the CTA of rank ``cta_rank``. Yields a :class:`Token`."""

    cta_rank: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class DsmemStore(Op):
    """``st.shared::cluster``."""

    cta_rank: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class StAsync(Op):
    """``st.async.shared::cluster.mbarrier::complete_tx::bytes``: a remote store that counts on a remote mbarrier."""

    cta_rank: int
    num_bytes: int
    barrier: str
    stage: int


# ---------------------------------------------------------------------------------------------- arithmetic


@dataclass(frozen=True, slots=True)
class MmaSync(Op):
    """``mma.sync``: ``num_issues`` instructions of each warp of the role, on independent accumulators."""

    atom: MmaAtom
    num_issues: int


@dataclass(frozen=True, slots=True)
class WgmmaFence(Op):
    """``wgmma.fence.sync.aligned``."""


@dataclass(frozen=True, slots=True)
class Wgmma(Op):
    """``wgmma.mma_async``: ``num_issues`` instructions of each warpgroup of the role.

    ``reads`` lists the (buffer, stage) pairs that its descriptors point into. ``num_between``: a warp's own instructions,
    each waiting for the one before, from the first of them to the last; they pass while these wait for room in the queue.
    Ignores: that wgmma behind such code may come too late to follow the one before at once.
    """

    atom: MmaAtom
    num_issues: int
    reads: tuple[tuple[str, int], ...] = ()
    num_between: float = 0.0


@dataclass(frozen=True, slots=True)
class WgmmaCommitGroup(Op):
    """``wgmma.commit_group``."""


@dataclass(frozen=True, slots=True)
class WgmmaWaitGroup(Op):
    """``wgmma.wait_group N``: until at most ``num_pending`` of the role's latest groups run."""

    num_pending: int


@dataclass(frozen=True, slots=True)
class Code(Op):
    """Where a stretch of straight-line code begins: ``num_bytes`` (16 an instruction), which may have to be fetched.

    The ops behind it say what the instructions cost; this one is only the wait for those that the SM's caches do not hold.
    A program without it runs out of the caches, as a kernel does that is launched over and over.
    """

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class LoopCode(Op):
    """A turn of a loop of ``num_fma`` FFMA, of ``bank_reads`` as :class:`Fma` has them, and ``num_others`` in a row.

    Where that is more code than a sub-core keeps, part of it comes anew each turn, and a sub-core's only warp waits for what
    of its way its own instructions do not cover.
    """

    num_fma: float
    num_others: float
    bank_reads: float = 1.0


@dataclass(frozen=True, slots=True)
class FarCode(Op):
    """Where a stretch of a kernel begins that lies ``begin_bytes`` to ``end_bytes`` behind the kernel's first instruction.

    Where caches of code were flushed (``--l2 flushed``), what lies so far that the launch does not bring it along is fetched
    out of memory when it first runs; else it costs nothing. ``own_cycles`` is what the ops behind it, which are its
    instructions, take of a warp, as far as they are told as code of its own.
    """

    name: str
    begin_bytes: int
    end_bytes: int
    own_cycles: float


@dataclass(frozen=True, slots=True)
class Fma(Op):
    """``fma.rn.f32`` and its like: ``num_instructions`` of each warp, independent enough to fill the pipe, or a chain.

    ``bank_reads``: registers that one reads of the fuller of its scheduler's two banks, on the mean. ``num_runs``: of a
    GEMM's main loop, where each run of products waits for vectors that were read for it: a CTA of several on an SM goes on
    until it stops, and copies of others by cp.async wait; 0: none do. ``by_age``, of those that
    take turns: older CTAs go first, as those do whose runs never wait for copies; an SM's are all by age, or none.
    """

    num_instructions: float
    is_chain: bool = False
    bank_reads: float = 1.0
    num_runs: int = 0
    by_age: bool = False


@dataclass(frozen=True, slots=True)
class Alu(Op):
    """Integer, logic, conversion and move work: ``num_instructions`` of each warp; in a chain each uses the one before.

    ``num_beside``: as many as a chain is worth while wgmma runs on the SM, where that is more. ``num_more``: instructions
    between those of a chain, which wait for nothing and take their turns of the scheduler.
    """

    num_instructions: float
    is_chain: bool = False
    num_beside: float = 0.0
    num_more: float = 0.0


@dataclass(frozen=True, slots=True)
class MadWide(Op):
    """``mad.wide``, ``IMAD.WIDE`` in SASS: ``num_instructions`` of each warp that multiply and add to 64 bits (addresses).

    They wait for wgmma that runs on the SM, and it for them; what stands behind them waits with them. ``is_apart``: they
    stand amid other instructions, so that the warps do not come to them at once, and each holds up wgmma on its own.
    ``sets_pace``: they are of a k-step whose warps copy what they multiply, whose pace is each SM's own where several CTAs
    share one.
    """

    num_instructions: float
    is_apart: bool = False
    sets_pace: bool = False


@dataclass(frozen=True, slots=True)
class Mufu(Op):
    """``ex2.approx``, ``rcp.approx`` and their like: ``num_instructions`` of each warp on the special-function unit."""

    num_instructions: float


@dataclass(frozen=True, slots=True)
class Shfl(Op):
    """``shfl.sync``: ``num_instructions`` of each warp; in a chain each uses what the one before has given."""

    num_instructions: float
    is_chain: bool = False
    num_warps: int | None = None
    """Of the role's warps that do it; None: all."""


@dataclass(frozen=True, slots=True)
class SetMaxNReg(Op):
    """``setmaxnreg.inc|dec.sync.aligned.u32``; ``inc`` waits until the CTA's pool has enough."""

    num_registers: int
    direction: Literal["inc", "dec"]


# ---------------------------------------------------------------------------------------------- marks


class Section(Enum):
    """A part of a kernel that a counterfactual can make free."""

    PROLOGUE = "prologue"
    MAINLOOP = "mainloop"
    EPILOGUE = "epilogue"


@dataclass(frozen=True, slots=True)
class RangeStart(Op):
    """Opens a named part of the timeline (no instruction)."""

    section: Section


@dataclass(frozen=True, slots=True)
class RangeEnd(Op):
    """Closes the part that was opened last (no instruction)."""
