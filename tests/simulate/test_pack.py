"""A packed launch can be read back, is the same each time, and is refused where the GPU lacks something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpusim import Launch, WarpRole, load_gpu, simulate
from gpusim.errors import GpusimError, LaunchError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import GpuSpec
from gpusim.program.records import CONSTANTS, INPUT_SECTIONS, dtype_of
from gpusim.simulate.buffers import HEADER, read_buffer, write_buffer
from gpusim.simulate.idealize import idealize
from gpusim.simulate.pack import pack, sections_of
from gpusim.simulate.settings import Settings
from gpusim.units import Clock
from gpusim.workload import ops
from gpusim.workload.atoms.mma import mma_sync, wgmma
from gpusim.workload.dtypes import dtype
from gpusim.workload.launch import Buffer, Mbarrier, NamedBarrier, RoleContext
from tests.engine.launches import CASES

from .packed import PackedLaunch, pack_launch

PACKED = (
    "gemm_cooperative_cluster", "gemm_pingpong", "gemm_split_k_second_kernel", "gemm_hgemm", "gemm_sgemm",
    "elementwise_copy", "gather_random", "a100_gemm", "toy_gemm", "drawn_0", "hand_overs",
)
"""Launches of tests/engine of all kinds."""
CLOCK = Clock(sm_mhz=1234.5)
A100, H200 = load_gpu("a100_sxm_80gb"), load_gpu("h200_sxm")


def constants_in(packed: PackedLaunch) -> dict[str, dict[str, float]]:
    """Constants of a buffer by part and name."""
    found = read_buffer(packed.buffer, INPUT_SECTIONS)
    return {
        part: dict(zip(names, found[f"constants_{part}"].tolist(), strict=True)) for part, names in CONSTANTS.items()
    }


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_launch_has_what_its_plan_and_programs_have(name: str) -> None:
    gpu, launch = CASES[name].spec, CASES[name].launch()
    for each in (launch, *launch.following):
        packed = pack_launch(each, gpu, CLOCK, Settings())
        plan, programs, found = packed.plan, packed.programs, constants_in(packed)
        of_launch, sections = found["launch"], read_buffer(packed.buffer, INPUT_SECTIONS)
        assert of_launch["num_ctas"] == plan.num_ctas and of_launch["num_at_once"] == plan.num_at_once
        assert of_launch["has_traffic_plan"] == bool(plan.traffic) and of_launch["is_warm"] == 0.0
        assert of_launch["smem_bytes"] == each.smem_bytes and of_launch["num_threads"] == each.num_threads
        arrivals = {ring.name: ring.num_arrivals for ring in each.mbarriers}
        assert sections["mbarriers"]["num_arrivals"].tolist() == [arrivals[ring] for ring, _ in programs.barriers]
        assert sections["roles"]["num_warps"].tolist() == [role.num_warps for role in each.roles]
        for table in ("accesses", "stores", "tma_loads", "tma_stores", "wgmmas", "mma_syncs", "fmas", "alus", "cold_codes"):
            assert len(sections[table]) == len(getattr(programs.costs, table).items)
        check_buffer(packed)


def check_buffer(packed: PackedLaunch) -> None:
    """A buffer can be read back, section by section, and is the same each time."""
    sections = sections_of(packed.plan, packed.programs, CLOCK, Settings())
    assert set(sections) == set(INPUT_SECTIONS)
    found = read_buffer(packed.buffer, INPUT_SECTIONS)
    for name in INPUT_SECTIONS:
        assert found[name].dtype == dtype_of(name)
        assert found[name].tolist() == sections[name].reshape(-1).tolist()
    assert pack(packed.plan, packed.programs, CLOCK, Settings()) == packed.buffer


def test_settings_are_in_the_buffer() -> None:
    settings = Settings(
        ideals=frozenset({"epilogue", "latency", "imad_wide"}), l2="flushed", recorded_sms="first", max_events=12,
        keeps_trace=True,
    )
    gpu = idealize(H200, settings.ideals)
    launch = KERNEL_MODELS["gemm"].params(m=512, n=512, k=512, tile="128x128x64", cluster="2x1").launch(H200)
    packed = pack_launch(launch, gpu, Clock(sm_mhz=1500.0), settings)
    found = constants_in(packed)
    assert {name for name, is_free in found["ideals"].items() if is_free} == {"epilogue", "imad_wide"}
    assert (found["launch"]["max_events"], found["launch"]["keeps_trace"], found["launch"]["is_flushed"]) == (12, 1, 1)
    sms = read_buffer(packed.buffer, INPUT_SECTIONS)["sms"]
    assert sms["is_recorded"].nonzero()[0].tolist() == [packed.plan.gpu.floorplan.clusters(2)[0][0]]


# ---------------------------------------------------------------------------------------------- the buffer itself


def test_a_section_begins_on_a_multiple_of_eight_bytes() -> None:
    launch = KERNEL_MODELS["sgemm_naive"].params(m=64, n=64, k=64).launch(H200)
    buffer = pack_launch(launch, H200, CLOCK, Settings()).buffer
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
def test_what_the_gpu_lacks_is_refused_before_anything_runs(case: tuple[GpuSpec, ops.Op]) -> None:
    gpu, op = case
    launch = launch_of((ops.Syncthreads(), op), (ops.Syncthreads(),))
    told = sentence(lambda: pack_launch(launch, gpu, CLOCK, Settings()))
    assert told == sentence(lambda: simulate(launch, gpu, clock=1234.5))
    assert told.startswith("lacking: role 'role0' of CTA 0: ") and told.count("lacking") == 1


def test_an_arrival_on_another_sm_is_refused_where_sms_say_nothing_to_each_other() -> None:
    gpu = without(H200, "dsmem")
    launch = launch_of((ops.MbarrierArrive("full", 0, 1, 1),), cluster_size=2)
    told = sentence(lambda: pack_launch(launch, gpu, CLOCK, Settings()))
    assert told == sentence(lambda: simulate(launch, gpu, clock=1234.5))
    assert "has no distributed shared memory, which needs the feature cluster" in told
    at_home = launch_of((ops.MbarrierArrive("full", 0, 1, 0),), cluster_size=2)
    assert "CTA 1" in sentence(lambda: pack_launch(at_home, gpu, CLOCK, Settings()))  # whose rank is another one


def test_a_refusal_names_the_first_who_asks() -> None:
    def late(cta: RoleContext) -> Iterator[ops.Op]:
        if cta.cta_idx == 3:
            yield ops.Wgmma(wgmma(64, dtype("bf16")), 1)

    launch = launch_of((ops.Syncthreads(),), num_ctas=8)
    roles = (*launch.roles, WarpRole(name="late", num_warps=4, program=late))
    told = sentence(lambda: pack_launch(replace(launch, roles=roles), A100, CLOCK, Settings()))
    assert told.startswith("lacking: role 'late' of CTA 3: a100_sxm_80gb has no wgmma, which needs the feature wgmma")


def test_a_refusal_says_who_whatever_the_roles_name() -> None:
    launch = launch_of((ops.Wgmma(wgmma(64, dtype("bf16")), 1),))
    roles = (replace(launch.roles[0], name="wgmma"),)
    told = sentence(lambda: pack_launch(replace(launch, roles=roles), A100, CLOCK, Settings()))
    assert told == sentence(lambda: simulate(replace(launch, roles=roles), A100, clock=1234.5))
    assert told.startswith("lacking: role 'wgmma' of CTA 0: a100_sxm_80gb")
