"""Copies that fit and are legal, SASS with nothing else where the clock runs, bytes that must come, predictions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Input, MappedTensor, Output, WrongAnswer, load_case
from gpusim.evidence.toolchain.sass import KernelSass

Sass = Callable[[str, str], dict[str, KernelSass]]
CASE = load_case("copy_rate")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
GPU = load_gpu("h200_sxm")
CONFIGS = {group: CASE.configs(group, 1) for group in CASE.groups}
ALL = [config for configs in CONFIGS.values() for config in configs]
STATIC_BYTES = 38 * 1024
"""What a kernel takes beside: stamps of 32 issuers, mbarriers."""


def find(kernel: str, **columns: object) -> dict[str, str]:
    """The first config that says so."""
    return next(
        dict(config) for config in ALL
        if config["kernel"] == kernel and all(config[name] == str(value) for name, value in columns.items())
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- configs


def test_every_width_rank_swizzle_depth_and_number_of_issuers_is_asked() -> None:
    loads = CONFIGS["load_train"] + CONFIGS["load_ring"]
    assert {config["kernel"].rsplit("_", 1)[1] for config in loads} == {"bulk", "1d", "2d", "3d"}
    assert {config["swizzle"] for config in loads} == {"none", "32B", "64B", "128B"}
    assert {int(config["inner_bytes"]) for config in loads if config["kernel"].endswith("2d")} == {16, 32, 64, 128, 256}
    assert {int(config["outer"]) for config in loads if config["kernel"].endswith("2d")} == {1, 4, 8, 16, 32, 64, 128, 256}
    assert {int(config["in_flight"]) for config in CONFIGS["load_ring"]} == {1, 2, 4, 8, 16}
    assert {int(config["num_issuers"]) for config in CONFIGS["load_ring"]} == {1, 2, 4, 8}
    clusters = {config["kernel"] for group in ("multicast", "multicast_of_16") for config in CONFIGS[group]}
    assert clusters == {"multicast_2", "multicast_4", "multicast_8", "multicast_16"}


def test_every_launch_fits_and_opts_in_to_its_shared_memory() -> None:
    for config in ALL:
        launch = CASE.launch(config, False)
        assert 48 * 1024 < launch.smem_bytes <= 227 * 1024 - STATIC_BYTES, config
        held = launch.smem_bytes * typed(config).cluster_size
        (dump,) = [item for item in launch.arguments if isinstance(item, Output)][:1]
        assert typed(config).is_store or dump.array.nbytes <= held, config
        assert launch.block[0] <= (1024 if "cp_async" in config["kernel"] else 256)
        assert int(config["num_issuers"]) <= case.MOST_ISSUERS and int(config["in_flight"]) <= 16


def test_an_mbarrier_can_expect_every_phases_bytes() -> None:
    for config in ALL:
        assert typed(config).copy_bytes * int(config["num_copies"]) < 1 << 20


def test_tiles_lie_inside_the_tensor_and_walks_end_with_it() -> None:
    for config in ALL:
        walk = case._walk(typed(config))
        if not typed(config).is_cp_async:
            assert walk["width"] % walk["step"] == 0 and walk["height"] % walk["rows"] == 0, config
        (mapped, *_) = [item for item in CASE.launch(config, False).arguments if isinstance(item, MappedTensor | Input)]
        assert mapped.array.nbytes >= typed(config).copy_bytes


# ---------------------------------------------------------------------------------------------- SASS


COPY = {"load_bulk": "UBLKCP", "store_bulk": "UBLKCP", "load": "UTMALDG", "store": "UTMASTG", "cp": "LDGSTS"}


def copies_of(name: str, kernel: KernelSass) -> int:
    return len(kernel.select("UTMALDG", "UTMASTG", "UBLKCP", "LDGSTS", "UTMAREDG", "UBLKRED"))


def test_a_train_has_its_copies_one_after_the_other_and_the_clock_between(sass: Sass) -> None:
    for name, kernel in sass("copy_rate", "sm_90a").items():
        if not name.startswith("train_"):
            continue
        assert copies_of(name, kernel) >= sum(case.TRAIN), name
        items = kernel.instructions
        at = [i for i, item in enumerate(items) if item.name in ("UTMALDG", "UTMASTG", "UBLKCP", "LDGSTS")]
        gaps = [[item.name for item in items[i + 1 : j]] for i, j in pairwise(at)]
        longest = max(case.TRAIN) - 1
        clocked = [gap for gap in gaps if gap.count("CS2R") == 1 and len(gap) <= 12 and "BRA" not in gap]
        assert len(clocked) >= longest, name  # of the longest train alone
        assert kernel.num_spills == 0, name


def gaps_in(kernel: KernelSass) -> dict[int, list[tuple[int, bool]]]:
    """(scheduled cycles from clock to clock, whether a copy's operands are waited for), by the copies of a train."""
    found: dict[int, list[tuple[int, bool]]] = {}
    gaps: list[tuple[int, bool]] = []
    since: list[int] | None = None  # cycles, waits, copies since the clock was read
    reading: int | None = None  # what is free again once the last copy has read its operands
    for item in kernel.instructions:
        if item.name in ("BRA", "BSYNC", "BSSY", "EXIT", "UTMACMDFLUSH"):
            if len(gaps) > 1:
                found[len(gaps)] = gaps
            gaps, since, reading = [], None, None
            continue
        waits = reading is not None and reading in item.waits_for
        if item.name == "CS2R":
            if since is not None and since[2]:
                gaps.append((since[0], bool(since[1])))
            since = [0, 0, 0]
        is_copy = item.name in ("UTMALDG", "UTMASTG")
        if since is not None:
            since = [since[0] + item.stall_cycles, since[1] + waits, since[2] + is_copy]
        reading = item.read_barrier if is_copy else None if waits else reading
    return found


def test_the_gaps_of_trains_are_those_of_the_sass(sass: Sass) -> None:
    kernels = sass("copy_rate", "sm_90a")
    for name, trains in case.GAPS.items():
        found = gaps_in(kernels[f"train_{name}"])
        assert set(found) == set(trains)
        for num, text in trains.items():
            parts = [item.partition("x") for item in text.split()]
            stated = [(int(gap.rstrip("+")), gap.endswith("+")) for times, _, gap in parts for _ in range(int(times))]
            assert stated[0] == found[num][0] and sorted(stated[1:]) == sorted(found[num][1:]), (name, num)


def test_the_turns_of_store_rings_are_those_of_the_sass(sass: Sass) -> None:
    kernels = sass("copy_rate", "sm_90a")
    for name, turns in case.STORE_TURNS.items():
        for depth, stated in turns.items():
            for loop in kernels[f"ring_{name}"].loops:
                stores = loop.select("UTMASTG", "UTMAREDG")
                left = {int(item.operands.rpartition("0x")[2], 16) for item in loop.select("DEPBAR")}
                is_inner = not any(inner.select("UTMASTG", "UTMAREDG") for inner in loop.loops[:-1])
                if stores and left == {depth - 1} and is_inner:
                    before, counts = 0, False
                    for item in loop.instructions:
                        counts = item.name != "DEPBAR" and (counts or item in stores)
                        before += counts * item.stall_cycles
                    whole = sum(item.stall_cycles for item in loop.instructions)
                    assert stated == pytest.approx((before / len(stores), whole / len(stores)), abs=0.06), (name, depth)
                    break
            else:
                raise AssertionError((name, depth))


def between(kernel: KernelSass, begin: int, end: str, modifier: str = "") -> int:
    """Scheduled cycles from an address to the next instruction ``end``, without it."""
    items = [item for item in kernel.instructions if item.address >= begin]
    last = next(idx for idx, item in enumerate(items) if item.name == end and modifier in item.opcode)
    return sum(item.stall_cycles for item in items[:last])


def test_the_code_of_a_multicast_is_that_of_the_sass(sass: Sass) -> None:
    kernel = sass("copy_rate", "sm_90a")["multicast_4"]
    (load,) = kernel.select("UTMALDG")
    tries = [idx for idx, item in enumerate(kernel.instructions) if "TRYWAIT" in item.opcode]
    done = [next(item for item in kernel.instructions[idx:] if item.branch_target) for idx in tries]
    producer, waiter = (item.branch_target for item in done)
    assert producer is not None and waiter is not None and producer < load.address < waiter
    announced = next(item for item in kernel.select("SYNCS") if item.address > producer)
    assert GPU.tma is not None
    assert (
        between(kernel, producer, "SYNCS"), between(kernel, announced.address, "UTMALDG") - GPU.tma.issue_cycles,
        between(kernel, waiter, "SYNCS", "RED"),
    ) == case.MULTICAST_CODE_CYCLES  # fmt: skip


def test_a_ring_waits_and_issues_once_a_turn_and_works_nothing_out_anew(sass: Sass) -> None:
    for name, kernel in sass("copy_rate", "sm_90a").items():
        assert kernel.num_spills == 0, name
        if name.startswith("ring_load"):
            (loop,) = [
                loop for loop in kernel.loops
                if copies_of(name, loop) == 1 and any("TRYWAIT" in item.opcode for item in loop.instructions)
                and len(loop.instructions) < 70 and not any(copies_of(name, inner) for inner in loop.loops[:-1])
            ]  # fmt: skip
            assert len(loop.select("CS2R")) == 2 and not loop.select("S2UR", "S2R", "BAR"), name
            assert not any("CLOCK" in item.operands for item in kernel.select("S2UR")), name


def test_a_lane_of_several_issues_in_a_loop_and_an_elected_one_does_not(sass: Sass) -> None:
    kernels = sass("copy_rate", "sm_90a")
    assert any(item.operands and "ANY" in item.opcode for item in kernels["lanes_load_2d"].select("BRA"))
    assert not any("ANY" in item.opcode for item in kernels["ring_load_2d"].select("BRA"))


def test_a_multicast_arrives_at_far_barriers_without_a_fence_of_the_whole_gpu(sass: Sass) -> None:
    kernel = sass("copy_rate", "sm_90a")["multicast_4"]
    (load,) = kernel.select("UTMALDG")
    assert load.opcode == "UTMALDG.2D.MULTICAST"
    loops = [loop for loop in kernel.loops if any(".RED" in item.opcode for item in loop.select("SYNCS"))]
    assert loops and not loops[0].select("MEMBAR")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_cp_async_is_of_its_size_and_cache(sass: Sass, arch: str) -> None:
    for name, kernel in sass("copy_rate", arch).items():
        if "cp_async" in name:
            (opcode,) = {item.opcode for item in kernel.select("LDGSTS")}
            size = {"4": "", "8": ".64", "16": ".128"}[name.removeprefix("ring_").removeprefix("train_")[11:]]
            assert opcode.endswith(f"{size}" if size else "LDGSTS.E"), (name, opcode)
            assert ("BYPASS" in opcode) == ("cg" in name)
            assert kernel.num_spills == 0


# ---------------------------------------------------------------------------------------------- what must come


def box_at(config: dict[str, str], x: int, y: int, tensor: np.ndarray) -> np.ndarray:
    """The box at byte ``x`` of a row and outermost coordinate ``y``, a view of the tensor."""
    inner, kernel = int(config["inner_bytes"]), config["kernel"]
    sizes = [int(size) for size in config["outer"].split("x")]
    if "bulk" in kernel or kernel.endswith("_1d"):
        return tensor[x : x + inner]
    if kernel.endswith("_3d"):
        return tensor.reshape(32, 32, 1024)[y : y + sizes[1], : sizes[0], x : x + inner]
    return tensor.reshape(1024, 1024)[y : y + sizes[0], x : x + inner]


def swizzled(config: dict[str, str], box: np.ndarray) -> np.ndarray:
    bits = {"none": 0, "32B": 1, "64B": 3, "128B": 7}[config["swizzle"]]
    place = np.arange(box.size)
    made = np.empty(box.size, dtype=np.uint8)
    made[place ^ (place >> 7 & bits) << 4] = box.reshape(-1)
    return made


def walked(config: dict[str, str], tile: int, num: int) -> list[tuple[int, int]]:
    """(byte of x, y) of ``num`` tiles from number ``tile`` on, stepped as the kernel steps."""
    inner, kernel = int(config["inner_bytes"]), config["kernel"]
    is_linear = "bulk" in kernel or kernel.endswith("_1d")
    width, height = (1 << 20, 1) if is_linear else (1024, 32 if kernel.endswith("_3d") else 1024)
    rows = 1 if is_linear else int(config["outer"].split("x")[-1])
    x, y = tile % (width // inner) * inner, tile // (width // inner) % (height // rows) * rows
    found = []
    for _ in range(num):
        found.append((x, y))
        x += inner
        if x == width:
            x, y = 0, (y + rows) % height
    return found


def ring_times(num: int, each: int, latency: int, depth: int = 1) -> np.ndarray:
    """Every issuer issues every ``each`` cycles and waits ``latency``; the clock comes round on the way."""
    times = np.zeros(4 + case.MOST_ISSUERS * case.NUM_SAMPLES * 2, dtype="<u4")
    stamps = times[4:].reshape(case.MOST_ISSUERS, case.NUM_SAMPLES, 2)
    at = (2**32 - 500 + each * np.arange(case.NUM_SAMPLES)).astype(np.uint64)
    stamps[:num, :, 0] = at % 2**32
    stamps[:num, :, 1] = (at + latency) % 2**32
    if depth > 1:  # a wait tells of the store some before
        stamps[:num, depth - 1 :, 1] = stamps[:num, : case.NUM_SAMPLES - depth + 1, 1].copy()
    return times


def train_times(config: dict[str, str], issue: int, done: int) -> np.ndarray:
    times = np.zeros(4 + case.MOST_ISSUERS * case.NUM_SAMPLES * 2, dtype="<u4")
    num = int(config["num_copies"])
    for idx in range(case.TRAIN_ROUNDS):
        begin, late = 10_000 * idx, 1000 if idx < case.WARM_ROUNDS else 0
        row = [begin + issue * i for i in range(num + 1)] + [begin + done + late, begin + done + 77 + late]
        times[4 + idx * 36 : 4 + idx * 36 + len(row)] = row
    times[2] = 8 * 6
    return times


def outputs_of(config: dict[str, str], times: np.ndarray) -> dict[str, np.ndarray]:
    """What the kernel must leave, worked out copy by copy."""
    launch = CASE.launch(config, False)
    outputs = {item.name: item.array.copy() for item in launch.arguments if isinstance(item, Output)}
    outputs["times"] = times
    slot, depth = typed(config).slot_bytes, int(config["in_flight"])
    if typed(config).is_train:
        linear = case._walk(typed(config))["height"] == 1
        step = int(config["inner_bytes"]), int(config["outer"].split("x")[-1])
        where = [(i * step[0], 0) if linear else (0, i * step[1]) for i in range(int(config["num_copies"]))]
        slots = list(range(len(where)))
    else:
        where, slots = [], []
        for issuer in range(int(config["num_issuers"])):
            for idx, at in enumerate(walked(config, issuer * case.START_TILES, case.NUM_SAMPLES)):
                where.append(at)
                slots.append(issuer * depth + idx % depth)
    if typed(config).is_store:
        source = case.box_source(typed(config).copy_bytes, config["dtype"], typed(config).is_reduction)
        for x, y in where:
            box = box_at(config, x, y, outputs["tensor"])
            if typed(config).is_reduction:
                dtype = config["dtype"]
                numbers = case._numbers_of(dtype, np.ascontiguousarray(box).reshape(-1))
                box[...] = case._bytes_of(dtype, numbers + 2 * case._numbers_of(dtype, source)).reshape(box.shape)
            else:
                box[...] = source.reshape(box.shape)
    else:
        for number, (x, y) in zip(slots, where, strict=True):
            image = swizzled(config, box_at(config, x, y, case.tensor()))
            outputs["smem"][number * slot : number * slot + image.size] = image
    return outputs


RINGS = [
    find("ring_load_2d", inner_bytes=128, outer=64, swizzle="128B", in_flight=4, num_issuers=4),
    find("ring_load_2d", inner_bytes=32, outer=64, swizzle="32B", in_flight=2, num_issuers=2),
    find("ring_load_3d", in_flight=4, num_issuers=2), find("ring_load_1d", inner_bytes=512, in_flight=16, num_issuers=8),
    find("ring_load_bulk", inner_bytes=1024, in_flight=8, num_issuers=2),
    find("lanes_load_2d", outer=8, in_flight=2, num_issuers=16),
]  # fmt: skip


@pytest.mark.parametrize("config", RINGS, ids=lambda config: config["kernel"])
def test_a_rings_boxes_pass_and_one_wrong_byte_does_not(config: dict[str, str]) -> None:
    num = int(config["num_issuers"])
    outputs = outputs_of(config, ring_times(num, 40, 700))
    values = CASE.check(config, outputs)
    assert values["cycles_per_copy"] == pytest.approx(40 / num)
    assert values["latency_cycles"] == values["min_latency_cycles"] == values["max_latency_cycles"] == 700
    outputs["smem"][3] ^= 1
    with pytest.raises(WrongAnswer, match="is not the tensor's"):
        CASE.check(config, outputs)


@pytest.mark.parametrize(
    "config",
    [
        find("ring_store_read_2d", outer=64, swizzle="128B", in_flight=4, num_issuers=2),
        find("ring_store_done_3d", in_flight=2, num_issuers=4), find("ring_store_read_bulk", inner_bytes=1024, in_flight=8),
        find("ring_reduce_2d", dtype="bf16", outer=64, in_flight=4, num_issuers=4),
        find("ring_reduce_bulk_u32", inner_bytes=4096, num_issuers=4), find("ring_reduce_bulk_fp32", inner_bytes=256),
    ],
    ids=lambda config: config["kernel"],
)  # fmt: skip
def test_a_rings_stores_and_sums_pass_and_one_that_is_lost_does_not(config: dict[str, str]) -> None:
    num, depth = int(config["num_issuers"]), int(config["in_flight"])
    outputs = outputs_of(config, ring_times(num, 40, 300, depth))
    values = CASE.check(config, outputs)
    assert values["cycles_per_copy"] == pytest.approx(40 / num)
    assert values["latency_cycles"] == 300
    box = box_at(config, *walked(config, 0, 6)[5], outputs["tensor"])
    box[...] = case.before(typed(config))[0]
    with pytest.raises(WrongAnswer, match="not as stored"):
        CASE.check(config, outputs)


@pytest.mark.parametrize("kernel", ["train_load_2d", "train_load_3d", "train_load_bulk", "train_store_1d", "train_store_2d"])
def test_a_trains_cycles_are_those_of_its_warm_rounds(kernel: str) -> None:
    config = find(kernel, num_copies=8)
    values = CASE.check(config, outputs_of(config, train_times(config, 12, 900)))
    late = 77 if "store" in kernel else 0
    assert (values["cycles"], values["max_cycles"], values["first_cycles"]) == (900 + late, 900 + late, 1900 + late)
    assert values["issue_cycles"] == values["first_issue_cycles"] == values["last_issue_cycles"] == 12
    assert values.get("read_cycles") == (900 if "store" in kernel else None)
    assert values.get("clock_cycles") == (None if "store" in kernel else 6)


def test_sums_of_bf16_are_exact() -> None:
    """A bf16 holds every whole number up to 256."""
    for config in CONFIGS["reduce_ring"]:
        if config["dtype"] == "bf16":
            assert case._numbers_of("bf16", case.expected_tensor(typed(config))).max() <= 256


def test_a_multicasts_slots_hold_the_share_of_every_issuing_cta() -> None:
    config = find("multicast_4", outer=16, in_flight=2, num_copies=4)
    times = ring_times(4, 100, 600)
    (smem, _) = [item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)]
    slot, box = 4 * 2048, 2048
    y = [rank * 16 for rank in range(4)]
    for stage in range(2 * case.NUM_SAMPLES):
        for rank in range(4):
            image = swizzled(config, case.tensor().reshape(1024, 1024)[y[rank] : y[rank] + 16, :128])
            for cta in range(4):
                at = (cta * 2 + stage % 2) * slot + rank * box
                smem[at : at + box] = image
            y[rank] += 64
            if y[rank] >= 1024:
                y[rank] -= 1024
    assert CASE.check(config, {"smem": smem, "times": times})["cycles_per_copy"] == pytest.approx(100 / 4)
    smem[-1] ^= 1
    with pytest.raises(WrongAnswer, match="is not the tensor's"):
        CASE.check(config, {"smem": smem, "times": times})


@pytest.mark.parametrize("columns", [
    {"region_kib": 8, "num_copies": 4, "in_flight": 4, "num_issuers": 4},
    {"region_kib": 1024, "num_copies": 1, "in_flight": 8, "num_issuers": 16},
])  # fmt: skip
def test_cp_async_lands_by_warp_group_and_lane(columns: dict[str, int]) -> None:
    config = find("ring_cp_async_ca8", **columns)
    warps, depth, copies = columns["num_issuers"], columns["in_flight"], columns["num_copies"]
    (smem, _) = [item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)]
    for warp in range(warps):
        offset, slot = warp * 256, 0
        for _ in range(2 * case.NUM_SAMPLES):
            for k in range(copies):
                at = (warp * depth + slot) * copies * 256 + k * 256
                smem[at : at + 256] = case.tensor()[offset : offset + 256]
                offset = (offset + warps * 256) & (columns["region_kib"] * 1024 - 1)
            slot = (slot + 1) % depth
    times = ring_times(warps, 30, 400)
    assert CASE.check(config, {"smem": smem, "times": times})["cycles_per_copy"] == pytest.approx(30 / warps / copies)
    smem[0] ^= 1
    with pytest.raises(WrongAnswer, match="is not the tensor's"):
        CASE.check(config, {"smem": smem, "times": times})


