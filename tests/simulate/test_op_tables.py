"""Rows of what ops cost are what the engine's parts work out, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim import Launch, WarpRole, load_gpu
from gpusim.errors import LaunchError
from gpusim.machine.build import Machine
from gpusim.machine.config import GpuSpec, gpu_names
from gpusim.machine.memory.residency import LruResidency
from gpusim.machine.timing import RingingEnvironment
from gpusim.program.records import TABLES
from gpusim.simulate.costs.tma import _mask_bytes
from gpusim.simulate.op_costs import OpCosts
from gpusim.simulate.op_tables import TmaCosts, fetches_row, fma_row, loop_code_row, mma_sync_row, wgmma_row
from gpusim.simulate.role import Role
from gpusim.units import Clock
from gpusim.workload import ops
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.atoms.mma import MMA_ATOMS, wgmma
from gpusim.workload.dtypes import dtype
from gpusim.workload.fetches import Fetches

Answer = TypeVar("Answer")
GPUS = {name: load_gpu(name) for name in gpu_names()}
WITH_TMA = [name for name, gpu in GPUS.items() if gpu.tma is not None]
LAUNCH = Launch(kernel="test", num_ctas=1, num_tiles=1, roles=(WarpRole(name="worker", num_warps=4, program=iter),))
MHZ = 1234.5


def machine_of(gpu: GpuSpec) -> Machine:
    residency = LruResidency(side_bytes=1.0, num_sides=gpu.l2.num_partitions, is_warm=False)
    return Machine(
        RingingEnvironment(), gpu, Clock(sm_mhz=MHZ), residency, cluster_size=1, ctas_per_sm=1, smem_bytes_per_sm=0
    )


MACHINES = {name: machine_of(gpu) for name, gpu in GPUS.items()}


def named(table: str, row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(TABLES[table].names or (), row, strict=True))


def answer(ask: Callable[..., Answer], *arguments: Any) -> tuple[Answer | None, str]:
    """What is found, or the sentence that refuses it."""
    try:
        return ask(*arguments), ""
    except LaunchError as error:
        return None, str(error)


COUNTS = st.integers(0, 300)
FETCHES = st.builds(
    Fetches, num_bytes=st.integers(1, 1 << 16), num_sectors=COUNTS, num_crossing=st.integers(1, 900),
    num_reads=st.integers(1, 900), num_requests=st.integers(1, 700), num_shared=COUNTS, num_shared_requests=COUNTS,
    num_torn=COUNTS, num_torn_requests=COUNTS,
)  # fmt: skip


@st.composite
def tma_loads(draw: st.DrawFn) -> ops.TmaLoad:
    num_rows = draw(st.integers(1, 256))
    num_bytes = num_rows * draw(st.sampled_from([16, 48, 64, 100, 128, 512]))
    outside = draw(st.integers(0, num_rows))
    zero = draw(st.integers(outside, num_rows))
    fetched = draw(st.integers(0, num_bytes * (num_rows - zero) // num_rows))
    return ops.TmaLoad(
        "A", (0, 0), num_bytes, fetched, num_rows, "a", 0, "full", num_boxes=draw(st.integers(1, 8)),
        multicast=tuple(range(draw(st.integers(0, 4)))), fetches=draw(st.none() | FETCHES), num_zero_rows=zero,
        num_outside_rows=outside, new_fraction=draw(st.sampled_from([1.0, 0.5])),
    )  # fmt: skip


@given(op=tma_loads(), name=st.sampled_from(WITH_TMA))
def test_a_tma_load_costs_what_the_parts_say(op: ops.TmaLoad, name: str) -> None:
    gpu, machine = GPUS[name], MACHINES[name]
    assert gpu.tma is not None
    costs = TmaCosts(gpu, gpu.tma, port_bytes_per_cycle=machine.xbar.alone_bytes_per_cycle)
    place = costs.load(op, fetches=3)
    assert place == costs.load(op, fetches=3) == 0
    found = named("tma_loads", costs.loads[place])
    tma = machine.sms[0].tma
    assert tma is not None
    known = OpCosts(LAUNCH, gpu, machine)
    cost = known.of_tma(op, tma)
    for field in ("cycles", "latency_cycles", "num_lines", "num_bytes", "num_fetched_bytes", "num_rows", "num_boxes",
                  "new_fraction"):  # fmt: skip
        assert found[field] == getattr(cost, field)
    zeros = cost.zeros
    assert found["has_zeros"] == (zeros is not None)
    assert (found["zero_bytes"], found["zero_carried_bytes"]) == (
        (0.0, 0.0) if zeros is None else (zeros.num_bytes, zeros.num_carried_bytes)
    )
    assert found["fetches"] == 3
    cost.times = 1.0
    tma.counters.load_bytes = 0.0
    known.settle()
    assert found["counted_bytes"] == tma.counters.load_bytes


@given(
    num_bytes=st.integers(1, 1 << 16), num_rows=st.integers(0, 256), num_boxes=st.integers(1, 8), reduce=st.booleans(),
    name=st.sampled_from(WITH_TMA),
)  # fmt: skip
def test_a_tma_store_costs_what_the_parts_say(
    num_bytes: int, num_rows: int, num_boxes: int, reduce: bool, name: str
) -> None:
    spec = GPUS[name].tma
    assert spec is not None
    op = ops.TmaStore("D", (0, 0), num_bytes, num_rows, "a", 0, num_boxes=num_boxes, reduce=reduce)
    found = named("tma_stores", TmaCosts(GPUS[name], spec, port_bytes_per_cycle=1.0).store(op))
    assert found == {
        "num_bytes": num_bytes, "num_boxes": num_boxes, "cycles": num_boxes * spec.store_box_cycles,
        "more_bytes": num_boxes * spec.store_header_bytes + _mask_bytes(op), "is_reduce": reduce,
    }


@given(fetches=FETCHES, name=st.sampled_from(list(GPUS)))
def test_fetches_are_those_of_a_request(fetches: Fetches, name: str) -> None:
    engine = SimpleNamespace(gpu=GPUS[name])
    role = SimpleNamespace(t=0.0, sm=SimpleNamespace(idx=0), wave=0, count=1.0, engine=engine)
    request = Role.request(role, "A", (0, 0), 64.0, fetches=fetches)  # type: ignore[arg-type]  # all that it asks for
    found = named("fetches", fetches_row(fetches, torn_merge_fraction=GPUS[name].xbar.torn_merge_fraction))
    for field in ("crossings", "reads", "sharing", "num_line_requests", "request_sharing"):
        assert found[field] == getattr(request, field)
    assert (found["num_sectors"], found["num_bytes"]) == (fetches.num_sectors, fetches.num_bytes)


def test_fetches_of_nothing_divide_by_nothing() -> None:
    assert fetches_row(Fetches(), torn_merge_fraction=0.5) == (1.0, 1.0, 1.0, 0.0, 1.0, 0, 0)


WGMMAS = [
    wgmma(n, dtype(name), a_source=a_source)
    for n in (8, 64, 192, 256) for name in ("bf16", "tf32", "e4m3", "s8") for a_source in ("smem", "registers")
]  # fmt: skip


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("atom", WGMMAS, ids=lambda atom: f"{atom.name} {atom.a_source}")
def test_a_wgmma_costs_what_the_parts_say(name: str, atom: MmaAtom) -> None:
    gpu, known = GPUS[name], OpCosts(LAUNCH, GPUS[name], MACHINES[name])
    for num_issues, num_warpgroups, num_between in ((1, 1, 0.0), (4, 2, 3.5)):
        op = ops.Wgmma(atom, num_issues, (), num_between)
        cost, refused = answer(known.of_wgmma, op, num_warpgroups, 4 * num_warpgroups)
        row, told = answer(wgmma_row, LAUNCH, gpu, op, num_warpgroups, 4 * num_warpgroups)
        assert told == refused
        if cost is None or row is None:
            continue
        found = named("wgmmas", row)
        fields = ("cycles", "tail_cycles", "queued_cycles", "free_share", "conflict_share", "wavefronts",
                  "num_warp_instructions")  # fmt: skip
        assert found == {field: getattr(cost, field) for field in fields} | {"num_between": num_between}


MMA_SYNCS = [atom for atom in MMA_ATOMS.values() if atom.kind == "mma_sync"]


@pytest.mark.parametrize("name", GPUS)
def test_a_mma_sync_costs_what_the_parts_say(name: str) -> None:
    gpu, known, num = GPUS[name], OpCosts(LAUNCH, GPUS[name], MACHINES[name]), 0
    for atom in MMA_SYNCS:
        cost, refused = answer(known.of_mma_sync, atom)
        row, told = answer(mma_sync_row, LAUNCH, gpu, atom)
        assert told == refused
        if cost is not None:
            assert row == (*cost, atom.rate_class == "int8")
            num += 1
    assert num


@given(
    num=st.floats(0.0, 100.0), others=st.floats(0.0, 100.0), bank_reads=st.floats(0.0, 4.0), runs=st.integers(0, 4),
    name=st.sampled_from(list(GPUS)),
)  # fmt: skip
def test_fma_and_loops_cost_what_the_parts_say(num: float, others: float, bank_reads: float, runs: int, name: str) -> None:
    scheduler = MACHINES[name].sms[0].warp_scheduler
    turns = max(1.0, bank_reads / scheduler.bank_reads_per_cycle)
    assert fma_row(GPUS[name], ops.Fma(num, bank_reads=bank_reads, num_runs=runs)) == (num, turns, runs)
    row = loop_code_row(GPUS[name], ops.LoopCode(num, others, bank_reads))
    assert row == (num + others, num * turns + others)
