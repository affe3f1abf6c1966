"""Hook for Triton's autotuner: keeps the configurations of a GEMM that the model finds fastest, without a GPU.

In: ``triton.Config`` objects, or any objects with ``kwargs``, ``num_warps`` and ``num_stages``; the kernel's arguments.
Out: the best of them.

Models:

* the tutorial's matrix multiplication: a CTA a tile, in bands of GROUP_M rows of tiles
* operands by pointers (cp.async) or by tensor descriptors (TMA); wgmma where GPU, tile and warps have it, else mma.sync

Ignores:

* registers and code of the compiled kernel, which are estimated

Source: triton-lang/triton, ``triton.autotune``: ``early_config_prune(configs, named_args, **kwargs)``. The loop is that of
``kernels/validation/tile_gemm``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal
from warnings import warn

from gpusim.analysis.trial import Trial
from gpusim.errors import GpusimError, KernelError
from gpusim.kernel_models.gemm import GemmConfig, GemmOptions, resolve
from gpusim.kernel_models.gemm.compatibility import LEAST_CP_ASYNC_BYTES
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES

DTYPES = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "tf32", "float8_e4m3fn": "fp8", "float8e4nv": "fp8", "int8": "int8",
}
"""Types of operands by the last word of the name that torch or Triton has for them."""

BLOCKS = {extent: (f"BLOCK_{extent.upper()}", f"BLOCK_SIZE_{extent.upper()}", f"B{extent.upper()}") for extent in "mnk"}
GROUPS, SPLITS = ("GROUP_M", "GROUP_SIZE_M"), ("SPLIT_K", "SPLITK", "K_SPLIT", "NUM_SPLITS")
"""Names of a kernel's parameters, in any case. Others do not change the prediction."""

WARPGROUP_WARPS, WGMMA_ROWS = 4, 64

