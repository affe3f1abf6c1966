"""Child processes of the bench: gpusim itself, alone or under Nsight Compute, with time limits.

In: a plan. Out: results of each config, and the profiler's output. No child outlives the bench.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.errors import ConfigError
from gpusim.evidence.nsight.ncu_command import complaint, ncu_command, parse_metric_names
from gpusim.evidence.toolchain.cuda_toolkit import find_program

POLL_S = 0.2
"""Seconds between checks for progress."""

START_S, PLAIN_S, COUNTED_S = 180.0, 0.5, 2.0
"""Seconds that a child may take: to start, per config, and per config under the profiler."""

WHOLE_S = 30.0
"""Seconds per config of a group that is timed, or counted with cold caches.

Such configs use gigabytes, which the profiler restores for each pass."""

ASK_S = 120.0
"""Seconds that the profiler may take to report its version or metrics."""

Progress = Callable[[int], None]
"""Callback that gets the number of further configs that are done."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Results of a child that has ended: its lines of JSON, its status, and its output."""

    lines: list[dict[str, Any]]
    status: int
    output: str

    @property
    def device(self) -> dict[str, Any]:
        """Device properties that the child reported."""
        return dict(self.lines[0]["device"]) if self.lines and "device" in self.lines[0] else {}

    @property
    def answers(self) -> list[dict[str, Any]]:
        """JSON lines of the configs that were launched, in order."""
        return [line for line in self.lines if "idx" in line]

    @property
    def sentence(self) -> str:
        """Error of the child in one sentence."""
        errors = re.findall(r"^gpusim: (.+)$", self.output, re.MULTILINE)
        printed = [line.strip() for line in self.output.splitlines() if line.strip()]
        last = printed[-1] if printed else f"it ended with status {self.status}"
        return errors[-1] if errors else complaint(self.output) or last


def child_command(plan: Path) -> list[str]:
    """Command that launches a plan's configs and does nothing else."""
    return [sys.executable, "-m", "gpusim", "measure", "--launch-only", str(plan)]


def run_child(
    command: Sequence[str], results: Path, *, most_s: float, progress: Progress | None = None, log: Path | None = None
) -> Ended:
    """Run a child until it ends, or end it after ``most_s`` seconds and keep its results until then.

    Args:
        command: command line of the child.
        results: file into which the child writes its lines of JSON.
        most_s: time limit in seconds.
        progress: called as configs are done.
        log: log file of the profiler, whose text is added to the output.
    """
    output = results.with_suffix(".out")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUNBUFFERED": "1"}
    with output.open("wb") as file:
        child = subprocess.Popen(
            list(command), stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    seen, until = 0, time.monotonic() + most_s
    try:
        while child.poll() is None and time.monotonic() < until:
            time.sleep(POLL_S)
            seen = _tell(progress, results, seen)
    finally:
        if child.poll() is None:
            end_group(child)
    _tell(progress, results, seen)
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in (output, log) if path and path.exists()]
    return Ended(_lines(results), child.returncode, "".join(texts))


def _tell(progress: Progress | None, results: Path, seen: int) -> int:
    if progress is None or not results.exists():
        return seen
    done = max(0, results.read_bytes().count(b"\n") - 1)  # the first line describes the GPU
    if done > seen:
        progress(done - seen)
    return max(done, seen)


def _lines(results: Path) -> list[dict[str, Any]]:
    """Complete JSON lines of ``results``; the last line may have been cut off."""
    if not results.exists():
        return []
    complete, _, _ = results.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in complete.splitlines()]


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child that leads a process group, and all processes of that group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(timeout=10)
        except ProcessLookupError:
            child.wait()
        except subprocess.TimeoutExpired:
            continue
        return


# ---------------------------------------------------------------------------------------------- Nsight Compute
@dataclass(frozen=True, slots=True)
class Ncu:
    """An installed Nsight Compute and the metrics that it has for this GPU; an empty set means that it lists none."""

    path: str
    version: str
    known: frozenset[str]

    def command(
        self, metrics: Sequence[str], log: Path, plan: Path, *, is_cold: bool = False, is_marked: bool = False
    ) -> list[str]:
        """Command that counts a plan's launches.

        ``is_cold``: all caches are flushed before each launch. ``is_marked``: only launches are counted for which the child
        starts the profiler.
        """
        control = "all" if is_cold else "none"
        program = child_command(plan)
        return ncu_command(self.path, metrics, str(log), program, cache_control=control, is_marked=is_marked)


def find_ncu() -> Ncu:
    """The profiler: on the PATH, or where CUDA and Nsight Compute install it.

    Raises:
        ConfigError: it is not installed.
    """
    path = find_program("ncu", *map(str, sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)))
    if path is None:
        raise ConfigError("measure: no ncu on the PATH, wants Nsight Compute, or --no-counters to measure times alone")
    version = re.search(r"Version (\S+)", _output(path, "--version"))
    names = parse_metric_names(_output(path, "--query-metrics"))
    return Ncu(path, version[1] if version else "unknown", frozenset(names))


def _output(path: str, option: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run([path, option], capture_output=True, text=True, check=False, timeout=ASK_S, env=environment)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"measure: {path} {option} did not answer in {ASK_S:.0f} seconds, wants one that works") from None
    return done.stdout
