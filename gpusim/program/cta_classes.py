"""Classes of CTAs that run the same programs, and the panels of each CTA: a launch as :class:`Programs`.

In: a launch, and the panels that its tiles touch. Out: its programs.

Models:

* A class is all CTAs whose roles run the same programs, up to the panels that these name.
* If a launch declares uniform programs, its CTAs are sorted by the bytes of their tiles and by their ranks.
* The first CTA of each sort is recorded, and one or two others to compare.
* A panel of the other CTAs is a footprint's panel, the CTA's index, its tile, or a constant.
* If any comparison fails, or the launch declares nothing, all CTAs are recorded.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping

import numpy as np

from gpusim.errors import say
from gpusim.program.cta_sorts import Int64Array, at, members_of, sorts_of_ctas
from gpusim.program.panels import Sort, Sources
from gpusim.program.programs import IntArray, Programs
from gpusim.program.records import OPS, TABLES
from gpusim.program.trace import Tracer
from gpusim.workload.launch import Launch
from gpusim.workload.time_limit import time_limit

MAX_OPS = 1_000_000
"""Default limit of the ops of a role of one CTA."""

LOOKED_CTAS, TELL_S, LONG_S = 64, 5.0, 60.0
"""CTAs between looks at the time; seconds between two lines on progress; seconds below which there is no line."""


def trace_launch(
    launch: Launch, *, num_ctas: int, panels_of: Mapping[str, Int64Array], bytes_of: Mapping[str, Int64Array],
    max_ops: int = MAX_OPS,
) -> Programs:
    """Programs of all CTAs of ``launch``.

    Args:
        launch: a launch whose roles are generators of ops.
        num_ctas: CTAs of its grid; the tile of turn t of CTA c is ``c + t * num_ctas``.
        panels_of: panel of each tile by footprint tensor, int64[num_tiles].
        bytes_of: bytes that each tile touches by footprint tensor, int64[num_tiles].
        max_ops: limit of the ops of a role of one CTA.

    Raises:
        LaunchError: an op that is refused, a program that is no generator, or one that does not end.
    """
    with time_limit() as watched:
        found = None
        if launch.has_uniform_programs:
            tracer = Tracer(launch, num_ctas=num_ctas, max_ops=max_ops, watched=watched)
            found = _trace_sorts(tracer, launch, num_ctas, panels_of, bytes_of)
        if found is None:
            found = _trace_all(Tracer(launch, num_ctas=num_ctas, max_ops=max_ops, watched=watched), num_ctas)
    return found


def _trace_sorts(
    tracer: Tracer, launch: Launch, num_ctas: int, panels_of: Mapping[str, Int64Array], bytes_of: Mapping[str, Int64Array]
) -> Programs | None:
    """Programs, from a few CTAs of each sort. None where they are not as uniform as the launch declares."""
    tables, num_tiles = tracer.tables, launch.num_tiles
    of_cta = sorts_of_ctas(
        [bytes_of[item.tensor] for item in launch.footprints], num_ctas=num_ctas, num_tiles=num_tiles,
        cluster_size=launch.cluster_size,
    )  # fmt: skip
    sorts = [Sort(members, tracer) for members in members_of(of_cta)]
    sources = Sources(panels_of, tables, num_ctas, -(-num_tiles // num_ctas))
    cta_panels = np.zeros((num_ctas, len(tables.columns)), dtype=np.int32)
    for sort in sorts:
        of_columns = sort.sources(sources) if sort.are_same() else None
        if of_columns is None:
            return None
        for column, source in zip(sort.first.columns, of_columns, strict=True):
            cta_panels[at(sort.members), column] = source.of(sort.members)
    classes: dict[tuple[int, ...], int] = {}
    of_sort = np.array([classes.setdefault(sort.first.programs, len(classes)) for sort in sorts], dtype=np.int32)
    return _programs(tracer, of_sort[of_cta], list(classes), cta_panels)


def _trace_all(tracer: Tracer, num_ctas: int) -> Programs:
    """Programs, from all CTAs."""
    classes: dict[tuple[int, ...], tuple[tuple[int, ...], array[int], array[int]]] = {}
    size, num_traced = tracer.tables.launch.cluster_size, num_ctas
    began = last_line = time.monotonic()
    for cta_idx in range(num_ctas):
        if tracer.is_same_for_all:
            num_traced = cta_idx
            break
        if not cta_idx % LOOKED_CTAS and (now := time.monotonic()) - last_line > TELL_S:
            left_s = (now - began) / cta_idx * (num_ctas - cta_idx)
            if last_line > began or left_s > LONG_S:
                last_line = now
                say(f"{tracer.tables.launch.kernel}: {cta_idx:,} of {num_ctas:,} CTAs traced, about {left_s:.0f} s left")
        traced = tracer.trace(cta_idx)
        _, ctas, panels = classes.setdefault(traced.programs, (traced.columns, array("q"), array("i")))
        ctas.append(cta_idx)
        panels.extend(traced.panels)
    cta_class = np.empty(num_ctas, dtype=np.int32)
    cta_panels = np.zeros((num_ctas, len(tracer.tables.columns)), dtype=np.int32)
    for number, (columns, ctas, panels) in enumerate(classes.values()):
        cta_class[ctas] = number
        of_ctas = np.array(panels, dtype=np.int32).reshape(len(ctas), len(columns))
        cta_panels[np.array(ctas)[:, None], np.array(columns, dtype=np.int64)] = of_ctas
    if num_traced < num_ctas:  # a cluster is as all others
        cta_class = np.resize(cta_class[:size], num_ctas)
        tracer.num_ops = tracer.num_ops // num_traced * num_ctas
    return _programs(tracer, cta_class, list(classes), cta_panels)


def _programs(tracer: Tracer, cta_class: IntArray, class_programs: list[tuple[int, ...]], cta_panels: IntArray) -> Programs:
    tables, programs = tracer.tables, tracer.programs.by_key
    lengths = np.array([len(program) // OPS.itemsize for program in programs])
    table = np.zeros(len(lengths), dtype=TABLES["programs"])
    table["begin"], table["num_ops"], table["num_tokens"] = np.cumsum(lengths) - lengths, lengths, tracer.programs.items
    return Programs(
        ops=np.frombuffer(b"".join(programs), dtype=OPS), programs=table, lists=np.array(tables.lists, dtype=np.int32),
        neighbours=np.array(tables.neighbours, dtype=np.int32).reshape(-1, 2), cta_class=cta_class,
        class_programs=np.array(class_programs, dtype=np.int32).reshape(len(class_programs), -1), cta_panels=cta_panels,
        tensors=tuple(tables.tensors), stages=tables.stage_names, barriers=tables.barrier_names,
        named_barriers=tuple(tables.named_barriers), code_names=tuple(tables.codes),
        cold_code_names=tuple(tables.cold_code_names), num_ops_traced=tracer.num_ops, costs=tables.costs,
    )
