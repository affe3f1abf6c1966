"""gpusim: how fast a GPU kernel will be, and why, before it is written.

    >>> from gpusim import GemmParams, load_gpu, simulate
    >>> gpu = load_gpu("h200_sxm")
    >>> result = simulate(GemmParams(m=4096, n=4096, k=4096).launch(gpu), gpu)
    >>> result.cycles > 0
    True
"""

from gpusim.errors import DeadlockError, GpusimError, HazardError
from gpusim.kernel_models import KERNEL_MODELS, GemmParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.workload.launch import Buffer, Launch, Mbarrier, NamedBarrier, WarpRole

__all__ = [
    "KERNEL_MODELS",
    "Buffer",
    "DeadlockError",
    "GemmParams",
    "GpuSpec",
    "GpusimError",
    "HazardError",
    "Launch",
    "Mbarrier",
    "NamedBarrier",
    "Result",
    "WarpRole",
    "load_gpu",
    "simulate",
]
