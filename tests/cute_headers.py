"""Ask the real CuTe: programs that print one answer a line, compiled by g++ against the CUTLASS headers.

The generators of the tables beside ``tests/layout`` and ``tests/workload`` write the programs; what CuTe's assertions refuse
is told by the assertion.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every generator takes."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--cutlass", required=True, help="include folder of CUTLASS")
    made.add_argument("--cuda", required=True, help="include folder of the CUDA toolkit")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--jobs", type=int, default=2)
    return made


def include_flags(args: argparse.Namespace) -> list[str]:
    """What g++ is told about the headers."""
    return [f"-I{args.cutlass}", f"-I{args.cuda}", f"-I{args.cuda}/cccl"]


def ask(source_text: Callable[[dict[int, str]], str], num_cases: int, flags: list[str], *, most_letters: int) -> list[str]:
    """The answer of each case; those that do not compile are found by compiling again without them.

    Args:
        source_text: refused cases to the program, each case on a line of a file that calls itself ``cases``, so that an
            error names it. The program prints ``number, tab, answer``.
        num_cases: how many answers are wanted.
        flags: of the compiler.
        most_letters: of an assertion's text.

    Raises:
        RuntimeError: what g++ says, where no case is to blame.
    """
    refused: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "cases.cpp", Path(folder) / "cases"
        while True:
            source.write_text(source_text(refused), encoding="utf-8")
            command = ["g++", "-std=c++17", "-O0", "-w", "-fmax-errors=0", *flags, str(source), "-o", str(program)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            found = refusals(done.stderr, most_letters)
            if not found:
                raise RuntimeError(done.stderr[:4000])
            refused |= found
        printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    answers = dict(line.split("\t", 1) for line in printed)
    return [refused[i] if i in refused else answers[str(i)] for i in range(num_cases)]


def refusals(errors: str, most_letters: int) -> dict[int, str]:
    """Case to assertion, from the compiler's errors."""
    found: dict[int, str] = {}
    current = -1
    for line in errors.splitlines():
        for match in re.finditer(r"\bcases:(\d+):", line):
            current = int(match[1]) - 1
        if "error:" in line and current >= 0:
            message = line.split("error:", 1)[1].strip().removeprefix("static assertion failed: ")
            found.setdefault(current, f"refused: {message[:most_letters]}")
    return found


def without_underscores(answer: str) -> str:
    """An answer of static integers (``_8``) as one of plain ones."""
    return answer if answer.startswith("refused: ") else re.sub(r"_(?=\d)", "", answer)
