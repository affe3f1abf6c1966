"""The patterns that are to be measured: drawn alike every time, legal, and each with a kernel of its own."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "kernels" / "shared_access"


def load_case() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shared_access_case", FOLDER / "case.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


case = load_case()


def test_every_op_has_a_kernel_and_every_kernel_an_op() -> None:
    source = (FOLDER / "kernel.cu").read_text(encoding="utf-8")
    names = re.findall(r"^[A-Z_]+\d?\((\w+)[,)]", source, re.MULTILINE)
    assert sorted(names) == sorted(case.OPS)


@pytest.mark.parametrize("op", case.OPS)
def test_patterns_are_aligned_inside_the_buffer_and_drawn_alike(op: str) -> None:
    size = case.access_bytes(op)
    drawn = case.patterns(op, count=40, seed=7)
    for pattern, again in zip(drawn, case.patterns(op, count=40, seed=7), strict=True):
        assert np.array_equal(pattern.addresses, again.addresses) and np.array_equal(pattern.active, again.active)
        assert (pattern.addresses % size == 0).all()
        assert pattern.addresses.min() >= 0 and pattern.addresses.max() + size <= case.SMEM_BYTES
        assert pattern.active.any()
    others = case.patterns(op, count=40, seed=8)
    assert any((one.addresses != two.addresses).any() for one, two in zip(drawn, others, strict=True))
