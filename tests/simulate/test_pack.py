"""A packed launch says what today's parts work out, can be read back, and refuses what the GPU lacks in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpusim import Launch, WarpRole, load_gpu, simulate
from gpusim.errors import GpusimError, LaunchError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import GpuSpec
from gpusim.program.programs import Programs
from gpusim.program.records import CONSTANTS, INPUT_SECTIONS, dtype_of
from gpusim.simulate.buffers import HEADER, read_buffer, write_buffer
from gpusim.simulate.engine import Engine
from gpusim.simulate.ideal import idealize
from gpusim.simulate.pack import PackedLaunch, RunSettings, pack, pack_launch, sections_of
from gpusim.units import Clock
from gpusim.workload import ops
from gpusim.workload.atoms.mma import mma_sync, wgmma
from gpusim.workload.dtypes import dtype
from gpusim.workload.launch import Buffer, Mbarrier, NamedBarrier, RoleContext
from tests.simulate.compiled_launches import ELSEWHERE, LAUNCHES

CASES: list[tuple[str, str, dict[str, Any]]] = [*ELSEWHERE, *(("h200_sxm", *case) for case in LAUNCHES)]
SETTINGS = RunSettings(clock=Clock(sm_mhz=1234.5))
A100, H200 = load_gpu("a100_sxm_80gb"), load_gpu("h200_sxm")


def constants_in(packed: PackedLaunch) -> dict[str, dict[str, float]]:
    """Constants of a buffer by part and name."""
    found = read_buffer(packed.buffer, INPUT_SECTIONS)
    return {
        part: dict(zip(names, found[f"constants_{part}"].tolist(), strict=True)) for part, names in CONSTANTS.items()
    }


def engine_of(packed: PackedLaunch, settings: RunSettings) -> Engine:
    """Today's engine of the same launch, all SMs simulated."""
    plan = packed.plan
    return Engine(
        plan.launch, plan.gpu, clock=settings.clock, is_warm=plan.is_warm, is_flushed=settings.is_flushed, skips=False,
        ideals=settings.ideals, recorded_sms=settings.recorded_sms or frozenset({0}), traffic=dict(plan.traffic),
        uses=plan.uses,
    )  # fmt: skip


def check_launch(packed: PackedLaunch, settings: RunSettings) -> None:
    """Constants of the launch, its slots and its tables, against an engine that is built."""
    engine, plan, programs = engine_of(packed, settings), packed.plan, packed.programs
    found, launch = constants_in(packed), plan.launch
    assert found["launch"] == {
        "num_ctas": engine.num_ctas, "num_sms": engine.gpu.num_sms, "num_at_once": engine._num_at_once,
        "cluster_size": launch.cluster_size, "ctas_per_sm": engine.occupancy.ctas_per_sm,
        "num_threads": engine.of_cta.num_threads, "registers_per_thread": engine.of_cta.roles[0].registers,
        "smem_bytes": launch.smem_bytes, "num_panels": programs.num_panels,
        "cluster_barrier_cycles": engine.of_cta.cluster_latency_cycles, "has_traffic_plan": bool(engine.traffic),
        "is_warm": engine.is_warm, "is_flushed": engine.is_flushed, "code_latency_cycles": engine.code_latency_cycles,
        "num_code_names": len(programs.code_names), "num_far_code_names": len(programs.far_code_names),
        "max_events": settings.max_events, "keeps_trace": settings.keeps_trace,
        "side_bytes": engine.gpu.l2_sides.side_bytes, "compute_capability": engine.gpu.compute_capability,
        "num_stages": sum(buffer.num_stages for buffer in launch.buffers),
    }  # fmt: skip
    assert found["ideals"] == {name: name in engine.ideals for name in CONSTANTS["ideals"]}
    assert found["dispatcher"]["cold_start_cycles"] == engine.cold_start_cycles
    assert found["tensor_core"]["wgmma_latency_cycles"] == engine.wgmma_latency_cycles
    assert found["l1"]["capacity_bytes"] == engine.machine.sms[0].l1._capacity
    sections = read_buffer(packed.buffer, INPUT_SECTIONS)
    assert sections["slots"].tolist() == [sm_idx for slot in engine.machine.dispatcher.slots for sm_idx in slot]
    assert sections["sms"]["pace"].tolist() == [sm.warp_scheduler.pace for sm in engine.machine.sms]
    assert [row.tolist() for row in sections["roles"]] == [
        (shape.num_warps, shape.num_threads, shape.num_warpgroups) for shape in engine.of_cta.roles
    ]
    arrivals = {ring.name: ring.num_arrivals for ring in launch.mbarriers}
    assert sections["mbarriers"]["num_arrivals"].tolist() == [arrivals[ring] for ring, _ in programs.barriers]
    assert sections["named_barriers"]["num_threads"].tolist() == [item.num_threads for item in launch.named_barriers]
    check_costs(sections, engine, programs)


