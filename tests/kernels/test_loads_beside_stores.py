"""loads_beside_stores: what is launched, what is refused, that loops hold what they should, what the twin answers."""

from __future__ import annotations

import sys
from math import log
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import Config, Output, WrongAnswer, load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.validate.calibrate import halves
from gpusim.machine.config import load_gpu

from .conftest import Sass

CASE = load_case("loads_beside_stores")
case = sys.modules[CASE.launch.__module__]
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
KINDS = ("none", *case.KINDS)
TABLE = kernels_dir().parent / "validation" / "measured" / "h100_sxm" / "loads_beside_stores.csv"
FITTED = ("xbar.line_request_bytes", "xbar.request_interval_packets", "xbar.request_wait_per_efold_fraction")
LOST = 7
"""Copies, or loads, of which an SM issues more than 100."""


def outputs_of(config: Config) -> dict[str, np.ndarray[Any, Any]]:
    """What a launch must leave in which an SM makes 100 reads, and a warp 200 stores, in 80,000 cycles."""
    arrays = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    told = arrays["told"]
    told[:] = 0
    told[:, 0] = np.arange(132)[::-1]
    told[:, 1] = [config.stores(sm) for sm in told[:, 0].tolist()]
    if config.copy_bytes:
        told[:, 2] = 100 + LOST + np.arange(132)
        told[:, 3] = case.checksums(config, told[:, 2].astype(np.int64))
        told[:, 4:6] = 100, 80_000
    told[told[:, 1] == 1, 6::2], told[told[:, 1] == 1, 7::2] = 200, 80_000
    offsets = np.concatenate([start + np.arange(0, size, 4) for start, size in case.matrix_of(config).windows])
    matrix = np.full(len(offsets), case.NOBODY, dtype="<u4")
    if config.kind != "none":
        ctas = offsets // (case.STORE_WARPS * case.WARP_BYTES) if config.kind == "lines" else np.zeros_like(offsets)
        is_stored = told[ctas, 1] == 1 if config.kind == "lines" else np.ones(len(offsets), dtype=bool)
        matrix[is_stored] = case.storing_threads(config, offsets)[is_stored]
    return {**arrays, "matrix": matrix.view(np.uint8)}


def test_configs_are_the_same_every_time_and_fit_into_an_sm() -> None:
    assert {group: len(configs) for group, configs in CONFIGS.items()} == {
        "alone": 12, "boxes": 28, "rings": 16, "paced": 48, "some": 32, "chases": 4,
    }  # fmt: skip
    for group, configs in CONFIGS.items():
        assert CASE.configs(group, 7) == configs
        for config in configs:
            assert config.num_stages * config.copy_bytes <= case.SMEM_BYTES
            assert case.OWN_BYTES % config.copy_bytes == 0  # no copy leaves the CTA's own
            assert CASE.launch(config, False).smem_bytes == case.SMEM_BYTES


