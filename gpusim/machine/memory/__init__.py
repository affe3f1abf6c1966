"""The memory hierarchy, from HBM to registers.

In: the GPU's description, requests in bytes. Out: cycles, counters. Knows no kernels.
"""

from gpusim.machine.memory.dsmem import DsmemSpec
from gpusim.machine.memory.hbm import HbmSpec
from gpusim.machine.memory.l1 import L1Spec
from gpusim.machine.memory.l2 import L2Spec
from gpusim.machine.memory.register_file import RegisterFileSpec
from gpusim.machine.memory.smem import SmemSpec
from gpusim.machine.memory.tma import TmaSpec
from gpusim.machine.memory.xbar import XbarSpec

MEMORY_KINDS: dict[str, type] = {
    "hbm": HbmSpec,
    "l2": L2Spec,
    "xbar": XbarSpec,
    "l1": L1Spec,
    "smem": SmemSpec,
    "register_file": RegisterFileSpec,
    "tma": TmaSpec,
    "dsmem": DsmemSpec,
}
"""Which Spec a configuration's ``kind`` names."""

__all__ = ["MEMORY_KINDS"]
