"""A GEMM kernel as it is built: every choice has a value."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from gpusim.kernel_models.mainloop.epilogue_data import Finish
from gpusim.kernel_models.mainloop.output import BY_TMA, Output
from gpusim.kernel_models.mainloop.shape import MainloopShape
from gpusim.kernel_models.mainloop.threads import LANES, ThreadTile
from gpusim.kernel_models.mainloop.warp_partition import WarpPartition
from gpusim.layout.swizzle import span_bytes
from gpusim.workload.atoms.mma import MmaKind
from gpusim.workload.compiled_code import CompiledCode
from gpusim.workload.dtypes import DType, accumulator_of, dtype
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES

OUT_DTYPES = {"bf16": "bf16", "fp16": "fp16", "tf32": "fp32", "fp8": "bf16", "int8": "int32", "fp32": "fp32"}
"""Default type of D, by the type of A and B."""


class GemmTypes:
    """Properties that options and configs of a GEMM have in common."""

    __slots__ = ()

    if TYPE_CHECKING:  # pydantic would take annotations as fields
        dtype: str
        out_dtype: str | None
        layout: str
        schedule: str | None
        cluster: tuple[int, int]
        m: int
        n: int
        k: int
        alignment: int | None

    @property
    def element(self) -> DType:
        """Type of A and B."""
        return dtype(self.dtype)

    @property
    def out_element(self) -> DType:
        """Type of C and D."""
        return dtype(self.out_dtype or OUT_DTYPES[self.dtype])

    @property
    def are_k_major(self) -> tuple[bool, bool]:
        """Whether A (BLAS letter t) and B (BLAS letter n) are contiguous along K."""
        return self.layout[0] == "t", self.layout[1] == "n"

    @property
    def copy_bytes(self) -> int:
        """Bytes of a copy of A and of B: the most, up to 16, to which all their rows are aligned.

        Of fp32, operands that are contiguous along K do not count: they are transposed element by element.

        >>> from gpusim.kernel_models.gemm import GemmParams
        >>> [GemmParams(m=64, n=64, k=k, dtype="bf16").copy_bytes for k in (4096, 4092, 4090, 4095)]
        [16, 8, 4, 2]
        """
        extents = [
            self.k if is_k_major else (self.m, self.n)[which] for which, is_k_major in enumerate(self.are_k_major)
            if not (is_k_major and self.dtype == "fp32")
        ]
        return min((aligned_bytes(extent, self.element, self.alignment) for extent in extents), default=CHUNK_BYTES)

    @property
    def store_bytes(self) -> int:
        """Bytes to which rows of C and D are aligned, up to 16. D has n columns."""
        return aligned_bytes(self.n, self.out_element, self.alignment)

    @property
    def is_specialized(self) -> bool:
        """Whether the schedule has a producer."""
        return self.schedule != "multistage"

    @property
    def num_cluster_ctas(self) -> int:
        """Number of CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmProblem(GemmTypes):
    """Matrices of a GEMM: sizes, types and layouts."""

    m: int
    n: int
    k: int
    batch: int
    batch_mode: str
    dtype: str
    out_dtype: str
    accumulator: str
    """Type of the sums; empty: the usual one."""
    layout: str
    alignment: int
    """Elements to which rows are padded; 0: rows are as long as the matrices."""
    stored_bytes: int
    """Bytes to which rows of C and D are aligned, up to 16, as the caller has D."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConfig(GemmProblem):
    """A GEMM kernel that can be built. A field has the meaning of the option of its name.

    An option that does not apply has a neutral value here: 0, an empty text, False, or one part.
    """

    tile: tuple[int, int, int]
    stages: int
    copy_: str
    math: MmaKind
    schedule: str
    warps: tuple[int, int]
    thread_tile: str
    thread_access: str
    consumer_warpgroups: int
    consumer_split: str
    cluster: tuple[int, int]
    persistent: bool
    raster: str
    swizzle_size: int
    raster_boustrophedon: bool
    raster_order: str
    split_k: int
    split_k_mode: str
    splitk_reduction: str
    swizzle: str
    pad: int
    register_stages: int
    stall_on_ldgsts: bool
    epilogue: str
    alpha: float
    beta: float
    bias: bool
    bias_along: str
    activation: str
    clamp: str
    """Limits of D as typed; empty: none."""
    setmaxnreg: str
    wgmma_depth: int
    mbarrier_arrive: str
    prefetch: str
    cta_barrier: str
    fence: bool
    prefetch_tensormap: bool
    tensormaps: str
    l2_promotion: int
    compiled_code: CompiledCode
    cluster_sync: str
    registers: int
    """Registers of a thread at launch; 0 until they are worked out."""
    registers_source: str = ""
    """Explanation of ``registers``."""

    @property
    def warp_grid(self) -> tuple[int, int]:
        """Number of parts of the tile along M and N: a warp's, or a consumer warpgroup's."""
        if self.math != "wgmma":
            return self.warps
        if self.schedule == "pingpong":
            return 1, 1
        return (1, self.consumer_warpgroups) if self.consumer_split == "n" else (self.consumer_warpgroups, 1)

    @property
    def setmaxnreg_registers(self) -> tuple[int, int]:
        """Registers of a producer's and of a consumer's thread; zeros without setmaxnreg."""
        producer, _, consumer = self.setmaxnreg.partition("/")
        return (int(producer), int(consumer)) if consumer else (0, 0)

    @property
    def stores_by_tma(self) -> bool:
        """Whether TMA moves D to global memory."""
        return self.epilogue in BY_TMA

    @property
    def made_tensor_maps(self) -> tuple[str, ...]:
        """Tensors whose maps each CTA makes."""
        if self.tensormaps != "device":
            return ()
        return ("A", "B", "D") if self.stores_by_tma else ("A", "B")

    @property
    def mainloop(self) -> MainloopShape:
        """Tiles of A and B in shared memory."""
        return MainloopShape(
            self.tile, self.stages, self.element, self.math, self.copy_, self.are_k_major, self.swizzle, self.pad,
            self.cluster, self.l2_promotion, self.copy_bytes, max(1, self.alignment), self.sum_element,
            self.elements_of_threads,
        )

    @property
    def sum_element(self) -> DType | None:
        """Type of the sums, if it is not the usual one."""
        usual = accumulator_of(self.element)
        return None if self.accumulator in ("", usual.name) else dtype(self.accumulator)

    @property
    def elements_of_threads(self) -> ThreadTile:
        """Rows and columns of a thread of FFMA."""
        return ThreadTile(is_adjacent=self.thread_tile == "adjacent", is_scalar=self.thread_access == "scalar")

    @property
    def partition(self) -> WarpPartition:
        """Parts of the tile. The parts of a split K are counted by a single thread, so that warp groups stay together."""
        grid = self.warp_grid
        return WarpPartition(
            self.mainloop, grid, 4 * self.consumer_warpgroups if self.math == "wgmma" else grid[0] * grid[1],
            is_specialized=self.is_specialized, register_stages=self.register_stages,
            setmaxnreg=self.setmaxnreg_registers[1], may_split=not has_sums(self),
        )

    @property
    def output(self) -> Output:
        """What the epilogue makes of the accumulators."""
        return Output(
            element=self.out_element, path=self.epilogue, alpha=self.alpha, beta=self.beta, bias=self.bias,
            bias_along=self.bias_along, activation=self.activation, clamp=bool(self.clamp),
            has_packed_sums=self.sum_element is not None, thread_tile=self.elements_of_threads,
            vector_bytes=self.stored_bytes, code=self.compiled_code.epilogue,
            thread_columns=self.partition.warp_tile[1] // LANES[1] if self.math == "fma" else 0,
            code_bytes=self.compiled_code.layout.epilogue,
        )

    @property
    def finish(self) -> Finish:
        """What becomes of the sums."""
        limits = limits_of(self.clamp) if self.clamp else None
        return Finish(alpha=self.alpha, beta=self.beta, bias=self.bias, activation=self.activation, limits=limits)

    @property
    def fma_bank_reads(self) -> float:
        """Mean registers that an FFMA reads from the fuller register bank; 1 for other math.

        Two banks supply the element of B and the sum of an FFMA. One also supplies a row's element of A, once.
        """
        if self.math != "fma":
            return 1.0
        return self.compiled_code.mainloop.fma_bank_reads or 1.0 + LANES[1] / self.partition.warp_tile[1]

    @property
    def widest_swizzle(self) -> str:
        """The widest swizzle that divides the rows of both operands in shared memory."""
        return widest_swizzle(self.tile, self.are_k_major, self.element)


def limits_of(text: str) -> tuple[float, float]:
    """Limits that are typed as LOW,HIGH.

    >>> limits_of("0,6")
    (0.0, 6.0)

    Raises:
        ValueError: not two finite numbers in ascending order.
    """
    low, high = (float(part) for part in text.split(","))
    if not -inf < low < high < inf:
        raise ValueError(text)
    return low, high


def has_sums(config: GemmConfig) -> bool:
    """Whether parts of K leave as fp32 sums. In a serial split-K each adds to D."""
    return config.split_k > 1 and config.split_k_mode != "serial"


def aligned_bytes(extent: int, element: DType, alignment: int | None) -> int:
    """Bytes, up to 16, to which rows of ``extent`` elements are aligned; with ``alignment`` they are padded to it.

    >>> bf16 = dtype("bf16")
    >>> aligned_bytes(4090, bf16, None), aligned_bytes(4090, bf16, 8), aligned_bytes(4096, bf16, 2)
    (4, 16, 4)
    """
    row_bytes = (alignment or extent) * element.num_bytes
    return min(CHUNK_BYTES, row_bytes & -row_bytes)


def widest_swizzle(tile: tuple[int, int, int], are_k_major: tuple[bool, bool], element: DType) -> str:
    """The widest swizzle that divides the rows of A and of B in shared memory."""
    rows = [(tile[2] if is_k_major else tile[which]) * element.num_bytes for which, is_k_major in enumerate(are_k_major)]
    return next((mode for mode in ("128B", "64B", "32B") if all(row % span_bytes(mode) == 0 for row in rows)), "none")
