"""What commands share: statuses, groups that name the nearest command, outputs, GPUs, where text goes."""

from __future__ import annotations

import math
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

from gpusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from gpusim.machine.config import GpuSpec

GPU_HELP = "GPU by name, by a unique beginning of it (gpusim gpus lists all), or by TOML file."

OK, MISMATCH, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""What the process leaves with."""


def where(context: Any) -> str:
    """``predict gemm: `` for errors below a command, empty at the root."""
    words = context.command_path.split()[1:] if context is not None else []
    return f"{' '.join(words)}: " if words else ""


class Commands(TyperGroup):
    """A group that names the nearest command."""

    noun = "command"

    def hint(self, name: str, known: Sequence[str]) -> str:
        """What was meant by an unknown ``name``."""
        return nearest(name, known)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that ``args`` begin with."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            raise ConfigError(f"{where(ctx)}{args[0]!r} is no {self.noun}; {self.hint(args[0], known)}")
        return super().resolve_command(ctx, args)


def check_choice(name: str, found: str, known: Sequence[str]) -> str:
    """``found`` if it is known.

    Raises:
        ConfigError: it is not; names the flag and the nearest choice.
    """
    if found not in known:
        raise ConfigError(f"{name} {found!r} is unknown; {nearest(found, known)}")
    return found


def find_gpu(name: str, flag: str) -> GpuSpec:
    """A GPU by name or path.

    Raises:
        ConfigError: no such GPU, or a description that is refused; carries the flag where it concerns the name.
    """
    from gpusim.machine.config import gpu_names, load_gpu

    if name.endswith(".toml") and not Path(name).is_file():
        raise ConfigError(f"{flag} {name!r} is no file, wants a TOML file or one of {', '.join(gpu_names())}")
    try:
        return load_gpu(name)
    except ConfigError as error:
        raise ConfigError(f"{flag} {str(error).removeprefix('gpu: ')}") from None
    except OSError as error:
        raise ConfigError(f"{flag} {name!r} cannot be read: {error.strerror}, wants a readable TOML file") from None


def name_of(typed: str, gpu: GpuSpec) -> str:
    """A GPU as one types it again: the file that describes it, or its full name."""
    return typed if typed.endswith(".toml") else gpu.name


def output_path(text: str | None, flag: str, *suffixes: str) -> Path | None:
    """Where an output goes: None if it was not asked for, ``-`` for JSON on stdout; no ``suffixes`` means any.

    Raises:
        GpusimError: a name that is no file's, or one that could not be written.
    """
    from gpusim.report.output import check_output

    if text is None or (text == "-" and flag == "--json"):
        return None if text is None else Path("-")
    if not text or text.startswith("-"):
        raise ConfigError(f"{flag} {text!r} looks like an option, wants the name of a file")
    check_output(Path(text), flag=flag, suffixes=suffixes)
    return Path(text)


def refuse_same(outputs: Mapping[str, Path | None], inputs: Mapping[str, str | None] = MappingProxyType({})) -> None:
    """Refuse two outputs (by flag) into one file, or one into a file that is read (``inputs``, likewise).

    Raises:
        ConfigError: the second one, by name.
    """
    taken = {Path(text).resolve(): flag for flag, text in inputs.items() if text}
    for flag, path in outputs.items():
        if path is not None:
            other = taken.setdefault(path.resolve(), flag)
            if other != flag:
                raise ConfigError(f"{flag} {str(path)!r} is the file of {other}, too; wants another name")


def write_json(document: Any, path: Path) -> None:
    """Write a document as JSON, to stdout if ``path`` is ``-``."""
    import json

    from gpusim.report.output import write_whole

    text = json.dumps(_finite(document), indent=2, allow_nan=False) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        write_whole(path, text.encode())


def _finite(value: Any) -> Any:
    """``value`` as JSON can hold it: numpy's numbers as Python's, infinity and NaN as null, anything else as text."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


WIDE = 1000
"""Columns of what is no terminal, more than any table has: a row stays a line."""


def console_for(json_path: Path | None) -> Console:
    """Where tables go: stdout, or stderr when stdout is the JSON document's; as wide as they need be in a file or pipe."""
    from rich.console import Console

    console = Console(stderr=json_path is not None and str(json_path) == "-", emoji=False)  # no table of their names
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(stderr=console.stderr, width=WIDE, emoji=False)


