"""Warp-specialized schedules: one producer warpgroup loads, one to three consumer warpgroups compute."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.mainloop.epilogue import Epilogue
from gpusim.kernel_models.mainloop.instruction_fetch import cold_code
from gpusim.kernel_models.mainloop.loader import Loader
from gpusim.kernel_models.mainloop.operand_data import MathData
from gpusim.kernel_models.mainloop.ring import Ring
from gpusim.kernel_models.mainloop.shape import MAX_STAGES, Coordinates, cached_method
from gpusim.kernel_models.mainloop.tensor_maps import make_tensor_maps, read_pointers
from gpusim.units import DEPENDENT_CYCLES
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.ops import Op


def work(cta: RoleContext, plan: TilePlan, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, Coordinates]]:
    """Iterate over the tiles of a CTA: one, or every ``num_ctas``-th of a persistent grid, as (turn, coordinates)."""
    if plan.config.persistent:
        for turn, tile in cta.tiles(plan.num_tiles, first=first, step=step):
            yield turn, plan.coordinates_of(tile)
    else:
        yield 0, plan.coordinates_of(cta.cta_idx)


def code(num_instructions: float, num_wide: float = 0.0, num_beside: float = 0.0, num_more: float = 0.0) -> list[Op]:
    """Overhead instructions of a kernel: a dependent chain, and IMAD.WIDE, which do not overlap with wgmma.

    Args:
        num_instructions: length of the chain.
        num_wide: IMAD.WIDE of a warp.
        num_beside: equivalent length of the chain while wgmma runs.
        num_more: independent instructions between those of the chain.
    """
    instructions: list[Op] = []
    if num_instructions or num_more:
        instructions.append(ops.Alu(num_instructions, is_chain=True, num_beside=num_beside, num_more=num_more))
    return [*instructions, ops.ImadWide(num_wide, is_interleaved=True)] if num_wide else instructions


def chain(cycles: float) -> float:
    """Number of dependent instructions that take so many cycles."""
    return cycles / DEPENDENT_CYCLES


def own_code(plan: TilePlan) -> float:
    """Overhead instructions of a k-step."""
    return chain(plan.config.compiled_code.mainloop.chain_cycles)


def code_of_place(plan: TilePlan) -> list[Op]:
    """Overhead instructions before a tile, which compute its coordinates."""
    place = plan.config.compiled_code.tile_scheduler
    return code(chain(place.chain_cycles), place.imad_wide, chain(place.chain_during_wgmma_cycles))


BEFORE_MATH, BESIDE_MATH, BEFORE_COPIES = 0.25, 0.2, 0.5
"""Fractions of a k-step's overhead instructions: before the first wgmma, from there to the wait, and before copies (of those
that issue copies). Source: SASS of ``kernels/hopper_gemm`` and ``ring_math``: 16 to 31 %, 14 to 28 %, half."""


PRODUCER_BEFORE_COPIES = 0.37
"""Fraction of a producer's overhead instructions, from try_wait to try_wait, that precede its copies. The loop head is
included. Source: SASS of ``kernels/hopper_gemm`` and ``specialized_steps``: 37 to 39 %."""

LEAST_APART, COLUMNS_APART = 3.0, 32
"""Columns of a wgmma beyond 128 that add one instruction to the chain from one wgmma of a k-step to the next. The chain has
at least ``LEAST_APART`` instructions. Source: SASS of ``kernels/hopper_gemm`` and ``specialized_steps``: 12 cycles, 20 with
192 columns, 28 with 256; in four of 35 loops 20 with fewer. Loops of ``ring_math`` have 7 to 28."""

BEFORE_GIVING_BACK = 0.14
"""Fraction of a k-step's overhead instructions from the wait for wgmma to the arrival that releases a stage. Source: SASS of
``kernels/hopper_gemm`` and ``specialized_steps``: 11 to 17 %, once 27."""


BEFORE_MEETING = 0.7
"""Fraction of a CTA's overhead instructions before its first tile that precede its first barrier. Source: SASS of
``kernels/hopper_gemm``: 63 to 79 %."""


def code_around_meeting(num_instructions: float) -> tuple[list[Op], list[Op]]:
    """Overhead instructions before the first tile: before the first barrier, and of each warp after it.

    Those before it are of the warp that initializes the mbarriers.
    """
    return code(num_instructions * BEFORE_MEETING), code(num_instructions * (1 - BEFORE_MEETING))


def between_wgmma(num_instructions: float, num_issues: int, n: int) -> float:
    """Number of overhead instructions from a k-step's first wgmma, of ``n`` columns, to its last.

    They are part of those that overlap with wgmma.
    """
    return min(num_instructions * BESIDE_MATH, (num_issues - 1) * max(LEAST_APART, n / COLUMNS_APART - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCode:
    """Overhead instructions of a k-step: before its wgmma, between them, from the last to the wait, and after the wait."""

    before: list[Op]
    num_between: float
    beside: list[Op]
    num_behind: float


def code_around_math(num_instructions: float, num_issues: int, n: int, *, least_before: float = 0.0) -> StepCode:
    """Overhead instructions around a warpgroup's ``num_issues`` wgmma of ``n`` columns.

    At least ``least_before`` precede them.
    """
    between = between_wgmma(num_instructions, num_issues, n)
    return StepCode(
        before=code(max(least_before, num_instructions * BEFORE_MATH)), num_between=between,
        beside=code(num_instructions * BESIDE_MATH - between), num_behind=num_instructions * (1 - BEFORE_MATH - BESIDE_MATH),
    )  # fmt: skip


def wgmma_of_step(plan: TilePlan, stage: int, num_between: float, math: MathData | None = None) -> list[Op]:
    """The wgmma of a k-step, as one group. Serialized by the compiler: each is a group that is waited for."""
    partition, operands = plan.config.partition, (("a", stage), ("b", stage))
    num = partition.num_wgmma
    if not plan.config.compiled_code.mainloop.wgmma_serialized:
        data = partial(math.wgmma, stage, None) if math else None
        return [ops.Wgmma(partition.atom, num, operands, num_between, data=data), ops.WgmmaCommitGroup()]
    found: list[Op] = []
    for idx in range(num):
        data = partial(math.wgmma, stage, idx) if math else None
        found += [ops.Wgmma(partition.atom, 1, operands, data=data), ops.WgmmaCommitGroup(), ops.WgmmaWaitGroup(0)]
        found += code(num_between / max(1, num - 1))
    return found


def code_around_copies(
    num_instructions: float, before: float = BEFORE_COPIES, num_more: float = 0.0
) -> tuple[list[Op], list[Op]]:
    """Overhead instructions of copies: the fraction ``before`` precedes them, the rest follows."""
    first, last = (code(num_instructions * share, num_more=num_more * share) for share in (before, 1 - before))
    return first, last


def meet_all(plan: TilePlan) -> list[Op]:
    """Barrier of all threads that share mbarriers: ``__syncthreads``, or the cluster's barrier."""
    if plan.config.num_cluster_ctas > 1:
        fence: list[Op] = [ops.FenceAcqRel()] if plan.config.cluster_sync == "release" else []
        return [*fence, ops.ClusterArrive(), ops.ClusterWait()]
    return [ops.Syncthreads()]


