"""The explorer in a real browser, headless: by keyboard, on a phone's width, offline, as a server and as a copy on disk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gpusim.explore.answers import Answer
from gpusim.explore.export import export
from gpusim.explore.pipeline import PipelineQuestion
from gpusim.explore.questions import question_of
from gpusim.program.records import OUTPUT_SECTIONS
from gpusim.report.plots.ring import rings_of
from gpusim.report.plots.window import of_sm, opening_window
from gpusim.simulate.buffers import read_buffer
from gpusim.simulate.wasm_module import EngineRun

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="Chromium and its driver are not installed: apt install chromium-driver"
)

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)
SMALL = "m=512&n=512&k=512&tile=128x128x64"


class Page:
    """What a person does at a browser, and sees."""

    def __init__(self, driver: Any, base: str) -> None:
        self.driver, self.base = driver, base

    def open(self, name: str, *, width: int = 1280) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get("about:blank")
        self.driver.get(self.base + name)

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {script}", *arguments)

    def later(self, script: str, *arguments: Any) -> Any:
        """What a promise of ``script`` comes to."""
        self.driver.set_script_timeout(60)
        call = "const done = arguments[arguments.length - 1];"
        return self.driver.execute_async_script(f"{call} ({script}).then(done, error => done(String(error)))", *arguments)

    def figures(self) -> list[float]:
        """All digits of the numbers that are shown."""
        values = self.js("[...document.querySelectorAll('.figures dd')].map(one => one.dataset.value ?? 'nan')")
        return [float(text) for text in values]

    def table(self, idx: int) -> list[tuple[str, ...]]:
        """Rows of a table of the answer, its head first."""
        rows = """[...document.querySelectorAll('.tables table')[arguments[0]].rows].map(
            row => [...row.cells].map(cell => cell.textContent))"""
        return [tuple(row) for row in self.js(rows, idx)]

    def slide(self, name: str, value: str) -> None:
        """Move a slider as a pointer does."""
        script = """const slider = document.getElementById(arguments[0]); slider.value = arguments[1];
            for (const kind of ['input', 'change']) slider.dispatchEvent(new Event(kind, { bubbles: true }));"""
        self.driver.execute_script(script, name, value)

    def text(self, selector: str) -> str:
        return str(self.js("document.querySelector(arguments[0])?.textContent ?? ''", selector)).strip()

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(1200):
            if is_so():
                return
            time.sleep(0.05)
        raise AssertionError(f"waited in vain; the page says {self.text('#status')!r}, {self.text('#refusal')!r}")

    def until_verdict(self, words: str) -> None:
        self.until(lambda: words in self.text(".verdict") and not self.js("document.querySelector('[aria-busy]')"))

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def focus(self) -> str:
        return str(self.js("(at => at.id || at.className || at.tagName)(document.activeElement)"))

    def tab_to(self, name: str) -> None:
        from selenium.webdriver.common.keys import Keys

        for _ in range(60):
            if self.focus() == name:
                return
            self.press(Keys.TAB)
        raise AssertionError(f"Tab never comes to {name}")

    def requests(self) -> set[str]:
        """Everything that was asked for since the last call, by scheme and host."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                params = message["params"]
                address = urlsplit(params["request"]["url"] if "request" in params else params["url"])
                found.add(f"{address.scheme}:{address.hostname or ''}")
        return found

    def errors(self) -> list[str]:
        """What the console was told, but for answers that are refusals."""
        said = [entry["message"] for entry in self.driver.get_log("browser")]
        return [text for text in said if "422 (Unprocessable" not in text]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield found
    found.quit()


