"""Tracing: the programs of a CTA's roles are run op by op and recorded, without time.

In: a launch and the index of a CTA. Out: the bytes of each role's program, and the panels that the CTA names.

Models:

* The ops that a program yields for a CTA's index and rank. Tokens are returned at once.
* Turns of persistent CTAs.

Ignores:

* Python state that roles or CTAs share. Simulated time would order its accesses differently.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import fields, replace
from inspect import isgeneratorfunction
from itertools import count
from math import ceil
from struct import error as StructError  # noqa: N812  # it is a class
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gpusim.errors import GpusimError, LaunchError
from gpusim.program.costs import Known, Rows
from gpusim.program.encode import ENCODERS
from gpusim.program.refusals import named, not_integer
from gpusim.program.role_rows import Panels, RoleRows
from gpusim.program.tables import Tables
from gpusim.workload.launch import Launch
from gpusim.workload.op_arguments import check_arguments, key_of
from gpusim.workload.ops import Op
from gpusim.workload.programs import at_op, begun, raised_by_program, short
from gpusim.workload.time_limit import Watched
from gpusim.workload.token import Token


class RoleTrace(RoleRows):
    """A role of a CTA that is recorded. Implements ``workload.launch.RoleContext``."""

    __slots__ = ()

    @property
    def cta_idx(self) -> int:
        """Linear index of the CTA in the grid."""
        self.is_of_cta = True
        return self._cta_idx

    @property
    def t(self) -> NoReturn:
        """Refused: programs are traced before they run, and have no clock. Raises LaunchError: always."""
        raise LaunchError(
            f"{self.who} reads cta.t: programs are traced before they run and know no time; "
            "yield RangeStart, RangeEnd, read the timeline"
        )

    def loop(self, num_iterations: int) -> Iterator[int]:
        """Integers from 0 to ``num_iterations`` - 1."""
        return iter(range(ceil(num_iterations)))

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        """Work tiles of a persistent CTA as (turn, tile). Each turn leaves a record before its first op."""
        for turn in count(first, step):
            tile = self.cta_idx + turn * self.num_ctas
            if tile >= num_tiles:
                return
            self.begin_turn(turn)
            yield turn, tile

    def run(self, max_ops: int) -> int:
        """Record the full program, of at most ``max_ops`` ops; returns the number of ops.

        Raises:
            LaunchError: an op that is refused, a program that is no generator, or one that does not end.
        """
        with named(self.spec.name, self.who):
            program = begun(self.spec, self, self.who)
            num_ops = self._record(program, max_ops)
            is_reused = not self.is_of_cta and self.num_ctas > 1 and not isgeneratorfunction(self.spec.program)
            if is_reused:  # a generator that is given again has nothing left for other CTAs
                begun(self.spec, self, self.who)
            return num_ops

    def _record(self, program: Generator[Any, Any, Any], max_ops: int) -> int:
        rows, known, token = self.rows, self.known.by_id, None
        for num_ops in range(max_ops + 1):
            try:
                op = program.send(token)
            except StopIteration:
                return num_ops
            except (Exception, SystemExit) as error:
                raise raised_by_program(self.who, num_ops, error) from error
            row, token = known.get(id(op)), None
            if row is None:
                try:
                    token = self._encode(op)
                except GpusimError as error:
                    raise at_op(error, num_ops) from error.__cause__
            else:
                rows.append(row)
        raise LaunchError(
            f"{self.who} yields more than {max_ops} ops, the limit of a role of one CTA: end its loops, or raise max_ops"
        )

    def _encode(self, op: Any) -> Token | None:
        encode = ENCODERS.get(type(op))
        if encode is None:
            raise LaunchError(f"{self.who} yields {short(op)}, wants an op of the vocabulary")
        key, checked = key_of(type(op))(op), self.tables.checked_ops  # type: ignore[arg-type]  # a class has a hash
        try:
            is_new = (type(op), key) not in checked
        except TypeError:  # an argument that cannot be hashed
            is_new = True
        try:
            token = encode(self, op)
        except (StructError, TypeError, AttributeError, ValueError) as error:
            check_arguments(self.who, op)
            if not isinstance(error, StructError | TypeError):
                raise
            plain = with_plain_numbers(op)
            if plain is None:
                if isinstance(error, TypeError):
                    raise
                raise not_integer(self.who, op) from None
            try:
                return encode(self, plain)
            except StructError:
                raise not_integer(self.who, op) from None
        if is_new:
            check_arguments(self.who, op)
            checked.add((type(op), key))
        return token


def with_plain_numbers(op: Op) -> Op | None:
    """The op with numpy numbers converted to Python numbers, and integral floats to int. None where nothing changes.

    >>> from gpusim.workload.ops import MbarrierArrive
    >>> with_plain_numbers(MbarrierArrive("full", np.int64(3), 2.0)), with_plain_numbers(MbarrierArrive("full", 3))
    (MbarrierArrive(barrier='full', stage=3, count=2, cta_rank=None), None)
    """
    changed: dict[str, Any] = {}
    for item in fields(op):  # type: ignore[arg-type]  # every op is a dataclass
        given = getattr(op, item.name)
        number = given.item() if isinstance(given, np.generic) else given
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if type(number) is not type(given):
            changed[item.name] = number
    return replace(op, **changed) if changed else None  # type: ignore[type-var]  # as above


class TracedCta(NamedTuple):
    """Programs and panels of one CTA."""

    programs: tuple[int, ...]
    """Index of each role's program."""
    columns: tuple[int, ...]
    """Columns of the panels that the CTA names."""
    panels: list[int]
    """Panels that the CTA names."""