@pytest.mark.parametrize("kind", case.KINDS)
def test_each_byte_of_a_tile_or_of_a_warps_line_is_stored_once(kind: str) -> None:
    twin = case.Twin(case.config_of(kind), load_gpu("h100_sxm"))
    config, offsets = twin.config, twin.addresses()
    assert offsets.size // 32 == case.STORE_WARPS * twin.num_pairs
    first = offsets[..., None] + np.arange(config.lane_bytes)
    threads = case.storing_threads(config, offsets)
    assert (threads == 32 * np.arange(case.STORE_WARPS)[:, None, None] + np.arange(32)).all()
    if kind == "lines":
        rows = case.WARP_BYTES * np.arange(case.STORE_WARPS)[:, None] + np.arange(512)
    else:
        rows = case.PITCH_BYTES * np.arange(case.TILE_ROWS)[:, None] + np.arange(4 * config.lane_bytes)
    assert np.sort(first.reshape(-1)).tolist() == np.sort(rows.reshape(-1)).tolist()
    lines = {tuple(each) for each in np.sort(offsets // 128, axis=-1).reshape(-1, 32).tolist()}
    assert {len(set(each)) for each in lines} == {config.packets}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [{}, {"every": 8}, {"num_stages": 3}, case.CHASE, {"copy_bytes": 128}], ids=str)
def test_right_answers_pass(kind: str, columns: dict[str, int]) -> None:
    config = case.config_of(kind, **columns)
    found = CASE.check(config, outputs_of(config))
    assert set(found) <= set(CASE.values)
    assert found["read_cycles"] == 800 * max(1, config.num_stages)
    if kind == "none":
        assert "cycles_per_packet" not in found
    else:
        assert found["cycles_per_packet"] == pytest.approx(80_000 / 200 / 8 / (4 if kind == "lines" else 8))
    assert ("other_read_cycles" in found) == (kind != "none" and config.every > 1)


@pytest.mark.parametrize("columns", [{"every": 2}, case.CHASE], ids=str)
@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("flags", 1, 1, "given up"), ("told", (3, 0), 0, "one SM"), ("told", (3, 1), 7, "where others"),
        ("told", (3, 2), 7, "other bytes"), ("told", (3, 3), 7, "other bytes"), ("told", (3, 5), 0, "stood still"),
        ("told", (3, 6), 0, "stood still"), ("matrix", 0, 77, "another thread"),
    ],
)  # fmt: skip
def test_wrong_answers_are_refused(columns: dict[str, int], name: str, place: Any, value: int, said: str) -> None:
    config = case.config_of("8", **columns)
    outputs = outputs_of(config)
    outputs[name][place] = value
    with pytest.raises(WrongAnswer, match=said):
        CASE.check(config, outputs)


def test_words_that_are_missing_or_should_not_be_there_are_refused() -> None:
    for kind, every, cta, said in (("4", 1, 0, "never stored"), ("lines", 2, 0, "should not"), ("none", 1, 0, "by nobody")):
        config = case.config_of(kind, every=every)
        outputs = outputs_of(config)
        words = outputs["matrix"].view("<u4")
        words[cta] = case.NOBODY if kind == "4" else 0
        with pytest.raises(WrongAnswer, match=said):
            CASE.check(config, outputs)


