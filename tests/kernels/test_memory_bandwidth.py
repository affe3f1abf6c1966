"""Who moves which bytes, what they must sum up to, which SMs are live; and that the loops hold all loads and stores."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim import GpuSpec, load_gpu
from gpusim.evidence.cases.case import Config, Input, Output, Scratch, WrongAnswer, kernel_folder, load_case
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.toolchain.sass import KernelSass
from gpusim.evidence.validate.calibrate import halves, parameter

CASE = load_case("memory_bandwidth")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]
STREAMS = [config for config in CONFIGS if not config["kernel"].startswith("clusters")]
GPU = load_gpu("h200_sxm")
MEASURED = Path(__file__).resolve().parents[2] / "validation/measured/h200_sxm/memory_bandwidth.csv"
KIB, MIB = 1 << 10, 1 << 20
GPCS = [[sm for sm in range(132) if sm // 2 % 8 == gpc] for gpc in range(8)]
"""A made-up GPU: TPC i belongs to GPC i mod 8, so that two GPCs have 18 SMs, and the others 16."""


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    case.seen.cache_clear()
    yield
    case.seen.cache_clear()


# ---------------------------------------------------------------------------------------------- configs


def test_there_are_as_many_configs_as_the_readme_says_and_the_same_every_time() -> None:
    counts = {group: len(CASE.configs(group, 1)) for group in CASE.groups}
    assert counts == {"topology": 152, "footprint": 368, "in_flight": 396, "live": 207, "loaded": 96, "counted": 36}
    assert all(CASE.configs(group, 1) == CASE.configs(group, 2) for group in CASE.groups)
    assert all(count <= 400 for count in counts.values()), "a group is one chunk, so that its SMs are found out before"


def test_every_launch_fits_an_sm_just_so_often_and_moves_whole_boxes_inside_the_buffer() -> None:
    for config in STREAMS:
        ctas, threads = int(config["ctas_per_sm"]), int(config["threads"])
        taken = case.SMEM_BYTES[ctas] + 10 * KIB * (ctas == 1) + KIB + 512
        assert ctas * taken <= 228 * KIB < (ctas + 1) * (case.SMEM_BYTES[ctas] + KIB)
        assert threads % 32 == 0 and threads * ctas <= 2048 and threads <= 1024
        assert case.chunk_bytes(config) * max(1, int(config["stages"])) <= 192 * KIB
        plan = case.plan_of(config, int(config["count"]))
        half = case.SECOND_AT if config["kernel"].startswith(("copy", "mix", "chase")) else case.BUFFER_BYTES
        assert plan.used_bytes <= half
        assert plan.chunk_bytes % 128 == 0 and plan.num_chunks * plan.chunk_bytes // 16 < 2**31
        assert plan.num_steps >= max(1, int(config["stages"])) and plan.num_warm >= 1
        assert int(config["stages"]) in (0, 1, 2, 4, 8)


def test_the_sweep_has_what_was_asked_for() -> None:
    footprint = CASE.configs("footprint", 1)
    assert {config["sharing"] for config in footprint} == set(case.SHARINGS)
    sizes = sorted({int(config["footprint_bytes"]) for config in footprint})
    assert sizes[0] < 2 * MIB and sizes[-1] == 4 << 30
    assert sum(size <= 60 << 20 for size in sizes) >= 12
    assert {config["placement"] for config in CASE.configs("live", 1)} == {"all", "spread", "tpc", "gpc", "whole_gpcs"}
    in_flight = {case.in_flight_bytes(config) for config in CASE.configs("in_flight", 1)}
    assert min(in_flight) <= 512 and max(in_flight) >= 128 * KIB
    assert {config["ctas_per_sm"] for config in CASE.configs("in_flight", 1)} == {"1", "2", "4"}


@pytest.mark.parametrize("sharing", case.SHARINGS)
@given(rounds=st.integers(1, 9), num_live=st.integers(1, 132))
@settings(max_examples=20, deadline=None)
def test_a_pass_moves_each_chunk_once_or_once_for_everybody(sharing: str, rounds: int, num_live: int) -> None:
    size = rounds * num_live * 32 * KIB
    config = case.Config("read_cg_b128_u4", footprint_bytes=size, sharing=sharing, threads=512)
    plan = case.plan_of(config, num_live)
    for number in (0, 1):
        chunks = plan.chunks(number * plan.num_rounds, (number + 1) * plan.num_rounds)
        counts = np.bincount(chunks.ravel(), minlength=plan.num_chunks)
        assert (counts == (num_live if sharing in ("all", "together") else 1)).all()
        assert all(len(set(own)) == plan.num_rounds for own in chunks.T.tolist())
    assert plan.used_bytes == size


# ---------------------------------------------------------------------------------------------- sums


class Emulator:
    """The kernel, step by step as kernel.cu has it, on small halves of the buffer."""

    def __init__(self, config: Config, num_live: int) -> None:
        self.config, self.plan = config, case.plan_of(config, num_live)
        self.words = self.plan.chunk_bytes // 4
        num_words, moves = self.plan.used_bytes // 4, config["kernel"].startswith(("copy", "mix"))
        self.halves = [self.half(begin // 4, num_words) for begin in ((0, case.SECOND_AT) if moves else (0,))]
        self.read_sum = 0
        self.boxes: dict[int, np.ndarray] = {}

    @staticmethod
    def half(begin: int, num_words: int) -> np.ndarray:
        """The table again and again, each time one more in every word."""
        first, behind = divmod(begin, 2**20)
        assert behind == 0
        times = np.arange(first, first - (-num_words // 2**20), dtype=np.uint32)
        words: np.ndarray = (case.table() + times[:, None]).reshape(-1)[:num_words]
        assert words.dtype == np.uint32
        return words

    def run(self) -> tuple[int, int]:
        plan, kernel = self.plan, self.config["kernel"]
        for worker in range(plan.num_workers):
            self.boxes[worker] = np.zeros((max(1, int(self.config["stages"])), self.words), dtype=np.uint32)
        for worker in range(plan.num_workers):
            number = round_idx = 0
            chunk = worker % plan.num_workers * plan.first_factor
            at = chunk
            for step in range(plan.num_warm + plan.num_steps):
                own = step - plan.num_warm if step >= plan.num_warm else step
                self.move(worker, at, number, chunk + round_idx, own)
                at += plan.stride_chunks
                if at >= plan.num_chunks:
                    at -= plan.num_chunks
                round_idx += 1
                if round_idx == plan.num_rounds:
                    round_idx, number = 0, number + 1
                    chunk = (worker + number * plan.turn) % plan.num_workers * plan.first_factor
                    at = chunk
        if kernel == "tma_load":
            self.read_sum = sum(int(boxes.sum(dtype=np.uint64)) for boxes in self.boxes.values())
        written = self.halves[1 if kernel.startswith(("copy", "mix")) else 0]
        writes = kernel.startswith(("write", "copy", "mix", "tma_store"))
        return self.read_sum % 2**32, int(written.sum(dtype=np.uint64)) % 2**32 if writes else 0

    def move(self, worker: int, at: int, number: int, phase: int, own_step: int) -> None:
        kernel, table = self.config["kernel"], case.table()
        place = slice(at * self.words, (at + 1) * self.words)
        writes = kernel.startswith("write") or (kernel.startswith("mix") and phase % 4 < int(self.config["write_quarters"]))
        stage = own_step % max(1, int(self.config["stages"]))
        if writes:
            self.halves[kernel.startswith("mix")][place] = table[: self.words] + np.uint32(number)
        elif kernel == "tma_store":
            self.halves[0][place] = table[stage * self.words : (stage + 1) * self.words]
        elif kernel == "tma_load":
            self.boxes[worker][stage] = self.halves[0][place]
        elif kernel.startswith("copy"):
            self.halves[1][place] = self.halves[0][place]
        else:
            self.read_sum += int(self.halves[0][place].sum(dtype=np.uint64))


SMALL = [
    *(case.Config("read_cg_b128_u1", footprint_bytes=96 * KIB, sharing=sharing, threads=64) for sharing in case.SHARINGS),
    case.Config("read_cg_b32_u4", footprint_bytes=40 * KIB, threads=32, ctas_per_sm=2),
    case.Config("read_cg_b128_u4", footprint_bytes=9 * MIB, threads=512),  # the table comes three times
    case.Config("write_b128_u1", footprint_bytes=96 * KIB, threads=64),
    case.Config("write_b32_u1", footprint_bytes=200 * MIB, threads=128),  # of which only a part is written
    case.Config("copy_b128_u1", footprint_bytes=96 * KIB, threads=64),
    case.Config("copy_b128_u4", footprint_bytes=12 * MIB, threads=512),
    *(case.Config("mix_b128_u4", footprint_bytes=96 * KIB, threads=64, write_quarters=n) for n in (1, 2, 3)),
    case.Config("tma_load", footprint_bytes=96 * KIB, box_bytes=KIB, stages=4),
    case.Config("tma_load", footprint_bytes=96 * KIB, box_bytes=KIB, stages=8, sharing="all"),
    case.Config("tma_store", footprint_bytes=96 * KIB, box_bytes=KIB, stages=4),
    case.Config("tma_store", footprint_bytes=200 * MIB, box_bytes=2 * KIB, stages=8),
]


@pytest.mark.parametrize("config", SMALL, ids=lambda config: "-".join(list(config.values())[:3]))
@pytest.mark.parametrize("num_live", [1, 3])
def test_sums_are_those_of_the_kernel_step_by_step(config: Config, num_live: int) -> None:
    assert case.expected(config, num_live) == Emulator(config, num_live).run()


def test_what_is_moved_is_random_normal_and_copied_once() -> None:
    arrays = [item.array for item in CASE.launch(STREAMS[0], False).arguments if isinstance(item, Input)]
    assert len(arrays) == 1 and not arrays[0].flags.writeable
    numbers = case.table().view("<f4")
    assert abs(numbers.mean()) < 0.01 and abs(numbers.std() - 1.0) < 0.01
    (room,) = [item for item in CASE.launch(STREAMS[0], False).arguments if isinstance(item, Scratch)]
    assert room.num_bytes == case.BUFFER_BYTES


def test_structures_are_the_kernels() -> None:
    assert (case.STREAM.itemsize, case.STATE.itemsize, case.WORKER.itemsize) == (128, 40 + 4 * 256, 32)
    assert case.STREAM.fields["live"][1] == 24 and case.STREAM.fields["num_live"][1] == 56
    assert case.STATE.fields["probe_end"][1] == 32


@pytest.mark.parametrize(("name", "dtype"), [("Stream", case.STREAM), ("State", case.STATE), ("Worker", case.WORKER)])
def test_fields_stand_in_the_order_of_the_kernels_structure(name: str, dtype: np.dtype[Any]) -> None:
    source = (kernel_folder("memory_bandwidth") / "kernel.cu").read_text(encoding="utf-8")
    body = re.search(rf"struct {name} \{{(.*?)\}};", source, re.DOTALL)
    assert body is not None
    code = re.sub(r"//.*", "", body[1])
    names = [re.sub(r"\[.*", "", field) for line in re.findall(r"\w+_t ([^;]+);", code) for field in line.split(", ")]
    assert names == list(dtype.names or ())


# ---------------------------------------------------------------------------------------------- checks


def outputs_of(config: Config, *, cycles: int = 100_000, clock_mhz: int = 2000) -> dict[str, Any]:
    """What a launch leaves whose CTAs all take so many cycles."""
    found = {item.name: item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)}
    sms = case.live_sms(config)
    if not case.is_loaded(config):
        found["state"]["read_sum"], found["state"]["written_sum"] = case.expected(config, len(sms))
    else:
        found["state"]["num_sampled"] = 100
        found["state"]["probe_end"] = 128 * case.last_node(int(config["chase_bytes"]) // 128, 100)
        found["times"][:100] = 600
    workers = found["workers"]
    workers["sm"][: len(sms) * int(config["ctas_per_sm"])] = sms * int(config["ctas_per_sm"])
    workers["begin_ns"], workers["cycles"] = 7_000, cycles
    workers["end_ns"] = 7_000 + cycles * 1000 // clock_mhz
    warps = int(config["threads"]) // 32 if case.is_loaded(config) else 1
    workers["num_steps"] = case.plan_of(config, len(sms)).num_steps * warps
    return found


RIGHT = [
    case.Config("read_cg_b128_u4", footprint_bytes=case.IN_L2, threads=128, ctas_per_sm=2),
    case.Config("copy_b128_u1", footprint_bytes=case.IN_L2, threads=512),
    case.Config("tma_store", footprint_bytes=4 * MIB, box_bytes=4 * KIB, stages=2, placement="first", count=1),
    case.Config("chase_beside_read_u1", footprint_bytes=case.IN_L2, threads=64, placement="others", count=131,
                   chase_bytes=4 * MIB),
]  # fmt: skip


@pytest.mark.parametrize("config", RIGHT, ids=lambda config: config["kernel"])
def test_the_right_answer_passes_and_rates_are_bytes_over_time(config: Config) -> None:
    values = CASE.check(config, outputs_of(config))
    sms = len(case.live_sms(config))
    plan = case.plan_of(config, sms)
    twice = 2 if config["kernel"].startswith("copy") else 1
    of_sm = twice * int(config["ctas_per_sm"]) * plan.num_steps * plan.chunk_bytes
    assert values["bytes_per_cycle"] == pytest.approx(of_sm / 100_000)
    assert values["gb_per_s"] == pytest.approx(of_sm * sms / 50_000)
    assert values["sm_clock_mhz"] == pytest.approx(2000.0) and values["num_live_sms"] == sms
    mask = sum(int(values[f"live_sms_{i}"]) << 44 * i for i in range(3))
    assert [sm for sm in range(132) if mask >> sm & 1] == case.live_sms(config)
    assert set(values) <= set(CASE.values)


def test_the_counted_launch_fills_nothing() -> None:
    for flag, filled in ((True, [0, 0]), (False, [case.IN_L2, 0])):
        stream = np.frombuffer(CASE.launch(RIGHT[0], flag).arguments[0].tobytes(), dtype=case.STREAM)
        assert stream["fill_bytes"][0].tolist() == filled


# ---------------------------------------------------------------------------------------------- which SMs are live


def clusters_of(size: int, gpcs: list[list[int]], seed: int = 1) -> np.ndarray:
    """What the discovery writes where clusters come to any SMs of one GPC."""
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(gpcs[rng.integers(len(gpcs))])[:size] for _ in range(case.NUM_CLUSTERS)]
    return np.concatenate(chosen).astype("<u2")


def find_out() -> dict[str, float]:
    for config in CASE.configs("live", 1)[:10]:
        size = int(config["kernel"].rsplit("_", 1)[1])
        values = CASE.check(config, {"sms": clusters_of(size, GPCS, seed=int(config["turn"]) * 10 + size)})
    return values


def test_gpcs_are_found_out_and_nothing_more_is_joined() -> None:
    assert sorted(map(sorted, GPCS)) != sorted(case.seen().groups())
    values = find_out()
    assert sorted(case.seen().groups()) == sorted(GPCS)
    assert values["num_gpcs"] == 8 and values["num_seen_sms"] == 132 and values["is_pair_always_together"] == 1.0
    assert [len(group) for group in case.seen().groups()] == sorted(map(len, GPCS), reverse=True)


def test_a_cta_that_did_not_say_where_it_ran_is_refused() -> None:
    sms = clusters_of(2, GPCS)
    sms[5] = 0xFFFF
    with pytest.raises(WrongAnswer, match="where it ran"):
        CASE.check(case.Config("clusters_of_2"), {"sms": sms})


def test_placements_are_what_they_are_called() -> None:
    find_out()
    gpc_of = {sm: gpc for gpc, group in enumerate(GPCS) for sm in group}
    for config in CASE.configs("live", 1)[15:]:
        sms, count = case.live_sms(config), int(config["count"])
        gpcs = {gpc_of[sm] for sm in sms}
        assert sms == sorted(set(sms))
        if config["placement"] == "whole_gpcs":
            assert len(gpcs) == count and set(sms) == {sm for gpc in gpcs for sm in GPCS[gpc]}
            continue
        assert len(sms) == count
        if config["placement"] == "tpc":
            assert len({sm // 2 for sm in sms}) == count // 2 and len(gpcs) == min(8, count // 2)
        elif config["placement"] == "gpc":
            assert len(gpcs) == 1
        elif config["placement"] == "spread":
            assert len({sm // 2 for sm in sms}) == count and len(gpcs) == min(8, count)


def test_without_a_map_a_placement_that_needs_one_gives_no_number() -> None:
    config = next(config for config in CASE.configs("live", 1) if config["placement"] == "gpc")
    launch = CASE.launch(config, False)
    outputs = {item.name: item.array.copy() for item in launch.arguments if isinstance(item, Output)}
    with pytest.raises(WrongAnswer, match="clusters"):
        CASE.check(config, outputs)


def test_who_chases_does_not_stream() -> None:
    for config in CASE.configs("loaded", 1):
        sms = case.live_sms(config)
        assert int(config["sm"]) not in sms and len(sms) == int(config["count"])
        if len(sms) < 131:
            assert int(config["sm"]) ^ 1 not in sms


# ---------------------------------------------------------------------------------------------- the simulator


def rate(kernel: str, gpu: GpuSpec = GPU, **columns: object) -> float:
    return CASE.predict(case.Config(kernel, **columns), gpu)["bytes_per_cycle"]


WHOLE = replace(
    GPU, l2=replace(GPU.l2, partition0_lead_fraction=0.0),
    xbar=replace(GPU.xbar, num_gpc_store_ports=1, sm_distance_cycles=0.0),
)
"""All SMs and sides alike, and GPCs that store as a whole, as what is read off rows has it (deviations 18: parts)."""


AT_ONCE = replace(WHOLE, l2=replace(WHOLE.l2, queue_cycles=0.0))
"""No line waits at its slice: such waits are drawn, for a few SMs too few times to be told from a rate."""


def test_more_bytes_in_flight_are_never_slower_up_to_what_may_be_under_way() -> None:
    rates = [
        rate("read_cg_b128_u4", footprint_bytes=4 * MIB, threads=n, placement="first", count=1)
        for n in (32, 64, 128, 256, 512, 1024)
    ]  # fmt: skip
    assert rates == sorted(rates)
    most = min(GPU.l1.outstanding_bytes / GPU.l2.near_latency_cycles, GPU.xbar.sm_read_bytes_per_cycle)
    assert rates[0] < 10 < rates[-1] <= most + 0.1
    assert rates[-1] == pytest.approx(most, rel=0.05)


def test_few_bytes_in_flight_are_a_latency() -> None:
    """One warp of one load: its bytes over latency and port."""
    found = rate("read_cg_b128_u1", footprint_bytes=4 * MIB, threads=32, placement="first", count=1)
    code = (case.LOADS_CHAIN + case.LOAD_CHAIN) * GPU.warp_scheduler.dependent_cycles
    latency = GPU.l2.near_latency_cycles + GPU.l2.slice_spread_cycles * 3 / 5
    assert found == pytest.approx(512 / (latency + code + 512 / GPU.xbar.sm_read_bytes_per_cycle), rel=0.03)


def test_all_sms_saturate_what_the_description_sustains() -> None:
    """Of memory as much as an H200 gives loops with 32 KiB an SM under way: 4,385 GB/s of the 4,637 that it sustains."""
    streamed = CASE.predict(case.Config("read_cg_b128_u4", footprint_bytes=case.IN_HBM, threads=512), GPU)
    assert streamed["gb_per_s"] == pytest.approx(4385.0, rel=0.02)
    slices = GPU.l2.num_slices * GPU.l2.slice_bytes_per_cycle * GPU.l2.sustained_fraction
    loaded = CASE.predict(case.Config("tma_load", footprint_bytes=case.IN_L2, box_bytes=16 * KIB, stages=8), GPU)
    assert loaded["summed_bytes_per_cycle"] == pytest.approx(slices * GPU.xbar.bulk_read_fraction, rel=0.02)


def test_all_sms_together_store_what_crosses_between_the_sides() -> None:
    stored = CASE.predict(case.Config("write_b128_u4", footprint_bytes=case.IN_L2, threads=512), GPU)
    assert stored["summed_bytes_per_cycle"] == pytest.approx(4 * GPU.l2.fabric_bytes_per_cycle, rel=0.02)


@pytest.mark.xfail(strict=True, reason="the median SM, of a part of six, stores less than its share (deviations 17)")
def test_the_median_sm_stores_its_share_of_that() -> None:
    assert rate("write_b128_u4", footprint_bytes=case.IN_L2, threads=512) == pytest.approx(
        4 * GPU.l2.fabric_bytes_per_cycle / 132, rel=0.02
    )


def test_a_larger_footprint_is_never_faster_and_falls_where_l2_ends() -> None:
    sizes = [case.FOOTPRINTS[idx] for idx in (0, 4, 9, 12, 14, 17, 20)]
    rates = [rate("read_cg_b128_u4", footprint_bytes=size, threads=512) for size in sizes]
    assert all(later <= before * 1.001 for before, later in pairwise(rates))
    for size, found in zip(sizes, rates, strict=True):
        share = 0.75 if found < 30 else 0.5  # of each line on a side: its home is given up where copies stay
        assert (found > 30) == (share * size <= GPU.l2_partitions.partition_bytes)


def test_counts_are_the_bytes_that_all_steps_move() -> None:
    config = case.Config("read_cg_b128_u4", footprint_bytes=case.IN_HBM, threads=512)
    plan = case.plan_of(config, 132)
    moved = plan.num_workers * plan.chunk_bytes * (plan.num_warm + plan.num_steps)
    counts = CASE.predict(config, GPU)
    assert counts[case.METRICS[0]] == pytest.approx(moved / 32)
    assert counts["dram__bytes_read.sum"] == pytest.approx(moved) and counts["dram__bytes_write.sum"] == 0


def test_the_sms_of_a_gpc_share_its_link() -> None:
    """16 of the largest's 18 SMs, and two whole GPCs; 8 SMs of 8 GPCs have what one has alone."""
    reads = {"footprint_bytes": case.IN_L2, "threads": 512}
    alone, spread = (
        rate("read_cg_b128_u4", AT_ONCE, placement=placement, count=count, **reads)
        for placement, count in (("first", 1), ("spread", 8))
    )  # fmt: skip
    assert spread == pytest.approx(alone, rel=1e-3)
    link = GPU.xbar.gpc_read_bytes_per_cycle
    assert rate("read_cg_b128_u4", placement="gpc", count=16, **reads) == pytest.approx(link / 16, rel=0.02)
    assert rate("read_cg_b128_u4", placement="whole_gpcs", count=2, **reads) == pytest.approx(link / 18, rel=0.02)
    boxes = {"footprint_bytes": case.IN_L2, "box_bytes": 16 * KIB, "stages": 8, "placement": "gpc", "count": 16}
    assert rate("tma_load", **boxes) == pytest.approx(link * GPU.xbar.bulk_read_fraction / 16, rel=0.02)
    assert rate("tma_store", WHOLE, **boxes) == pytest.approx(GPU.xbar.gpc_write_bytes_per_cycle / 16, rel=0.02)


