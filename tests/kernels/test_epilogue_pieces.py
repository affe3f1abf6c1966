"""Epilogues piece by piece: what lies between two readings of the clock, where tiles land, what the simulator says."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Config, Input, MappedTensor, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass

CASE = load_case("epilogue_pieces")
GPU = load_gpu("h200_sxm")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
Sass = Callable[[str, str], dict[str, KernelSass]]


def find(**fields: object) -> Config:
    return next(
        config for config in CONFIGS if all(config[name] == str(value) for name, value in fields.items())
    )  # fmt: skip


def pieces_of(kernel: KernelSass) -> list[Counter[str]]:
    """Opcodes between each reading of the clock and the next."""
    found: list[Counter[str]] = []
    seen: Counter[str] | None = None
    for item in kernel.instructions:
        if item.name == "CS2R" and "SR_CLOCK" in item.operands:
            if seen is not None:
                found.append(seen)
            seen = Counter()
        elif seen is not None:
            seen[item.name] += 1
    return found


def test_as_many_configs_as_the_readme_says_the_same_every_time() -> None:
    assert {group: len(CASE.configs(group, 1)) for group in CASE.groups} == {"tiles": 180, "contention": 48}
    assert all(CASE.configs(group, 1) == CASE.configs(group, 2) for group in CASE.groups)
    assert {config["kernel"] for config in CONFIGS} == {
        case.Row(m, n, dtype, way, 1, 0).kernel for m, n in case.TILES for dtype in case.DTYPES for way in case.PIECES
    }


def test_nothing_spills_and_the_clock_is_read_in_order(sass: Sass) -> None:
    for name, kernel in sass("epilogue_pieces", "sm_90a").items():
        assert kernel.num_spills == 0, name
        assert all(item.opcode == "CS2R" for item in kernel.instructions if "SR_CLOCK" in item.operands), name


@pytest.mark.parametrize(("m", "n"), case.TILES)
def test_each_piece_is_what_its_name_says(sass: Sass, m: int, n: int) -> None:
    kernels = sass("epilogue_pieces", "sm_90a")
    for dtype, packs in (("bf16", n // 4), ("fp32", 0)):
        panels = n * (2 if dtype == "bf16" else 4) // 128
        store, drain = pieces_of(kernels[case.Row(m, n, dtype, "direct", 1, 0).kernel])
        assert (store["STG"], store["F2FP"]) == (n // 4, packs) and drain["MEMBAR"] == drain["BAR"] == 1
        write, meet, rows, drain, read = pieces_of(kernels[case.Row(m, n, dtype, "staged", 1, 0).kernel])
        assert (write["STSM"], write["STS"]) == ((n // 16, 0) if dtype == "bf16" else (0, n // 4))
        assert write["F2FP"] == packs and meet["BAR"] == 1 and drain["MEMBAR"] == drain["BAR"] == 1
        assert rows["LDS"] == rows["STG"] > 0 and read["LDS"] > 0 and not read["STG"]
        write, fence, meet, issue, commit, source, whole = pieces_of(kernels[case.Row(m, n, dtype, "tma", 1, 0).kernel])
        assert write["F2FP"] == packs and fence["FENCE"] == 1 and meet["BAR"] == 1
        assert issue["UTMASTG"] == panels and commit["UTMACMDFLUSH"] == 1
        assert source["DEPBAR"] == 1 and whole["DEPBAR"] == 1


def of_timed(kernel: KernelSass, piece: int) -> tuple[list[tuple[int, str, int | None, frozenset[int]]], frozenset[int]]:
    """What lies between two readings of the clock: (cycles since the first, name, read barrier, what it waits for) of each
    instruction, and what the second reading waits for."""
    found, cycles = [], 0
    clocks = [idx for idx, item in enumerate(kernel.instructions) if item.name == "CS2R" and "SR_CLOCK" in item.operands]
    for item in kernel.instructions[clocks[piece] : clocks[piece + 1]]:
        found.append((cycles, item.name, item.read_barrier, item.waits_for))
        cycles += item.stall_cycles
    return found, kernel.instructions[clocks[piece + 1]].waits_for


@pytest.mark.parametrize("name", ["STSM", "STS", "STG"])
def test_the_twin_has_the_compilers_schedule_of_the_stores(sass: Sass, name: str) -> None:
    """When the first goes and how fast the others follow; which registers are waited for, by the next ones and the clock."""
    kernels = sass("epilogue_pieces", "sm_90a")
    dtype = "fp32" if name == "STS" else "bf16"
    ways = ("direct",) if name == "STG" else ("staged", "tma")
    for (m, n), way in [(tile, way) for tile in case.TILES for way in ways]:
        timed, last_waits = of_timed(kernels[case.Row(m, n, dtype, way, 1, 0).kernel], 0)
        at = [cycles for cycles, opcode, _, _ in timed if opcode == name]
        pending: dict[int, int] = {}
        waits: dict[int, int] = {}
        num = 0
        for _, opcode, barrier, waited in timed:
            for which in waited & set(pending):
                waits[num + 1] = max(pending[which], waits.get(num + 1, 0))
            if opcode == name:
                num += 1
                if barrier is not None:
                    pending[barrier] = num
        clock = max((pending[which] for which in last_waits if which in pending), default=0)
        if name == "STG":
            assert (at[0], clock) == (case.STORE_CYCLES, case.READ_STORES[n])
            continue
        schedule = case.SCHEDULES[way, dtype, m, n]
        assert at[0] == schedule.first and (at[-1] - at[0]) / (num - 1) == pytest.approx(schedule.pace, abs=0.3)
        assert clock == schedule.waits.get(0, 0)
        assert {store: read for store, read in waits.items() if store <= num} == {
            store: read for store, read in schedule.waits.items() if store
        }


@pytest.mark.parametrize(("m", "n"), case.TILES)
def test_the_twin_has_the_compilers_turns_of_reads_and_stores(sass: Sass, m: int, n: int) -> None:
    for dtype in case.DTYPES:
        kernel = sass("epilogue_pieces", "sm_90a")[case.Row(m, n, dtype, "staged", 1, 0).kernel]
        for piece, (first, pace) in ((2, case.STORES[dtype, m, n]), (4, case.READS[dtype, m, n])):
            timed, _ = of_timed(kernel, piece)
            at = [cycles for cycles, opcode, _, _ in timed if opcode == "LDS"]
            assert abs(at[0] - first) <= 1 and (at[-1] - at[0]) / (len(at) - 1) == pytest.approx(pace, abs=0.7)


def test_a_tile_lies_where_the_fragments_of_wgmma_put_it() -> None:
    """Word for word, by PTX's figure: thread 4 of warp 5 holds columns 0 and 1 of row 81, and of row 89."""
    config = find(m=128, n=64, dtype="fp32", sms=1)
    tile = case.wanted_tiles(typed(config)).view("<f4").reshape(128, 64)
    held = case.source()[: 32 * 256].reshape(32, 256)
    thread = 5 * 32 + 4
    assert list(tile[81, :2]) == list(held[:2, thread]) and list(tile[89, :2]) == list(held[2:4, thread])
    assert list(tile[81, 8:10]) == list(held[4:6, thread])


