"""What the explorer answers is what the command line answers."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.explore.answers import RefusedError
from gpusim.explore.forms import FORMS, OFFERED, grid
from gpusim.explore.pipeline import PipelineQuestion
from gpusim.explore.questions import QUESTIONS, answer_of, question_of
from gpusim.explore.sliders import SLIDERS
from gpusim.explore.svg_minify import squeeze
from gpusim.machine.config import gpu_names
from gpusim.workload.smem.smem_ops import SMEM_OPS

SMALL = {"m": "512", "n": "512", "k": "512", "tile": "128x128x64"}

BANKS: list[dict[str, str]] = [
    {}, {"swizzle": "128B"}, {"swizzle": "typed", "bms": "3,4,3"}, {"pad": "8", "at": "(16,16)"},
    {"dtype": "fp32", "access": "ld_shared_b32", "lanes": "column", "rows": "32", "columns": "32"},
    {"order": "column_major", "access": "ld_shared_b128"}, {"access": "atom_shared_cas_b32", "dtype": "uint32"},
    {"tile": "typed", "layout": "((8,4),64):((64,512),1)", "lanes": "typed", "threads": "32:1@0"},
    {"tile": "typed", "layout": "(64,64)"},
]  # fmt: skip

PIPELINES: list[dict[str, str]] = [
    SMALL, {**SMALL, "stages": "2", "schedule": "multistage", "copy": "cp_async", "math": "mma_sync",
            "gpu": "a100_sxm_40gb"},
    {**SMALL, "tile": "auto", "stages": "auto", "schedule": "auto", "dtype": "fp8"}, {**SMALL, "cluster": "2x1"},
]  # fmt: skip

REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("banks", {"swizzle": "typed", "bms": "3,3"}, "bms"), ("banks", {"tile": "typed", "layout": "(64,64"}, "layout"),
    ("banks", {"dtype": "bf17"}, "dtype"), ("banks", {"access": "ldmatrix_x5"}, "access"), ("banks", {"at": "(a,b)"}, "at"),
    ("banks", {"lanes": "typed", "threads": "8:1"}, ""), ("banks", {"swizzle": "typed", "bms": "3,2,3"}, "bms"),
    ("banks", {"rows": "4096", "columns": "4096"}, ""),
    ("pipeline", {"stages": "12"}, "stages"), ("pipeline", {"tile": "128"}, "tile"), ("pipeline", {"gpu": "b300"}, "gpu"),
    ("pipeline", {"gpu": "a100_sxm_40gb"}, "schedule"), ("pipeline", {"cluster": "9x9x9"}, "cluster"),
    ("pipeline", {"math": "fma", "schedule": "multistage"}, "math"),
]  # fmt: skip

WRONG: list[tuple[str, dict[str, str], str, str]] = [
    ("banks", {"rows": "x"}, "rows", "rows is 'x', wants a whole number"),
    ("banks", {"rows": "0"}, "rows", "rows is 0, wants 1 or more"),
    ("banks", {"columns": "5000"}, "columns", "columns is 5000, wants at most 4096"),
    ("banks", {"order": "diagonal"}, "order", "order 'diagonal' is unknown; known: column_major, row_major"),
    ("banks", {"layout": "(" * 401}, "layout", "layout has more than 400 characters, wants fewer"),
    ("banks", {"rowz": "1"}, "rowz", "rowz is no field of this page; did you mean 'rows'?"),
    ("pipeline", {"m": "100000"}, "m", "m is 100000, wants at most 32768"),
    ("pipeline", {"latency": "0"}, "latency", "latency is 0, wants 0.5 or more"),
    ("pipeline", {"latency": "inf"}, "latency", "latency is 'inf', wants a finite number"),
    ("pipeline", {"schedule": "ping"}, "schedule", "schedule 'ping' is unknown; did you mean 'pingpong'? "
     "(known: auto, multistage, warp_specialized, cooperative, pingpong)"),
]  # fmt: skip


def document(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*shlex.split(command)[1:], "--json", "-"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("words", BANKS, ids=str)
def test_banks_are_what_the_line_to_type_says(words: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    answer = question_of("banks", words).answer()
    said = document(answer.command, capsys)
    worst = max(said["instructions"], key=lambda found: found["num_wavefronts"])
    numbers = {figure.label: figure.value for figure in answer.figures}
    assert numbers["wavefronts"] == worst["num_wavefronts"]
    assert numbers["wavefronts at best"] == worst["num_ideal_wavefronts"]
    assert answer.verdict == f"{said['verdict']}."
    assert list(answer.remarks) == said["remarks"]
    assert [row[2] for row in answer.tables[0].rows if row[0] != "all"] == [
        str(phase["num_wavefronts"]) for phase in worst["phases"]
    ]
    assert dict(answer.facts)["rule"].endswith(said["rule"])


@pytest.mark.parametrize("words", PIPELINES, ids=str)
def test_a_pipeline_is_what_the_line_to_type_says(words: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(question_of("pipeline", words), is_plain=True)
    said = document(answer.command, capsys)
    assert said["engine"] == "native"
    assert [figure.value for figure in answer.figures] == [
        said["cycles"], said["time_us"] / 1e3, said["num_events"], said["tflops"], said["pct_of_peak_at_clock"]
    ]
    assert said["bound_by"] in answer.verdict
    assert said["occupancy"]["limited_by"] in dict(answer.facts)["Occupancy"]
    assert set(answer.tables[0].columns[1:]) == set(said["states"])
    assert f"{said['sm_clock_mhz']:,.0f} MHz" in dict(answer.facts)["SM clock"]


@pytest.mark.parametrize(("page", "words", "field"), REFUSED, ids=str)
def test_what_the_command_line_refuses_is_refused_in_its_words(
    page: str, words: dict[str, str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    question = question_of(page, words)
    with pytest.raises(RefusedError) as refused:
        question.answer()
    command = question.command() if page == "pipeline" else question.asked().command()  # type: ignore[union-attr]  # its own
    assert main(shlex.split(command)[1:]) == 2
    assert capsys.readouterr().err == f"gpusim: {' '.join(str(refused.value).split())}\n"
    assert refused.value.field == field


@pytest.mark.parametrize(("page", "words", "field", "sentence"), WRONG, ids=str)
def test_a_word_that_is_none_of_its_field_is_refused(page: str, words: dict[str, str], field: str, sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        question_of(page, words)
    assert (str(refused.value), refused.value.field) == (sentence, field)


@pytest.mark.parametrize("words", [{}, {"dtype": "fp32", "access": "ld_shared_b32", "lanes": "column"}])
def test_what_is_offered_mends_it(words: dict[str, str]) -> None:
    answer = question_of("banks", words).answer()
    assert len(answer.offers) == 2
    for offer in answer.offers:
        assert question_of("banks", offer.query).study().census.is_free  # type: ignore[union-attr]  # it is of banks


def test_farther_memory_costs_cycles_and_judges_nothing() -> None:
    asked = [PipelineQuestion.of({**SMALL, "latency": text}) for text in ("0.5", "1", "2", "8")]
    found = [question.run(question.planned()).cycles for question in asked]
    assert found == sorted(found)
    assert found[0] < found[-1]
    real, farther = asked[1].plain_answer(), asked[2].plain_answer()
    assert "Expected error" in dict(real.facts)
    assert real.remarks == ()
    assert "Expected error" not in dict(farther.facts)
    (remark,) = farther.remarks
    assert "no measurement judges" in remark
    assert "with what is named below the sliders scaled" in remark
    hints = {field.name: field.hint for field in FORMS["pipeline"]().fields}
    assert hints["latency"] == "hbm.latency_ns, l2.near_latency_cycles, l2.far_latency_cycles"


@pytest.mark.parametrize(("page", "words"), [*(("banks", one) for one in BANKS), *(("pipeline", one) for one in PIPELINES)])
def test_a_question_is_its_own_query(page: str, words: dict[str, str]) -> None:
    question = question_of(page, words)
    assert question_of(page, question.query()) == question
    assert question.query().items() <= words.items()


def test_the_forms_ask_for_all_that_there_is() -> None:
    banks = {field.name: field for field in FORMS["banks"]().fields}
    assert {choice.value for choice in banks["access"].choices} == set(SMEM_OPS)
    pipeline = {field.name: field for field in FORMS["pipeline"]().fields}
    assert [choice.value for choice in pipeline["gpu"].choices] == gpu_names()
    for page, question in QUESTIONS.items():
        fields = {field.name: field for field in FORMS[page]().fields}
        assert set(fields) == {item.alias or name for name, item in question.model_fields.items()}
        for field in fields.values():
            assert question_of(page, {field.name: field.default}).query() == {}
            for choice in field.choices:
                question_of(page, {field.name: choice.value})
            for stop in SLIDERS[field.name].stops if field.name in SLIDERS else ():
                question_of(page, {field.name: f"{stop:g}"})


def test_a_static_copy_offers_some_hundred_choices_that_the_forms_have() -> None:
    for page, offered in OFFERED.items():
        cases = list(grid(FORMS[page](), offered))
        assert 200 <= len(cases) <= 1000
        assert len({key for key, _ in cases}) == len(cases)
        for key, words in cases:
            question_of(page, words)
            assert re.fullmatch(r"[\w.~]+", key)
        for field in FORMS[page]().fields:
            assert field.name not in offered or field.default in offered[field.name]


def test_a_squeezed_picture_says_and_shows_the_same() -> None:
    from gpusim.report.plots.banks import plot_banks
    from gpusim.workload.smem.bank_conflict_fixes import study

    asked = question_of("banks", {}).asked()  # type: ignore[union-attr]  # banks have it
    svg = plot_banks(study(asked.accesses()[0])).svg
    small = squeeze(svg)
    assert len(small) < 100_000 < 0.31 * len(svg)
    assert "<g id=\"text" in svg and "<g id=\"text" not in small
    assert re.findall(r">([^<>\s][^<>]*)<", re.sub(r"<(style|metadata)[^>]*>.*?</\1>", "", svg, flags=re.DOTALL)) == (
        re.findall(r">([^<>\s][^<>]*)<", re.sub(r"<style[^>]*>.*?</style>", "", small, flags=re.DOTALL))
    )
    closed = re.compile(r'<path[^>]* d="([^"]*)"[^>]* (?:style|class)="([^"]*)"', re.DOTALL)
    rules = dict(re.findall(r"\.(s\d+)\{([^}]*)\}", small))
    drawn: list[Counter[str]] = [Counter(), Counter()]  # shapes by fill, as they were and are
    for shapes, text in zip(drawn, (svg, small), strict=True):
        for data, style in closed.findall(text):
            shapes["".join(re.findall(r"fill: (#\w+)", rules.get(style, style)))] += max(1, data.count("z"))
    assert drawn[0] == drawn[1]
    assert drawn[0]["#a02000"] == 0 < drawn[0]["#d55e00"] == 4 * 4 * 4  # of 4 phases 4 lanes wait longest, for 4 banks