def test_the_floorplan_is_the_one_that_launches_of_clusters_have_found() -> None:
    rows, _ = halves(CASE, Table.read(MEASURED))
    found = {tuple(group) for group in case.neighbours(GPU).groups()}
    rows = [row for row in rows if row["group"] == "topology" and row["turn"] == "99"]
    assert len(rows) > 60
    for row in rows:
        (group,) = [group for group in found if int(row["sm"]) in group]
        assert (group[0], len(group)) == (int(row["gpc_first_sm"]), int(row["num_gpc_sms"]))


def test_nothing_is_said_of_sides_and_clusters() -> None:
    for config in CASE.configs("topology", 1)[:5]:
        assert CASE.predict(config, GPU) == {}
    assert CASE.predict(case.Config("read_cg_b128_u4", footprint_bytes=case.IN_L2, sharing="turned"), GPU) == {}


def test_an_idle_memory_answers_a_chase_in_its_latency() -> None:
    config = case.Config("chase_beside_read_u4", footprint_bytes=case.IN_HBM, placement="others", count=0, threads=1024,
                            chase_bytes=1 << 30)  # fmt: skip
    of_memory = GPU.hbm.latency_ns * GPU.clock.max_mhz / 1e3
    assert CASE.predict(config, GPU)["chase_mean_cycles"] == pytest.approx(of_memory, abs=3)
    slower = replace(GPU, hbm=replace(GPU.hbm, latency_ns=GPU.hbm.latency_ns + 100))
    longer = of_memory + 100 * GPU.clock.max_mhz / 1e3
    assert CASE.predict(config, slower)["chase_mean_cycles"] == pytest.approx(longer, abs=3)


