"""Small launches in the public vocabulary, and what their timelines say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, Result, WarpRole, load_gpu, simulate
from gpusim.simulate.order_check import without_order_check
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

TOY = load_gpu("toy")
Program = Callable[[RoleContext], Iterator[Any]]

SECTOR, LINE = 32, 128


def changed(gpu: GpuSpec = TOY, **parts: dict[str, Any]) -> GpuSpec:
    """``gpu`` with other numbers: ``changed(tma={"latency_cycles": 0.0})``."""
    return replace(gpu, **{name: replace(getattr(gpu, name), **fields) for name, fields in parts.items()})


def role(program: Program, name: str = "worker", num_warps: int = 1) -> WarpRole:
    """``num_warps`` warps that run ``program``."""
    return WarpRole(name=name, num_warps=num_warps, program=program)


def launch(*roles: WarpRole | Program, **fields: Any) -> Launch:
    """A launch of one CTA, with a ring ``a`` of 4 buffers and rings ``full`` and ``empty`` of 4 mbarriers."""
    named = [of if isinstance(of, WarpRole) else role(of, f"role{idx}") for idx, of in enumerate(roles)]
    fields.setdefault("num_ctas", 1)
    fields.setdefault("num_tiles", fields["num_ctas"])
    fields.setdefault("buffers", (Buffer(name="a", stage_bytes=32768, num_stages=4),))
    fields.setdefault(
        "mbarriers", tuple(Mbarrier(name=name, num_arrivals=1, num_stages=4) for name in ("full", "empty"))
    )
    return Launch(kernel="test", roles=tuple(named), **fields)


def run(*roles: WarpRole | Program, gpu: GpuSpec = TOY, l2: str = "warm", **fields: Any) -> Result:
    """Simulate them with every SM recorded; all data are in L2 unless ``l2`` is cold."""
    return simulate(
        without_order_check(launch(*roles, **fields)),  # data that are timed need no order
        gpu,
        l2=l2,
        recorded_sms=frozenset(range(gpu.num_sms)),  # type: ignore[arg-type]  # cold or warm
    )


def cycles(*roles: WarpRole | Program, **fields: Any) -> float:
    """How long they take."""
    return run(*roles, **fields).cycles


def ends_of(result: Result, name: str = "role0") -> list[float]:
    """The cycle at which role ``name`` ended, for each CTA in order."""
    of_role = sorted(
        (item for item in result.timeline.roles if item.role == name), key=lambda item: item.cta_idx
    )
    return [item.states[-1][2] if item.states else 0.0 for item in of_role]


def spans_of(
    result: Result, state: WarpState, name: str = "role0", cta_idx: int = 0
) -> list[tuple[float, float]]:
    """(start, end) of each span that role ``name`` spent in ``state``."""
    (record,) = [item for item in result.timeline.roles if (item.role, item.cta_idx) == (name, cta_idx)]
    return [(start, end) for of_state, start, end in record.states if of_state is state]


# ------------------------------------------------------------------------------------------ words


def load(stage: int, num_bytes: int = 4096, *, step: int | None = None, **fields: Any) -> ops.TmaLoad:
    """A TMA load of slice ``step`` (by default ``stage``) into slot ``stage`` of ``a``, on ``full``."""
    fetched = fields.pop("num_fetched_bytes", num_bytes)
    rows = fields.pop("num_rows", 1)
    tile = (0, stage if step is None else step)
    return ops.TmaLoad("A", tile, num_bytes, fetched, rows, "a", stage, "full", **fields)


def expect(stage: int, num_bytes: int = 4096) -> ops.MbarrierArriveExpectTx:
    """One arrival on ``full`` that announces ``num_bytes``."""
    return ops.MbarrierArriveExpectTx("full", stage, num_bytes)


def wait(stage: int, parity: int = 0, barrier: str = "full") -> ops.MbarrierWait:
    """Wait for a phase."""
    return ops.MbarrierWait(barrier, stage, parity)


def contiguous(num_bytes: int) -> AccessPattern:
    """Warps that touch ``num_bytes`` in a row, 128 bytes a request."""
    lines = num_bytes // LINE
    return AccessPattern(
        num_requests=lines,
        num_sectors=num_bytes // SECTOR,
        num_lines=lines,
        num_wavefronts=lines,
        num_bytes=num_bytes,
    )


def shared(num_wavefronts: int, num_requests: int = 1) -> AccessPattern:
    """A shared-memory access of so many wavefronts."""
    return AccessPattern(
        num_requests=num_requests, num_wavefronts=num_wavefronts, num_bytes=128 * num_requests
    )


# ------------------------------------------------------------------------------------------ what they cost


def hit_cycles(num_bytes: float, gpu: GpuSpec = TOY) -> float:
    """A read of ``num_bytes`` that L2 has: through slices and port, and the latency."""
    slices = gpu.l2.num_slices * gpu.l2.slice_bytes_per_cycle * gpu.l2.sustained_fraction
    return num_bytes / min(slices, gpu.xbar.sm_read_bytes_per_cycle) + gpu.l2.far_latency_cycles


def miss_cycles(num_bytes: float, gpu: GpuSpec = TOY) -> float:
    """A read of ``num_bytes`` from HBM (1 GHz: GB/s are bytes a cycle): the later of wire and port."""
    rate = min(gpu.hbm.sustained_read_gb_per_s, gpu.hbm.sm_gb_per_s)
    return max(num_bytes / rate + gpu.hbm.latency_ns, hit_cycles(num_bytes, gpu))


def store_cycles(num_bytes: float, gpu: GpuSpec = TOY) -> float:
    """Until the last byte of a store has left the SM."""
    slices = gpu.l2.num_slices * gpu.l2.slice_bytes_per_cycle * gpu.l2.sustained_fraction
    return num_bytes / min(slices, gpu.xbar.sm_write_bytes_per_cycle)
