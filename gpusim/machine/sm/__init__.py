"""What is inside an SM and is no memory.

In: the GPU's description, work in instructions. Out: cycles, counters. Knows no kernels.
"""

from gpusim.machine.sm.instruction_cache import InstructionCacheSpec
from gpusim.machine.sm.mbarrier import MbarrierSpec
from gpusim.machine.sm.tensor_core import TensorCoreSpec
from gpusim.machine.sm.warp_scheduler import WarpSchedulerSpec

SM_KINDS: dict[str, type] = {
    "warp_scheduler": WarpSchedulerSpec,
    "tensor_core": TensorCoreSpec,
    "mbarrier": MbarrierSpec,
    "instruction_cache": InstructionCacheSpec,
}
"""Which Spec a configuration's ``kind`` names."""

__all__ = ["SM_KINDS"]
