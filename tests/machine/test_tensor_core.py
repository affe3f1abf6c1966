"""Tensor cores: the published rates from the rule of classes, and the queue of wgmma."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.machine.sm.tensor_core import TensorCore, TensorCoreCounters
from gpusim.workload.atoms import MMA_ATOMS, MmaAtom, wgmma
from gpusim.workload.dtypes import BF16, FP8, TF32
from gpusim.workload.gmma import wgmma_wavefronts


@pytest.fixture(scope="module")
def h100() -> GpuSpec:
    return load_gpu("h100_sxm")


def core(gpu: GpuSpec) -> TensorCore:
    return TensorCore(gpu.tensor_core, counters=TensorCoreCounters())


def cycles_of(gpu: GpuSpec, atom: MmaAtom) -> float:
    return core(gpu).wgmma_cycles(
        rate_class=atom.rate_class, num_flops=atom.num_flops, num_wavefronts=wgmma_wavefronts(atom)
    )


def interval_of(gpu: GpuSpec, name: str) -> float:
    atom = MMA_ATOMS[name]
    return core(gpu).mma_sync_interval_cycles(
        rate_class=atom.rate_class, num_flops=atom.num_flops, num_sum_registers=atom.accumulator_registers
    )


@pytest.mark.parametrize(
    ("n", "published"),
    [(8, 18.9), (16, 20.7), (32, 24.7), (64, 32.8), (96, 48.7), (128, 65.0), (192, 97.1), (256, 129.3)],
)
def test_wgmma_takes_what_was_published_within_half_a_cycle(h100: GpuSpec, n: int, published: float) -> None:
    """Facts 6.3: H100 SXM, bf16, both operands in shared memory, cycles an instruction."""
    assert cycles_of(h100, wgmma(n, BF16)) == pytest.approx(published, abs=0.5)


@pytest.mark.parametrize("n", [64, 128, 256])
def test_wgmma_of_the_same_bytes_takes_the_same_cycles_whatever_the_type(h100: GpuSpec, n: int) -> None:
    assert cycles_of(h100, wgmma(n, BF16)) == pytest.approx(cycles_of(h100, wgmma(n, FP8)))
    assert cycles_of(h100, wgmma(n, BF16)) == pytest.approx(cycles_of(h100, wgmma(n, TF32)))


def test_a_narrow_wgmma_with_a_in_registers_is_bound_by_arithmetic(toy: GpuSpec) -> None:
    flops = 2 * 64 * 8 * 16
    assert cycles_of(toy, wgmma(8, BF16)) == (64 * 32 + 8 * 32) / 128  # wavefronts of A and B
    assert cycles_of(toy, wgmma(8, BF16, "registers")) == flops / 1024


def test_overhead_comes_on_top_of_the_larger_of_arithmetic_and_operands(h100: GpuSpec) -> None:
    part = core(h100)
    overhead = h100.tensor_core.wgmma_overhead_cycles
    assert part.wgmma_cycles(rate_class="16bit", num_flops=4096 * 50, num_wavefronts=20) == 50 + overhead
    assert part.wgmma_cycles(rate_class="16bit", num_flops=4096 * 20, num_wavefronts=50) == 50 + overhead


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mma_sync_m16n8k16_fp16_fp32", 6.0),
        ("mma_sync_m16n8k16_fp16_fp16", 6.0),
        ("mma_sync_m16n8k8_fp16_fp32", 4.0),
        ("mma_sync_m16n8k8_tf32_fp32", 6.0),
        ("mma_sync_m16n8k16_int8_int32", 4.0),
        ("mma_sync_m16n8k32_int8_int32", 6.0),
    ],
)
def test_mma_sync_is_issued_at_the_intervals_that_were_published(
    h100: GpuSpec, name: str, published: float
) -> None:
    """Facts 6.1: H100 SXM, cycles an instruction and sub-core."""
    assert interval_of(h100, name) == pytest.approx(published, abs=0.05)


def test_an_a100_issues_a_full_depth_mma_every_8_cycles() -> None:
    assert interval_of(load_gpu("a100_sxm_80gb"), "mma_sync_m16n8k16_fp16_fp32") == 8.0


@pytest.fixture(scope="module")
def toy() -> GpuSpec:
    return load_gpu("toy")


def test_no_wgmma_is_shorter_than_the_least_interval(toy: GpuSpec) -> None:
    part = core(replace(toy, tensor_core=replace(toy.tensor_core, wgmma_min_interval_cycles=13.0)))
    assert [part.wgmma_cycles(rate_class="16bit", num_flops=1024 * num, num_wavefronts=0) for num in (4, 14)] == [13, 14]


def test_arithmetic_ends_behind_the_pipe_by_what_a_takes_to_come(toy: GpuSpec) -> None:
    part = core(replace(toy, tensor_core=replace(toy.tensor_core, wgmma_smem_a_cycles=10.0, wgmma_register_a_cycles=3.0)))
    tails = [
        part.wgmma_tail_cycles(rate_class="16bit", num_flops=1024 * 20, num_wavefronts=wavefronts, has_register_a=has_a)
        for wavefronts, has_a in ((16, False), (24, False), (40, False), (0, True), (16, True))
    ]  # fmt: skip
    assert tails == [10.0, 6.0, 0.0, 3.0, 3.0]


def test_a_shallow_mma_sync_gives_its_sums_earlier(toy: GpuSpec) -> None:
    part = core(replace(toy, tensor_core=replace(toy.tensor_core, mma_sync_step_latency_cycles=7.0)))
    assert [part.mma_sync_latency_cycles(k_bytes) for k_bytes in (32, 16)] == [32.0, 25.0]


@pytest.mark.parametrize("num_issues", [1, 2, 7])
def test_one_warps_mma_sync_follow_one_another_at_the_interval(toy: GpuSpec, num_issues: int) -> None:
    issued, done = core(toy).run_mma_sync(
        num_issues, 32.0, latency_cycles=40.0, num_warps=1, is_integer=False, at_cycle=10.0, weight=1.0
    )
    assert issued == 10.0 + 32.0 * (num_issues - 1)
    assert done == issued + 40.0


def test_four_warps_run_on_four_sub_cores_and_the_fifth_waits(toy: GpuSpec) -> None:
    one, four, five = (
        core(toy).run_mma_sync(3, 32.0, latency_cycles=32.0, num_warps=num, is_integer=False, at_cycle=0.0, weight=1.0)[0]
        for num in (1, 4, 5)
    )
    assert one == four == 2 * 32.0
    assert five == 5 * 32.0


def test_two_roles_share_the_tensor_core(toy: GpuSpec) -> None:
    part = core(toy)
    for _ in range(2):
        issued, _ = part.run_mma_sync(5, 32.0, latency_cycles=32.0, num_warps=4, is_integer=False, at_cycle=0.0, weight=1.0)
    assert issued == 9 * 32.0
    assert part.counters.hmma_instructions == 40
    assert part.counters.busy_cycles == 10 * 32.0


def test_integers_are_counted_apart(toy: GpuSpec) -> None:
    part = core(toy)
    part.run_mma_sync(2, 32.0, latency_cycles=32.0, num_warps=4, is_integer=True, at_cycle=0.0, weight=3.0)
    assert (part.counters.imma_instructions, part.counters.hmma_instructions) == (24, 0)
