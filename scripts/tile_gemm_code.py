"""Cycles of k-loops of `kernels/tile_gemm` by TMA, build by build, as its `sass.toml` has them.

    python scripts/tile_gemm_code.py

Wants Triton beside the project (3.6.0 made the rows), and nvdisasm or cuobjdump; no GPU. Prints tile, warps, stages,
registers, cycles of a step, and what the warp that asks for the boxes has more.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.paths import kernel_folder
from gpusim.evidence.toolchain.issue_latency import loop_cycles
from gpusim.evidence.toolchain.sass import read_sass

CAPABILITY, WARP_LANES = 90, 32
TOLD = ("DEPBAR", "BAR")
"""Instructions that the model's program tells of: waits for wgmma, meetings."""


def compiled(tile: tuple[int, int, int], warps: int, stages: int) -> bytes:
    """The cubin of a build."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = kernel_folder("tile_gemm") / "kernel.py"
    spec = importlib.util.spec_from_file_location("tile_gemm_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault("tile_gemm_kernel", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    m, n, k = tile
    constants = {"TILE_M": m, "TILE_N": n, "TILE_K": k, "GROUP_M": 8}
    boxes = {"a": (m, k), "b": (n, k), "d": (m, n)}
    signature = {
        **{name: f"tensordesc<bf16[{rows}, {columns}]>" for name, (rows, columns) in boxes.items()},
        **dict.fromkeys("mnk", "i32"), **dict.fromkeys(constants, "constexpr"),
    }  # fmt: skip
    source = ASTSource(
        fn=module.by_descriptors, signature=signature, constexprs=constants,
        attrs={(idx,): [["tt.divisibility", 16]] for idx in (3, 4, 5)},
    )  # fmt: skip
    made = triton.compile(
        source, target=GPUTarget("cuda", CAPABILITY, WARP_LANES), options={"num_warps": warps, "num_stages": stages}
    )
    found: bytes = made.asm["cubin"]
    return found


def main() -> None:
    """Print the table."""
    if importlib.util.find_spec("triton") is None:
        raise SystemExit("Triton is not installed: pip install triton==3.6.0, in an environment that has the project")
    case = sys.modules[load_case("tile_gemm").launch.__module__]
    for tile, warps, every in case.BUILDS:
        for stages in every:
            with tempfile.TemporaryDirectory() as folder:
                cubin = Path(folder) / "build.cubin"
                cubin.write_bytes(compiled(tile, warps, stages))
                (kernel,) = read_sass(cubin).values()
            loop = next(loop for loop in kernel.loops if loop.select("HGMMA"))
            last = loop.instructions[-1]
            items = [(item, item is last) for item in loop.instructions if item.name not in TOLD]
            own = loop_cycles([pair for pair in items if pair[0].name != "UTMALDG"])
            copying = loop_cycles(items) - own
            print("x".join(map(str, tile)), warps, stages, kernel.num_registers, f"{own:.0f}", f"{copying:.0f}")


if __name__ == "__main__":
    main()
