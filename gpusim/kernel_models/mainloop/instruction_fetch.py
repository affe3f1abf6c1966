"""Cold instruction fetch: code far from a kernel's first instruction, which is fetched at its first execution."""

from __future__ import annotations

from gpusim.workload import ops
from gpusim.workload.ops import Op


def cold_code(name: str, places: tuple[int, int], own_cycles: float, *, num_parts: int = 1) -> list[list[Op]]:
    """Ops for each of ``num_parts`` parts of a stretch of code; empty lists if its position is unknown.

    Args:
        name: name of the stretch.
        places: offsets of its first byte and of its end from the kernel's first instruction, in bytes.
        own_cycles: cycles of its overhead instructions. They execute while the rest is fetched.
        num_parts: number of equal parts.

    >>> cold_code("epilogue", (0, 0), 400.0)
    [[]]
    >>> parts = cold_code("epilogue", (1000, 3000), 400.0, num_parts=2)
    >>> [[op.begin_bytes, op.end_bytes, op.overhead_cycles] for (op,) in parts]
    [[1000, 2000, 200.0], [2000, 3000, 200.0]]
    """
    begin, end = places
    if end <= begin or not num_parts:
        return [[] for _ in range(num_parts)]
    ends = [begin + round((end - begin) * idx / num_parts) for idx in range(num_parts + 1)]
    own = own_cycles / num_parts
    return [[ops.FetchColdCode(f"{name} {idx}", ends[idx], ends[idx + 1], own)] for idx in range(num_parts)]