def test_a_wait_that_was_given_up_and_a_clock_that_stands_still_are_no_answers() -> None:
    config = RINGS[0]
    outputs = outputs_of(config, ring_times(4, 40, 700))
    outputs["times"][0] = 1
    with pytest.raises(WrongAnswer, match="given up"):
        CASE.check(config, outputs)
    with pytest.raises(WrongAnswer, match="stands still"):
        CASE.check(config, outputs_of(config, ring_times(4, 0, 700)))


# ---------------------------------------------------------------------------------------------- predictions


def predict(config: dict[str, str]) -> dict[str, float]:
    return CASE.predict(config, GPU)


def test_a_deep_ring_of_large_boxes_runs_at_the_port_of_the_sm() -> None:
    gpu = GPU
    config = find("ring_load_2d", inner_bytes=128, outer=64, swizzle="128B", in_flight=4, num_issuers=4)
    assert gpu.tma is not None
    slower = min(gpu.xbar.sm_read_bytes_per_cycle, gpu.tma.bytes_per_cycle)
    assert predict(config)["cycles_per_copy"] == pytest.approx(8192 / slower)


def test_one_load_costs_issue_bytes_rows_both_latencies_and_the_wake() -> None:
    gpu = GPU
    assert gpu.tma is not None and gpu.mbarrier is not None
    config = find("train_load_2d", inner_bytes=128, outer=64, swizzle="128B", num_copies=1)
    slower = min(gpu.xbar.sm_read_bytes_per_cycle, gpu.tma.bytes_per_cycle)
    wanted = gpu.tma.issue_cycles + 8192 / slower + gpu.l2.near_latency_cycles
    wanted += gpu.l2.slice_spread_cycles * 63 / 65  # the rows hide behind their bytes
    assert predict(config)["cycles"] == pytest.approx(wanted + gpu.tma.latency_cycles + gpu.mbarrier.wake_cycles)
    assert predict(config)["first_issue_cycles"] == gpu.tma.issue_cycles + case.CLOCK_CYCLES


