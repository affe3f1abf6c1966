"""Constants and tables of the machine are those that its parts use, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpusim import load_gpu
from gpusim.errors import ConfigError
from gpusim.machine.build import Machine
from gpusim.machine.config import GpuSpec, gpu_names
from gpusim.machine.memory.residency import LruResidency
from gpusim.machine.timing import RingingEnvironment
from gpusim.program.records import CONSTANTS, TABLES
from gpusim.simulate.constants import Placement, in_order, machine_numbers
from gpusim.simulate.ideal import IDEALS, idealize
from gpusim.simulate.machine_tables import machine_tables
from gpusim.units import Clock

PLACEMENTS = (
    Placement(num_ctas=100_000, cluster_size=1, ctas_per_sm=1, smem_bytes=200_000, num_warps=12, is_warm=False),
    Placement(num_ctas=7, cluster_size=1, ctas_per_sm=3, smem_bytes=0, num_warps=4, is_warm=True),
    Placement(num_ctas=200, cluster_size=1, ctas_per_sm=2, smem_bytes=70_000, num_warps=8, is_warm=False),
)
CLUSTERS = (
    Placement(num_ctas=1024, cluster_size=2, ctas_per_sm=1, smem_bytes=99_999, num_warps=12, is_warm=False),
    Placement(num_ctas=1024, cluster_size=4, ctas_per_sm=2, smem_bytes=1024, num_warps=12, is_warm=True),
    Placement(num_ctas=1024, cluster_size=8, ctas_per_sm=1, smem_bytes=1024, num_warps=12, is_warm=False),
)
MHZ = (0.6, 1.0)
"""Of a GPU's highest clock."""


def machine_of(gpu: GpuSpec, clock: Clock, at: Placement) -> Machine:
    residency = LruResidency(side_bytes=1.0, num_sides=gpu.l2.num_partitions, is_warm=at.is_warm)
    return Machine(
        RingingEnvironment(), gpu, clock, residency, cluster_size=at.cluster_size, ctas_per_sm=at.ctas_per_sm,
        smem_bytes_per_sm=at.smem_bytes * at.ctas_per_sm, num_ctas=at.num_ctas, tensor_maps=("A",), is_warm=at.is_warm,
    )


