"""The table of judged rows is read as it was written, and README.md says what it gives."""

from __future__ import annotations

import io
import json
import runpy
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Limit
from gpusim.evidence.cases.paths import held_out_families
from gpusim.evidence.validate.judge import Judgement
from gpusim.evidence.validate.judged_rows import COLUMNS, judged_dir, read_judged, table_of
from gpusim.report.validation import render_worst

ROOT = Path(__file__).resolve().parents[2]
GPUS = sorted(path.stem for path in judged_dir().glob("*.csv"))


def item(**fields: Any) -> Judgement:
    told: dict[str, Any] = {
        "kernel": "copy", "group": "sizes", "name": "sm__cycles_elapsed.max", "tier": 6, "config": {"n": "1", "refill": ""},
        "predicted": 110.5, "measured": 100.0, "is_validation": True, "family": "copy", **fields,
    }  # fmt: skip
    return Judgement(**told)


def test_the_readme_says_what_the_table_gives(tmp_path: Path) -> None:
    main = runpy.run_path(str(ROOT / "scripts" / "trust.py"))["main"]
    emptied = tmp_path / "README.md"
    for name, page in (("in short", ROOT / "README.md"), ("trust", ROOT / "validation" / "README.md")):
        text = page.read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: written by scripts/trust.py -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        emptied.write_text(f"{before}{begin} nothing {end}{rest.split(end)[1]}", encoding="utf-8")
        main(str(judged_dir() / "h200_sxm.csv"), str(emptied))
        assert emptied.read_text(encoding="utf-8") == text


def report_of(rows: Sequence[Judgement], first: Sequence[Judgement] = ()) -> str:
    """As ``gpusim validate --json`` writes it, of what ``scripts/trust.py`` reads."""
    return json.dumps({"gpu": "toy", "rows": list(map(asdict, rows)), "first": list(map(asdict, first))})


def test_a_report_replaces_its_kernels_and_tiers_and_leaves_the_others(tmp_path: Path) -> None:
    main = runpy.run_path(str(ROOT / "scripts" / "trust.py"))["main"]
    report, readme = tmp_path / "report.json", tmp_path / "README.md"
    readme.write_text("<!-- trust: written by scripts/trust.py --><!-- trust: end -->", encoding="utf-8")
    other, timed = item(kernel="sum", family="sum"), item(name="single_us", tier=7, predicted=104.0)
    gone, tiny = item(config={"n": "2"}), item(group="tiny", predicted=109.0)
    report.write_text(report_of([item(), gone, tiny, other], [item(predicted=120.0)]), encoding="utf-8")
    main(str(report), str(readme), str(tmp_path))
    report.write_text(report_of([timed]), encoding="utf-8")
    main(str(report), str(readme), str(tmp_path))
    report.write_text(report_of([item(predicted=101.0), item(name="hit_rate.pct", tier=5)]), encoding="utf-8")
    main(str(report), str(readme), str(tmp_path))
    found = read_judged("toy", tmp_path)
    assert [(row.kernel, row.name, row.predicted) for row in found.rows] == [
        ("copy", "sm__cycles_elapsed.max", 101.0), ("copy", "sm__cycles_elapsed.max", 109.0), ("copy", "single_us", 104.0),
        ("copy", "hit_rate.pct", 110.5), ("sum", "sm__cycles_elapsed.max", 110.5),
    ]  # fmt: skip
    assert [row.predicted for row in found.first] == [120.0]
    text = readme.read_text(encoding="utf-8")
    assert "| copy | 2 | 5.0 %, 9.0 %, 9.0 % |  |  | 4.0 %, 4.0 %, 4.0 % | 20.0 % |" in text
    assert "| sum | 1 | 10.5 %, 10.5 %, 10.5 % |  |  |  |  |" in text
    assert "| **mean of 2 families** | 3 | 7.8 %, 10.5 %, 10.5 % |  |  | 4.0 %, 4.0 %, 4.0 % (1 family) | 20.0 % |" in text


@pytest.mark.parametrize("gpu", GPUS)
def test_the_table_in_the_tree_is_read_and_written_alike(gpu: str) -> None:
    found = read_judged(gpu)
    assert found.rows and table_of(found.rows, found.first) == (judged_dir() / f"{gpu}.csv").read_text(encoding="utf-8")


def test_a_row_comes_back_with_all_that_it_has(tmp_path: Path) -> None:
    rows = (
        item(roofline=50.25, floor=2.0, cuts=("a, b", "c"), problem=("1", "bf16"), again_us=3.5),
        item(name="hit_rate.pct", tier=5, limit=Limit(mean_pct=3.0, is_points=True), predicted=1 / 3),
        item(family="sgemm", config={"n": "2"}, limit=Limit(worst_pct=0.0)),
    )
    first = (item(predicted=120.0, roofline=50.25, floor=2.0, cuts=("a, b", "c"), problem=("1", "bf16"), again_us=3.5),)
    (tmp_path / "toy.csv").write_text(table_of(rows, first), encoding="utf-8")
    found = read_judged("toy", tmp_path)
    assert found.rows[0] == rows[0] and found.rows[2] == rows[2] and found.first == first
    assert found.rows[1].limit == rows[1].limit and found.rows[1].predicted == pytest.approx(1 / 3, rel=1e-9)
    frame = found.frame()
    assert frame["error_pct"].tolist() == pytest.approx([10.5, 1 / 3 - 100.0, 10.5])
    assert frame["first_error_pct"][0] == pytest.approx(20.0) and frame["first_error_pct"][1:].isna().all()
    assert frame["held_out"].tolist() == [False, False, True]


def test_held_out_families_are_marked_in_the_tree() -> None:
    frame = read_judged("h200_sxm").frame()
    assert set(frame["family"][frame["held_out"]]) == held_out_families()


def test_what_separates_parts_of_a_row_is_refused() -> None:
    for fields in ({"config": {"n": "a b"}}, {"config": {"n": "a=b"}}, {"cuts": ("a;b",)}, {"problem": ("a;b",)}):
        with pytest.raises(ConfigError, match="holds what separates parts of a row"):
            table_of([item(**fields)])


def test_a_table_that_is_none_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("kernel,group\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"no rows of toy were judged, wants one of: other"):
        read_judged("toy", tmp_path)
    with pytest.raises(ConfigError, match=r"lacks again_us, config, .* wants the columns kernel, group, config"):
        read_judged("other", tmp_path)
    text = table_of([item()]).replace("110.5", "much")
    (tmp_path / "wrong.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"wrong.csv: line 2: could not convert string to float: 'much'"):
        read_judged("wrong", tmp_path)
    assert text.startswith(",".join(COLUMNS))


def test_the_furthest_off_are_of_families_that_may_be_looked_at() -> None:
    stream = io.StringIO()
    rows = (item(config={"n": "41"}), item(family="sgemm", predicted=1e6, config={"n": "42"}))
    render_worst(rows, 2, Console(file=stream, width=200))
    assert "The 1 furthest off" in stream.getvalue() and "that are held out are not shown" in stream.getvalue()
    assert "n 41" in stream.getvalue() and "n 42" not in stream.getvalue()
