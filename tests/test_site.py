"""The docs site builds without a warning, and has what it should; tests/notebooks runs the lessons."""

from __future__ import annotations

import csv
import fcntl
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer import Context
from typer.main import get_command

from gpusim.cli import app
from gpusim.workload import ops

ROOT = Path(__file__).parent.parent
PAGES = (
    "index", "guide", "vocabulary", "how_it_works", "extend", "add_a_gpu", "h200_parameters", "hopper_fits",
    "decisions/index",
    "generated/command_line", "generated/parts", "generated/ops",
    "generated/validation", "generated/kernels", "generated/changelog", "generated/deviations/table",
    *sorted(f"generated/deviations/{path.stem}" for path in (ROOT / "validation" / "deviations").glob("*.md")),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, its lessons not executed; other processes wait meanwhile, as all write docs/generated."""
    folder = tmp_path_factory.mktemp("site")
    with (ROOT / "docs" / "conf.py").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return built(folder)


def built(folder: Path) -> Path:
    options = ["-W", "--keep-going", "-q", "-D", "nb_execution_mode=off", "-d", str(folder / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return folder / "html"


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_there_and_reached_from_the_first(site: Path, name: str) -> None:
    assert (site / f"{name}.html").is_file()
    assert name == "index" or f'href="{name}.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_every_lesson_is_on_the_site(site: Path) -> None:
    wanted = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {path.stem for path in (site / "generated" / "lessons").glob("*.html")} == wanted


def test_every_decision_is_on_the_site(site: Path) -> None:
    wanted = {path.stem for path in (ROOT / "docs" / "decisions").glob("*.md")}
    assert {path.stem for path in (site / "decisions").glob("*.html")} == wanted
    index = (site / "decisions" / "index.html").read_text(encoding="utf-8")
    assert {name for name in wanted if f'href="{name}.html"' in index} == wanted - {"index"}


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_answers_of_a_lesson_are_folded_and_all_folds_are_closed(site: Path, path: Path) -> None:
    page = Page()
    page.feed((site / "generated" / "lessons" / f"{path.stem}.html").read_text(encoding="utf-8"))
    assert page.wrong == []
    assert len(re.findall(r"^prediction\w* = \.\.\.", page.text, re.MULTILINE)) >= 2
    for name in re.findall(r"\bcompare\(\w+", page.text):
        assert name in page.folded
    assert not re.search(r"\bcompare\(", page.unfolded)


class Page(HTMLParser):
    """What stands in folds of a page, and what does not; tags that are closed where another one is open."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input", "path", "line", "polyline", "circle", "use", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self.text = self.folded = self.unfolded = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        if tag in ("details", "section") and self.open[-1][0] != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-1]}")
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.text += data
        if ("details", "answer") in self.open:
            self.folded += data
        else:
            self.unfolded += data


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    text = text_of(site / "generated" / "command_line.html")
    root = get_command(app)
    top = Context(root, info_name="gpusim")
    for name in root.list_commands(top):  # type: ignore[attr-defined]
        assert f"gpusim {name}" in text
        command = root.get_command(top, name)  # type: ignore[attr-defined]
        for parameter in (found for found in command.params if not getattr(found, "hidden", False)):
            assert all(option in text for option in parameter.opts if option.startswith("--")), (name, parameter.opts)


def test_every_op_has_a_row(site: Path) -> None:
    text = text_of(site / "generated" / "ops.html")
    for word in vars(ops).values():
        if isinstance(word, type) and issubclass(word, ops.Op) and word is not ops.Op:
            assert word.__name__ in text


def test_every_deviation_has_a_row_and_a_link(site: Path) -> None:
    page = (site / "generated" / "deviations" / "table.html").read_text(encoding="utf-8")
    with (ROOT / "validation" / "deviations.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        number = f"{int(row['id'].split('.')[0]):02}"
        has_page = any((ROOT / "validation" / "deviations").glob(f"{number}_*.md"))
        assert bool(re.search(rf'href="{number}_\w+\.html">(<\w+[^>]*>)*{re.escape(row["id"])}<', page)) == has_page, row


PARTS = ["Hbm", "L2", "Crossbar", "Tma", "Mbarrier", "TensorCore", "WarpScheduler", "Dispatcher"]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_says_what_it_models_and_ignores(site: Path, part: str) -> None:
    page = (site / "generated" / "parts.html").read_text(encoding="utf-8")
    section = re.search(rf'<section id="{part.lower()}">(.*?)</section>', page, re.DOTALL)
    assert section is not None
    words = re.sub(r"<[^>]*>", "", section.group(1))
    assert words.index("Models:") < words.index("Ignores:") < words.index("Source:")


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.glob("**/*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|link|img)[^>]*?(?:src|href)="(https?://[^"]*)"', text)
        assert not fetched, (page, fetched)
