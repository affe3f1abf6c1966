"""Modules that users' launches import keep the path of version 0.1 for one release, with a warning."""

from __future__ import annotations

from importlib import import_module, reload

import pytest


@pytest.mark.parametrize(("old", "today", "name"), [
    ("gpusim.workload.access", "gpusim.workload.smem.access", "wavefronts"),
    ("gpusim.workload.global_access", "gpusim.workload.gmem.global_access", "global_access"),
])
def test_an_old_path_gives_the_same_function_and_names_the_new_path(old: str, today: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=today):
        module = reload(import_module(old))
    assert getattr(module, name) is getattr(import_module(today), name)
