"""What does the board draw under tensor work, streams and both, and at what clock, when they go on?"""

from __future__ import annotations

import sys
from typing import Any

from gpusim.evidence.case import Case, Config, Group, Limit, kernels_dir, load_case
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate

POWER_CLOCK = load_case("power_clock")
WORK: Any = sys.modules[POWER_CLOCK.launch.__module__]
"""Its ``case.py``: the same kernel, operands, checks and twin."""
RUN_US = 1000
POWER, CLOCK = "sustained_power_w", "sustained_clock_mhz"


def _config(*, tensor: int = 0, stream: str = "none", stream_duty: int = 0, data: str = "random") -> Config:
    return {
        "kernel": "work", "run_us": str(RUN_US), "tensor_duty": str(tensor), "stream": stream,
        "stream_duty": str(stream_duty), "data": data,
    }  # fmt: skip


def mixes(seed: int) -> list[Config]:
    """Nothing; streams by duty; tensor work by duty; both. Random data and zeros."""
    del seed  # a sweep, the same for every seed
    found = [_config()]
    for data in ("random", "zeros"):
        found += [
            _config(stream=stream, stream_duty=duty, data=data) for stream in ("hbm", "l2") for duty in (25, 50, 75, 100)
        ]
        found += [_config(tensor=duty, data=data) for duty in (12, 25, 50, 75, 100)]
    return found + [
        _config(tensor=tensor, stream=stream, stream_duty=100) for stream in ("hbm", "l2") for tensor in (12, 25, 50, 100)
    ]


def includes() -> dict[str, str]:
    """The kernel of power_clock, and what it includes."""
    source = (kernels_dir() / "power_clock" / "kernel.cu").read_text(encoding="utf-8")
    return {"work.inc": source, **POWER_CLOCK.includes()}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Power and clock of a few bursts and rounds, as if they went on; nothing for idle SMs, nor without wgmma."""
    is_idle = config["tensor_duty"] == "0" and config["stream"] == "none"
    if is_idle or gpu.device.compute_capability < 9.0 or gpu.tensor_core is None:
        return {}
    result = simulate(
        WORK.twin(config, gpu, gpu.clock.max_mhz), WORK.endless(gpu), clock="sustained", skips=False,
        l2="warm" if config["stream"] == "l2" else "cold", data="zeros" if config["data"] == "zeros" else "random",
    )  # fmt: skip
    return {POWER: result.power_w, CLOCK: result.sm_clock_mhz}


CASE = Case(
    name="board_power",
    question="What does the board draw under tensor work, streams and both, when they go on?",
    columns=POWER_CLOCK.columns,
    groups={"mixes": Group(configs=mixes, rank=4, least_capability=(9, 0), times=("sustained",))},
    launch=POWER_CLOCK.launch,
    check=POWER_CLOCK.check,
    values=POWER_CLOCK.values,
    predict=predict,
    tiers={POWER: 7, CLOCK: 7},
    limits={POWER: Limit(mean_pct=10.0), CLOCK: Limit(worst_pct=4.0)},
    includes=includes,
)
