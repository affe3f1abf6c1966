"""Two warpgroups of an SM: what is launched, what counts as an answer, SASS, what is predicted."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Output, load_case
from gpusim.evidence.toolchain.issue_latency import BESIDE_WGMMA, LATENCIES, issue_cycles, loop_cycles, turn
from gpusim.evidence.toolchain.sass import KernelSass

Sass = Callable[[str, str], dict[str, KernelSass]]
CASE = load_case("turn_taking")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
GPU = load_gpu("h200_sxm")
ALL = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def one(kernel: str, **columns: int) -> dict[str, str]:
    return dict(
        next(c for c in ALL if c["kernel"] == kernel and all(c[name] == str(value) for name, value in columns.items()))
    )


def test_every_config_has_a_kernel_and_every_kernel_a_config(sass: Sass) -> None:
    assert len({tuple(config.items()) for config in ALL}) == len(ALL)
    assert set(sass("turn_taking", "sm_90a")) == {config["kernel"] for config in ALL}


def test_sums_stay_exact_and_launches_fit() -> None:
    for config in ALL:
        assert CASE.launch(config, False).smem_bytes < 227 * 1024
        if config["n"] != "0":
            assert typed(config).num_products * np.abs(case.product(int(config["n"]))).max() < 1 << 24


# ---------------------------------------------------------------------------------------------- SASS

ITEMS = {
    "imad": ("IMAD", 32), "wide": ("IMAD.WIDE.U32", 32), "wide_eighth": ("IMAD.WIDE.U32", 4),
    "high": ("IMAD.HI.U32", 32), "high_eighth": ("IMAD.HI.U32", 4), "divide": ("IMAD.HI.U32", 8),
    "pack": ("F2FP.BF16.F32.PACK_AB", 32),
    "store": ("STG.E", 32), "store_wide": ("IMAD.WIDE.U32", 32), "matrix": ("STSM.16.M88.4", 32), "lds": ("LDS", 32),
}  # fmt: skip


def test_a_turn_has_its_items_and_a_train_nothing_else(sass: Sass) -> None:
    for name, kernel in sass("turn_taking", "sm_90a").items():
        if not name.startswith("beside"):
            continue
        assert kernel.num_spills == 0 and kernel.num_dummy_wgmmas == 0 and kernel.wgmma_wait_depths == (1, 0), name
        (train,) = [loop for loop in kernel.loops if loop.tensor_shapes]
        assert len(train.instructions) <= 12, name
        kind = name.split("_", 2)[2]
        if kind != "nothing":
            work = max(kernel.loops, key=lambda loop: len(loop.instructions))
            opcode, num = ITEMS[kind]
            assert sum(item.opcode == opcode for item in work.instructions) == num, name
            if "store" in kind:
                assert len(work.select("STG")) == 32, name


def test_a_tile_leaves_in_so_many_instructions(sass: Sass) -> None:
    for name, kernel in sass("turn_taking", "sm_90a").items():
        if name.startswith("turns"):
            n, way = int(name.split("_")[1][1:]), name.split("_")[2]
            whole = max(kernel.loops, key=lambda loop: len(loop.instructions))
            assert kernel.num_spills == 0 and kernel.num_dummy_wgmmas == 0, name
            assert len(whole.select("STG")) == (n // 4 if way in ("near", "direct") else 0), name
            assert len(whole.select("STSM")) == (n // 16 if way == "staged" else 0), name
            wide = sum(item.opcode.startswith("IMAD.WIDE") for item in whole.instructions)
            assert n // 4 - 1 <= wide <= n // 4 if way == "direct" else wide <= 2, name


def test_a_steps_code_is_that_of_the_sass(sass: Sass) -> None:
    kernels = sass("turn_taking", "sm_90a")
    for n, num, is_interleaved, gives in case.wait_builds():
        kernel = kernels[case.wait_name(n, num, is_interleaved, gives)]
        loop = sorted(kernel.loops, key=lambda loop: len(loop.instructions))[-2]
        assert len(loop.select("HGMMA")) == (4 if n else 0)
        assert round(loop_cycles(turn(kernel, loop))) == case.CODE[n, num][2 * is_interleaved + gives], kernel.name


def test_divisions_take_what_their_code_takes_alone_and_less_than_measured_beside_wgmma(sass: Sass) -> None:
    """Measured: 373 cycles a turn, and 700 to 750, of which the paces beside wgmma tell 633."""
    kernel = sass("turn_taking", "sm_90a")["beside_n64_divide"]
    items = turn(kernel, max(kernel.loops, key=lambda loop: len(loop.instructions)))
    alone, beside = (
        issue_cycles([*items, *items], latencies) - issue_cycles(items, latencies) for latencies in (LATENCIES, BESIDE_WGMMA)
    )
    assert alone == pytest.approx(373, rel=0.02) and beside == pytest.approx(633, rel=0.01)


# ---------------------------------------------------------------------------------------------- check


def outputs_of(config: dict[str, str]) -> dict[str, np.ndarray]:
    """What a launch must leave whose clocks go on by a thousand."""
    found = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    found["sums"][:], found["words"][:], found["out"][:] = (
        case.wanted_sums(typed(config)), case.wanted_words(typed(config)), case.wanted_out(typed(config)),
    )  # fmt: skip
    found["cycles"][:] = 1000 * np.arange(1, 17)
    return found


def walked(config: dict[str, str], thread: int) -> int:
    """The word of a thread of the others, item by item."""
    kind, mask = config["work"], 2**32 - 1
    r, d = [8 * thread + i + 1 for i in range(8)], [(i + 1 << 32) + thread for i in range(8)]
    for _ in range(int(config["turns"])):
        for j in range(32):
            i = j % 8
            if kind == "imad" or (kind in ("wide_eighth", "high_eighth") and i):
                r[i] = r[i] + 3
            elif kind == "wide":
                d[i] += d[i] >> 32
            elif kind == "wide_eighth":
                d[j // 8] += d[j // 8] >> 32
            elif kind == "divide" and not i:
                r[0] = (r[0] + 1000003) // r[1]
            elif kind == "high" or (kind == "high_eighth" and not i):
                r[i] = (r[i] * 3 >> 32) + 16
            elif kind == "pack":
                high, low = (np.uint32(r[i]), np.float32(i + 1).view(np.uint32))
                r[i] = (int(high) + 0x7FFF >> 16 << 16) + (int(low) >> 16)
            elif kind == "lds":
                r[i] = 3 * (thread // 32 * 2048 + j % 16 * 128 + thread % 32) + 1
    return sum((2 * i + 1) * (r[i] + (d[i] & mask)) for i in range(8)) & mask


@pytest.mark.parametrize("kind", case.KINDS)
def test_words_are_what_a_walk_through_the_items_makes_of_them(kind: str) -> None:
    config = one(f"beside_n64_{kind}", turns=20)
    words = case.wanted_words(typed(config))
    assert all(int(words[thread]) == walked(config, thread) for thread in range(0, 128, 37))


def test_pairs_of_sums_are_rounded_to_even() -> None:
    config = one("turns_n64_near", steps=8)
    exact = case.product(64) * typed(config).num_products
    kept = (case.wanted_out(typed(config))[64:, :64].astype(np.uint32) << 16).view(np.float32)
    assert np.abs(kept - exact).max() <= 2.0**-8 * np.abs(exact).max()


# ---------------------------------------------------------------------------------------------- predictions


def test_alone_a_train_and_turns_take_their_math() -> None:
    assert CASE.predict(one("beside_n128_nothing"), GPU)["step_cycles"] == pytest.approx(256, rel=0.01)
    each = CASE.predict(one("turns_n256_none", steps=24), GPU)["tile_cycles"]
    assert 24 * 512 <= each <= 24 * 512 + 700


def test_whoever_works_beside_a_train_takes_no_less_than_alone() -> None:
    for kind in case.KINDS[1:]:
        alone = CASE.predict(one(f"beside_n64_{kind}", steps=1, turns=20), GPU)["turn_cycles"]
        beside = CASE.predict(one(f"beside_n128_{kind}", turns=20), GPU)["turn_cycles"]
        assert 0 < alone <= beside * (1 + 1e-9), kind


def test_a_step_that_gives_its_stage_back_takes_longer() -> None:
    kept, given = (case.predict(typed(one(f"waits_n64_1_alike{end}")), GPU)["step_cycles"] for end in ("", "_gives"))
    assert given > kept
