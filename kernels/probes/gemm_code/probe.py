"""Compile the probes of kernel.cu, read their code from SASS, write probes.csv and the estimate of gpusim.

Needs nvcc and cuobjdump (probes.csv: CUDA 13.0) and no GPU: ``python kernels/probes/gemm_code/probe.py``.
"""

from __future__ import annotations

import csv
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median

import numpy as np

from gpusim.errors import ConfigError
from gpusim.evidence.toolchain.compiled_code import read_compiled_code
from gpusim.evidence.toolchain.cuda_toolkit import find_nvcc
from gpusim.evidence.toolchain.sass import KernelSass, read_sass
from gpusim.kernel_models.gemm.estimated_code import PATH, between_cycles

HERE = Path(__file__).resolve().parent
COMMAND = ("-std=c++17", "-cubin", "-gencode=arch=compute_90a,code=sm_90a")
PARAMETERS = {
    "specialized": "style n blocks consumers stages persistent setmaxnreg pingpong epilogue",
    "multistage": "style copy n blocks consumers stages epilogue",
    "mma_ring": "style warp_m warp_n warps_m warps_n k stages fragments epilogue",
    "ffma_ring": "style thread_m thread_n warps_m warps_n k stages a_turned b_turned",
}
"""Template parameters of kernel.cu, in order."""
EPILOGUES = ("direct", "smem", "tma_store", "part")
COPIES = ("cp_async", "tma")
HALF, LEAST_SLOPE = 0.5, 1e-9
WGMMA_STEP_K = 4
"""wgmma along K of a k-step of 64 elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One row of probes.csv: what the probe is, and its code in cycles of a warp."""

    probe: str
    kind: str
    """Class of the estimate: schedule or math, and copy."""
    epilogue: str
    elements: int
    """Elements of D of a thread."""
    stages: int
    wgmma: int
    """wgmma of a k-step, of ``n`` columns."""
    n: int
    copies: int
    """cp.async of a thread and k-step."""
    slices: int
    """K-slices of a k-step of mma.sync, or k of FFMA."""
    math: int
    """Math instructions of a warp and k-step."""
    step: float
    instructions: float
    copy: float
    prologue: float
    tile: float
    tile_during_wgmma: float
    turn: float
    tile_wide: float
    store: float
    store_during_wgmma: float
    store_wide: float
    imad_wide_per_copy: float
    before_copies: float
    before_barrier: float
    before_use: float
    line_fetches: float
    """Fraction of its cp.async that are LDGSTS.LTC128B."""

    @property
    def is_looping(self) -> bool:
        """Whether it loops over tiles."""
        return not self.probe.startswith("multistage_style0")


def compile_probes(every: int = 1) -> list[Probe]:
    """Figures of the probes of every such line of kernel.cu that names some, compiled anew.

    Raises:
        ConfigError: there is no nvcc, or it refuses the source.
    """
    lines = (HERE / "kernel.cu").read_text(encoding="utf-8").splitlines()
    probes = [idx for idx, text in enumerate(lines) if re.match(r"[A-Z_]+\((?:[A-Z]+_PROBE|\d+), ", text)]
    left_out = {idx for at, idx in enumerate(probes) if at % every}
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.cu", Path(folder) / "probes.cubin"
        source.write_text("\n".join("" if idx in left_out else text for idx, text in enumerate(lines)), encoding="utf-8")
        done = subprocess.run(
            [find_nvcc(), *COMMAND, f"-I{HERE}", str(source), "-o", str(cubin)], capture_output=True, text=True, check=False
        )
        if done.returncode or "C75" in done.stderr:
            raise ConfigError(f"nvcc on {HERE / 'kernel.cu'}: {done.stderr.strip().splitlines()[:1]}")
        kernels = read_sass(cubin)
    return sorted((read_probe(symbol, kernel) for symbol, kernel in kernels.items()), key=lambda probe: probe.probe)