@pytest.fixture(scope="module")
def served(driver: Any) -> Iterator[Page]:
    command = [sys.executable, "-m", "gpusim", "explore", "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert address is not None
        yield Page(driver, address[0])
        process.terminate()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course's site, with a copy of the explorer somewhere in it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "course").mkdir()
    offered: dict[str, dict[str, tuple[str, ...]]] = {
        "banks": {"swizzle": ("none", "128B")}, "pipeline": {"k": ("1024",), "stages": ("3", "12"), "tile": ("128x128x64",)},
    }
    export(folder / "course" / "explorer", jobs=1, offered=offered)
    return folder


class Quiet(SimpleHTTPRequestHandler):
    """What ``python -m http.server`` runs, without its lines on stderr."""

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.fixture(scope="module", params=["from a folder", "from a path of a server"])
def copied(driver: Any, site: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    if request.param == "from a folder":
        yield Page(driver, f"file://{site}/course/explorer/")
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Page(driver, f"http://127.0.0.1:{server.server_port}/course/explorer/")
        server.shutdown()


@pytest.fixture(autouse=True)
def _stays_here(driver: Any) -> Iterator[None]:
    """No request leaves the machine, and the console has nothing to complain of."""
    page = Page(driver, "")
    page.requests(), page.errors()
    yield
    assert page.requests() <= {"http:127.0.0.1", "data:", "file:", "about:"}
    assert page.errors() == []


def test_banks_by_keyboard_alone(served: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    served.open("index.html")
    served.press(Keys.TAB)
    assert served.focus() == "skip"
    served.press(*[Keys.TAB] * 2, Keys.ENTER)
    served.until_verdict("ldmatrix_x4 takes 32 wavefronts where 4 would do")
    assert served.js("location.pathname") == "/banks.html"
    served.tab_to("swizzle")
    assert served.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    served.press("128")
    served.until_verdict("ldmatrix_x4 takes 4 wavefronts, as few as it can, thanks to the swizzle")
    assert served.focus() == "swizzle"
    assert served.js("location.search") == "?swizzle=128B"
    assert "wavefronts324\u221228 (\u221287.5 %)" in served.text("#compare")
    assert served.text("#status").startswith("Answered: 4 wavefronts. wavefronts before: 32")
    assert served.text("#command").endswith("--access ldmatrix_x4 --swizzle 128B")
    assert served.js("document.querySelector('#answer img').naturalWidth") > 300
    served.tab_to("offer")
    served.press(Keys.ENTER)
    served.until_verdict("no swizzle needed")
    assert served.js("location.search") == "?pad=8"
    served.driver.back()
    served.until_verdict("thanks to the swizzle")
    assert served.js("document.getElementById('swizzle').value") == "128B"
    assert served.js("document.getElementById('pad').value") == "0"


def test_what_is_refused_is_said_beside_the_form_and_nothing_typed_is_lost(served: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    served.open("banks.html?tile=typed&layout=(64,64):(72,1)&at=(16,16)")
    served.until_verdict("takes 4 wavefronts")
    assert served.js("document.getElementById('rows').closest('.field').hidden")
    served.tab_to("layout")
    served.press(Keys.END, Keys.BACKSPACE, Keys.TAB)
    served.until(lambda: "is not closed" in served.text("#refusal"))
    assert served.js("document.getElementById('layout').getAttribute('aria-invalid')") == "true"
    assert served.js("document.getElementById('layout').value") == "(64,64):(72,1"
    assert served.js("document.getElementById('at').value") == "(16,16)"
    assert "takes 4 wavefronts" in served.text(".verdict")
    assert served.js("document.getElementById('result').className") == "old"
    served.driver.refresh()
    served.until(lambda: "is not closed" in served.text("#refusal"))
    assert served.js("document.getElementById('layout').value") == "(64,64):(72,1"


def test_a_pipeline_is_compared_with_the_last(served: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    served.open(f"pipeline.html?{SMALL}")
    served.until_verdict("gemm on h200_sxm takes")
    before = served.figures()[0]
    served.tab_to("stages")
    served.press(Keys.END, Keys.BACKSPACE, "1", Keys.TAB)
    served.until(lambda: served.text("#compare") != "")
    assert "4 stages" in served.text("#compare caption")
    cycles = served.figures()[0]
    assert before < cycles
    assert f"+{cycles - before:,.0f}" in served.text("#compare")
    assert served.js("[...document.querySelectorAll('#answer figure svg')].length") == 3
    assert "wait_mbarrier" in served.text("#answer table")
    served.tab_to("stages")
    served.press(Keys.END, Keys.BACKSPACE, "99", Keys.ENTER)
    served.until(lambda: "stages is 99" in served.text("#refusal"))
    assert served.js("document.getElementById('stages').value") == "99"
    assert served.js("document.getElementById('tile').value") == "128x128x64"


@pytest.mark.parametrize("width", [320, 360, 1280])
def test_no_page_scrolls_sideways(served: Page, width: int) -> None:
    for name, verdict in (("index.html", ""), ("banks.html", "ldmatrix_x4"), (f"pipeline.html?{SMALL}", "gemm")):
        served.open(name, width=width)
        served.until_verdict(verdict)
        assert served.js("document.documentElement.scrollWidth") <= width
        too_wide = """[...document.querySelectorAll('main *')].filter(item => !item.closest('.scroll, .picture, code')
            && item.getBoundingClientRect().right > innerWidth + 1).map(item => item.outerHTML.slice(0, 80))"""
        assert served.js(too_wide) == []


def test_every_control_has_a_label_and_every_page_its_landmarks(served: Page) -> None:
    for name, verdict in (("banks.html", "ldmatrix_x4"), (f"pipeline.html?{SMALL}", "gemm")):
        served.open(name)
        served.until_verdict(verdict)
        assert served.js("document.documentElement.lang") == "en"
        assert served.js("document.querySelectorAll('h1').length") == 1
        assert served.js("[...document.querySelectorAll('select, input')].filter(one => !one.labels.length).length") == 0
        assert served.js("[...document.querySelectorAll('img')].filter(one => !one.alt).length") == 0
        assert served.js("[...document.querySelectorAll('#answer svg')].filter(one => !one.ariaLabel).length") == 0
        assert served.js("document.querySelectorAll('fieldset:not(:has(> legend))').length") == 0
        ids = served.js("[...document.querySelectorAll('[id]')].map(one => one.id)")
        assert len(ids) == len(set(ids))
        described = served.js("[...document.querySelectorAll('[aria-describedby]')].flatMap(one => "
                              "one.getAttribute('aria-describedby').split(' '))")
        assert set(described) <= set(ids)


def test_a_copy_answers_by_itself_wherever_it_lies(copied: Page) -> None:
    copied.open("" if copied.base.startswith("http") else "index.html")
    copied.until(lambda: copied.text("h1") == "What if?")
    copied.open("banks.html", width=360)
    copied.until_verdict("ldmatrix_x4 takes 32 wavefronts")
    assert copied.js("document.documentElement.scrollWidth") <= 360
    copied.tab_to("swizzle")
    copied.press("128")
    copied.until_verdict("takes 4 wavefronts")
    assert copied.js("document.querySelector('#answer img').naturalWidth") > 300
    assert copied.js("location.search") == "?swizzle=128B"
    assert copied.js("[...document.querySelectorAll('select:not([disabled]), input:not([disabled])')].length") == 1
    assert copied.js("location.pathname").endswith("/course/explorer/banks.html")
    copied.driver.back()
    copied.until_verdict("takes 32 wavefronts")
    copied.open("banks.html?access=ld_shared_b32")
    copied.until(lambda: "this static copy has no Instruction ld_shared_b32" in copied.text("#refusal"))
    copied.open("pipeline.html?k=1024&stages=12")
    copied.until(lambda: "use at most --stages 7" in copied.text("#refusal"))
    asked = copied.js("['resource', 'navigation'].flatMap(kind => performance.getEntriesByType(kind)).map(one => one.name)")
    assert all(address.startswith(copied.base) for address in asked)


# ---------------------------------------------------------------------------------------------- the engine in the page


def plain(**words: str) -> Answer:
    return PipelineQuestion.of(words).plain_answer()


def expect(page: Page, answer: Answer) -> None:
    """The page has the numbers of ``answer``, to the last bit, its tables, and what bounds the kernel."""
    values = [figure.value for figure in answer.figures]
    page.until(lambda: page.figures() == values)
    if ", bound by " in answer.verdict:
        assert page.text(".verdict").partition(", bound by ")[2] == answer.verdict.partition(", bound by ")[2]
    for idx, table in enumerate(answer.tables):
        head, *rows = page.table(idx)
        assert head == table.columns
        assert sorted(rows) == sorted(table.rows)


def expect_results(page: Page, launch: dict[str, Any], buffer: bytes) -> None:
    """The module in the page gives back what Python's gives."""
    script = """gpusim.run.run(Uint8Array.from(atob(arguments[0]), letter => letter.charCodeAt(0)))
        .then(bytes => btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join('')))"""
    found = read_buffer(b64decode(page.later(script, b64encode(buffer).decode())), OUTPUT_SECTIONS)
    wanted = EngineRun(buffer, kernel="gemm", num_ctas=launch["num_ctas"]).run()
    assert wanted["totals"][0] > 0
    for name, array in wanted.items():
        assert found[name].tobytes() == array.tobytes(), name


KERNELS: list[dict[str, str]] = [
    {}, {"schedule": "pingpong"}, {"schedule": "multistage", "copy": "cp_async", "math": "mma_sync", "gpu": "a100_sxm_40gb"},
    {"math": "fma", "dtype": "fp32", "tile": "64x64x16", "schedule": "multistage", "copy": "auto", "stages": "2"},
    {"cluster": "2x1", "tile": "128x256x64", "stages": "3"}, {"gpu": "toy", "schedule": "multistage"},
]  # fmt: skip


@pytest.mark.parametrize("words", KERNELS, ids=str)
def test_the_page_gives_pythons_answer_to_the_last_bit(served: Page, words: dict[str, str]) -> None:
    words = {"m": "768", "n": "512", "k": "512", **words}
    query = "&".join(f"{name}={text}" for name, text in words.items())
    served.open(f"pipeline.html?{query}")
    served.until_verdict("gemm on")
    expect(served, plain(**words))
    assert "The engine's module ran in this page" in served.text("#status")
    launch = served.later("fetch('api/pipeline?' + arguments[0]).then(reply => reply.json())", query)["launch"]
    expect_results(served, launch, b64decode(launch["buffer"]))


def test_a_slider_asks_nobody(served: Page) -> None:
    served.open(f"pipeline.html?{SMALL}")
    served.until_verdict("gemm on h200_sxm takes")
    words = dict(pair.split("=") for pair in SMALL.split("&"))
    expect(served, plain(**words))
    assert served.js("document.getElementById('moved').hidden && !document.getElementById('expected').hidden")
    asked = "performance.getEntriesByType('resource').length"
    before = served.js(asked)
    served.slide("latency", "3.5")
    expect(served, plain(**words, latency="3.5"))
    served.slide("hbm_bandwidth", "0.25")
    served.slide("l2_bandwidth", "0.5")
    expect(served, plain(**words, latency="3.5", hbm_bandwidth="0.25", l2_bandwidth="0.5"))
    assert served.js(asked) == before
    assert served.js("!document.getElementById('moved').hidden && document.getElementById('expected').hidden")
    assert served.js("location.search").endswith("&latency=3.5&hbm_bandwidth=0.25&l2_bandwidth=0.5")
    assert "3.5 x latency" in served.text("#compare caption")
    assert served.text("#latency + output") == "3.5"
    served.driver.back()
    served.until(lambda: served.text("#l2_bandwidth + output") == "1")
    expect(served, plain(**words, latency="3.5", hbm_bandwidth="0.25"))


def test_the_slider_of_bytes_shows_other_cells_and_a_fault_its_first_wrong_element(served: Page) -> None:
    """Step 0 copies A to a stage, and step 2 loads it to registers. Then A has a wrong swizzle."""

    def cells() -> list[str]:
        picture = b64decode(served.js("document.querySelector('main img').src").partition(",")[2]).decode()
        return re.findall("<rect [^>]*>", picture)

    served.open("bytes.html?kernel=cp_async")
    served.until_verdict("Step 0 of")
    first = cells()
    served.slide("step", "2")
    served.until_verdict("Step 2 of")
    assert "Ldmatrix" in served.text(".verdict")
    assert "equals that of numpy" in served.text("main")
    assert first and cells() and cells() != first
    served.slide("fault", "swizzle")
    served.js("document.querySelector('form').requestSubmit()")
    served.until(lambda: "differs from that of numpy" in served.text("main"))
    assert re.search(r"\(lane \d+, value \d+\).* \(bank \d+\), written by CpAsync of A", served.text("main"))


def test_the_ring_in_the_page_is_the_reports(served: Page) -> None:
    served.open(f"pipeline.html?{SMALL}&stages=3")
    served.until_verdict("gemm on h200_sxm takes")
    question = PipelineQuestion.of({**dict(pair.split("=") for pair in SMALL.split("&")), "stages": "3"})
    timeline = of_sm(question.run(question.planned()).timeline, None)
    start, end = opening_window(timeline)
    (ring,) = [ring for ring in rings_of(timeline, timeline.copies[0].cta_idx) if ring.num_stages > 1]
    full = [fill.full_cycle for fills in ring.fills.values() for fill in fills if fill.full_cycle is not None]
    figure = "document.querySelectorAll('#answer figure')[1]"
    labels = served.js(f"[...{figure}.querySelectorAll('text')].map(one => one.textContent)")
    assert [f"a, b [{stage}]" for stage in range(3)] == [text for text in labels if text.startswith("a, b [")]
    in_legend = 1
    assert served.js(f"{figure}.querySelectorAll('.mark:not(.open)').length") - in_legend == (
        sum(start <= cycle <= end for cycle in full)
    )
    assert served.js(f"{figure}.querySelectorAll('.mark.open').length") - in_legend == (
        sum(start <= flip.cycle <= end for flip in ring.freed)
    )
    assert f"cycles {start:,.0f} to {end:,.0f}" in served.text("#answer figure:nth-of-type(2) figcaption")


def test_a_long_run_leaves_the_page_alive_and_is_left_for_the_next(served: Page) -> None:
    served.open("pipeline.html?m=8192&n=8192&k=8192&tile=128x256x64")
    served.until(lambda: "% of the CTAs" in served.text("#status") or served.text(".verdict") != "")
    served.driver.execute_script("document.getElementById('m').value = document.getElementById('n').value = 512")
    served.driver.execute_script("document.getElementById('k').value = 512")
    served.slide("latency", "2")
    expect(served, plain(m="512", n="512", k="512", tile="128x256x64", latency="2"))


def test_a_copy_runs_its_launches_by_itself(copied: Page) -> None:
    copied.open("pipeline.html?latency=2")
    copied.until_verdict("gemm on h200_sxm takes")
    expect(copied, plain(k="1024", stages="3", latency="2"))
    copied.slide("l2_bandwidth", "1.5")
    expect(copied, plain(k="1024", stages="3", latency="2", l2_bandwidth="1.5"))
    launch = dict(question_of("pipeline", {"k": "1024", "stages": "3"}).answer().launch or {})
    expect_results(copied, launch, b64decode(launch["buffer"]))