def test_nothing_is_said_of_a_gpu_with_other_sms() -> None:
    config = case.Config("read_cg_b128_u4", footprint_bytes=case.IN_HBM, threads=512)
    fewer = replace(GPU, device=replace(GPU.device, num_sms=114))
    assert CASE.predict(config, fewer) == {}


# ---------------------------------------------------------------------------------------------- parameters

FITTED = {
    "l2.sustained_fraction",
    "xbar.gpc_read_bytes_per_cycle", "xbar.gpc_write_bytes_per_cycle", "xbar.bulk_read_fraction",
    "l2.fabric_bytes_per_cycle", "xbar.sm_write_bytes_per_cycle", "l1.outstanding_bytes",
}  # fmt: skip
OTHER = replace(
    GPU, l2=replace(GPU.l2, sustained_fraction=0.7),
    hbm=replace(
        GPU.hbm, sustained_read_gb_per_s=3900.0, sustained_write_gb_per_s=3300.0, sm_gb_per_s=80.0, refresh_fraction=0.0,
    ),
    xbar=replace(
        GPU.xbar, sm_write_bytes_per_cycle=24.0, gpc_read_bytes_per_cycle=560.0, gpc_write_bytes_per_cycle=440.0,
        bulk_read_fraction=0.9,
    ),
)  # fmt: skip
"""Without refresh: what an SM has under way is read off the latency of a mean line."""


