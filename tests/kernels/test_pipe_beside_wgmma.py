"""Trains and instructions that are what they are called, results that must be right, and what is predicted."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import Instruction, KernelSass

Sass = Callable[[str, str], dict[str, KernelSass]]
CASE = load_case("pipe_beside_wgmma")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]


def own(kind: str, count: int, *, source: str = "ss", n: int = 256, is_chain: bool = False) -> dict[str, str]:
    found = [
        config for config in CONFIGS["own"]
        if (config["kind"], config["count"], config["source"]) == (kind, str(count), source) and config["n"] == str(n)
        and config["is_chain"] == str(int(is_chain)) and config["order"] == "between" and config["warpgroups"] == "2"
    ]  # fmt: skip
    return dict(found[0])


def test_the_sweeps_are_the_same_every_time_and_no_two_alike() -> None:
    assert all(CASE.configs(group, 1) == CASE.configs(group, 2) for group in CASE.groups)
    for configs in CONFIGS.values():
        assert len({tuple(config.items()) for config in configs}) == len(configs)


def test_every_config_has_a_kernel_and_every_kernel_a_config() -> None:
    built = {build.kernel for build in case.own_builds()}
    assert built == {config["kernel"] for config in ALL}


def test_launches_fit_and_sums_stay_exact() -> None:
    widths = {int(config["n"]) for config in ALL} - {0}
    largest = {n: np.abs(case.operand(64, 0) @ case.operand(n, 1).T).max() for n in widths}
    for config in ALL:
        launch = CASE.launch(config, False)
        assert launch.block[0] <= 256 and launch.smem_bytes <= 227 * 1024
        if config["n"] != "0":
            assert sum(case.ROUNDS) * largest[int(config["n"])] < 1 << 24


# ---------------------------------------------------------------------------------------------- SASS


def is_move(item: Instruction) -> bool:
    return item.opcode in ("MOV", "IMAD.MOV.U32")


def is_add(item: Instruction) -> bool:
    return item.opcode in ("IADD3", "IADD3.X", "IMAD.X")


IS_OF: dict[str, tuple[int, Callable[[Instruction], bool]]] = {
    "imad": (1, lambda item: item.opcode == "IMAD" and "RZ" not in item.operands),
    "imad_wide": (1, lambda item: item.opcode == "IMAD.WIDE.U32"),
    "move": (1, is_move),
    "ffma": (1, lambda item: item.opcode == "FFMA"),
    "fadd": (1, lambda item: item.opcode == "FADD"),
    "iadd3": (1, lambda item: item.opcode == "IADD3" and "RZ" not in item.operands),
    "lop3": (1, lambda item: item.opcode == "LOP3.LUT"),
    "mufu": (1, lambda item: item.opcode == "MUFU.EX2"),
    "add64": (1, is_add),
    "lds": (1, lambda item: item.opcode == "LDS" and "RZ" not in item.operands),
    "ldgsts": (1, lambda item: item.name == "LDGSTS"),
    "ldgsts_wide": (2, lambda item: item.name == "LDGSTS" or item.opcode == "IMAD.WIDE.U32"),
    "ldgsts_add": (3, lambda item: item.name == "LDGSTS" or is_add(item)),
}  # fmt: skip
"""Instructions of SASS that one of the kind is, and which."""
OTHER_INSTRUCTIONS = {"imad_wide": 0.7, "ldgsts_wide": 2.8, "ldgsts_add": 2.4}
"""Moves into pairs of registers; additions to the column and the address; moves of a pointer into a pair of registers."""
CONTROL = 48
"""Descriptors, counters, the flag, waits and empty loads before copies."""


def work_loop(kernel: KernelSass, kind: str) -> KernelSass:
    """The shortest loop that has the kind, and the train where that is in it."""
    _, is_of = IS_OF[kind]
    found = [loop for loop in kernel.loops if sum(is_of(item) for item in loop.instructions) > 3]
    return min(found, key=lambda loop: len(loop.instructions))


def test_a_train_has_its_kind_so_many_times_and_little_else(sass: Sass) -> None:
    kernels = sass("pipe_beside_wgmma", "sm_90a")
    for build in case.own_builds():
        kernel = kernels[build.kernel]
        assert kernel.num_spills == 0 and kernel.num_dummy_wgmmas == 0, build.kernel
        if build.n:
            assert kernel.tensor_shapes == {f"HGMMA 64x{build.n}x16": 4} and kernel.wgmma_wait_depths == (1, 0), build.kernel
        if build.kind != "nothing":
            per, is_of = IS_OF[build.kind]
            loop = work_loop(kernel, build.kind)
            assert bool(loop.tensor_shapes) == bool(build.n), build.kernel
            num = sum(is_of(item) for item in loop.instructions)
            assert per * build.count <= num <= per * build.count + 4, build.kernel
            others = OTHER_INSTRUCTIONS.get(build.kind, 0) * build.count
            assert len(loop.instructions) - num <= CONTROL + others, build.kernel


def test_the_work_lies_between_commit_and_wait_or_behind_the_wait(sass: Sass) -> None:
    kernels = sass("pipe_beside_wgmma", "sm_90a")
    for build in case.own_builds():
        if build.n and build.kind != "nothing":
            loop = work_loop(kernels[build.kernel], build.kind).instructions
            (wait,) = [idx for idx, item in enumerate(loop) if item.opcode == "WARPGROUP.DEPBAR.LE"]
            first = next(idx for idx, item in enumerate(loop) if item.name == "HGMMA")
            num = sum(IS_OF[build.kind][1](item) for item in loop[first:wait])
            if build.order == "behind":
                assert not any(item.name == "LDGSTS" for item in loop[first:wait]), build.kernel
            else:  # ptxas draws some before the first wgmma, where the group before runs
                assert num >= 0.5 * IS_OF[build.kind][0] * build.count, build.kernel


def test_other_warps_do_their_kind_and_the_train_has_nothing_else(sass: Sass) -> None:
    kernels = sass("pipe_beside_wgmma", "sm_90a")
    for source, n, kind in case.other_builds():
        kernel = kernels[f"others_{source}{n}_{kind}"]
        assert kernel.num_spills == 0 and kernel.num_dummy_wgmmas == 0, kernel.name
        (train,) = [loop for loop in kernel.loops if loop.tensor_shapes]
        assert train.tensor_shapes == {f"HGMMA 64x{n}x16": 4} and len(train.instructions) <= 30, kernel.name
        per, is_of = IS_OF[kind]
        loop = work_loop(kernel, kind)
        num = sum(is_of(item) for item in loop.instructions)
        turn = 16 if kind in case.COPIES else 64
        assert per * turn <= num <= per * turn + 4 and not loop.tensor_shapes, kernel.name
        assert len(loop.instructions) - num <= 12 + OTHER_INSTRUCTIONS.get(kind, 0) * turn, kernel.name


# ---------------------------------------------------------------------------------------------- check


def run(config: dict[str, str], thread: int, steps: int) -> int:
    """The word of a thread, instruction by instruction."""
    kind, count, mask = config["kind"], int(config["count"]), 2**32 - 1
    num_streams = 1 if config["is_chain"] == "1" else 8
    r = [thread * 8 + i + 1 for i in range(count if kind == "move" else 8)]
    f = [np.float32(i) for i in range(8)]
    d = [(i + 1 << 32) + thread for i in range(8)]
    warp = thread // 32
    for _ in range(steps):
        for j in range(count):
            i, x, y = j % num_streams, case.X[j // num_streams % 4], case.Y[j // num_streams % 4]
            if kind == "imad":
                r[i] = r[i] * 1 + x & mask
            elif kind == "imad_wide":
                d[i] = (d[i] >> 32) * 1 + d[i]
            elif kind in ("ffma", "fadd"):
                f[i] += np.float32(1)
            elif kind == "iadd3":
                r[i] = r[i] + x + y & mask
            elif kind == "lop3":
                r[i] ^= x ^ y
            elif kind == "mufu":
                f[i] = np.exp2(f[i]) if f[i] < 128 else np.float32(np.inf)
            elif kind == "add64":
                d[i] += x + (y << 32)
            elif kind == "lds":
                r[i] = int(case.region()[(warp * 16 + j % 16) * 128 + thread % 32])
        if kind == "move":
            r = [*r[1:], r[0]]
    if kind in ("imad_wide", "add64"):
        return sum((2 * i + 1) * ((word & mask) + 3 * (word >> 32 & mask)) for i, word in enumerate(d)) & mask
    if kind in ("ffma", "fadd", "mufu"):
        r = [int(value.view(np.uint32)) for value in f]
    return sum((2 * i + 1) * word for i, word in enumerate(r)) & mask


def outputs_of(config: dict[str, str]) -> dict[str, np.ndarray]:
    """What a launch of few turns must leave, worked out word by word."""
    warpgroups, steps = int(config["warpgroups"]), sum(case.ROUNDS)
    num_threads = 128 * warpgroups
    sums = np.zeros((1, num_threads), dtype="<i4")
    n = int(config["n"])
    if n:
        product = case.operand(64, 0) @ case.operand(n, 1).T
        for thread in range(128 * warpgroups):
            for register in range(n // 2):
                row = thread % 128 // 32 * 16 + thread % 32 // 4 + (8 if register % 4 >= 2 else 0)
                column = register // 4 * 8 + thread % 4 * 2 + register % 2
                sums[0, thread] += steps * product[row, column] * (register % 4 + 1)
    words = np.zeros((1, num_threads), dtype="<u4")
    for thread in range(0, num_threads, 37):
        words[0, thread] = run(config, thread, steps)
    cycles = np.array([[1000, 1000 + 128 * 700]], dtype="<u4")
    filled = np.array([case.filled_sum(typed(config))], dtype="<u4")
    return {"sums": sums, "words": words, "cycles": cycles, "filled": filled}


@pytest.mark.parametrize("kind", [kind for kind in case.KINDS if kind not in case.COPIES])
def test_registers_are_what_a_walk_through_the_instructions_makes_of_them(kind: str) -> None:
    config, threads = own(kind, 16, source="none", n=0), np.arange(0, 256)
    words = case.words_of(typed(config), threads, np.full(len(threads), 11))
    for at in range(0, len(threads), 31):
        assert words[at] == run(config, int(threads[at]), 11), (config, at)


def test_a_chain_uses_one_register() -> None:
    for kind in case.CHAINED:
        config = own(kind, 16, is_chain=True)
        assert case.words_of(typed(config), np.array([5]), np.array([7]))[0] == run(config, 5, 7)


def right(config: dict[str, str]) -> dict[str, np.ndarray]:
    outputs = outputs_of(config)
    threads = np.arange(outputs["sums"].shape[1])
    outputs["words"][0] = case.words_of(typed(config), threads, np.full(len(threads), sum(case.ROUNDS)))
    return outputs


def test_both_values_come_out_and_a_wrong_word_does_not() -> None:
    config = own("iadd3", 16)
    outputs = right(config)
    assert CASE.check(config, outputs) == {"step_cycles": 700.0}
    for name, message in (("sums", "times the product"), ("words", "registers of iadd3"), ("filled", "other bytes")):
        outputs[name].reshape(-1)[0] ^= 1
        with pytest.raises(WrongAnswer, match=message):
            CASE.check(config, outputs)
        outputs[name].reshape(-1)[0] ^= 1


def test_copies_fill_so_much_and_loads_find_all() -> None:
    few = {**own("ldgsts", 4), "warpgroups": "1"}
    words = case.region()[: 4 * 4 * 128].astype(object)
    assert case.filled_sum(typed(few)) == sum(int(word) * (2 * at + 1) for at, word in enumerate(words)) % 2**32
    assert case.filled_sum(typed(own("iadd3", 16))) == 0 != case.filled_sum(typed(own("lds", 16)))


# ---------------------------------------------------------------------------------------------- predictions


def test_without_anything_beside_it_a_train_takes_its_math() -> None:
    config = own("nothing", 0)
    assert CASE.predict(config, GPU)["step_cycles"] == pytest.approx(1024, rel=0.02)


@pytest.mark.parametrize("kind", case.KINDS)
def test_every_kind_has_a_twin_that_takes_no_less_than_alone(kind: str) -> None:
    count = 16
    alone = CASE.predict(own(kind, count, source="none", n=0), GPU)["step_cycles"]
    assert 0 < alone <= CASE.predict(own(kind, count), GPU)["step_cycles"] * (1 + 1e-9)
