"""``compile``: the busiest modules by the C compiler, or none of them."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli.options import spinner


def compile_command(
    clean: Annotated[bool, typer.Option("--clean", help="Go back to plain Python.")] = False,
) -> None:
    """Compile the busiest modules (mypyc, a C compiler, two to four minutes): GEMMs take 0.3 to 0.5 of the time, others 0.6.

    Nothing else changes. After an edit of the sources they are interpreted again, until this is done again.
    """
    from gpusim.compiled import home, is_current, read_manifest
    from gpusim.compiling import build, clean_up

    if clean:
        typer.echo("compiled modules are removed" if clean_up() else "nothing was compiled")
        return
    manifest = read_manifest()
    if manifest is not None and is_current(manifest):
        typer.echo(f"compiled already, of these sources: {home()}")
        return
    with spinner("compiling, two to four minutes") as status:
        told: list[str] = []

        def tell(at: str, seconds: float) -> None:
            if status is not None:
                status.update(f"compiling, two to four minutes: {at}, {seconds:.0f} s")
            elif at not in told:  # no terminal: a line each
                told.append(at)
                typer.echo(f"compiling: {at}", err=True)

        where = build(tell=tell)
    typer.echo(f"compiled: {where}")
