"""What today's Python engine says of a launch when every event is simulated, to the last bit.

Nothing is skipped, all SMs are simulated, none stands for another, none is recorded, and the clock is given. An engine in
another language is held to these answers.

``python -m tests.engine.oracle NAME`` prints the answer for a launch of ``launches.py`` as JSON; ``--trace FILE`` writes
the cycle after each advance of the agenda as float64, little endian, for finding the first that differs.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gpusim.errors import DeadlockError, GpusimError
from gpusim.machine.config import GpuSpec
from gpusim.program.records import COUNTERS
from gpusim.simulate.engine import Engine
from gpusim.simulate.ideal import idealize
from gpusim.units import Clock
from gpusim.workload.launch import Launch

L2State = Literal["cold", "warm", "flushed"]

NO_SM = frozenset({-1})
"""As SMs that are recorded: then none stands for others, and none is recorded, which costs time and rounds otherwise."""

FNV_BASIS, FNV_PRIME, WORD = 1469598103934665603, 1099511628211, (1 << 64) - 1
"""Of the hash of a trace, which takes a float64 a step as one word."""


def trace_hash(cycles: Sequence[float]) -> int:
    """FNV-1a, by float64 instead of by byte.

    >>> hex(trace_hash([])), hex(trace_hash([1.0]))
    ('0x14650fb0739d0383', '0xab4d2bd473ccf799')
    """
    found = FNV_BASIS
    for bits in struct.unpack(f"<{len(cycles)}Q", struct.pack(f"<{len(cycles)}d", *cycles)):
        found = (found ^ bits) * FNV_PRIME & WORD
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one launch comes to, or how it fails."""

    cycles: float = 0.0
    num_events: int = 0
    num_advances: int = 0
    """Of the agenda, one that finds nothing to ring yet among them."""
    trace_hash: str = ""
    """Of the present after each of them."""
    totals: dict[str, float] = field(default_factory=dict)
    counters: dict[str, dict[str, float]] = field(default_factory=dict)
    role_totals: dict[str, list[float]] = field(default_factory=dict)
    epilogue_cycles: dict[str, float] = field(default_factory=dict)
    sm_totals: dict[str, list[float]] = field(default_factory=dict)
    """Of each SM, for what there is of it."""
    ideals_met: list[str] = field(default_factory=list)
    """Of what can be made free, what the launch was found to have."""
    error: dict[str, str] = field(default_factory=dict)
    """Type and sentence."""
    following: list[dict[str, Any]] = field(default_factory=list)
    """What is frozen of kernels that the call launches afterwards."""

    def as_dict(self) -> dict[str, Any]:
        """Plain."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def frozen(self) -> dict[str, Any]:
        """What is kept of it: cycles, events and trace to the last bit, the rest by a digest of ten digits."""
        if self.error:
            return {"error": self.error["type"], "sentence": self.error["sentence"]}
        rest = {
            "totals": self.totals, "counters": self.counters, "role_totals": self.role_totals,
            "epilogue_cycles": self.epilogue_cycles, "sm_totals": self.sm_totals, "ideals_met": self.ideals_met,
            "following": self.following,
        }
        text = json.dumps(_rounded(rest), sort_keys=True)
        return {
            "cycles": self.cycles, "num_events": self.num_events, "trace_hash": self.trace_hash,
            "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        }


def _rounded(value: Any) -> Any:
    """Numbers by ten digits and six decimals: sums that were taken in another order are the same.

    >>> _rounded({"a": [1, 1e9 / 3, 1e-12], "b": "text"})
    {'a': ['1', '333333333.3', '0'], 'b': 'text'}
    """
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return f"{round(float(value), 6) + 0.0:.10g}" if isinstance(value, int | float) else value


def answer(
    launch: Launch, gpu: GpuSpec, *, mhz: float, l2: L2State = "cold", ideals: Collection[str] = (),
    trace: array[float] | None = None,
) -> Answer:
    """Simulate a launch and those that follow it; ``trace`` takes the cycles of the first."""
    chosen = frozenset(ideals)
    free = idealize(gpu, chosen)
    cycles = array("d") if trace is None else trace
    first = _answer(launch, free, mhz, l2, chosen, cycles)
    if first.error or not launch.following:
        return first
    others = [
        _answer(other, free, mhz, "flushed" if l2 == "flushed" else "warm", chosen, array("d")) for other in launch.following
    ]
    return replace(first, following=[other.frozen() for other in others])


def _answer(
    launch: Launch, gpu: GpuSpec, mhz: float, l2: L2State, ideals: frozenset[str], cycles: array[float]
) -> Answer:
    """Of one launch; ``cycles`` takes the present after each advance."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        engine = Engine(
            launch, gpu, clock=Clock(sm_mhz=mhz), is_warm=l2 == "warm", is_flushed=l2 == "flushed", skips=False,
            ideals=ideals, recorded_sms=NO_SM,
        )
        run_noted(engine, cycles)
    except GpusimError as error:
        return Answer(error={"type": type(error).__name__, "sentence": str(error)})
    finally:
        if was_enabled:
            gc.enable()
    found = _of_run(engine, cycles)
    engine.forget()
    return found


