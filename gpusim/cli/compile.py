"""``compile``: the busiest modules by the C compiler, or none of them."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli.options import spinner


def compile_command(
    clean: Annotated[bool, typer.Option("--clean", help="Go back to plain Python.")] = False,
) -> None:
    """Compile the busiest modules (mypyc and a C compiler, some minutes): predictions take half of the time.

    Nothing else changes. After an edit of the sources they are interpreted again, until this is done again.
    """
    from gpusim.compiling import build, clean_up

    if clean:
        clean_up()
        typer.echo("nothing is compiled")
        return
    with spinner("compiling, some minutes"):
        where = build()
    typer.echo(f"compiled: {where}")
