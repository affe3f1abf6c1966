"""gpusim: how fast a GPU kernel will be, and why, before it is written.

>>> from gpusim import GemmParams, choose, load_gpu, simulate
>>> gpu = load_gpu("h200_sxm")
>>> params = choose(GemmParams(m=1024, n=1024, k=1024), gpu).params  # what a good library would run
>>> result = simulate(params.launch(gpu), gpu)
>>> result.cycles > 0
True
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.analysis.advise import advise
    from gpusim.analysis.choose import choose
    from gpusim.analysis.explain import explain
    from gpusim.analysis.sweep import sweep
    from gpusim.analysis.triton_configs import triton_prune
    from gpusim.errors import DataError, DeadlockError, GpusimError, HazardError
    from gpusim.functional.run import run_functional
    from gpusim.kernel_models import KERNEL_MODELS
    from gpusim.kernel_models.gemm import GemmParams
    from gpusim.machine.config import GpuSpec, load_gpu
    from gpusim.simulate.result import Result
    from gpusim.simulate.run import simulate
    from gpusim.workload.gmem.coalescing import coalescing
    from gpusim.workload.launch import Buffer, Launch, Mbarrier, NamedBarrier, WarpRole

__all__ = [
    "KERNEL_MODELS",
    "Buffer",
    "DataError",
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
    "advise",
    "choose",
    "coalescing",
    "explain",
    "load_gpu",
    "run_functional",
    "simulate",
    "sweep",
    "triton_prune",
]

_ROOMS = {
    "gpusim.errors": ("DataError", "DeadlockError", "GpusimError", "HazardError"),
    "gpusim.functional.run": ("run_functional",),
    "gpusim.kernel_models": ("KERNEL_MODELS",),
    "gpusim.kernel_models.gemm": ("GemmParams",),
    "gpusim.machine.config": ("GpuSpec", "load_gpu"),
    "gpusim.simulate.result": ("Result",),
    "gpusim.simulate.run": ("simulate",),
    "gpusim.analysis.advise": ("advise",),
    "gpusim.analysis.choose": ("choose",),
    "gpusim.analysis.explain": ("explain",),
    "gpusim.analysis.sweep": ("sweep",),
    "gpusim.analysis.triton_configs": ("triton_prune",),
    "gpusim.workload.gmem.coalescing": ("coalescing",),
    "gpusim.workload.launch": ("Buffer", "Launch", "Mbarrier", "NamedBarrier", "WarpRole"),
}
"""Where each name of the front door lives; imported when it is first asked for, so that ``gpusim --help`` is quick."""


class _FrontDoor(ModuleType):
    """The package, where a name of the front door wins over a room of the same name (``simulate``)."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Bind ``name``, unless the import of a room would hide a name of the front door."""
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor


def __getattr__(name: str) -> Any:
    """The name ``name`` of the front door."""
    for room, names in _ROOMS.items():
        if name in names:
            value = globals()[name] = getattr(import_module(room), name)
            return value
    raise AttributeError(f"module 'gpusim' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The front door's names."""
    return sorted({*globals(), *__all__})
