"""What waits behind loads from shared memory whose banks conflict, and for how long?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, WarpRole, simulate
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Group, Input, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern

ROUNDS, WARM_ROUNDS, WARPS = 12, 4, 12
NUMS, WAYS, DELAYS = (1, 2, 4, 8, 16), (2, 8, 32), (40, 160)
PROBES = {
    "none": "kNone", "load": "kLoadAround", "hit": "kLoadHit", "store": "kStore", "shared_load": "kSharedLoad",
    "shared_store": "kSharedStore", "copy": "kCopy", "copy_through": "kCopyThrough",
}  # fmt: skip
AHEAD = {
    "same": (0,), "same_two": (0, 4), "other": (1,), "other_two": (1, 5), "each": (0, 1, 2, 3), "each_two": tuple(range(8)),
}  # fmt: skip
"""Warps that load, by where they stand to the prober: warps w and w + 4 share a sub-core."""
PROBER = 8
ANSWERED = ("load", "hit", "shared_load", "copy", "copy_through")
"""Probes that the twin answers: of stores nobody sees when they are there."""
LINE_WORDS = 128


def entry(probe: str, num: int) -> str:
    """The kernel of a probe behind so many loads a warp."""
    return f"{probe}_n{num}"


def includes() -> dict[str, str]:
    """``probes.inc``: an entry point for each probe and number of loads."""
    kinds = product(PROBES, (0, *NUMS))
    return {"probes.inc": "".join(f"PROBE({entry(probe, num)}, {PROBES[probe]}, {num})\n" for probe, num in kinds)}


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    probe: str
    num: int
    ways: int
    ahead: str
    delay: int

    @property
    def kernel(self) -> str:
        """The entry point."""
        return entry(self.probe, self.num)


def configs() -> list[Row]:
    """Each probe alone, loads alone, and each probe behind all loads, soon and late."""
    probes = [probe for probe in PROBES if probe != "none"]
    alone = Row.sweep(probe=probes, num=0, ways=WAYS[0], ahead="same", delay=DELAYS[0])
    loads = Row.sweep(probe="none", num=NUMS, ways=WAYS, ahead=AHEAD, delay=DELAYS[0])
    return alone + loads + Row.sweep(probe=probes, num=NUMS, ways=WAYS, ahead=AHEAD, delay=DELAYS)


@cache
def lines() -> NDArray[np.uint32]:
    """What is loaded; uint32[rounds, words]."""
    return read_only(np.random.default_rng(8).integers(1, 1 << 32, (ROUNDS, LINE_WORDS), dtype="<u4"))


def sums(config: Row) -> NDArray[np.int64]:
    """What each thread adds up, modulo 2 to the 32; int64[warps, 32]."""
    num, probe = config.num, config.probe
    lane, found = np.arange(32), np.zeros((WARPS, 32), dtype=np.int64)
    near = (lane[None] * config.ways + np.arange(num)[:, None]).sum(axis=0) if num else np.zeros(32, dtype=np.int64)
    for warp in AHEAD[config.ahead]:
        found[warp] = ROUNDS * near
    got = np.zeros(32, dtype=np.int64)
    if probe == "load":
        got = lines()[:, :32].astype(np.int64).sum(axis=0)
    elif probe == "hit":
        got = ROUNDS * lines()[0, :32].astype(np.int64)
    elif probe == "shared_store":
        got = np.full(32, ROUNDS - 1, dtype=np.int64)
    elif probe == "copy":
        got = lines()[ROUNDS - 1, :32].astype(np.int64)
    elif probe == "copy_through":  # a word to each 16 bytes
        got = np.where(lane % 4 == 0, lines()[ROUNDS - 1, lane // 4].astype(np.int64), 0)
    found[PROBER] = got
    return found % (1 << 32)


def launch(config: Row) -> KernelLaunch:
    """One CTA."""
    ahead = sum(1 << warp for warp in AHEAD[config.ahead])
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array([config.ways, ahead, PROBER, config.delay], dtype="<u4")), Input(lines()),
            Output("stored", np.zeros(32, dtype="<u4")),
            Output("clocks", np.zeros((ROUNDS, WARPS, 3), dtype="<u4")), Output("sums", np.zeros((WARPS, 32), dtype="<u4")),
        ),
        block=(32 * WARPS, 1, 1),
    )  # fmt: skip


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles, if sums are right and what was stored is there."""
    wrong_if((outputs["sums"].reshape(WARPS, 32).astype(np.int64) != sums(config)).any(), "what was loaded does not add up")
    wanted = ROUNDS - 1 if config.probe == "store" else 0
    wrong_if((outputs["stored"] != wanted).any(), "what was stored is not there")
    clocks = outputs["clocks"].reshape(ROUNDS, WARPS, 3).astype(np.int64)[WARM_ROUNDS:]
    ahead, prober = clocks[:, list(AHEAD[config.ahead])], clocks[:, PROBER]
    begun = ahead[:, :, 0].min(axis=1)
    found: dict[str, Any] = {}
    if config.num:
        found["issued_cycles"] = ahead[:, :, 1].max(axis=1) - begun
        found["first_cycles"] = ahead[:, :, 2].min(axis=1) - begun
        found["last_cycles"] = ahead[:, :, 2].max(axis=1) - begun
    if config.probe != "none":
        found["probe_delay_cycles"] = prober[:, 0] - begun if config.num else np.zeros(1)
        found["probe_issued_cycles"] = prober[:, 1] - prober[:, 0]
        found["probe_cycles"] = prober[:, 2] - prober[:, 0]
    if any((cycles < 0).any() or (cycles > 1 << 20).any() for cycles in found.values()):
        raise WrongAnswer("the clock says that a round took less than no time")
    return {name: float(np.median(cycles)) for name, cycles in found.items()}


