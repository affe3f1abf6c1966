"""The parameters of a GEMM kernel: every option of the command line, checked one by one and together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpusim.errors import KernelError
from gpusim.layout.swizzle import span_bytes
from gpusim.workload.access import nearest_multiple
from gpusim.workload.atoms import legal_wgmma_n
from gpusim.workload.dtypes import DType, dtype
from gpusim.workload.launch import Launch, Target

MAX_EXTENT = 1 << 24
"""Largest m, n or k: beyond it a matrix has no room on any GPU that is described."""


def _extents(count: int) -> Any:
    def parse(value: Any) -> Any:
        if isinstance(value, str):
            parts = value.lower().split("x")
            if len(parts) != count or not all(part.isdigit() for part in parts):
                example = "x".join(["128", "256", "64"][:count]) if count == 3 else "2x1"
                raise ValueError(f"is {value!r}, wants {count} positive numbers joined by x, such as {example}")
            value = tuple(int(part) for part in parts)
        if isinstance(value, list | tuple) and (len(value) != count or any(int(part) < 1 for part in value)):
            raise ValueError(f"is {'x'.join(str(part) for part in value)}, wants {count} numbers of 1 or more")
        return value

    return BeforeValidator(parse)


def _registers(value: Any) -> Any:
    if isinstance(value, str) and value not in ("none", "auto"):
        parts = value.split("/")
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            raise ValueError(f"is {value!r}, wants producer/consumer such as 40/232, none or auto")
        for part in parts:
            if not 24 <= int(part) <= 256 or int(part) % 8:
                raise ValueError(f"is {value!r}, wants multiples of 8 from 24 to 256")
    return value


Tile = Annotated[tuple[int, int, int], _extents(3)]
Pair = Annotated[tuple[int, int], _extents(2)]
Extent = Annotated[int, Field(ge=1, le=MAX_EXTENT)]


class GemmParams(BaseModel):
    """D = activation(alpha A B + beta C + bias), m x n x k. None means: chosen for the GPU by :meth:`resolved`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    m: Extent = Field(description="rows of A and D")
    n: Extent = Field(description="columns of B and D")
    k: Extent = Field(description="columns of A, rows of B")
    batch: Annotated[int, Field(ge=1, le=1 << 16)] = Field(1, description="independent products of this size")
    dtype: Literal["bf16", "fp16", "tf32", "fp8", "int8", "fp32"] = Field("bf16", description="type of A and B")
    out_dtype: Literal["bf16", "fp16", "fp32", "int8", "int32", "fp8"] | None = Field(
        None, description="type of C and D; by default the input's 16-bit type (bf16 for fp8, fp32 for tf32 and fp32, "
        "int32 for int8)"
    )
    layout: Literal["nn", "nt", "tn", "tt"] = Field(
        "tn", description="BLAS letters of A and B: tn has both K-contiguous, tt both row-major; D is row-major"
    )
    tile: Tile | None = Field(None, description="CTA tile MxNxK")
    stages: Annotated[int, Field(ge=1, le=64)] | None = Field(None, description="slots of the ring in shared memory")
    copy_: Literal["cp_async", "tma"] | None = Field(None, alias="copy", description="how operands reach shared memory")
    math: Literal["mma_sync", "wgmma", "fma"] | None = Field(None, description="which instructions multiply")
    schedule: Literal["multistage", "warp_specialized", "cooperative", "pingpong"] | None = Field(
        None, description="who loads and who computes"
    )
    warps: Pair | None = Field(None, description="math warps along MxN (mma_sync and fma)")
    consumers: Annotated[int, Field(ge=1, le=3)] | None = Field(None, description="math warpgroups (wgmma)")
    split: Literal["m", "n"] = Field("m", description="which side of the tile the consumers divide")
    cluster: Pair = Field((1, 1), description="CTAs of a cluster along MxN; operands are multicast")
    persistent: bool | None = Field(None, description="one CTA a slot that walks over tiles")
    raster: Literal["along_m", "along_n"] = Field("along_n", description="direction in which bands of tiles are walked")
    raster_group: Annotated[int, Field(ge=1, le=4096)] = Field(
        1, description="tiles across a band, walked first (for along_n: rows of tiles)"
    )
    split_k: Annotated[int, Field(ge=1, le=256)] = Field(1, description="CTAs that share one tile's K")
    split_k_mode: Literal["in_kernel", "second_kernel"] = Field(
        "in_kernel", description="who adds the parts: atomics and the last CTA, or a second kernel"
    )
    swizzle: Literal["none", "32B", "64B", "128B"] | None = Field(
        None, description="shared-memory swizzle; by default the widest that the tile's rows admit"
    )
    epilogue: Literal["direct", "smem", "tma_store"] | None = Field(None, description="how D reaches global memory")
    alpha: float = Field(1.0, description="factor of A B")
    beta: float = Field(0.0, description="factor of C, which is read only when this is not 0")
    bias: bool = Field(False, description="add a vector of n")
    activation: Literal["none", "relu", "gelu", "silu"] = Field("none", description="applied last")
    setmaxnreg: Annotated[str, BeforeValidator(_registers)] = Field(
        "auto", description="registers of producer/consumer warps (40/232), none, or auto"
    )
    wgmma_depth: Annotated[int, Field(ge=0, le=8)] | None = Field(
        None, description="groups that wgmma.wait_group leaves in flight"
    )
    refill: Literal["before_math", "after_math"] | None = Field(
        None, description="multistage only: whether a k-step's next load is issued before or after its math"
    )

    # ------------------------------------------------------------------------------------------ defaults

    @property
    def copy_kind(self) -> str:
        """``cp_async`` or ``tma`` (``copy`` is a method of pydantic's models)."""
        assert self.copy_ is not None  # resolved
        return self.copy_

    @property
    def element(self) -> DType:
        """Type of A and B."""
        return dtype(self.dtype)

    @property
    def out_element(self) -> DType:
        """Type of C and D."""
        return dtype(self.out_dtype or _OUT_DTYPES[self.dtype])

    @property
    def is_a_k_major(self) -> bool:
        """Whether A is contiguous along K (BLAS letter t)."""
        return self.layout[0] == "t"

    @property
    def is_b_k_major(self) -> bool:
        """Whether B is contiguous along K (BLAS letter n)."""
        return self.layout[1] == "n"

    def resolved(self, gpu: Target) -> GemmParams:
        """All defaults filled in for ``gpu``, and the whole checked.

        Raises:
            KernelError: parameters that do not go together.
        """
        is_hopper = gpu.compute_capability >= 9.0
        changes: dict[str, Any] = {}
        math = self.math or ("fma" if self.dtype == "fp32" else "wgmma" if is_hopper else "mma_sync")
        default_copy = "tma" if is_hopper and math != "fma" and (math == "wgmma" or self.schedule not in (None, "multistage")) else "cp_async"
        copy = self.copy_ or default_copy
        schedule = self.schedule or ("cooperative" if math == "wgmma" and copy == "tma" else "multistage")
        changes.update(math=math, schedule=schedule, out_dtype=self.out_element.name)
        element_bytes = self.element.num_bytes
        tile = self.tile or _default_tile(math, schedule, element_bytes)
        changes["tile"] = tile
        if math == "wgmma":
            consumers = self.consumers or _default_consumers(schedule, tile)
            changes["consumers"] = consumers
        else:
            changes["warps"] = self.warps or (2, 2)
        if self.wgmma_depth is None:
            changes["wgmma_depth"] = 0 if math != "wgmma" or schedule == "multistage" else 1
        if self.refill is None:
            changes["refill"] = "after_math" if math == "wgmma" else "before_math"
        if self.persistent is None:
            changes["persistent"] = schedule == "pingpong"
        if self.swizzle is None:
            changes["swizzle"] = _widest_swizzle(self, tile)
        if self.epilogue is None:
            changes["epilogue"] = "direct"
        if self.setmaxnreg == "auto":
            many = schedule in ("cooperative", "pingpong")
            changes["setmaxnreg"] = {2: "40/232", 3: "32/160"}.get(changes.get("consumers") or 0, "none") if many else "none"
        params = self.model_copy(update={**changes, "copy_": copy})
        if params.stages is None:
            from gpusim.kernel_models.gemm.kernel import most_stages

            params = params.model_copy(update={"stages": max(1, min(4, most_stages(params, gpu)))})
        _check(params)
        return params

    def launch(self, gpu: Target) -> Launch:
        """The kernel on ``gpu``.

        Raises:
            KernelError: parameters that no kernel can have.
            LaunchError: a kernel that this GPU cannot hold.
        """
        from gpusim.kernel_models.gemm.kernel import gemm_launch

        return gemm_launch(self.resolved(gpu), gpu)

    def as_options(self) -> Mapping[str, Any]:
        """Every parameter as the command line spells it, in its order."""
        options: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = "x".join(str(part) for part in value)
            options[name.rstrip("_")] = value
        return options


