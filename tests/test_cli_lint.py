"""``gpusim lint``: findings in launches of a Python file, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusim.cli import main

KERNEL = """
from gpusim import Buffer, Launch, Mbarrier, WarpRole
from gpusim.workload import ops

def program(cta):
    yield ops.MbarrierArriveExpectTx("full", 0, 4096)
    yield ops.TmaLoad("in", (0, 0), 4096, 4096, 32, "tile", 0, "full")
    WAIT
    yield ops.TmaStore("out", (0, 0), 4096, 32, "tile", 0)
    yield ops.BulkCommitGroup()
    yield ops.BulkWaitGroup(0)

def launch(gpu):
    return Launch(kernel="copy", num_ctas=1, num_tiles=1, roles=(WarpRole(name="copy", num_warps=1, program=program),),
                  buffers=(Buffer(name="tile", stage_bytes=4096),), mbarriers=(Mbarrier(name="full", num_arrivals=1),))

def other():
    return 3

def broken():
    return 1 / 0

def many(a, b):
    return None
"""
RIGHT, WRONG = KERNEL.replace("WAIT", 'yield ops.MbarrierWait("full", 0, 0)'), KERNEL.replace("WAIT", "pass")


def kernel(folder: Path, text: str) -> str:
    """A file with this text."""
    path = folder / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_right_launch_is_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", kernel(tmp_path, RIGHT)]) == 0
    assert "0 findings in 1 launch" in capsys.readouterr().out


def test_a_file_may_define_dataclasses(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass Tile:\n    m: int\n"
    assert main(["lint", kernel(tmp_path, text + RIGHT), "--gpu", "toy"]) == 0


def test_a_wrong_launch_is_status_1_with_both_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", f"{kernel(tmp_path, WRONG)}:launch", "--gpu", "h100_sxm"]) == 1
    said = capsys.readouterr().out
    assert "launch: race: copy: role 'copy' of CTA 0, op 2 (TmaStore) reads tile[0]" in said
    assert "its own op 1 (TmaLoad) may still write it; missing: a wait for this phase of mbarrier full[0]" in said
    assert "1 finding in 1 launch" in said


def test_launches_that_a_file_holds_are_all_checked(tmp_path: Path) -> None:
    text = f"{WRONG}\nfirst, second = launch(None), launch(None)\n"
    assert main(["lint", kernel(tmp_path, text), "--json", str(tmp_path / "found.json")]) == 1
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [(item["launch"], item["kind"], item["is_error"]) for item in found] == [
        ("first", "race", True), ("second", "race", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (":lunch", "or 'launch'?"),
        (":other", "gives a int, wants a Launch"),
        (":broken", "raised ZeroDivisionError: division by zero"),
        (":many", ":many wants 2 arguments, wants none or the GPU"),
    ],
)
def test_what_is_no_launch_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str) -> None:
    assert main(["lint", f"{kernel(tmp_path, RIGHT)}{name}"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"), [("1 / 0", "raised ZeroDivisionError"), ("a b", "raised SyntaxError"), ("", "has no Launch")]
)
def test_a_file_that_cannot_be_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert main(["lint", kernel(tmp_path, text)]) == 2
    assert said in capsys.readouterr().err
    assert main(["lint", str(tmp_path / "none.py")]) == 2
    assert "is no file, wants one that is there" in capsys.readouterr().err


def test_a_launch_that_is_refused_hides_no_finding_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        f"{WRONG}\nimport sys\nfrom dataclasses import replace\n"
        "def leaves(cta):\n    yield ops.Syncthreads()\n    sys.exit(0)\n"
        "first = launch(None)\n"
        "last = replace(first, roles=(replace(first.roles[0], program=leaves),))\n"
    )
    assert main(["lint", kernel(tmp_path, text), "--json", str(tmp_path / "found.json")]) == 2
    said = capsys.readouterr()
    assert "last: refused: copy: role 'copy' of CTA 0: its program raises SystemExit: 0 before op 2" in said.err
    assert "first: race: " in said.out and "1 finding in 2 launches, 1 refused" in said.out
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [(item["launch"], item["kind"]) for item in found] == [("first", "race"), ("last", "refused")]


def test_remarks_are_status_0_and_json_has_stdout_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, load = RIGHT.split("def program(cta):\n")[1].split("\n")[:2]
    unread = f'{head}\n{load}\n    yield ops.MbarrierWait("full", 0, 1)'
    last = "yield ops.BulkWaitGroup(0)"
    text = RIGHT.replace(last, f"{last}\n{unread}") + '\nprint("printed")\n'
    assert main(["lint", kernel(tmp_path, text), "--json", "-"]) == 0
    said = capsys.readouterr()
    assert [(item["kind"], item["is_error"]) for item in json.loads(said.out)] == [("unread", False)]
    assert "printed" in said.err and "0 findings and 1 remark in 1 launch" in said.err


@pytest.mark.parametrize("arguments", ["n=64", "gpu=None", "n=64, *, gpu", "gpu, /", "n=64, *rest"])
def test_a_function_gets_the_gpu_where_it_wants_one(tmp_path: Path, arguments: str) -> None:
    head = f"def launch({arguments}):\n    " + ("assert gpu.num_sms" if "gpu" in arguments else "assert n == 64") + "\n"
    assert main(["lint", kernel(tmp_path, RIGHT.replace("def launch(gpu):\n", head))]) == 0
