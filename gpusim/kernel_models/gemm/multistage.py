"""Multistage schedule: no producer; the same warps load and compute."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cached_property
from typing import Any

from gpusim.kernel_models.gemm.epilogue import Epilogue
from gpusim.kernel_models.gemm.fragments import Fragments
from gpusim.kernel_models.gemm.k_step_schedule import Deed, deeds
from gpusim.kernel_models.gemm.loader import Loader, Panel, slot
from gpusim.kernel_models.gemm.tile_grid import Coordinates, TilePlan
from gpusim.kernel_models.gemm.warp_partition import Shares
from gpusim.kernel_models.gemm.warp_specialized import (
    code,
    code_around_copies,
    code_around_math,
    code_around_meeting,
    code_of_place,
    issues_of_k_step,
    work,
)
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.ops import Op

Panels = tuple[Panel, Panel]

CODE_OF_COPY, CODE_OF_STEP = 4, 13
"""Instructions of a k-step besides copies, loads and math. ``CODE_OF_COPY``: those of a copy with its address. Source: SASS
of fma_loops."""


SET_UP = 5
"""Instructions of the dependent chain from the last barrier to a k-step's first wgmma, besides the fence: stage index,
address, descriptors. Source: SASS of 25 GEMMs of Triton 3.6 and 190 loops of kernels/own_copies. Their control words
give 30 to 32 cycles (TMA: 27), fence included."""


class Multistage:
    """One role whose warps load and compute, with any number of stages.

    One stage: load, wait, math, wait for the math, barrier. Nothing overlaps within a CTA.

    Several stages, wgmma: wait until the k-step's stage is full and all warps have passed. Then ``prefetch`` decides:

    * after_mma: issue the math, then the load of the stage that the previous math has released.
    * before_mma: load first, then issue the math. In both cases wait until at most ``wgmma_depth`` groups are in flight.
    * after_wait: wait, barrier, and load the stage that the wait has released, one k-step further ahead.
    * after_wait with TMA: no barrier precedes the math, and one precedes each of the two copies, as Triton 3.6 compiles it.
      With ``cta_barrier`` before_mma, one barrier precedes the math and none the copies.

    Copies whose addresses take IMAD.WIDE wait until the issued wgmma has completed. A warp that issues more wgmma than the
    queue of the tensor core holds waits there, and its loads wait, too.

    Several stages, mma.sync or fma: fragments of the next slice are loaded (ldmatrix, ld.shared) during the math of the
    current one. The k-step's load is issued with the first slice. Before the last slice the warps wait for the next stage
    and at a barrier. The next stage's first fragments are then loaded during the last slice's math. A program's SASS may
    have copies, barrier and first use elsewhere in the math (:mod:`gpusim.kernel_models.gemm.k_step_schedule`).

    ``register_stages`` 1: the warps wait and meet at a barrier before a k-step. Each slice's fragments are loaded before its
    own math.

    With mma.sync a role is a warp group: one warp of each sub-core. Several groups run independently and meet at the CTA's
    barrier. The first copies A, and the second copies B. With ``stall_on_ldgsts`` they continue once their copies have left
    the queue. Half of a k-step's overhead instructions precede its copies. With ``register_stages`` 1 an equal part precedes
    each slice.

    A persistent CTA drains its ring, runs the epilogue, and begins the next tile by filling the ring again.
    """

    def __init__(self, plan: TilePlan, loader: Loader, epilogue: Epilogue, team: int = 0) -> None:
        """The role of warp group ``team``, for tiles of ``plan``."""
        self.plan = plan
        self.team, self.teams = team, Shares(plan.params).teams
        self.num_teams = Shares(plan.params).num_teams
        self.loader = loader
        self.epilogue = epilogue
        params = plan.params
        assert params.stages is not None  # resolved
        self.num_stages = num_stages = params.stages
        self.depth = params.wgmma_depth or 0
        self.by_tma = params.copy_ == "tma"
        self.refills_first = params.prefetch == "before_mma"
        self.refills_last = params.prefetch == "after_wait"
        self.meets_at_copies = params.cta_barrier == "before_copies"
        self.distance = max(1, num_stages - (max(1, self.depth) if self.refills_last else 1 + self.depth))
        self._expect: list[Op] = [
            ops.MbarrierArriveExpectTx("full", s, loader.stage_bytes) for s in range(num_stages)
        ]
        stages = range(num_stages)
        self._wait_full = [[ops.MbarrierWait("full", s, parity) for parity in (0, 1)] for s in stages]
        self._commit, self._meet = ops.CpAsyncCommitGroup(is_held=bool(params.stall_on_ldgsts)), ops.Syncthreads()
        self._copy_code = code_around_copies(params.copy_code)
        self._tile_code = code_of_place(plan)
        self._setup_code = code_around_meeting(params.setup_code)
        # cp.async writes through the generic proxy, wgmma reads through the async one
        fence: list[Op] = [ops.FenceProxyAsync()] if params.math == "wgmma" and params.fence else []
        self._arrived: list[Op] = [ops.CpAsyncWaitGroup(self.distance - 1), *fence, self._meet]
        if self.by_tma:
            met = [] if self.meets_at_copies else [self._meet]
            self._awaits = [[[wait, *met] for wait in waits] for waits in self._wait_full]
        else:
            self._awaits = [[self._arrived, self._arrived] for _ in stages]
        self._wgmma: list[Op] = []
        if params.math == "wgmma":
            atom, num_issues = Shares(params).atom, issues_of_k_step(plan)
            step = code_around_math(params.step_code, num_issues, atom.n, least_before=SET_UP)
            self._step_code = step.before, step.beside, code(step.num_behind)
            self._wgmma = [ops.Wgmma(atom, num_issues, (("a", s), ("b", s)), step.num_between) for s in stages]
        self._fragments = Fragments(plan, self.teams)

    def __call__(self, cta: RoleContext) -> Iterator[Op]:
        """The warp program."""
        yield from self._setup_code[0]
        if self.by_tma:
            if not self.team:
                yield ops.MbarrierInit("full")
                if self.plan.params.prefetch_tensormap:
                    yield ops.PrefetchTensormap(("A", "B"))
            yield self._meet
        yield from self._setup_code[1]
        first = 0  # k-steps of earlier tiles, which determine the first stage of a tile
        for turn, at in work(cta, self.plan):
            first = turn * self.plan.num_k_steps(at.part)
            yield from self._tile_code
            if turn:
                yield self._meet  # all have left the ring and the staging buffer
            if self.plan.params.math == "wgmma":
                yield from self._wgmma_loop(cta, at, first)
            elif self.plan.params.register_stages == 1:
                yield from self._single_loop(cta, at, first)
            elif self.num_stages == 1:
                yield from self._one_stage(cta, at, first)
            else:
                yield from self._register_loop(cta, at, first)
            yield from self.epilogue.program(at, turn)
        yield from self.epilogue.finish()

    # -------------------------------------------------------------------------------------- loading

    def _load(self, panels: Panels, k: int, stage: int) -> list[Op]:
        key = slot(k, stage)
        if self.by_tma:
            if self.team:
                return []
            met: list[Op] = [self._meet] if self.meets_at_copies else []
            before, behind = self._copy_code
            return [*before, self._expect[stage], *met, panels[0][key], *met, panels[1][key], *behind]
        found: list[Op] = []
        for which, (panel, addresses) in enumerate(zip(panels, self.loader.addresses, strict=True)):
            if self.num_teams > 1 and which != self.team:
                continue
            if addresses is not None:
                found.append(addresses)
            found.append(panel[key])
        found.append(self._commit)
        return found

    def _refill(self, panels: Panels, k: int, first: int, num_k_steps: int) -> list[Op]:
        if k < num_k_steps:
            return self._load(panels, k, (first + k) % self.num_stages)
        return [] if self.by_tma else [self._commit]  # an empty group keeps the count

    def _await_slot(self, position: int) -> list[Op]:
        """Wait until the stage of the CTA's k-step ``position`` is full, for all threads."""
        rounds, stage = divmod(position, self.num_stages)
        return self._awaits[stage][rounds & 1]

    # -------------------------------------------------------------------------------------- wgmma

    def _wgmma_loop(self, cta: RoleContext, at: Coordinates, first: int) -> Iterator[Op]:
        num_k_steps, num_stages, distance = self.plan.num_k_steps(at.part), self.num_stages, self.distance
        panels = self.loader.panels(at, 0)
        is_ring, refills_first, refills_last, math = num_stages > 1, self.refills_first, self.refills_last, self._wgmma
        fence, commit, wait = ops.WgmmaFence(), ops.WgmmaCommitGroup(), ops.WgmmaWaitGroup(self.depth)
        before, beside, behind = self._step_code
        for k in range(distance if is_ring else 0):
            yield from self._refill(panels, k, first, num_k_steps)
        for k in cta.loop(num_k_steps):
            if not is_ring:
                yield from self._load(panels, k, 0)
            yield from self._await_slot(first + k)
            if is_ring and refills_first:
                yield from self._refill(panels, k + distance, first, num_k_steps)
            yield from before
            yield fence
            yield math[(first + k) % num_stages]
            yield commit
            if is_ring and not refills_first and not refills_last:
                yield from self._refill(panels, k + distance, first, num_k_steps)
            yield from beside
            yield wait
            if not is_ring or refills_last:
                yield self._meet
            if is_ring and refills_last:
                yield from self._refill(panels, k + distance, first, num_k_steps)
            yield from behind
        yield ops.WgmmaWaitGroup(0)

    # -------------------------------------------------------------------------------------- mma.sync and fma

    @cached_property
    def _fma_code(self) -> tuple[list[Op], list[Op]]:
        """Overhead instructions of a k-step with two register stages, before and after its copies."""
        params = self.plan.params
        more = max(0.0, params.step_instructions - params.step_code) if params.math == "fma" else 0.0
        return code_around_copies(params.step_code, num_more=more)

    @cached_property
    def _loop_code(self) -> list[Op]:
        """The loop body of an fma k-step, which nvcc unrolls completely: FFMA, loads, copies and overhead instructions."""
        params, (rows, columns) = self.plan.params, Shares(self.plan.params).share
        if params.math != "fma":
            return []
        depth = self.plan.tile[2]
        num_copies, told = self.loader.copies_per_warp, params.step_instructions
        others = depth * (rows // 4 + columns // 8) / 4 + num_copies
        others += told if told else (CODE_OF_COPY - 1) * num_copies + CODE_OF_STEP
        return [ops.LoopBody(rows * columns // 32 * depth, others, self._fragments.bank_reads)]

    def _one_stage(self, cta: RoleContext, at: Coordinates, first: int) -> Generator[Op, Any, None]:
        panels, reads, math = self.loader.panels(at, 0), self._fragments.reads[0], self._fragments.math
        num_slices, (before, behind) = len(math), self._fma_code
        for k in cta.loop(self.plan.num_k_steps(at.part)):
            yield from self._loop_code
            yield from before
            yield from self._load(panels, k, 0)
            yield from behind
            yield from self._await_slot(first + k)
            token: Any = yield reads[0]
            for idx in range(num_slices):
                following: Any = (yield reads[idx + 1]) if idx + 1 < num_slices else None
                yield ops.Use(token)
                yield math[idx]
                token = following
            yield self._meet

    def _slice(self, stage: int, idx: int) -> Generator[Op, Any, None]:
        """Load the fragments of a slice, and execute the math that waits for them."""
        fragments = self._fragments
        if self.plan.params.math == "fma":
            token: Any = yield fragments.reads[stage][idx]
            yield ops.Use(token)
            yield fragments.math[idx]
            return
        tokens = []
        for read, _ in fragments.halves[stage][idx]:
            tokens.append((yield read))
        for token, (_, math) in zip(tokens, fragments.halves[stage][idx], strict=True):
            yield ops.Use(token)
            yield math

    def _single_loop(self, cta: RoleContext, at: Coordinates, first: int) -> Generator[Op, Any, None]:
        num_k_steps, num_stages, distance = self.plan.num_k_steps(at.part), self.num_stages, self.distance
        panels, num_slices = self.loader.panels(at, 0), len(self._fragments.slices)
        is_ring = num_stages > 1
        each = self.plan.params.step_code / (1 + num_slices)
        own, (before, behind) = code(each), code_around_copies(each)
        for k in range(distance if is_ring else 0):
            yield from self._refill(panels, k, first, num_k_steps)
        for k in cta.loop(num_k_steps):
            if is_ring:
                yield from self._await_slot(first + k)
            yield from before
            if not is_ring:
                yield from self._load(panels, k, 0)
            elif self.refills_first:
                yield from self._refill(panels, k + distance, first, num_k_steps)
            yield from behind
            if not is_ring:
                yield from self._await_slot(first + k)
            for idx in range(num_slices):
                yield from own
                yield from self._slice((first + k) % num_stages, idx)
                if is_ring and not idx and not self.refills_first:
                    yield from self._refill(panels, k + distance, first, num_k_steps)
            if not is_ring:
                yield self._meet

    def _register_loop(self, cta: RoleContext, at: Coordinates, first: int) -> Generator[Op, Any, None]:
        num_k_steps, num_stages, distance = self.plan.num_k_steps(at.part), self.num_stages, self.distance
        if self.plan.params.math == "mma_sync":
            yield from self._placed_loop(cta, at, first)
            return
        panels, reads, math = self.loader.panels(at, 0), self._fragments.reads, self._fragments.math
        last, (before, behind) = len(math) - 1, self._fma_code
        loads_first = self.refills_first or not last
        for k in range(distance):
            yield from self._refill(panels, k, first, num_k_steps)
        yield from self._await_slot(first)
        token: Any = yield reads[first % num_stages][0]
        for k in cta.loop(num_k_steps):
            here = reads[(first + k) % num_stages]
            for idx in range(last + 1):
                following: Any = None
                if idx == 0:
                    yield from self._loop_code
                    yield from before
                    if loads_first:
                        yield from self._refill(panels, k + distance, first, num_k_steps)
                    yield from behind
                if idx < last:
                    following = yield here[idx + 1]
                elif k + 1 < num_k_steps:
                    yield from self._await_slot(first + k + 1)
                    following = yield reads[(first + k + 1) % num_stages][0]
                yield ops.Use(token)
                yield math[idx]
                if idx == 0 and not loads_first:
                    yield from self._refill(panels, k + distance, first, num_k_steps)
                token = following

    @cached_property
    def _deeds(self) -> list[Deed]:
        return deeds(self.plan.params, self._fragments)

    def _placed_loop(self, cta: RoleContext, at: Coordinates, first: int) -> Generator[Op, Any, None]:
        """Main loop of mma.sync with two register stages: copies, barrier and loads at their positions in the math."""
        num_k_steps, num_stages, distance = self.plan.num_k_steps(at.part), self.num_stages, self.distance
        panels, halves = self.loader.panels(at, 0), self._fragments.halves
        before, behind = code_around_copies(self.plan.params.step_code)
        for k in range(distance):
            yield from self._refill(panels, k, first, num_k_steps)
        yield from self._await_slot(first)
        tokens: dict[int, list[Any]] = {0: []}
        yield from self._read(halves[first % num_stages][0], tokens[0])
        for k in cta.loop(num_k_steps):
            following: list[Any] = []
            here, there = ((first + k + ahead) % num_stages for ahead in (0, 1))
            for deed in self._deeds:
                if deed.math is not None:
                    yield deed.math
                elif deed.what == "copies":
                    yield from before
                    yield from self._refill(panels, k + distance, first, num_k_steps)
                    yield from behind
                elif deed.what == "read":
                    tokens[deed.slice_idx] = []
                    yield from self._read(halves[here][deed.slice_idx], tokens[deed.slice_idx])
                elif deed.what in ("use", "use_rest"):
                    yield ops.Use(tokens[deed.slice_idx][0 if deed.what == "use" else -1])
                elif k + 1 < num_k_steps:
                    if deed.what == "meet":
                        yield from self._await_slot(first + k + 1)
                    else:
                        yield from self._read(halves[there][0], following)
            tokens = {0: following}

    def _read(self, parts: list[tuple[ops.Ldmatrix, ops.MmaSync]], tokens: list[Any]) -> Generator[Op, Any, None]:
        """Load the fragments of a slice, in parts."""
        for read, _ in parts:
            tokens.append((yield read))
