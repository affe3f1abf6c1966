"""``explore``: banks and pipelines in the browser, answered by this machine; or a static copy for a course's site."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gpusim.errors import ConfigError

DEFAULT_PORT, LAST_PORT = 8710, 65535
WANTS = ("starlette", "uvicorn", "jinja2")
"""What the extra ``explore`` brings."""


def explore_command(
    port: Annotated[int, typer.Option(
        "--port", metavar="N", help="port of this machine to listen on; 0 is any free one")] = DEFAULT_PORT,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    export: Annotated[str | None, typer.Option(
        "--export", metavar="DIR", rich_help_panel="Output",
        help="write a static copy instead, with some 800 answers worked out beforehand (some minutes of all cores, some "
        "50 MB), and end; Ctrl-C leaves a part, which the next --export replaces")] = None,
    jobs: Annotated[int | None, typer.Option(
        "--jobs", metavar="N", help="processes of --export; by default one for each core", rich_help_panel="Output")] = None,
) -> None:
    """Explore bank conflicts and pipelines in the browser: change one thing, and see what changes.

    Pages are served to this machine alone (127.0.0.1), and need no network.
    Ctrl-C ends it.

    For example:
    gpusim explore
    """
    missing = [name for name in WANTS if find_spec(name) is None]
    if missing:
        raise ConfigError(f"explore: {', '.join(missing)} is not installed; use pip install 'gpusim[explore]'")
    if not 0 <= port <= LAST_PORT:
        raise ConfigError(f"--port {port} wants a number from 0 to {LAST_PORT}")
    if export is not None:
        _export(export, jobs)
        return
    from gpusim.explore.app import listening, serve

    serve(listening(port), opens=not no_open, tell=_tell)
    typer.echo("explore: ended")


def _tell(address: str) -> None:
    typer.echo(f"explore: {address} (Ctrl-C ends it)")


def _export(folder: str, jobs: int | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gpusim.explore.export import check_folder, export
    from gpusim.report.words import count, size

    where = Path(folder)
    check_folder(where, "--export")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs} is too few, wants 1 or more")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("answers", total=None)
        written = export(where, jobs=jobs, tell=lambda done, total: progress.update(task, completed=done, total=total))
    typer.echo(
        f"Written: {where / 'index.html'}: {count(written.num_answers, 'answer')} and "
        f"{count(written.num_refusals, 'refusal')}, {count(written.num_pictures, 'picture')}, {size(written.num_bytes)}"
    )
