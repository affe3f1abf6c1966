"""Cubins and SASS of the kernels, wherever the toolkit is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from gpusim.evidence.case import load_case
from gpusim.evidence.sass import KernelSass, read_sass
from gpusim.evidence.toolkit import build

Sass = Callable[[str, str], dict[str, KernelSass]]


@pytest.fixture(scope="session")
def sass(tmp_path_factory: pytest.TempPathFactory) -> Sass:
    """(case, architecture) to its kernels' SASS; builds them."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on the PATH: nothing can be built here")
    if shutil.which("cuobjdump") is None:
        pytest.skip("cuobjdump is not on the PATH: SASS cannot be read here")
    folder: Path = tmp_path_factory.mktemp("cubins")

    @cache
    def read(name: str, arch: str) -> dict[str, KernelSass]:
        return read_sass(build(load_case(name), arch, folder).path)

    return read
