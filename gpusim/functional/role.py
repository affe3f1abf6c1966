"""State of one role of a CTA: registers, asynchronous ops in flight, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from gpusim.errors import DataError
from gpusim.functional.barriers import MbarrierState, ThreadBarrier
from gpusim.functional.explain import Watch
from gpusim.functional.memory import Array, GlobalTensor, SharedMemory
from gpusim.functional.mma import to_matrices
from gpusim.workload.atoms import MmaAtom
from gpusim.workload.data_access import DataAccess, Registers
from gpusim.workload.launch import WarpRole
from gpusim.workload.token import Token


class Delivery:
    """The effect of an asynchronous op, which happens once, after those ``before`` it."""

    def __init__(
        self, effect: Callable[[], None], before: tuple[Delivery, ...] = (), *, signals: MbarrierState | None = None
    ) -> None:
        """``signals``: the mbarrier that it completes bytes or arrivals of."""
        self._effect, self._before, self.signals, self.is_done = effect, before, signals, False

    def happen(self) -> None:
        """Carry out the effect, if it has not happened."""
        if not self.is_done:
            self.is_done = True
            for earlier in self._before:
                earlier.happen()
            self._before = ()
            self._effect()


class Groups:
    """Asynchronous ops of a role in groups that it commits and waits for."""

    def __init__(self) -> None:
        """No group yet."""
        self.open: list[Delivery] = []
        self._groups: list[list[Delivery]] = []

    def commit(self) -> None:
        """Close the open group."""
        self._groups.append(self.open)
        self.open = []

    def wait(self, num_pending: int) -> None:
        """Complete all groups except the last ``num_pending``."""
        done = self._groups[: max(0, len(self._groups) - num_pending)]
        del self._groups[: len(done)]
        for delivery in [each for group in done for each in group]:
            delivery.happen()

    def take(self) -> tuple[Delivery, ...]:
        """All of them, which are then no longer part of a group."""
        self.commit()
        taken = tuple(each for group in self._groups for each in group)
        self._groups = []
        return taken

    def finish(self) -> None:
        """Complete all of them."""
        self.commit()
        self.wait(0)


class CtaState(Protocol):
    """What roles of a CTA share."""

    index: int
    rank: int
    memory: SharedMemory
    mbarriers: dict[tuple[str, int], MbarrierState]
    barriers: dict[str, ThreadBarrier]
    peers: list[Any]
    tensors: dict[str, GlobalTensor]
    in_flight: list[Delivery]
    watch: Watch | None


class Role:
    """A role of a CTA that runs: its registers, its groups, and what it waits for."""

    def __init__(self, cta: CtaState, spec: WarpRole, kernel: str) -> None:
        """The role before its first op."""
        self.cta, self.spec, self.kernel, self.num_ops = cta, spec, kernel, 0
        self.who = f"{kernel}: role {spec.name!r} of CTA {cta.index}"
        self.registers: Registers = {}
        self.tags: dict[str, Array] = {}
        self.copies, self.stores, self.math = Groups(), Groups(), Groups()
        self.answer: Token | None = None
        self.is_ready: Callable[[], bool] = bool_true
        self.waits_for: object = ""
        self._loads: dict[Token, tuple[Callable[[], None], Sequence[str]]] = {}
        self._last_wgmma: tuple[Delivery, ...] = ()
        self._cluster_generation = 0

    def next_op(self, program: Any) -> Any:
        """The next op of the role's program, which receives the last op's token. Raises StopIteration: there is none."""
        op = program.send(self.answer) if hasattr(program, "send") else next(program)
        self.answer, self.num_ops, self.is_ready = None, self.num_ops + 1, bool_true
        return op

    def refuse(self, op: Any, why: str) -> NoReturn:
        """Refuse an op."""
        raise DataError(f"{self.who} yields {type(op).__name__} as its op {self.num_ops}, {why}")

    def accesses(self, op: Any, *kinds: type[DataAccess]) -> tuple[Any, ...]:
        """The accesses of an op, of the given kinds.

        Raises:
            DataError: an op without them.
        """
        found = op.data(op) if callable(op.data) else op.data
        if found is None:
            self.refuse(op, "which has no data access: functional runs need one")
        each = found if isinstance(found, tuple) else (found,)
        if not all(isinstance(item, kinds) for item in each):
            self.refuse(op, f"whose data access is no {' or '.join(kind.__name__ for kind in kinds)}")
        return each

    def tensor(self, name: str) -> GlobalTensor:
        """A tensor by its name.

        Raises:
            DataError: the launch declares no such tensor.
        """
        if name not in self.cta.tensors:
            known = ", ".join(self.cta.tensors) or "none"
            raise DataError(f"{self.who} accesses tensor {name!r}, the launch declares {known}")
        return self.cta.tensors[name]

    def named(self, op: Any) -> str:
        """An op in words, with its place."""
        of = f" of {op.tensor}" if hasattr(op, "tensor") else ""
        return f"{type(op).__name__}{of}, op {self.num_ops} of role {self.spec.name!r} of CTA {self.cta.index}"

    def writer(self, op: Any) -> int:
        """Number of an op that writes, if the run is explained."""
        return self.cta.watch.writer(self.named(op)) if self.cta.watch else -1

    def wait(self, is_ready: Callable[[], bool], what: object) -> None:
        """Wait until ``is_ready``."""
        self.is_ready, self.waits_for = is_ready, what

    def give(self, effect: Callable[[], None], registers: Sequence[str] = ()) -> None:
        """Answer with a token, at whose use ``effect`` happens, which sets ``registers``."""
        self.answer = Token()
        self._loads[self.answer] = effect, registers

    def unset(self, name: str) -> str:
        """Why the registers of an op have no values, or too few."""
        if any(name in registers for _, registers in self._loads.values()):
            return f"whose registers {name!r} have been loaded without a Use of the load's token"
        return f"whose registers {name!r} nobody has set"

    def use(self, token: Token) -> None:
        """The first use of a token."""
        self._loads.pop(token, (nothing, ()))[0]()

    def set_registers(self, name: str, first: int, values: Array, tags: Array | None) -> None:
        """Change registers from value ``first`` on."""
        self.registers[name] = _into(self.registers.get(name), first, values)
        if tags is not None:
            width = tags.shape[1] // max(1, values.shape[1])
            self.tags[name] = _into(self.tags.get(name), first * width, tags)

    def sums(self, name: str, atom: MmaAtom, num: int) -> Array:
        """Sums of all fragments as matrices; zeros if there are none yet."""
        values = atom.m * atom.n // atom.num_threads
        if name not in self.registers:
            kind = np.int64 if atom.acc_dtype.kind == "int" else np.float32
            self.registers[name] = np.zeros((self.spec.num_threads, num * values), dtype=kind)
            if self.cta.watch:
                self.cta.watch.begin((self, name))
        return to_matrices(self.registers[name], atom, "c")

    def follow(self, effect: Callable[[], None]) -> Delivery:
        """A wgmma, which completes after the role's earlier ones."""
        delivery = Delivery(effect, self._last_wgmma)
        self._last_wgmma = (delivery,)
        return delivery

    def arrive_at_cluster(self) -> None:
        """Arrive at the cluster's barrier."""
        self._cluster_generation = self.cta.barriers["cluster"].arrive(self.spec.num_threads)

    def wait_for_cluster(self) -> None:
        """Wait for the barrier that the role has arrived at."""
        barrier, waited = self.cta.barriers["cluster"], self._cluster_generation
        self.wait(lambda: barrier.generation >= waited, barrier)

    def finish(self) -> None:
        """Complete what is in flight at the role's end."""
        for groups in (self.copies, self.stores, self.math):
            groups.finish()
        self.cta.barriers["__syncthreads"].leave(self.spec.num_threads)


def bool_true() -> bool:
    """A role that waits for nothing."""
    return True


def nothing() -> None:
    """The effect of an op whose registers need no data."""


def _into(before: Array | None, first: int, values: Array) -> Array:
    end = first + values.shape[1]
    if before is None or before.dtype != values.dtype:
        before = np.zeros((len(values), end), dtype=values.dtype)
    new = np.zeros((len(values), max(end, before.shape[1])), dtype=values.dtype)
    new[:, : before.shape[1]] = before
    new[:, first:end] = values
    return new