_OUT_DTYPES = {"bf16": "bf16", "fp16": "fp16", "tf32": "fp32", "fp8": "bf16", "int8": "int32", "fp32": "fp32"}


def _default_tile(math: str, schedule: str, element_bytes: int) -> tuple[int, int, int]:
    k = 128 // element_bytes
    if math == "wgmma":
        return (128, 256, k) if schedule == "cooperative" else (64, 256, k) if schedule == "pingpong" else (128, 128, k)
    if math == "mma_sync":
        return (128, 128, k // 2)
    return (128, 128, 16)


def _default_consumers(schedule: str, tile: tuple[int, int, int]) -> int:
    if schedule in ("cooperative", "pingpong"):
        return 2
    if schedule == "multistage" and tile[0] >= 128:
        return 2
    return 1


def _widest_swizzle(params: GemmParams, tile: tuple[int, int, int]) -> str:
    rows = []
    for is_k_major, extent in ((params.is_a_k_major, tile[0]), (params.is_b_k_major, tile[1])):
        rows.append((tile[2] if is_k_major else extent) * params.element.num_bytes)
    for mode in ("128B", "64B", "32B"):
        if all(row % span_bytes(mode) == 0 for row in rows):
            return mode
    return "none"


def _check(params: GemmParams) -> None:
    """Refuse what does not go together, in one sentence that names the flag."""
    assert params.tile is not None and params.stages is not None and params.schedule is not None  # resolved
    tile_m, tile_n, tile_k = params.tile
    schedule, math, copy = params.schedule, params.math, params.copy_
    if params.math == "fma" and params.dtype != "fp32":
        raise KernelError(f"--math fma: multiplies fp32, --dtype is {params.dtype}; use --math mma_sync or wgmma")
    if params.dtype == "fp32" and math != "fma":
        raise KernelError(f"--dtype fp32: {math} does not take fp32; use --math fma, or --dtype tf32")
    if schedule != "multistage" and math != "wgmma":
        raise KernelError(f"--schedule {schedule}: its consumers run wgmma, --math is {math}; use --schedule multistage")
    if math == "fma" and copy == "tma":
        raise KernelError("--copy tma: the fma kernel loads by cp.async; use --copy cp_async")
    if params.persistent and schedule == "multistage":
        raise KernelError("--persistent: multistage runs one tile a CTA; use --schedule warp_specialized or cooperative")
    if schedule == "pingpong" and not params.persistent:
        raise KernelError("--no-persistent: pingpong's consumers take turns at the tiles of one CTA; use --persistent")
    size = params.cluster[0] * params.cluster[1]
    if size > 16:
        raise KernelError(f"--cluster {params.cluster[0]}x{params.cluster[1]}: {size} CTAs, a cluster has at most 16; use 2x1")
    if size > 1 and (copy != "tma" or schedule == "multistage"):
        raise KernelError(
            f"--cluster {params.cluster[0]}x{params.cluster[1]}: operands are multicast by TMA from a producer warp; "
            f"use --copy tma --schedule cooperative"
        )
    if schedule != "multistage" and copy == "cp_async" and size > 1:
        raise KernelError("--cluster: cp.async cannot multicast; use --copy tma")
    if size > 1:
        for extent, ranks, name in ((tile_n, params.cluster[0], "N"), (tile_m, params.cluster[1], "M")):
            if extent % (8 * ranks):
                raise KernelError(
                    f"--cluster: {ranks} CTAs share {extent} rows of the operand along {name}, wants a multiple of "
                    f"{8 * ranks}; use {nearest_multiple(extent, 8 * ranks)}"
                )
    if params.split_k > 1 and params.persistent:
        raise KernelError("--split-k: the parts of a tile are CTAs of their own; use --no-persistent")
    k_step = 32 // params.element.num_bytes if math != "fma" else 1
    if tile_k % k_step:
        raise KernelError(
            f"--tile: K is {tile_k}, {math} on {params.dtype} takes multiples of {k_step}; "
            f"use {nearest_multiple(tile_k, k_step)}"
        )
    if -(-params.k // tile_k) < params.split_k:
        raise KernelError(
            f"--split-k {params.split_k}: K = {params.k} has {-(-params.k // tile_k)} steps of {tile_k}; use fewer parts"
        )
    if not params.element.bits == 16 and (not params.is_a_k_major or not params.is_b_k_major) and math != "fma":
        raise KernelError(f"--layout {params.layout}: {params.dtype} operands must be K-contiguous; use --layout tn")
    if math == "wgmma":
        _check_wgmma(params)
    else:
        _check_warps(params)
    if params.epilogue == "tma_store" and copy != "tma":
        raise KernelError("--epilogue tma_store: this kernel has no tensor maps (--copy cp_async); use --epilogue smem")
    if params.split_k > 1 and params.epilogue != "direct":
        raise KernelError(f"--epilogue {params.epilogue}: split-K parts leave as fp32 from registers; use --epilogue direct")


def _check_wgmma(params: GemmParams) -> None:
    assert params.tile is not None and params.consumers is not None and params.stages is not None  # resolved
    assert params.wgmma_depth is not None  # resolved
    tile_m, tile_n, _ = params.tile
    consumers, schedule = params.consumers, params.schedule
    wanted = {"warp_specialized": (1,), "cooperative": (2, 3), "pingpong": (2,), "multistage": (1, 2, 3)}[schedule or ""]
    if consumers not in wanted:
        counts = " or ".join(str(count) for count in wanted)
        raise KernelError(f"--consumers {consumers}: {schedule} has {counts} of them; use --consumers {wanted[0]}")
    ways_m = consumers if params.split == "m" and schedule != "pingpong" else 1
    ways_n = consumers if params.split == "n" and schedule != "pingpong" else 1
    if tile_m % (64 * ways_m):
        raise KernelError(
            f"--tile: M is {tile_m}, {ways_m} warpgroup{'s' if ways_m > 1 else ''} of wgmma take multiples of "
            f"{64 * ways_m}; use {nearest_multiple(tile_m, 64 * ways_m)}"
        )
    share = tile_n // ways_n
    legal = legal_wgmma_n(params.element)
    if tile_n % ways_n or not any(share % n == 0 for n in legal):
        raise KernelError(
            f"--tile: N is {tile_n}, wgmma on {params.dtype} takes multiples of {min(legal) * ways_n}; "
            f"use {nearest_multiple(tile_n, min(legal) * ways_n)}"
        )
    if params.warps is not None:
        raise KernelError("--warps: wgmma is issued by warpgroups; use --consumers")
    if schedule == "multistage" and params.stages > 1 and params.wgmma_depth > params.stages - 2 and params.wgmma_depth:
        raise KernelError(
            f"--wgmma-depth {params.wgmma_depth}: with {params.stages} stages no slot would be free to load into; "
            f"use at most {max(0, params.stages - 2)}"
        )
    if schedule != "multistage" and params.wgmma_depth >= params.stages and params.wgmma_depth:
        raise KernelError(
            f"--wgmma-depth {params.wgmma_depth}: with {params.stages} stages no slot is ever given back; "
            f"use at most {params.stages - 1}"
        )


def _check_warps(params: GemmParams) -> None:
    assert params.tile is not None and params.warps is not None  # resolved
    tile_m, tile_n, _ = params.tile
    warps_m, warps_n = params.warps
    if params.consumers is not None:
        raise KernelError(f"--consumers: {params.math} is issued by warps; use --warps")
    if warps_m * warps_n > 32:
        raise KernelError(f"--warps {warps_m}x{warps_n}: {warps_m * warps_n} warps, a CTA has at most 32; use 2x4")
    if params.math == "mma_sync":
        unit_m, unit_n = 16 * warps_m, 8 * warps_n
    else:
        unit_m, unit_n = 4 * 4 * warps_m, 8 * 4 * warps_n
    for extent, unit, name in ((tile_m, unit_m, "M"), (tile_n, unit_n, "N")):
        if extent % unit:
            raise KernelError(
                f"--tile: {name} is {extent}, {params.math} with --warps {warps_m}x{warps_n} takes multiples of {unit}; "
                f"use {nearest_multiple(extent, unit)}"
            )
