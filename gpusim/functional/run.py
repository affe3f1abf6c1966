"""Functional runs: the bytes that a launch moves and multiplies, without time.

In: a launch whose ops have data accesses, and arrays. Out: arrays.

Models:

* All CTAs at once. A role runs until it waits. Copies arrive when all roles wait, as late as possible.
* With a seed: roles take turns at random, and copies arrive at random.

Ignores: time; fences and proxies; order of loads that no barrier orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from random import Random
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpusim.errors import DataError, DeadlockError, LaunchError
from gpusim.functional.barriers import MbarrierState, ThreadBarrier
from gpusim.functional.explain import Watch
from gpusim.functional.instructions import carry_out
from gpusim.functional.memory import GlobalTensor, SharedMemory
from gpusim.functional.role import Delivery, Role
from gpusim.workload.launch import Launch, WarpRole

MOST_OPS = 10_000_000
MOST_OPS_AT_ONCE = 8
"""Maximum number of ops that a role runs between two choices of a seeded run."""
CLUSTERS = 2
"""Clusters of a persistent grid, unless a number of CTAs is given."""


class Cta:
    """A CTA that runs: shared memory, barriers and roles. Implements ``role.CtaState``."""

    def __init__(
        self, launch: Launch, index: int, num_ctas: int, tensors: dict[str, GlobalTensor], watch: Watch | None
    ) -> None:
        """The CTA before its roles begin."""
        self.index, self.rank, self.num_ctas = index, index % launch.cluster_size, num_ctas
        self.tensors, self.watch = tensors, watch
        self.memory = SharedMemory(launch, is_explained=watch is not None)
        self.mbarriers = {
            (ring.name, stage): MbarrierState(f"{ring.name}[{stage}] of CTA {index}", ring.num_arrivals)
            for ring in launch.mbarriers for stage in range(ring.num_stages)
        }  # fmt: skip
        named = launch.named_barriers
        self.barriers = {item.name: ThreadBarrier(f"barrier {item.name!r}", item.num_threads) for item in named}
        self.barriers["__syncthreads"] = ThreadBarrier(f"__syncthreads of CTA {index}", launch.num_threads)
        self.peers: list[Any] = []
        self.in_flight: list[Delivery] = []


class RoleView:
    """What a role's program sees. Implements ``workload.launch.RoleContext``."""

    def __init__(self, cta: Cta) -> None:
        """The view of a role of ``cta``."""
        self.cta_idx, self.num_ctas, self.cta_rank = cta.index, cta.num_ctas, cta.rank

    @property
    def t(self) -> NoReturn:
        """Refused: functional runs have no clock. Raises LaunchError: always."""
        raise LaunchError("a program reads cta.t: functional runs know no time")

    def loop(self, num_iterations: int) -> Iterator[int]:
        """Integers from 0 to ``num_iterations`` - 1."""
        return iter(range(ceil(num_iterations)))

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        """Work tiles of a persistent CTA as (turn, tile)."""
        turn = first
        while (tile := self.cta_idx + turn * self.num_ctas) < num_tiles:
            yield turn, tile
            turn += step