def read_probe(symbol: str, kernel: KernelSass) -> Probe:
    """Figures of one probe.

    Raises:
        ConfigError: the symbol is none of kernel.cu.
    """
    found = re.match(r"_Z\d+([a-z_]+)I((?:L[a-z0-9]+?\d+E|L[ib]\d+E)+)E", symbol)
    if found is None:
        raise ConfigError(f"{symbol}: no probe of kernel.cu has such parameters")
    name, numbers = found[1], [int(word) for word in re.findall(r"L[ib](\d+)E", found[2])]
    p = dict(zip(PARAMETERS[name].split(), numbers, strict=True))
    epilogue = EPILOGUES[p.get("epilogue", 0)]
    slices, copies, wgmma, columns = 1, 0, 0, 0
    if name in ("specialized", "multistage"):
        schedule = "multistage" if name == "multistage" else "pingpong" if p["pingpong"] else "specialized"
        kind = f"{schedule} {COPIES[p.get('copy', 1)]}"
        wgmma, columns, elements = WGMMA_STEP_K * p["blocks"], p["n"], p["blocks"] * p["n"] // 2
        math = wgmma
        if kind == "multistage cp_async":
            copies = (p["consumers"] * 64 * p["blocks"] + p["n"]) * 8 // (p["consumers"] * 128)
    else:
        threads = 32 * p["warps_m"] * p["warps_n"]
        if name == "mma_ring":
            kind, slices = f"mma_sync {p['fragments']}{' stage 1' if p['stages'] == 1 else ''}", p["k"] // 16
            rows = p["warp_m"] * p["warps_m"] + p["warp_n"] * p["warps_n"]
            copies, elements = rows * p["k"] // 8 // threads, p["warp_m"] * p["warp_n"] // 32
            math = slices * elements // 4
        else:
            kind, elements, slices = f"fma {min(2, p['stages'])}", p["thread_m"] * p["thread_n"], p["k"]
            operands = ((p["thread_m"] * 4 * p["warps_m"], p["a_turned"]), (p["thread_n"] * 8 * p["warps_n"], p["b_turned"]))
            copies = sum(rows * p["k"] // (1 if turned else 4) // threads for rows, turned in operands)
            math = elements * p["k"]
    code = read_compiled_code(kernel, epilogue="direct" if epilogue == "part" else epilogue)
    asked = kernel.select("LDGSTS")
    loop, tile, store = code.mainloop, code.tile_scheduler, code.epilogue
    return Probe(
        probe=f"{name}_{'_'.join(f'{key}{value}' for key, value in p.items())}", kind=kind, epilogue=epilogue,
        elements=elements, stages=p["stages"], wgmma=wgmma, n=columns, copies=copies, slices=slices, math=math,
        step=loop.chain_cycles, instructions=loop.instructions or 0.0, copy=code.producer.chain_cycles,
        prologue=code.prologue.chain_cycles, tile=tile.chain_cycles, tile_during_wgmma=tile.chain_during_wgmma_cycles,
        turn=tile.chain_after_turn_cycles, tile_wide=tile.imad_wide, store=store.chain_cycles,
        store_during_wgmma=store.chain_during_wgmma_cycles, store_wide=store.imad_wide,
        imad_wide_per_copy=loop.imad_wide_per_copy, before_copies=loop.math_before_copies or 0.0,
        before_barrier=(loop.math_before_barrier or 0.0) / slices, before_use=loop.math_before_use or 0.0,
        line_fetches=sum("LTC128B" in item.opcode for item in asked) / len(asked) if asked else 0.0,
    )  # fmt: skip


def line(points: Sequence[tuple[float, ...]]) -> str:
    """Offset and slopes through points (variables, value) by least squares, and the least value.

    If the value does not grow with each variable, all slopes are 0 and the offset is the median.

    >>> line([(1.0, 10.0), (2.0, 20.0)]), line([(4.0, 7.0), (4.0, 9.0)])
    ('[0, 10, 10]', '[8, 0, 7]')
    """
    return _text(*_fitted(points, is_growing=True), min(point[-1] for point in points))


def plane(points: Sequence[tuple[float, ...]]) -> str:
    """Offset and slopes through points by least squares, with slopes of either sign, and the least and the most value.

    >>> plane([(1.0, 0.0, 10.0), (2.0, 0.0, 20.0), (1.0, 1.0, 7.0)])
    '[0, 10, -3, 7, 20]'
    """
    values = [point[-1] for point in points]
    return _text(*_fitted(points, is_growing=False), min(values), max(values))


def _fitted(points: Sequence[tuple[float, ...]], *, is_growing: bool) -> list[float]:
    """Offset and slopes by least squares."""
    table = np.array(points)
    values, slopes = table[:, -1], np.zeros(table.shape[1] - 1)
    varied = [idx for idx in range(len(slopes)) if np.ptp(table[:, idx])]
    if varied:
        ones = np.ones((len(table), 1))
        found = np.linalg.lstsq(np.hstack([ones, table[:, varied]]), values, rcond=None)[0]
        slopes[varied] = found[1:]
        if not is_growing or min(found[1:]) > LEAST_SLOPE:
            return [float(found[0]), *map(float, slopes)]
        slopes[:] = 0.0
    return [float(np.median(values)), *map(float, slopes)]


def _text(offset: float, *others: float) -> str:
    *slopes, least = others
    values = [0.0 if abs(value) < LEAST_SLOPE else value for value in (offset, *slopes, least)]
    return f"[{', '.join(f'{value:.3g}' if abs(value) < 100 else f'{value:.1f}' for value in values)}]"


HEAD = """\
# Compiled code of GEMM probes, by schedule or math and copy, in cycles of a warp. kernels/probes/gemm_code/probe.py
# writes it. Lists are a line or a plane: offset, slopes, least, and of planes also the most. Variables are the copies of a
# thread in a k-step, and the elements of D of a thread (FFMA: its math of a k-step). An epilogue has elements alone.
# A main loop of wgmma has, besides, the chain from one wgmma to the next."""
VARIED = {"mma_sync": ("copies", "elements"), "fma": ("copies", "math")}
"""Variables of a k-step's code, by math."""
PLACES = ("before_copies", "before_barrier")


def estimate(probes: Sequence[Probe]) -> str:
    """Text of the estimate's TOML file."""
    kinds: dict[str, list[Probe]] = defaultdict(list)
    for probe in probes:
        kinds[probe.kind].append(probe)
    return "\n".join([HEAD, *(text for kind, found in sorted(kinds.items()) for text in _of_kind(kind, found))]) + "\n"


def _points(found: Sequence[Probe], value: str, *variables: str) -> list[tuple[float, ...]]:
    return [tuple(float(getattr(probe, name)) for name in (*variables, value)) for probe in found]


def _of_kind(kind: str, probes: Sequence[Probe]) -> list[str]:
    found = [probe for probe in probes if probe.epilogue != "part"]  # as many of one style as of the other

    def middle(name: str, of: Sequence[Probe] = found) -> float:
        return median(getattr(probe, name) for probe in of)

    lines, varied = ["", f'["{kind}"]'], VARIED.get(kind.split(maxsplit=1)[0])
    if varied is None:
        steps = [(float(p.copies), p.step - between_cycles(p.wgmma, p.n)) for p in found]
        lines.append(f"step = {line(steps)}")
    else:
        lines.append(f"step = {plane(_points(found, 'step', *varied))}")
    if kind.endswith("tma"):
        lines.append(f"copy = {middle('copy'):g}")
    if kind == "multistage cp_async":
        lines.append(f"imad_wide_per_copy = {sum(p.imad_wide_per_copy for p in found) / len(found):.2f}")
    if middle("line_fetches") > HALF:
        lines.append("l2_promotion = 128")
    if kind == "mma_sync 2":
        lines += [f"math_{name} = {plane(_points(found, name, 'elements'))}" for name in PLACES]
        lines.append(f"math_before_use = {middle('before_use'):g}")
    if kind.startswith("fma"):
        lines.append(f"instructions = {plane(_points(found, 'instructions', *varied or ()))}")
    once = [probe for probe in found if not probe.is_looping] or found
    for name, of in (("one", once), ("many", [probe for probe in found if probe not in once])):
        if not of:
            continue
        lines += ["", f'["{kind}".tiles.{name}]', f"chain = {line(_points(of, 'tile', 'copies'))}"]
        lines += [
            f"{key} = {middle(attribute, of):g}"
            for key, attribute in (
                ("during_wgmma", "tile_during_wgmma"), ("turn", "turn"), ("wide", "tile_wide"), ("prologue", "prologue"),
            )
        ]  # fmt: skip
    for epilogue in EPILOGUES:
        stores = [p for p in probes if p.epilogue == epilogue]
        if stores:
            lines += ["", f'["{kind}".epilogue.{epilogue}]']
            lines += [
                f"{key} = {line(_points(stores, name, 'elements'))}"
                for key, name in (("chain", "store"), ("during_wgmma", "store_during_wgmma"), ("wide", "store_wide"))
            ]
    return lines


def read_table() -> list[Probe]:
    """Figures of all probes, as they were read last."""
    kinds = {item.name: {"str": str, "int": int, "float": float}[item.type] for item in fields(Probe)}
    with (HERE / "probes.csv").open(encoding="utf-8", newline="") as file:
        return [Probe(**{name: kinds[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def main() -> None:
    """Write probes.csv and the estimate."""
    probes = compile_probes()
    with (HERE / "probes.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(Probe.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(probe) for probe in probes)
    PATH.write_text(estimate(probes), encoding="utf-8")
    print(f"{len(probes)} probes")


if __name__ == "__main__":
    main()
