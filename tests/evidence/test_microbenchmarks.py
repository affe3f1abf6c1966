"""Published microbenchmarks: every row is read and has its prediction or a reason; a bad row is refused in one sentence."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest

from gpusim.cli import main
from gpusim.errors import ConfigError
from gpusim.evidence.validate.microbenchmark_models import KINDS
from gpusim.evidence.validate.microbenchmark_programs import strided_addresses
from gpusim.evidence.validate.microbenchmarks import (
    COLUMNS,
    Row,
    Verdict,
    families,
    in_unit,
    is_cited,
    judge_micro,
    read_micro,
    row_of,
    source_keys,
    summaries,
)
from gpusim.evidence.validate.published import published_dir
from gpusim.machine.config import GpuSpec, load_gpu

ROWS = read_micro()
GPUS = sorted({row.gpu for row in ROWS})
GOOD = {
    "what": "smem_load_latency", "parameters": "ways=2", "gpu": "h200_sxm", "value": "31.0", "unit": "cycles",
    "source": "nobody/nothing @1234567, a.txt", "reliability": "read", "doubt": "", "settles": "", "note": "", "why_not": "",
}  # fmt: skip


ASKED = int(os.environ.get("GPUSIM_MICRO_ROWS", "2"))
"""Of each question and GPU so many rows are predicted here, the first and the last among them; 100 are all of the table."""


def some_rows(gpu: str) -> list[Row]:
    """In the table's order."""
    found = []
    for what in KINDS:
        every = [row for row in ROWS if (row.gpu, row.what) == (gpu, what)]
        asked = [row for row in every if not row.why_not]
        kept = {round(idx * (len(asked) - 1) / max(1, ASKED - 1)) for idx in range(ASKED)} if asked else set()
        found += [row for row in every if row.why_not] + [asked[idx] for idx in kept]
    return [row for row in ROWS if row in found]


@cache
def verdicts_of(gpu: str) -> list[Verdict]:
    return judge_micro(some_rows(gpu), load_gpu(gpu))


@pytest.fixture(scope="module", params=GPUS)
def judged(request: pytest.FixtureRequest) -> tuple[GpuSpec, list[Verdict]]:
    return load_gpu(request.param), verdicts_of(request.param)


def test_no_row_of_the_table_is_left_out() -> None:
    with (published_dir() / "micro.csv").open(newline="") as file:
        assert len(ROWS) == sum(1 for _ in csv.DictReader(file)) > 400
    assert {row.what for row in ROWS} <= set(KINDS)


def test_every_row_is_predicted_or_says_why_not(judged: tuple[GpuSpec, list[Verdict]]) -> None:
    gpu, verdicts = judged
    assert [item.row for item in verdicts] == some_rows(gpu.name)
    for item in verdicts:
        is_said = item.standing != "unsaid"
        assert is_said == (item.predicted > 0 and math.isfinite(item.predicted)), item
        assert is_said != bool(item.why_not), item


def test_the_summaries_count_every_row_once(judged: tuple[GpuSpec, list[Verdict]]) -> None:
    _, verdicts = judged
    *parts, whole = summaries(verdicts)
    assert sum(part.num_rows for part in parts) == whole.num_rows == len(verdicts)
    assert sum(part.num_far for part in parts) == whole.num_far
    assert sum(item.num_rows for item in families(verdicts)) == parts[0].num_rows


def test_what_the_table_says_why_not_is_not_asked(judged: tuple[GpuSpec, list[Verdict]]) -> None:
    _, verdicts = judged
    assert all(item.why_not == item.row.why_not for item in verdicts if item.row.why_not)


def test_a_question_without_an_answer_needs_no_row_that_has_one() -> None:
    for row in ROWS:
        assert row.why_not or row.kind.ask is not None


def test_what_a_row_settles_is_a_parameter_of_its_gpu() -> None:
    for row in ROWS:
        assert not row.settles or row.settles in load_gpu(row.gpu).sources, row


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"what": "smem_load_latencies"}, "line 7: 'smem_load_latencies' is no kind of published number; did you mean"),
        ({"gpu": "h200"}, "gpu 'h200' is unknown; did you mean 'h200_sxm'"),
        ({"parameters": "lanes=2"}, "smem_load_latency has parameters lanes, wants ways"),
        ({"parameters": ""}, "smem_load_latency has parameters none, wants ways"),
        ({"parameters": "ways=2 ways=4"}, "each name once"),
        ({"parameters": "ways"}, "want words like bytes=16"),
        ({"parameters": "ways=two"}, "ways 'two' is no whole number, wants one"),
        ({"what": "stream_bandwidth", "parameters": "kernel=add threads=64"}, "kernel 'add' is unknown"),
        ({"value": "-3"}, "value '-3' is no number above 0"),
        ({"value": "about 30"}, "value 'about 30' is no number above 0"),
        ({"value": "nan"}, "value 'nan' is no number above 0"),
        ({"unit": "GB/s"}, "unit 'GB/s' does not fit smem_load_latency, wants cycles or ns or us"),
        ({"source": ""}, "has no source"),
        ({"reliability": "sure"}, "reliability 'sure' is unknown"),
        ({"what": "syncwarp", "parameters": ""}, "the simulator cannot predict syncwarp, wants the reason in why_not"),
    ],
)
def test_a_bad_row_is_refused_in_one_sentence(changed: Mapping[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        row_of({**GOOD, **changed}, "micro.csv line 7")
    text = str(refused.value)
    assert problem in text and text.startswith("micro.csv line 7: ") and "\n" not in text


def written(folder: Path, *rows: Mapping[str, str], columns: tuple[str, ...] = COLUMNS) -> Path:
    path = folder / "micro.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    return path


def test_a_table_of_other_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"micro.csv: the columns are .* wants what, parameters"):
        read_micro(written(tmp_path, GOOD, columns=COLUMNS[:-1]))


def test_the_same_number_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"micro\.csv line 3: repeats another row of the same source"):
        read_micro(written(tmp_path, GOOD, {**GOOD, "value": "32"}))
    assert len(read_micro(written(tmp_path, GOOD, {**GOOD, "value": "32", "source": "another"}))) == 2