RATES = ("bytes_per_cycle", "summed_bytes_per_cycle", "gb_per_s")


def rows_of(gpu: GpuSpec, half: int) -> list[dict[str, str]]:
    """What the simulator says to every second config that a parameter is read off."""
    found = []
    for group in ("footprint", "in_flight"):
        for config in CASE.configs(group, 1)[half::2]:
            size, kernel = int(config["footprint_bytes"]), config["kernel"]
            is_one = config["placement"] == "first" and case.in_flight_bytes(config) >= 32 * KIB
            is_all = kernel in case.READS + case.WRITES and 8 * MIB <= size <= 30 * MIB
            if is_one if group == "in_flight" else is_all:
                is_own = config["sharing"] == "own"
                numbers = CASE.predict(config, gpu) if is_own else dict.fromkeys(RATES, 1e6)  # of no plateau
                numbers |= {"sm_clock_mhz": gpu.clock.max_mhz, "num_live_sms": float(config["count"])}
                found.append({**config, "group": group, **{name: str(number) for name, number in numbers.items()}})
    for config in CASE.configs("live", 1)[half::2]:
        is_gpc = config["placement"] == "gpc" and int(config["count"]) >= case.FULL_GPC
        is_gpc |= config["placement"] == "whole_gpcs" and int(config["count"]) <= 2
        if is_gpc and int(config["footprint_bytes"]) == case.IN_L2:
            num_live = len(case.live_sms(config, case.neighbours(gpu)))
            summed = num_live * CASE.predict(config, gpu)["bytes_per_cycle"]
            num_gpcs = int(config["count"]) if config["placement"] == "whole_gpcs" else 1
            numbers = {"summed_bytes_per_cycle": summed, "num_live_sms": num_live, "num_live_gpcs": num_gpcs}
            found.append({**config, "group": "live", **{name: str(number) for name, number in numbers.items()}})
    return found


