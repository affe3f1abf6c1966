"""Options of a GEMM kernel on the command line. Each option is checked on its own here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field

from gpusim.errors import LayoutError
from gpusim.kernel_models.gemm.applicability import applies, applies_when
from gpusim.kernel_models.gemm.config import GemmTypes, limits_of
from gpusim.kernel_models.gemm.renamed import REMOVED, RENAMED
from gpusim.kernel_models.options import PROBLEM, KernelParams
from gpusim.kernel_models.spelling import Renamed, as_choice
from gpusim.layout.notation import parse_swizzle
from gpusim.layout.swizzle import SWIZZLE_MODES
from gpusim.workload.compiled_code import CompiledCode, code_from, read_code

MAX_EXTENT = 1 << 24
"""Maximum of m, n and k. Larger matrices exceed the memory of each described GPU."""

MAX_TILE = 1024
MAX_WARPS = 32
MAX_CLUSTER = 16
MAX_PAD = 128
DIRECTIONS = ("along_m", "along_n")


def _numbers(count: int, most: int) -> Any:
    """Validator for ``count`` numbers from 1 to ``most``, joined by x or as a tuple."""
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
    value = as_choice(value, ("none", "auto"))
    if isinstance(value, str) and value not in ("none", "auto"):
        parts = value.split("/")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"is {value!r}, wants producer/consumer such as 40/232, none or auto")
        if any(not 24 <= int(part) <= 256 or int(part) % 8 for part in parts):
            raise ValueError(f"is {value!r}, wants multiples of 8 from 24 to 256, such as 40/232")
    return value


PLACES = ("none", "gpc", "full_bands")
"""Words of ``raster_order``."""


def _table(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    value = as_choice(value, PLACES)
    if as_choice(value, DIRECTIONS) in DIRECTIONS:
        raise ValueError(f"is {value!r}, wants places of clusters; --raster has along_m and along_n (CUTLASS's RasterOrder)")
    if isinstance(value, str) and value not in PLACES:
        parts = value.split(",")
        if not all(part.isascii() and part.isdigit() for part in parts) or sorted(map(int, parts)) != [*range(len(parts))]:
            raise ValueError(f"is {value!r}, wants every place from 0 on once, such as 0,2,1,3, or {', or '.join(PLACES)}")
    return value


def _swizzle(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = ",".join(str(part) for part in value)
    value = as_choice(value, tuple(SWIZZLE_MODES))
    if isinstance(value, str) and value not in SWIZZLE_MODES:
        value = value.replace(" ", "")
        try:
            parse_swizzle(value, 8)
        except LayoutError as error:
            raise ValueError(str(error)) from None
    return value



def _clamp(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    if isinstance(value, str):
        try:
            limits_of(value)
        except ValueError:
            raise ValueError(f"is {value!r}, wants two ascending numbers LOW,HIGH, for example 0,6") from None
    return value


def _code(value: Any) -> Any:
    """A record of compiled code, or the text or path of the TOML file that has it; None for the text of an estimate."""
    if value == "estimated":
        return None
    if isinstance(value, Mapping):
        return code_from(value, source="given")
    return read_code(Path(value)) if isinstance(value, str | Path) else value


Tile = Annotated[tuple[int, int, int], _numbers(3, MAX_TILE)]
Warps = Annotated[tuple[int, int], _numbers(2, MAX_WARPS)]
Cluster = Annotated[tuple[int, int], _numbers(2, MAX_CLUSTER)]
Extent = Annotated[int, Field(ge=1, le=MAX_EXTENT)]
Scalar = Annotated[float, Field(allow_inf_nan=False)]


class ProblemOptions(GemmTypes, KernelParams):
    """Matrices of a GEMM: sizes, types and layouts."""

    m: Extent = Field(description="GEMM M: rows of A and D")
    n: Extent = Field(description="GEMM N: columns of B and D")
    k: Extent = Field(description="GEMM K: columns of A, rows of B")
    batch: Annotated[int, Field(ge=1, le=1 << 16)] = Field(1, description="Batch count: independent GEMMs of this size")
    batch_mode: Literal["strided", "array"] = Field(
        "strided", description="Batched matrices: at a stride, or at addresses in arrays, which each CTA reads "
        "(cublasGemmBatched, CUTLASS kArray)"
    )
    dtype: Literal["bf16", "fp16", "tf32", "fp8", "int8", "fp32"] = Field("bf16", description="Element type of A and B")
    out_dtype: Literal["bf16", "fp16", "fp32", "int8", "int32", "fp8"] | None = Field(
        None, description="Element type of C and D. By default: bf16 for bf16 and fp8, fp16 for fp16, fp32 for tf32 and "
        "fp32, int32 for int8"
    )
    accumulator: Literal["fp32", "fp16", "int32"] | None = Field(
        None, description="Type of the sums (CUTLASS ElementAccumulator). fp16 and fp8 may have fp16, of which a register "
        "holds two. By default int32 for int8, else fp32"
    )
    layout: Literal["nn", "nt", "tn", "tt"] = Field(
        "tn", description="BLAS transpose letters of A and B: with tn both are K-contiguous, with tt both are row-major. "
        "D is row-major"
    )
    alignment: Literal[1, 2, 4, 8, 16] | None = Field(
        None, description="Elements to which rows in global memory are aligned and padded (CUTLASS Alignment). Less than 16 "
        "bytes allow no TMA. By default rows are as long as the matrices"
    )


class GemmOptions(ProblemOptions):
    """D = activation(alpha A B + beta C + bias), m x n x k. None: chosen for the GPU by ``resolved``."""

    renamed: ClassVar[Mapping[str, Renamed]] = RENAMED
    removed: ClassVar[Mapping[str, str]] = REMOVED

    tile: Tile | None = Field(
        None, description="CTA tile MxNxK in elements (CUTLASS TileShape). By default the usual one of math and "
        "schedule, 128x256x64 for a cooperative one of bf16. The prediction prints it, gpusim sweep --tile auto ranks others"
    )
    stages: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        None, description="Pipeline stages of A and B (CUTLASS Stages, Triton num_stages). A stage takes (M + N) x K "
        "elements of shared memory"
    )
    copy_: Literal["cp_async", "ldg", "tma"] | None = Field(
        None, alias="copy", description="Copies of A and B to shared memory: cp.async (LDGSTS), through registers (LDG and "
        "STS), or TMA (cp.async.bulk.tensor). cp.async wants rows that are aligned to 4 bytes, TMA to 16"
    )
    math: Literal["mma_sync", "wgmma", "fma"] | None = Field(
        None, description="Math instruction: mma.sync or wgmma on tensor cores, or FFMA on FMA units"
    )
    schedule: Literal["multistage", "warp_specialized", "cooperative", "pingpong"] | None = Field(
        None, description="Mainloop schedule (CUTLASS KernelSchedule). In multistage all warps load and multiply, "
        "elsewhere a producer warp loads. Cooperative consumers share a tile, pingpong consumers alternate"
    )
    warps: Warps | None = Field(None, description="Warps of a CTA along MxN (CuTe warp layout)")
    thread_tile: Literal["interleaved", "adjacent"] | None = Field(
        None, description="Columns of a thread of FFMA: vectors (or single elements) in turn among lanes, without bank "
        "conflicts, or adjacent ones. By default interleaved"
    )
    thread_access: Literal["vector", "scalar"] | None = Field(
        None, description="Copies, shared-memory loads and stores of an FFMA kernel: 16 bytes a lane where rows admit it, "
        "or single elements. By default vector, for which operands that are contiguous along K are transposed"
    )
    consumer_warpgroups: Annotated[int, Field(ge=1, le=3)] | None = Field(
        None, description="Warpgroups of 128 threads that run wgmma"
    )
    consumer_split: Literal["m", "n"] | None = Field(None, description="Tile dimension that the consumer warpgroups divide")
    cluster: Cluster = Field((1, 1), description="Thread block cluster MxN in CTAs. TMA multicasts A along N and B along M")
    persistent: bool | None = Field(
        None, description="Persistent kernel: resident CTAs walk over all tiles. With --no-persistent a CTA has one tile"
    )
    raster: Literal["along_m", "along_n"] = Field(
        "along_n", description="CTA rasterization: the direction in which bands of tiles run (CUTLASS RasterOrder)"
    )
    swizzle_size: Annotated[int, Field(ge=1, le=4096)] = Field(
        1, description="CTA rasterization swizzle (CUTLASS swizzle size): tiles or clusters across a band. Shared memory "
        "has --swizzle instead"
    )
    raster_boustrophedon: bool = Field(False, description="CTA rasterization: every second band runs backwards (cuBLAS)")
    raster_order: Annotated[str, BeforeValidator(_table)] = Field(
        "none", description="CTA rasterization: places of the clusters of the first and second wave, joined by commas. "
        "With gpc the clusters of one GPC are neighbours (cuBLAS). With full_bands the last band is as wide as all others, "
        "and CTAs without a tile end at once (CUTLASS 2). By default none: the order of --raster and --swizzle-size"
    )
    swap_operands: bool = Field(
        False, description="Compute D^T = B^T A^T, as BLAS libraries do. Tile, warps, cluster and raster are then those of "
        "D^T, whose rows are the columns of D"
    )
    split_k: Annotated[int, Field(ge=1, le=256)] = Field(1, description="Split-K factor: CTAs that share the K of one "
        "tile")
    split_k_mode: Literal["in_kernel", "second_kernel", "serial"] = Field(
        "in_kernel", description="Split-K reduction: by atomics and the last CTA, by a second kernel, or serial: each part "
        "adds to D behind the part before (CUTLASS 2). It applies with --split-k 2 or more"
    )
    splitk_reduction: Literal["vectorized", "scalar"] = Field(
        "vectorized", description="Loads of the second split-K kernel. vectorized: four elements a thread, all partial "
        "sums in flight. scalar: element by element, four partial sums in flight (cuBLAS)"
    )
    swizzle: Annotated[str, BeforeValidator(_swizzle)] | None = Field(
        None, description="Shared-memory swizzle of A and B: none, 32B, 64B, 128B, or B,M,S in elements (CuTe Swizzle). "
        "By default it is the widest mode that the tile's rows admit"
    )
    pad: Annotated[int, Field(ge=0, le=MAX_PAD)] = Field(
        0, description="Padding after each row of A and B in shared memory, in elements"
    )
    register_stages: Literal[2, 1] | None = Field(
        None, description="Register pipeline stages of operand fragments (CUTLASS). With 2 a slice is loaded during the "
        "previous slice's math, with 1 before its own. By default 2"
    )
    stall_on_ldgsts: bool | None = Field(
        None, description="Warps stall after a k-step's LDGSTS until these have left the queue, as in SASS that rewrites "
        "their addresses. By default on"
    )
    epilogue: Literal["direct", "smem", "tma_store", "tma_reduce"] | None = Field(
        None, description="Path of D to global memory: from registers, through shared memory, by TMA store, or by "
        "cp.reduce.async.bulk. The last adds to D in L2, for --beta 1 with C in D"
    )
    alpha: Scalar = Field(1.0, description="Factor of A B")
    beta: Scalar = Field(0.0, description="Factor of C. The kernel reads C unless this is 0")
    bias: bool = Field(False, description="Add a bias vector")
    bias_along: Literal["n", "m"] | None = Field(
        None, description="The bias has an element for each column of D (n) or for each row (m). By default n"
    )
    activation: Literal["none", "relu", "gelu", "silu", "sigmoid"] = Field("none", description="Activation function")
    clamp: Annotated[str, BeforeValidator(_clamp)] | None = Field(
        None, description="Limits LOW,HIGH of D, for example 0,6, applied last"
    )
    setmaxnreg: Annotated[str, BeforeValidator(_registers)] = Field(
        "auto", description="Registers a thread of producer/consumer warps, for example 40/232, or none, or auto"
    )
    wgmma_depth: Annotated[int, Field(ge=0, le=8)] | None = Field(
        None, description="wgmma groups left in flight: the operand of wgmma.wait_group"
    )
    mbarrier_arrive: Literal["warpgroup", "thread"] = Field(
        "warpgroup", description="Arrivals on the pipeline's mbarriers: one thread a warpgroup frees a stage, or every "
        "thread arrives, also before it waits (cuda::barrier)"
    )
    prefetch: Literal["before_mma", "after_mma", "after_wait"] | None = Field(
        None, description="Place of the next stage's copies in a k-step: before its math, after it, or after the wgmma "
        "wait (Triton)"
    )
    cta_barrier: Literal["before_copies", "before_mma"] | None = Field(
        None, description="Second __syncthreads of a k-step, besides that after the wgmma wait: before each copy "
        "(Triton), or before the math. By default before_copies"
    )
    fence: bool = Field(
        True, description="Proxy fence (fence.proxy.async) between cp.async and wgmma. PTX requires it, Triton leaves it "
        "out"
    )
    prefetch_tensormap: bool = Field(
        True, description="prefetch.tensormap of A and B before the first CTA barrier (CUTLASS). cuBLAS's nvjet and "
        "Triton leave it out"
    )
    tensormaps: Literal["host", "device"] = Field(
        "host", description="Tensor maps of A, B and D: encoded by the host, or made by each CTA before its first copy. "
        "device is Triton make_tensor_descriptor, and grouped kernels of CUTLASS"
    )
    l2_promotion: Literal[64, 128, 256] | None = Field(
        None, description="L2 promotion: least bytes fetched into L2 on a miss. It is the tensor map's, and for cp.async "
        "128 with LDGSTS.LTC128B, else 64. By default at most a k-step's row, or what ptxas chooses"
    )
    compiled_code: Annotated[CompiledCode | None, BeforeValidator(_code)] = Field(
        None, description="TOML file with what the compiler made of the kernel (gpusim sass --compiled-code writes one). By "
        "default it is estimated"
    )
    cluster_sync: Literal["release", "relaxed"] = Field(
        "release", description="Cluster barrier before the first tile and at the end: with a fence (cluster.sync()), or "
        "relaxed, without (CUTLASS)"
    )
    registers: Annotated[int, Field(ge=24, le=255)] | None = Field(
        None, description="Registers a thread at launch, as ptxas -v reports. By default estimated from tile and schedule"
    )

    def meaning_of_none(self, option: str) -> str:
        """Meaning of None for options that may stay None; "n/a" for options that do not apply."""
        return {
            "alignment": "the matrices' rows", "l2_promotion": "a k-step's rows",
            "registers": "worked out", "compiled_code": "estimated", "bias_along": "n", "clamp": "no limits",
            "thread_tile": "interleaved", "thread_access": "vector", "accumulator": "usual of --dtype",
        }.get(option, "n/a")

    @classmethod
    def panel_of(cls, option: str) -> str:
        """Panel of ``--help`` for an option.

        >>> GemmOptions.panel_of("pad"), GemmOptions.panel_of("stages")
        ('Memory path', 'Tile and schedule')
        """
        return next((panel for panel, options in PANELS.items() if option in options), "Tile and schedule")

    @classmethod
    def applies_when(cls, option: str) -> Mapping[str, str]:
        """Conditions on other options, by the option's values; see :mod:`gpusim.kernel_models.gemm.applicability`."""
        return applies_when(cls.options()[option])

    def chosen(self, config: Any) -> Self:
        """The options with the values of a :class:`GemmConfig`. Options that do not apply stay None."""
        names = [name for name in CHOSEN if applies(name, config) or getattr(self, name) is not None]
        return self.model_copy(update={name: getattr(config, name) for name in names})

    @classmethod
    def derived_of(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Bytes, up to 16, to which all rows of A, B and D are aligned.

        >>> GemmOptions.derived_of({"m": 64, "n": 64, "k": 4090, "dtype": "bf16", "layout": "tn"})
        {'aligned_bytes': 4}
        """
        names = ("m", "n", "k", "dtype", "out_dtype", "layout", "alignment")
        if not {"m", "n", "k"} <= options.keys():
            return {}
        params = cls.model_validate({name: options[name] for name in names if options.get(name) is not None})
        return {"aligned_bytes": min(params.copy_bytes, params.store_bytes)}

    def as_options(self) -> Mapping[str, Any]:
        """All parameters in the spelling of the command line; compiled code as the text of its source."""
        code = self.compiled_code
        return {**super().as_options(), "compiled_code": "estimated" if code is None else code.text}


PANELS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    PROBLEM: ("m", "n", "k", "batch", "batch_mode", "dtype", "out_dtype", "accumulator", "layout", "alignment"),
    "Memory path": ("copy", "swizzle", "pad", "l2_promotion", "prefetch_tensormap", "tensormaps", "stall_on_ldgsts"),
    "Epilogue": ("epilogue", "alpha", "beta", "bias", "bias_along", "activation", "clamp"),
    "Synchronization": ("mbarrier_arrive", "cta_barrier", "cluster_sync", "fence"),
    "Compiled code": ("compiled_code", "registers"),
})
"""Options of each panel. All others are in the panel "Tile and schedule"."""

CHOSEN = (
    "out_dtype", "tile", "stages", "copy_", "math", "schedule", "warps", "consumer_warpgroups", "consumer_split",
    "persistent", "raster_order", "tensormaps", "swizzle", "register_stages", "stall_on_ldgsts", "epilogue", "setmaxnreg",
    "wgmma_depth", "prefetch", "cta_barrier",
)  # fmt: skip
"""Options that have the value of the config once they are resolved. Others are as given: what None means is in
:meth:`GemmOptions.meaning_of_none`."""