@pytest.mark.parametrize("kernel", ["ring_load_2d", "ring_store_read_2d", "ring_cp_async_cg16"])
def test_more_in_flight_is_never_slower(kernel: str) -> None:
    shape = {"outer": 64, "inner_bytes": 128, "swizzle": "128B"} if kernel.endswith("2d") else {"num_copies": 1}
    found = [find(kernel, in_flight=depth, num_issuers=1, **shape) for depth in (1, 2, 4, 8)]
    cycles = [predict(config)["cycles_per_copy"] for config in found]
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(cycles))


def test_longer_trains_take_longer() -> None:
    for kernel in ("train_load_2d", "train_store_2d", "train_cp_async_cg16"):
        shape = {"inner_bytes": 16} if "cp" in kernel else {"inner_bytes": 128, "outer": 8, "swizzle": "128B"}
        cycles = [predict(find(kernel, num_copies=num, **shape))["cycles"] for num in (1, 2, 4, 8, 16, 32)]
        assert all(earlier < later for earlier, later in pairwise(cycles)), kernel


def test_sharing_a_box_by_multicast_costs_a_cta_no_more_than_its_bytes() -> None:
    """Each CTA takes in what all issue, at TMA's own rate where that is below the port's."""
    gpu = GPU
    assert gpu.tma is not None
    config = find("multicast_4", outer=64, in_flight=4, num_copies=4)
    slower = min(gpu.xbar.sm_read_bytes_per_cycle, gpu.tma.bytes_per_cycle)
    assert predict(config)["cycles_per_copy"] == pytest.approx(8192 / slower, rel=0.02)