def check_costs(sections: dict[str, Any], engine: Engine, programs: Programs) -> None:
    """Rows that ops refer to."""
    costs, tma = engine.op_costs, engine.machine.sms[0].tma
    assert [row.tolist() for row in sections["accesses"]] == [
        (item.num_requests, item.num_sectors, item.num_lines, item.num_wavefronts, item.num_bytes)
        for item in programs.accesses
    ]
    for name in ("stores", "async_copies", "far_codes", "alus"):
        assert [row.tolist() for row in sections[name]] == [tuple(row) for row in getattr(programs, name)]
    for found, load in zip(sections["tma_loads"], programs.tma_loads, strict=True):
        assert tma is not None
        cost = costs.of_tma(load.op, tma)
        assert (found["cycles"], found["latency_cycles"], found["num_lines"]) == (
            cost.cycles, cost.latency_cycles, cost.num_lines,
        )  # fmt: skip
        for name in ("neighbours_begin", "num_neighbours", "ranks_begin", "num_ranks", "fetches"):
            assert found[name] == getattr(load, name)
    for found, batch in zip(sections["wgmmas"], programs.wgmmas, strict=True):
        of_batch = costs.of_wgmma(*batch)
        assert (found["cycles"], found["tail_cycles"], found["num_warp_instructions"]) == (
            of_batch.cycles, of_batch.tail_cycles, of_batch.num_warp_instructions,
        )  # fmt: skip
    for found, atom in zip(sections["mma_syncs"], programs.mma_syncs, strict=True):
        assert (found["interval_cycles"], found["latency_cycles"]) == costs.of_mma_sync(atom)
    num_rows = {name: len(sections[name]) for name in ("tma_stores", "fetches", "fmas", "loop_codes")}
    assert num_rows == {name: len(getattr(programs, name)) for name in num_rows}


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_a_packed_launch_says_what_the_engine_works_out(case: tuple[str, str, dict[str, Any]], is_warm: bool) -> None:
    name, model, params = case
    gpu = load_gpu(name)
    launch = KERNEL_MODELS[model].params(**params).launch(gpu)
    for each in (launch, *launch.following):
        packed = pack_launch(each, gpu, SETTINGS, is_warm=is_warm)
        check_launch(packed, SETTINGS)
        check_buffer(packed, SETTINGS)


def check_buffer(packed: PackedLaunch, settings: RunSettings) -> None:
    """A buffer can be read back, section by section, and is the same each time."""
    sections = sections_of(packed.plan, packed.programs, settings)
    assert set(sections) == set(INPUT_SECTIONS)
    found = read_buffer(packed.buffer, INPUT_SECTIONS)
    for name in INPUT_SECTIONS:
        assert found[name].dtype == dtype_of(name)
        assert found[name].tolist() == sections[name].reshape(-1).tolist()
    assert pack(packed.plan, packed.programs, settings) == packed.buffer


def test_settings_are_in_the_buffer() -> None:
    settings = RunSettings(
        clock=Clock(sm_mhz=1500.0), ideals=frozenset({"epilogue", "latency", "mad_wide"}), is_flushed=True,
        recorded_sms="first", max_events=12, keeps_trace=True,
    )
    gpu = idealize(H200, settings.ideals)
    launch = KERNEL_MODELS["gemm"].params(m=512, n=512, k=512, tile="128x128x64", cluster="2x1").launch(H200)
    packed = pack_launch(launch, gpu, settings)
    check_launch(packed, settings)
    found = constants_in(packed)
    assert {name for name, is_free in found["ideals"].items() if is_free} == {"epilogue", "mad_wide"}
    assert (found["launch"]["max_events"], found["launch"]["keeps_trace"], found["launch"]["is_flushed"]) == (12, 1, 1)
    sms = read_buffer(packed.buffer, INPUT_SECTIONS)["sms"]
    assert sms["is_recorded"].nonzero()[0].tolist() == [packed.plan.gpu.floorplan.clusters(2)[0][0]]


# ---------------------------------------------------------------------------------------------- the buffer itself


def test_a_section_begins_on_a_multiple_of_eight_bytes() -> None:
    launch = KERNEL_MODELS["sgemm_naive"].params(m=64, n=64, k=64).launch(H200)
    buffer = pack_launch(launch, H200, SETTINGS).buffer
    *_, num_bytes = HEADER.unpack_from(buffer)
    assert num_bytes == len(buffer)
    assert len(buffer) % 8 == 0
    for section in read_buffer(buffer, INPUT_SECTIONS).values():
        assert section.__array_interface__["data"][0] % 8 == 0 or not len(section)


def test_another_format_is_refused() -> None:
    buffer = bytearray(write_buffer({}, []))
    with pytest.raises(GpusimError, match=r"0 sections .* wants version \d+ and 1 sections"):
        read_buffer(buffer, ["slots"])
    buffer[4] += 1
    with pytest.raises(GpusimError, match="version"):
        read_buffer(buffer, [])


# ---------------------------------------------------------------------------------------------- refusals