KNOWN = {"h200-odd": (GPU, 1), "other-even": (OTHER, 0)}
"""Machines that made-up rows are of, and the half of the rows: each half, and each machine, once."""
LINK, BULK = "l2.fabric_bytes_per_cycle", "xbar.bulk_read_fraction"


@cache
def off_by(machine: str) -> dict[str, float]:
    """How far a fit of made-up rows is off, by parameter."""
    gpu, half = KNOWN[machine]
    found = {item.parameter: item.value for item in CASE.fitted(rows_of(gpu, half), gpu)}
    assert found.keys() == FITTED
    return {name: value / parameter(gpu, name) - 1.0 for name, value in found.items()}


@pytest.mark.parametrize("machine", KNOWN)
def test_rows_of_a_machine_that_is_known_give_its_plateaus_back(machine: str) -> None:
    assert {name: off for name, off in off_by(machine).items() if abs(off) > 0.03 and name not in (LINK, BULK)} == {}


@pytest.mark.parametrize("machine", KNOWN)
@pytest.mark.xfail(strict=True, reason="read off the median SM, whose share is not the mean's (deviations 17)")
def test_they_give_the_link_back(machine: str) -> None:
    assert abs(off_by(machine)[LINK]) <= 0.03


WAITS = pytest.mark.xfail(strict=True, reason="3.03 %: it is taken over what threads read, who wait (deviations 17)")


