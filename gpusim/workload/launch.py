"""A kernel launch as data: grid, cluster, warp roles, barriers, shared memory, and the tensors that it accesses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LaunchError, nearest
from gpusim.units import WARP_SIZE
from gpusim.workload.finding import Finding
from gpusim.workload.launch_check import check_launch
from gpusim.workload.ops import Alu, CacheHint, ImadWide, Op
from gpusim.workload.tensor import MemRef
from gpusim.workload.tile_work import TileWork

Feature = Literal["tma", "mbarrier", "wgmma", "cluster", "setmaxnreg", "cp_async", "mma_sync", "stmatrix", "fp8"]
"""Capability of a GPU that a kernel may need. A device's TOML file lists those that it has (``device.features``)."""


class Target(Protocol):
    """Device properties that a host program queries before a launch (``cudaGetDeviceProperties``)."""

    @property
    def name(self) -> str:
        """Name in error messages."""
        ...

    @property
    def features(self) -> Set[Feature]:
        """Instructions and data types that the device supports."""
        ...

    @property
    def num_sms(self) -> int:
        """Number of streaming multiprocessors."""
        ...

    @property
    def max_smem_per_cta_bytes(self) -> int:
        """Maximum shared memory of one CTA, in bytes."""
        ...

    def gpcs_of_clusters(self, size: int) -> Sequence[int]:
        """GPC of each cluster of ``size`` CTAs, one CTA an SM, in the order in which a grid's first clusters are placed."""
        ...


class RoleContext(Protocol):
    """The view that a role's program has of the machine: built-in indices, and the loops that the engine controls."""

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
        """Iterate like ``range(num_iterations)``.

        Integers from 0 on. The engine runs every iteration.
        """
        ...

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        """Iterate over the work tiles of a persistent CTA as pairs (turn, tile): turn ``first``, ``first + step``, ...

        CTA c processes tile ``c + t * num_ctas`` in turn t, as long as that is below ``num_tiles``. The engine runs
        every turn.
        """
        ...


