"""Native builds say what the module says, bit for bit; here one of them of a few launches, under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "compare_builds.py"
LAUNCHES = (
    "toy_gemm", "gemm_cooperative_cluster", "gemm_split_k", "gemm_hgemm", "gather_random", "softmax_block", "far_words_2",
    "swaps_toy", "copies_lru", "hazard_on_h200", "deadlock_on_h200", "drawn_1",
)


@pytest.mark.skipif(shutil.which("g++") is None, reason="wants g++")
def test_a_native_build_gives_the_modules_bits_and_no_sanitizer_stops_it() -> None:
    """The whole comparison is ``scripts/compare_builds.py gcc clang arm64``."""
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), "gcc-quick", "--launches", *LAUNCHES, "--programs", "24"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "gcc-quick: 0 of " in ended.stdout
