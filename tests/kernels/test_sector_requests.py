"""sector_requests: values are cycles of a request, and words of another CTA are refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpusim import Launch, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.case import WrongAnswer, kernels_dir, load_case
from gpusim.evidence.cases.rows import Table
from gpusim.machine.config import GpuSpec
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import RoleContext

CASE = load_case("sector_requests")
case = sys.modules[CASE.launch.__module__]
CONFIGS = CASE.configs("rates", 1)


def outputs_of(config: Any) -> dict[str, np.ndarray]:
    """Two cycles a request."""
    return {"sums": case.expected_sums(config), "cycles": np.full(config.num_ctas, 2 * config.num_requests, dtype="<u4")}


@pytest.mark.parametrize("config", CONFIGS[::5], ids=str)
def test_values_are_cycles_of_a_request(config: Any) -> None:
    assert CASE.check(config, outputs_of(config)) == {"request_cycles": 2.0, "max_request_cycles": 2.0}


def test_a_warp_requests_one_line_for_each_group_of_its_lanes() -> None:
    of_one = [config.num_requests for config in CONFIGS if config.num_ctas == 1 and config.kernel.startswith("cg")]
    assert of_one == [65536, 262144, 32768, 131072, 16384, 65536]


def test_words_of_another_cta_are_refused() -> None:
    config = next(config for config in CONFIGS if config.num_ctas == 16)
    outputs = outputs_of(config)
    outputs["sums"] = np.roll(outputs["sums"], 1)
    with pytest.raises(WrongAnswer, match="read other words"):
        CASE.check(config, outputs)


def test_requests_of_all_sms_take_the_time_of_a_line_that_is_measured() -> None:
    """Half lines within 3 %. One sector takes 17 % more in the model, which prices it as a row of a box (tile_pitch)."""
    gpu = load_gpu("h200_sxm")
    table = Table.read(kernels_dir().parent / "validation" / "measured" / "h200_sxm" / "sector_requests.csv")
    of_all = [row for row in table.rows if (row["num_ctas"], row["threads"]) == (str(gpu.num_sms), "1024")]
    measured = {row["kernel"]: float(row["request_cycles"]) for row in of_all}
    found = {sectors: sectors * (cycles_of(sectors, 48, gpu) - cycles_of(sectors, 16, gpu)) for sectors in case.SECTORS}
    for sectors, low, high in ((1, 0.12, 0.20), (2, -0.03, 0.03)):
        for way in ("cg", "ca"):
            wanted = measured[f"{way}_lines_of_{sectors}"] / measured[f"{way}_lines_of_4"]
            assert low < found[sectors] / found[4] / wanted - 1.0 < high, (way, sectors)


def cycles_of(sectors: int, num_loads: int, gpu: GpuSpec) -> float:
    """Cycles of a CTA on each SM, whose 32 warps load lines that L2 holds, ``sectors`` sectors of each."""
    lanes = np.arange(128).reshape(4, 32)
    access = global_access(lanes // sectors * 128 + lanes % sectors * 32, 4, np.ones_like(lanes, dtype=np.bool_))

    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in range(num_loads // case.IN_FLIGHT):
            tokens = []
            for step in range(case.IN_FLIGHT):
                tokens.append((yield ops.GlobalLoad("in", (cta.cta_idx, step), access, allocates_in_l1=False)))
            for token in tokens:
                yield ops.Use(token)

    roles = tuple(WarpRole(name=f"loads {group}", num_warps=4, program=program) for group in range(8))
    launch = Launch(kernel="requests", num_ctas=gpu.num_sms, num_tiles=gpu.num_sms, roles=roles, registers_per_thread=32)
    return simulate(launch, gpu, clock="max").cycles
