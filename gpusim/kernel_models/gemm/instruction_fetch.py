"""Cold instruction fetch: code far from a kernel's first instruction, which is fetched at its first execution."""

from __future__ import annotations

from gpusim.units import DEPENDENT_CYCLES
from gpusim.workload import ops
from gpusim.workload.ops import Op


def far_code(name: str, begin: int, end: int, num_instructions: float, *, num_parts: int = 1) -> list[list[Op]]:
    """Ops for each of ``num_parts`` parts of a stretch of code; empty lists if its position is unknown.

    Args:
        name: name of the stretch.
        begin: offset of its first byte from the kernel's first instruction, in bytes.
        end: offset of its end, in bytes.
        num_instructions: dependent overhead instructions in it. They execute while the rest is fetched.
        num_parts: number of equal parts.

    >>> far_code("way out", 0, 0, 100.0)
    [[]]
    >>> [[op.begin_bytes, op.end_bytes, op.overhead_cycles] for (op,) in far_code("way out", 1000, 3000, 100.0, num_parts=2)]
    [[1000, 2000, 200.0], [2000, 3000, 200.0]]
    """
    if end <= begin or not num_parts:
        return [[] for _ in range(num_parts)]
    places = [begin + round((end - begin) * idx / num_parts) for idx in range(num_parts + 1)]
    own = num_instructions * DEPENDENT_CYCLES / num_parts
    return [[ops.FetchColdCode(f"{name} {idx}", places[idx], places[idx + 1], own)] for idx in range(num_parts)]
