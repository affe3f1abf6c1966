"""GPUs, and a dry run: programs driven without a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.result import Result
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch

GIVES_TOKEN = (ops.GlobalLoad, ops.SharedLoad, ops.Ldmatrix, ops.GlobalAtomic)

Sizes = dict[str, Any]


@pytest.fixture(scope="session")
def h200() -> GpuSpec:
    return load_gpu("h200_sxm")


@pytest.fixture(scope="session")
def a100() -> GpuSpec:
    return load_gpu("a100_sxm_40gb")


@pytest.fixture(scope="session", params=["h200_sxm", "h100_sxm", "h100_pcie", "a100_sxm_40gb", "a100_sxm_80gb"])
def every_gpu(request: pytest.FixtureRequest) -> GpuSpec:
    return load_gpu(request.param)


@dataclass
class DryContext:
    """A role's program sees a CTA that never waits."""

    cta_idx: int
    num_ctas: int
    cta_rank: int

    def loop(self, num_iterations: int) -> Iterator[int]:
        return iter(range(num_iterations))

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        turn = first
        while self.cta_idx + turn * self.num_ctas < num_tiles:
            yield turn, self.cta_idx + turn * self.num_ctas
            turn += step


def dry_run(launch: Launch, *, num_ctas: int | None = None) -> dict[str, list[tuple[int, ops.Op]]]:
    """For each role its ops, as (CTA, op), in the order of CTAs; ``num_ctas`` of a persistent grid."""
    grid = launch.num_ctas or num_ctas
    assert grid is not None
    found: dict[str, list[tuple[int, ops.Op]]] = {role.name: [] for role in launch.roles}
    for cta in range(grid):
        for role in launch.roles:
            program = iter(role.program(DryContext(cta, grid, cta % launch.cluster_size)))
            token: ops.Token | None = None
            while True:
                try:
                    op = program.send(token)  # type: ignore[attr-defined]  # a generator
                except StopIteration:
                    break
                found[role.name].append((cta, op))
                token = ops.Token() if isinstance(op, GIVES_TOKEN) else None
    return found


def ops_of(launch: Launch, *kinds: type[ops.Op], num_ctas: int | None = None) -> list[tuple[int, Any]]:
    """(CTA, op) of the kinds asked for, of all roles."""
    every = dry_run(launch, num_ctas=num_ctas).values()
    return [(cta, op) for of_role in every for cta, op in of_role if isinstance(op, kinds)]


@pytest.fixture(scope="session")
def run(h200: GpuSpec) -> Callable[..., Result]:
    """Simulate a GEMM on H200 at its highest clock."""

    def simulate_gemm(**params: Any) -> Result:
        gpu = params.pop("gpu", h200)
        return simulate(GemmParams(**params).launch(gpu), gpu, clock="max")

    return simulate_gemm


def bytes_by_panel(launch: Launch, *kinds: type[ops.Op]) -> dict[str, dict[int, int]]:
    """For each tensor the bytes that ops of ``kinds`` move of each panel; a tile that is named again counts once."""
    tiles: dict[str, dict[tuple[int, int], int]] = {}
    for _, op in ops_of(launch, *kinds):
        tiles.setdefault(op.tensor, {}).setdefault(op.tile, op.access.num_bytes)
    panels: dict[str, dict[int, int]] = {}
    for tensor, of_tensor in tiles.items():
        for (panel, _), num_bytes in of_tensor.items():
            panels.setdefault(tensor, {})[panel] = panels.get(tensor, {}).get(panel, 0) + num_bytes
    return panels


def footprint_bytes(launch: Launch, access: str) -> dict[str, dict[int, int]]:
    """The same as the footprints of ``access`` say it."""
    tiles = np.arange(launch.num_tiles)
    return {
        item.tensor: dict(zip(item.panel_of(tiles).tolist(), item.panel_bytes(tiles).tolist(), strict=True))
        for item in launch.footprints if item.access == access
    }  # fmt: skip