Program = Callable[[RoleContext], Iterator[Op] | Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A ring of ``num_stages`` stages in shared memory, each of ``stage_bytes`` bytes."""

    name: str
    stage_bytes: int
    num_stages: int = 1
    is_overlay: bool = False
    """Whether the buffer reuses the memory of the other buffers, which are no longer in use. Then it takes no space."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all stages; 0 for an overlay."""
        return 0 if self.is_overlay else self.stage_bytes * self.num_stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Mbarrier:
    """A ring of ``num_stages`` mbarriers of 8 bytes. A phase of each completes after ``num_arrivals`` arrivals."""

    name: str
    num_arrivals: int
    num_stages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBarrier:
    """One of the CTA's 16 hardware barriers (``bar.sync``), for ``num_threads`` threads."""

    name: str
    num_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpRole:
    """``num_warps`` warps of a CTA that run ``program`` in lockstep."""

    name: str
    num_warps: int
    program: Program
    num_exiting_warps: int = 0
    """Warps of these that exit at once, as three of a producer warpgroup whose elected thread copies by TMA. They count as
    threads of the CTA, and not as active warps."""
    num_idle_warps: int = 0
    """Further warps that do nothing for as long, as a consumer warpgroup without a tile. They count, and cost nothing."""

    @property
    def num_threads(self) -> int:
        """Number of threads of the role."""
        return self.num_warps * WARP_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Addresses of one tensor that the work tiles of a launch access, known without running their programs.

    * ``panel_of``: maps work-tile indices, int64[n], to the panel that each tile walks through, int64[n].
    * ``panel_bytes``: maps work-tile indices, int64[n], to the bytes of these panels, int64[n], cut at the tensor's edges.
    * ``num_steps``: slices of a panel that a walk visits, one after the other.
    """

    tensor: str
    access: Literal["read", "write"]
    panel_of: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    panel_bytes: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    num_steps: int = 1
    num_passes: int = 1
    """Number of times that a tile walks through its panel: a softmax reads its row more than once. Later walks name the
    same slices. If L1 no longer holds them, they hit in L2 as far as other tiles have not evicted them meanwhile.
    Cache hints have no effect in such a launch, and rows of a table come from memory."""
    is_in_place: bool = False
    """Whether a tile writes over lines that it has read under another tensor's name. They take no more space in L2."""
    cache_hint: CacheHint = "evict_normal"
    """L2 eviction priority of all accesses to the tensor. A persisting access-policy window acts like ``evict_last``."""
    table_bytes: int = 0
    """Bytes of a table from which each tile reads random rows (a gather); 0: no table. For a table, ``panel_bytes`` gives
    the bytes that a tile reads, and no two tiles share a panel. Rows that other tiles have read recently hit in L2."""
    block_bytes: Callable[[NDArray[np.int64], int], NDArray[np.int64]] | None = None
    """Function for tiles that read single sectors. It maps (tiles, block size in bytes) to the bytes of all aligned
    blocks that each tile touches. Memory may deliver no less than a block. None: the tile's reads fill their blocks."""
    piece_bytes: int = 0
    """Bytes of a contiguous piece, if a tile accesses pieces that are not adjacent and the next tile does not continue them.
    0: consecutive tiles access contiguous bytes."""
    unasked: Callable[[int], float] | None = None
    """Function of L2's minimum fetch size in bytes: the fraction of the missed bytes that no request asked for. Such
    bytes miss but are in no hit rate. None: all bytes are requested, or ``block_bytes`` describes them."""
    piece_stride_bytes: int = 0
    """Bytes from the begin of one piece of ``piece_bytes`` to the begin of the next, if constant; 0: pieces lie anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A kernel launch: the kernel, its grid and its resources.

    * ``num_ctas``: CTAs of the grid. None: a persistent grid, with as many CTAs as fit on the device, at most ``num_tiles``.
    * ``num_tiles``: work tiles of the launch; for an ordinary grid, its CTAs.
    * ``num_flops``: floating-point operations of the launch.
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
    set_aside_bytes: int = 0
    """Bytes of L2 for persisting accesses: ``evict_last`` hints and persisting windows (``cudaLimitPersistingL2CacheSize``).
    0: the device's default."""
    tensor_maps: tuple[str, ...] = ()
    """Tensors whose TMA descriptors each SM fetches at the first use. Copies of other tensors find their descriptors
    cached."""
    following: tuple[Launch, ...] = ()
    """Kernels that the same call launches afterwards, for example split-K's reduction."""
    has_uniform_programs: bool = False
    """Whether a CTA's programs depend only on its cluster rank and on the bytes of its tiles, footprint by footprint.

    CTAs that agree in these have programs that differ only in the panels that they name. A panel is a footprint's panel, the
    CTA's index, or the same for all CTAs. If True, a few CTAs are traced and compared; if False, all are traced."""
    work: TileWork | None = None
    """Minimum work of a CTA for one tile; None: unknown."""
    tensors: tuple[MemRef, ...] | Callable[[], tuple[MemRef, ...]] = ()
    """Tensors that functional runs access, or a function that returns them. Timing runs ignore them."""

    @property
    def has_planned_traffic(self) -> bool:
        """Whether L2 hits follow from the order of tiles. Otherwise they are found during the run, from the lines used last.

        A plan has all tiles of a wave in step. It says nothing about several walks over a panel, whose distance in time
        decides.
        """
        return bool(self.footprints) and all(item.num_passes == 1 for item in self.footprints)

    @property
    def num_threads(self) -> int:
        """Number of threads of one CTA."""
        return sum(role.num_threads for role in self.roles)

    @property
    def num_warps(self) -> int:
        """Number of warps of one CTA."""
        return sum(role.num_warps for role in self.roles)

    @property
    def smem_bytes(self) -> int:
        """Shared memory of one CTA in bytes: buffers, 8 bytes a mbarrier, and ``extra_smem_bytes``."""
        barriers = sum(8 * ring.num_stages for ring in self.mbarriers)
        return sum(buffer.num_bytes for buffer in self.buffers) + barriers + self.extra_smem_bytes

    @property
    def parity_period(self) -> int:
        """Iterations after which all rings are at the same stage and parity again: twice the LCM of all stage counts."""
        rings = [ring.num_stages for ring in self.mbarriers] + [ring.num_stages for ring in self.buffers]
        return 2 * int(np.lcm.reduce(rings)) if rings else 2

    def check(self, target: Target) -> list[Finding]:
        """What is wrong with the order of accesses to shared memory, whatever the timing. Nothing is simulated.

        Empty for a launch in which barriers order all accesses. :mod:`gpusim.program.order` says what is found.

        Args:
            target: the GPU, from :func:`gpusim.load_gpu`. It decides how many CTAs a persistent grid has.

        Raises:
            LaunchError: the GPU cannot run the launch, or an op is refused.
        """
        found: list[Finding] = import_module("gpusim.simulate.order_check").check_launch(self, target)
        return found  # packages that trace and plan come after this one

    def __post_init__(self) -> None:
        """Refuse a launch that no device can run.

        Raises:
            LaunchError: no role, an empty grid, a number out of range, an unknown cache hint, a program that is no function.
                Also a name that occurs twice, or more than 15 named barriers.
        """
        if not self.roles:
            raise LaunchError(f"{self.kernel}: a launch needs at least one role, found none")
        check_launch(self)
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
        if len(self.named_barriers) > 15:
            num = len(self.named_barriers)
            raise LaunchError(f"{self.kernel}: {num} named barriers, a CTA has 15 besides __syncthreads")


def launch_in_core(launch: Launch) -> Launch:
    """``launch`` without IMAD.WIDE and without code that is slower during wgmma, which are beyond the model's core."""
    roles = tuple(replace(role, program=partial(_in_core, role.program)) for role in launch.roles)
    return replace(launch, roles=roles, following=tuple(map(launch_in_core, launch.following)))


def _in_core(program: Program, cta: RoleContext) -> Iterator[Op]:
    steps, answer = program(cta), None
    while True:
        try:
            op = steps.send(answer) if isinstance(steps, Generator) else next(steps)
        except StopIteration:
            return
        answer = None
        if isinstance(op, Alu) and op.num_beside:
            op = replace(op, num_beside=0.0)
        if not isinstance(op, ImadWide):
            answer = yield op
