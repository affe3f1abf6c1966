"""Keep cubins in ``tests/kernels/cubins``, so that the suite need not wait for nvcc.

In: kernels, or none for those that are kept already. Out: a compressed cubin for each architecture; outdated ones go.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import lzma
import tempfile
from pathlib import Path

from gpusim.evidence.cases.case import load_case
from gpusim.evidence.toolchain import cuda_toolkit as toolkit

KEPT = Path("tests") / "kernels" / "cubins"
ARCHITECTURES = ("sm_80", "sm_90a")


def main() -> None:
    """Build and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*")
    release = toolkit.nvcc_release(toolkit.find_nvcc())
    how = hashlib.sha256(inspect.getsource(toolkit._compile).encode()).hexdigest()[:8]  # as tests/kernels/conftest.py has it
    folder = KEPT / f"{release}-{how}"
    kept = sorted(KEPT.glob("*/*.cubin.xz"))
    names = parser.parse_args().kernels or sorted({path.name.split("-")[0] for path in kept})
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        case = load_case(name)
        for arch in ARCHITECTURES:
            is_for = any(group.least_capability <= toolkit.capability_of(arch) for group in case.groups.values())
            if not is_for and not any(path.name.startswith(f"{name}-{arch}-") for path in kept):
                continue
            with tempfile.TemporaryDirectory() as built:
                path = toolkit.build(case, arch, Path(built)).path
                made = folder / f"{path.name}.xz"
                made.write_bytes(lzma.compress(path.read_bytes(), preset=9))
            for other in kept:
                if other != made and other.name.startswith(f"{name}-{arch}-"):
                    other.unlink()
            print(f"{made}: {made.stat().st_size} bytes")


if __name__ == "__main__":
    main()