Loads = Literal["pointers", "descriptors"]
"""Way of a kernel's operands to shared memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonProblem:
    """A problem of a Triton kernel on a GPU."""

    m: int
    n: int
    k: int
    dtype: str
    gpu: GpuSpec
    loads: Loads = "pointers"

    def cycles(self, config: Any) -> float:
        """Estimated cycles of a configuration; infinite for one that the GPU cannot run."""
        for options in self._options(config):
            try:
                built = resolve(options, self.gpu)
                return _cycles(built, self.gpu)
            except GpusimError:
                continue
        return inf

    def _options(self, config: Any) -> Iterator[GemmOptions]:
        """Options of the kernel that Triton makes of a configuration, the likeliest first.

        Rows that cp.async (or TMA) cannot copy count as padded: plain loads are guessed to cost each the same.
        """
        names = config.kwargs
        tile = tuple(int(_value(names, BLOCKS[extent])) for extent in "mnk")
        split = int(_value(names, SPLITS, 1))
        given: dict[str, Any] = {
            "m": self.m, "n": self.n, "k": self.k, "dtype": self.dtype, "tile": tile, "stages": int(config.num_stages),
            "schedule": "multistage", "raster": "along_n", "swizzle_size": int(_value(names, GROUPS, 1)), "split_k": split,
            "epilogue": "direct" if split > 1 else "smem",
        }  # fmt: skip
        num_warps, features = int(config.num_warps), self.gpu.features
        by_tma = self.loads == "descriptors" and "tma" in features
        copy = {"copy": "tma", "prefetch_tensormap": False} if by_tma else {"copy": "cp_async"}
        asked, least = GemmOptions(**given), CHUNK_BYTES if by_tma else LEAST_CP_ASYNC_BYTES
        if min(asked.copy_bytes, asked.store_bytes if by_tma else CHUNK_BYTES) < least:
            given["alignment"] = max(1, least // asked.element.num_bytes)
        if "wgmma" in features and not num_warps % WARPGROUP_WARPS and tile[0] % WGMMA_ROWS == 0:
            own = {} if by_tma else {"fence": False}
            store = {"epilogue": "tma_store"} if by_tma and split == 1 else {}
            yield GemmOptions(**{
                **given, **copy, **own, **store, "math": "wgmma", "consumer_warpgroups": num_warps // WARPGROUP_WARPS,
                "consumer_split": "m", "prefetch": "after_wait",
            })
        for rows in (count for count in range(num_warps, 0, -1) if num_warps % count == 0):
            yield GemmOptions(**{**given, **copy, "math": "mma_sync", "warps": (rows, num_warps // rows)})


def _cycles(config: GemmConfig, gpu: GpuSpec) -> float:
    trial = Trial.of(config, gpu, is_warm=False)
    return trial.cycles(gpu.clock.max_mhz)[0]


def triton_prune(
    gpu: str | GpuSpec, *, keep: int = 10, sizes: Sequence[str] = ("M", "N", "K"), dtype: str | None = None,
    loads: Loads = "pointers",
) -> dict[str, Callable[..., list[Any]]]:
    """Value for ``prune_configs_by`` of ``triton.autotune``: the ``keep`` best of the kernel's configurations are timed.

    Parameters of the kernel are read under their usual names, in any case.

    * the tile: ``BLOCK_M``, ``BLOCK_SIZE_M`` or ``BM``, and with N and K for M
    * bands of tiles: ``GROUP_M`` or ``GROUP_SIZE_M``
    * parts of K: ``SPLIT_K`` or ``SPLITK``

    Args:
        gpu: a GPU's name, or the result of :func:`gpusim.load_gpu`.
        keep: configurations that are kept, at least one.
        sizes: names of the kernel's arguments with M, N and K.
        dtype: element type of the operands, as in ``gpusim predict gemm``; by default that of the first tensor.
        loads: ``pointers`` (``tl.load``) or ``descriptors`` (``tl.make_tensor_descriptor``).

    Raises:
        KernelError: ``keep`` is below 1, or ``loads`` is unknown; in the hook: a size or the type is unknown.

    Warns:
        UserWarning: the GPU can run none of the configurations. All are kept then, as Triton wants at least one.
    """
    if keep < 1:
        raise KernelError(f"triton_prune: keep is {keep}, wants 1 or more")
    if loads not in ("pointers", "descriptors"):
        raise KernelError(f"triton_prune: loads is {loads!r}, wants pointers or descriptors")
    machine = load_gpu(gpu) if isinstance(gpu, str) else gpu

    def early_config_prune(configs: Sequence[Any], named_args: Mapping[str, Any], **kwargs: Any) -> list[Any]:
        values = {**named_args, **kwargs}
        missing = [name for name in sizes if name not in values]
        if missing:
            raise KernelError(f"triton_prune: the kernel has no argument {missing[0]}; name its sizes with sizes=(...)")
        m, n, k = (int(values[name]) for name in sizes)
        problem = TritonProblem(m=m, n=n, k=k, dtype=dtype or _dtype_of(values), gpu=machine, loads=loads)
        cycles = [problem.cycles(config) for config in configs]
        possible = [(each, config) for each, config in zip(cycles, configs, strict=True) if each < inf]
        if configs and not possible:
            found = f"{machine.name} can run none of the {len(configs)} configurations"
            warn(f"triton_prune: {found}; all are kept", stacklevel=2)
            return list(configs)
        return [config for _, config in sorted(possible, key=lambda pair: pair[0])[:keep]]

    return {"early_config_prune": early_config_prune}


def _dtype_of(values: Mapping[str, Any]) -> str:
    """Element type of the first argument that has one."""
    for value in values.values():
        name = str(getattr(value, "dtype", "")).rpartition(".")[2]
        if name in DTYPES:
            return DTYPES[name]
    known = ", ".join(dict.fromkeys(DTYPES.values()))
    raise KernelError(f"triton_prune: no argument has a known type; give dtype, one of {known}")


def _value(names: Mapping[str, Any], known: Sequence[str], default: int | None = None) -> Any:
    upper = {name.upper(): value for name, value in names.items()}
    for name in known:
        if name in upper:
            return upper[name]
    if default is None:
        raise KernelError(f"triton_prune: a configuration has no {known[0]}, wants it or {' or '.join(known[1:])}")
    return default