class Tracer:
    """Records CTAs of one launch. Equal programs are kept once."""

    def __init__(self, launch: Launch, *, num_ctas: int, max_ops: int, watched: Watched | None = None) -> None:
        """Begin without recorded CTAs. ``watched`` gets the role that is traced."""
        self.tables = Tables(launch)
        self.programs: Rows[int] = Rows()
        """Token slots of each program, by its records."""
        self.num_ops = 0
        """Ops recorded so far, of all CTAs."""
        self._launch, self._num_ctas, self._max_ops, self._watched = launch, num_ctas, max_ops, watched
        self._known: list[list[Known[bytes]]] = [[Known() for _ in range(launch.cluster_size)] for _ in launch.roles]
        self._of_all_ctas: dict[tuple[int, int], tuple[int, int]] = {}
        """Index and number of ops of a program that is the same in all CTAs, by role and rank."""

    def trace(self, cta_idx: int) -> TracedCta:
        """Record all roles of a CTA. Programs that depend on no CTA are recorded once.

        Raises:
            LaunchError: an op that is refused, a program that is no generator, or one that does not end.
        """
        rank, panels = cta_idx % self._launch.cluster_size, Panels()
        numbers: list[int] = []
        for place, (spec, known) in enumerate(zip(self._launch.roles, self._known, strict=True)):
            found = self._of_all_ctas.get((place, rank))
            if found is None:
                role = RoleTrace(self.tables, spec, panels, known[rank], cta_idx=cta_idx, num_ctas=self._num_ctas)
                if self._watched is not None:
                    self._watched.role = role
                num_ops = role.run(self._max_ops)
                found = self.programs.number(*role.finish()), num_ops
                if not role.is_of_cta:
                    self._of_all_ctas[place, rank] = found
            numbers.append(found[0])
            self.num_ops += found[1]
        return TracedCta(tuple(numbers), tuple(panels.columns), panels.panels)

    @property
    def is_same_for_all(self) -> bool:
        """Whether the programs of all CTAs are known: no role has looked at its CTA."""
        return len(self._of_all_ctas) == len(self._launch.roles) * self._launch.cluster_size