def test_bf16_is_rounded_to_nearest() -> None:
    """Eight bits: off by half of the last one at most, where cutting off would be off by a whole one."""
    config = find(m=64, n=64, dtype="bf16", sms=1)
    exact = case.wanted_tiles(typed({**config, "dtype": "fp32"})).view("<f4").astype(np.float64)
    got = (case.wanted_tiles(typed(config)).view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    assert (np.abs(got - exact) <= np.abs(exact) * 2.0**-8).all()


def test_the_kernel_has_a_pointer_to_the_matrix_that_the_map_is_of() -> None:
    """Both are the same array, which cannot be written to here: so it lies on the GPU once."""
    for config in CONFIGS[::31]:
        arguments = CASE.launch(config, False).arguments
        (mapped,) = [item for item in arguments if isinstance(item, MappedTensor)]
        assert any(isinstance(item, Input) and item.array is mapped.array for item in arguments)
        assert not mapped.array.flags.writeable
        m, n = int(config["m"]), int(config["n"])
        tensor_map = mapped.tensor_map
        assert tensor_map.global_dim == (12 * n, 11 * m)
        assert 11 * m * 12 * n * typed(config).element_bytes <= mapped.array.nbytes


def answers(config: Config) -> dict[str, NDArray[np.generic]]:
    times = np.full((int(config["sms"]), case.NUM_ROUNDS, case.MOST_PIECES), 100, dtype="<i8")
    times[:, : case.NUM_WARM_UP] = 5000
    return {"tiles": case.wanted_tiles(typed(config)).copy(), "times": times, "words": np.ones(2, dtype="<u8")}


def test_a_piece_without_time_is_refused() -> None:
    outputs = answers(CONFIGS[0])
    outputs["times"][0, case.NUM_WARM_UP, 0] = -1
    with pytest.raises(WrongAnswer, match="no time"):
        CASE.check(CONFIGS[0], outputs)


@pytest.mark.parametrize("way", list(case.PIECES))
def test_the_simulator_has_every_piece_or_none_of_that_name(way: str) -> None:
    for dtype in case.DTYPES:
        found = CASE.predict(find(m=128, n=128, dtype=dtype, way=way, sms=1), GPU)
        assert set(found) <= set(CASE.values)
        assert set(found) == {f"{piece}_cycles" for piece in case.PIECES[way]} - {"commit_cycles"} | {"total_cycles"} | (
            {"commit_cycles"} & set(found)
        )


def test_a_larger_tile_takes_the_simulator_longer_and_so_do_all_sms() -> None:
    for way, piece in (("direct", "store_cycles"), ("staged", "write_cycles"), ("tma", "source_wait_cycles")):
        found = [CASE.predict(find(m=128, n=n, dtype="fp32", way=way, sms=1), GPU)[piece] for n in (64, 128, 256)]
        assert found[0] < found[1] < found[2]
    alone, together = (CASE.predict(find(m=128, n=256, dtype="fp32", way="tma", sms=sms), GPU) for sms in (1, 132))
    assert together["total_cycles"] > alone["total_cycles"]


def test_stmatrix_writes_as_many_wavefronts_as_there_are_bytes() -> None:
    config = find(m=128, n=256, dtype="bf16", way="tma", sms=1)
    access = case.writes(typed(config)).access
    assert access.num_wavefronts * 128 == 128 * 256 * 2
    wide = case.writes(typed({**config, "dtype": "fp32"})).access
    assert wide.num_wavefronts * 128 == 2 * 128 * 256 * 4  # rows 2i and 2i + 1 of a quarter meet in the same banks


def test_ctas_that_come_one_after_the_other_meet_nobody() -> None:
    """All SMs over 8 us: each has what one alone has, and they are as far apart as asked, on a slower clock, too."""
    slow = replace(GPU, clock=replace(GPU.clock, max_mhz=1000.0))
    for gpu in (GPU, slow):
        alone, apart, together = (
            CASE.predict(find(m=64, n=64, dtype="bf16", way="tma", sms=sms, stagger_ns=stagger), gpu)["total_cycles"]
            for sms, stagger in ((1, 0), (132, 8000), (132, 0))
        )
        assert apart == pytest.approx(alone, rel=0.02) and together >= apart - 1e-6
    for warps in (4, 8):
        taken = case.wait(900.0, warps, GPU)
        assert taken.num_instructions * warps == pytest.approx(900.0 * GPU.warp_scheduler.int32_lanes / 32)


def test_nothing_is_said_of_a_gpu_with_fewer_sms_than_ctas() -> None:
    gpcs = {"16": 3, "18": 1}
    few = replace(GPU, device=replace(GPU.device, num_sms=66, gpcs=gpcs, gpc_l2_partition=(0, 0, 1, 1), singleton_tpc_sms=0))
    assert CASE.predict(find(m=64, n=64, dtype="bf16", way="tma", sms=132), few) == {}
    assert CASE.predict(find(m=64, n=64, dtype="bf16", way="tma", sms=1), few)


SLICE = 4 * GPU.l2.fabric_bytes_per_cycle / GPU.l2.num_slices / GPU.l2.sustained_fraction
ONE_LIMIT = replace(
    GPU, l2=replace(GPU.l2, fabric_bytes_per_cycle=1e6, slice_bytes_per_cycle=SLICE),
    xbar=replace(GPU.xbar, gpc_write_bytes_per_cycle=1e6),
)  # fmt: skip
"""All SMs' stores wait in one place, as the fit takes it; behind links some 2 KB more of an SM's are under way."""

OTHER = replace(
    ONE_LIMIT, xbar=replace(ONE_LIMIT.xbar, store_packet_bytes=60.0, store_in_flight_bytes=5000.0),
)  # fmt: skip


@pytest.mark.parametrize(("gpu", "half"), [(ONE_LIMIT, 0), (OTHER, 1)], ids=["h200-even", "other-odd"])
def test_rows_of_a_machine_that_is_known_give_its_numbers_back(gpu: GpuSpec, half: int) -> None:
    rows = [
        {**config, "group": "tiles", **{name: str(number) for name, number in CASE.predict(config, gpu).items()}}
        for config in CASE.configs("tiles", 1)[half::2] if config["stagger_ns"] == "0"
    ]  # fmt: skip
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted == {
        "xbar.store_packet_bytes": pytest.approx(gpu.xbar.store_packet_bytes, rel=0.03),
        # L2's part of a store begins with its issue, some 30 cycles before the engine comes to it
        "xbar.store_in_flight_bytes": pytest.approx(gpu.xbar.store_in_flight_bytes, rel=0.12),
    }