def fields_of(spec: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Fields of a Spec, or zeros for a part that is not there."""
    return {name: getattr(spec, name) if spec is not None else 0.0 for name in names}


def as_parts_have_them(machine: Machine, at: Placement) -> dict[str, Mapping[str, Any]]:
    """Every constant as the attribute that a part reads while it runs."""
    hbm, l2, xbar, sm = machine.hbm, machine.l2, machine.xbar, machine.sms[0]
    dispatcher, l1, scheduler, merging = machine.dispatcher, sm.l1, sm.warp_scheduler, machine.xbar.merging
    found: dict[str, Mapping[str, Any]] = {}
    found["dispatcher"] = fields_of(dispatcher.spec, tuple(set(CONSTANTS["dispatcher"]) - {"retire_cycles"})) | {
        "retire_cycles": dispatcher._retire_cycles,
        "cold_start_cycles": 0.0 if at.is_warm else dispatcher.spec.cold_start_cycles,
    }
    found["hbm"] = fields_of(
        hbm.spec, ("refresh_fraction", "turnaround_fraction", "queued_turnaround_per_mb", "piece_read_bytes",
                   "piece_write_bytes", "part_request_bytes"),
    ) | {
        "latency_cycles": hbm.latency_cycles, "refresh_cycles": hbm._refresh_cycles, "refresh_bytes": hbm.refresh_bytes,
        "channel_bytes": hbm.channel_bytes, "side_by_side_fraction": hbm._side_by_side_fraction,
        "write_cycles": hbm._write_cycles, "mixed_cycles": hbm._mixed_cycles, "turn_cycles": hbm._turn_cycles,
        "spread_cycles": hbm._spread_cycles, "queue_cycles": hbm._queue_cycles, "peak_bytes_per_cycle": hbm._peak,
        "most_share": hbm._most_share, "window_cycles": hbm._window, "write_cost": hbm._write_cost,
        "wire_bytes_per_cycle": hbm.wire.total, "sm_bytes_per_cycle": hbm.wire.cap,
        "channel_cycles": hbm._channel_cycles, "per_channel_bytes": hbm._per_channel,
    }  # fmt: skip
    found["l2"] = fields_of(
        l2.spec, ("num_partitions", "slice_spread_cycles", "queue_cycles", "request_bytes", "write_back_queue_bytes")
    ) | {
        "num_links": len(l2._links), "far_share": l2._far_share, "near_latency_cycles": l2._near_latency_cycles,
        "far_latency_cycles": l2.hit_latency_cycles, "sustained_fraction": merging._sustained_fraction,
        "link_turnaround_fraction": (
            l2._links[0]._turnaround_fraction if l2._links else l2.spec.link_turnaround_fraction
        ),
        "num_lanes": l2._links[0]._num_lanes if l2._links else l2.spec.num_slices / l2.spec.num_partitions,
    }
    found["xbar"] = fields_of(
        xbar.spec, ("sm_read_bytes_per_cycle", "sm_write_bytes_per_cycle", "line_request_bytes", "request_turn_packets",
                    "last_request_fraction", "red_header_fraction", "store_packet_bytes", "gpc_write_bytes_per_cycle",
                    "num_gpc_parts", "merge_limit", "merge_window_cycles", "merge_wait_fraction"),
    ) | {
        "write_bytes_per_cycle": xbar.stores.total, "alone_bytes_per_cycle": xbar.alone_bytes_per_cycle,
        "store_way_bytes": xbar._stores_of[0]._held_bytes, "bulk_weight": xbar._bulk_weight,
        "multicast_weight": xbar._multicast_weight, "merges": xbar._merges, "merge_fill_cycles": merging._fill_cycles,
    }  # fmt: skip
    renamed = {"lines_per_cycle", "has_store_queue", "capacity_bytes"}
    found["l1"] = fields_of(l1.spec, tuple(set(CONSTANTS["l1"]) - renamed)) | {
        "capacity_bytes": l1._capacity, "lines_per_cycle": l1._lines_per_cycle, "has_store_queue": l1.has_store_queue,
        "requests_per_cycle": l1._requests_per_cycle, "wavefronts_per_cycle": l1._wavefronts_per_cycle,
        "outstanding_bytes": l1.places.rate, "queue_cycles": l1.queue_cycles,
    }
    found["smem"] = fields_of(sm.smem.spec, tuple(CONSTANTS["smem"])) | {
        "wavefronts_per_cycle": sm.smem.data.rate, "copied_row_wavefronts": sm.smem._copied_row_wavefronts,
        "vector_word_cycles": sm.smem._vector_word_cycles, "replay_wavefronts": sm.smem._replay_wavefronts,
    }
    rates = ("fma", "alu", "mad_wide", "mufu", "beside", "shuffle")
    of_spec = set(CONSTANTS["warp_scheduler"]) - {f"{name}_rate" for name in rates}
    found["warp_scheduler"] = fields_of(scheduler.spec, tuple(of_spec)) | {
        f"{name}_rate": getattr(scheduler, f"{name}_pipe").rate for name in rates
    }
    found["warp_scheduler"] = {**found["warp_scheduler"], "num_schedulers": scheduler.issue_slots.rate}
    found["tensor_core"] = fields_of(sm.tensor_core.spec, tuple(CONSTANTS["tensor_core"]))
    tma = None if sm.tma is None else sm.tma.spec
    assert sm.tma is None or sm.tma._maps is not None
    found["tma"] = fields_of(tma, tuple(set(CONSTANTS["tma"]) - {"map_memory_cycles"})) | {
        "map_memory_cycles": 0.0 if sm.tma is None or sm.tma._maps is None else sm.tma._maps._memory_cycles,
    }
    unit = sm.mbarrier_unit
    found["mbarrier"] = fields_of(None if unit is None else unit.spec, tuple(CONSTANTS["mbarrier"]))
    found["dsmem"] = fields_of(None if sm.dsmem is None else sm.dsmem.spec, tuple(CONSTANTS["dsmem"]))
    found["instruction_cache"] = fields_of(sm.instruction_cache.spec, tuple(CONSTANTS["instruction_cache"]))
    return found


def places_of(gpu: GpuSpec) -> tuple[Placement, ...]:
    return PLACEMENTS + tuple(at for at in CLUSTERS if at.cluster_size <= gpu.device.max_cluster_size)


def check(gpu: GpuSpec, clock: Clock, at: Placement) -> None:
    """Numbers and tables against a machine that is built."""
    machine = machine_of(gpu, clock, at)
    numbers = machine_numbers(gpu, clock, at)
    expected = as_parts_have_them(machine, at)
    assert set(numbers) == set(expected) == set(CONSTANTS) - {"launch", "ideals"}
    for part, names in CONSTANTS.items():
        if part in numbers:
            assert set(numbers[part]) == set(names) == set(expected[part])
            assert {name: numbers[part][name] for name in names} == {name: float(expected[part][name]) for name in names}
            assert in_order(part, numbers[part]).tolist() == [float(expected[part][name]) for name in names]
    check_tables(machine, gpu, clock, at)


def check_tables(machine: Machine, gpu: GpuSpec, clock: Clock, at: Placement) -> None:
    """Rows of SMs, links and partitions."""
    tables, xbar, l2 = machine_tables(gpu, clock, at), machine.xbar, machine.l2
    assert tables["slots"].tolist() == [sm_idx for slot in machine.dispatcher.slots for sm_idx in slot]
    links, parts = list(xbar._links), list(xbar._write_links)
    side_of = {id(pipe): side for side, pipe in xbar._side_slices.items()}
    assert [row.tolist() for row in tables["gpc_links"]] == [
        (side_of[id(link.slices)], link.bytes_per_cycle, link.whole_share_bytes_per_cycle)
        for link in xbar._links.values()
    ]
    assert [row.tolist() for row in tables["write_links"]] == [
        (links.index(part[0]), xbar._widths[part], xbar._write_links[part].rate) for part in parts
    ]
    infinite = float("inf")
    assert [row.tolist() for row in tables["partitions"]] == [
        (
            xbar._side_slices[side].total if side in xbar._side_slices else 0.0,
            l2._links[side].bytes_per_cycle if side < len(l2._links) else infinite, l2.store_bytes_per_cycle(side),
        )
        for side in range(gpu.l2.num_partitions)
    ]  # fmt: skip
    sms = tables["sms"]
    assert sms.dtype == TABLES["sms"]
    assert sms["partition"].tolist() == list(xbar._sides)
    assert sms["gpc"].tolist() == [links.index(gpc_idx) for gpc_idx in gpu.floorplan.gpc_of_sm]
    assert sms["write_link"].tolist() == [parts.index(part) for part in xbar._parts]
    assert sms["merge_region"].tolist() == [port.region for port in xbar.ports]
    assert sms["is_lone"].tolist() == [int(sm_idx in xbar._lone) for sm_idx in range(gpu.num_sms)]
    assert sms["distance_cycles"].tolist() == xbar._distances
    assert sms["pace"].tolist() == [sm.warp_scheduler.pace for sm in machine.sms]
    assert sms["loop_bytes_per_cycle"].tolist() == [sm.instruction_cache._loop_bytes_per_cycle for sm in machine.sms]
    free = [sm_idx for place in machine.dispatcher._free.values() for sm_idx in place]
    assert sms["num_free_ctas"].tolist() == [free.count(sm_idx) for sm_idx in range(gpu.num_sms)]
    places, numbers = machine.dispatcher._places, sms["cluster_place"].tolist()
    assert len(set(zip(places, numbers, strict=True))) == len(set(places)) == max(numbers) + 1


@pytest.mark.parametrize("name", gpu_names())
@pytest.mark.parametrize("share", MHZ)
def test_constants_are_those_of_the_parts(name: str, share: float) -> None:
    gpu = load_gpu(name)
    for at in places_of(gpu):
        check(gpu, Clock(sm_mhz=gpu.clock.max_mhz * share), at)


@pytest.mark.parametrize("ideal", IDEALS)
@pytest.mark.parametrize("name", ["a100_sxm_80gb", "h200_sxm", "toy"])
def test_constants_of_an_idealized_gpu_are_those_of_the_parts(name: str, ideal: str) -> None:
    gpu = idealize(load_gpu(name), frozenset({ideal}))
    for at in places_of(gpu)[::2]:
        check(gpu, Clock(sm_mhz=1234.5), at)


@pytest.mark.parametrize("side", [0, 1])
def test_a_partition_without_sms_has_no_link(side: int) -> None:
    gpu = load_gpu("toy")
    gpu = replace(gpu, device=replace(gpu.device, gpc_sides=(side,)), l2=replace(gpu.l2, num_partitions=2))
    for at in PLACEMENTS:
        check(gpu, Clock(sm_mhz=800.0), at)
    assert machine_numbers(gpu, Clock(sm_mhz=800.0), PLACEMENTS[0])["l2"]["num_links"] == 1.0


def test_recorded_sms_are_marked() -> None:
    gpu = load_gpu("h200_sxm")
    for recorded, expected in ((frozenset({3, 131}), {3, 131}), (frozenset[int](), set()), ("first", {124})):
        at = replace(PLACEMENTS[0], recorded_sms=recorded)  # type: ignore[arg-type]  # a set of SMs, or a word
        sms = machine_tables(gpu, Clock(sm_mhz=1000.0), at)["sms"]
        assert set(sms["is_recorded"].nonzero()[0].tolist()) == expected


def test_more_than_two_partitions_are_refused() -> None:
    gpu = load_gpu("toy")
    gpu = replace(gpu, l2=replace(gpu.l2, num_partitions=3))
    with pytest.raises(ConfigError, match=r"l2.num_partitions is 3, the engine takes 1 or 2"):
        machine_numbers(gpu, Clock(sm_mhz=1000.0), PLACEMENTS[0])


def test_what_a_cache_hands_out_cannot_be_changed() -> None:
    gpu = load_gpu("h200_sxm")
    tables = machine_tables(gpu, Clock(sm_mhz=1000.0), PLACEMENTS[0])
    with pytest.raises(ValueError, match="read-only"):
        tables["slots"][0] = 1
    tables["sms"]["pace"] = 2.0  # its own
    assert machine_tables(gpu, Clock(sm_mhz=1000.0), PLACEMENTS[0])["sms"]["pace"].tolist() == [1.0] * 132