def part_from_peers(plan: TilePlan) -> list[Op]:
    """Barrier at the end of a CTA in a cluster, so that no peer writes to it or arrives on its mbarriers after its exit."""
    return meet_all(plan) if plan.config.num_cluster_ctas > 1 else []


class Producer:
    """The producer role of the warp-specialized schedules.

    It initializes the mbarriers, and all roles meet at a barrier. For each k-step it then waits until the stage is empty,
    announces the bytes (TMA), and copies both operands. It runs ahead of the math by at most as many k-steps as there are
    stages.

    * TMA: one elected lane does all of this. Such a lane polls an empty stage less often than full warps do.
    * cp.async: all threads copy, and arrive when their copies have completed.
    * ``mbarrier_arrive`` "thread" (``cuda::barrier``): this thread also arrives on the empty stage that it waits for.
    """

    def __init__(self, plan: TilePlan, loader: Loader, barriers: tuple[str, ...]) -> None:
        """``barriers``: the mbarrier rings to initialize."""
        config, compiled = plan.config, plan.config.compiled_code
        self.plan = plan
        self.loader = loader
        self.registers = config.setmaxnreg_registers[0]
        self._ring = Ring(config.stages, loader.stage_bytes, polls_by_lane=loader.by_tma)
        before, self._behind_meeting = code_around_meeting(chain(compiled.prologue.chain_cycles))
        self._prologue: list[Op] = [*before, *(ops.MbarrierInit(name) for name in barriers)]
        if config.num_cluster_ctas > 1:
            self._prologue.append(ops.FenceMbarrierInit())
        if loader.by_tma and config.prefetch_tensormap:
            self._prologue.append(ops.PrefetchTensormap(("A", "B")))
        self._maps, self._reads_pointers = make_tensor_maps(config.made_tensor_maps, ()), config.batch_mode == "array"
        self._all_arrive, ring, stages = config.mbarrier_arrive == "thread", self._ring, range(config.stages)
        arrive: list[list[Op]] = [[ops.MbarrierArrive("empty", s)] if self._all_arrive else [] for s in stages]
        if loader.by_tma:
            before_copies, behind_copies = code_around_copies(chain(compiled.producer.chain_cycles), PRODUCER_BEFORE_COPIES)
            self._tile_code, self._behind = code_of_place(plan), [behind_copies for s in stages]
            announce: list[list[Op]] = [[*before_copies, ring.expect[s]] for s in stages]
        else:
            self._tile_code, announce = [], [[] for s in stages]
            self._behind = [[ops.CpAsyncMbarrierArrive("full", s)] for s in stages]
        self._before = [[[*arrive[s], wait, *announce[s]] for wait in ring.wait_empty[s]] for s in stages]
        own = compiled.tile_scheduler.chain_cycles + compiled.prologue.chain_cycles * (1 - BEFORE_MEETING)
        (self._cold_code,) = cold_code("producer", compiled.layout.producer, own)

    def __call__(self, cta: RoleContext) -> Iterator[Op]:
        """The warp program."""
        yield from self._prologue
        yield from meet_all(self.plan)
        if self._reads_pointers and self.loader.by_tma:
            tensors = "".join(self.plan.config.made_tensor_maps)
            yield from read_pointers(self.plan.coordinates_of(cta.cta_idx).batch, tensors)
        yield from self._maps
        yield from self._cold_code
        yield from self._behind_meeting
        if self.registers:
            yield ops.SetMaxNReg(self.registers, "dec")
        yield from self._fill(cta)
        yield from part_from_peers(self.plan)

    def _fill(self, cta: RoleContext) -> Iterator[Op]:
        plan, num_stages, before, behind = self.plan, self._ring.num_stages, self._before, self._behind
        stage, parity = 0, 0 if self._all_arrive else 1  # consumers release all stages before their first k-step, or none
        for _, at in work(cta, plan):
            if self._reads_pointers and not self.loader.by_tma:
                yield from read_pointers(at.batch, "AB")
            of_a, of_b = self.loader.panels(at, cta.cta_rank)
            yield from self._tile_code
            for k in cta.loop(plan.num_k_steps(at.part)):
                key = k * MAX_STAGES + stage  # slot(k, stage)
                yield from before[stage][parity]
                yield of_a[key]
                yield of_b[key]
                yield from behind[stage]
                stage += 1
                if stage == num_stages:
                    stage, parity = 0, parity ^ 1


