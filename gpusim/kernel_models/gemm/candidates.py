"""Configurations that a GEMM library has for a problem: CUTLASS's and cuBLAS's tiles, schedules, clusters and orders.

In: options of a GEMM, of which some may be open, and a GPU. Out: options with a value for each property that decides its
time. Given options keep their values. Knows no time: :mod:`gpusim.analysis.choose` ranks the configurations.

Models:

* wgmma: a producer warp by TMA, one consumer, two that share a tile, or two that alternate; D by TMA store
* mma.sync: multistage by cp.async, D through shared memory; where rows of A and B are not aligned to 16 bytes, too
* FFMA: multistage by cp.async, D from registers
* split-K where tiles leave SMs empty, with a second kernel or in the kernel
* swapped operands where M is smaller than the rows of a wgmma's tile

Ignores:

* Stream-K, and clusters of more than four CTAs

Source: tiles in the names of cuBLAS's kernels (:mod:`gpusim.evidence.toolchain.cublas_names`); raster order and swizzle size
of CUTLASS's persistent tile scheduler (``get_rasterization_order``, ``get_log_swizzle_size``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

from gpusim.errors import GpusimError, KernelError
from gpusim.kernel_models.gemm.compatibility import MOST_LDG_STAGES
from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.resolve import in_kernel_order, resolve, usual_copy, usual_math
from gpusim.kernel_models.gemm.smem_budget import most_stages
from gpusim.kernel_models.streaming import ceil_div
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES
from gpusim.workload.launch import Target

STATED = ("tile", "stages", "schedule", "cluster", "persistent", "epilogue")
"""Options that a library always chooses. Nothing else is chosen if all of them are given."""

DECIDING = (*STATED, "warps", "alignment", "raster", "swizzle_size", "split_k", "split_k_mode", "swap_operands")
"""Options that a library chooses by the shape."""

WIDTHS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
"""Columns of wgmma tiles; any multiple of 8 up to 256 is one."""

WGMMA_ROWS, LEAST_COLUMNS = 64, 8
MOST_AREA, AREA_OF_WARPGROUP = 320 * 128, 64 * 256
"""Elements of the largest tile, and of the largest tile of one warpgroup: 128 accumulators a thread."""

OF_MMA_SYNC = ((16, 64), (32, 64), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (64, 256), (256, 64))
OF_FMA = ((32, 64), (64, 64), (64, 128), (128, 64), (128, 128), (64, 256))
"""Rows and columns of tiles without wgmma."""
LIBRARY_COPY_BYTES = 4
"""Bytes of a copy of rows that are not aligned to 16 bytes: cuBLAS's kernels for them are named ``align2``."""
FMA_DEPTH, FMA_STAGES, FMA_WARP = 8, 3, 64
"""K of a tile, stages, and rows and columns of a warp's largest part, in the names of cuBLAS's kernels of FFMA."""

MOST_RING = 16
"""Most stages of a library's ring."""
FEW_STAGES = 5
"""Most stages by cp.async: its latency is hidden by then."""
LEAST_STEPS = 4
"""Least k-steps of a part of K."""
SWIZZLE_SIZES = (1, 4, 8)
MOST_SWIZZLE = SWIZZLE_SIZES[-1]
CLUSTERS = ((1, 1), (2, 1), (1, 2))
SHORT_LOOP = 4
"""Most k-steps of a loop in which CTAs of a cluster wait for each other longer than multicast saves."""
SWAP_ROWS = 192
"""Rows of D up to which swapped operands are considered."""


