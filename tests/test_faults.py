"""Hostile inputs, drawn by a seed: each is answered or refused in one sentence.

``GPUSIM_FUZZ=10`` draws ten times as many.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from gpusim import Buffer, GpusimError, Launch, Mbarrier, WarpRole, load_gpu, simulate
from gpusim.cli import main
from gpusim.evidence.cases.case import Answer
from gpusim.evidence.validate import answers as cached
from gpusim.evidence.validate.answers import Kept, Question
from gpusim.machine.config import configs_dir
from gpusim.workload import ops
from gpusim.workload.smem.access import AccessPattern

TIMES = int(os.environ.get("GPUSIM_FUZZ", "1"))
TOY = load_gpu("toy")

ODD: tuple[Any, ...] = (
    -1, 0, 1, 2, 7, 1 << 31, 1 << 70, 0.5, float("nan"), float("inf"), None, "", "full", "a", "\x00", (), (0, 0), (0,), [1],
    {}, True, b"x", object(), AccessPattern(num_requests=1),
)  # fmt: skip


def is_a_sentence(text: str) -> bool:
    """One line with words, and no traceback."""
    return 10 < len(text) < 2000 and "\n" not in text and "Traceback" not in text


# ---------------------------------------------------------------------- the last handler


def handles(pid: int, number: int) -> bool:
    """Whether a process handles a signal; True where nobody says so."""
    status = Path(f"/proc/{pid}/status")
    caught = re.search(r"SigCgt:\s*(\w+)", status.read_text()) if status.exists() else None
    return caught is None or int(caught[1], 16) >> (number - 1) & 1 == 1


def crash(*arguments: object, **named: object) -> None:
    raise KeyError("")


def test_a_fault_is_one_sentence_with_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpusim.cli.gpus.console_for", crash)
    monkeypatch.delenv("GPUSIM_TRACEBACK", raising=False)
    assert main(["gpus"]) == 70
    assert capsys.readouterr().err == "gpusim: a fault of gpusim itself, KeyError: ''; GPUSIM_TRACEBACK=1 shows where\n"
    monkeypatch.setenv("GPUSIM_TRACEBACK", "1")
    assert main(["gpus"]) == 70
    assert "in crash" in capsys.readouterr().err


def test_sys_exit_of_a_users_code_is_no_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gpusim.cli.gpus.console_for", lambda *_: sys.exit(0))
    assert main(["gpus"]) == 2
    assert "calls sys.exit()" in capsys.readouterr().err

    def program(cta: Any) -> Iterator[ops.Op]:
        yield ops.Syncthreads()
        sys.exit(0)

    role = WarpRole(name="r", num_warps=1, program=program)
    with pytest.raises(GpusimError, match="role 'r' of CTA 0: its program raises SystemExit: 0 before op 2"):
        simulate(Launch(kernel="k", num_ctas=1, num_tiles=1, roles=(role,)), TOY)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")
def test_a_closed_pipe_is_no_success() -> None:
    command = [sys.executable, "-m", "gpusim", "gpus"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_all_processes_with_one_sentence(tmp_path: Path, number: str, status: int) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    words = ["sweep", "gemm", "--gpu", "h200_sxm", "--m", "8192", "--n", "8192", "--k", "8192"]
    words += ["--tile", "128x128x64,64x64x64", "--stages", "2,3,4,5,6", "--jobs", "2", "--json", str(old)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "gpusim", *words], stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        while not handles(process.pid, getattr(signal, number)):  # Python is still starting
            time.sleep(0.01)
        time.sleep(3.0)
        began = time.monotonic()
        os.killpg(process.pid, getattr(signal, number))
        _, errors = process.communicate(timeout=60)
        took = time.monotonic() - began
    assert process.returncode == status
    assert errors.count("gpusim: interrupted") == 1
    assert not re.search("Traceback|leaked", errors)
    assert old.read_text() == "old"
    assert took < 10.0  # a loaded machine; a second on one that is free


# ---------------------------------------------------------------------- command lines

WORDS = (
    "predict", "explain", "sweep", "advise", "banks", "layout", "raster", "gpus", "check", "sass", "gemm", "softmax", "copy",
    "--gpu", "toy", "h200_sxm", "--m", "--n", "--k", "64", "-1", "1e400", "0", "128x128x64", "--tile", "--stages", "2..9",
    "--json", "-", "/", "--layout", "(8,8):(8,1)", "((", "--access", "ldmatrix_x4", "--help", "--version", "--", "-x", "",
    "\udcff", "é", "--dtype", "bf16", "--rows", "--columns", "--json=", "--bias=3", "--gpu=", "--top", "x" * 300,
)  # fmt: skip


def test_command_lines_are_answered_or_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random(11)
    statuses = set()
    for _ in range(60 * TIMES):
        words = [draw.choice(WORDS) for _ in range(draw.randint(1, 9))]
        status = main([*words, *(["--jobs", "1"] if words[0] == "sweep" else [])])
        err = capsys.readouterr().err
        assert status in (0, 1, 2, 3), words
        assert status != 2 or is_a_sentence(err.splitlines()[-1]), (words, err)
        statuses.add(status)
    assert statuses >= {0, 2}


# ---------------------------------------------------------------------- descriptions of GPUs


def test_descriptions_of_gpus_are_read_or_refused(tmp_path: Path) -> None:
    draw = random.Random(12)
    lines = (configs_dir() / "toy.toml").read_text(encoding="utf-8").splitlines()
    places = [place for place, line in enumerate(lines) if line.strip()]
    odd = ("-1", "0", "nan", "inf", "1e400", '"x"', "[]", "{}", "true", "99999999999999999999", "[[1]]", "'", "")
    num_refused = num_read = 0
    for number in range(60 * TIMES):
        damaged = list(lines)
        for place in draw.sample(places, draw.randint(1, 3)):
            name, _, _ = damaged[place].partition("=")
            damaged[place] = draw.choice((f"{name}= {draw.choice(odd)}", "", damaged[draw.choice(places)], name, "[x]"))
        path = tmp_path / f"{number}.toml"
        path.write_text("\n".join(damaged), encoding="utf-8")
        try:
            load_gpu(str(path))
        except GpusimError as error:
            num_refused += is_a_sentence(str(error))
        else:
            num_read += 1
    assert num_read + num_refused == 60 * TIMES
    assert num_refused > 20 * TIMES


# ---------------------------------------------------------------------- launches of one's own

KINDS = [kind for kind in vars(ops).values() if isinstance(kind, type) and issubclass(kind, ops.Op) and kind is not ops.Op]


def right(kind: Any, draw: random.Random) -> list[Any]:
    """Arguments of an op that may be right."""
    words = {
        "tensor": "A", "tile": (0, draw.randrange(3)), "buffer": "a", "barrier": "full", "stage": draw.randrange(4),
        "parity": 0, "num_bytes": 128, "num_fetched_bytes": 128, "num_rows": 1,
        "access": AccessPattern(num_requests=1, num_bytes=128),
    }  # fmt: skip
    return [words.get(item.name, 1) for item in fields(kind) if item.default is MISSING]


def drawn_op(draw: random.Random) -> Any:
    """An op whose arguments are right or odd, or no op."""
    kind: Any = draw.choice(KINDS)
    given = right(kind, draw)
    if given and draw.random() < 0.4:
        given[draw.randrange(len(given))] = draw.choice(ODD)
    return kind(*given) if draw.random() < 0.95 else draw.choice(ODD)


def drawn_program(draw: random.Random) -> Any:
    """A program that yields drawn ops, or none."""
    if draw.random() < 0.05:
        return draw.choice((3, lambda: iter(()), lambda cta: 3, lambda cta: iter([1]), None))
    some = [drawn_op(draw) for _ in range(draw.randint(0, 5))]
    fails = draw.random() < 0.1

    def program(cta: Any) -> Iterator[Any]:
        token: Any = None
        for op in some:
            token = (yield op if op is not True else ops.Use(token)) or token
        if fails:
            raise draw.choice((ValueError("boom"), KeyError(), RecursionError(), StopAsyncIteration(), OSError(5, "io")))

    return program


def drawn_launch(draw: random.Random) -> Launch:
    """A launch with odd numbers here and there."""

    def number(usual: Any) -> Any:
        return draw.choice(ODD) if draw.random() < 0.02 else usual

    roles = tuple(
        WarpRole(name=number(f"role{idx}"), num_warps=number(draw.choice((1, 4))), program=drawn_program(draw))
        for idx in range(draw.randint(1, 3))
    )
    return Launch(
        kernel="drawn", num_ctas=number(2), num_tiles=number(2), roles=roles, num_flops=number(0),
        registers_per_thread=number(32), cluster_size=number(1), extra_smem_bytes=number(0),
        buffers=(Buffer(name="a", stage_bytes=number(1024), num_stages=number(4)),),
        mbarriers=(Mbarrier(name="full", num_arrivals=number(1), num_stages=number(4)),),
    )


@pytest.mark.parametrize("given", [{"num_ctas": 1 << 26, "num_tiles": 1}, {"num_ctas": 1, "num_tiles": 1 << 26}])
def test_a_launch_that_no_memory_holds_is_refused(given: dict[str, int]) -> None:
    role = WarpRole(name="r", num_warps=1, program=lambda cta: iter((ops.Syncthreads(),)))
    with pytest.raises(GpusimError, match="plans at most 33554432"):
        Launch(kernel="k", roles=(role,), **given).check(TOY)


def test_a_check_of_ones_own_launch_shows_its_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from gpusim import Launch, WarpRole\nfrom gpusim.workload import ops\n"
        "def program(cta):\n    yield ops.Syncthreads()\n"
        "role = WarpRole(name='r', num_warps=1, program=program)\n"
        "launch = Launch(kernel='k', num_ctas=9999, num_tiles=9999, roles=(role,))\n"
    )
    seen: list[int] = []
    monkeypatch.setattr("gpusim.cli.options.Spinner.show_progress", lambda _, *numbers: seen.append(numbers[1]))
    profile = Path(__file__).parent / "evidence" / "data" / "copy_raw.csv"
    main(["check", str(profile), "--gpu", "h200_sxm", "--match", "copy", "--launch", f"{tmp_path}/mine.py:launch"])
    assert set(seen) == {9999}


def test_launches_of_ones_own_are_simulated_or_refused() -> None:
    draw = random.Random(13)
    kinds: dict[str, int] = {}
    for number in range(400 * TIMES):
        try:
            found = f"answer of {simulate(drawn_launch(draw), TOY, max_events=100_000).cycles} cycles"
        except GpusimError as error:
            found = f"{type(error).__name__} {error}"
        assert is_a_sentence(found), (number, found)
        kind = found.split()[0]
        kinds[kind] = kinds.get(kind, 0) + 1
    assert min(kinds[name] for name in ("answer", "LaunchError", "KernelError", "DeadlockError")) >= 2, kinds


# ---------------------------------------------------------------------- lines of the cache


def asked(number: int) -> Question:
    return Question(case="k", path=Path("k.csv"), row={"number": str(number)}, names=("cycles",))


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    lambda text, draw: text[: draw.randrange(len(text))],
    lambda text, draw: draw.randbytes(200),
    lambda text, draw: text.replace(b".", b"1.", draw.randint(1, 3)),
    lambda text, draw: b"\n".join([*text.split(b"\n"), *draw.choices((b"5", b"null", b"[1,2]", b"{}", b"[" * 9000), k=2)]),
    lambda text, draw: bytes(draw.randrange(256) if draw.random() < 0.02 else byte for byte in text),
)


def test_a_damaged_cache_gives_right_answers_or_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(14)
    num_lost = 0
    for number in range(60 * TIMES):
        folder = tmp_path / str(number)
        kept = Kept.of(TOY, folder)
        for each in range(6):
            kept.put(asked(each), {"cycles": Answer(value=each + 0.5)})
        kept.path.write_bytes(draw.choice(DAMAGES)(kept.path.read_bytes(), draw))
        again = Kept.of(TOY, folder)
        for each in range(6):
            found = again.get(asked(each))
            num_lost += found is None
            assert found in (None, {"cycles": Answer(value=each + 0.5)})
        again.put(asked(9), {"cycles": Answer(value=9.5)})
        assert Kept.of(TOY, folder).get(asked(9)) == {"cycles": Answer(value=9.5)}
    assert num_lost > 60 * TIMES
    assert "lines are damaged; their rows are simulated again" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["a file in its place", "a folder as file"])
def test_a_cache_that_cannot_be_used_costs_one_remark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    folder = tmp_path / "judged"
    if kind == "a folder as file":
        Kept.of(TOY, folder).path.mkdir(parents=True)
    else:
        folder.write_text("")
    kept = Kept.of(TOY, folder)
    for each in range(3):
        kept.put(asked(each), {"cycles": Answer(value=1.0)})
    assert kept.get(asked(2)) == {"cycles": Answer(value=1.0)}
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "the cache of answers cannot be" in err
    assert cached.MOST_KEPT > 0


# ---------------------------------------------------------------------- output files


def test_a_file_that_is_written_again_keeps_its_mode(tmp_path: Path) -> None:
    from gpusim.report.output import write_whole

    path = tmp_path / f"{'x' * 250}.csv"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(path, b"new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_links_in_a_circle_are_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.symlink_to(tmp_path / "b.json")
    (tmp_path / "b.json").symlink_to(path)
    assert main(["predict", "gemm", "--m", "64", "--n", "64", "--k", "64", "--gpu", "toy", "--json", str(path)]) == 2
    assert f"gpusim: {path}: its links lead in a circle, wants a file" in capsys.readouterr().err
