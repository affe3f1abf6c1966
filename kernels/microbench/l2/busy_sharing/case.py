"""SMs that read the same lines, one a little after the other, while others keep L2 busy: what is read twice?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gpusim.evidence.cases.case import Case, Fitted, Group, KernelLaunch, Output, Outputs, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.tile_walk import grid_include, shot_quantiles, sum_of_words

NUM_CTAS = 132
"""One an SM of the H200; where SMs have other numbers the launch gives itself up."""
NUM_THREADS = 32
SMEM_BYTES = 200 * 1024
NUM_SHOTS, NUM_ROUNDS, MOST_READERS = 96, 64, 8
PERIOD_CYCLES = 9000
"""From shot to shot: more than the longest wait behind 64 KiB of a reader's own where all SMs have 128 KiB under way."""
SLOT_BYTES = 32768
LOADS: tuple[dict[str, Any], ...] = (
    {"num_slots": 0}, {"num_slots": 2, "gap_cycles": 3000}, {"num_slots": 2, "gap_cycles": 1500},
    {"num_slots": 2, "gap_cycles": 1050}, {"num_slots": 1}, {"num_slots": 2}, {"num_slots": 3}, {"num_slots": 5},
)  # fmt: skip
"""What each of all other SMs keeps under way, and at what pace it asks for it: from nothing to more than L2 gives."""
FLAG_WORDS = 32 + 32 + 64 + 256
OF_ONE_GPC = (0, 1, 16, 17, 32, 33, 48, 49)
"""SMs that merge with SM 0: kernels/line_sharing."""
EVEN_SMS = 112
"""SMs below that are of eight GPCs in turn, a pair of each."""
SKEWS = (0, 50, 100, 200, 400, 800, 1600, 3200)
QUEUED = 1.2
"""Shots that take so many times as long as on an idle machine wait for their turn."""
READ, CAME = "lts__t_sectors_srcunit_tex_op_read.sum", "l1tex__m_xbar2l1tex_read_bytes.sum"
METRICS = (READ, CAME, "lts__t_requests_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_ltcfabric.sum")


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    sms: str
    skew_cycles: int
    shot_bytes: int = 4096
    ahead_bytes: int = 0
    who_loads: str = "all"
    num_slots: int = 0
    gap_cycles: int = 0
    kernel: str = "busy"


def config_of(sms: Sequence[int], skew: int, **columns: Any) -> Config:
    """Config of readers and their skew."""
    return Config(sms=" ".join(map(str, sms)), skew_cycles=skew, **columns)


def loaded() -> list[Config]:
    """Pairs of a TPC (which calibrate) and of a GPC by skew, by what all other SMs have under way."""
    return [config_of(pair, skew, **load) for load in LOADS for skew in SKEWS for pair in ((0, 1), (0, 16))]


def whose() -> list[Config]:
    """The load is by SMs of the readers' GPC alone, or by those of all others."""
    return [
        config_of((0, 16), skew, who_loads=who, num_slots=each)
        for who in ("gpc", "others") for each in (2, 5) for skew in SKEWS[:6]
    ]  # fmt: skip


def ahead() -> list[Config]:
    """Readers have asked for lines of their own right before."""
    return [
        config_of((0, 16), skew, ahead_bytes=own, num_slots=each)
        for own in (16384, 65536) for each in (0, 2, 5) for skew in SKEWS
    ]  # fmt: skip


def sizes() -> list[Config]:
    """Shots of other sizes."""
    return [
        config_of((0, 16), skew, shot_bytes=size, num_slots=each)
        for size, each, skew in product((512, 1024, 16384, 32768), (0, 2, 5), (0, 100, 400, 1600))
    ]  # fmt: skip


