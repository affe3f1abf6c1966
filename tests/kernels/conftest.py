"""Cubins and SASS of the kernels, wherever the toolkit is: built once for each source, and kept for later sessions."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from gpusim.errors import ConfigError
from gpusim.evidence import toolkit
from gpusim.evidence.case import load_case
from gpusim.evidence.sass import KernelSass, read_sass

Sass = Callable[[str, str], dict[str, KernelSass]]
Built = Callable[[str, str], toolkit.Cubin]


@pytest.fixture(scope="session")
def built(pytestconfig: pytest.Config) -> Built:
    """(case, architecture) to its cubin, in a folder of pytest's cache for this compiler and these options of it."""
    try:
        release = toolkit.nvcc_release(toolkit.find_nvcc())
    except ConfigError:
        pytest.skip("nvcc is not on the PATH: nothing can be built here")
    how = hashlib.sha256(inspect.getsource(toolkit._compile).encode()).hexdigest()[:8]
    folder: Path = pytestconfig.cache.mkdir("cubins") / f"{release}-{how}"
    folder.mkdir(exist_ok=True)

    @cache
    def build(name: str, arch: str) -> toolkit.Cubin:
        with (folder / f".{name}-{arch}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a session beside this one waits, and then finds it built
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