def run_noted(engine: Engine, cycles: array[float]) -> None:
    """``engine.run()``, that notes the present after each advance of the agenda.

    Raises:
        DeadlockError: roles wait for what never comes.
        HazardError: a stage is overwritten while read, or read before it is full.
    """
    agenda, note = engine.agenda, cycles.append
    engine._start_first_wave()
    while not engine._is_over:
        if not agenda.advance():
            raise DeadlockError(engine._who_waits())
        note(agenda.cycle)
    engine.op_costs.settle()
    engine.steady.settle_requests()
    engine.machine.xbar.settle()


def _of_run(engine: Engine, cycles: array[float]) -> Answer:
    machine = engine.machine
    of_parts = dict(zip(COUNTERS, machine.counters, strict=True))
    return Answer(
        cycles=engine.end_cycle, num_events=engine.num_events, num_advances=len(cycles),
        trace_hash=f"{trace_hash(cycles):016x}",
        totals={
            "last_exit_cycle": engine.last_exit, "exit_cycles": engine.exit_cycles, "copy_cycles": engine.copy_cycles,
            "num_copies": engine.num_copies, "link_busy_cycles": machine.l2.link_busy_cycles,
        },
        counters={part: {name: getattr(of_parts[part], name) for name in names} for part, names in COUNTERS.items()},
        role_totals=engine.role_totals, epilogue_cycles=engine.epilogue_cycles,
        sm_totals={
            "active_cycles": [sm.active_cycles for sm in machine.sms],
            "fma_busy_cycles": [sm.warp_scheduler.fma_pipe.busy_cycles for sm in machine.sms],
            "issue_busy_cycles": [sm.warp_scheduler.issue_slots.busy_cycles for sm in machine.sms],
            "smem_busy_cycles": [sm.smem.data.busy_cycles for sm in machine.sms],
            "lsu_busy_cycles": [sm.l1.unit.busy_cycles for sm in machine.sms],
            "tma_busy_cycles": [0.0 if sm.tma is None else sm.tma.engine.busy_cycles for sm in machine.sms],
        },
        ideals_met=sorted(engine.met),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    from .launches import CASES

    parser = argparse.ArgumentParser(prog="python -m tests.engine.oracle", description=__doc__)
    parser.add_argument("name", choices=sorted(CASES), metavar="NAME", help="of a launch in launches.py, or 'list'")
    parser.add_argument("--trace", type=Path, help="where the cycle after each advance goes, float64 each")
    given = parser.parse_args(arguments)
    cycles = array("d")
    found = CASES[given.name].answer(trace=cycles)
    json.dump(found.as_dict(), sys.stdout, indent=1)
    sys.stdout.write("\n")
    if given.trace is not None:
        given.trace.write_bytes(struct.pack(f"<{len(cycles)}d", *cycles))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
