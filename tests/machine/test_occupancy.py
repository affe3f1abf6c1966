"""How many CTAs an SM holds: the published rules of cuda_occupancy.h (CUDA 13.0), and each limit from both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import LaunchError
from gpusim.machine.config import load_gpu
from gpusim.machine.sm.occupancy import Occupancy, occupancy

H100 = load_gpu("h100_sxm")
KIB = 1024


def held(*, num_threads: int = 128, registers: int = 32, smem_bytes: int = 0) -> Occupancy:
    return occupancy(
        H100, kernel="k", num_threads=num_threads, registers_per_thread=registers, smem_bytes=smem_bytes
    )


@pytest.mark.parametrize(("kib", "ctas"), [(16, 13), (32, 6), (48, 4), (64, 3), (112, 2), (227, 1)])
def test_shared_memory_admits_what_was_measured(kib: int, ctas: int) -> None:
    result = held(num_threads=32, smem_bytes=kib * KIB)
    assert (result.ctas_per_sm, result.limited_by) == (ctas, "smem")


def test_168_registers_of_384_threads_fit_once() -> None:
    result = held(num_threads=384, registers=168)
    assert (result.ctas_per_sm, result.limited_by) == (1, "registers")


@pytest.mark.parametrize(
    ("registers", "warps"), [(64, 32), (96, 20), (128, 16), (168, 12), (192, 8), (255, 8)]
)
def test_registers_admit_what_facts_1_4_derive(registers: int, warps: int) -> None:
    result = held(registers=registers)
    assert (result.warps_per_sm, result.limited_by) == (warps, "registers")
    assert result.pct == 100 * warps / 64


def test_registers_are_given_8_at_a_time_to_each_thread() -> None:
    assert held(registers=57).limits["registers"] == held(registers=64).limits["registers"] == 8
    assert held(registers=65).limits["registers"] < 8


def test_a_warp_may_use_its_sub_cores_share_and_not_a_register_more() -> None:
    share = H100.register_file.num_registers // H100.warp_scheduler.num_schedulers
    assert share == 32 * 32 * 16  # 16 warps of 32 registers fill a sub-core
    assert held(registers=32).limits["registers"] == 16
    assert held(registers=33).limits["registers"] == 12


def test_smem_is_rounded_up_to_128_bytes_and_1_kib_is_reserved_for_each_cta() -> None:
    whole, reserved, unit = 233_472, 1024, 128
    most = whole // 13 // unit * unit - reserved
    assert held(smem_bytes=most).limits["smem"] == 13
    assert held(smem_bytes=most + 1).limits["smem"] == 12


@pytest.mark.parametrize(
    ("num_threads", "ctas", "limit"),
    [(1024, 2, "threads"), (672, 3, "threads"), (32, 32, "ctas"), (33, 32, "warps")],
)
def test_threads_warps_and_ctas_have_limits_of_their_own(num_threads: int, ctas: int, limit: str) -> None:
    result = held(num_threads=num_threads, registers=16)
    assert result.ctas_per_sm == result.limits[limit] == ctas
    assert ctas == min(result.limits.values())


def test_a_warp_that_is_not_full_counts_as_one() -> None:
    assert held(num_threads=33, registers=16).warps_per_sm == 64


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"smem_bytes": 227 * KIB + 1}, "232449 bytes of shared memory, a CTA has at most 232448"),
        ({"registers": 256}, "256 registers a thread, a thread has at most 255"),
        ({"num_threads": 1025}, "a CTA of 1025 threads, a CTA has at most 1024"),
        ({"num_threads": 512, "registers": 136}, "registers run out"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_runs_out(asked: dict[str, int], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        held(**asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"smem_bytes": 227 * KIB},
        {"registers": 255},
        {"num_threads": 1024},
        {"num_threads": 512, "registers": 128},
    ],
)
def test_the_most_that_fits_is_taken(asked: dict[str, int]) -> None:
    assert held(**asked).ctas_per_sm >= 1


@given(
    num_warps=st.integers(1, 16),
    registers=st.integers(16, 128),
    smem_bytes=st.integers(0, 100 * KIB),
    more=st.sampled_from(("warps", "registers", "smem")),
)
def test_asking_for_more_never_admits_more(
    num_warps: int, registers: int, smem_bytes: int, more: str
) -> None:
    def admitted(num_warps: int, registers: int, smem_bytes: int) -> int:
        try:
            result = held(num_threads=32 * num_warps, registers=registers, smem_bytes=smem_bytes)
        except LaunchError:
            return 0
        assert result.ctas_per_sm == min(result.limits.values())
        return result.ctas_per_sm

    before = admitted(num_warps, registers, smem_bytes)
    assert before >= admitted(
        num_warps + (more == "warps"), registers + (more == "registers"), smem_bytes + 512 * (more == "smem")
    )


def test_a_smaller_file_admits_fewer() -> None:
    half = replace(H100.register_file, num_registers=32768)
    result = occupancy(
        replace(H100, register_file=half), kernel="k", num_threads=128, registers_per_thread=64, smem_bytes=0
    )
    assert result.ctas_per_sm == held(registers=64).ctas_per_sm // 2
