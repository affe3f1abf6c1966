"""The rule for registers, held against what ptxas said of the probe kernels."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from gpusim.kernel_models.gemm import GemmParams, resolve
from gpusim.kernel_models.mainloop.registers import RegisterNeed, most_accumulators, register_need, widest_wgmma_n
from gpusim.kernel_models.registers import launch_limit
from gpusim.machine.config import GpuSpec

PROBES = Path(__file__).parents[2] / "kernels" / "probes" / "register_probe" / "registers.csv"

MATH = {"mma": "mma_sync", "ffma": "fma", "wgmma": "wgmma"}
LOOSE = {"mma_sync": 6, "wgmma": 6, "fma": 45}
"""Registers by which the rule may miss: what the probes' README says."""


def probes() -> list[dict[str, str]]:
    with PROBES.open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def need_of(row: dict[str, str]) -> RegisterNeed:
    return register_need(
        is_specialized=row["schedule"] != "multistage", math=MATH[row["math"]],
        copy=row["copy"], accumulators=int(row["accumulators"]), fragments=int(row["fragments"]),
        copies_per_thread=int(row["num_copies"]) if row["copy"] == "cp_async" else 0,
    )


def ceiling_of(row: dict[str, str]) -> int:
    limit = launch_limit(int(row["num_threads"]) // 32, ctas_per_sm=int(row["ctas_per_sm"]))
    return int(row["consumer_registers"]) or limit


def has_room(row: dict[str, str]) -> bool:
    """Whether ptxas took the probe without spilling more than a word or two."""
    return not row["ptxas_code"] and int(row["spill_store_bytes"]) <= 8


def test_the_rule_is_as_near_to_ptxas_as_the_probes_say() -> None:
    known = [row for row in probes() if row["copy"] != "ldg" and has_room(row) and row["registers"] != "0"]
    plain = [row for row in known if row["consumer_registers"] == "0" and row["epilogue"] == "direct"]
    assert len(plain) > 80
    for row in plain:
        expected = min(need_of(row).total, ceiling_of(row))
        assert abs(expected - int(row["registers"])) <= LOOSE[MATH[row["math"]]], row["probe"]


def test_what_ptxas_spilled_serialized_or_refused_is_refused_and_nothing_else() -> None:
    tensor = [row for row in probes() if row["math"] in ("mma", "wgmma") and row["copy"] != "ldg"]
    num_refused = 0
    for row in tensor:
        math = MATH[row["math"]]
        most = most_accumulators(need_of(row), math=math, ceiling=ceiling_of(row))
        is_refused = int(row["accumulators"]) > most
        if row["ptxas_code"] != "C7602":  # one instruction too wide: the next test
            assert is_refused != has_room(row), row["probe"]
        num_refused += is_refused
    assert num_refused >= 5


def test_a_ninth_warp_takes_the_registers_of_three_more() -> None:
    assert [launch_limit(num) for num in (8, 9, 12, 13, 16, 17)] == [255, 168, 168, 128, 128, 96]


@pytest.mark.parametrize(
    ("options", "accumulators", "registers"),
    [
        ({"tile": "128x256x64"}, 64 * 256 // 128, 168),  # 3 warps a sub-core: 16384 / 96, down to 8s
        ({"tile": "192x128x64", "consumer_warpgroups": 3}, 64 * 128 // 128, 128),  # 4 warps a sub-core
        ({"tile": "128x128x64", "schedule": "warp_specialized"}, 128, 128 + 32),
        ({"tile": "64x256x64", "schedule": "pingpong"}, 128, 168),
        ({"tile": "128x128x64", "schedule": "multistage"}, 64, 64 + 26 + 6),  # up to a multiple of 8
        ({"tile": "128x128x64", "setmaxnreg": "none"}, 64, 64 + 32),
        ({"tile": "128x128x64", "setmaxnreg": "40/128"}, 64, 128),
    ],
)
def test_registers_are_accumulators_and_overhead_or_what_setmaxnreg_deals_out(
    h200: GpuSpec, options: dict[str, str], accumulators: int, registers: int
) -> None:
    params = GemmParams(m=4096, n=4096, k=4096, **options)
    launch = params.launch(h200)
    assert resolve(params, h200).partition.accumulators == accumulators
    assert launch.registers_per_thread == registers
    assert f"{accumulators} accumulators" in launch.registers_source


def test_no_wgmma_is_wider_than_the_launch_has_registers_for(h200: GpuSpec) -> None:
    assert widest_wgmma_n(16) // 2 + 26 == launch_limit(16)
    three = GemmParams(m=4096, n=4096, k=4096, tile="192x256x64", consumer_warpgroups=3)
    assert resolve(three, h200).partition.atom.n == 128  # 256 would want 128 + 26 of 128 registers
    two = GemmParams(m=4096, n=4096, k=4096, tile="128x256x64")
    assert resolve(two, h200).partition.atom.n == 256


def test_an_fma_kernel_of_8x8_a_thread_fits_twice_on_an_sm(h200: GpuSpec) -> None:
    launch = GemmParams(m=4096, n=4096, k=4096, dtype="fp32", tile="128x128x16", warps="4x2").launch(h200)
    assert launch.registers_per_thread == 128  # 65536 / 512 threads


def test_the_probe_without_a_compiler_is_one_sentence_and_status_two() -> None:
    ended = subprocess.run(
        [sys.executable, str(PROBES.parent / "probe.py")], env={"PATH": "/nowhere"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr == "probe: no nvcc on the PATH: install the CUDA toolkit (no GPU needed)\n"
