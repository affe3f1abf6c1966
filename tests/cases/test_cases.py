"""Cases that people brought, each against its right answer."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim import Launch, WarpRole, load_gpu, simulate
from gpusim.cli import main
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import wavefronts

HERE = Path(__file__).parent
VECTORS = global_access(16 * np.arange(256).reshape(8, 32), 16)
ROW_BYTES, NUM_ROWS, NUM_STEPS = 32768, 8192, 8


def counted(name: str) -> dict[str, float]:
    """Metrics of the first launch of a profile; its second row has units."""
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        row = list(csv.DictReader(file))[1]
    return {metric: float(value) for metric, value in row.items() if re.fullmatch(r"[\d.]+", value)}


def rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------------------------------------- kernels of one's own


def test_a_copy_without_footprints_writes_what_was_counted() -> None:
    ran = subprocess.run([sys.executable, HERE / "own_store_kernels.py"], capture_output=True, text=True, check=True)
    found = re.findall(r"(\d) footprints: ([\d,]+) cycles, ([\d.]+) MB written", ran.stdout)
    assert [num for num, _, _ in found] == ["0", "2"]
    profile = counted("h100_pcie_unary_vec4.csv")
    for _, cycles, written in found:
        assert float(cycles.replace(",", "")) == pytest.approx(profile["sm__cycles_elapsed.max"], rel=0.04)
        assert float(written) == pytest.approx(profile["dram__bytes_write.sum"] / 1e6, rel=0.01)


STORED_BY_WORDS = {"l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"}
"""Counts of the kernel that loads vectors and stores their four words one by one, which ``elementwise`` does not say."""


def test_a_profile_with_other_grids_than_the_models_default_is_judged_with_its_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All but the stores' requests and the registers are within tolerance: L1 merges the words of a vector's stores."""
    path = HERE / "h100_pcie_unary_vec4.csv"
    options = ["--op", "scale", "--elements", "67108864", "--vector-bytes", "16", "--items-per-thread", "1"]
    main(["check", str(path), "--gpu", "h100_pcie", "--kernel", "elementwise", *options, "--json", "-"])
    document = json.loads(capsys.readouterr().out)
    assert len(document["launches"]) == 3
    for launch in document["launches"]:
        judged = {item["metric"]: item for item in launch["metrics"]}
        failed = {name for name, item in judged.items() if item["passes"] is False}
        assert failed == {*STORED_BY_WORDS, "launch__registers_per_thread"}
        for name in STORED_BY_WORDS:
            assert judged[name]["measured"] == pytest.approx(4 * judged[name]["predicted"], rel=1e-3)
        assert judged["launch__grid_size"]["predicted"] == 65536
        assert abs(judged["sm__cycles_elapsed.max"]["difference"]) < 3.0
        assert judged["dram__bytes_write.sum"]["predicted"] == pytest.approx(248.6e6, rel=0.01)