@pytest.mark.parametrize(("kernel", "wavefronts"), [("ca4", 1), ("ca8", 2), ("ca16", 4)])
def test_a_full_ring_out_of_l1_takes_the_data_stage_for_each_copy_and_commit(kernel: str, wavefronts: int) -> None:
    config = find(f"ring_cp_async_{kernel}", num_issuers=16, in_flight=4, num_copies=4, region_kib=8)
    wanted = wavefronts / GPU.l1.wavefronts_per_cycle + GPU.l1.cp_async_cycles + GPU.l1.commit_cycles / 4
    assert predict(config)["cycles_per_copy"] == pytest.approx(wanted, rel=0.05)


def test_one_warps_copies_out_of_l1_follow_at_their_pace() -> None:
    cycles = [predict(find("train_cp_async_ca4", num_copies=num))["cycles"] for num in (1, 4, 16)]
    assert (cycles[2] - cycles[1]) / 12 == pytest.approx(GPU.l1.cp_async_interval_cycles, rel=0.02)
    assert cycles[0] == pytest.approx(1 + GPU.l1.hit_latency_cycles + GPU.l1.cp_async_latency_cycles, abs=1)


def test_what_the_simulator_has_no_words_for_is_not_predicted() -> None:
    for kernel in ("train_load_bulk", "ring_store_done_bulk", "lanes_load_2d", "ring_reduce_bulk_bf16", "multicast_16"):
        assert predict(find(kernel)) == {}