SILENT_S = 1.0
"""Seconds that a simulation takes before a terminal shows how far it is."""

LEAST_SHARE = 0.15
"""Part of the CTAs that exit before the time left is estimated. First waves take longer to simulate.
Runs that look for a clock end before."""


class Spinner:
    """What one waits for, on stderr: a spinner in a terminal, elsewhere a line now and then once it takes long."""

    def __init__(self, status: Status | None, text: str) -> None:
        """Nothing is told yet; ``status`` is a terminal's."""
        self._status = status
        self._text = text
        self._since = time.perf_counter()
        self._told_at = self._since + LINE_AFTER_S - LINE_EVERY_S
        self._cycle = 0.0
        self._points: list[tuple[float, int]] = []

    def update(self, text: str) -> None:
        """Something else begins."""
        self._text, self._since = text, time.perf_counter()
        self._points.clear()
        self._tell(text)

    def show_progress(self, num_done: int, num_ctas: int, cycle: float) -> None:
        """So many CTAs have exited by a cycle."""
        now = time.perf_counter()
        if cycle < self._cycle:  # another run of the same launch: at another clock, or of all behind a part
            self._points.clear()
        self._cycle = cycle
        self._points.append((now, num_done))
        if now - self._since < SILENT_S:
            return
        left_s = seconds_left(self._points, num_ctas)
        left = "" if left_s is None else f", about {max(1.0, left_s):.0f} s left"
        self._tell(f"{self._text}: {num_done:,} of {num_ctas:,} CTAs, cycle {cycle:,.0f}{left}")

    def _tell(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
        elif (now := time.perf_counter()) >= self._told_at + LINE_EVERY_S:
            self._told_at = now
            sys.stderr.write(f"gpusim: {text}\n")
            sys.stderr.flush()


def seconds_left(points: Sequence[tuple[float, int]], num_ctas: int) -> float | None:
    """Seconds until all CTAs have exited; None where it is too early to say. ``points``: time, CTAs that have exited.

    The rate is that of the second half of the time: the first CTAs exit a CTA's lifetime after the start.

    >>> seconds_left([(0.0, 0), (1.0, 0), (2.0, 100), (3.0, 200), (4.0, 300)], 1000), seconds_left([(0.0, 0), (2.0, 9)], 99)
    (7.0, None)
    """
    (begin, at_first), (now, num_done) = points[0], points[-1]
    middle = bisect_right(points, (begin + now) / 2.0, key=lambda point: point[0]) - 1
    then, before = points[middle]
    if num_done == at_first or num_done < LEAST_SHARE * num_ctas:
        return None
    rates = [(num_done - before) / (now - then), (num_done - at_first) / (now - begin)]
    return (num_ctas - num_done) / max(rates)


LINE_AFTER_S, LINE_EVERY_S = 3.0, 10.0
"""Where stderr is no terminal: after so many seconds the first line, and how long until the next."""


@contextmanager
def spinner(text: str) -> Iterator[Spinner]:
    """What is waited for, on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Spinner(None, text)
        return
    with console.status(text) as status:
        yield Spinner(status, text)


@contextmanager
def progress(*, says_left: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Hears what is done, how many of it, of how many: on stderr a bar, or where that is no terminal a line now and then.

    ``says_left``: what it hears says how long the rest takes.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        told = time.perf_counter()
        began: list[tuple[int, float]] = []  # what was there, and the first that came, behind what it takes to begin

        def say(what: str, done: int, total: int) -> None:
            nonlocal told
            now = time.perf_counter()
            if len(began) < 2:
                began.append((done, now))
            if now - told < LINE_EVERY_S or done >= total:
                return
            told = now
            text = f"{done} of {total}: {what}"
            before, since = began[-1]
            if done > before and not says_left:
                text += f", about {(now - since) / (done - before) * (total - done):.0f} s left"
            console.print(text, highlight=False, soft_wrap=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    time_column = TimeElapsedColumn() if says_left else TimeRemainingColumn()
    with Progress(*columns, time_column, console=console, transient=says_left, speed_estimate_period=600.0) as bar:
        task = bar.add_task("", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield tell
