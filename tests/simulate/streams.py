"""A stream in the public vocabulary: CTAs that load some vectors of a thread, wait, and store them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gpusim import Launch, WarpRole
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import AccessPattern

MIB = 1 << 20
VECTOR_BYTES = 16


def stream(
    mib: float, *, num_inputs: int = 1, stores: bool = True, threads: int = 256, num_steps: int = 1, shared_by: int = 1
) -> Launch:
    """Of tensors of ``mib`` MiB each; a CTA takes ``num_steps`` vectors of each thread, one after the other.

    ``shared_by``: neighbouring CTAs that read the same.
    """
    of_step = threads * VECTOR_BYTES
    share = of_step * num_steps
    num_ctas = int(mib * MIB) // share
    names = [f"in{idx}" for idx in range(num_inputs)]
    access = AccessPattern(
        num_requests=threads // WARP_SIZE, num_sectors=of_step // SECTOR_BYTES, num_lines=of_step // LINE_BYTES,
        num_wavefronts=of_step // LINE_BYTES, num_bytes=of_step,
    )

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        yield ops.Alu(8, is_chain=True)
        for step in cta.loop(num_steps):
            tokens = []
            for name in names:
                tokens.append((yield ops.GlobalLoad(name, (cta.cta_idx // shared_by, step), access)))
            for token in tokens:
                yield ops.Use(token)
            if stores:
                yield ops.GlobalStore("out", (cta.cta_idx, step), access)

    def panel_of(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return tiles // shared_by

    def itself(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return tiles

    def panel_bytes(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full_like(tiles, share)

    footprints = [
        Footprint(tensor=name, access="read", panel_of=panel_of, panel_bytes=panel_bytes, num_steps=num_steps)
        for name in names
    ]
    if stores:
        footprints.append(
            Footprint(tensor="out", access="write", panel_of=itself, panel_bytes=panel_bytes, num_steps=num_steps)
        )
    return Launch(
        kernel="stream", num_ctas=num_ctas, num_tiles=num_ctas, footprints=tuple(footprints),
        roles=(WarpRole(name="all", num_warps=threads // WARP_SIZE, program=program),),
    )
