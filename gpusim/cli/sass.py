"""``sass``: registers, spills, tensor instructions and wait depths in the SASS of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.options import console_for, output_path, write_json
from gpusim.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from gpusim.evidence.toolchain.sass import KernelSass


def sass_command(
    target: Annotated[str, typer.Argument(metavar="CUBIN|KERNEL", help="a cubin or executable, or a folder of kernels/")],
    entry: Annotated[str | None, typer.Option("--entry", metavar="NAME", help="this entry point alone")] = None,
    arch: Annotated[str, typer.Option("--arch", metavar="SM", help="what a folder of kernels/ is built for")] = "sm_90a",
    json_path: Annotated[str | None, typer.Option("--json", metavar="FILE", help="write it as JSON; - is stdout")] = None,
    code_path: Annotated[str | None, typer.Option(
        "--compiled-code", metavar="FILE.toml", help="write the compiled code of --entry, for gpusim predict")] = None,
) -> None:  # fmt: skip
    """Show registers, spills, tensor instructions, wait depths and the main loop of compiled kernels; needs no GPU.

    The depth is that of wgmma.wait_group as compiled, the value for --wgmma-depth of a prediction.
    """
    from gpusim.evidence.toolchain.sass import read_sass

    output = output_path(json_path, "--json")
    kernels = read_sass(_cubin(target, arch))
    if entry is not None and entry not in kernels:
        raise ConfigError(f"--entry {entry!r} is no kernel of {target}; {nearest(entry, kernels)}")
    if not kernels:
        raise ConfigError(f"{target} holds no kernel, wants a cubin or an executable with one")
    if code_path is not None:
        _write_code(kernels, entry, code_path)
    found = [summary(kernel) for name, kernel in kernels.items() if entry in (None, name)]
    if output is not None:
        write_json(found, output)
    _render(found, console_for(output))


def _write_code(kernels: Mapping[str, KernelSass], entry: str | None, code_path: str) -> None:
    from gpusim.evidence.toolchain.compiled_code import read_compiled_code
    from gpusim.report.output import write_whole

    if entry is None and len(kernels) > 1:
        raise ConfigError(f"--compiled-code is of one kernel, say which of {len(kernels)}, as --entry {min(kernels)}")
    output = output_path(code_path, "--compiled-code", ".toml")
    assert output is not None
    write_whole(output, read_compiled_code(kernels[entry or min(kernels)]).as_toml().encode())


def _cubin(target: str, arch: str) -> Path:
    from gpusim.evidence.bench.frameworks import has_source
    from gpusim.evidence.cases.case import case_names, kernel_folder, kernel_path, load_case
    from gpusim.evidence.toolchain.cuda_toolkit import build, capability_of

    if Path(target).is_file():
        return Path(target)
    if target not in case_names():
        folder = kernel_folder(target) if target.isidentifier() else Path(target)
        if folder.is_dir():  # compiler probes, which are never launched
            held = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file()))
            raise ConfigError(f"{kernel_path(target)} has no case.py, scripts beside it build it ({held}); give a cubin")
        raise ConfigError(f"{target!r} is no file and no folder of kernels/; {nearest(target, case_names())}")
    capability_of(arch)
    case = load_case(target)
    if not has_source(case):
        raise ConfigError(f"{target!r} is launched by {case.framework} and has no kernel.cu, wants a cubin")
    return build(case, arch).path


def summary(kernel: KernelSass) -> dict[str, Any]:
    """Properties of a kernel: static counts of instructions, overall and in its main loop."""
    loop = kernel.main_loop
    return {
        "kernel": kernel.name, "registers": kernel.num_registers, "stack_bytes": kernel.stack_bytes,
        "smem_bytes": kernel.smem_bytes, "spills": kernel.num_spills, "instructions": len(kernel.instructions),
        "tensor": dict(kernel.tensor_shapes), "dummy_wgmmas": kernel.num_dummy_wgmmas,
        "wgmma_wait_depths": list(kernel.wgmma_wait_depths), "cp_async_wait_depths": list(kernel.cp_async_wait_depths),
        "main_loop": None if loop is None else {
            "instructions": len(loop.instructions), "tensor": dict(loop.tensor_shapes),
            "wgmma_wait_depths": list(loop.wgmma_wait_depths), "cp_async_wait_depths": list(loop.cp_async_wait_depths),
            "opcodes": dict(loop.opcodes.most_common()),
        },
    }  # fmt: skip


def _render(found: list[dict[str, Any]], console: Console) -> None:
    for kernel in found:
        lines = [
            f"{kernel['kernel']}: {kernel['instructions']} instructions, {kernel['registers']} registers, "
            f"{kernel['smem_bytes']} B static shared memory, {kernel['stack_bytes']} B stack, {kernel['spills']} spills",
        ]
        lines += _of(kernel, "  ")
        if kernel["dummy_wgmmas"]:
            lines.append(f"  {kernel['dummy_wgmmas']} wgmma that compute nothing: the compiler has put groups in order")
        loop = kernel["main_loop"]
        if loop is None:
            lines.append("  no loop")
        else:
            opcodes = ", ".join(f"{count} {name}" for name, count in loop["opcodes"].items())
            lines += [f"  main loop, {loop['instructions']} instructions: {opcodes}", *_of(loop, "    ")]
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)


def _of(part: dict[str, Any], indent: str) -> list[str]:
    """Lines on tensor instructions and waits of a kernel or a loop."""
    lines = []
    if part["tensor"]:
        lines.append(f"{indent}tensor: {', '.join(f'{count} {shape}' for shape, count in part['tensor'].items())}")
    for what, depths in (("wgmma", part["wgmma_wait_depths"]), ("cp.async", part["cp_async_wait_depths"])):
        if depths:
            lines.append(f"{indent}{what} waits until so many groups are left: {', '.join(map(str, depths))}")
    return lines
