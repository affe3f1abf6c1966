"""``lint``: races, missing fences and wrong barriers of launches in a Python file, whatever the timing."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.options import GPU_HELP, MISMATCH, OK, console_for, find_gpu, output_path, write_json
from gpusim.errors import ConfigError, GpusimError, nearest

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec
    from gpusim.workload.launch import Launch


def lint_command(
    target: Annotated[str, typer.Argument(
        metavar="FILE.py[:LAUNCH]", help="a Python file, and a launch in it or a function that returns one")],
    gpu_name: Annotated[str, typer.Option("--gpu", metavar="NAME", help=GPU_HELP)] = "h200_sxm",
    json_path: Annotated[str | None, typer.Option(
        "--json", metavar="FILE", help="Write the findings as JSON. - is stdout.")] = None,
) -> None:  # fmt: skip
    """Find races in shared memory, missing fences and wrong barriers of your own launches, whatever the timing.

    Status 0: nothing found; 1: findings; 2: the file cannot be read, or a launch is refused.
    """
    output, gpu = output_path(json_path, "--json"), find_gpu(gpu_name, "--gpu")
    found = {name: launch.check(gpu) for name, launch in launches_of(target, gpu).items()}
    console = console_for(output)
    if output is not None:
        write_json([
            {"launch": name, "kind": finding.kind, "is_error": finding.is_error, "message": finding.message}
            for name, findings in found.items() for finding in findings
        ], output)  # fmt: skip
    for name, findings in found.items():
        for finding in findings:
            console.print(f"{name}: {finding.kind}: {finding}", soft_wrap=True)
    num = sum(map(len, found.values()))
    launches = "1 launch" if len(found) == 1 else f"{len(found)} launches"
    console.print(f"{num} finding{'s' * (num != 1)} in {launches}")
    raise typer.Exit(MISMATCH if num else OK)


def launches_of(target: str, gpu: GpuSpec) -> dict[str, Launch]:
    """Launches that ``FILE.py[:LAUNCH]`` names, by name. Without a name: all in the file, and the function ``launch``.

    Raises:
        ConfigError: the file cannot be read or run, or it has no such launch.
    """
    from gpusim.workload.launch import Launch

    path, _, name = target.rpartition(":") if ".py:" in target else (target, "", "")
    module = _module_of(Path(path))
    held = {key: item for key, item in vars(module).items() if isinstance(item, Launch)}
    makers = {key: item for key, item in vars(module).items() if inspect.isfunction(item)}
    if not name:
        found = held or {key: _made(key, makers[key], gpu) for key in ("launch",) if key in makers}
        if not found:
            raise ConfigError(f"lint: {path} has no Launch and no function launch; name one, as {path}:NAME")
        return found
    if name not in held and name not in makers:
        raise ConfigError(f"lint: {name!r} is nothing in {path}; {nearest(name, [*held, *makers])}")
    return {name: held[name] if name in held else _made(name, makers[name], gpu)}


def _made(name: str, make: Any, gpu: GpuSpec) -> Launch:
    """Launch that a function returns. It may take the GPU."""
    from gpusim.workload.launch import Launch

    needed = [item for item in inspect.signature(make).parameters.values() if item.default is item.empty]
    if len(needed) > 1:
        raise ConfigError(f"lint: function {name!r} wants {len(needed)} arguments, wants none or the GPU")
    try:
        made = make(*[gpu for _ in needed])
    except GpusimError:
        raise
    except Exception as error:
        raise ConfigError(f"lint: function {name!r} ends with {type(error).__name__}: {error}") from error
    if not isinstance(made, Launch):
        raise ConfigError(f"lint: function {name!r} returns a {type(made).__name__}, wants a Launch")
    return made


def _module_of(path: Path) -> Any:
    name = f"gpusim_linted_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise ConfigError(f"lint: {str(path)!r} is no Python file, wants FILE.py or FILE.py:LAUNCH")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"lint: {path} ends with {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module
