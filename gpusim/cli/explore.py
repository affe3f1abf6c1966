"""``explore``: bank conflicts, pipelines and moved bytes in the browser; or a static copy for a course's site."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.options import progress
from gpusim.errors import ConfigError, nearest

DEFAULT_PORT, LAST_PORT = 8710, 65535
WANTS = ("starlette", "uvicorn", "jinja2")
"""Packages of the extra ``explore``."""


def explore_command(
    port: Annotated[int, typer.Option(
        "--port", metavar="N", help="port of this machine to listen on; 0 is any free one")] = DEFAULT_PORT,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    export: Annotated[str | None, typer.Option(
        "--export", metavar="DIR", rich_help_panel="Output",
        help="Write a static copy instead, with some 800 answers and launches (some minutes of a core, 40 MB), and end. An "
        "older copy stays until all is written. After Ctrl-C the same --export goes on.")] = None,
    only: Annotated[str | None, typer.Option(
        "--only", metavar="PAGE", help="the page of --export, banks or pipeline; by default both",
        rich_help_panel="Output")] = None,
    jobs: Annotated[int | None, typer.Option(
        "--jobs", metavar="N", help="processes of --export; by default one for each core", rich_help_panel="Output")] = None,
) -> None:
    """Explore bank conflicts, pipelines and moved bytes in the browser: change one thing, and see what changes.

    Pages are served to this machine alone (127.0.0.1), and need no network.
    Ctrl-C ends it.

    For example:
    gpusim explore
    """
    missing = [name for name in WANTS if find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise ConfigError(f"explore: {', '.join(missing)} {are} not installed; use pip install 'gpusim[explore]'")
    if not 0 <= port <= LAST_PORT:
        raise ConfigError(f"--port {port} wants a number from 0 to {LAST_PORT}")
    if export is not None:
        _export(export, only, jobs)
        return
    for flag, value in (("--only", only), ("--jobs", jobs)):
        if value is not None:
            raise ConfigError(f"{flag} is of a static copy: say --export DIR, too")
    with suppress(KeyboardInterrupt):
        from gpusim.explore.app import listening, serve

        serve(listening(port), opens=not no_open, tell=_tell)
    typer.echo("explore: ended")


def _tell(address: str) -> None:
    typer.echo(f"explore: {address} (Ctrl-C ends it)")


def _export(folder: str, only: str | None, jobs: int | None) -> None:
    from gpusim.explore.export import check_folder, export, left_over
    from gpusim.explore.forms import OFFERED
    from gpusim.report.number_format import count, size

    where = Path(folder)
    check_folder(where, "--export")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs} is too few, wants 1 or more")
    if only is not None and only not in OFFERED:
        raise ConfigError(f"--only {only!r} is unknown; {nearest(only, list(OFFERED))}")
    offered = OFFERED if only is None else {only: OFFERED[only]}
    if remark := left_over(where, offered):
        typer.echo(f"explore: {remark}", err=True)
    with progress(says_left=False) as tell:
        try:
            written = export(where, jobs=jobs, offered=offered, tell=partial(tell, "answers worked out"))
        except KeyboardInterrupt:
            kept = "the older copy is as it was" if (where / "index.html").is_file() else "no page is written yet"
            typer.echo(f"explore: {kept}; the same command goes on with the answers that are done", err=True)
            raise
    kept = f" ({written.num_kept} of them from before)" if written.num_kept else ""
    answers = f"{count(written.num_answers, 'answer')} and {count(written.num_refusals, 'refusal')}{kept}"
    pictures = count(written.num_pictures, "picture")
    typer.echo(f"Written: {where / 'index.html'}: {answers}, {pictures}, {size(written.num_bytes)}")
