"""Models of a library's GEMMs by the names of their kernels: cuBLAS in a profile of PyTorch, for example.

In: a profile, and the GEMM that the caller asked for. Out: a :class:`~gpusim.evidence.gate.models.Model` for each name, grid
and block whose options :mod:`gpusim.evidence.toolchain.cublas_kernels` reads.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError
from gpusim.evidence.cases.judged_metrics import REGISTERS
from gpusim.evidence.gate.models import L2, Model
from gpusim.evidence.toolchain.cublas_kernels import idle_warps, options, turned_layout
from gpusim.evidence.toolchain.cublas_names import is_reduction, parse_name

if TYPE_CHECKING:
    from gpusim.evidence.nsight.launches import ProfiledLaunch, ProfileFile
    from gpusim.machine.config import GpuSpec

DTYPE, LAYOUT = "bf16", "tn"
"""Type and layout of a problem that has only sizes."""
PROBLEM = re.compile(
    r"(?P<m>[0-9]{1,7})x(?P<n>[0-9]{1,7})x(?P<k>[0-9]{1,7})(:(?![nt]{2}$)(?P<dtype>[a-z0-9]+))?(:(?P<layout>[nt]{2}))?"
)


def problem_of(text: str, flag: str = "--problem") -> dict[str, str]:
    """Sizes, type and layout of ``MxNxK[:TYPE][:LAYOUT]``, in upper or lower case.

    >>> problem_of("4096X2048X1024:NN")
    {'m': '4096', 'n': '2048', 'k': '1024', 'dtype': 'bf16', 'layout': 'nn'}

    Raises:
        ConfigError: the text is no problem.
    """
    found = PROBLEM.fullmatch(text.lower())
    if found is None or not all(int(found[name]) for name in "mnk"):
        raise ConfigError(f"{flag} {text!r} wants MxNxK[:TYPE][:LAYOUT], for example 4096x4096x4096:bf16:tn")
    return {
        **{name: found[name] for name in "mnk"}, "dtype": found["dtype"] or DTYPE, "layout": found["layout"] or LAYOUT,
    }  # fmt: skip


def _doubt(kernel: str, layout: str) -> str:
    """Remark where the letters of a kernel's name are those of another layout; empty where they fit.

    The library computes D^T = B^T A^T from operands that it takes for column-major, or D where its M is the caller's.

    >>> _doubt("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "nt")
    "the kernel's name has the letters TN, and a problem in layout nt gives NT: is the layout right?"
    >>> _doubt("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "tn")
    ''
    """
    named = parse_name(kernel)
    fitting = dict.fromkeys((turned_layout(layout), layout))
    if named is None or not named.layout or named.layout in fitting:
        return ""
    return (
        f"the kernel's name has the letters {named.layout.upper()}, and a problem in layout {layout} gives "
        f"{' or '.join(fitting).upper()}: is the layout right?"
    )


def library_models(
    profile: ProfileFile, problem: str, gpu: GpuSpec, *, match: str = "", l2: L2 = "flushed", flag: str = "--problem"
) -> tuple[Model, ...]:
    """Models of the launches whose names can be read and ``match``, one per name, grid and block.

    A reduction of split-K follows its GEMM and is of the same call; a separate model predicts it.

    Raises:
        ConfigError: there is no such launch, or the text is no problem.
    """
    config, launches = problem_of(problem, flag), profile.launches
    models: dict[tuple[object, ...], Model] = {}
    sums: dict[tuple[object, ...], list[ProfiledLaunch]] = {}
    for place, launch in enumerate(launches):
        if parse_name(launch.kernel) is None or is_reduction(launch.kernel) or not re.search(match, launch.kernel):
            continue
        after = [item for item in launches[place + 1 : place + 2] if is_reduction(item.kernel)]
        name = " + ".join(item.kernel for item in (launch, *after))
        shapes = {key: "x".join(map(str, shape)) for key, shape in (("grid", launch.grid), ("block", launch.block))}
        counted = {REGISTERS: f"{launch.metrics[REGISTERS]:g}"} if REGISTERS in launch.metrics else {}
        found = options(config, {"launched": name, **shapes, **counted}, gpu)
        if found is not None:
            model = Model(
                kernel="gemm", options=found, match=launch.kernel, grid=launch.grid, block=launch.block, l2=l2,
                num_idle_warps=idle_warps(found, shapes), doubt=_doubt(launch.kernel, config["layout"]),
            )
            key = launch.kernel, launch.grid, launch.block
            models.setdefault(key, model)
            sums.setdefault(key, []).extend(after)
    if not models:
        names = ", ".join(list(dict.fromkeys(launch.kernel for launch in launches))[:3])
        raise ConfigError(f"{flag}: no kernel of the profile is a library's GEMM whose name can be read ({names})")
    reductions = (
        replace(models[key], match=items[0].kernel, launch_ids=tuple(item.idx for item in items), grid=(), block=(),
                kernel_idx=1, num_idle_warps=0)
        for key, items in sums.items() if items
    )  # fmt: skip
    return *models.values(), *reductions
