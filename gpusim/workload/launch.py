"""A kernel ready to run: grid, cluster, roles, barriers, shared memory, and what it touches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError, nearest
from gpusim.units import WARP_SIZE
from gpusim.workload.ops import CacheHint, Op
from gpusim.workload.tile_work import TileWork

Feature = Literal["tma", "mbarrier", "wgmma", "cluster", "setmaxnreg", "cp_async", "mma_sync", "stmatrix", "fp8"]
"""What a GPU has or lacks; its description lists what it has (``device.features``)."""


class Target(Protocol):
    """What a host program asks of a device before it launches (``cudaGetDeviceProperties``)."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    @property
    def features(self) -> Set[Feature]:
        """Instructions and types that it has."""
        ...

    @property
    def num_sms(self) -> int:
        """Streaming multiprocessors."""
        ...

    @property
    def max_smem_per_cta_bytes(self) -> int:
        """Shared memory that one CTA may ask for."""
        ...

    def gpcs_of_clusters(self, size: int) -> Sequence[int]:
        """The GPC of each cluster of ``size`` CTAs, one CTA an SM, in the order in which a grid's first ones are placed."""
        ...


class RoleContext(Protocol):
    """What a role's program sees of the machine: who it is, and the loops that the engine owns."""

    @property
    def cta_idx(self) -> int:
        """Linear index of the CTA in the grid."""
        ...

    @property
    def num_ctas(self) -> int:
        """Number of CTAs in the grid."""
        ...

    @property
    def cta_rank(self) -> int:
        """Rank of the CTA in its cluster."""
        ...

    def loop(self, num_iterations: int) -> Iterator[int]:
        """``range(num_iterations)`` that the engine may move ahead, by multiples of twice the stages."""
        ...

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        """Work tiles of a persistent CTA as (turn, tile): turn ``first``, ``first + step``, ...

        Turn t of CTA c is tile ``c + t * num_ctas``; ends at ``num_tiles``. The engine may skip turns.
        """
        ...


