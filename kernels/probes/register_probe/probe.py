"""Compile the probes of kernel.cu, read ``ptxas -v``, fit the register rule, write registers.csv.

Needs nvcc (registers.csv: 13.0) and no GPU: ``python kernels/probes/register_probe/probe.py``.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHS = ("sm_80", "sm_90a")
NUM_REFUSED = 3  # the -DREFUSED blocks of kernel.cu

MOST_REGISTERS = 255  # a thread's, by the instruction set
SUBCORE_REGISTERS = 16384  # four subcores an SM; warps are dealt out to them one by one
NUM_SUBCORES = 4
GRANULE = 8  # registers a thread are handed out by 8
NEAR_MOST_REGISTERS = 248  # from here on ptxas saves registers: such probes are not fitted
# For each 16-byte copy of a thread and a stage: an address, the bytes themselves, nothing.
COPY_REGISTERS = {"cp_async": 2, "ldg": 4, "tma": 0}
WGMMA_FLOOR = 26  # ptxas refuses or serializes wgmma below accumulators + 26

# kernel.cu's template parameters, in order; COPY and EPILOGUE are its enums.
PARAMETERS = {
    "multistage_mma": "warp_m warp_n warps_m warps_n k stages epilogue ctas",
    "multistage_wgmma": "copy n blocks warpgroups stages epilogue ctas",
    "specialized_wgmma": "n blocks consumers stages persistent setmaxnreg epilogue ctas",
    "pingpong_wgmma": "n blocks stages setmaxnreg epilogue ctas",
    "multistage_ffma": "copy thread_m thread_n k ctas",
}
COPIES = ("cp_async", "tma", "ldg")
EPILOGUES = ("direct", "smem")


@dataclasses.dataclass(kw_only=True)
class Probe:
    """One row of registers.csv."""

    probe: str
    arch: str
    schedule: str
    math: str
    copy: str
    warp_tile: str
    epilogue: str
    num_threads: int
    ctas_per_sm: int
    consumer_registers: int  # setmaxnreg's, 0 without
    accumulators: int
    fragments: int
    num_copies: int  # of 16 bytes, a thread and a stage
    registers: int = 0  # 0: refused
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    ptxas_code: str = ""  # C7511: wgmma serialized; C7602: refused
    is_fitted: bool = False
    rule_registers: int = 0  # what a CTA gets: by 8, within the limit
    residual: int = 0  # rule - registers, before rounding by 8

    @property
    def limit(self) -> int:
        """The most registers a thread that the launch bounds leave."""
        num_warps = self.num_threads // 32 * self.ctas_per_sm
        share = SUBCORE_REGISTERS // (32 * -(-num_warps // NUM_SUBCORES))
        return min(MOST_REGISTERS, share // GRANULE * GRANULE)

    @property
    def key(self) -> tuple[str, str, str]:
        """What the rule's overhead depends on."""
        return self.schedule, self.math, self.copy

    @property
    def overhead(self) -> int:
        """What is left of ptxas's registers when all that the rule names is taken off."""
        named = self.accumulators + self.fragments
        return self.registers - named - COPY_REGISTERS[self.copy] * self.num_copies

    def answer(self, overhead: int) -> int:
        """The rule, before it is rounded."""
        if self.consumer_registers:
            return min(self.limit, self.consumer_registers)
        overhead += COPY_REGISTERS[self.copy] * self.num_copies
        if self.math == "wgmma":
            overhead = max(WGMMA_FLOOR, overhead)
        return min(self.limit, self.accumulators + self.fragments + overhead)


def refusal(sentence: str) -> SystemExit:
    """Ends with status 2, as bad input does elsewhere; the sentence is said here."""
    sys.stderr.write(f"probe: {sentence}\n")
    return SystemExit(2)


def describe(symbol: str, arch: str) -> Probe:
    """The probe that a mangled ``symbol`` of kernel.cu names."""
    found = re.match(r"_Z\d+([a-z_]+)I((?:L[ib]\d+E)+)E", symbol)
    if found is None:
        raise refusal(f"{symbol}: no probe of kernel.cu has such parameters")
    kernel, arguments = found[1], [int(word) for word in re.findall(r"L[ib](\d+)E", found[2])]
    p = dict(zip(PARAMETERS[kernel].split(), arguments, strict=True))
    schedule, math = kernel.split("_")
    epilogue = EPILOGUES[p.get("epilogue", 0)]
    consumer_registers = 0
    if math == "mma":
        copy, threads = "cp_async", p["warps_m"] * p["warps_n"] * 32
        tile_m, tile_n = p["warp_m"], p["warp_n"]
        accumulators, fragments = tile_m * tile_n // 32, 2 * (tile_m // 16 * 4 + tile_n // 16 * 4)
        rows = tile_m * p["warps_m"] + tile_n * p["warps_n"]
        num_copies = rows * p["k"] // 8 // threads
        name = f"w{tile_m}x{tile_n}_{p['warps_m']}x{p['warps_n']}_k{p['k']}_s{p['stages']}"
    elif math == "ffma":
        copy, threads = COPIES[p["copy"]], 256
        tile_m, tile_n = 2 * p["thread_m"], 16 * p["thread_n"]
        accumulators = p["thread_m"] * p["thread_n"]
        fragments = 2 * (p["thread_m"] + p["thread_n"])
        num_copies = 16 * (p["thread_m"] + p["thread_n"]) * p["k"] // 4 // threads
        name = f"t{p['thread_m']}x{p['thread_n']}_k{p['k']}"
    else:
        tile_m, tile_n, fragments, num_copies = 16 * p["blocks"], p["n"], 0, 0
        accumulators = p["blocks"] * p["n"] // 2
        copy = COPIES[p.get("copy", 1)]
        num_math = p.get("warpgroups") or p.get("consumers") or 2
        threads = num_math * 128
        if schedule != "multistage":
            threads += 128 if p["setmaxnreg"] else 32
        if p.get("setmaxnreg"):
            consumer_registers = {1: 232, 2: 240, 3: 160}[num_math]
        if copy == "cp_async":
            num_copies = (num_math * 64 * p["blocks"] + p["n"]) * 8 // threads
        if p.get("persistent"):
            schedule = "specialized_persistent"
        name = f"{p['blocks']}xm64n{p['n']}_{num_math}wg_s{p['stages']}"
        name += "_setmaxnreg" if consumer_registers else ""
    return Probe(
        probe=f"{schedule}_{math}_{copy}_{name}_{epilogue}_{p['ctas']}cta",
        arch=arch, schedule=schedule, math=math, copy=copy, warp_tile=f"{tile_m}x{tile_n}",
        epilogue=epilogue, num_threads=threads, ctas_per_sm=p["ctas"],
        consumer_registers=consumer_registers, accumulators=accumulators, fragments=fragments,
        num_copies=num_copies,
    )  # fmt: skip


