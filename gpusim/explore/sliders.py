"""Sliders of the explorer: GPU parameters that a page changes in a packed launch.

In: a planned and traced launch. Out: the words of its buffer that a slider changes, for each of its stops. They are found by
packing the launch again for each scaled GPU, so that no page contains a formula of the packing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from gpusim.machine.config import GpuSpec
from gpusim.program.programs import Programs
from gpusim.simulate.pack import pack
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.settings import Settings
from gpusim.units import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """A factor on some GPU parameters that neither a launch's programs nor its plan depend on."""

    label: str
    """Label of the field."""
    word: str
    """Short name of the scaled quantity."""
    least: float
    most: float
    step: float
    numbers: Mapping[str, tuple[str, ...]]
    """Names of the parameters, by component of the GPU."""

    @property
    def stops(self) -> list[float]:
        """Factors that the slider may have."""
        return [self.least + idx * self.step for idx in range(round((self.most - self.least) / self.step) + 1)]

    @property
    def hint(self) -> str:
        """Names of the parameters, as in a GPU's description."""
        return ", ".join(f"{part}.{name}" for part, names in self.numbers.items() for name in names)


SLIDERS: Mapping[str, Slider] = MappingProxyType({
    "latency": Slider(
        label="Memory latency, times the GPU's", word="latency", least=0.5, most=8.0, step=0.5,
        numbers={"hbm": ("latency_ns",), "l2": ("near_latency_cycles", "far_latency_cycles")},
    ),
    "hbm_bandwidth": Slider(
        label="HBM bandwidth, times the GPU's", word="HBM bandwidth", least=0.25, most=2.0, step=0.25,
        numbers={"hbm": (
            "peak_gb_per_s", "sustained_read_gb_per_s", "sustained_write_gb_per_s", "channel_gb_per_s", "sm_gb_per_s",
        )},
    ),
    "l2_bandwidth": Slider(
        label="L2 bandwidth, times the GPU's", word="L2 bandwidth", least=0.25, most=2.0, step=0.25,
        numbers={
            "l2": ("slice_bytes_per_cycle", "fabric_bytes_per_cycle"),
            "xbar": ("gpc_read_bytes_per_cycle", "gpc_write_bytes_per_cycle"),
        },
    ),
})  # fmt: skip
"""Sliders by the name of the form's field. No word of a buffer depends on two of them."""


def scaled(gpu: GpuSpec, factors: Mapping[str, float]) -> GpuSpec:
    """``gpu`` with the parameters of each slider times its factor."""
    for slider, factor in factors.items():
        for part, names in SLIDERS[slider].numbers.items() if factor != 1.0 else ():
            spec = getattr(gpu, part)
            gpu = replace(gpu, **{part: replace(spec, **{name: getattr(spec, name) * factor for name in names})})
    return gpu


def changed_words(slider: str, plan: LaunchPlan, programs: Programs, clock: Clock, settings: Settings) -> dict[str, Any]:
    """Changes of ``slider`` in a packed launch: indices of 8-byte words, and their contents at each stop."""
    stops = SLIDERS[slider].stops
    gpus = [scaled(plan.gpu, {slider: stop}) for stop in stops]
    packed = [pack(replace(plan, gpu=gpu), programs, clock, settings) for gpu in gpus]
    words = np.array([np.frombuffer(buffer, dtype="<u8") for buffer in packed])
    places = np.flatnonzero((words != words[0]).any(axis=0))
    return {
        "word": SLIDERS[slider].word, "stops": [f"{stop:g}" for stop in stops], "places": places.tolist(),
        "words": b64encode(np.ascontiguousarray(words[:, places]).tobytes()).decode(),
    }
