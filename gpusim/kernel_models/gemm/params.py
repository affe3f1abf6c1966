"""The parameters of a GEMM kernel: every option of the command line, each checked by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gpusim.errors import LayoutError
from gpusim.kernel_models.options import KernelParams
from gpusim.layout.notation import parse_swizzle
from gpusim.layout.swizzle import SWIZZLE_MODES
from gpusim.workload.dtypes import DType, dtype
from gpusim.workload.launch import Launch, Target

MAX_EXTENT = 1 << 24
"""Largest m, n or k: beyond it a matrix has no room on any GPU that is described."""

MAX_STAGES = 64
MAX_TILE = 1024
MAX_WARPS = 32
MAX_CLUSTER, PORTABLE_CLUSTER = 16, 8
MAX_PAD = 128


def _numbers(count: int, most: int) -> Any:
    """Accepts ``count`` numbers from 1 to ``most``, joined by x or as a tuple."""
    example = "128x256x64" if count == 3 else "2x1"
    wanted = f"wants {count} numbers from 1 to {most} joined by x, such as {example}"

    def parse(value: Any) -> Any:
        if isinstance(value, list | tuple):
            text = "x".join(str(part) for part in value)
        elif isinstance(value, str):
            text = value
        else:
            return value
        parts = text.lower().split("x")
        is_right = len(parts) == count and all(part.isascii() and part.isdigit() for part in parts)
        if not is_right or not all(1 <= int(part) <= most for part in parts):
            raise ValueError(f"is {text!r}, {wanted}")
        return tuple(int(part) for part in parts)

    return BeforeValidator(parse)


def _registers(value: Any) -> Any:
    if isinstance(value, str) and value not in ("none", "auto"):
        parts = value.split("/")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"is {value!r}, wants producer/consumer such as 40/232, none or auto")
        if any(not 24 <= int(part) <= 256 or int(part) % 8 for part in parts):
            raise ValueError(f"is {value!r}, wants multiples of 8 from 24 to 256, such as 40/232")
    return value


def _table(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    if isinstance(value, str) and value not in ("none", "gpc"):
        parts = value.split(",")
        if not all(part.isascii() and part.isdigit() for part in parts) or sorted(map(int, parts)) != [*range(len(parts))]:
            raise ValueError(f"is {value!r}, wants every place from 0 on once, such as 0,2,1,3, or gpc, or none")
    return value


def _swizzle(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = ",".join(str(part) for part in value)
    if isinstance(value, str) and value not in SWIZZLE_MODES:
        value = value.replace(" ", "")
        try:
            parse_swizzle(value, 8)
        except LayoutError as error:
            raise ValueError(str(error)) from None
    return value


Tile = Annotated[tuple[int, int, int], _numbers(3, MAX_TILE)]
Warps = Annotated[tuple[int, int], _numbers(2, MAX_WARPS)]
Cluster = Annotated[tuple[int, int], _numbers(2, MAX_CLUSTER)]
Extent = Annotated[int, Field(ge=1, le=MAX_EXTENT)]
Scalar = Annotated[float, Field(allow_inf_nan=False)]
Slices = Annotated[float, Field(ge=0.0, le=64.0)]
Instructions = Annotated[float, Field(ge=0, le=1 << 20, allow_inf_nan=False)]
CodePlace = Annotated[int, Field(ge=0, le=1 << 20)]


class GemmParams(KernelParams):
    """D = activation(alpha A B + beta C + bias), m x n x k. None: chosen for the GPU by :meth:`resolved`.

    Matrices whose rows are no multiple of 16 bytes are taken as padded to it, as TMA and cp.async want.
    """

    m: Extent = Field(description="rows of A and D")
    n: Extent = Field(description="columns of B and D")
    k: Extent = Field(description="columns of A, rows of B")
    batch: Annotated[int, Field(ge=1, le=1 << 16)] = Field(1, description="independent products of this size")
    dtype: Literal["bf16", "fp16", "tf32", "fp8", "int8", "fp32"] = Field(
        "bf16", description="type of A and B"
    )
    out_dtype: Literal["bf16", "fp16", "fp32", "int8", "int32", "fp8"] | None = Field(
        None, description="type of C and D; by default the input's 16-bit type (bf16 for fp8, fp32 for tf32 "
        "and fp32, int32 for int8)"
    )
    layout: Literal["nn", "nt", "tn", "tt"] = Field(
        "tn", description="BLAS letters of A and B: tn has both K-contiguous, tt both row-major; D is "
        "row-major"
    )
    tile: Tile | None = Field(None, description="CTA tile MxNxK")
    stages: Annotated[int, Field(ge=1, le=MAX_STAGES)] | None = Field(
        None, description="slots of the ring in shared memory"
    )
    copy_: Literal["cp_async", "tma"] | None = Field(
        None, alias="copy", description="how operands reach shared memory"
    )
    math: Literal["mma_sync", "wgmma", "fma"] | None = Field(None, description="which instructions multiply")
    schedule: Literal["multistage", "warp_specialized", "cooperative", "pingpong"] | None = Field(
        None, description="who loads and who computes"
    )
    warps: Warps | None = Field(None, description="math warps along MxN (mma_sync and fma)")
    consumers: Annotated[int, Field(ge=1, le=3)] | None = Field(None, description="math warpgroups (wgmma)")
    split: Literal["m", "n"] | None = Field(
        None, description="which side of the tile the warpgroups divide (not for pingpong)"
    )
    cluster: Cluster = Field((1, 1), description="CTAs of a cluster along MxN; operands are multicast")
    persistent: bool | None = Field(None, description="one CTA a slot that walks over tiles")
    raster: Literal["along_m", "along_n"] = Field(
        "along_n", description="direction in which bands of tiles are walked"
    )
    raster_group: Annotated[int, Field(ge=1, le=4096)] = Field(
        1, description="tiles (clusters of them) across a band, walked first; for along_n: rows of tiles"
    )
    raster_snake: bool = Field(False, description="every second band is walked back (cuBLAS)")
    raster_table: Annotated[str, BeforeValidator(_table)] = Field(
        "none", description="places in the order of the clusters of the first wave, and of the second, joined by commas; "
        "gpc: those that run in one GPC are neighbours (cuBLAS); none: as they are numbered"
    )
    split_k: Annotated[int, Field(ge=1, le=256)] = Field(1, description="CTAs that share one tile's K")
    split_k_mode: Literal["in_kernel", "second_kernel"] = Field(
        "in_kernel", description="who adds the parts: atomics and the last CTA, or a second kernel"
    )
    sum_by: Literal["vectors", "elements"] = Field(
        "vectors", description="second_kernel only: what a thread adds: four elements, all parts under way; or one after "
        "the other, four parts under way (elements: cuBLAS)"
    )
    swizzle: Annotated[str, BeforeValidator(_swizzle)] | None = Field(
        None, description="shared-memory swizzle: none, 32B, 64B, 128B, or B,M,S in elements; by default the widest mode "
        "that the tile's rows admit"
    )
    pad: Annotated[int, Field(ge=0, le=MAX_PAD)] = Field(
        0, description="elements behind each row of an operand in shared memory (mma_sync without a swizzle)"
    )
    fragments: Literal["double", "single"] | None = Field(
        None, description="mma_sync and fma: whether a slice's fragments are read while the one before is multiplied "
        "(double, the default), or before its own math"
    )
    copies_held: bool | None = Field(
        None, description="mma_sync with cp.async only: whether warps wait behind a k-step's copies until these have left "
        "their queue, as SASS has it where addresses are written anew; by default they do"
    )
    math_before_copies: Slices | None = Field(
        None, description="mma_sync with double fragments and two stages and more only: slices of a k-step's math that "
        "stand before its copies, as SASS has them; by default what refill says"
    )
    math_before_meeting: Slices | None = Field(
        None, description="the same before the wait for the next slot and the CTA's barrier; by default all but the last"
    )
    math_before_use: Slices | None = Field(
        None, description="the same before the first math that waits for the second slice's fragments; by default the first"
    )
    epilogue: Literal["direct", "smem", "tma_store"] | None = Field(
        None, description="how D reaches global memory"
    )
    alpha: Scalar = Field(1.0, description="factor of A B")
    beta: Scalar = Field(0.0, description="factor of C, which is read only when this is not 0")
    bias: bool = Field(False, description="add a vector of n")
    activation: Literal["none", "relu", "gelu", "silu"] = Field("none", description="applied last")
    setmaxnreg: Annotated[str, BeforeValidator(_registers)] = Field(
        "auto", description="registers of producer/consumer warps (40/232), none, or auto"
    )
    wgmma_depth: Annotated[int, Field(ge=0, le=8)] | None = Field(
        None, description="groups that wgmma.wait_group leaves in flight"
    )
    arrivals: Literal["elected", "every_thread"] = Field(
        "elected", description="schedules with a producer: who arrives on the ring's mbarriers, a thread of each warpgroup "
        "that gives a slot back, or (cuda::barrier) every thread, also before it waits for a slot"
    )
    refill: Literal["before_math", "after_math", "after_wait"] | None = Field(
        None, description="multistage only: whether a k-step's next load is issued before its math, after it, or (wgmma) "
        "after the wait for it, into the slot that the wait has freed (Triton's loop)"
    )
    meets: Literal["before_copies", "before_math"] | None = Field(
        None, description="multistage with TMA and --refill after_wait only: where all warps meet in a k-step besides "
        "behind its wait for wgmma: before each of its copies (the default, Triton's loop), or before its math, as a source "
        "with a __syncthreads behind either wait has it"
    )
    fence: bool = Field(
        True, description="multistage with cp.async and wgmma only: whether a proxy fence stands between a k-step's "
        "copies and its math, as PTX wants and Triton leaves out"
    )
    prefetch_maps: bool = Field(
        True, description="TMA only: whether a CTA asks for the tensor maps of A and B before all meet (CUTLASS does; "
        "cuBLAS's nvjet and Triton do not), or with its first copies; that of D is asked for by the first store"
    )
    wide_per_copy: Annotated[int, Field(ge=0, le=8)] = Field(
        0, description="multistage with cp.async and wgmma only: IMAD.WIDE that a copy's address takes in the k-loop, "
        "which do not run beside wgmma: 1 in Triton's loops, 0 where pointers move on (see the kernel's SASS)"
    )
    fetch_bytes: Literal[64, 128, 256] | None = Field(
        None, description="bytes that L2 takes of memory at least where a copy finds nothing: a tensor map's promotion; of "
        "cp.async 128 where SASS has LDGSTS.LTC128B (L2::128B), else 64; by default no more than a k-step's rows have, or "
        "64 where fma turns an operand"
    )
    fma_bank_reads: Annotated[float, Field(ge=1.0, le=3.0)] | None = Field(
        None, description="fma only: registers that an FFMA reads of the fuller of its scheduler's two banks, on the mean, "
        "as SASS has it; by default one, and another for each row of a thread's sums, whose element of A is read once"
    )
    step_code: Instructions = Field(
        0.0, description="what a k-step's math warps do beside math, fragments, waits and copies: instructions that wait "
        "for one another, as SASS has them (multistage: five at least stand before wgmma); 0 where math hides it"
    )
    step_instructions: Instructions = Field(
        0.0, description="fma with double fragments only: how many instructions these are in all, as SASS has them, "
        "where that is more than step_code: each takes a turn of its scheduler from the warps that multiply"
    )
    copy_code: Instructions = Field(
        0.0, description="the same of a k-step's copies by TMA: of a producer from one wait to the next, less ten cycles of "
        "its loop's head; of warps that multiply, too, what the one that copies has more than others"
    )
    setup_code: Instructions = Field(
        0.0, description="the same of a CTA before its first tile: barriers, which warp does what"
    )
    tile_code: Instructions = Field(
        0.0, description="the same of every role before a tile: where it lies"
    )
    tile_wide_code: Instructions = Field(
        0.0, description="a warp's products of 64 bits (IMAD.WIDE, IMAD.HI: divisions) there, which tile_code leaves out: "
        "they take turns with wgmma"
    )
    tile_beside_code: Instructions = Field(
        0.0, description="what tile_code is worth while another warpgroup's wgmma runs, where that is more"
    )
    turn_code: Instructions = Field(
        0.0, description="what tile_code leaves for behind the wait for a turn (pingpong; beside wgmma): which slot is next"
    )
    store_code: Instructions = Field(
        0.0, description="the same of a tile's way out: addresses and edges, beside conversion and stores"
    )
    store_wide_code: Instructions = Field(
        0.0, description="a warp's products of 64 bits on a tile's way out, which store_code leaves out, too"
    )
    store_beside_code: Instructions = Field(
        0.0, description="what store_code is worth while another warpgroup's wgmma runs, where that is more"
    )
    producer_code_begin: CodePlace = Field(
        0, description="where a producer's own code begins, in bytes from the kernel's first instruction (addresses of "
        "cuobjdump -sass): with --l2 flushed, what lies beyond the 66 KiB that a launch brings along waits for memory when "
        "it first runs; without, nothing does; 0: near, or not known"
    )
    producer_code_end: CodePlace = Field(0, description="where it ends: with the copies of the first k-step")
    store_code_begin: CodePlace = Field(
        0, description="the same of a tile's way out: of its stores, or of those of a part of k, or of its reductions"
    )
    store_code_end: CodePlace = Field(0, description="where it ends")
    last_part_code_begin: CodePlace = Field(
        0, description="the same of what the last part of k does behind its count, in the kernel: zeros, and D"
    )
    last_part_code_end: CodePlace = Field(0, description="where it ends")
    cluster_meeting: Literal["release", "relaxed"] = Field(
        "release", description="how a cluster's CTAs meet before their first tile and when they are done: release waits for "
        "a fence each time (barrier.cluster.arrive as PTX has it by default, cluster.sync(); SASS: MEMBAR before "
        "UCGABAR_ARV), relaxed does not (CUTLASS)"
    )
    registers: Annotated[int, Field(ge=24, le=255)] | None = Field(
        None, description="registers a thread is launched with, as ptxas -v says of a kernel that exists; by default worked "
        "out from tile and schedule"
    )

    def meaning_of_none(self, option: str) -> str:
        """What is done where nothing was chosen; options without a meaning here have none."""
        return {
            "fetch_bytes": "a k-step's rows", "registers": "worked out", "math_before_copies": "as refill says",
            "math_before_meeting": "all slices but the last", "math_before_use": "the first slice",
            "fma_bank_reads": "as a thread's sums have it",
        }.get(option, "n/a")

    @property
    def element(self) -> DType:
        """Type of A and B."""
        return dtype(self.dtype)

    @property
    def out_element(self) -> DType:
        """Type of C and D."""
        return dtype(self.out_dtype or OUT_DTYPES[self.dtype])

    @property
    def is_a_k_major(self) -> bool:
        """Whether A is contiguous along K (BLAS letter t)."""
        return self.layout[0] == "t"

    @property
    def is_b_k_major(self) -> bool:
        """Whether B is contiguous along K (BLAS letter n)."""
        return self.layout[1] == "n"

    @property
    def is_specialized(self) -> bool:
        """Whether a producer of its own loads."""
        return self.schedule != "multistage"

    @property
    def num_cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    def resolved(self, gpu: Target) -> GemmParams:
        """All defaults filled in for ``gpu``, and the whole checked.

        Raises:
            KernelError: parameters that do not go together.
            LaunchError: a kernel that this GPU lacks instructions or shared memory for.
        """
        from gpusim.kernel_models.gemm.advice import TileRefused, advised, with_tile  # they need this type

        try:
            return self._checked(gpu)
        except TileRefused as refused:
            raise advised(refused, lambda tile: with_tile(self, tile)._checked(gpu)) from None

    def _checked(self, gpu: Target) -> GemmParams:
        """:meth:`resolved`, where a tile is refused before it is known what to advise.

        Raises:
            TileRefused: proposes a tile.
            KernelError: as of :meth:`resolved`.
            LaunchError: likewise.
        """
        from gpusim.kernel_models.gemm.compatibility import (
            check_gpu,
            check_kinds,
            check_places,
            check_shape,
        )
        from gpusim.kernel_models.gemm.defaults import with_instructions, with_places, with_shape
        from gpusim.kernel_models.gemm.smem_budget import check_room

        check_gpu(self, gpu)
        placed = with_places(self, gpu)
        check_places(self, placed, gpu)
        params = with_instructions(placed, gpu)
        check_kinds(params)
        params = with_shape(params, gpu)
        check_shape(params)
        check_room(params, gpu)
        return params

    def launch(self, gpu: Target) -> Launch:
        """The kernel on ``gpu``.

        Raises:
            KernelError: parameters that no kernel can have.
            LaunchError: a kernel that this GPU cannot hold.
        """
        return self.planned(gpu)[1]

    def planned(self, gpu: Target) -> tuple[GemmParams, Launch]:
        """All defaults filled in, checked once, and the kernel.

        Raises:
            KernelError: as of :meth:`resolved`.
            LaunchError: likewise.
        """
        from gpusim.kernel_models.gemm.launch import gemm_launch

        params = self.resolved(gpu)
        return params, gemm_launch(params, gpu)

    @classmethod
    def usual(cls, option: str, given: Mapping[str, Any], gpu: Target) -> Sequence[Any] | None:
        """Values of ``option`` that a sweep tries for ``auto``; see :mod:`gpusim.kernel_models.gemm.sweep_values`."""
        from gpusim.kernel_models.gemm.sweep_values import usual_values

        return usual_values(option, given, gpu) or super().usual(option, given, gpu)

    def answer_to(self, ideal: str) -> Mapping[str, Any]:
        """Options to try where making ``ideal`` free (a name of a counterfactual) saves most; empty where none is known."""
        from gpusim.kernel_models.gemm.defaults import widest_swizzle

        if ideal == "stage" and self.stages is not None:
            return {"stages": self.stages + 1}
        if ideal == "mad_wide" and self.wide_per_copy:
            return {"wide_per_copy": 0}
        if ideal in ("bank_conflicts", "tma") and self.math != "fma" and self.swizzle != widest_swizzle(self):
            return {"swizzle": widest_swizzle(self), **({"pad": 0} if self.pad else {})}
        return {}


OUT_DTYPES = {"bf16": "bf16", "fp16": "fp16", "tf32": "fp32", "fp8": "bf16", "int8": "int32", "fp32": "fp32"}
"""Type of D unless said otherwise."""
