"""Rings that clusters fill, partly by multicast: what is launched, what is refused, what the twin answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim.evidence.cases.case import MappedTensor, load_case
from gpusim.evidence.toolchain.cuda_toolkit import Cubin
from gpusim.evidence.toolchain.issue_latency import issue_cycles, loop_cycles, way
from gpusim.evidence.toolchain.sass import Instruction, KernelSass, read_sass
from gpusim.machine.config import load_gpu

CASE = load_case("multicast_rings")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = CASE.configs("own", 1) + CASE.configs("bands", 1)


def config_of(size: int, pattern: str, math_cycles: int) -> dict[str, str]:
    return {
        "kernel": f"walk_{size}", "size": str(size), "pattern": pattern, "a_rows": "64", "b_rows": "128", "stages": "4",
        "math_cycles": str(math_cycles),
    }  # fmt: skip


def told(config: dict[str, str]) -> np.ndarray[Any, Any]:
    """What a grid says whose CTAs have taken 100 cycles a stage."""
    num = case.NUM_CTAS[int(config["size"])]
    rows = [[cta, case.sum_of_last_stages(typed(config), cta), 100 * case.timing(typed(config))[1], 1] for cta in range(num)]
    return np.array(rows, dtype=np.int64)


def test_every_walk_lies_in_the_tensor_and_in_l2_and_in_shared_memory() -> None:
    for config in CONFIGS:
        (num_a, num_b), (a_rows, b_rows) = case.num_tiles(typed(config)), (int(config["a_rows"]), int(config["b_rows"]))
        rows = case.num_steps(typed(config)) * (num_a * a_rows + num_b * b_rows)
        launch = CASE.launch(config, False)
        tensor = next(item for item in launch.arguments if isinstance(item, MappedTensor))
        assert rows <= tensor.tensor_map.global_dim[1] and rows * case.ROW_BYTES <= 30 << 20
        assert launch.smem_bytes <= 230 << 10
        _, b_row = case.first_rows(typed(config), launch.grid[0] - 1, case.num_steps(typed(config)) - 1)
        assert b_row + b_rows == rows


def test_clusters_share_b_and_bands_share_both() -> None:
    for size in (1, 2, 4):
        own, bands = (case.tiles(typed(config_of(size, pattern, 0))) for pattern in ("own", "bands"))
        assert len({a for a, _ in own}) == len(own) and len({b for _, b in own}) == len(own) // size
        for first in range(0, len(bands), size):
            assert len({b for _, b in bands[first : first + size]}) == 1
        assert {a for a, _ in bands} == set(range(16)) and sum(b == 0 for _, b in bands) == 16


def test_what_nobody_shares_is_read_once_a_cluster_and_pace_is_kept() -> None:
    config, gpu = config_of(2, "own", 640), load_gpu("h200_sxm")
    asked = case.NUM_CTAS[2] * case.num_all_steps(typed(config)) * (64 + 128 / 2) * case.ROW_BYTES / 32
    answer = CASE.predict(config, gpu)
    assert answer[case.READ] == pytest.approx(asked)
    assert answer["cycles_per_stage"] == pytest.approx(640, rel=0.01)  # 24 KiB in so long are 38 B a cycle, 25 of them read


def test_b_is_multicast_and_a_is_not(built: Callable[[str, str], Cubin]) -> None:
    kernels = read_sass(built("multicast_rings", "sm_90a").path)
    for size in (2, 4):
        copies = kernels[f"walk_{size}"].select("UTMALDG")
        assert sorted("MULTICAST" in item.opcode for item in copies) == [False, True]
    assert not any("MULTICAST" in item.opcode for item in kernels["walk_1"].select("UTMALDG"))


def way_of(kernel: KernelSass, loop: KernelSass, answers: str) -> list[tuple[Instruction, bool]]:
    """A turn of ``loop`` from its begin; ``answers``: which of its branches are taken."""
    left, begin = list(answers), loop.instructions[0].address
    return list(way(kernel, begin, begin, lambda _: bool(left) and left.pop(0) == "Y"))


def place(items: list[tuple[Instruction, bool]], word: str) -> int:
    """Of the last instruction with ``word`` in its opcode."""
    return max(idx for idx, (item, _) in enumerate(items) if word in item.opcode)


def test_the_twins_code_is_that_of_the_sass(built: Callable[[str, str], Cubin]) -> None:
    kernels = read_sass(built("multicast_rings", "sm_90a").path)
    for size in (1, 2, 4):
        kernel = kernels[f"walk_{size}"]
        loops = [loop for loop in kernel.loops if len(loop.instructions) > 30]
        producer, consumer = (next(x for x in loops if bool(x.select("UTMALDG")) is wants) for wants in (True, False))
        items = way_of(kernel, producer, "NNY")
        tried, asked = place(items, "TRYWAIT"), place(items, "UTMALDG")
        assert case.ISSUE_CYCLES[size] == pytest.approx(issue_cycles(items[tried + 1 : asked]))
        rest = issue_cycles(items[:tried]) + issue_cycles(items[asked:])
        assert pytest.approx(rest) == case.NEXT_CYCLES
        paced, plain = way_of(kernel, consumer, "NNNY"), way_of(kernel, consumer, "YY")
        tried, given, looked = (place(paced, word) for word in ("TRYWAIT", "ARRIVE", "CS2R"))
        first = next(idx for idx, (item, _) in enumerate(paced) if item.name == "CS2R")
        assert pytest.approx(issue_cycles(paced[tried + 1 : first])) == case.KEEP_CYCLES
        assert case.GIVE_CYCLES[size] == pytest.approx(issue_cycles(paced[looked:given]))
        given_at = issue_cycles(paced[tried + 1 : given])
        assert pytest.approx(loop_cycles(paced) - given_at, abs=2.1) == case.REST_CYCLES
        tried, given = (place(plain, word) for word in ("TRYWAIT", "ARRIVE"))
        given_at = issue_cycles(plain[tried + 1 : given])
        assert case.FREE_CYCLES[size] == pytest.approx(given_at)
        assert pytest.approx(loop_cycles(plain) - given_at, abs=2.1) == case.LEAVE_CYCLES


def test_what_multicasts_cost_slices_is_found_again() -> None:
    """Rows of slices that give 32 B a cycle and SM, and 0.8 of that of a multicast, counted once among two."""
    rows = []
    for config in CASE.configs("own", 1):
        if config["size"] in ("1", "2") and config["stages"] == "4" and config["math_cycles"] == "0":
            a_rows, b_rows = int(config["a_rows"]), int(config["b_rows"])
            moved = a_rows + b_rows if config["size"] == "1" else a_rows + b_rows / 2 / 0.8
            rows.append({**config, "group": "own", "cycles_per_stage": str(moved * case.ROW_BYTES / 32)})
    found = {each.parameter: each.value for each in CASE.fit(rows)}
    assert found == {"xbar.multicast_read_fraction": pytest.approx(0.8)}
    assert not CASE.fit([row for row in rows if row["size"] == "2"])


def test_walks_through_memory_are_long_and_come_to_nothing_twice() -> None:
    configs = CASE.configs("memory", 1)
    assert len(configs) == 90 and CASE.groups["memory"].is_cold
    for config in configs:
        lead, timed, behind = case.timing(typed(config))
        (_, num_b), (_, b_rows) = case.num_tiles(typed(config)), (int(config["a_rows"]), int(config["b_rows"]))
        assert case.num_steps(typed(config)) == lead + timed + behind == case.num_all_steps(typed(config))
        walked = num_b * b_rows * case.ROW_BYTES * timed
        assert walked >= case.LEAST_MEMORY_BYTES and timed >= case.LEAST_MEMORY_TIMED
        _, row = case.first_rows(typed(config), case.NUM_CTAS[int(config["size"])] - 1, case.num_steps(typed(config)) - 1)
        assert (row + b_rows) * case.ROW_BYTES <= case.tensor_bytes(typed(config))
        assert len(set(case.tiles(typed(config)))) == case.NUM_CTAS[int(config["size"])]


def test_out_of_memory_a_ring_goes_no_faster_than_memory() -> None:
    gpu = load_gpu("h200_sxm")
    config = next(
        config for config in CASE.configs("memory", 1)
        if [config[name] for name in ("size", "a_rows", "b_rows", "stages", "math_cycles")] == ["2", "0", "256", "4", "0"]
    )  # fmt: skip
    cycles = CASE.predict(config, gpu)["cycles_per_stage"]
    rate = 66 * 256 * case.ROW_BYTES / cycles * gpu.clock.max_mhz / 1e3  # GB/s
    assert 0.85 * gpu.hbm.sustained_read_gb_per_s < rate < 1.02 * gpu.hbm.sustained_read_gb_per_s
