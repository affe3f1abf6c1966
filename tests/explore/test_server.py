"""The explorer's server: what it tells to whom, what it refuses, how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from gpusim.cli import explore, main
from gpusim.errors import ConfigError
from gpusim.explore.answers import Answer, RefusedError
from gpusim.explore.app import HEADERS, listening, make_app
from gpusim.explore.pages import ASSETS
from gpusim.explore.questions import answer_of, question_of
from gpusim.explore.worker import MOST_SMALL, MOST_WORK, Gone, Pool, Worker, Workers, answered

PORT = 8710
HOST = f"127.0.0.1:{PORT}"
PATHS = ("/", "/index.html", "/banks.html", "/pipeline.html", "/api/banks", *(f"/{name}" for name in ASSETS))

asked: list[tuple[str, dict[str, str]]] = []


def ask(page: str, words: Mapping[str, str], is_plain: bool, gone: Gone) -> Answer:
    assert not gone()
    asked.append((page, dict(words)))
    return answer_of(question_of(page, words), is_plain=is_plain)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(make_app(ask, PORT), base_url=f"http://{HOST}") as found:
        yield found


def test_an_answer_is_html_and_numbers(client: TestClient) -> None:
    reply = client.get("/api/banks", params={"swizzle": "128B"})
    assert reply.status_code == 200
    told = reply.json()
    assert told["figures"][0] == {"label": "wavefronts", "value": 4, "unit": "", "digits": 0}
    assert "ldmatrix_x4 takes 4 wavefronts, as few as it can" in told["html"]
    assert "counted on hardware" in told["html"]
    assert 'alt="Lanes by banks: ldmatrix_x4 takes 4 wavefronts' in told["html"]
    assert "gpusim banks --layout &#39;(64,64):(64,1)&#39; --dtype bf16 --access ldmatrix_x4 --swizzle 128B" in told["html"]


def test_a_refusal_is_a_sentence_and_its_field(client: TestClient) -> None:
    reply = client.get("/api/pipeline", params={"stages": "12"})
    assert reply.status_code == 422
    assert reply.json()["field"] == "stages"
    assert reply.json()["refusal"].startswith("--stages 12: with --tile 128x128x64 they need 394464 bytes")


@pytest.mark.parametrize("path", PATHS)
def test_everything_says_what_it_may_load_and_who_may_have_it(client: TestClient, path: str) -> None:
    reply = client.get(path)
    assert reply.status_code == 200
    for name, value in HEADERS.items():
        assert reply.headers[name] == value
    assert "access-control-allow-origin" not in reply.headers
    policy = dict(part.split(maxsplit=1) for part in reply.headers["content-security-policy"].split("; "))
    assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
    assert policy["default-src"] == "'none'"
    assert not any("unsafe" in sources for name, sources in policy.items() if name != "script-src")


@pytest.mark.parametrize("path", [path for path in PATHS if "api" not in path])
def test_no_page_names_anything_elsewhere(client: TestClient, path: str) -> None:
    text = re.sub(r'"http://www.w3.org/2000/svg"|"[\w+/=]{1000,}"', "", client.get(path).text)  # a name; the module
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", re.sub(r"(?m)^\s*//.*|; //.*$|\{ //.*$", "", text))
    assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", text)


@pytest.mark.parametrize("headers", [
    {"host": "evil.example"}, {"host": f"evil.example:{PORT}"}, {"host": "127.0.0.1"}, {"host": "127.0.0.1:80"},
    {"host": f"127.0.0.1.evil.example:{PORT}"}, {"host": ""}, {"origin": "http://evil.example"}, {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"}, {"origin": f"https://{HOST}"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
], ids=str)  # fmt: skip
def test_who_comes_from_elsewhere_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    before = len(asked)
    reply = client.get("/api/banks", headers=headers)
    assert reply.status_code == 403
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert len(asked) == before


@pytest.mark.parametrize("headers", [
    {"host": f"localhost:{PORT}"}, {"host": f"LOCALHOST:{PORT}"}, {"origin": f"http://{HOST}"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
], ids=str)  # fmt: skip
def test_who_is_here_is_answered(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/banks.html", headers=headers).status_code == 200


def test_nothing_but_reading_is_answered_and_no_other_path(client: TestClient) -> None:
    assert [client.request(method, "/api/banks").status_code for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [405] * 4
    for path in ("/docs", "/api/raster", "/../pyproject.toml", "/page/base.html", "/base.html", "/raster.html"):
        assert client.get(path).status_code == 404
    assert client.get(f"/banks.html?at={'1' * 8001}").status_code == 403


def test_what_is_typed_is_escaped(client: TestClient) -> None:
    evil = '"><script>alert(1)</script>'
    assert "<script>alert" not in client.get("/banks.html", params={"at": evil}).text
    plain = client.get("/banks.html", params={"at": evil, "plain": "1"}).text
    assert "<script>alert" not in plain
    assert "is no coordinate of the layout" in plain
    assert 'value="&#34;&gt;&lt;script&gt;' in plain


def test_a_browser_without_scripts_gets_the_answer_in_the_page(client: TestClient) -> None:
    page = client.get("/banks.html", params={"swizzle": "64B", "plain": "1"}).text
    assert "<noscript><input" in page
    assert '<option value="64B" selected>' in page
    assert "Swizzle" in page
    assert '<p class="verdict">ldmatrix_x4 takes 8 wavefronts' in page
    refused = client.get("/banks.html", params={"tile": "typed", "layout": "(64,64", "plain": "1"}).text
    assert "not closed" in refused
    assert 'value="(64,64"' in refused
    assert 'aria-invalid="true"' in refused
    ran = client.get("/pipeline.html", params={"m": "512", "n": "512", "k": "512", "plain": "1"}).text
    assert '<p class="verdict">gemm on h200_sxm takes' in ran
    assert ran.count('<div class="picture"') == 3


def test_a_pipeline_is_a_launch_for_the_page_to_run(client: TestClient) -> None:
    told = client.get("/api/pipeline", params={"m": "512", "n": "512", "k": "512"}).json()
    assert set(told["launch"]["sliders"]) == {"latency", "hbm_bandwidth", "l2_bandwidth"}
    assert [figure["value"] for figure in told["figures"]] == [0.0] * 5
    assert told["html"].count("<tbody>") == 2


# ---------------------------------------------------------------------------------------------- the worker


def test_a_process_answers_and_goes_on_after_what_takes_too_long() -> None:
    worker = Pool(patience_s=60.0)
    try:
        first = worker.ask("banks", {"swizzle": "128B"})
        assert first == answered("banks", {"swizzle": "128B"})
        assert worker.ask("banks", {"swizzle": "128B"}) is first  # kept
        with pytest.raises(RefusedError, match="rows is 'x'") as refused:
            worker.ask("banks", {"rows": "x"})
        assert refused.value.field == "rows"
        worker._patience_s = 0.005
        with pytest.raises(RefusedError, match=r"takes longer than 0\.005 seconds"):
            worker.ask("pipeline", {})
        worker._patience_s = 60.0
        assert worker.ask("pipeline", {}).page == "pipeline"  # what took too long once is asked again, not remembered
        with pytest.raises(RefusedError, match="use at most --stages 7"):
            worker.ask("pipeline", {"stages": "12"})
        worker._idle.get()  # it answers another question
        assert worker.ask("banks", {"swizzle": "128B"}) is first
    finally:
        worker.end()


def test_what_has_ended_starts_no_other_process() -> None:
    worker = Pool()
    worker.end()
    with pytest.raises(RefusedError, match="no more questions are answered"):
        worker.ask("banks", {})
    assert worker.workers[0]._process is None


def test_two_large_questions_are_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer waits until the other question has begun."""
    both = threading.Barrier(2, timeout=10.0)

    def answer(*arguments: Any) -> Any:
        both.wait()
        return RefusedError(arguments[2]["m"])

    monkeypatch.setattr(Worker, "ask", answer)
    large: list[dict[str, str]] = [{"m": m, "n": "8192", "k": "8192"} for m in ("8192", "7168")]
    workers = Workers()
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(workers.ask, "pipeline", words, True) for words in large]
    assert [str(future.exception()) for future in futures] == ["8192", "7168"]