def readers() -> list[Config]:
    """Eight of a GPC, or eight of all over the chip, which cannot merge."""
    return [
        config_of(sms, skew, num_slots=each)
        for sms in (OF_ONE_GPC[:4], OF_ONE_GPC, tuple(range(0, 16, 2))) for each in (0, 2, 5) for skew in (0, 25, 100)
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
def readers_of(config: Config) -> list[int]:
    """SMs that read."""
    return [int(text) for text in config.sms.split()]


def loading_sms(config: Config) -> list[int]:
    """SMs that keep L2 busy.

    >>> loading_sms(config_of((0, 16), 0, who_loads="gpc", num_slots=1))
    [1, 17, 32, 33, 48, 49, 64, 65, 80, 81, 96, 97]
    """
    if config.num_slots == 0:
        return []
    who, mine = config.who_loads, readers_of(config)
    of_who = {
        "all": range(NUM_CTAS), "gpc": [sm for sm in range(EVEN_SMS) if sm % 16 < 2],
        "others": [sm for sm in range(EVEN_SMS) if sm % 16 >= 2],
    }  # fmt: skip
    return [sm for sm in of_who[who] if sm not in mine]


def launch(config: Config) -> KernelLaunch:
    """The same launch under the profiler as without."""
    sms = readers_of(config)
    bits = [0] * 5
    for sm in loading_sms(config):
        bits[sm // 32] |= 1 << sm % 32
    plan = [
        *(sms + [0xFFFFFFFF] * MOST_READERS)[:MOST_READERS], len(sms), NUM_SHOTS, config.shot_bytes,
        config.ahead_bytes, config.skew_cycles, PERIOD_CYCLES + (len(sms) - 1) * config.skew_cycles,
        NUM_ROUNDS, config.num_slots, config.gap_cycles, *bits,
    ]  # fmt: skip
    return KernelLaunch(
        kernel="busy",
        arguments=(
            by_value(np.array(plan, dtype="<u4")), Output("flags", np.zeros(FLAG_WORDS, dtype="<u4")),
            Output("shots", np.full((len(sms), NUM_SHOTS, 2), -1, dtype="<i4")),
            Output("told", np.full((len(sms), 4), -1, dtype="<i8")), Output("loaded", np.zeros((NUM_CTAS, 2), dtype="<u4")),
        ),
        grid=(NUM_CTAS, 1, 1), block=(NUM_THREADS, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Waits of the first, second and last reader, how far apart their shots were asked for and came, what loads got."""
    wrong_if(outputs["flags"][1], "a wait was given up: an SM that is named has no CTA, or a copy never came")
    wanted = sum_of_words(NUM_SHOTS * config.shot_bytes)
    for (sm, checksum, _, _), asked in zip(outputs["told"].tolist(), readers_of(config), strict=True):
        wrong_if(sm != asked, f"a reader was on SM {sm}, not on {asked}")
        wrong_if(checksum % 2**32 != wanted, f"the reader on SM {sm} read words that sum up to {checksum}, not {wanted}")
    late, wait = (outputs["shots"][:, :, idx].astype(np.int64) for idx in range(2))
    wrong_if((wait <= 0).any(), "a shot came in no time, or not at all")
    skews = config.skew_cycles + late[1] - late[0]
    values = {
        **shot_quantiles("first", wait[0]), **shot_quantiles("second", wait[1]), **shot_quantiles("last", wait[-1]),
        **shot_quantiles("skew", skews), **shot_quantiles("apart", skews + wait[1] - wait[0]),
        "drift_cycles": float(outputs["told"][:, 2].max()), "load_bytes_per_cycle": 0.0,
    }  # fmt: skip
    sms = loading_sms(config)
    if sms:
        num_slots, cycles = outputs["loaded"][sms].T.astype(np.float64)
        wrong_if(not cycles.all(), "an SM that was to load has not")
        values["load_bytes_per_cycle"] = float((num_slots * SLOT_BYTES / cycles).mean())
    return values


def merged_share(row: Mapping[str, str]) -> float | None:
    """Lines that came and that no slice read, of those that readers asked for: none at 0, all but the first's at 1."""
    if not row.get(READ) or not row.get(CAME):
        return None
    others = len(readers_of(Config.of(row))) - 1
    return (float(row[CAME]) - float(row[READ]) * 32) / (others * NUM_SHOTS * int(row["shot_bytes"]))


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What of a shot's wait for its turn most of its lines wait, so that they can be joined for as long."""
    series: dict[tuple[str, ...], list[tuple[float, float, float]]] = {}
    for row in rows:
        share = merged_share(row)
        if row["group"] == "loaded" and share is not None and row.get("skew_p50_cycles"):
            key = row["sms"], row["num_slots"], row["gap_cycles"]
            series.setdefault(key, []).append((float(row["skew_p50_cycles"]), share, float(row["first_p50_cycles"])))
    ends: dict[tuple[str, ...], tuple[float, float]] = {}
    for key, points in series.items():
        skews, shares, waits = np.array(sorted(points)).T
        last = shares[-1]  # what else merges: the loads' own polls of flags
        ends[key] = float(np.interp(-0.5, last - np.minimum.accumulate(shares), skews)), float(np.median(waits))
    found = []
    for (sms, slots, _), (end, wait) in ends.items():
        idle_end, idle_wait = ends.get((sms, "0", "0"), (0.0, 0.0))
        if slots != "0" and idle_wait and wait > QUEUED * idle_wait:
            found.append((end - idle_end) / (wait - idle_wait))
    how = "skew at which half of the lines are read twice, less the same without loads, over what shots wait longer, median"
    return Fitted.median("xbar.coalesce_wait_fraction", found, how)


HOPPER = (9, 0)
CASE = Case(
    name="busy_sharing",
    question="SMs that read the same lines, one a little after the other, while others keep L2 busy: what is read twice?",
    config_type=Config,
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=3, least_capability=HOPPER, num_sms=132)
        for name, configs in (("loaded", loaded), ("whose", whose), ("ahead", ahead), ("sizes", sizes), ("readers", readers))
    },
    launch=launch, check=check,
    values={
        **{
            f"{name}_p{pct}_cycles": f"SM cycles {text}, P{pct} of all shots" for pct in (10, 50, 90)
            for name, text in (
                ("first", "from request to last byte of the first reader"), ("second", "of the second"),
                ("last", "of the last"), ("skew", "from the first to the second reader's request"),
                ("apart", "from the first to the second's last byte"),
            )
        },
        "drift_cycles": "largest change of a reader's clock against the first one's between two comparisons",
        "load_bytes_per_cycle": "what an SM that loads gets, mean",
    },
    derived={"merged_share": merged_share}, fit=fit, includes=grid_include,
)  # fmt: skip
