"""Small launches, and their programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, NamedBarrier, WarpRole, load_gpu
from gpusim.program.costs import Costs
from gpusim.program.cta_classes import trace_launch
from gpusim.program.programs import Programs
from gpusim.program.records import OpKind
from gpusim.simulate.plan import check, count_slots, grid_of_persistent
from gpusim.traffic.footprints import FootprintTable
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import AccessPattern

TOY = load_gpu("toy")
Program = Callable[[RoleContext], Iterator[Any]]
Int64Array = NDArray[np.int64]

ACCESS = AccessPattern(num_requests=1, num_sectors=4, num_lines=1, num_wavefronts=1, num_bytes=128)


def of_ops(*some: Any) -> Program:
    """A program that yields these ops; those that are functions are given the tokens so far, and give the op."""

    def program(cta: RoleContext) -> Iterator[Any]:
        tokens: list[Any] = []
        for op in some:
            token = yield op(tokens) if callable(op) and not isinstance(op, type) else op
            if token is not None:
                tokens.append(token)

    return program


def launch(*programs: Program | WarpRole, num_warps: int = 4, **more: Any) -> Launch:
    """A launch with a ring ``a`` of 4 stages, rings ``full`` and ``empty`` of 4 mbarriers, and a barrier ``math``."""
    roles = tuple(
        item if isinstance(item, WarpRole) else WarpRole(name=f"role{idx}", num_warps=num_warps, program=item)
        for idx, item in enumerate(programs)
    )
    more.setdefault("num_ctas", 1)
    more.setdefault("num_tiles", more["num_ctas"])
    more.setdefault("buffers", (Buffer(name="a", stage_bytes=32768, num_stages=4),))
    rings = tuple(Mbarrier(name=name, num_arrivals=1, num_stages=4) for name in ("full", "empty"))
    more.setdefault("mbarriers", rings)
    more.setdefault("named_barriers", (NamedBarrier(name="math", num_threads=128),))
    return Launch(kernel="test", roles=roles, **more)


def arguments(of: Launch, gpu: GpuSpec = TOY) -> Mapping[str, Any]:
    """What tracing asks for beside a launch."""
    uses = FootprintTable.of(of, gpu)
    return {
        "num_ctas": of.num_ctas or grid_of_persistent(of, count_slots(of, gpu, check(of, gpu))),
        "panels_of": {use.tensor: use.panel_of_tile for use in uses.of_tensors},
        "bytes_of": {use.tensor: use.bytes_of_tile for use in uses.of_tensors},
    }


def traced(of: Launch, gpu: GpuSpec = TOY, **more: Any) -> Programs:
    """Its programs."""
    return trace_launch(of, **arguments(of, gpu), **more)


def all_traced(of: Launch, gpu: GpuSpec = TOY) -> Programs:
    """Its programs, from all CTAs."""
    return traced(replace(of, has_uniform_programs=False), gpu)


def differences(some: Programs, others: Programs) -> list[str]:
    """Names of the fields that differ, but for how many ops were traced."""
    found = []
    for item in fields(Programs):
        mine, its = getattr(some, item.name), getattr(others, item.name)
        if isinstance(mine, np.ndarray):
            is_same = mine.dtype == its.dtype and mine.shape == its.shape and mine.tobytes() == its.tobytes()
        elif isinstance(mine, Costs):
            tables = {name: (rows, vars(its)[name]) for name, rows in vars(mine).items() if name != "swizzles"}
            is_same = mine.swizzles == its.swizzles and all(rows.items == others.items for rows, others in tables.values())
        else:
            is_same = mine == its or item.name == "num_ops_traced"
        if not is_same:
            found.append(item.name)
    return found


def ops_of(programs: Programs, cta_idx: int, role_idx: int) -> NDArray[np.void]:
    """The records of a role of a CTA."""
    row = programs.programs[programs.class_programs[programs.cta_class[cta_idx], role_idx]]
    begin = int(row["begin"])
    found: NDArray[Any] = programs.ops[begin : begin + int(row["num_ops"])]
    return found


def records(programs: Programs, cta_idx: int = 0, role_idx: int = 0) -> list[dict[str, Any]]:
    """The ops of a role of a CTA, field by field."""
    found = ops_of(programs, cta_idx, role_idx)
    return [
        {name: row[name].item() for name in found.dtype.names or ()} | {"kind": OpKind(int(row["kind"]))} for row in found
    ]


def footprint(
    tensor: str, panel_of: Callable[[Int64Array], Int64Array], bytes_of: Callable[[Int64Array], Int64Array], **more: Any
) -> Footprint:
    """What tiles read of a tensor."""
    return Footprint(tensor=tensor, access="read", panel_of=panel_of, panel_bytes=bytes_of, **more)


