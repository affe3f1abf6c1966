"""The plan of a launch: how many CTAs run at once, what they touch, what memory gives and takes. Nothing is timed.

In: a Launch and a GpuSpec. Out: a LaunchPlan, the same at every SM clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpusim.machine.config import GpuSpec
from gpusim.machine.memory.panels import PanelTraffic
from gpusim.machine.sm.occupancy import Occupancy
from gpusim.simulate.door import check, count_slots, grid_of_persistent, plan_traffic
from gpusim.simulate.uses import Uses
from gpusim.workload.launch import Launch

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """What is known of a launch on a GPU before it runs. A wave is what runs at once."""

    launch: Launch
    gpu: GpuSpec
    """As :func:`gpusim.simulate.ideal.idealize` gives it."""
    is_warm: bool
    """Whether earlier launches have done the same."""
    occupancy: Occupancy
    num_slots: int
    """CTAs that the device holds at once."""
    num_ctas: int
    """CTAs of the grid, the slots' number where it is persistent."""
    uses: Uses
    """What each tile touches."""
    traffic: Mapping[str, PanelTraffic]
    """Bytes below L2, by tensor; empty for a launch without footprints."""

    @property
    def num_at_once(self) -> int:
        """CTAs that run at once."""
        return min(self.num_slots, self.num_ctas)

    @property
    def num_waves(self) -> int:
        """Waves of work tiles that the plan knows; 1 for a launch without footprints."""
        return len(self.miss_bytes_by_wave)

    @cached_property
    def miss_bytes_by_wave(self) -> FloatArray:
        """Bytes from memory, float64[num_waves]."""
        return sum((item.miss_bytes_by_wave for item in self.traffic.values()), np.zeros(1))


def plan_launch(launch: Launch, gpu: GpuSpec, *, is_warm: bool) -> LaunchPlan:
    """Check a launch and plan its traffic.

    >>> from gpusim import GemmParams, load_gpu
    >>> gpu = load_gpu("h200_sxm")
    >>> plan = plan_launch(GemmParams(m=4096, n=4096, k=4096, tile="128x256x64").launch(gpu), gpu, is_warm=False)
    >>> plan.num_at_once, plan.num_waves
    (132, 4)

    Raises:
        LaunchError: the GPU cannot run it.
    """
    held = check(launch, gpu)
    num_slots = count_slots(launch, gpu, held)
    num_ctas = launch.num_ctas or grid_of_persistent(launch, num_slots)
    uses = Uses.of(launch, gpu)
    traffic = plan_traffic(launch, gpu, uses, num_slots=min(num_slots, num_ctas), is_warm=is_warm)
    return LaunchPlan(
        launch=launch, gpu=gpu, is_warm=is_warm, occupancy=held, num_slots=num_slots, num_ctas=num_ctas, uses=uses,
        traffic=traffic,
    )