def compile_probes(nvcc: str, arch: str, refused: int = 0) -> tuple[str, bool]:
    """What ptxas says, and whether it compiled."""
    number = arch.removeprefix("sm_")
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++17", f"-gencode=arch=compute_{number},code=sm_{number}"]
        command += ["-Xptxas", "-v", "-c", str(HERE / "kernel.cu"), "-o", os.path.join(folder, "o")]
        command += [f"-DREFUSED={refused}"] if refused else []
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise refusal(f"{nvcc} cannot be run: {error.strerror}") from None
    return done.stdout + done.stderr, done.returncode == 0


def read(ptxas: str, arch: str) -> list[Probe]:
    """The probes that compiled, in the order of their names."""
    codes = {
        symbol: code
        for code, symbol in re.findall(r"\((C75\d\d)\) Potential[^\n]*function '(\w+)'", ptxas)
    }
    entry = re.compile(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers",
        re.DOTALL,
    )
    probes = []
    for symbol, stores, loads, registers in entry.findall(ptxas):
        probe = describe(symbol, arch)
        probe.registers = int(registers)
        probe.spill_store_bytes, probe.spill_load_bytes = int(stores), int(loads)
        probe.ptxas_code = codes.get(symbol, "")
        probes.append(probe)
    return probes


def read_refusal(ptxas: str, arch: str) -> Probe:
    """The probe that ptxas refused; the registers that it asked for must be the floor's."""
    found = re.search(r"\((C7602)\)[^\n]*function (\w+)\. [^\n]*register target of (\d+)", ptxas)
    if found is None:
        raise refusal(f"ptxas refused for another reason than C7602:\n{ptxas}")
    probe = describe(found[2], arch)
    probe.ptxas_code = found[1]
    if int(found[3]) != probe.accumulators + WGMMA_FLOOR:
        raise refusal(f"{probe.probe} needs {found[3]}: WGMMA_FLOOR is another one")
    return probe


def fit(probes: list[Probe]) -> dict[tuple[str, str, str], int]:
    """The median overhead of every (schedule, math, copy), from the plain probes alone."""
    overheads = defaultdict(list)
    for probe in probes:
        probe.is_fitted = (
            probe.epilogue == "direct"
            and probe.ctas_per_sm == 1
            and not probe.consumer_registers
            and not probe.ptxas_code
            and not probe.spill_store_bytes
            and 0 < probe.registers < NEAR_MOST_REGISTERS
        )
        if probe.is_fitted:
            overheads[probe.key].append(probe.overhead)
    return {key: round(statistics.median(values)) for key, values in overheads.items()}


def main() -> None:
    """Write registers.csv and say the rule."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise refusal("no nvcc on the PATH: install the CUDA toolkit (no GPU needed)")
    probes: list[Probe] = []
    for arch in ARCHS:
        ptxas, has_compiled = compile_probes(nvcc, arch)
        if not has_compiled:
            raise refusal(f"nvcc failed for {arch}:\n{ptxas}")
        probes += read(ptxas, arch)
    for refused in range(1, NUM_REFUSED + 1):
        ptxas, has_compiled = compile_probes(nvcc, "sm_90a", refused)
        if has_compiled:
            raise refusal(f"-DREFUSED={refused} compiles: move it to the others")
        probes.append(read_refusal(ptxas, "sm_90a"))

    overheads = fit(probes)
    for probe in probes:
        answer = probe.answer(overheads.get(probe.key, 0))
        probe.rule_registers = -(-answer // GRANULE) * GRANULE
        probe.residual = answer - probe.registers if probe.registers else 0
    probes.sort(key=lambda probe: (probe.key, probe.arch, probe.accumulators, probe.probe))
    columns = [field.name for field in dataclasses.fields(Probe)]
    with (HERE / "registers.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(dataclasses.asdict(probe) for probe in probes)

    say = sys.stdout.write
    say(f"{len(probes)} probes. Overhead of (schedule, math, copy); rule - registers, fitted:\n")
    for key, overhead in sorted(overheads.items()):
        off = sorted(probe.residual for probe in probes if probe.is_fitted and probe.key == key)
        say(f"    {key}: {overhead},  # {len(off)} probes, {off[0]:+d} .. {off[-1]:+d}\n")
    others = [probe for probe in probes if not probe.is_fitted and probe.registers]
    say("not fitted (limit, setmaxnreg, smem epilogue, spills): rule - registers\n")
    for probe in others:
        say(f"    {probe.arch} {probe.probe}: {probe.registers}, {probe.residual:+d}, "
            f"spills {probe.spill_store_bytes}, {probe.ptxas_code}\n")  # fmt: skip


if __name__ == "__main__":
    main()