class Consumer:
    """The consumer role of the warp-specialized schedules: wgmma and the epilogue.

    For each k-step it waits until the stage is full, issues wgmma and commits. It waits until at most ``wgmma_depth`` groups
    are in flight, and releases the stage of the completed group to the producers. After the last k-step it waits for all
    groups, releases the remaining stages and runs the epilogue. A quarter of a k-step's overhead instructions precede its
    wgmma. Some lie between wgmma, and some between the wait and the release of a stage.

    * ``mbarrier_arrive`` "thread" (``cuda::barrier``): all threads arrive on the full stage before they wait for it. They
      also arrive on the empty stage to release it, and on all empty stages at the start.
    * ``pingpong``: two consumers alternate tiles. Each waits for its turn on the tensor cores, and passes the turn on after
      its last wgmma has been issued. Its epilogue then overlaps with the other's math.
    """

    def __init__(self, plan: TilePlan, loader: Loader, epilogue: Epilogue, *, idx: int) -> None:
        """``idx``: index of the consumer."""
        self.plan = plan
        self.loader = loader
        self.epilogue = epilogue
        self.idx = idx
        config, compiled = plan.config, plan.config.compiled_code
        self.registers = config.setmaxnreg_registers[1]
        self.num_stages = config.stages
        self.depth = config.wgmma_depth
        self.is_pingpong = config.schedule == "pingpong"
        self._reads_pointers = config.batch_mode == "array" and not config.stores_by_tma
        atom, num_issues = config.partition.atom, config.partition.num_wgmma
        # cp.async writes through the generic proxy, wgmma reads through the async one
        self._fence: list[Op] = [] if loader.by_tma else [ops.FenceProxyAsync()]
        stages, self._num_arrivals = range(self.num_stages), 128 if config.mbarrier_arrive == "thread" else 1
        arrive = [[ops.MbarrierArrive("full", s, 128)] if self._num_arrivals > 1 else [] for s in stages]
        self._wait = [[[*arrive[s], wait] for wait in waits] for s, waits in enumerate(Ring(self.num_stages).wait_full)]
        own = own_code(plan)
        step, before_giving = code_around_math(own, num_issues, atom.n), own * BEFORE_GIVING_BACK
        self._before_giving, self._behind = code(before_giving), code(step.num_behind - before_giving)
        self._tile_code = code_of_place(plan)
        self._turn_code = code(chain(compiled.tile_scheduler.chain_after_turn_cycles))
        _, self._behind_meeting = code_around_meeting(chain(compiled.prologue.chain_cycles))
        data = epilogue.data.math if epilogue.data else None
        self._math: list[list[Op]] = [
            [*step.before, *self._fence, *wgmma_of_step(plan, s, step.num_between, data), *step.beside,
             ops.WgmmaWaitGroup(self.depth), *self._before_giving]
            for s in stages
        ]  # fmt: skip

    @cached_method
    def _releases(self, rank: int) -> list[list[Op]]:
        """For each stage, the arrivals that release it: one for each CTA that writes to it."""
        feeders = [None if feeder == rank else feeder for feeder in self.loader.feeders(rank)]
        return [
            [ops.MbarrierArrive("empty", s, self._num_arrivals, feeder) for feeder in feeders]
            for s in range(self.num_stages)
        ]

    @cached_method
    def _k_steps(self, rank: int, lag: int | None) -> list[list[list[Op]]]:
        """For each stage and parity, a k-step that releases the stage ``lag`` before its own, or none."""
        num_stages, given = self.num_stages, self._releases(rank)
        return [
            [
                [*wait, *self._math[s], *([] if lag is None else given[(s - lag) % num_stages]), *self._behind]
                for wait in self._wait[s]
            ]
            for s in range(num_stages)
        ]

    def __call__(self, cta: RoleContext) -> Iterator[Op]:
        """The warp program."""
        yield from meet_all(self.plan)
        yield from self._behind_meeting
        if self.registers:
            yield ops.SetMaxNReg(self.registers, "inc")
        if self._num_arrivals > 1:
            for given in self._releases(cta.cta_rank):
                yield from given
        if self.is_pingpong:
            yield from self._take_turns(cta)
        else:
            stage, parity = 0, 0
            for turn, at in work(cta, self.plan):
                yield from self._tile_code
                stage, parity = yield from self._multiply(cta, self.plan.num_k_steps(at.part), stage, parity, passes_on=None)
                if self._reads_pointers:
                    yield from read_pointers(at.batch, "D")
                yield from self.epilogue.program(at, turn)
        yield from self.epilogue.finish()
        yield from part_from_peers(self.plan)

    def _take_turns(self, cta: RoleContext) -> Iterator[Op]:
        num_k_steps, idx = self.plan.num_k_steps(0), self.idx
        mine = [ops.MbarrierWait("math_turn", idx, parity) for parity in (0, 1)]
        my_end = [ops.MbarrierWait("epilogue_turn", idx, parity) for parity in (0, 1)]
        passes_on = ops.MbarrierArrive("math_turn", 1 - idx)
        end_passes_on = ops.MbarrierArrive("epilogue_turn", 1 - idx)
        for turn, at in work(cta, self.plan, first=idx, step=2):
            parity = (turn // 2 & 1) ^ (idx == 0)
            yield from self._tile_code
            yield mine[parity]
            yield from self._turn_code
            stage, parity_of_stage = self._slot_after(0, 0, turn * num_k_steps)
            yield from self._multiply(cta, num_k_steps, stage, parity_of_stage, passes_on=passes_on)
            yield my_end[parity]
            if self._reads_pointers:
                yield from read_pointers(at.batch, "D")
            yield from self.epilogue.program(at, turn)
            yield end_passes_on

    def _slot_after(self, stage: int, parity: int, num_k_steps: int) -> tuple[int, int]:
        """Stage and parity after ``num_k_steps`` more k-steps."""
        rounds, after = divmod(stage + num_k_steps, self.num_stages)
        return after, parity ^ (rounds & 1)

    def _multiply(
        self, cta: RoleContext, num_k_steps: int, stage: int, parity: int, *, passes_on: Op | None
    ) -> Generator[Op, Any, tuple[int, int]]:
        """Multiply a tile, beginning at a stage. Returns (stage, parity) after its last k-step."""
        num_stages, depth, rank = self.num_stages, self.depth, cta.cta_rank
        steps, is_first, lag = self._k_steps(rank, None), True, 0  # number of stages that have not been released
        yield ops.WgmmaFence()
        for k in cta.loop(num_k_steps):
            if k >= depth and is_first:
                steps, is_first = self._k_steps(rank, lag), False
            yield from steps[stage][parity]
            if is_first:
                lag += 1
            stage += 1
            if stage == num_stages:
                stage, parity = 0, parity ^ 1
        if passes_on is not None:
            yield passes_on
        yield ops.WgmmaWaitGroup(0)
        give_back, held = self._releases(rank), stage - lag
        for behind in range(min(depth, num_k_steps)):
            yield from give_back[(held + behind) % num_stages]
        return stage, parity
