"""Shared parts of the commands: exit statuses, command groups, output files, GPUs, consoles and progress."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, cast

from typer.core import TyperGroup

from gpusim.errors import ConfigError, GpusimError, nearest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from gpusim.machine.config import GpuSpec

GPU_HELP = "GPU by name, by a unique beginning of it (gpusim gpus lists all), or by TOML file."

OK, MISMATCH, BAD_INPUT, CLOSED_PIPE = 0, 1, 2, 141
"""Exit statuses of the process."""


class PartOfResult(GpusimError):  # noqa: N818  # Ctrl-C is no error
    """Command that was interrupted and has kept what was finished. The message says where."""


def where(context: Any) -> str:
    """Prefix of errors of a command, for example ``predict gemm: ``; empty at the root."""
    words = context.command_path.split()[1:] if context is not None else []
    return f"{' '.join(words)}: " if words else ""


class Commands(TyperGroup):
    """Command group that suggests the nearest command for an unknown name."""

    noun = "command"

    def hint(self, name: str, known: Sequence[str]) -> str:
        """Hint at the known name that an unknown ``name`` means."""
        return nearest(name, known)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Command that ``args`` begin with."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            raise ConfigError(f"{where(ctx)}{args[0]!r} is no {self.noun}; {self.hint(args[0], known)}")
        return super().resolve_command(ctx, args)


def check_choice(name: str, found: str, known: Sequence[str]) -> str:
    """``found`` if it is known.

    Raises:
        ConfigError: it is unknown; the text has the flag and the nearest choice.
    """
    if found not in known:
        raise ConfigError(f"{name} {found!r} is unknown; {nearest(found, known)}")
    return found


def find_gpu(name: str, flag: str) -> GpuSpec:
    """GPU by name or path.

    Raises:
        ConfigError: there is no such GPU, or its description is refused; the text has the flag where it concerns the name.
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
    """GPU as a user would type it: the file that describes it, or its full name."""
    return typed if typed.endswith(".toml") else gpu.name


def output_path(text: str | None, flag: str, *suffixes: str) -> Path | None:
    """Path of an output: None if it was not requested, ``-`` for JSON on stdout. No ``suffixes``: any is allowed.

    Raises:
        GpusimError: the name is no file's, or the file cannot be written.
    """
    from gpusim.report.output import check_output

    if text is None or (text == "-" and flag == "--json"):
        return None if text is None else Path("-")
    if not text or text.startswith("-"):
        raise ConfigError(f"{flag} {text!r} looks like an option, wants the name of a file")
    check_output(Path(text), flag=flag, suffixes=suffixes)
    return Path(text)


def refuse_same(outputs: Mapping[str, Path | None], inputs: Mapping[str, str | None] = MappingProxyType({})) -> None:
    """Check that no two outputs (by flag) have one file, and that none is a file that is read (``inputs``, by flag).

    Raises:
        ConfigError: an output's file is taken; the text names its flag.
    """
    from gpusim.report.output import resolved

    taken = {resolved(Path(text)): flag for flag, text in inputs.items() if text}
    for flag, path in outputs.items():
        if path is not None:
            other = taken.setdefault(resolved(path), flag)
            if other != flag:
                raise ConfigError(f"{flag} {str(path)!r} is the file of {other}, too; wants another name")


def part_path(path: Path) -> Path:
    """File in the folder of ``path`` for a part of a result. It must not replace a full one; stdout stays stdout.

    >>> part_path(Path("old.json")), part_path(Path("-"))
    (PosixPath('old.interrupted.json'), PosixPath('-'))
    """
    return path if str(path) == "-" else path.with_name(f"{path.stem}.interrupted{path.suffix}")


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
    """JSON-compatible ``value``: numpy numbers as Python's, infinity and NaN as null, other objects as text."""
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
"""Columns of an output that is no terminal, more than any table has, so that a row stays a line."""


PLAIN: Mapping[str, Any] = MappingProxyType({"emoji": False, "highlight": False})
"""Arguments of consoles: tables have no emoji names, and numbers no colour."""


def console_for(json_path: Path | None) -> Console:
    """Console for tables: stdout, or stderr if stdout has the JSON document. Files and pipes get the full width."""
    from rich.console import Console

    console = Console(stderr=json_path is not None and str(json_path) == "-", **PLAIN)
    if console.is_terminal:
        return console
    width = None if "COLUMNS" in os.environ else WIDE
    return Console(file=cast("IO[str]", _Trimmed(console.file)), width=width, **PLAIN)


