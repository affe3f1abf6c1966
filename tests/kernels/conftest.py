"""Cubins and SASS of the kernels, wherever the toolkit is: built once for each source, and kept for later sessions.

They are kept in the tree, too (``cubins/``, ``scripts/keep_cubins.py``): nvcc makes the same bytes each time
(``test_compile.py``), so a kept cubin is taken where source, compiler and options are those that it was made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import KernelLaunch, Repeated, load_case
from gpusim.evidence.cases.rows import replace_file
from gpusim.evidence.toolchain import cuda_toolkit as toolkit
from gpusim.evidence.toolchain.sass import KernelSass, read_sass
from gpusim.workload.launch import Launch

Sass = Callable[[str, str], dict[str, KernelSass]]
Built = Callable[[str, str], toolkit.Cubin]
KEPT = Path(__file__).with_name("cubins")


def made_with(release: str) -> str:
    """The compiler and its options, as a folder of cubins is called."""
    return f"{release}-{hashlib.sha256(inspect.getsource(toolkit._compile).encode()).hexdigest()[:8]}"


def take_kept(name: str, arch: str, folder: Path) -> None:
    """Put the cubin that is kept in the tree, if there is one of this source, where it would be built."""
    cubin = folder / f"{name}-{arch}-{toolkit.source_hash(load_case(name))}.cubin"
    kept = KEPT / folder.name / f"{cubin.name}.xz"
    if kept.exists() and not cubin.with_suffix(".txt").exists():
        cubin.write_bytes(lzma.decompress(kept.read_bytes()))
        replace_file(cubin.with_suffix(".txt"), folder.name.partition("-")[0])


@pytest.fixture(scope="session")
def built(pytestconfig: pytest.Config) -> Built:
    """(case, architecture) to its cubin, in a folder of pytest's cache for this compiler and these options of it."""
    try:
        release = toolkit.nvcc_release(toolkit.find_nvcc())
    except ConfigError:
        pytest.skip("nvcc is not on the PATH: nothing can be built here")
    folder: Path = pytestconfig.cache.mkdir("cubins") / made_with(release)
    folder.mkdir(exist_ok=True)

    @cache
    def build(name: str, arch: str) -> toolkit.Cubin:
        with (folder / f".{name}-{arch}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a session beside this one waits, and then finds it built
            take_kept(name, arch, folder)
            cubin = toolkit.build(load_case(name), arch, folder)
        for other in folder.glob(f"{name}-{arch}-*"):
            if cubin.source_hash not in other.name:
                other.unlink(missing_ok=True)
        return cubin

    return build


@pytest.fixture(scope="session")
def sass(built: Built) -> Sass:
    """(case, architecture) to its kernels' SASS."""
    if toolkit.find_program("cuobjdump") is None:
        pytest.skip("there is no cuobjdump: SASS cannot be read here")

    @cache
    def read(name: str, arch: str) -> dict[str, KernelSass]:
        return read_sass(built(name, arch).path)

    return read


def _bytes_of(values: NDArray[np.float64], dtype: str) -> NDArray[np.uint8]:
    words = values.astype("<f4").reshape(-1)
    if dtype == "bf16":
        return ((words.view("<u4") + np.uint32(0x8000)) >> np.uint32(16)).astype("<u2").view(np.uint8)
    return words.view(np.uint8)


@pytest.fixture
def bytes_of() -> Callable[[NDArray[np.float64], str], NDArray[np.uint8]]:
    """What a kernel stores of floats: fp32, or bf16 rounded to nearest (ties away from zero)."""
    return _bytes_of


def _covers(launch: KernelLaunch, told: Launch, tensor: str) -> None:
    given = launch.arguments[0]
    assert isinstance(given, Repeated) and told.num_ctas is not None
    assert launch.grid == (told.num_ctas, 1, 1) and launch.block == (told.num_threads, 1, 1)
    (footprint,) = [item for item in told.footprints if item.tensor == tensor]
    tiles = np.arange(told.num_ctas)
    assert len(np.unique(footprint.panel_of(tiles))) == told.num_ctas
    assert int(footprint.panel_bytes(tiles).sum()) == given.num_bytes


@pytest.fixture
def covers() -> Callable[[KernelLaunch, Launch, str], None]:
    """Asserts that a model has the grid of a launch, and that its CTAs read each byte of the first argument once."""
    return _covers
