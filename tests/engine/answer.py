"""What the engine says of a launch, to the last bit: cycles, events, a hash of the trace, and a digest of the rest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpusim.errors import GpusimError
from gpusim.machine.config import GpuSpec
from gpusim.machine.counters import COUNTERS
from gpusim.program.records import SM_TOTALS, TOTALS
from gpusim.simulate.engine_run import Ran
from gpusim.simulate.idealize import idealize
from gpusim.simulate.native_run import native_runs
from gpusim.simulate.plan import plan_launch
from gpusim.simulate.settings import IN_L2, L2State, Settings
from gpusim.units import Clock
from gpusim.workload.launch import Launch

KEPT_TOTALS = ("last_exit_cycle", "exit_cycles", "copy_cycles", "num_copies", "link_busy_cycles")
MOST_EVENTS = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one launch comes to, or how it fails."""

    cycles: float = 0.0
    num_events: int = 0
    trace_hash: str = ""
    """FNV-1a of the cycle of each event, a float64 as one word."""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Totals, counters, states of roles, what each SM did, what could be made free, and kernels that follow."""
    error: str = ""
    """Its type; ``sentence`` is what it says."""
    sentence: str = ""

    def frozen(self) -> dict[str, Any]:
        """What is kept of it: cycles, events and trace to the last bit, the rest by a digest of ten digits."""
        if self.error:
            return {"error": self.error, "sentence": self.sentence}
        text = json.dumps(rounded(self.rest), sort_keys=True)
        return {
            "cycles": self.cycles, "num_events": self.num_events, "trace_hash": self.trace_hash,
            "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        }  # fmt: skip


def rounded(value: Any) -> Any:
    """Numbers by ten digits and six decimals: sums that were taken in another order are the same.

    >>> rounded({"a": [1, 1e9 / 3, 1e-12], "b": "text"})
    {'a': ['1', '333333333.3', '0'], 'b': 'text'}
    """
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return f"{round(float(value), 6) + 0.0:.10g}" if isinstance(value, int | float) else value


def answer(launch: Launch, gpu: GpuSpec, *, mhz: float, l2: L2State = "cold", ideals: Collection[str] = ()) -> Answer:
    """Simulate a launch and those that follow it."""
    chosen = frozenset(ideals)
    free = idealize(gpu, chosen)
    behind: L2State = "flushed" if l2 == "flushed" else "stored"
    try:
        first = _answer(launch, free, mhz, l2, chosen)
        others = [_answer(other, free, mhz, behind, chosen) for other in launch.following]
    except GpusimError as error:
        return Answer(error=type(error).__name__, sentence=str(error))
    return replace(first, rest={**first.rest, "following": [other.frozen() for other in others]})


def _answer(launch: Launch, gpu: GpuSpec, mhz: float, l2: L2State, ideals: frozenset[str]) -> Answer:
    plan = plan_launch(launch, gpu, is_warm=l2 in IN_L2)
    ran = native_runs(plan, Settings(l2=l2, ideals=ideals, max_events=MOST_EVENTS))(Clock(sm_mhz=mhz), None)
    totals = dict(zip(TOTALS, ran.results["totals"].tolist(), strict=True))
    return Answer(
        cycles=ran.end_cycle, num_events=ran.num_events,
        trace_hash=f"{int(totals['trace_hash_high']) << 32 | int(totals['trace_hash_low']):016x}",
        rest={
            "totals": {name: totals[name] for name in KEPT_TOTALS}, "counters": _counters(ran),
            "role_totals": {name: list(cycles) for name, cycles in ran.role_totals.items()},
            "epilogue_cycles": dict(ran.epilogue_cycles), "sm_totals": _sm_totals(ran), "ideals_met": sorted(ran.met),
            "following": [],
        },
    )  # fmt: skip


def _counters(ran: Ran) -> dict[str, dict[str, float]]:
    return {part: {name: getattr(getattr(ran.counted, part), name) for name in names} for part, names in COUNTERS.items()}


def _sm_totals(ran: Ran) -> dict[str, list[float]]:
    table = ran.results["sm_totals"].reshape(-1, len(SM_TOTALS))
    return dict(zip(SM_TOTALS, table.T.tolist(), strict=True))
