"""Peaks and arithmetic intensities in lessons: bytes and FLOP of a GEMM, bandwidth of each memory level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.errors import KernelError
from gpusim.machine.config import GpuSpec
from gpusim.units import WAVEFRONT_BYTES
from gpusim.workload.dtypes import dtype_in_memory

if TYPE_CHECKING:
    import pandas as pd


def product_intensity(m: int, n: int, k: int, *, dtype: str = "bf16", out_dtype: str = "bf16") -> dict[str, float]:
    """FLOP, bytes and FLOP/byte of D = A B, each matrix moved once between memory and the GPU.

    >>> {name: round(value) for name, value in product_intensity(4096, 4096, 4096).items()}
    {'FLOP': 137438953472, 'bytes': 100663296, 'FLOP/byte': 1365}

    Raises:
        KernelError: an extent is below 1, or there is no such type.
    """
    if min(m, n, k) < 1:
        raise KernelError(f"product: m, n, k are {m}, {n}, {k}: use 1 or more")
    inputs = (m * k + k * n) * dtype_in_memory(dtype).num_bytes
    num_bytes = inputs + m * n * dtype_in_memory(out_dtype).num_bytes
    num_flops = 2 * m * n * k
    return {"FLOP": float(num_flops), "bytes": float(num_bytes), "FLOP/byte": num_flops / num_bytes}


def shared_memory_peak(gpu: GpuSpec, *, sm_clock_mhz: float) -> pd.Series:
    """Peak bandwidth of shared memory: bytes per cycle of an SM, then GB/s of an SM and of the GPU.

    >>> from gpusim import load_gpu
    >>> shared_memory_peak(load_gpu("h200_sxm"), sm_clock_mhz=1980.0).round().tolist()
    [128.0, 253.0, 33454.0]
    """
    import pandas as pd

    per_cycle = gpu.smem.wavefronts_per_cycle * WAVEFRONT_BYTES
    of_sm = per_cycle * sm_clock_mhz / 1e3
    return pd.Series({"B/cycle of an SM": per_cycle, "GB/s of an SM": of_sm, "GB/s of the GPU": of_sm * gpu.num_sms})


def flops_per_cycle(gpu: GpuSpec, tflops: float, *, sm_clock_mhz: float) -> float:
    """FLOP per cycle and SM that a given number of TFLOP/s needs.

    >>> from gpusim import load_gpu
    >>> round(flops_per_cycle(load_gpu("h200_sxm"), 989.4, sm_clock_mhz=1830.0))
    4096
    """
    return tflops * 1e6 / (gpu.num_sms * sm_clock_mhz)


def ridge_flops_per_byte(gpu: GpuSpec, math_class: str = "16bit") -> float:
    """Intensity in FLOP/byte at which the data sheet's arithmetic and the peak DRAM bandwidth take equally long.

    >>> from gpusim import load_gpu
    >>> round(ridge_flops_per_byte(load_gpu("h200_sxm")))
    201

    Raises:
        KernelError: there is no such class of arithmetic.
    """
    peaks = gpu.device.peak_tflops
    if math_class not in peaks:
        raise KernelError(f"ridge: {math_class!r} is unknown on {gpu.name}; known: {', '.join(peaks)}")
    return peaks[math_class] * 1e3 / gpu.hbm.peak_gb_per_s