def test_the_chase_comes_to_every_line_and_its_words_say_where_it_goes() -> None:
    own, at, seen = case.own_words()[5], 0, set()
    for num in range(1, case.OWN_BYTES // 128 + 1):
        at = int(own[at // 4])
        seen.add(at)
        if num == 9:
            config = case.config_of("none", **case.CHASE)
            assert case.checksums(config, np.array([9])).tolist() == [at]
    assert len(seen) == case.OWN_BYTES // 128
    assert not (case.own_words() & 1).any()


def test_a_rings_sum_is_that_of_the_last_copies_words() -> None:
    config = case.config_of("none", num_stages=3)
    last = {stage: max(idx for idx in range(11) if idx % 3 == stage) for stage in range(3)}
    words = [case.own_words()[0, idx % 4 * 4096 : (idx % 4 + 1) * 4096] for _, idx in sorted(last.items())]
    total = sum(int(word) * (2 * idx + 1) for idx, word in enumerate(np.concatenate(words)))
    assert case.checksums(config, np.full(132, 11))[0] == total % 2**32


def test_warps_store_and_a_lane_copies_in_loops(sass: Sass) -> None:
    kernels = sass("loads_beside_stores", "sm_90a")
    assert set(kernels) == {f"beside_{kind}" for kind in KINDS}
    for kind in case.KINDS:
        kernel = kernels[f"beside_{kind}"]
        assert kernel.num_spills == 0
        width = "STG.E" + {4: "", 8: ".64", 16: ".128"}[16 if kind == "lines" else int(kind)]
        loops = [[item.opcode for item in loop.instructions] for loop in kernel.loops]
        stores = [names for names in loops if names.count(width) >= 8 and not any("CLOCK" in name for name in names)]
        assert stores, kind
        assert any("UBLKCP.S.G" in names and any(name.startswith("SYNCS.PHASECHK") for name in names) for names in loops)


def test_the_twin_keeps_a_pace_and_stores_slow_reads_down() -> None:
    gpu = load_gpu("h100_sxm")
    found = {
        name: CASE.predict(case.config_of(kind, **columns), gpu)
        for name, kind, columns in (
            ("alone", "none", {}), ("beside", "4", {}), ("paced", "4", {"pace": 768}), ("some", "4", {"every": 8}),
        )
    }  # fmt: skip
    assert set(found["alone"]) == {"read_cycles"}
    assert found["paced"]["cycles_per_packet"] == pytest.approx(768 / (8 * 8), rel=0.02)
    assert found["beside"]["cycles_per_packet"] < 768 / (8 * 8)
    assert found["beside"]["read_cycles"] > 2.0 * found["alone"]["read_cycles"]
    assert found["some"]["other_read_cycles"] < 0.8 * found["some"]["read_cycles"]


def test_where_few_sms_store_windows_may_hold_nothing() -> None:
    """Of lines, whose parts are each an SM's own."""
    config = case.config_of("lines", every=8)
    num_bytes = sum(size for _, size in case.matrix_of(config).windows)
    nobody = np.full(num_bytes // 4, case.NOBODY, dtype="<u4").view(np.uint8)
    is_storing = np.zeros(case.NUM_CTAS, dtype=bool)
    case.check_stores(config, nobody, is_storing)
    with pytest.raises(WrongAnswer, match="never stored"):
        case.check_stores(config, nobody, ~is_storing)


def test_the_fit_finds_what_rows_were_made_with() -> None:
    wait, growth, turns, request = 600.0, 0.3, 1.25, 20.0
    rows = [{**config, "group": "alone", "read_cycles": "500"} for config in CONFIGS["alone"]]
    for config in CONFIGS["boxes"]:
        num = int(config["copy_bytes"]) / 128
        cycles = 500.0 + wait * (1.0 + growth * log(num)) + (num - 1.0) * (4.0 - case.PORT_CYCLES)
        rows.append({**config, "group": "boxes", "read_cycles": str(cycles), "cycles_per_packet": "4"})
    for config in CONFIGS["rings"]:
        num_bytes = case.PACKET_BYTES.get(config["kernel"].removeprefix("beside_"), 64)
        packet = 4.0 + request * 4.0 / num_bytes / turns
        cycles = packet * turns * int(config["num_stages"]) * 128
        rows.append({**config, "group": "rings", "read_cycles": str(cycles), "cycles_per_packet": str(packet)})
    found = {item.parameter: item.value for item in CASE.fit(rows)}
    assert [found[name] for name in FITTED] == pytest.approx([request, turns, growth])


def test_the_calibrating_half_says_what_the_configuration_has() -> None:
    found = {item.parameter: item.value for item in CASE.fit(halves(CASE, Table.read(TABLE))[0])}
    xbar = load_gpu("h100_sxm").xbar
    for name in FITTED:
        assert found[name] == pytest.approx(getattr(xbar, name.removeprefix("xbar.")), rel=1e-3), name


@pytest.mark.parametrize(
    ("kind", "num_stages", "size", "off"),
    [
        ("lines", 1, 16384, 0.12), ("lines", 2, 16384, 0.12), ("lines", 3, 16384, 0.16), ("4", 1, 16384, 0.25),
        ("4", 3, 16384, 0.15),
    ],
)  # fmt: skip
def test_copies_beside_stores_take_what_was_measured(kind: str, num_stages: int, size: int, off: float) -> None:
    """Rows that calibrate nothing; without the wait a lone copy is 70 % too soon."""
    config = case.config_of(kind, num_stages=num_stages, copy_bytes=size)
    row = next(row for row in Table.read(TABLE).rows if all(row[name] == value for name, value in config.items()))
    found = CASE.predict(config, load_gpu("h100_sxm"))["read_cycles"]
    assert found == pytest.approx(float(row["read_cycles"]), rel=off)


def test_gpus_of_other_sms_have_no_answer() -> None:
    assert CASE.predict(case.config_of("4"), load_gpu("h100_pcie")) == {}