# ---------------------------------------------------------------------------------------------- parameters


def test_rows_of_a_machine_that_is_known_give_its_parameters_back() -> None:
    """The simulator stands for the GPU; either half of the rows tells the same."""
    assert GPU.tma is not None
    names = ("issue_cycles", "row_cycles", "store_latency_cycles", "store_box_cycles")
    wanted = {f"tma.{name}": getattr(GPU.tma, name) for name in names}
    wanted["tma.bytes_per_cycle"] = min(GPU.tma.bytes_per_cycle, GPU.xbar.sm_read_bytes_per_cycle)
    for half in (0, 1):
        rows = []
        for group in ("load_train", "load_ring", "store_train"):
            for config in CONFIGS[group][half::2]:
                if config["kernel"] in ("train_load_2d", "train_store_2d", "ring_load_2d"):
                    numbers = {"clock_cycles": case.CLOCK_CYCLES, **predict(dict(config))}
                    rows.append({**config, **{name: str(number) for name, number in numbers.items()}})
        fitted = {item.parameter: item.value for item in CASE.fit(rows)}
        assert fitted.keys() == wanted.keys() if half == 0 else fitted.keys() <= wanted.keys()  # some rows only calibrate
        for name, value in fitted.items():
            allowed = 1.0 if name == "tma.issue_cycles" else None  # code between may hide an issue
            assert value == pytest.approx(wanted[name], rel=0.03, abs=allowed), (half, name)


def test_full_rings_of_cp_async_give_the_load_store_unit_back() -> None:
    names = ("cp_async_cycles", "cp_async_bypass_cycles", "commit_cycles", "cp_async_interval_cycles")
    wanted = {f"l1.{name}": getattr(GPU.l1, name) for name in names}
    configs = [config for config in CONFIGS["cp_async_ring"][::2] if config["num_issuers"] == "16"]
    configs += CONFIGS["cp_async_train"][::2]
    rows = [{**config, **{name: str(value) for name, value in predict(dict(config)).items()}} for config in configs]
    fitted = {item.parameter: item.value for item in CASE.fit(rows)}
    assert fitted.keys() == wanted.keys() | {"xbar.sm_read_bytes_per_cycle"}
    for name, value in wanted.items():
        assert fitted[name] == pytest.approx(value, rel=0.1), name


def test_rows_that_tell_nothing_fit_nothing() -> None:
    assert list(CASE.fit([])) == []
    assert list(CASE.fit([{**config, "cycles_per_copy": "9"} for config in CONFIGS["multicast"]])) == []
