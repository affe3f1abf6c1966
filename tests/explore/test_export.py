"""A static copy of the explorer: complete, small, and nobody else's files touched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.errors import ConfigError
from gpusim.explore.export import LAST, MARK, NEXT, Written, _begun, check_folder, export, left_over
from gpusim.explore.forms import FORMS, OFFERED, key_of
from gpusim.explore.questions import question_of
from gpusim.explore.sliders import SLIDERS
from gpusim.explore.worker import answered

FEW: dict[str, dict[str, tuple[str, ...]]] = {
    "banks": {"pad": ("0", "1"), "swizzle": ("none", "128B")}, "pipeline": {"stages": ("4", "12")},
}
"""Six choices, of which three are refused: rows of 65 elements are not aligned, and 12 stages do not fit."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written, list[tuple[int, int]]]:
    folder, told = tmp_path_factory.mktemp("site") / "copy", []
    check_folder(folder, "--export")
    written = export(folder, jobs=2, offered=FEW, tell=lambda done, total: told.append((done, total)))
    return folder, written, told


def answer(folder: Path, page: str, key: str) -> dict[str, Any]:
    text = (folder / "answers" / page / f"{key}.js").read_text(encoding="utf-8")
    found = re.fullmatch(r'gpusimAnswer\("(.*?)", (\{.*\})\);\n', text)
    assert found is not None
    assert found[1] == key
    told: dict[str, Any] = json.loads(found[2])
    return told


def test_every_choice_has_its_answer_or_its_refusal(copied: tuple[Path, Written, list[tuple[int, int]]]) -> None:
    folder, written, told = copied
    assert (written.num_answers, written.num_refusals) == (3, 3)
    assert told == [(done, 6) for done in range(7)]
    for swizzle in ("none", "128B"):
        words = {"swizzle": swizzle}
        figures = answer(folder, "banks", f"0~{swizzle}")["figures"]
        assert [one["value"] for one in figures] == [one.value for one in question_of("banks", words).answer().figures]
        assert "banks: lane 1 of ldmatrix_x4" in answer(folder, "banks", f"1~{swizzle}")["refusal"]
    assert answer(folder, "pipeline", "12")["field"] == "stages"
    launch = question_of("pipeline", {}).answer().launch
    assert answer(folder, "pipeline", "4")["launch"] == json.loads(json.dumps(launch))


def test_the_copy_names_only_files_that_it_has(copied: tuple[Path, Written, list[tuple[int, int]]]) -> None:
    folder, written, _ = copied
    pages = [path.read_text(encoding="utf-8") for path in folder.glob("*.html")]
    scripts = [path.read_text(encoding="utf-8") for path in folder.glob("answers/*/*.js")]
    answers = [json.loads(script.partition(", ")[2][:-3]) for script in scripts]
    texts = [*pages, *(told.get("html", "") for told in answers)]
    named = {name for text in texts for name in re.findall(r'(?:href|src)="([^"#?]+)', text)}
    pictures = [name for name in named if name.startswith("pictures/")]
    assert len(pictures) == written.num_pictures == 2  # one of each answer of banks; the page draws a pipeline's
    assert all((folder / name).is_file() for name in named)
    assert written.num_bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for path in folder.glob("*.html"):
        assert path.stat().st_size < 20_000  # the first page is small: answers come when they are asked for


def test_what_a_copy_has_no_answer_for_cannot_be_chosen(copied: tuple[Path, Written, list[tuple[int, int]]]) -> None:
    page = (copied[0] / "banks.html").read_text(encoding="utf-8")
    assert re.search(r'<select id="swizzle"[^>]* data-key', page)
    assert re.search(r'<option value="64B" disabled>', page)
    assert re.search(r'<option value="128B">', page)
    for name in ("access", "rows", "layout", "at"):
        control = re.search(rf'<(?:select|input) id="{name}"[^>]*>', page)
        assert control is not None
        assert "disabled" in control[0]
        assert "copied" in control[0]  # which says why
    offers = answer(copied[0], "banks", "0~none")["html"]
    assert "swizzle=128B" in offers
    assert "pad=8" not in offers


