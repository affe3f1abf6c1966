"""memory_channels: lists hold each line once, wrong words and crowded SMs are refused, shares are what was put in."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, WrongAnswer, load_case

CASE = load_case("memory_channels")
case = sys.modules[CASE.launch.__module__]
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def outputs(config: Config, times: NDArray[np.uint32]) -> dict[str, NDArray[np.uint32]]:
    """What a right launch leaves."""
    state = np.zeros(case.STATE_WORDS, dtype=np.uint32)
    state[: case.NUM_SMS] = 1
    state[256:].reshape(-1, 4)[: case.NUM_PASSES, 1] = 1
    return {"state": state, "times": times, "sums": case.sums_of_warps(config)}


@pytest.mark.parametrize("config", ALL[::7])
def test_every_pass_asks_for_each_line_once_and_for_no_page_beyond_the_region(config: Config) -> None:
    lists, wanted = case.lists(config), case.lines(config)
    assert len(wanted) * case.LINE_BYTES == int(config["total_kib"]) * 1024
    assert wanted[-1] < int(config["region_mib"]) * case.MIB // case.LINE_BYTES
    assert lists.shape[1] * lists.shape[2] == case.NUM_SMS * case.loads(config)
    for asked in lists[:2]:
        assert (np.sort(asked[asked != case.NONE]) == wanted).all()
    at_once = int(config["kernel"][-1]) * case.NUM_WARPS * case.LINES_PER_LOAD * case.LINE_BYTES
    assert at_once <= case.SMEM_BYTES + 8192


def test_strides_lie_at_equal_distances_and_fill_the_region() -> None:
    for config in CASE.configs("strides", 1):
        begins = case.lines(config)[:: int(config["chunk_bytes"]) // case.LINE_BYTES] * case.LINE_BYTES
        apart = set(np.diff(begins).tolist())
        assert apart == {int(config["region_mib"]) * case.MIB // len(begins)}
        assert apart.pop() % int(config["chunk_bytes"]) == 0 and begins[0] == 0


def test_wrong_words_and_crowded_sms_are_refused() -> None:
    config = case.Config(1024, chunk_bytes=4096)
    right = outputs(config, np.full(case.lists(config).shape[:-1], 100, dtype=np.uint32))
    assert set(CASE.check(config, right)) == set(CASE.values)
    for name, idx, match in (("sums", 5, "other words"), ("state", 3, "spread"), ("state", 257, "meet")):
        wrong = {key: item.copy() for key, item in right.items()}
        wrong[name].reshape(-1)[idx] += 1
        with pytest.raises(WrongAnswer, match=match):
            CASE.check(config, wrong)


def test_what_belongs_to_an_address_is_told_from_what_belongs_to_the_sm_and_to_chance() -> None:
    config = case.Config(4096)
    lists = case.lists(config)
    lines = lists[..., 0].astype(np.int64)
    drawn = np.random.default_rng(5)
    channels = drawn.normal(0.0, 60.0, 1 << 18)[lines * case.LINE_BYTES // 2048 % (1 << 18)]
    of_sms = drawn.normal(0.0, 30.0, case.NUM_SMS)[:, None, None]
    times = 1000.0 + channels + of_sms + drawn.normal(0.0, 60.0, lines.shape)
    values = CASE.check(config, outputs(config, np.round(times).astype(np.uint32)))
    variance = 60.0**2 + 30.0**2 + 60.0**2
    assert values["unit_pct"] == pytest.approx(100.0 * 3600.0 / variance, rel=0.1)
    assert values["sm_pct"] == pytest.approx(100.0 * 900.0 / variance, rel=0.3)
    assert values["lag_512_pct"] == pytest.approx(75.0, abs=10.0) and values["lag_1024_pct"] == pytest.approx(50.0, abs=10.0)
    assert values["lag_2048_pct"] == pytest.approx(0.0, abs=15.0)


def test_chunks_that_lie_anywhere_come_later_than_a_run_and_more_bytes_than_fewer() -> None:
    gpu = load_gpu("h200_sxm")
    cycles = {
        (chunk, size): CASE.predict(case.Config(size, chunk_bytes=chunk), gpu)["cycles"]
        for chunk in (0, 4096) for size in (1024, 4096, 16384)
    }  # fmt: skip
    for size in (1024, 4096, 16384):
        assert cycles[4096, size] > cycles[0, size]
    assert cycles[0, 1024] < cycles[0, 4096] < cycles[0, 16384]
    assert CASE.predict(case.Config(1024, source="l2"), gpu) == {}


def test_the_fit_finds_the_parts_that_channels_were_given() -> None:
    channel_bytes, fraction, refresh = 1500.0, 0.2, 400.0
    peak, channel = case.PEAK_GB_PER_S * 1e3 / case.MHZ, case.CHANNEL_GB_PER_S * 1e3 / case.MHZ
    rows = []
    for config in ALL:
        size = int(config["total_kib"]) * 1024.0
        share = channel_bytes * (1.0 if int(config["chunk_bytes"]) else fraction)
        late = case.expected_max(192) * (share * size / channel / peak) ** 0.5
        wire = size / (case.SUSTAINED_GB_PER_S * 1e3 / case.MHZ) if size >= 1 << 20 else 0.0
        last = 1000.0 + wire + (np.hypot(late, refresh) if size >= 1 << 20 else refresh)
        group = "chunks" if int(config["chunk_bytes"]) else "rows"
        rows.append({**config, "group": group, "cycles": str(last), "p50_cycles": "1000", "middle_sm_cycles": "1150"})
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted["hbm.channel_bytes"] == pytest.approx(channel_bytes, rel=0.01)
    assert fitted["hbm.interleaved_variance_fraction"] == pytest.approx(fraction, rel=0.01)
    assert 100.0 < fitted["hbm.refresh_granularity_bytes"] < 2000.0
