"""Multistage schedule: no producer; the same warps load and compute."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cached_property
from typing import Any

from gpusim.kernel_models.gemm.k_step_schedule import IssueSlot, k_step_schedule
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.gemm.warp_specialized import (
    chain,
    code,
    code_around_copies,
    code_around_math,
    code_around_meeting,
    code_of_place,
    own_code,
    wgmma_of_step,
    work,
)
from gpusim.kernel_models.mainloop.epilogue import Epilogue
from gpusim.kernel_models.mainloop.fragments import Fragments
from gpusim.kernel_models.mainloop.loader import Loader, Panel, slot
from gpusim.kernel_models.mainloop.ring import Ring
from gpusim.kernel_models.mainloop.tensor_maps import make_tensor_maps, read_pointers
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.ops import Op

Panels = tuple[Panel, Panel, list[Any]]
"""Copies of A and B of a tile, and the tokens of what LDG has loaded and STS has not yet stored."""

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

    LDG and STS: with two stages the next k-step is loaded to registers where cp.async would be issued. It is stored to
    shared memory before the barrier of that k-step (CUTLASS ``MmaPipelined``).

    A persistent CTA drains its ring, runs the epilogue, and begins the next tile by filling the ring again.
    """

    def __init__(self, plan: TilePlan, loader: Loader, epilogue: Epilogue, warp_group: int = 0) -> None:
        """The role of ``warp_group``, for tiles of ``plan``."""
        self.plan = plan
        self.warp_group, self._partition = warp_group, plan.config.partition
        self.loader = loader
        self.epilogue = epilogue
        config, compiled = plan.config, plan.config.compiled_code
        self.num_stages = num_stages = config.stages
        self.depth = config.wgmma_depth or 0
        self.by_tma = config.copy_ == "tma"
        self.refills_first = config.prefetch == "before_mma"
        self.refills_last = config.prefetch == "after_wait"
        self.meets_at_copies = config.cta_barrier == "before_copies"
        self.distance = max(1, num_stages - (max(1, self.depth) if self.refills_last else 1 + self.depth))
        self._ring, stages = Ring(num_stages, loader.stage_bytes), range(num_stages)
        self._commit, self._meet = ops.CpAsyncCommitGroup(is_held=bool(config.stall_on_ldgsts)), ops.Syncthreads()
        self._copy_code = code_around_copies(chain(compiled.producer.chain_cycles))
        self._tile_code = code_of_place(plan)
        self._maps = make_tensor_maps(config.made_tensor_maps, [self._meet] * 2, is_maker=not warp_group)
        self._setup_code = code_around_meeting(chain(compiled.prologue.chain_cycles))
        # cp.async writes through the generic proxy, wgmma reads through the async one
        fence: list[Op] = [ops.FenceProxyAsync()] if config.math == "wgmma" and config.fence else []
        self._arrived: list[Op] = [ops.CpAsyncWaitGroup(self.distance - 1), *fence, self._meet]
        if self.by_tma:
            met = [] if self.meets_at_copies else [self._meet]
            self._awaits = [[[wait, *met] for wait in waits] for waits in self._ring.wait_full]
        else:
            self._awaits = [[self._arrived, self._arrived] for _ in stages]
        data, self._wgmma = epilogue.data.math if epilogue.data else None, list[list[Op]]()
        if config.math == "wgmma":
            atom, num_issues = self._partition.atom, self._partition.num_wgmma
            step = code_around_math(own_code(plan), num_issues, atom.n, least_before=SET_UP)
            self._step_code = step.before, step.beside, code(step.num_behind)
            self._wgmma = [wgmma_of_step(plan, s, step.num_between, data) for s in stages]
        self._fragments = Fragments(self._partition, self._partition.warp_groups, config.fma_bank_reads, data)

    def __call__(self, cta: RoleContext) -> Iterator[Op]:
        """The warp program."""
        yield from self._setup_code[0]
        has_pointers = self.plan.config.batch_mode == "array"
        if self.by_tma:
            if has_pointers:
                tensors = "".join(self.plan.config.made_tensor_maps)
                yield from read_pointers(self.plan.coordinates_of(cta.cta_idx).batch, tensors)
            yield from self._maps
            if not self.warp_group:
                yield ops.MbarrierInit("full")
                if self.plan.config.prefetch_tensormap:
                    yield ops.PrefetchTensormap(("A", "B"))
            yield self._meet
        yield from self._setup_code[1]
        first = 0  # k-steps of earlier tiles, which determine the first stage of a tile
        for turn, at in work(cta, self.plan):
            if not self.plan.is_inside(at):
                return  # a CTA that only completes a band
            first = turn * self.plan.num_k_steps(at.part)
            yield from self._tile_code
            if turn:
                yield self._meet  # all have left the ring and the staging buffer
            if has_pointers and not self.by_tma:
                yield from read_pointers(at.batch, "AB")
            panels: Panels = (*self.loader.panels(at, 0), [])
            for k in range(self.distance if self.num_stages > 1 else 0):
                yield from self._refill(panels, k, first, self.plan.num_k_steps(at.part))
            yield from self._loop(cta, panels, self.plan.num_k_steps(at.part), first)
            if has_pointers and not self.plan.config.stores_by_tma:
                yield from read_pointers(at.batch, "D")
            yield from self.epilogue.program(at, turn)
        yield from self.epilogue.finish()

    @cached_property
    def _loop(self) -> Callable[[RoleContext, Panels, int, int], Iterator[Op]]:
        """The main loop, after its first copies: a function of panels, number of k-steps, and k-steps of earlier tiles."""
        if self.plan.config.math == "wgmma":
            return self._wgmma_loop
        if self.plan.config.register_stages == 1:
            return self._single_loop
        if self.num_stages == 1:
            return self._one_stage
        return self._scheduled_loop if self.plan.config.math == "mma_sync" else self._register_loop

    # -------------------------------------------------------------------------------------- loading
    @property
    def _by_ldg(self) -> bool:
        """Whether LDG loads to registers, and STS stores to shared memory."""
        return self.loader.shape.copy == "ldg"

    def _load(self, panels: Panels, k: int, stage: int) -> Iterable[Op]:
        if self._by_ldg:
            return self._load_registers(panels, slot(k, 0))
        return self._copy(panels, slot(k, stage), stage)

    def _load_registers(self, panels: Panels, key: int) -> Generator[Op, Any, None]:
        """LDG of a k-step."""
        for which in self._operands:
            panels[2].append((yield panels[which][key]))

    @cached_property
    def _operands(self) -> tuple[int, ...]:
        """Operands that this warp group loads: both, or one of them if there are several groups."""
        return (0, 1) if self._partition.num_warp_groups == 1 else (self.warp_group,) if self.warp_group < 2 else ()

    def _copy(self, panels: Panels, key: int, stage: int) -> list[Op]:
        if self.by_tma:
            if self.warp_group:
                return []
            met: list[Op] = [self._meet] if self.meets_at_copies else []
            before, behind = self._copy_code
            return [*before, self._ring.expect[stage], *met, panels[0][key], *met, panels[1][key], *behind]
        copies: list[Op] = []
        for which in self._operands:
            if (addresses := self.loader.addresses[which]) is not None:
                copies.append(addresses)
            copies.append(panels[which][key])
        copies.append(self._commit)
        return copies

    def _refill(self, panels: Panels, k: int, first: int, num_k_steps: int) -> Iterable[Op]:
        if k < num_k_steps:
            return self._load(panels, k, (first + k) % self.num_stages)
        return [] if self.by_tma or self._by_ldg else [self._commit]  # an empty group keeps the count

    def _await_slot(self, panels: Panels, position: int) -> Iterable[Op]:
        """Wait until the stage of the CTA's k-step ``position`` is full, for all threads. STS come first."""
        stage, parity = self._ring.place_of(position)
        return self._store_registers(panels[2], stage) if self._by_ldg else self._awaits[stage][parity]

    def _store_registers(self, tokens: list[Any], stage: int) -> Iterator[Op]:
        """STS of a k-step that LDG loaded, and the barrier."""
        for which in self._operands:
            yield ops.Use(tokens.pop(0))
            yield self.loader.shared_store(which, stage)
        yield self._meet

    # -------------------------------------------------------------------------------------- wgmma
    def _wgmma_loop(self, cta: RoleContext, panels: Panels, num_k_steps: int, first: int) -> Iterator[Op]:
        num_stages, distance = self.num_stages, self.distance
        is_ring, refills_first, refills_last, math = num_stages > 1, self.refills_first, self.refills_last, self._wgmma
        fence, wait = ops.WgmmaFence(), ops.WgmmaWaitGroup(self.depth)
        before, beside, behind = self._step_code
        for k in cta.loop(num_k_steps):
            if not is_ring:
                yield from self._load(panels, k, 0)
            yield from self._await_slot(panels, first + k)
            if is_ring and refills_first:
                yield from self._refill(panels, k + distance, first, num_k_steps)
            yield from before
            yield fence
            yield from math[(first + k) % num_stages]
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
        own, given = own_code(self.plan), self.plan.config.compiled_code.mainloop.instructions
        return code_around_copies(own, num_more=max(0.0, given - own) if given else 0.0)

    @cached_property
    def _loop_code(self) -> list[Op]:
        """The loop body of an fma k-step, which nvcc unrolls completely: FFMA, loads, copies and overhead instructions."""
        config, (rows, columns) = self.plan.config, self._partition.warp_tile
        if config.math != "fma":
            return []
        depth = self.plan.tile[2]
        num_copies, given = self.loader.copies_per_warp, config.compiled_code.mainloop.instructions
        others = depth * (rows // 4 + columns // 8) / self._partition.shape.thread_tile.vector + num_copies
        others += given if given else (CODE_OF_COPY - 1) * num_copies + CODE_OF_STEP
        return [ops.LoopBody(rows * columns // 32 * depth, others, self._fragments.bank_reads)]

    def _one_stage(self, cta: RoleContext, panels: Panels, num_k_steps: int, first: int) -> Generator[Op, Any, None]:
        reads, math = self._fragments.reads[0], self._fragments.math
        num_slices, (before, behind) = len(math), self._fma_code
        for k in cta.loop(num_k_steps):
            yield from self._loop_code
            yield from before
            yield from self._load(panels, k, 0)
            yield from behind
            yield from self._await_slot(panels, first + k)
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
        if self.plan.config.math == "fma":
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

    def _single_loop(self, cta: RoleContext, panels: Panels, num_k_steps: int, first: int) -> Generator[Op, Any, None]:
        num_stages, distance = self.num_stages, self.distance
        num_slices, is_ring = len(self._fragments.slices), num_stages > 1
        each = own_code(self.plan) / (1 + num_slices)
        own, (before, behind) = code(each), code_around_copies(each)
        for k in cta.loop(num_k_steps):
            if is_ring:
                yield from self._await_slot(panels, first + k)
            yield from before
            if not is_ring:
                yield from self._load(panels, k, 0)
            elif self.refills_first:
                yield from self._refill(panels, k + distance, first, num_k_steps)
            yield from behind
            if not is_ring:
                yield from self._await_slot(panels, first + k)
            for idx in range(num_slices):
                yield from own
                yield from self._slice((first + k) % num_stages, idx)
                if is_ring and not idx and not self.refills_first:
                    yield from self._refill(panels, k + distance, first, num_k_steps)
            if not is_ring:
                yield self._meet

    def _register_loop(self, cta: RoleContext, panels: Panels, num_k_steps: int, first: int) -> Generator[Op, Any, None]:
        num_stages, distance = self.num_stages, self.distance
        reads, math = self._fragments.reads, self._fragments.math
        last, (before, behind) = len(math) - 1, self._fma_code
        loads_first = self.refills_first or not last
        yield from self._await_slot(panels, first)
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
                    yield from self._await_slot(panels, first + k + 1)
                    following = yield reads[(first + k + 1) % num_stages][0]
                yield ops.Use(token)
                yield math[idx]
                if idx == 0 and not loads_first:
                    yield from self._refill(panels, k + distance, first, num_k_steps)
                token = following

    @cached_property
    def _schedule(self) -> list[IssueSlot]:
        return k_step_schedule(self.plan.config, self._fragments)

    def _scheduled_loop(self, cta: RoleContext, panels: Panels, num_k_steps: int, first: int) -> Generator[Op, Any, None]:
        """Main loop of mma.sync with two register stages: copies, barrier and loads at their positions in the math."""
        num_stages, distance = self.num_stages, self.distance
        halves = self._fragments.halves
        before, behind = code_around_copies(own_code(self.plan))
        yield from self._await_slot(panels, first)
        tokens: dict[int, list[Any]] = {0: []}
        yield from self._read(halves[first % num_stages][0], tokens[0])
        for k in cta.loop(num_k_steps):
            following: list[Any] = []
            here, there = ((first + k + ahead) % num_stages for ahead in (0, 1))
            for action in self._schedule:
                if action.math is not None:
                    yield action.math
                elif action.what == "copies":
                    yield from before
                    yield from self._refill(panels, k + distance, first, num_k_steps)
                    yield from behind
                elif action.what == "read":
                    tokens[action.slice_idx] = []
                    yield from self._read(halves[here][action.slice_idx], tokens[action.slice_idx])
                elif action.what in ("use", "use_rest"):
                    yield ops.Use(tokens[action.slice_idx][0 if action.what == "use" else -1])
                elif k + 1 < num_k_steps:
                    if action.what == "meet":
                        yield from self._await_slot(panels, first + k + 1)
                    else:
                        yield from self._read(halves[there][0], following)
            tokens = {0: following}

    def _read(self, parts: list[tuple[ops.Ldmatrix, ops.MmaSync]], tokens: list[Any]) -> Generator[Op, Any, None]:
        """Load the fragments of a slice, in parts."""
        for read, _ in parts:
            tokens.append((yield read))
