"""Compile the probes of kernel.cu, read their code from SASS, write probes.csv and the estimate of gpusim.

Needs nvcc and cuobjdump (probes.csv: CUDA 13.0) and no GPU: ``python kernels/probes/gemm_code/probe.py``.
"""

from __future__ import annotations

import csv
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from gpusim.errors import ConfigError
from gpusim.evidence.toolchain.compiled_code import read_compiled_code
from gpusim.evidence.toolchain.cuda_toolkit import find_nvcc
from gpusim.evidence.toolchain.sass import KernelSass, read_sass
from gpusim.kernel_models.gemm.estimated_code import PATH, between_cycles

HERE = Path(__file__).resolve().parent
COMMAND = ("-std=c++17", "-cubin", "-gencode=arch=compute_90a,code=sm_90a")
PARAMETERS = {
    "specialized": "n blocks consumers stages persistent setmaxnreg pingpong epilogue",
    "multistage": "copy n blocks consumers stages epilogue",
    "mma_ring": "warp_m warp_n warps_m warps_n k stages fragments epilogue",
    "ffma_ring": "thread_m thread_n warps_m warps_n k stages a_turned b_turned",
}
"""Template parameters of kernel.cu, in order."""
EPILOGUES = ("direct", "smem", "tma_store")
COPIES = ("cp_async", "tma")
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
    bank_reads: float


def compile_probes(cubin: Path) -> dict[str, KernelSass]:
    """SASS of all probes by mangled name.

    Raises:
        ConfigError: there is no nvcc, or it refuses the source.
    """
    done = subprocess.run(
        [find_nvcc(), *COMMAND, str(HERE / "kernel.cu"), "-o", str(cubin)], capture_output=True, text=True, check=False
    )
    if done.returncode or "C75" in done.stderr:
        raise ConfigError(f"nvcc on {HERE / 'kernel.cu'}: {done.stderr.strip().splitlines()[:1]}")
    return read_sass(cubin)


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
            kind, slices = f"mma_sync {p['fragments']}", p["k"] // 16
            rows = p["warp_m"] * p["warps_m"] + p["warp_n"] * p["warps_n"]
            copies, elements = rows * p["k"] // 8 // threads, p["warp_m"] * p["warp_n"] // 32
            math = slices * elements // 4
        else:
            kind, elements, slices = f"fma {min(2, p['stages'])}", p["thread_m"] * p["thread_n"], p["k"]
            operands = ((p["thread_m"] * 4 * p["warps_m"], p["a_turned"]), (p["thread_n"] * 8 * p["warps_n"], p["b_turned"]))
            copies = sum(rows * p["k"] // (1 if turned else 4) // threads for rows, turned in operands)
            math = elements * p["k"]
    code = read_compiled_code(kernel, epilogue=epilogue)
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
        bank_reads=loop.fma_bank_reads or 0.0,
    )  # fmt: skip


def line(points: Sequence[tuple[float, float]]) -> str:
    """Offset and slope of a line through points by least squares, no slope below 0, and the least value.

    >>> line([(1.0, 10.0), (2.0, 20.0)]), line([(4.0, 7.0), (4.0, 9.0)])
    ('[0.0, 10.0, 10.0]', '[8.0, 0.0, 7.0]')
    """
    xs, ys = zip(*points, strict=True)
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in points) / spread) if spread else 0.0
    offset = mean_y - slope * mean_x if slope else median(ys)
    return f"[{offset:.1f}, {slope:.3g}, {min(ys):.1f}]" if slope else f"[{offset:.1f}, 0.0, {min(ys):.1f}]"


HEAD = """\
# Compiled code of GEMM probes, by schedule or math and copy, in cycles of a warp. kernels/probes/gemm_code/probe.py
# writes it. Three numbers are a line: offset, slope and least. Its variable is copies of a thread in a k-step, or elements
# of D of a thread in an epilogue. A main loop of wgmma has, besides, the chain from one wgmma to the next."""


def estimate(probes: Sequence[Probe]) -> str:
    """Text of the estimate's TOML file."""
    kinds: dict[str, list[Probe]] = defaultdict(list)
    for probe in probes:
        kinds[probe.kind].append(probe)
    return "\n".join([HEAD, *(text for kind, found in sorted(kinds.items()) for text in _of_kind(kind, found))]) + "\n"


def _of_kind(kind: str, found: Sequence[Probe]) -> list[str]:
    is_wgmma = bool(found[0].wgmma)
    steps = [(float(p.copies), p.step - (between_cycles(p.wgmma, p.n) if is_wgmma else 0.0)) for p in found]
    lines = ["", f'["{kind}"]', f"step = {line(steps)}"]
    names = [name for name in Probe.__dataclass_fields__ if name not in ("probe", "kind", "epilogue")]
    middle: Mapping[str, float] = {name: median(getattr(p, name) for p in found) for name in names}
    lines += [f"{name} = {middle[name]:g}" for name in ("prologue", "tile_during_wgmma", "turn", "tile_wide")]
    lines.append(f"tile = {line([(float(p.copies), p.tile) for p in found])}")
    if kind.endswith("tma"):
        lines.append(f"copy = {middle['copy']:g}")
    if kind == "multistage cp_async":
        lines.append(f"imad_wide_per_copy = {sum(p.imad_wide_per_copy for p in found) / len(found):.2f}")
    if kind == "mma_sync 2":
        lines += [f"math_{name} = {middle[name]:g}" for name in ("before_copies", "before_use")]
        lines.append(f"math_before_barrier_fraction = {middle['before_barrier']:g}")
    if kind.startswith("fma"):
        lines.append(f"instructions = {line([(float(p.copies), p.instructions) for p in found])}")
    for epilogue in EPILOGUES:
        stores = [p for p in found if p.epilogue == epilogue]
        if stores:
            lines += ["", f'["{kind}".epilogue.{epilogue}]']
            lines += [
                f"{key} = {line([(float(p.elements), getattr(p, name)) for p in stores])}"
                for key, name in (("chain", "store"), ("during_wgmma", "store_during_wgmma"), ("wide", "store_wide"))
            ]
    return lines


def all_probes() -> list[Probe]:
    """Figures of all probes, compiled anew."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = compile_probes(Path(folder) / "probes.cubin")
    return sorted((read_probe(symbol, kernel) for symbol, kernel in kernels.items()), key=lambda probe: probe.probe)


def main() -> None:
    """Write probes.csv and the estimate."""
    probes = all_probes()
    with (HERE / "probes.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(Probe.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(probe) for probe in probes)
    PATH.write_text(estimate(probes), encoding="utf-8")
    print(f"{len(probes)} probes")


if __name__ == "__main__":
    main()