def test_cp_async_with_scattered_sources_takes_more_wavefronts_than_its_stores() -> None:
    """Lanes write 512 bytes side by side and read vectors 32 bytes apart."""
    lanes = np.arange(32)
    to, of = 16 * lanes, 32 * (lanes % 16) + 16 * (lanes // 16)
    assert [int(wavefronts(name, to)) for name in ("st_shared_b128", "cp_async_b128")] == [4, 4]
    assert int(wavefronts("cp_async_b128", to, sources=of)) == 8


def rows_twice(cta: RoleContext) -> Iterator[Any]:
    for _ in range(2):
        tokens = []
        for step in range(NUM_STEPS):
            tokens.append((yield ops.GlobalLoad("in", (cta.cta_idx, step), VECTORS)))
        for token in tokens:
            yield ops.Use(token)
            yield ops.Fma(4)
        yield ops.Syncthreads()
    for step in range(NUM_STEPS):
        yield ops.GlobalStore("out", (cta.cta_idx, step), VECTORS)


def row_footprint(tensor: str, access: Any, num_passes: int) -> Footprint:
    return Footprint(
        tensor=tensor, access=access, panel_of=lambda tiles: tiles, panel_bytes=lambda tiles: np.full(len(tiles), ROW_BYTES),
        num_steps=NUM_STEPS, num_passes=num_passes,
    )  # fmt: skip


@pytest.mark.parametrize("footprints", [(), (row_footprint("in", "read", 2), row_footprint("out", "write", 1))], ids=len)
def test_a_second_reading_of_a_row_finds_only_what_is_still_there(footprints: tuple[Footprint, ...]) -> None:
    """Eight CTAs an SM: L1 is a little too small for their rows, and L2 for those of all SMs."""
    launch = Launch(
        kernel="rows_twice", num_ctas=NUM_ROWS, num_tiles=NUM_ROWS, registers_per_thread=32, footprints=footprints,
        roles=(WarpRole(name="warps", num_warps=8, program=rows_twice),), num_flops=NUM_ROWS * ROW_BYTES * 2,
        math_class="fp32",
    )
    profile = counted("h100_pcie_rows_twice_vec4.csv")
    mhz = profile["gpc__cycles_elapsed.avg.per_second"] / 1e6
    found = simulate(launch, load_gpu("h100_pcie"), clock=mhz, l2="flushed")
    assert found.occupancy is not None and found.occupancy.ctas_per_sm == 8
    for name, off in {
        "sm__cycles_elapsed.max": 0.05, "dram__bytes_read.sum": 0.08, "dram__bytes_write.sum": 0.03,
        "l1tex__m_xbar2l1tex_read_bytes.sum": 0.05, "lts__t_sectors_srcunit_ltcfabric.sum": 0.04,
    }.items():  # fmt: skip
        assert found.counters[name] == pytest.approx(profile[name], rel=off), name
    assert found.counters["lts__t_sector_hit_rate.pct"] == pytest.approx(profile["lts__t_sector_hit_rate.pct"], abs=3.0)


# ---------------------------------------------------------------------------------------------- right today

SAID = {
    "32 wavefronts; 4 at best": "takes 32 wavefronts where 4 would do",
    "4": "takes 4 wavefronts where 1 would do",
    "4: free": "takes 4 wavefronts, as few as it can",
    "2: a conflict": "takes 2 wavefronts where 1 would do (2-way conflict)",
    "1: free; 8 without": "takes 1 wavefront, as few as it can, thanks to the swizzle",
    "4: 3 more than 1": "takes 4 wavefronts where 1 would do",
    "refused: (2,1) lies at 8 and not at 7": "(2,1) lies at 8, but its modes one by one add up to 7",
    "refused: 0 6 7 8 9 15 is no layout": "no layout of size 6 yields 0, 6, 7, 8, 9, 15",
    "(3,(2,2)):(16,(80,4))": "result (3,(2,2)):(16,(80,4))",
    "(30,128):(128,1)": "result (30,128):(128,1)",
    "(2,3):(3,1)": "result (2,3):(3,1)",
    "refused: 128 crosses a mode of 12": "128 steps of 1 cross a mode of 12",
    "refused: 166912 bytes a CTA; 3 stages at most": "has 166912 a CTA; use at most --stages 3",
    "refused: it would spill; 8 warps": "so it would spill; use --warps 2x4",
}
"""What a command says, by the right answer in the table."""


@pytest.mark.parametrize("row", rows("right_today.csv"), ids=lambda row: row["command"])
def test_what_was_right_stays_right(row: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    status = main(row["command"].split(" "))
    out = capsys.readouterr()
    assert status == (2 if row["true_answer"].startswith("refused") else 0)
    assert SAID[row["true_answer"]] in " ".join((out.out + out.err).split())


def test_a_swizzle_is_needed_where_the_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = [row["command"] for row in rows("right_today.csv") if row["true_answer"] == "1: free; 8 without"]
    assert main(command.partition(" --swizzle")[0].split(" ")) == 0
    assert "takes 8 wavefronts where 1 would do" in " ".join(capsys.readouterr().out.split())