# ---------------------------------------------------------------------------------------------- the simulator's answer

LEAD_ALU, ALU_CYCLES = 100, 4.0
"""Chained integer instructions from the meeting to the begin, and what each takes."""
CLOCK_CYCLES = {
    "load": 2.0, "hit": 2.0, "store": 4.0, "shared_load": 2.0, "shared_store": 4.0, "copy": 2.0,
    "copy_through": 2.0,
}  # fmt: skip
"""Between the clock before an instruction and the instruction. Source: SASS of nvcc 13.0, stalls."""


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """One round out of L2, each warp a role; the prober begins as late as its delay says."""
    num, ways, probe = config.num, config.ways, config.probe
    near = AccessPattern(num_requests=num, num_wavefronts=ways * num, num_bytes=128 * num)
    one = AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=128)
    line = AccessPattern(num_requests=1, num_sectors=4, num_lines=1, num_wavefronts=1, num_bytes=128)
    through = AccessPattern(num_requests=1, num_sectors=4, num_lines=1, num_wavefronts=4, num_bytes=128)
    copied = AccessPattern(num_requests=1, num_sectors=16, num_lines=4, num_wavefronts=4, num_bytes=512)

    def ahead(_cta: RoleContext) -> Iterator[Any]:
        yield ops.Syncthreads()
        yield ops.Alu(LEAD_ALU, is_chain=True)
        yield ops.RangeStart(ops.Section.MAINLOOP)
        yield ops.Use((yield ops.SharedLoad(near)))
        yield ops.RangeEnd()

    def prober(_cta: RoleContext) -> Iterator[Any]:
        if probe == "hit":
            yield ops.Use((yield ops.GlobalLoad("lines", (0, 0), line)))
        yield ops.Syncthreads()
        yield ops.Alu(LEAD_ALU + config.delay / ALU_CYCLES, is_chain=True)
        yield ops.RangeStart(ops.Section.MAINLOOP)
        token: Any = None
        if probe == "load":
            token = yield ops.GlobalLoad("lines", (0, 0), line, allocates_in_l1=False)
        elif probe == "hit":
            token = yield ops.GlobalLoad("lines", (0, 0), line)
        elif probe == "shared_load":
            token = yield ops.SharedLoad(one)
        elif probe == "copy":
            yield ops.CpAsync("lines", (0, 0), copied, "copied", 0, num_rows=4)
        elif probe == "copy_through":
            yield ops.CpAsync("lines", (0, 0), through, "copied", 0, allocates_in_l1=True)
        if probe.startswith("copy"):
            yield ops.CpAsyncCommitGroup()
            yield ops.CpAsyncWaitGroup(0)
        if token is not None:
            yield ops.Use(token)
        yield ops.RangeEnd()

    probers = {} if probe == "none" else {"prober": prober}
    roles = {f"ahead{warp}": ahead for warp in AHEAD[config.ahead] if num} | probers
    launched = Launch(
        kernel="behind_conflicts", num_ctas=1, num_tiles=1, extra_smem_bytes=8192,
        roles=tuple(WarpRole(name=name, num_warps=1, program=program) for name, program in roles.items()),
        buffers=(Buffer(name="copied", stage_bytes=512, num_stages=1),),
    )  # fmt: skip
    result = simulate(launched, gpu, clock="max", l2="warm", recorded_sms="first")
    spans = {role.role: span for role in result.timeline.roles for span in role.sections}
    found: dict[str, float] = {}
    if probe in ANSWERED:
        found["probe_cycles"] = spans["prober"].end_cycle - spans["prober"].start_cycle + CLOCK_CYCLES[probe]
    if num:
        loads = [span for name, span in spans.items() if name != "prober"]
        begun, there = min(span.start_cycle for span in loads), [span.end_cycle for span in loads]
        found |= {"first_cycles": min(there) - begun, "last_cycles": max(there) - begun}
    return found


CASE = Case(
    name="behind_conflicts",
    question="What waits behind loads from shared memory whose banks conflict, and for how long?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, includes=includes,
    groups={"probes": Group(configs=configs, rank=2)},
    values={
        "issued_cycles": "SM cycles from the first load's begin until all warps ahead have issued their last",
        "first_cycles": "the same until the first warp ahead has what it loads",
        "last_cycles": "the same until the last has",
        "probe_delay_cycles": "the same until the prober's begin",
        "probe_issued_cycles": "SM cycles from the prober's begin until it has issued its instruction",
        "probe_cycles": "the same until what it asked for is there",
    },
    tiers=dict.fromkeys(("first_cycles", "last_cycles", "probe_cycles"), 4),
)  # fmt: skip