def test_a_copy_is_replaced_and_nothing_else(
    copied: tuple[Path, Written, list[tuple[int, int]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "site"
    (folder / "answers" / "banks").mkdir(parents=True)
    (folder / "answers" / "banks" / "old.js").touch()
    with pytest.raises(ConfigError, match="holds files that no export wrote"):
        check_folder(folder, "--export")
    (folder / MARK).touch()
    monkeypatch.setattr("gpusim.explore.forms.OFFERED", {"banks": {"swizzle": ("none",)}, "pipeline": {"stages": ("12",)}})
    assert main(["explore", "--export", str(folder), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(r"Written: \S+index\.html: 1 answer and 1 refusal, 1 picture, [\d.]+ KiB\n", said)
    assert [path.name for path in (folder / "answers" / "banks").iterdir()] == ["none.js"]
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == [MARK]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no directory"):
        check_folder(tmp_path / "file", "--export")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class EndedError(Exception):
    """What stands for Ctrl-C."""


def end_at(num: int) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if done == num < total:
            raise EndedError
    return tell


def test_an_export_that_is_interrupted_loses_neither_the_copy_before_it_nor_its_answers(
    copied: tuple[Path, Written, list[tuple[int, int]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, few = tmp_path / "site", {"banks": {"swizzle": ("none", "128B")}}
    monkeypatch.setattr("gpusim.explore.forms.OFFERED", few)
    export(folder, jobs=1, offered={"banks": {"swizzle": ("none",)}})
    (folder / "CNAME").touch()  # somebody's own
    before = files_of(folder)
    with pytest.raises(EndedError):
        export(folder, jobs=1, offered=few, tell=end_at(1))
    check_folder(folder, "--export")
    assert {name: text for name, text in files_of(folder).items() if NEXT not in name} == before
    said = f"the last export into {str(folder)!r} was interrupted"
    assert left_over(folder, few) == f"{said}: goes on with the 1 answer that it had"
    assert "begun anew" in left_over(folder, FEW)
    asked: list[str] = []
    monkeypatch.setattr("gpusim.explore.export.answered", lambda page, words: asked.append(page) or answered(page, words))
    assert main(["explore", "--export", str(folder), "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    assert f"explore: {said}" in err
    assert "2 answers and 0 refusals (1 of them from before), 2 pictures" in out
    assert asked == ["banks"]
    assert left_over(folder, few) == ""
    whole, after = tmp_path / "whole", files_of(folder)
    export(whole, jobs=1, offered=few)
    assert after.pop("CNAME") == b""
    assert after == files_of(whole)


def test_ctrl_c_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpusim.explore.export.answered", interrupt)
    assert main(["explore", "--export", str(tmp_path), "--jobs", "1"]) == 130
    assert "no page is written yet; the same command goes on" in capsys.readouterr().err
    monkeypatch.undo()
    export(tmp_path, jobs=1, offered={"banks": {"swizzle": ("none",)}})
    monkeypatch.setattr("gpusim.explore.export.answered", interrupt)
    assert main(["explore", "--export", str(tmp_path), "--jobs", "1"]) == 130
    assert "the older copy is as it was; the same command goes on" in capsys.readouterr().err


def test_an_export_ended_between_two_renames_is_put_back(tmp_path: Path) -> None:
    few = {"banks": {"swizzle": ("none",)}}
    export(tmp_path, jobs=1, offered=few)
    before = files_of(tmp_path)
    (tmp_path / LAST).mkdir()
    (tmp_path / "answers").rename(tmp_path / LAST / "answers")
    with pytest.raises(EndedError):
        export(tmp_path, jobs=1, offered=FEW, tell=end_at(0))
    assert {name: text for name, text in files_of(tmp_path).items() if NEXT not in name} == before


def test_a_copy_of_one_page_names_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"banks": {"swizzle": ("none",)}, "pipeline": {"stages": ("12",)}}
    monkeypatch.setattr("gpusim.explore.forms.OFFERED", few)
    assert main(["explore", "--export", str(tmp_path), "--jobs", "1"]) == 0
    assert (tmp_path / "banks.html").is_file()
    assert main(["explore", "--export", str(tmp_path), "--jobs", "1", "--only", "pipeline"]) == 0
    assert not (tmp_path / "banks.html").exists()
    assert not (tmp_path / "answers" / "banks").exists()
    assert all("banks.html" not in path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html"))
    assert "pipeline.html" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_first_page_links_to_answers_that_every_copy_has() -> None:
    from gpusim.explore.pages import index_page

    links = re.findall(r'href="(\w+)\.html\?([^"]+)"', index_page(pages=OFFERED))
    assert len(links) >= 6
    for page, query in links:
        words = dict(pair.split("=") for pair in query.replace("&amp;", "&").split("&"))
        assert all(name in SLIDERS or text in OFFERED[page][name] for name, text in words.items())
        key = key_of(FORMS[page](), words, OFFERED[page])
        assert key.count("~") == len(OFFERED[page]) - 1
        assert question_of(page, words).query().items() <= words.items()


def test_a_folder_that_cannot_be_made_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ConfigError, match=r"cannot be made \(No such file or directory\), wants a directory"):
        _begun(tmp_path / "copy", FEW)