Program = Callable[[RoleContext], Iterator[Op] | Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A ring of ``num_stages`` slots of ``stage_bytes`` in shared memory."""

    name: str
    stage_bytes: int
    num_stages: int = 1
    is_overlay: bool = False
    """Lies over the other buffers, which are drained by then, and takes no room of its own."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all stages; none for an overlay."""
        return 0 if self.is_overlay else self.stage_bytes * self.num_stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Mbarrier:
    """A ring of ``num_stages`` mbarriers, each expecting ``num_arrivals`` arrivals a phase (8 bytes each)."""

    name: str
    num_arrivals: int
    num_stages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBarrier:
    """One of the CTA's 16 hardware barriers, for ``num_threads`` threads."""

    name: str
    num_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpRole:
    """``num_warps`` warps that run ``program`` in lockstep."""

    name: str
    num_warps: int
    program: Program

    @property
    def num_threads(self) -> int:
        """Threads of the role."""
        return self.num_warps * WARP_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the work tiles of a launch touch of one tensor, without running them.

    ``panel_of`` maps work-tile indices (int64[n]) to the panel that each walks (int64[n]); a walk has
    ``num_steps`` slices of ``step_bytes`` (bytes of a full slice; ``panel_bytes`` gives int64[n] bytes of the
    panels themselves, edges cut).
    """

    tensor: str
    access: Literal["read", "write"]
    panel_of: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    panel_bytes: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    num_steps: int = 1
    num_passes: int = 1
    """How often a tile walks its panel from end to end (a softmax reads its row again). Later walks name the same slices:
    where L1 has lost them they find in L2 what the tiles that run at once have left of them."""
    cache_hint: CacheHint = "evict_normal"
    """Of all accesses to it. A window of addresses that persist does as ``evict_last``."""
    table_bytes: int = 0
    """Of a table out of which each tile reads rows at random (a gather): then ``panel_bytes`` says what a tile reads, no two
    tiles have a panel together, and rows that others have read lately are found in L2. 0: panels are what they are."""
    block_bytes: Callable[[NDArray[np.int64], int], NDArray[np.int64]] | None = None
    """Where a tile reads single sectors: (tiles, bytes of a block) to the bytes of all aligned blocks of that size that it
    touches, for memory may give no less. None: what it reads fills its blocks."""
    piece_bytes: int = 0
    """Where a tile touches pieces of memory that lie apart, and the tile after it does not go on where they end: how many
    bytes lie side by side. 0: tile after tile, one byte after the other."""
    unasked: Callable[[int], float] | None = None
    """Of what L2 lacks of it, the part that comes with what was asked for, where L2 takes blocks of so many bytes at least:
    it is missed, but in no hit rate. None: all is asked for, or ``block_bytes`` says it."""
    piece_stride_bytes: int = 0
    """Bytes from where such a piece begins to where the next one does, where all are as far apart. 0: they lie anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A kernel as it is launched.

    ``num_ctas`` None means a persistent grid: as many CTAs as fit on the device at once (at most ``num_tiles``).
    ``num_tiles`` counts the work tiles (for an ordinary grid, its CTAs).
    """

    kernel: str
    num_ctas: int | None
    num_tiles: int
    roles: tuple[WarpRole, ...]
    buffers: tuple[Buffer, ...] = ()
    mbarriers: tuple[Mbarrier, ...] = ()
    named_barriers: tuple[NamedBarrier, ...] = ()
    cluster_size: int = 1
    registers_per_thread: int = 32
    registers_source: str = ""
    extra_smem_bytes: int = 0
    features: frozenset[Feature] = frozenset()
    footprints: tuple[Footprint, ...] = ()
    num_flops: int = 0
    math_class: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    has_own_slots: bool = False
    """Whether programs count their way round the rings themselves, and take no slot or parity from a loop's index: then
    any number of a loop's iterations can be skipped, else multiples of :attr:`parity_period`."""
    set_aside_bytes: int = 0
    """Of L2, for what is hinted evict_last or lies in a window that persists (``cudaLimitPersistingL2CacheSize``); 0: what
    the device gives by itself."""
    tensor_maps: tuple[str, ...] = ()
    """Tensors whose TMA descriptors each SM fetches at their first use; copies of others find them there."""
    following: tuple[Launch, ...] = ()
    """Kernels that the same call launches afterwards (split-K's reduction)."""
    has_uniform_programs: bool = False
    """Whether a CTA's programs follow from its rank in the cluster and from the bytes of its tiles, footprint by footprint.

    Those of CTAs that are alike in these differ in nothing but the panels that they name. A panel is a footprint's, the
    CTA's index, or the same for all. Then a few CTAs are traced and compared, else all are.
    """
    work: TileWork | None = None
    """What its CTAs do for a tile at least; None: not told."""

    @property
    def num_threads(self) -> int:
        """Threads of one CTA."""
        return sum(role.num_threads for role in self.roles)

    @property
    def num_warps(self) -> int:
        """Warps of one CTA."""
        return sum(role.num_warps for role in self.roles)

    @property
    def smem_bytes(self) -> int:
        """Shared memory of one CTA: buffers, 8 bytes a mbarrier, and ``extra_smem_bytes``."""
        barriers = sum(8 * ring.num_stages for ring in self.mbarriers)
        return sum(buffer.num_bytes for buffer in self.buffers) + barriers + self.extra_smem_bytes

    @property
    def parity_period(self) -> int:
        """Iterations after which every ring is back at the same stage and parity: twice the stages' multiple."""
        rings = [ring.num_stages for ring in self.mbarriers] + [ring.num_stages for ring in self.buffers]
        return 2 * int(np.lcm.reduce(rings)) if rings else 2

    def __post_init__(self) -> None:
        """Refuse what no device could run."""
        if not self.roles:
            raise LaunchError(f"{self.kernel}: a launch needs at least one role, found none")
        if self.num_ctas is not None and self.num_ctas < 1:
            raise LaunchError(f"{self.kernel}: the grid has {self.num_ctas} CTAs, wants 1 or more")
        if self.set_aside_bytes < 0:
            raise LaunchError(f"{self.kernel}: {self.set_aside_bytes} bytes of L2 are set aside, wants 0 or more")
        for item in self.footprints:
            if item.cache_hint not in get_args(CacheHint):
                raise LaunchError(
                    f"{self.kernel}: {item.tensor} has the cache hint {item.cache_hint!r}; "
                    f"{nearest(item.cache_hint, get_args(CacheHint))}"
                )
        for kind, names in (
            ("role", [role.name for role in self.roles]),
            ("buffer", [buffer.name for buffer in self.buffers]),
            ("barrier", [ring.name for ring in self.mbarriers] + [barrier.name for barrier in self.named_barriers]),
        ):
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise LaunchError(f"{self.kernel}: two {kind}s are named {sorted(twice)[0]!r}, wants distinct names")
        if len(self.named_barriers) > 15:
            raise LaunchError(
                f"{self.kernel}: {len(self.named_barriers)} named barriers, a CTA has 15 beside __syncthreads"
            )