def test_a_row_with_a_field_too_many_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    path.write_text(path.read_text().rstrip() + ",more\n")
    with pytest.raises(ConfigError, match="line 2: has more or fewer fields"):
        read_micro(path)


def row(**changed: str) -> Row:
    return row_of({**GOOD, **changed}, "a test")


def test_a_row_is_cited_where_the_parameter_that_it_settles_names_its_source() -> None:
    gpu = load_gpu("h200_sxm")
    cited = row(settles="smem.load_latency_cycles")
    sources = {**gpu.sources, "smem.load_latency_cycles": "paper: nobody/nothing @7654321"}
    said = replace(gpu, sources=MappingProxyType(sources))
    assert not is_cited(cited, gpu)
    assert is_cited(cited, said)
    assert not is_cited(row(), said)
    verdicts = judge_micro([cited, row(), row(doubt="so it is")], said)
    assert [item.standing for item in verdicts] == ["cited", "judges", "doubtful"]


def test_a_source_without_a_repository_or_paper_goes_by_its_name() -> None:
    assert source_keys("BB24, IISWC 2024, raw logs") == ["BB24"]


def test_what_the_twin_refuses_is_a_reason() -> None:
    asked = row(what="mma_sync_latency", parameters="shape=m16n8k7 dtype=fp16 accumulator=fp32")
    (verdict,) = judge_micro([asked], load_gpu("h200_sxm"))
    assert verdict.standing == "unsaid" and "no atom" in verdict.why_not and math.isnan(verdict.error_pct)


def test_units_are_crossed_at_the_highest_clock() -> None:
    gpu = load_gpu("h200_sxm")
    in_cycles, in_ns = judge_micro([row(), row(unit="ns", source="another")], gpu)
    assert in_ns.predicted == pytest.approx(in_cycles.predicted / gpu.clock.max_mhz * 1e3)
    assert in_unit(2.0, "B/cycle", "GB/s", 1500.0) == 3.0


def test_far_is_beyond_the_goal_on_either_side() -> None:
    for value, is_far in ((110.0, False), (110.2, True), (90.0, False), (89.8, True)):
        assert Verdict(row=row(value="100"), standing="judges", predicted=value).is_far == is_far


def test_strided_lanes_touch_what_the_stride_says() -> None:
    lanes = strided_addresses({"pattern": "stride", "element_bytes": "4", "parameter": "3"}, "hopper")[0]
    assert (lanes[0] == 12 * (lanes[0] // 12)).all() and lanes[0, 1] - lanes[0, 0] == 12
    assert (lanes[4] == lanes[0]).all()


def test_the_command_shows_every_row_and_its_sums(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that are judged above, as the same question has the same answer."""

    def judged_before(rows: Iterable[Row], gpu: GpuSpec) -> list[Verdict]:
        assert gpu == load_gpu(gpu.name) and list(rows) == [row for row in ROWS if row.gpu == gpu.name]
        return verdicts_of(gpu.name)

    monkeypatch.setattr("gpusim.evidence.validate.microbenchmarks.judge_micro", judged_before)
    monkeypatch.setenv("COLUMNS", "220")
    status = main(["validate", "--gpu", "h100_pcie", "--published", "--json", str(tmp_path / "found.json")])
    (document,) = json.loads((tmp_path / "found.json").read_text())
    wanted = some_rows("h100_pcie")
    assert [(item["what"], item["published"]) for item in document["rows"]] == [(item.what, item.value) for item in wanted]
    judging, whole = document["summary"][0], document["summary"][-1]
    assert whole["num_rows"] == len(wanted)
    assert status == (1 if judging["num_far"] else 0)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = [words for words in lines if words[:1] and words[0] in KINDS]
    assert len(rows) == len(wanted) + len(document["kinds"])
    assert [words[1] for words in lines if words[:1] == ["all"]] == [str(len(wanted))]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--gpu", "toy", "--published"], "no microbenchmark of it is in the table"),
        (["--gpu", "h200_sxm", "--published", "--measured", "somewhere"], "leave --measured out"),
        (["--gpu", "h300", "--published"], "unknown"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *arguments]) == 2
    assert problem in capsys.readouterr().err
