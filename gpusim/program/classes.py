"""Which CTAs share their programs, and the panels of each: a launch as :class:`Programs`.

In: a launch, what its tiles touch. Out: its programs.

Models:

* a class is all CTAs whose roles run the same programs, but for the panels that these name;
* where a launch says that its programs are uniform, CTAs are sorted by the bytes of their tiles and by their ranks;
* of each sort the first CTA is recorded, and one or two others to compare;
* a panel of the others is a footprint's, the CTA's index, its tile, or the same for all;
* where any comparison fails, and where a launch says nothing, all CTAs are recorded.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.program.panels import Sort, Source, Sources
from gpusim.program.programs import IntArray, Programs
from gpusim.program.records import OPS, TABLES, OpKind
from gpusim.program.sorts import Int64Array, at, members_of, sorts_of_ctas
from gpusim.program.trace import TracedCta, Tracer
from gpusim.workload.launch import Launch

MAX_OPS = 1_000_000
"""Of a role of one CTA, by default."""


def trace_launch(
    launch: Launch, *, num_ctas: int, panels_of: Mapping[str, Int64Array], bytes_of: Mapping[str, Int64Array],
    max_ops: int = MAX_OPS,
) -> Programs:
    """The programs of all CTAs of ``launch``.

    Args:
        launch: its roles are generators of ops.
        num_ctas: CTAs of its grid; the tile of turn t of CTA c is ``c + t * num_ctas``.
        panels_of: for each footprint's tensor the panel of each tile, int64[num_tiles].
        bytes_of: the same of the bytes that each tile touches.
        max_ops: the most ops of a role of one CTA.

    Raises:
        LaunchError: an op that is refused, a program that is none, or that does not end.
    """
    if launch.has_uniform_programs:
        tracer = Tracer(launch, num_ctas=num_ctas, max_ops=max_ops)
        found = _trace_sorts(tracer, launch, num_ctas, panels_of, bytes_of)
        if found is not None:
            return found
    return _trace_all(Tracer(launch, num_ctas=num_ctas, max_ops=max_ops), num_ctas)


# ---------------------------------------------------------------------------------------------- some CTAs of each sort


def _trace_sorts(
    tracer: Tracer, launch: Launch, num_ctas: int, panels_of: Mapping[str, Int64Array], bytes_of: Mapping[str, Int64Array]
) -> Programs | None:
    """The programs, from a few CTAs of each sort; None where these are not as uniform as the launch says."""
    tables, num_tiles = tracer.tables, launch.num_tiles
    of_cta = sorts_of_ctas(
        [bytes_of[item.tensor] for item in launch.footprints], num_ctas=num_ctas, num_tiles=num_tiles,
        cluster_size=launch.cluster_size,
    )  # fmt: skip
    sorts: list[Sort] = []
    num_ops: list[int] = []
    for members in members_of(of_cta):
        before = tracer.num_ops
        sorts.append(Sort(members, tracer.trace(int(members[0])), tracer.trace))
        num_ops.append(tracer.num_ops - before)
    sources, keys = Sources(panels_of, tables.tensors, num_ctas, -(-num_tiles // num_ctas)), list(tables.columns)

    def candidates(column: int, panel: int, last_cta: int) -> Iterator[Source]:
        tensor, turn, _ = keys[column]
        return sources.of_column(tensor, turn, panel, last_cta)

    cta_panels = np.zeros((num_ctas, len(keys)), dtype=np.int32)
    for sort, num in zip(sorts, num_ops, strict=True):
        of_columns = sort.sources(candidates) if sort.are_alike(num) else None
        if of_columns is None:
            return None
        for column, source in zip(sort.first.columns, of_columns, strict=True):
            cta_panels[at(sort.members), column] = source.of(sort.members)
    classes: dict[tuple[int, ...], int] = {}
    of_sort = np.array([classes.setdefault(sort.first.programs, len(classes)) for sort in sorts], dtype=np.int32)
    cta_class = of_cta if len(classes) == len(sorts) else of_sort[of_cta]
    return _programs(tracer, cta_class, list(classes), cta_panels)


# ---------------------------------------------------------------------------------------------- all CTAs


class _Class:
    """CTAs that run the same programs."""

    def __init__(self, columns: tuple[int, ...]) -> None:
        self.columns = columns
        self.ctas = array("q")
        self.panels = array("i")
        """Those of each CTA, one behind the other."""

    def add(self, cta_idx: int, panels: Sequence[int]) -> None:
        """One more."""
        self.ctas.append(cta_idx)
        self.panels.extend(panels)


def _trace_all(tracer: Tracer, num_ctas: int) -> Programs:
    """The programs, from all CTAs."""
    classes: dict[tuple[int, ...], _Class] = {}
    for cta_idx in range(num_ctas):
        traced: TracedCta = tracer.trace(cta_idx)
        of_class = classes.get(traced.programs)
        if of_class is None:
            of_class = classes[traced.programs] = _Class(traced.columns)
        of_class.add(cta_idx, traced.panels)
    cta_class = np.empty(num_ctas, dtype=np.int32)
    cta_panels = np.zeros((num_ctas, len(tracer.tables.columns)), dtype=np.int32)
    for number, of_class in enumerate(classes.values()):
        ctas, columns = np.array(of_class.ctas), np.array(of_class.columns, dtype=np.int64)
        cta_class[ctas] = number
        panels = np.array(of_class.panels, dtype=np.int32).reshape(len(ctas), len(columns))
        cta_panels[ctas[:, None], columns] = panels
    return _programs(tracer, cta_class, list(classes), cta_panels)


# ---------------------------------------------------------------------------------------------- what comes of it


def _programs(
    tracer: Tracer, cta_class: IntArray, class_programs: list[tuple[int, ...]], cta_panels: IntArray
) -> Programs:
    tables = tracer.tables
    records: NDArray[Any] = np.frombuffer(b"".join(tracer.programs), dtype=OPS)
    return Programs(
        ops=records, programs=_program_table(tracer), lists=np.array(tables.lists, dtype=np.int32),
        neighbours=np.array(tables.neighbours, dtype=np.int32).reshape(-1, 2), cta_class=cta_class,
        class_programs=np.array(class_programs, dtype=np.int32).reshape(len(class_programs), -1), cta_panels=cta_panels,
        num_panels=cta_panels.shape[1], tensors=tuple(tables.tensors), stages=tables.declared.stage_names,
        barriers=tables.declared.barrier_names, named_barriers=tuple(tables.declared.named_barriers),
        code_names=tuple(tables.codes), far_code_names=tuple(tables.far_code_names),
        kinds=frozenset(OpKind(kind) for kind in np.flatnonzero(np.bincount(records["kind"])).tolist()),
        num_ops_traced=tracer.num_ops,
        **{name: tuple(numbers.items) for name, numbers in vars(tables.costs).items() if name != "atoms"},
    )


def _program_table(tracer: Tracer) -> NDArray[np.void]:
    """Where each program begins, how many ops and token slots it has."""
    lengths = [len(program) // OPS.itemsize for program in tracer.programs]
    begins = list(accumulate(lengths, initial=0))
    found: NDArray[Any] = np.zeros(len(lengths), dtype=TABLES["programs"])
    found["begin"], found["num_ops"], found["num_tokens"] = begins[:-1], lengths, tracer.num_tokens
    return found
