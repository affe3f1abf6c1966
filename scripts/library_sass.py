"""Launch one torch.mm for each kernel whose SASS is wanted, under a profiler that prints it; nothing is timed.

    ncu --section SourceCounters --page source --print-source sass --csv -k regex:nvjet --log-file nvjet_sass.csv \
        python scripts/library_sass.py

nvjet kernels are made by the library at run time: no cuobjdump finds them.
"""

from __future__ import annotations

SHAPES = (
    (3072, 3072, 3072), (8192, 8192, 1024), (12288, 12288, 256), (5000, 5000, 512), (1024, 1024, 1024), (512, 512, 512),
    (64, 8192, 8192), (16, 4096, 4096), (128, 8192, 4096), (512, 512, 16384), (1024, 1024, 16384),
)  # fmt: skip
"""M, N, K; bf16, both operands contiguous along K."""


def main() -> None:
    """One product a shape.

    Raises:
        SystemExit: torch is missing or finds no GPU.
    """
    try:
        import torch
    except ImportError:
        raise SystemExit("library_sass: torch is missing here: wants pip install torch, and a GPU") from None
    if not torch.cuda.is_available():
        raise SystemExit("library_sass: torch finds no GPU here")
    for m, n, k in SHAPES:
        a, b = (torch.zeros(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
        torch.mm(a, b.t())
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
