"""What does the board draw under tensor work, streams and both, and at what clock, when they go on?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpusim.evidence.case import Answer, Case, Config, Group, Limit, kernels_dir, load_case
from gpusim.evidence.rows import number_in
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec

POWER_CLOCK = load_case("power_clock")
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


def work_of(row: Mapping[str, str]) -> Activity:
    """What a launch of a row did, at the rates of the one that was checked; arithmetic follows the clock."""
    mhz, run_s = number_in(row, CLOCK), RUN_US * 1e-6
    flops = float(row.get("tflops") or 0.0) * 1e12 * run_s * mhz / number_in(row, "mhz")
    num_bytes = float(row.get("gb_per_s") or 0.0) * 1e9 * run_s
    return Activity(
        cycles=mhz * RUN_US, num_flops=flops, rate_class="16bit", l2_bytes=num_bytes,
        hbm_bytes=num_bytes if row["stream"] == "hbm" else 0.0, busy_fraction=1.0,
    )  # fmt: skip


def predict_row(
    config: Config, row: Mapping[str, str], gpu: GpuSpec, names: Collection[str]
) -> dict[str, Answer]:
    """What the machine's energies say of the work that was done, at the clock that it ran at; for random data or zeros."""
    if POWER not in names or not row.get(POWER):
        return {}
    is_idle = config["tensor_duty"] == "0" and config["stream"] == "none"
    work = Activity(
        cycles=1.0, num_flops=0.0, rate_class="16bit", l2_bytes=0.0, hbm_bytes=0.0, busy_fraction=0.0
    ) if is_idle else work_of(row)  # fmt: skip
    power_w = PowerLimiter(gpu.clock).power_w(work, mhz=number_in(row, CLOCK), data=config["data"])
    return {POWER: Answer(value=power_w)}


CASE = Case(
    name="board_power",
    question="What does the board draw under tensor work, streams and both, when they go on?",
    columns=POWER_CLOCK.columns,
    groups={"mixes": Group(configs=mixes, rank=4, least_capability=(9, 0), times=("sustained",))},
    launch=POWER_CLOCK.launch,
    check=POWER_CLOCK.check,
    values=POWER_CLOCK.values,
    predict_row=predict_row,
    tiers={POWER: 7},
    limits={POWER: Limit(mean_pct=10.0)},
    includes=includes,
)