class _Trimmed:
    """Text file that drops blanks at the end of a line."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        return self._file.write(re.sub(r" +$", "", text, flags=re.MULTILINE) if text.endswith("\n") else text)


SILENT_S = 1.0
"""Seconds of a simulation before a terminal shows its progress."""

LEAST_SHARE, ENOUGH_CTAS = 0.15, 20_000
"""Fraction of the CTAs, and number of CTAs, of which one must exit before the remaining time is estimated.

First waves take longer to simulate. Runs that look for a clock end before."""


class Spinner:
    """Progress on stderr: a spinner in a terminal, elsewhere an occasional line in long runs."""

    def __init__(self, status: Status | None, text: str) -> None:
        """Start without a line; ``status`` is a terminal's."""
        self._status = status
        self._text = text
        self._since = time.perf_counter()
        self._last_line = self._since + LINE_AFTER_S - LINE_EVERY_S
        self._cycle = 0.0
        self._points: list[tuple[float, int]] = []

    def update(self, text: str) -> None:
        """Show that another step begins."""
        self._text, self._since = text, time.perf_counter()
        self._points.clear()
        self._tell(text)

    def show_progress(self, num_done: int, num_ctas: int, cycle: float) -> None:
        """Show that ``num_done`` CTAs have exited by ``cycle``."""
        now = time.perf_counter()
        if cycle < self._cycle:  # another run of the launch: at another clock, or without a part
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
        elif (now := time.perf_counter()) >= self._last_line + LINE_EVERY_S:
            self._last_line = now
            sys.stderr.write(f"gpusim: {text}\n")
            sys.stderr.flush()


def seconds_left(points: Sequence[tuple[float, int]], num_ctas: int) -> float | None:
    """Seconds until all CTAs have exited; None where it is too early to estimate. ``points``: (time, CTAs that have exited).

    The rate is that of the second half of the time, since the first CTAs exit a CTA's lifetime after the start.

    >>> seconds_left([(0.0, 0), (1.0, 0), (2.0, 100), (3.0, 200), (4.0, 300)], 1000), seconds_left([(0.0, 0), (2.0, 9)], 99)
    (7.0, None)
    >>> seconds_left([(0.0, 0), (1.0, 10_000), (3.0, 30_000)], 10_000_000)
    997.0
    """
    (begin, at_first), (now, num_done) = points[0], points[-1]
    middle = bisect_right(points, (begin + now) / 2.0, key=lambda point: point[0]) - 1
    then, before = points[middle]
    if num_done == at_first or num_done < min(ENOUGH_CTAS, LEAST_SHARE * num_ctas):
        return None
    rates = [(num_done - before) / (now - then), (num_done - at_first) / (now - begin)]
    return (num_ctas - num_done) / max(rates)


LINE_AFTER_S, LINE_EVERY_S = 3.0, 10.0
"""Seconds until the first line where stderr is no terminal, and between lines."""


@contextmanager
def spinner(text: str) -> Iterator[Spinner]:
    """Context manager that shows ``text`` and progress on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Spinner(None, text)
        return
    with console.status(text) as status:
        yield Spinner(status, text)


@contextmanager
def progress(*, says_left: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Context manager with a callback for (description, number done, total number), shown on stderr.

    A terminal shows a bar, other outputs an occasional line. ``says_left``: the description includes the remaining time.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        last_line = time.perf_counter()
        began: list[tuple[int, float]] = []  # the first two (done, time) pairs; the second follows the start-up

        def say(what: str, done: int, total: int) -> None:
            nonlocal last_line
            now = time.perf_counter()
            if len(began) < 2:
                began.append((done, now))
            if now - last_line < LINE_EVERY_S or done >= total:
                return
            last_line = now
            text = f"{done} of {total}: {what}"
            before, since = began[-1]
            if done > before and not says_left:
                text += f", about {(now - since) / (done - before) * (total - done):.0f} s left"
            console.print(text, soft_wrap=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    time_column = TimeElapsedColumn() if says_left else TimeRemainingColumn()
    with Progress(*columns, time_column, console=console, transient=says_left, speed_estimate_period=600.0) as bar:
        task = bar.add_task("", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield tell
