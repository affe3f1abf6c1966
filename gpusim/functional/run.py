"""Functional runs: the bytes that a launch moves and multiplies, without time.

In: a launch whose ops have data accesses, and arrays. Out: arrays.

Models:

* Cluster after cluster: a cluster starts when those before it have ended or wait for it. A role runs until it waits.
* Copies arrive as late as possible: when all roles wait, and one of them waits for the copy.
* With a seed: all CTAs at once. Roles take turns at random, and copies arrive at random.

Ignores: time; fences and proxies; order of loads that no barrier orders; races between warps of one role, which run in step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, inf
from numbers import Integral, Real
from random import Random
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpusim.errors import DataError, DeadlockError, GpusimError, LaunchError
from gpusim.functional.barriers import MbarrierState, ThreadBarrier
from gpusim.functional.explain import Watch
from gpusim.functional.instructions import carry_out
from gpusim.functional.memory import GlobalTensor, SharedMemory, numbers_of
from gpusim.functional.progress import OnProgress, Progress
from gpusim.functional.role import Delivery, Role
from gpusim.workload.launch import Launch
from gpusim.workload.op_arguments import check_arguments
from gpusim.workload.programs import begun, raised_by_program
from gpusim.workload.time_limit import Watched, time_limit

MOST_OPS = 1_000_000
"""Maximum number of ops of a role that never waits."""
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

    def __init__(self, cta: Cta, progress: Progress) -> None:
        """The view of a role of ``cta``."""
        self.cta_idx, self.num_ctas, self.cta_rank, self._progress = cta.index, cta.num_ctas, cta.rank, progress

    @property
    def t(self) -> NoReturn:
        """Refused: functional runs have no clock. Raises LaunchError: always."""
        raise LaunchError("the program reads cta.t: functional runs know no time")

    def loop(self, num_iterations: int) -> Iterator[int]:
        """Integers from 0 to ``num_iterations`` - 1."""
        return iter(range(ceil(num_iterations)))

    def tiles(self, num_tiles: int, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
        """Work tiles of a persistent CTA as (turn, tile)."""
        turn = first
        while (tile := self.cta_idx + turn * self.num_ctas) < num_tiles:
            yield turn, tile
            self._progress.end_turn()
            turn += step


class Grid:
    """All CTAs of a launch, and the choice of the role that runs next."""

    def __init__(
        self, launch: Launch, num_ctas: int, tensors: dict[str, GlobalTensor], random: Random | None, watch: Watch | None,
        on_progress: OnProgress | None,
    ) -> None:
        """The grid before its first op."""
        self._launch, self._num_ctas, self._tensors, self._random, self._watch = launch, num_ctas, tensors, random, watch
        self._in_flight: list[Delivery] = []
        self._waiting: list[tuple[Role, Any]] = []
        self._starts = iter(range(0, num_ctas, launch.cluster_size))
        self._progress = Progress(launch, num_ctas, on_progress)
        self._watched = Watched()

    def _start(self) -> bool:
        """Start the next cluster. Returns whether there was one."""
        first, size = next(self._starts, None), self._launch.cluster_size
        if first is None:
            return False
        ctas = [Cta(self._launch, first + rank, self._num_ctas, self._tensors, self._watch) for rank in range(size)]
        barrier = ThreadBarrier(f"the barrier of cluster {first // size}", size * self._launch.num_threads)
        for cta in ctas:
            cta.peers, cta.in_flight, cta.barriers["cluster"] = ctas, self._in_flight, barrier
            for spec in self._launch.roles:
                role = Role(cta, spec, self._launch.kernel)
                self._waiting.append((role, begun(spec, RoleView(cta, self._progress), role.who)))
        return True

    def run(self) -> None:
        """Run all roles to their ends.

        Raises:
            DeadlockError: all roles wait, and nothing is in flight.
            DataError: an op that cannot be carried out.
            LaunchError: a role has yielded nothing for too long.
        """
        with time_limit() as self._watched:
            self._run()

    def _run(self) -> None:
        while self._random is not None and self._start():
            pass
        while True:
            self._progress.look()
            runnable = [pair for pair in self._waiting if pair[0].is_ready()]
            if self._random is not None and self._in_flight and (not runnable or self._random.random() < 0.5):
                self._deliver(self._random.randrange(len(self._in_flight)))
                continue
            if not runnable:
                if self._deliver_oldest() or self._start():
                    continue
                break
            chosen = runnable if self._random is None else [self._random.choice(runnable)]
            for role, program in chosen:
                if not self._advance(role, program):
                    self._waiting.remove((role, program))
                    self._progress.end_role()
        if self._waiting:
            self._refuse_to_wait()
        for delivery in self._in_flight:
            delivery.happen()

    def _advance(self, role: Role, program: Any) -> bool:
        """Run a role until it waits, or a few ops of a seeded run. Returns whether it has not ended."""
        left = MOST_OPS if self._random is None else self._random.randint(1, MOST_OPS_AT_ONCE)
        while left:
            try:
                self._watched.role = role
                op = role.next_op(program)
                self._watched.role = None
            except StopIteration:
                self._watched.role = None
                role.finish()
                return False
            except (Exception, SystemExit) as error:
                raise _of_role(role, raised_by_program(role.who, role.num_ops, error), "") from error
            try:
                if role.cta.watch:
                    role.cta.watch.issued(role, op)
                carry_out(role, op)
            except GpusimError as error:
                raise _of_role(role, error, f" (op {role.num_ops} of the role)") from error
            except Exception as error:
                check_arguments(role.who, op)
                what = f"{type(op).__name__}, op {role.num_ops}: its data access raises {type(error).__name__}: {error}"
                raise DataError(f"{role.who}: {what}") from error
            left -= 1
            if not role.is_ready():
                return True
        if self._random is None:
            raise LaunchError(f"{role.who} yields more than {MOST_OPS} ops without waiting")
        return True

    def _deliver(self, place: int) -> None:
        self._in_flight.pop(place).happen()

    def _deliver_oldest(self) -> bool:
        """Complete the oldest copy that somebody waits for. Returns whether there is one."""
        self._in_flight[:] = [delivery for delivery in self._in_flight if not delivery.is_done]
        awaited = {id(role.waits_for) for role, _ in self._waiting}
        for place, delivery in enumerate(self._in_flight):
            if delivery.signals is not None and id(delivery.signals) in awaited:
                self._deliver(place)
                return True
        return False

    def _refuse_to_wait(self) -> NoReturn:
        role, others = self._waiting[0][0], len(self._waiting) - 1
        others_too = f"; other roles that wait: {others}" if others else ""
        raise DeadlockError(
            f"{role.who} waits for {role.waits_for} after its op {role.num_ops}, and nothing is in flight{others_too}"
        )


def _of_role(role: Role, error: GpusimError, place: str) -> GpusimError:
    """The refusal with the role and the place of its op, unless it names the role."""
    named = f"role {role.spec.name!r} of CTA {role.cta.index}"
    return error if named in str(error) else type(error)(f"{role.who}: {error}{place}")


def run_all(
    launch: Launch, tensors: dict[str, GlobalTensor], *, watch: Watch | None, seed: int | None = None,
    num_ctas: int | None = None, on_progress: OnProgress | None = None,
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
            Grid(kernel, grid, tensors, None if seed is None else Random(seed), watch, on_progress).run()


def tensors_of(launch: Launch, data: Mapping[str, ArrayLike]) -> dict[str, GlobalTensor]:
    """Tensors of a launch and of those that follow it, with values.

    Raises:
        DataError: values of an unknown tensor.
    """
    if not isinstance(data, Mapping):
        raise DataError(f"data is a {type(data).__name__}, wants arrays by the names of tensors: {{'A': a}}")
    declared = (kernel.tensors() if callable(kernel.tensors) else kernel.tensors for kernel in (launch, *launch.following))
    refs = {ref.name: ref for refs_of_kernel in declared for ref in refs_of_kernel}
    unknown = sorted(map(str, set(data) - set(refs)))
    if unknown:
        raise DataError(f"{launch.kernel} has no tensor {unknown[0]!r}, it declares {', '.join(refs) or 'none'}")
    return {name: GlobalTensor(ref, data.get(name), number) for number, (name, ref) in enumerate(refs.items())}


def results_of(tensors: Mapping[str, GlobalTensor]) -> dict[str, NDArray[Any]]:
    """Values of each tensor that was written."""
    return {name: tensor.values for name, tensor in tensors.items() if tensor.is_written}


def run_functional(
    launch: Launch, data: Mapping[str, ArrayLike], *, seed: int | None = None, num_ctas: int | None = None,
    expected: Mapping[str, ArrayLike] | None = None, tolerance: float = 0.0, on_progress: OnProgress | None = None,
) -> dict[str, NDArray[Any]]:
    """Move and multiply the bytes of a launch. Its ops need data accesses, and it declares its tensors.

    Args:
        launch: the launch; the launches that follow it run afterwards.
        data: values of tensors by name, with the shapes that the launch declares.
        seed: None: roles run in a fixed order, and copies arrive as late as possible. A number: both are drawn at random.
        num_ctas: CTAs of a persistent grid; None: two clusters.
        expected: values of outputs to compare with.
        tolerance: maximum difference from ``expected``.
        on_progress: called during a run of more than a second with CTAs that have ended, CTAs in all, and the seconds
            that are left. Without it a run of more than 10 seconds gives a warning with these at its begin.

    Returns:
        Values of each tensor that the launch has written: float32, float64 for fp64, int64 for integers.

    Raises:
        DataError: an op without a data access, an access that does not fit, or a result other than ``expected``. The
            message names the first wrong element and the copy that wrote it.
        DeadlockError: all roles wait, and nothing is in flight.
        LaunchError: an argument has none of the values above, or a role's program raises an error.
    """
    if not isinstance(launch, Launch):
        raise LaunchError(f"run_functional: got a {type(launch).__name__}, wants a Launch, for example params.launch(gpu)")
    _check_integer("seed", seed, 0)
    _check_integer("num_ctas", num_ctas, 1)
    if not (isinstance(tolerance, Real) and 0 <= tolerance < inf):
        raise LaunchError(f"tolerance is {tolerance!r}, wants a finite number of 0 or more")
    tensors = tensors_of(launch, data)
    options = {"seed": seed, "num_ctas": num_ctas, "on_progress": on_progress}
    run_all(launch, tensors, watch=None, **options)
    results = results_of(tensors)
    for name, wanted in (expected or {}).items():
        if name not in results:
            raise DataError(f"{launch.kernel} writes no tensor {name!r}, it writes {', '.join(results) or 'none'}")
        found, values = results[name].astype(np.float64), numbers_of(f"expected {name}", wanted).astype(np.float64)
        if values.shape != found.shape:
            raise DataError(f"tensor {name} has shape {found.shape}, expected has {values.shape}")
        is_wrong = ~(np.abs(found - values) <= tolerance)
        if is_wrong.any():
            at = tuple(int(part) for part in np.argwhere(is_wrong)[0])
            _explain(launch, data, name, at, f"is {found[at]:g}, wants {values[at]:g}", **options)
    return results


def _check_integer(name: str, value: object, least: int) -> None:
    if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < least):
        raise LaunchError(f"{name} is {value!r}, wants an integer of {least} or more, or None")


def _explain(
    launch: Launch, data: Mapping[str, ArrayLike], name: str, at: tuple[int, ...], what: str, **options: Any
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
