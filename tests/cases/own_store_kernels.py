"""Own kernels that store, with and without declared footprints.

True: 65,536 CTAs of 256 threads that each read and write 16 bytes (256 MiB each way), H100 PCIe at 1,103 MHz, caches
flushed: 314,000 cycles, 268 MB read, 249 MB written (counted; h100_pcie_unary_vec4.csv). A Launch that leaves footprints out
has to come near it, or to say in its remarks that bytes written are not known.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpusim import Launch, WarpRole, load_gpu, simulate
from gpusim.workload import ops
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.launch import Footprint, RoleContext

LANES = np.arange(256).reshape(8, 32)
VECTORS = global_access(16 * LANES, 16, np.ones((8, 32), bool))


def program(cta: RoleContext) -> Iterator[Any]:
    token = yield ops.GlobalLoad("in", (cta.cta_idx, 0), VECTORS)
    yield ops.Use(token)
    yield ops.Fma(4)
    yield ops.GlobalStore("out", (cta.cta_idx, 0), VECTORS)


def panel(access: Any, tensor: str) -> Footprint:
    return Footprint(
        tensor=tensor, access=access, panel_of=lambda t: t, panel_bytes=lambda t: np.full(t.shape, 4096, dtype=np.int64)
    )


def main(num_ctas: int) -> None:
    for declared in ((), (panel("read", "in"), panel("write", "out"))):
        launch = Launch(
            kernel="own_copy", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=16, footprints=declared,
            roles=(WarpRole(name="warps", num_warps=8, program=program),), num_flops=num_ctas * 1024, math_class="fp32",
        )
        result = simulate(launch, load_gpu("h100_pcie"), clock=1103, l2="flushed")
        written = result.counters["dram__bytes_write.sum"] / 1e6
        sys.stdout.write(
            f"{len(declared)} footprints: {result.cycles:,.0f} cycles, {written:.1f} MB written, remarks {result.remarks}\n"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 65536)