class Space:
    """Configurations for one problem on one GPU. An option that was given has that value alone."""

    def __init__(self, options: GemmOptions, gpu: Target) -> None:
        """Decide on instructions; every other choice is made by :meth:`bases` and :meth:`variants`."""
        self.options, self.gpu = options, gpu
        self.given = stated(options)
        self.math = options.math or usual_math(options, gpu)
        copy = usual_copy(options, self.math, gpu)
        self.copy = options.copy_ or ("cp_async" if copy == "tma" and options.schedule == "multistage" else copy)
        self.is_specialized = self.math == "wgmma" and self.copy == "tma" and options.schedule != "multistage"

    def values(self, name: str, usual: Sequence[Any]) -> Sequence[Any]:
        """The given value of an option, or the ``usual`` ones."""
        value = getattr(self.options, name)
        return (value,) if name in self.given and value is not None else usual

    # -------------------------------------------------------------------------------------- tiles
    def bases(self) -> Iterator[GemmOptions]:
        """A configuration for each tile, schedule and number of parts of K, with the usual rest."""
        for swap in self.values("swap_operands", (False, True) if self._may_swap else (False,)):
            extents = (self.options.n, self.options.m) if swap else (self.options.m, self.options.n)
            for tile in self.values("tile", list(self.tiles(*extents))):
                tiles = prod(map(ceil_div, extents, tile[:2])) * self.options.batch
                for schedule in self.values("schedule", self.schedules(tile, tiles)):
                    for split_k in self.values("split_k", self.splits(tiles, tile[2], schedule)):
                        yield self._usual(tile, extents, swap_operands=swap, schedule=schedule, split_k=split_k)

    @property
    def _reads_pointers(self) -> bool:
        """Whether CTAs make tensor maps for addresses that they read."""
        return self.options.batch_mode == "array" and self.copy == "tma"

    @property
    def _may_swap(self) -> bool:
        options = self.options
        return self.is_specialized and options.m <= SWAP_ROWS and options.m < options.n and not options.bias

    def tiles(self, m: int, n: int) -> Iterator[tuple[int, int, int]]:
        """Tiles that are at most half outside of D along either dimension."""
        num_bytes = self.options.element.num_bytes
        if self.math != "wgmma":
            extents = OF_FMA if self.math == "fma" else OF_MMA_SYNC
            depths = (FMA_DEPTH,) if self.math == "fma" else (64 // num_bytes, 128 // num_bytes)
            least = min(rows * columns for rows, columns in extents)
            for (rows, columns), depth in product(extents, depths):
                is_inside = (rows < 2 * m or rows == extents[0][0]) and (columns < 2 * n or columns == 64)
                if is_inside or rows * columns == least:
                    yield rows, columns, depth
            return
        narrow = ceil_div(n, LEAST_COLUMNS) * LEAST_COLUMNS
        widths = sorted({*(width for width in WIDTHS if width < narrow), min(narrow, WIDTHS[-1])})
        for rows, columns in product((64, 128, 192, 256, 320), widths):
            is_tall = rows > 128 and not (96 <= columns <= 192)
            if rows * columns <= MOST_AREA and not is_tall and (rows == WGMMA_ROWS or rows < 2 * m):
                yield rows, columns, 128 // num_bytes

    def schedules(self, tile: tuple[int, int, int], tiles: int) -> Sequence[str]:
        """The schedule that a library has with a tile, of ``tiles`` in all."""
        if not self.is_specialized:
            return ("multistage",)
        area = tile[0] * tile[1]
        takes_turns = tiles > self.gpu.num_sms and not self._reads_pointers
        alone = ("pingpong",) if takes_turns else ("warp_specialized",)
        is_small = area < AREA_OF_WARPGROUP or (area == AREA_OF_WARPGROUP and tile[0] == WGMMA_ROWS)
        return alone if is_small else ("cooperative",)

    def splits(self, tiles: int, depth: int, schedule: str) -> Sequence[int]:
        """Parts of K: as many as give each SM one, and half of them."""
        most = min(self.gpu.num_sms // max(tiles, 1), ceil_div(self.options.k, depth) // LEAST_STEPS, 64)
        if most < 2 or ("schedule" in self.given and schedule == "pingpong") or self.options.persistent:
            return (1,)
        return sorted({1, most, max(2, most // 2)})

    # -------------------------------------------------------------------------------------- the rest
    def _usual(self, tile: tuple[int, int, int], extents: tuple[int, int], **chosen: Any) -> GemmOptions:
        """The configuration that a library has for a tile: cluster, order of tiles, epilogue, persistence."""
        nums = ceil_div(extents[0], tile[0]), ceil_div(extents[1], tile[1])
        split, schedule = chosen["split_k"], chosen["schedule"]
        if split > 1 and schedule == "pingpong":
            chosen["schedule"] = schedule = "warp_specialized"
        num_tiles = prod(nums) * self.options.batch
        if self.math == "fma":
            chosen["stages"] = FMA_STAGES
            warps = tile[0] // FMA_WARP, tile[1] // FMA_WARP
            chosen |= {"warps": warps} if prod(warps) >= 4 else {}
        if self.copy == "cp_async" and LIBRARY_COPY_BYTES < self.options.copy_bytes < CHUNK_BYTES:
            chosen["alignment"] = LIBRARY_COPY_BYTES // self.options.element.num_bytes
        rest = {
            "tile": tile, "math": self.math, "copy_": self.copy,
            **({"tensormaps": "device"} if self._reads_pointers else {}),
            "cluster": self._clusters(tile, nums)[0], "raster": "along_m" if nums[1] > nums[0] else "along_n",
            "swizzle_size": swizzle_size(min(nums)), "epilogue": self._epilogue(split),
            "persistent": self.is_specialized and split == 1 and not self._reads_pointers
            and (num_tiles > self.gpu.num_sms or schedule == "pingpong"),
        }
        return self.with_values(self.options, **chosen, **rest, split_k_mode="second_kernel" if split > 1 else "in_kernel")

    def with_values(self, options: GemmOptions, **values: Any) -> GemmOptions:
        """``options`` with ``values``, except where options were given."""
        return options.model_copy(update={name: value for name, value in values.items() if name not in self.given})

    def _epilogue(self, split: int) -> str:
        if split > 1 or self.math == "fma":
            return "direct"
        if not self.is_specialized:
            return "smem"
        return "tma_store" if self.options.store_bytes == CHUNK_BYTES else "direct"

    def _clusters(self, tile: tuple[int, int, int], nums: tuple[int, int]) -> list[tuple[int, int]]:
        """Clusters, the usual one first: two CTAs that share the longer dimension of their tiles, unless loops are short."""
        if not self.is_specialized or "cluster" not in self.gpu.features:
            return [(1, 1)]
        pairs = [(2, 1), (1, 2)] if tile[1] >= tile[0] else [(1, 2), (2, 1)]
        shared = [pair for pair in pairs if nums[pair[0] == 1] > 1]
        is_short = ceil_div(self.options.k, tile[2]) <= SHORT_LOOP
        return [(1, 1), *shared] if is_short else [*shared, (1, 1)]

    def variants(self, base: GemmOptions, *, has_all_epilogues: bool = False) -> Iterator[GemmOptions]:
        """Configurations that differ from ``base`` in one choice other than its tile and its parts of K.

        A library stores D by TMA where it can. ``has_all_epilogues`` adds the other ways.
        """
        inner = in_kernel_order(base)
        assert base.tile is not None  # bases have tiles
        nums = ceil_div(inner.m, base.tile[0]), ceil_div(inner.n, base.tile[1])
        area = base.tile[0] * base.tile[1]
        changes: list[tuple[str, Sequence[Any]]] = [("cluster", self._clusters(base.tile, nums))]
        if self.is_specialized and base.split_k == 1 and area <= AREA_OF_WARPGROUP:
            changes.append(("schedule", ("cooperative", "pingpong", "warp_specialized")))
        if self.is_specialized and base.split_k == 1 and base.schedule != "pingpong":
            changes.append(("persistent", (False, True)))
        if has_all_epilogues and base.split_k == 1:
            by_tma = self.is_specialized and self.options.store_bytes == CHUNK_BYTES
            changes.append(("epilogue", ("direct", "smem", *(("tma_store",) if by_tma else ()))))
        if base.split_k > 1:
            changes.append(("split_k_mode", ("second_kernel", "in_kernel")))
        for name, values in changes:
            for value in self.values(name, values):
                if value != getattr(base, name):
                    forced = {"persistent": True} if value == "pingpong" else {}
                    yield self.with_values(base, **{name: value}, **forced)

    def orders(self, base: GemmOptions) -> Iterator[GemmOptions]:
        """``base`` with other orders of tiles."""
        for raster, size in product(self.values("raster", ("along_m", "along_n")), SWIZZLE_SIZES):
            for swizzle in self.values("swizzle_size", (size,)):
                if (raster, swizzle) != (base.raster, base.swizzle_size):
                    yield self.with_values(base, raster=raster, swizzle_size=swizzle)

    # -------------------------------------------------------------------------------------- configs
    def built(self, options: GemmOptions) -> tuple[GemmOptions, GemmConfig] | None:
        """Options with as many stages as a library has, and their config; None for a kernel that cannot be built.

        Tiles that a cluster cannot share have none.
        """
        try:
            return self._built(options)
        except GpusimError:
            if options.num_cluster_ctas == 1 or "cluster" in self.given:
                return None
        return self.built(options.model_copy(update={"cluster": (1, 1)}))

    def _built(self, options: GemmOptions) -> tuple[GemmOptions, GemmConfig]:
        """Implement :meth:`built`; an impossible kernel is refused."""
        config = resolve(options, self.gpu)
        sharing = config.mainloop.num_sharing(0), config.mainloop.num_sharing(1)
        if sharing[::-1] != config.cluster and "cluster" not in self.given:
            raise KernelError("a cluster that shares nothing")
        if "stages" in self.given:
            return options, config
        limit = {"tma": MOST_RING, "ldg": MOST_LDG_STAGES}.get(self.copy, FEW_STAGES)
        most = min(most_stages(config, self.gpu), limit)
        if not config.persistent:  # a ring is no longer than the loop, so that an SM may hold more CTAs
            most = min(most, max(2, ceil_div(ceil_div(config.k, config.tile[2]), config.split_k)))
        if self.math == "fma" or most == config.stages:
            return options.model_copy(update={"stages": config.stages}), config
        options = options.model_copy(update={"stages": most})
        return options, resolve(options, self.gpu)

    def __iter__(self) -> Iterator[GemmOptions]:
        """All configurations that can be built, without repetition: bases, their variants and their orders of tiles."""
        seen: set[GemmOptions] = set()
        for base in self.bases():
            for candidate in (base, *self.variants(base, has_all_epilogues=True), *self.orders(base)):
                made = self.built(candidate)
                if made is not None and made[0] not in seen:
                    seen.add(made[0])
                    yield made[0]


def swizzle_size(fewest: int) -> int:
    """CUTLASS's swizzle size, by the smaller number of tiles along M or N.

    >>> [swizzle_size(tiles) for tiles in (1, 2, 3, 6)]
    [1, 2, 4, 8]
    """
    return next((width for least, width in ((6, MOST_SWIZZLE), (3, 4), (2, 2)) if fewest >= least), 1)


def is_decided(options: GemmOptions) -> bool:
    """Whether options leave nothing to choose."""
    return stated(options).issuperset(STATED)


def stated(options: GemmOptions) -> set[str]:
    """Options that were given a value; None leaves an option to be chosen.

    >>> stated(GemmOptions(m=1, n=1, k=1, tile=None, stages=2)) - {"m", "n", "k"}
    {'stages'}
    """
    return {name for name in options.model_fields_set if getattr(options, name) is not None}


def configurations(options: GemmOptions, gpu: Target) -> Iterator[GemmOptions]:
    """All configurations of a library for ``options``."""
    return iter(Space(options, gpu))


def usual(options: GemmOptions, gpu: Target) -> GemmOptions:
    """``options`` with a library's usual rest for their tile; unchanged if it cannot be built, or no tile is given."""
    if options.tile is None or is_decided(options):
        return options
    space = Space(options, gpu)
    return next((built[0] for base in space.bases() if (built := space.built(base)) is not None), options)
