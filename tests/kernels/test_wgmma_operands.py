"""Operands of wgmma lie where their descriptors say, and the sums that come back are checked one by one."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Input, load_case
from gpusim.machine.config import load_gpu
from gpusim.workload.smem.wgmma_operands import WgmmaDescriptor

CASE = load_case("wgmma_operands")
TOY = load_gpu("toy")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def test_every_legal_n_of_bf16_is_asked_from_smem_and_registers() -> None:
    seen = {(config["source"], int(config["n"])) for config in CASE.configs("every_n", 1)}
    assert seen == {(source, n) for source in ("ss", "rs") for n in range(8, 257, 8)}


def test_types_majors_and_swizzles_are_asked() -> None:
    assert {config["dtype"] for config in CASE.configs("every_type", 1)} == {"fp8", "tf32", "int8"}
    layouts = Counter((config["majors"], config["swizzle"]) for config in CASE.configs("every_layout", 1))
    wanted = {(majors, swizzle) for majors in ("mm", "km", "mk") for swizzle in ("none", "32B", "64B", "128B")}
    assert wanted | {("kk", "none"), ("kk", "32B"), ("kk", "64B")} <= set(layouts)


def test_every_shape_has_a_kernel_and_every_kernel_a_config() -> None:
    assert {case.kernel_name(*shape) for shape in case.shapes()} == {config["kernel"] for config in CONFIGS}
    assert CASE.includes()["shapes.inc"].count("WGMMA_KERNEL(") == len(list(case.shapes()))


def decoded(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.float64]:
    """Elements of the last axis, bytes along it."""
    raw = np.ascontiguousarray(raw)
    if dtype == "bf16":
        return (raw.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    if dtype == "tf32":
        return raw.view("<f4").astype(np.float64)
    if dtype == "int8":
        return raw.view("i1").astype(np.float64)
    sign, exponent, fraction = raw >> 7, (raw >> 3 & 15).astype(np.float64), raw & 7
    return np.where(raw & 127 == 0, 0.0, (1 - 2.0 * sign) * (1 + fraction / 8) * 2.0 ** (exponent - 7))


def read_operand(image: NDArray[np.uint8], bits: int, major: str, rows: int, dtype: str) -> NDArray[np.float64]:
    """(rows, k) as the tensor core would find them: core matrix by core matrix, at the descriptor's addresses."""
    places = WgmmaDescriptor.from_bits(bits).core_matrices("K" if major == "k" else "MN", rows)
    raw = image[places[..., None] + np.arange(16)]  # [block, half, row, byte]
    if major == "k":
        return decoded(raw.transpose(0, 2, 1, 3).reshape(rows, 32), dtype)
    values = decoded(raw, dtype)  # [block, half of k, k, m or n]
    return values.transpose(0, 3, 1, 2).reshape(rows, -1)


@pytest.mark.parametrize("group", list(CASE.groups))
def test_the_descriptors_find_the_operands_of_the_product(group: str) -> None:
    for config in CASE.configs(group, 1)[::3]:
        made = case._operands_of(typed(config))
        n, dtype, majors = int(config["n"]), config["dtype"], config["majors"]
        b = read_operand(made["b"], made["b_descriptor"], majors[1], n, dtype)
        a = decoded(made["a_rows"], dtype)
        if config["source"] == "ss":
            assert np.array_equal(read_operand(made["a"], made["a_descriptor"], majors[0], 64, dtype), a)
        assert np.array_equal(a @ b.T, made["product"])


def answers(config: dict[str, str]) -> dict[str, NDArray[np.generic]]:
    """What the kernel must leave after two rounds: PTX's fragment of D, thread by thread."""
    product = case._operands_of(typed(config))["product"]
    sums = np.empty((product.shape[1] // 2, 128), dtype="<i4" if config["dtype"] == "int8" else "<f4")
    for thread in range(128):
        for register in range(len(sums)):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register >> 1 & 1)
            column = 8 * (register >> 2) + 2 * (thread % 4) + (register & 1)
            sums[register, thread] = product[row, column] * 2 * case.num_wgmmas(typed(config))
    return {"d": sums, "times": np.array([1234, 2], dtype="<i8")}


def test_sums_are_whole_numbers_that_fp8_sums_still_hold() -> None:
    """fp8 products are summed with some 13 bits behind the leading one."""
    for config in CASE.configs("every_type", 1):
        if config["dtype"] == "fp8":
            times = case.num_wgmmas(typed(config)) * case.NUM_ROUNDS
            most = np.abs(case._operands_of(typed(config))["product"]).max() * times
            assert most < 2**12


def test_operands_start_on_their_swizzles_repeat_and_fit() -> None:
    for config in CONFIGS[::7]:
        launch = CASE.launch(config, True)
        images = [item.array for item in launch.arguments if isinstance(item, Input)][:2]
        assert all(image.nbytes % 1024 == 0 for image in images)
        assert launch.smem_bytes == sum(image.nbytes for image in images) <= 48 * 1024


def test_wavefronts_are_those_of_the_bytes() -> None:
    config = next(c for c in CONFIGS if c["kernel"] == "wgmma_ss_bf16_kk_n64" and c["num_groups"] == "8")
    assert CASE.predict(config, TOY) == {case.GMMA_WAVEFRONTS: 32 * 32.0, case.NUM_GMMA: 4 * 32.0}
    row = {**config, case.GMMA_WAVEFRONTS: "1024", "cycles": "1056"}
    assert CASE.derive(row) == {"wavefronts_per_wgmma": 32.0, "cycles_per_wgmma": 33.0}
