"""Workers that run a sweep's simulations: this process, several processes, or a dask cluster.

In: a number of processes, or the address of a cluster. Out: :class:`Workers`, whose executor takes simulations.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

from gpusim.errors import ConfigError, SimulationError
from gpusim.simulate.wasm_module import MODULE

ENDED = SimulationError("a process was ended from outside (out of memory?); use fewer --jobs")

MANY, CHUNK = 1000, 100
"""Number of short simulations beyond which processes share them, and simulations per message."""

CONNECT_S = 10.0
"""Seconds within which a cluster's scheduler must answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Processes or threads that run simulations."""

    executor: Executor
    num: int
    """Number of simulations that run at once."""
    num_asked: int
    """Number of simulations that may be submitted and unfinished: twice ``num``, so that no worker runs idle."""
    mapped: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] = map
    """Function that does the same as ``map``, for many short simulations."""
    drop: Callable[[], None] = lambda: None
    """Function that ends all running simulations."""
    lost: tuple[type[Exception], ...] = ()
    """Exceptions of a simulation that has ended several workers."""

    def answer(self, future: Future[Any]) -> Any:
        """Result of a simulation, or a sentence where its workers were lost.

        Raises:
            SimulationError: a process was ended from outside.
            ConfigError: the cluster is gone.
        """
        try:
            return future.result()
        except self.lost as error:
            return f"workers that simulated it were lost: {' '.join(str(error).split())}"
        except BrokenExecutor:
            raise ENDED from None
        except CancelledError:
            raise ConfigError("--dask: the scheduler is gone; what was known then is lost, start anew") from None


class Here(Executor):
    """Executor that runs a simulation in this process, when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` at once; the returned future is done."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


HERE = Workers(executor=Here(), num=1, num_asked=1)
"""Workers that consist of this process alone."""


@contextmanager
def workers_of(jobs: int, dask: str | None) -> Iterator[Workers]:
    """``jobs`` processes of this machine, or the workers of a dask scheduler at the address ``dask``.

    Raises:
        ConfigError: no such cluster, or a cluster that cannot run simulations.
    """
    if dask is not None:
        with _cluster(dask) as workers:
            yield workers
        return
    if jobs == 1:
        yield HERE
        return

    def mapped(ask: Callable[[Any], Any], inputs_given: Iterable[Any]) -> Iterator[Any]:
        inputs = list(inputs_given)
        try:
            yield from pool.map(ask, inputs, chunksize=CHUNK) if len(inputs) > MANY else map(ask, inputs)
        except BrokenExecutor:
            raise ENDED from None

    with processes(jobs) as (pool, drop):
        yield Workers(executor=pool, num=jobs, num_asked=2 * jobs, mapped=mapped, drop=drop)


@contextmanager
def processes(
    num: int, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[tuple[ProcessPoolExecutor, Callable[[], None]]]:
    """``num`` processes, and a function that ends them at once.

    Ctrl-C reaches the calling process alone, not the processes.
    """
    before = set(multiprocessing.active_children())

    def drop() -> None:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()

    context = multiprocessing.get_context("spawn")
    with _Pool(num, mp_context=context, initializer=_begin, initargs=(initializer, initargs)) as pool:
        try:
            for _ in range(num):  # each call starts a process
                pool.submit(_nothing)
            yield pool, drop
        except BaseException:  # nobody waits for simulations under way
            drop()
            raise


class _Pool(ProcessPoolExecutor):
    """Processes that never receive Ctrl-C, whichever call starts them."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call, which may start a process."""
        with deaf_to_ctrl_c():
            return super().submit(fn, *args, **kwargs)


def _begin(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
    """Begin as a process of a pool: it ends with its parent, whatever it is doing."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _cluster(address: str) -> Iterator[Workers]:
    """Workers of a dask cluster. Its scheduler gives the simulations of a lost worker to another one.

    Raises:
        ConfigError: no cluster at the address, or a cluster that cannot run simulations.
    """
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise ConfigError("--dask: the package distributed is not installed; use pip install 'gpusim[cluster]'") from None
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(
            f"--dask {address}: no scheduler answers ({str(error).splitlines()[0]}); wants the address that dask scheduler "
            "prints (tcp://127.0.0.1:8786)"
        ) from None
    with client:
        num = sum(client.nthreads().values())
        if not num:
            raise ConfigError(f"--dask {address}: the cluster has no workers; use dask worker {address}")
        try:
            engines = set(client.run(_engine_hash).values())
        except ImportError:
            raise ConfigError(f"--dask {address}: a worker has no gpusim; install the same version there") from None
        if engines != {_engine_hash()}:
            raise ConfigError(f"--dask {address}: a worker has another version of gpusim; install the same one there")
        executor = client.get_executor(pure=False)
        yield Workers(
            executor=executor, num=num, num_asked=2 * num, drop=lambda: executor.shutdown(wait=False), lost=(KilledWorker,)
        )


def _engine_hash() -> str:
    """Hash of the engine's module. Equal modules give equal results."""
    return hashlib.sha256(MODULE.read_bytes()).hexdigest()


def _nothing() -> None:
    """Do nothing: the first call of each process, which starts it."""


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Block SIGINT, so that processes started meanwhile never receive Ctrl-C. It is meant for the calling process."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # otherwise starting a process does so, and then unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
