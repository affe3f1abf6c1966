"""Copies that are to be measured: drawn alike every time, aligned, of every kind of source, and checked."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from gpusim.evidence.cases.access_patterns import mask_of
from gpusim.evidence.cases.case import load_case
from gpusim.machine.config import load_gpu

CASE = load_case("cp_async_access")
TOY = load_gpu("toy")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def copied(config: dict[str, str]) -> np.ndarray:
    """Shared memory after the copy, lane after lane."""
    size = case.access_bytes(config["kernel"])
    smem = np.full(case.SMEM_BYTES, 0xA5, dtype=np.uint8)
    destinations, sources = ([int(text) for text in config[name].split()] for name in ("addresses", "sources"))
    for lane in np.flatnonzero(mask_of(config["active"])):
        smem[destinations[lane] : destinations[lane] + size] = case.DATA[sources[lane] : sources[lane] + size]
    return smem


def test_places_are_aligned_and_inside() -> None:
    for config in CONFIGS:
        destinations, sources, active = case.lanes_of(typed(config))
        size = case.access_bytes(config["kernel"])
        assert active.any()
        for places, room in ((destinations, case.SMEM_BYTES), (sources, case.SOURCE_BYTES)):
            assert (places % size == 0).all() and places.min() >= 0 and places.max() + size <= room


def test_sixty_copies_a_width_read_side_by_side_and_no_seed_draws_anothers() -> None:
    drawn = CASE.configs("side_by_side", 1)
    assert Counter(config["kernel"] for config in drawn) == dict.fromkeys(case.OPS[:3], 60)
    for config in drawn:
        sources = case.lanes_of(typed(config))[1]
        assert (np.diff(sources) == case.access_bytes(config["kernel"])).all()
    assert drawn == CASE.configs("side_by_side", 1) != CASE.configs("side_by_side", 2)


def test_every_kind_of_source_is_asked_warm_and_cold_and_some_three_times() -> None:
    for group in ("warm", "cold"):
        assert {config["source"] for config in CASE.configs(group, 1)} == set(case.SOURCES)
        assert {config["is_warm"] for config in CASE.configs(group, 1)} == {str(int(group == "warm"))}
    assert set(Counter(config["addresses"] + config["sources"] for config in CASE.configs("again", 1)).values()) >= {3}


def test_copies_through_l1_are_predicted_by_what_they_read_and_write() -> None:
    for config in CONFIGS:
        assert set(CASE.predict(config, TOY)) == (set() if "_cg_" in config["kernel"] else {case.COUNTED})
    apart = next(c for c in CASE.configs("cold", 1) if c["source"] == "spaced_128" and c["active"] == "ffffffff")
    assert CASE.predict(apart, TOY) == {case.COUNTED: 32.0}  # all lanes read the first words of their lines


def test_tiles_are_rows_of_three_widths_in_both_memories() -> None:
    for config in CASE.configs("tiles", 1):
        row_bytes, size = int(config["source"].removeprefix("rows_")), case.access_bytes(config["kernel"])
        sources = case.lanes_of(typed(config))[1]
        per_row = row_bytes // size
        steps = np.diff(sources.reshape(-1, per_row)) if per_row <= 32 else np.diff(sources)
        assert (steps == size).all()
    assert {config["source"] for config in CASE.configs("tiles", 1)} == {"rows_32", "rows_64", "rows_128"}


def test_the_counted_launch_copies_and_nothing_else_but_what_warms_it() -> None:
    for config in CONFIGS[::31]:
        modes = [int(CASE.launch(config, is_counted).arguments[2]) for is_counted in (True, False)]
        warm = case.WARM if config["is_warm"] == "1" else 0
        assert modes == [warm, warm + case.DUMP]