@pytest.mark.parametrize(
    "machine", [pytest.param(machine, marks=[WAITS] if machine == "h200-odd" else []) for machine in KNOWN]
)
def test_they_give_back_what_bulk_copies_get(machine: str) -> None:
    assert abs(off_by(machine)[BULK]) <= 0.03


# ---------------------------------------------------------------------------------------------- the compiled kernels

Sass = Callable[[str, str], dict[str, KernelSass]]


def test_no_kernel_spills(sass: Sass) -> None:
    for name, kernel in sass("memory_bandwidth", "sm_90a").items():
        assert kernel.num_spills == 0, name
        if not name.startswith("clusters"):
            assert kernel.num_registers <= 64, name


def test_registers_leave_room_for_as_many_ctas_as_are_asked_for(sass: Sass) -> None:
    kernels = sass("memory_bandwidth", "sm_90a")
    for config in STREAMS:
        num_registers = -(-kernels[config["kernel"]].num_registers // 8) * 8
        assert num_registers * int(config["threads"]) * int(config["ctas_per_sm"]) <= 65536


def test_a_step_is_its_loads_or_stores_of_their_width_before_any_is_used(sass: Sass) -> None:
    widths = {32: "", 64: ".64", 128: ".128"}
    for name, kernel in sass("memory_bandwidth", "sm_90a").items():
        found = re.fullmatch(r"(read|write|copy)_(?:(cg|ca|na)_)?b(\d+)_u(\d+)", name)
        if found is None:
            continue
        kind, policy, width, unroll = found[1], found[2], widths[int(found[3])], int(found[4])
        wanted = {"read": ("LDG",), "write": ("STG",), "copy": ("LDG", "STG")}[kind]
        steps = [
            loop for loop in kernel.loops
            if all(len(loop.select(opcode)) == unroll * (opcode in wanted) for opcode in ("LDG", "STG"))
            and all(sum(width in item.opcode for item in loop.select(opcode)) == unroll for opcode in wanted)
        ]  # fmt: skip
        assert len(steps) >= 2, f"{name}: one loop that warms and one that is timed"
        for loop in steps[-2:]:  # the fill comes before
            loads = loop.select("LDG")
            assert [policy == "cg" or kind == "copy"] * len(loads) == [".STRONG.GPU" in item.opcode for item in loads]
            assert all((".NA" in item.opcode) == (policy == "na") for item in loads)
            first_use = _first_use(loop)
            assert all(load.address < first_use for load in loads), name


def _first_use(loop: KernelSass) -> float:
    """The address of the first instruction that reads a register that a load of the loop has written."""
    written: set[str] = set()
    for item in loop.instructions:
        names = re.findall(r"\bR\d+\b", item.operands)
        if item.name == "LDG":
            first = int(names[0][1:])
            written |= {f"R{first + i}" for i in range(4 if ".128" in item.opcode else 2 if ".64" in item.opcode else 1)}
        elif written & set(names[1:]):
            return item.address
    return float("inf")


def test_bulk_copies_are_in_the_loops_that_warm_and_are_timed(sass: Sass) -> None:
    kernels = sass("memory_bandwidth", "sm_90a")
    for name in ("tma_load", "tma_store"):
        copies = kernels[name].select("UBLKCP")
        assert len(copies) == 2
        assert all(any(copy in loop.instructions for loop in kernels[name].loops) for copy in copies)


def test_the_chase_beside_streams_times_one_load(sass: Sass) -> None:
    for name, kernel in sass("memory_bandwidth", "sm_90a").items():
        if name.startswith("chase"):
            loops = [loop for loop in kernel.loops if len(loop.select("LDG")) == 1 and len(loop.select("STS")) == 2]
            assert len(loops) == 1, name
            order = [item.name for item in loops[0].instructions if item.name in ("CS2R", "LDG", "STS")]
            assert order[:4] == ["CS2R", "LDG", "STS", "CS2R"]


def test_between_the_clocks_lie_the_steps_and_the_end_waits_for_all_warps(sass: Sass) -> None:
    for name, kernel in sass("memory_bandwidth", "sm_90a").items():
        found = re.fullmatch(r"(read|write)_.*b\d+_u(\d+)", name)
        if found is None:
            continue
        begin, end = [item.address for item in kernel.instructions if "GLOBALTIMER" in item.operands]
        between = [item for item in kernel.instructions if begin < item.address < end]
        opcode = "LDG" if found[1] == "read" else "STG"
        assert [item.name for item in between if item.name in ("LDG", "STG")] == [opcode] * int(found[2]), name
        clocks = [item.address for item in between if "CLOCK" in item.operands]
        barrier = [item.address for item in between if item.name == "BAR"]
        moves = [item.address for item in between if item.name == opcode]
        assert clocks[0] < min(moves) <= max(moves) < barrier[0] < clocks[1] and len(clocks) == 2 and len(barrier) == 1
