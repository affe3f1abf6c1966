"""Flushed caches hold up the first CTAs of a launch, and those alone. Toy's numbers are round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import load_gpu
from gpusim.simulate.run import L2State, simulate
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import Launch, RoleContext, WarpRole
from gpusim.workload.ops import CacheHint

TOY = load_gpu("toy")
COLD = replace(TOY, dispatcher=replace(TOY.dispatcher, cold_start_cycles=100.0))


def cycles(gpu: Any, l2: Literal["cold", "warm"], *, num_waves: int, ideals: tuple[str, ...] = ()) -> float:
    """Of CTAs that fill an SM each and touch no memory."""

    def program(cta: RoleContext) -> Iterator[Any]:
        del cta
        yield ops.Alu(40.0)

    num_ctas = num_waves * gpu.num_sms
    launch = Launch(
        kernel="nothing", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=255,
        roles=(WarpRole(name="all", num_warps=8, program=program),),
    )
    return simulate(launch, gpu, clock="max", l2=l2, ideals=ideals).cycles


@pytest.mark.parametrize("num_waves", [1, 3])
def test_a_cold_launch_takes_that_much_longer_however_many_waves_follow(num_waves: int) -> None:
    warm = cycles(COLD, "warm", num_waves=num_waves)
    assert warm == cycles(TOY, "cold", num_waves=num_waves)
    assert cycles(COLD, "cold", num_waves=num_waves) == warm + 100.0


@pytest.mark.parametrize("l2", ["cold", "warm", "stored"])
@pytest.mark.parametrize("hint", ["evict_first", "evict_normal"])
def test_hints_that_are_not_looked_at_are_remarked(l2: L2State, hint: CacheHint) -> None:
    """What earlier launches have left is worked out without them."""
    launch = KERNEL_MODELS["elementwise"].params.model_validate({"elements": 4096}).launch(TOY)
    hinted = replace(launch, footprints=tuple(replace(item, cache_hint=hint) for item in launch.footprints))
    remarks = [text for text in simulate(hinted, TOY, l2=l2).remarks if "is worked out without hints of" in text]
    assert len(remarks) == (l2 != "cold" and hint != "evict_normal")
    assert all(f"(--l2 {l2})" in text for text in remarks)


def test_a_free_launch_has_no_cold_start() -> None:
    assert cycles(COLD, "cold", num_waves=1, ideals=("launch",)) == cycles(TOY, "warm", num_waves=1, ideals=("launch",))


@pytest.mark.parametrize("num_cycles", [0.0, 20000.0])
def test_a_kernel_that_has_stored_ends_a_way_to_l2_later_however_long_ago_it_was(num_cycles: float) -> None:
    """As kernels/kernel_end has it; the store arrives in 200 cycles and those of its bytes."""

    def ends(*, stores: bool) -> float:
        def program(cta: RoleContext) -> Iterator[Any]:
            if stores:
                yield ops.GlobalStore("D", (cta.cta_idx, 0), global_access(4 * np.arange(32).reshape(1, 32), 4))
            yield ops.Alu(num_cycles)

        launch = Launch(
            kernel="stores", num_ctas=1, num_tiles=1, roles=(WarpRole(name="all", num_warps=1, program=program),)
        )
        return simulate(launch, TOY, clock="max", l2="warm").cycles

    way = ends(stores=True) - ends(stores=False)
    assert way == pytest.approx(TOY.l2.far_latency_cycles, abs=20.0)


def test_a_flush_before_each_kernel_makes_the_second_one_read_all_parts_from_memory() -> None:
    gpu = load_gpu("h200_sxm")
    launch = KERNEL_MODELS["gemm"].params.model_validate({
        "m": 256, "n": 512, "k": 2048, "tile": (128, 128, 64), "split_k": 4, "split_k_mode": "second_kernel",
        "epilogue": "direct", "persistent": False,
    }).launch(gpu)  # fmt: skip
    states: tuple[L2State, ...] = ("cold", "flushed", "warm")
    cold, flushed, warm = (simulate(launch, gpu, clock="max", l2=l2) for l2 in states)
    more = flushed.counters["dram__bytes_read.sum"] - cold.counters["dram__bytes_read.sum"]
    assert more == pytest.approx(4 * 256 * 512 * 4, rel=1e-6)
    cycles_of = [result.counters["sm__cycles_elapsed.max"] for result in (flushed, cold, warm)]
    assert cycles_of == sorted(cycles_of, reverse=True)


def test_a_lone_kernel_is_flushed_once() -> None:
    launch = KERNEL_MODELS["gemm"].params.model_validate({"m": 256, "n": 256, "k": 256}).launch(TOY)
    states: tuple[L2State, ...] = ("cold", "flushed")
    cold, flushed = (simulate(launch, TOY, clock="max", l2=l2) for l2 in states)
    assert cold.counters == flushed.counters
