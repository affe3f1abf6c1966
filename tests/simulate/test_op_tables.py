"""Rows of what ops cost, against closed forms and what was published of wgmma and mma.sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpusim import Launch, WarpRole, load_gpu
from gpusim.errors import LaunchError
from gpusim.machine.config import GpuSpec, gpu_names
from gpusim.program.costs import TmaLoadRow
from gpusim.program.records import TABLES
from gpusim.simulate.op_tables import (
    fetches_row,
    fma_row,
    loop_body_row,
    mma_sync_row,
    tma_load_row,
    tma_store_row,
    wgmma_row,
)
from gpusim.workload import ops
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.atoms.mma import MMA_ATOMS, wgmma
from gpusim.workload.dtypes import BF16, FP8, TF32
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.smem.wgmma_operands import wgmma_wavefronts

from .kernels import TOY, changed

GPUS = {name: load_gpu(name) for name in gpu_names()}
H100, A100 = GPUS["h100_sxm"], GPUS["a100_sxm_80gb"]
LAUNCH = Launch(kernel="test", num_ctas=1, num_tiles=1, roles=(WarpRole(name="worker", num_warps=4, program=iter),))


def named(table: str, row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(TABLES[table].names or (), row, strict=True))


# ---------------------------------------------------------------------------------------------- wgmma


def of_wgmma(gpu: GpuSpec, atom: MmaAtom, num_issues: int = 1) -> dict[str, Any]:
    return named("wgmmas", wgmma_row(LAUNCH, gpu, ops.Wgmma(atom, num_issues), 1, 4))


def cycles_of(gpu: GpuSpec, atom: MmaAtom) -> float:
    found: float = of_wgmma(gpu, atom)["cycles"]
    return found


@pytest.mark.parametrize(
    ("n", "published"),
    [(8, 18.9), (16, 20.7), (32, 24.7), (64, 32.8), (96, 48.7), (128, 65.0), (192, 97.1), (256, 129.3)],
)
def test_wgmma_takes_what_was_published_within_half_a_cycle(n: int, published: float) -> None:
    """H100 SXM, bf16, both operands in shared memory, cycles an instruction."""
    assert cycles_of(H100, wgmma(n, BF16)) == pytest.approx(published, abs=0.5)


@pytest.mark.parametrize("n", [64, 128, 256])
def test_wgmma_of_the_same_bytes_takes_the_same_cycles_whatever_the_type(n: int) -> None:
    assert cycles_of(H100, wgmma(n, BF16)) == pytest.approx(cycles_of(H100, wgmma(n, FP8)))
    assert cycles_of(H100, wgmma(n, BF16)) == pytest.approx(cycles_of(H100, wgmma(n, TF32)))


def test_a_narrow_wgmma_waits_for_operands_and_with_a_in_registers_for_arithmetic() -> None:
    assert cycles_of(TOY, wgmma(8, BF16)) == (64 * 32 + 8 * 32) / 128  # wavefronts of A and B
    assert cycles_of(TOY, wgmma(8, BF16, "registers")) == 2 * 64 * 8 * 16 / 1024


def test_overhead_comes_on_top_and_no_wgmma_is_shorter_than_the_least_interval() -> None:
    plain = cycles_of(TOY, wgmma(64, BF16))
    assert cycles_of(changed(tensor_core={"wgmma_overhead_cycles": 3.0}), wgmma(64, BF16)) == plain + 3.0
    least = changed(tensor_core={"wgmma_min_interval_cycles": plain - 1.0})
    assert cycles_of(least, wgmma(8, BF16)) == plain - 1.0 and cycles_of(least, wgmma(64, BF16)) == plain


def test_arithmetic_ends_behind_the_pipe_by_what_a_takes_to_come() -> None:
    """Of wgmma as long as their operands, less; not at all where these take longer than both."""
    gpu = changed(tensor_core={"wgmma_smem_a_cycles": 10.0, "wgmma_register_a_cycles": 3.0})
    for atom, start in ((wgmma(128, BF16), 10.0), (wgmma(8, BF16), 10.0), (wgmma(128, BF16, "registers"), 3.0)):
        arithmetic = atom.num_flops / gpu.tensor_core.wgmma_flops_per_cycle["16bit"]
        reads = wgmma_wavefronts(atom) / gpu.tensor_core.wgmma_smem_wavefronts_per_cycle
        assert of_wgmma(gpu, atom)["tail_cycles"] == max(start + arithmetic, reads) - max(arithmetic, reads)


def test_several_issues_take_several_times_as_long() -> None:
    one, four = of_wgmma(H100, wgmma(64, BF16)), of_wgmma(H100, wgmma(64, BF16), num_issues=4)
    for field in ("cycles", "wavefronts", "num_warp_instructions"):
        assert four[field] == 4 * one[field]
    assert four["tail_cycles"] == one["tail_cycles"]


# ---------------------------------------------------------------------------------------------- mma.sync


def interval_of(gpu: GpuSpec, name: str) -> float:
    return mma_sync_row(LAUNCH, gpu, MMA_ATOMS[name])[0]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mma_sync_m16n8k16_fp16_fp32", 6.0), ("mma_sync_m16n8k16_fp16_fp16", 6.0), ("mma_sync_m16n8k8_fp16_fp32", 4.0),
        ("mma_sync_m16n8k8_tf32_fp32", 6.0), ("mma_sync_m16n8k16_int8_int32", 4.0), ("mma_sync_m16n8k32_int8_int32", 6.0),
    ],
)  # fmt: skip
def test_mma_sync_is_issued_at_the_intervals_that_were_published(name: str, published: float) -> None:
    """H100 SXM, cycles an instruction and sub-core."""
    assert interval_of(H100, name) == pytest.approx(published, abs=0.05)


def test_an_a100_issues_a_full_depth_mma_every_8_cycles() -> None:
    assert interval_of(A100, "mma_sync_m16n8k16_fp16_fp32") == 8.0


def test_a_shallow_mma_sync_gives_its_sums_earlier_and_integers_are_counted_apart() -> None:
    gpu = changed(tensor_core={"mma_sync_step_latency_cycles": 7.0})
    deep, shallow = (mma_sync_row(LAUNCH, gpu, MMA_ATOMS[f"mma_sync_m16n8k{k}_fp16_fp32"]) for k in (16, 8))
    assert deep[1] - shallow[1] == 7.0
    assert [mma_sync_row(LAUNCH, H100, MMA_ATOMS[name])[2] for name in
            ("mma_sync_m16n8k16_fp16_fp32", "mma_sync_m16n8k16_int8_int32")] == [0, 1]  # fmt: skip


def test_types_that_a_gpu_lacks_are_refused() -> None:
    with pytest.raises(LaunchError, match=r"a100_sxm_80gb states no wgmma rate for 16bit"):
        of_wgmma(A100, wgmma(64, BF16))
    with pytest.raises(LaunchError, match=r"has no mma.sync for fp8, it has"):
        interval_of(A100, "mma_sync_m16n8k32_fp8_fp32")


# ---------------------------------------------------------------------------------------------- TMA, fetches, FMA


def of_load(gpu: GpuSpec, num_bytes: int, num_rows: int, **fields: Any) -> dict[str, Any]:
    assert gpu.tma is not None
    fetched = fields.pop("num_fetched_bytes", num_bytes)
    op = ops.TmaLoad("A", (0, 0), num_bytes, fetched, num_rows, "a", 0, "full", **fields)
    port, row = gpu.xbar.sm_read_bytes_per_cycle, TmaLoadRow(op, 0, 0, 0, 0, 3)
    return named("tma_loads", tma_load_row(gpu, gpu.tma, row, port_bytes_per_cycle=port))


def test_a_load_walks_its_rows_and_waits_for_what_its_bytes_do_not_hide() -> None:
    gpu = changed(tma={"row_cycles": 4.0})
    assert gpu.tma is not None
    port = gpu.xbar.sm_read_bytes_per_cycle
    for num_bytes, num_rows, num_boxes in ((8192, 64, 1), (8192, 8, 2), (4096, 256, 4)):
        walked = max(4.0 * num_rows, num_bytes / gpu.tma.bytes_per_cycle)
        found = of_load(gpu, num_bytes, num_rows, num_boxes=num_boxes)
        assert found["cycles"] == walked
        assert found["latency_cycles"] == gpu.tma.latency_cycles + max(0.0, walked - num_bytes / port)


def test_what_a_multicast_brings_is_counted_at_each_cta() -> None:
    assert of_load(TOY, 4096, 32, multicast=(0, 1, 2))["counted_bytes"] == 3 * of_load(TOY, 4096, 32)["counted_bytes"]


@pytest.mark.parametrize(("num_bytes", "num_rows", "mask"), [(4096, 32, 0), (48, 1, 48), (40 * 8, 8, 8 * 56)])
def test_a_store_of_parts_of_sectors_takes_their_masks_besides(num_bytes: int, num_rows: int, mask: int) -> None:
    gpu = changed(tma={"store_header_bytes": 5.0, "store_box_cycles": 3.0})
    assert gpu.tma is not None
    op = ops.TmaStore("D", (0, 0), num_bytes, num_rows, "a", 0, num_boxes=2)
    assert named("tma_stores", tma_store_row(gpu.tma, op)) == {
        "num_bytes": num_bytes, "num_boxes": 2, "cycles": 6.0, "more_bytes": 10.0 + mask, "is_reduce": 0,
    }  # fmt: skip


def test_fetches_say_what_crosses_is_read_and_may_merge() -> None:
    fetches = Fetches(4096, 200, 160, 128, 64, 96, 48, 32, 16)
    found = named("fetches", fetches_row(fetches, misaligned_coalesce_fraction=0.25))
    assert found["crossings"] == fetches.num_crossing * 32 / fetches.num_bytes
    assert found["reads"] == fetches.num_reads / fetches.num_crossing
    assert found["sharing"] == (fetches.num_shared - 0.75 * fetches.num_torn) / fetches.num_reads
    assert fetches_row(Fetches(), misaligned_coalesce_fraction=0.5) == (1.0, 1.0, 1.0, 0.0, 1.0, 0, 0)


@pytest.mark.parametrize("reads", [0.0, 0.5, 1.0, 2.5])
def test_an_ffma_takes_the_turns_that_its_registers_bank_needs(reads: float) -> None:
    bank_reads = reads * TOY.warp_scheduler.bank_reads_per_cycle
    assert fma_row(TOY, ops.Fma(10.0, bank_reads=bank_reads, num_runs=2)) == (10.0, max(1.0, reads), 2)
    assert loop_body_row(TOY, ops.LoopBody(10.0, 5.0, bank_reads)) == (15.0, 10.0 * max(1.0, reads) + 5.0)


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_takes_the_mma_of_a_type_that_it_has(name: str) -> None:
    gpu = GPUS[name]
    known = gpu.tensor_core.mma_sync_flops_per_cycle
    atoms = [atom for atom in MMA_ATOMS.values() if atom.kind == "mma_sync" and atom.rate_class in known]
    assert atoms and all(mma_sync_row(LAUNCH, gpu, atom)[0] > 0.0 for atom in atoms)
    slower = changed(gpu, tensor_core={"mma_sync_flops_per_cycle": {kind: rate / 2 for kind, rate in known.items()}})
    for atom in atoms:
        assert mma_sync_row(LAUNCH, slower, atom)[0] >= mma_sync_row(LAUNCH, gpu, atom)[0]