LARGE = {"m": "16384", "n": "16384", "k": "16384", "tile": "16x8x16"}


@pytest.mark.parametrize("words", [LARGE, {**LARGE, "tile": "64x64x64"}, {"m": "16384", "n": "16384", "dtype": "fp32"}])
def test_too_much_work_is_refused_before_it_begins(words: dict[str, str]) -> None:
    workers = Workers()
    with pytest.raises(RefusedError, match="times as much work as one answer may take"):
        workers.ask("pipeline", words, True)
    assert {worker._process for worker in (*workers.small.workers, *workers.large.workers)} == {None}


def test_questions_are_large_by_their_work() -> None:
    def work(words: dict[str, str], *, is_plain: bool) -> int:
        return question_of("pipeline", words).work(is_plain=is_plain)

    assert work({}, is_plain=False) < work({}, is_plain=True) < MOST_SMALL
    assert MOST_SMALL < work({"m": "8192", "n": "8192", "k": "8192"}, is_plain=True) < MOST_WORK
    assert question_of("banks", {}).work(is_plain=True) == 0


def test_a_question_whose_client_has_left_is_dropped() -> None:
    worker = Pool()
    with pytest.raises(RefusedError, match="nobody waits"):
        worker.ask("banks", {}, False, lambda: True)
    worker._idle.get()  # it answers another question
    with pytest.raises(RefusedError, match="nobody waits"):
        worker.ask("banks", {}, False, iter((False, True)).__next__)
    assert worker.workers[0]._process is None


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_from_another_site_starts_no_work(client: TestClient, site: str) -> None:
    asked.clear()
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    reply = client.get("/pipeline.html?plain=1&m=64", headers=headers, follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (303, "/pipeline.html")
    assert client.get("/api/banks", headers=headers).status_code == 403
    assert asked == []


# ---------------------------------------------------------------------------------------------- the command


def test_it_listens_on_the_loopback_address_alone() -> None:
    with listening(0) as found:
        address, port = found.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(ConfigError, match=rf"--port {port}: .*; use another, or --port 0"):
            listening(port)


@pytest.mark.parametrize("is_asked", [True, False])
def test_ctrl_c_ends_it(is_asked: bool) -> None:
    """As a terminal sends it, to all processes: the one that answers may just be starting."""
    command = [sys.executable, "-m", "gpusim", "explore", "--port", "0", "--no-open"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert address is not None
        if is_asked:
            with urllib.request.urlopen(f"{address[0]}banks.html", timeout=30) as reply:
                assert b"<h1>Banks</h1>" in reply.read()
        os.killpg(process.pid, signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
        assert (process.returncode, rest, errors) == (0, "explore: ended\n", "")


Refuses = Callable[[Sequence[str], Sequence[str]], None]


def test_bad_input_costs_one_sentence(refuses: Refuses, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refuses(["explore", "--port", "70000"], ["--port 70000 wants a number from 0 to 65535"])
    refuses(["explore", "--host", "0.0.0.0"], ["--host is unknown"])
    refuses(["explore", "--export", "no/such"], ["--export 'no/such' lies in no directory"])
    refuses(["explore", "--export", "x", "--jobs", "0"], ["--jobs 0 is too few"])
    refuses(["explore", "--export", "x", "--only", "bank"], ["--only 'bank' is unknown; did you mean 'banks'?"])
    refuses(["explore", "--only", "banks"], ["--only is of a static copy: say --export DIR, too"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refuses(["explore", "--no-open", "--port", str(taken.getsockname()[1])], ["--port", "use another"])
    monkeypatch.setattr(explore, "find_spec", lambda name: None if name == "uvicorn" else util.find_spec(name))
    refuses(["explore"], ["explore: uvicorn is not installed; use pip install 'gpusim[explore]'"])


def test_a_folder_with_files_of_others_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").touch()
    assert main(["explore", "--export", str(tmp_path)]) == 2
    assert "holds files that no export wrote" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_every_asset_is_there() -> None:
    from gpusim.explore.pages import asset

    assert all(len(asset(name)) > 50 for name in ASSETS)