class Grid:
    """All CTAs of a launch, and the choice of the role that runs next."""

    def __init__(
        self, launch: Launch, num_ctas: int, tensors: dict[str, GlobalTensor], random: Random | None, watch: Watch | None
    ) -> None:
        """The grid before its first op."""
        self._launch, self._random = launch, random
        ctas = [Cta(launch, index, num_ctas, tensors, watch) for index in range(num_ctas)]
        self._in_flight: list[Delivery] = []
        self._roles: list[tuple[Role, Any]] = []
        for cta in ctas:
            size = launch.cluster_size
            cta.peers, cta.in_flight = ctas[cta.index // size * size :][:size], self._in_flight
            first = ctas[cta.index // size * size]
            if cta is first:
                name = f"the barrier of cluster {cta.index // size}"
                cta.barriers["cluster"] = ThreadBarrier(name, size * launch.num_threads)
            cta.barriers["cluster"] = first.barriers["cluster"]
            for spec in launch.roles:
                self._roles.append((Role(cta, spec, launch.kernel), self._program(spec, cta)))

    def _program(self, spec: WarpRole, cta: Cta) -> Any:
        return spec.program(RoleView(cta))

    def run(self) -> None:
        """Run all roles to their ends.

        Raises:
            DeadlockError: all roles wait, and nothing is in flight.
            DataError: an op that cannot be carried out.
        """
        waiting = list(self._roles)
        while waiting:
            runnable = [pair for pair in waiting if pair[0].is_ready()]
            if self._random is not None and self._in_flight and (not runnable or self._random.random() < 0.5):
                self._deliver(self._random.randrange(len(self._in_flight)))
                continue
            if not runnable:
                self._deliver_oldest(waiting)
                continue
            chosen = runnable if self._random is None else [self._random.choice(runnable)]
            for role, program in chosen:
                if not self._advance(role, program):
                    waiting.remove((role, program))
        for delivery in self._in_flight:
            delivery.happen()

    def _advance(self, role: Role, program: Any) -> bool:
        """Run a role until it waits, or a few ops of a seeded run. Returns whether it has not ended."""
        left = MOST_OPS if self._random is None else self._random.randint(1, MOST_OPS_AT_ONCE)
        while left:
            try:
                op = role.next_op(program)
            except StopIteration:
                role.finish()
                return False
            if role.cta.watch:
                role.cta.watch.issued(role, op)
            carry_out(role, op)
            left -= 1
            if not role.is_ready():
                return True
        if self._random is None:
            raise LaunchError(f"{role.who} yields more than {MOST_OPS} ops without waiting")
        return True

    def _deliver(self, place: int) -> None:
        self._in_flight.pop(place).happen()

    def _deliver_oldest(self, waiting: list[tuple[Role, Any]]) -> None:
        """Complete the oldest copy that a barrier waits for."""
        self._in_flight[:] = [delivery for delivery in self._in_flight if not delivery.is_done]
        for place, delivery in enumerate(self._in_flight):
            if delivery.signals:
                self._deliver(place)
                return
        role = waiting[0][0]
        others = f"; other roles that wait: {len(waiting) - 1}" if len(waiting) > 1 else ""
        raise DeadlockError(
            f"{role.who} waits for {role.waits_for} after its op {role.num_ops}, and nothing is in flight{others}"
        )


def run_all(
    launch: Launch, tensors: dict[str, GlobalTensor], *, watch: Watch | None, seed: int | None, num_ctas: int | None
) -> None:
    """Run a launch and those that follow it on tensors.

    Raises:
        DataError, DeadlockError: as :func:`run_functional`.
        LaunchError: CTAs that are no full clusters.
    """
    for kernel in (launch, *launch.following):
        size = kernel.cluster_size
        grid = kernel.num_ctas or min(kernel.num_tiles, num_ctas or CLUSTERS * size)
        if grid % size:
            raise LaunchError(f"{kernel.kernel}: {grid} CTAs are no full clusters of {size}: use {-(-grid // size) * size}")
        with np.errstate(all="ignore"):  # as a GPU does
            Grid(kernel, grid, tensors, None if seed is None else Random(seed), watch).run()


def tensors_of(launch: Launch, data: Mapping[str, ArrayLike]) -> dict[str, GlobalTensor]:
    """Tensors of a launch and of those that follow it, with values.

    Raises:
        DataError: values of an unknown tensor.
    """
    declared = (kernel.tensors() if callable(kernel.tensors) else kernel.tensors for kernel in (launch, *launch.following))
    refs = {ref.name: ref for refs_of_kernel in declared for ref in refs_of_kernel}
    unknown = sorted(set(data) - set(refs))
    if unknown:
        raise DataError(f"{launch.kernel} has no tensor {unknown[0]!r}, it declares {', '.join(refs) or 'none'}")
    return {name: GlobalTensor(ref, data.get(name), number) for number, (name, ref) in enumerate(refs.items())}


def results_of(tensors: Mapping[str, GlobalTensor]) -> dict[str, NDArray[Any]]:
    """Values of each tensor that was written."""
    return {name: tensor.values for name, tensor in tensors.items() if tensor.is_written}


def run_functional(
    launch: Launch, data: Mapping[str, ArrayLike], *, seed: int | None = None, num_ctas: int | None = None,
    expected: Mapping[str, ArrayLike] | None = None, tolerance: float = 0.0,
) -> dict[str, NDArray[Any]]:
    """Move and multiply the bytes of a launch. Its ops need data accesses, and it declares its tensors.

    Args:
        launch: the launch; the launches that follow it run afterwards.
        data: values of tensors by name, with the shapes that the launch declares.
        seed: None: roles run in a fixed order, and copies arrive as late as possible. A number: both are drawn at random.
        num_ctas: CTAs of a persistent grid; None: two clusters.
        expected: values of outputs to compare with.
        tolerance: maximum difference from ``expected``.

    Returns:
        Values of each tensor that the launch has written: float32, float64 for fp64, int64 for integers.

    Raises:
        DataError: an op without a data access, an access that does not fit, or a result other than ``expected``. The
            message names the first wrong element and the copy that wrote it.
        DeadlockError: all roles wait, and nothing is in flight.
    """
    tensors = tensors_of(launch, data)
    run_all(launch, tensors, seed=seed, num_ctas=num_ctas, watch=None)
    results = results_of(tensors)
    for name, wanted in (expected or {}).items():
        if name not in results:
            raise DataError(f"{launch.kernel} writes no tensor {name!r}, it writes {', '.join(results) or 'none'}")
        found, values = results[name].astype(np.float64), np.asarray(wanted, dtype=np.float64)
        if values.shape != found.shape:
            raise DataError(f"tensor {name} has shape {found.shape}, expected has {values.shape}")
        is_wrong = ~(np.abs(found - values) <= tolerance)
        if is_wrong.any():
            at = tuple(int(part) for part in np.argwhere(is_wrong)[0])
            _explain(launch, data, name, at, f"is {found[at]:g}, wants {values[at]:g}", seed=seed, num_ctas=num_ctas)
    return results


def _explain(
    launch: Launch, data: Mapping[str, ArrayLike], name: str, at: tuple[int, ...], what: str, **options: int | None
) -> NoReturn:
    """Run again with tags, and raise the error that names the copy of the first wrong element."""
    tensors = tensors_of(launch, data)
    watch = Watch(list(tensors.values()))
    place = f"{name}[{', '.join(map(str, at))}] {what}"
    try:
        run_all(launch, tensors, watch=watch, **options)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None
    raise DataError(f"{place}, {watch.stored(tensors[name], int(tensors[name].positions[at]))}")