def launch_of(*programs: Any, **fields: Any) -> Launch:
    """Roles of four warps that yield these ops, with a ring of each kind."""

    def program_of(yielded: tuple[ops.Op, ...]) -> Any:
        def program(cta: RoleContext) -> Iterator[ops.Op]:
            for op in yielded:  # noqa: UP028  # a tuple takes no tokens
                yield op

        return program

    roles = tuple(WarpRole(name=f"role{idx}", num_warps=4, program=program_of(of)) for idx, of in enumerate(programs))
    fields.setdefault("num_ctas", 2)
    return Launch(
        kernel="lacking", num_tiles=fields["num_ctas"], roles=roles, buffers=(Buffer(name="a", stage_bytes=4096),),
        mbarriers=(Mbarrier(name="full", num_arrivals=128),), named_barriers=(NamedBarrier(name="all", num_threads=128),),
        **fields,
    )  # fmt: skip


def sentence(ask: Any) -> str:
    """Of the refusal."""
    with pytest.raises(LaunchError) as refused:
        ask()
    return str(refused.value)


def without(gpu: GpuSpec, part: str) -> GpuSpec:
    return replace(gpu, **{part: None})  # type: ignore[arg-type]  # a part that it may lack


TMA_LOAD = ops.TmaLoad("A", (0, 0), 4096, 4096, 32, "a", 0, "full")
LACKING: list[tuple[GpuSpec, ops.Op]] = [
    (A100, TMA_LOAD), (A100, ops.TmaStore("D", (0, 0), 4096, 32, "a", 0)), (A100, ops.PrefetchTensormap(("A",))),
    (A100, ops.ClusterArrive()), (A100, ops.DsmemLoad(0, 128)), (A100, ops.DsmemStore(0, 128)),
    (A100, ops.StAsync(0, 128, "full", 0)), (A100, ops.SetMaxNReg(24, "dec")),
    (A100, ops.Wgmma(wgmma(64, dtype("bf16")), 1)), (A100, ops.MmaSync(mma_sync(dtype("fp8")), 1)),
    (without(A100, "mbarrier"), ops.MbarrierInit("full")), (without(A100, "mbarrier"), ops.MbarrierArrive("full", 0)),
    (without(A100, "mbarrier"), ops.MbarrierArriveExpectTx("full", 0, 128)),
    (without(A100, "mbarrier"), ops.MbarrierWait("full", 0, 0)),
    (without(A100, "mbarrier"), ops.CpAsyncMbarrierArrive("full", 0)), (without(H200, "tma"), TMA_LOAD),
    (replace(H200, tensor_core=replace(H200.tensor_core, wgmma_flops_per_cycle={"16bit": 1.0})),
     ops.Wgmma(wgmma(64, dtype("tf32")), 1)),
]  # fmt: skip


@pytest.mark.parametrize("case", LACKING, ids=lambda case: type(case[1]).__name__)
def test_what_the_gpu_lacks_is_refused_in_the_words_of_the_engine(case: tuple[GpuSpec, ops.Op]) -> None:
    gpu, op = case
    launch = launch_of((ops.Syncthreads(), op), (ops.Syncthreads(),))
    told = sentence(lambda: pack_launch(launch, gpu, SETTINGS))
    assert told == sentence(lambda: simulate(launch, gpu, clock=1234.5))
    assert "lacking: role 'role0' of CTA 0: lacking: " in told


def test_an_arrival_on_another_sm_is_refused_where_sms_say_nothing_to_each_other() -> None:
    gpu = without(H200, "dsmem")
    launch = launch_of((ops.MbarrierArrive("full", 0, 1, 1),), cluster_size=2)
    told = sentence(lambda: pack_launch(launch, gpu, SETTINGS))
    assert told == sentence(lambda: simulate(launch, gpu, clock=1234.5))
    assert "has no distributed shared memory, which needs 9.0" in told
    at_home = launch_of((ops.MbarrierArrive("full", 0, 1, 0),), cluster_size=2)
    assert "CTA 1" in sentence(lambda: pack_launch(at_home, gpu, SETTINGS))  # whose rank is another one


def test_a_refusal_names_the_first_who_asks() -> None:
    def late(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx == 3:
            yield ops.Wgmma(wgmma(64, dtype("bf16")), 1)

    launch = launch_of((ops.Syncthreads(),), num_ctas=8)
    roles = (*launch.roles, WarpRole(name="late", num_warps=4, program=late))
    told = sentence(lambda: pack_launch(replace(launch, roles=roles), A100, SETTINGS))
    assert told.startswith("lacking: role 'late' of CTA 3: lacking: a100_sxm_80gb (compute capability 8.0) has no wgmma")


def test_a_refusal_that_names_the_role_is_left_as_it_is() -> None:
    launch = launch_of((ops.Wgmma(wgmma(64, dtype("bf16")), 1),))
    roles = (replace(launch.roles[0], name="wgmma"),)
    told = sentence(lambda: pack_launch(replace(launch, roles=roles), A100, SETTINGS))
    assert told == sentence(lambda: simulate(replace(launch, roles=roles), A100, clock=1234.5))
    assert told.startswith("lacking: a100_sxm_80gb")
