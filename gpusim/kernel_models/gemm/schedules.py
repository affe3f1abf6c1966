"""Who loads and who computes: the programs of the roles, and the order of wait, math and refill in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpusim.kernel_models.gemm.epilogue import Epilogue
from gpusim.kernel_models.gemm.params import GemmParams
from gpusim.kernel_models.gemm.tiles import TilePlan
from gpusim.workload import ops
from gpusim.workload.access import (
    AccessPattern,
    cp_async_fill,
    ldmatrix_reads,
    shared_vector_reads,
    tma_boxes,
)
from gpusim.workload.atoms import MmaAtom, largest_wgmma_n, mma_sync, wgmma
from gpusim.workload.launch import RoleContext
from gpusim.workload.ops import Op

Coordinates = tuple[int, int, int, int]


class Loader:
    """Copies of one stage: what a producer issues for k-step ``step`` of a tile into slot ``stage``.

    Records are made once for each (panel, step, stage) and shared by all CTAs.
    """

    def __init__(self, plan: TilePlan, *, num_threads: int) -> None:
        """``num_threads`` threads issue cp.async; TMA is issued by one."""
        self.plan = plan
        self.params = plan.params
        self._cache: dict[tuple[int, int, int, int], Op] = {}
        if self.params.copy_ == "tma":
            self._boxes = (tma_boxes(plan.operand_a), tma_boxes(plan.operand_b))
        else:
            self._fills = (cp_async_fill(plan.operand_a, num_threads), cp_async_fill(plan.operand_b, num_threads))

    @cached_property
    def stage_bytes(self) -> int:
        """Bytes of A and B in one stage."""
        return self.plan.operand_a.num_bytes + self.plan.operand_b.num_bytes

    @cached_property
    def _peers(self) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        """For each rank, the ranks that share its A (same rows) and its B (same columns)."""
        ranks_m, ranks_n = self.params.cluster
        ranks = range(ranks_m * ranks_n)
        same_a = {rank: tuple(other for other in ranks if other % ranks_m == rank % ranks_m) for rank in ranks}
        same_b = {rank: tuple(other for other in ranks if other // ranks_m == rank // ranks_m) for rank in ranks}
        return same_a, same_b

    def feeders(self, rank: int) -> tuple[int, ...]:
        """Ranks whose producers write into the CTA of ``rank``: they wait for its slots."""
        same_a, same_b = self._peers
        return tuple(sorted(set(same_a[rank]) | set(same_b[rank])))

    def operand(self, which: int, coordinates: Coordinates, step: int, stage: int, rank: int) -> Op:
        """The copy of operand A (0) or B (1)."""
        m, n, batch, part = coordinates
        plan = self.plan
        plane = batch * self.params.split_k + part
        panel = plane * plan.num_m + m if which == 0 else plane * plan.num_n + n
        key = (which, panel, step * 1024 + stage, rank)
        op = self._cache.get(key)
        if op is None:
            op = self._cache[key] = self._make(which, coordinates, panel, step, stage, rank)
        return op

    def _make(self, which: int, coordinates: Coordinates, panel: int, step: int, stage: int, rank: int) -> Op:
        m, n, _, part = coordinates
        plan = self.plan
        operand = plan.operand_a if which == 0 else plan.operand_b
        rows = plan.rows_of_a(m) if which == 0 else plan.rows_of_b(n)
        extent = plan.k_extent(part, step)
        inside = rows * extent / (operand.rows * operand.k)
        name, buffer = ("A", "a") if which == 0 else ("B", "b")
        if self.params.copy_ == "tma":
            boxes = self._boxes[which]
            receivers = self._peers[which][rank]
            ways = len(receivers)
            num_bytes = operand.num_bytes // ways
            num_rows = -(-sum(box.num_rows for box in boxes) // ways)
            tile = (panel, step) if ways == 1 else (panel, step * ways + receivers.index(rank))
            return ops.TmaLoad(
                name, tile, num_bytes, round(num_bytes * inside), num_rows, buffer, stage, "full",
                multicast=receivers if ways > 1 else (), num_boxes=max(1, len(boxes) // ways),
            )
        fill = self._fills[which]
        if inside < 1.0:
            fill = AccessPattern(
                num_requests=fill.num_requests, num_sectors=round(fill.num_sectors * inside),
                num_lines=round(fill.num_lines * inside), num_wavefronts=fill.num_wavefronts,
                num_bytes=round(fill.num_bytes * inside),
            )
        return ops.CpAsync(name, (panel, step), fill, buffer, stage)


@dataclass(frozen=True)
class MathShare:
    """What one math role computes of a tile, a k-step at a time."""

    plan: TilePlan
    share_m: int
    share_n: int

    @cached_property
    def atom(self) -> MmaAtom:
        """The wgmma of the role: as wide as its share admits."""
        return wgmma(largest_wgmma_n(self.share_n, self.plan.params.element), self.plan.params.element)

    @cached_property
    def num_issues(self) -> int:
        """Instructions of one k-step."""
        atom = self.atom
        return (self.share_m // 64) * (self.share_n // atom.n) * (self.plan.tile[2] // atom.k)

    @property
    def accumulators(self) -> int:
        """32-bit accumulators of a thread."""
        return self.share_m * self.share_n // 128


def work(cta: RoleContext, plan: TilePlan, *, first: int = 0, step: int = 1) -> Iterator[tuple[int, Coordinates]]:
    """The tiles of a CTA: one, or every ``num_ctas``-th of a persistent grid, as (turn, coordinates)."""
    if plan.params.persistent:
        for turn, tile in cta.tiles(plan.num_tiles, first=first, step=step):
            yield turn, plan.coordinates_of(tile)
    else:
        yield 0, plan.coordinates_of(cta.cta_idx)


class Producer:
    """The loading role of the specialized schedules.

    For each k-step: wait until the slot is empty, announce the bytes (TMA), copy A, copy B. Runs ahead of the math by
    as many k-steps as there are stages. With cp.async all its threads copy, and arrive when their copies are there.
    """

    def __init__(self, plan: TilePlan, loader: Loader, *, registers: int | None) -> None:
        """``registers``: what setmaxnreg.dec leaves it."""
        self.plan = plan
        self.loader = loader
        self.registers = registers
        num_stages = plan.params.stages
        assert num_stages is not None  # resolved
        self.num_stages = num_stages
        self._wait = [[ops.MbarrierWait("empty", s, parity) for parity in (0, 1)] for s in range(num_stages)]
        self._expect = [ops.MbarrierArriveExpectTx("full", s, loader.stage_bytes) for s in range(num_stages)]
        self._arrive = [ops.CpAsyncMbarrierArrive("full", s) for s in range(num_stages)]

    def __call__(self, cta: RoleContext) -> Iterator[Op]:
        """The program."""
        plan, num_stages, operand = self.plan, self.num_stages, self.loader.operand
        by_tma = plan.params.copy_ == "tma"
        rank = cta.cta_rank
        if self.registers is not None:
            yield ops.SetMaxNReg(self.registers, "dec")
        if by_tma:
            yield ops.PrefetchTensormap(2)
        stage, parity = 0, 1
        for _, coordinates in work(cta, plan):
            for k in cta.loop(plan.num_k_steps):
                yield self._wait[stage][parity]
                if by_tma:
                    yield self._expect[stage]
                yield operand(0, coordinates, k, stage, rank)
                yield operand(1, coordinates, k, stage, rank)
                if not by_tma:
                    yield self._arrive[stage]
                stage += 1
                if stage == num_stages:
                    stage, parity = 0, parity ^ 1


class Consumer:
    """The math role of the specialized schedules.

    For each k-step: wait until the slot is full, issue wgmma, commit, wait until at most ``wgmma_depth`` groups run, give
    the slot of the group that has ended back to the producers. After the last k-step: wait for all, give the rest
    back, epilogue.

    With ``pingpong`` two consumers take turns at whole tiles: each waits for its turn at the tensor core, and passes it
    on when its last wgmma has been issued, so that its epilogue runs behind the other's math.
    """

    def __init__(
        self, plan: TilePlan, loader: Loader, share: MathShare, epilogue: Epilogue, *, idx: int, num_consumers: int,
        registers: int | None,
    ) -> None:
        """Consumer ``idx`` of ``num_consumers``; ``registers``: what setmaxnreg.inc gives it."""
        self.plan = plan
        self.loader = loader
        self.epilogue = epilogue
        self.idx = idx
        self.registers = registers
        params = plan.params
        assert params.stages is not None and params.wgmma_depth is not None  # resolved
        self.num_stages = params.stages
        self.depth = params.wgmma_depth
        self.is_pingpong = params.schedule == "pingpong"
        self.num_consumers = num_consumers
        self._wait = [[ops.MbarrierWait("full", s, parity) for parity in (0, 1)] for s in range(self.num_stages)]
        self._mma = [
            ops.Wgmma(share.atom, share.num_issues, (("a", s), ("b", s))) for s in range(self.num_stages)
        ]
        self._commit = ops.WgmmaCommitGroup()
        self._wait_mma = ops.WgmmaWaitGroup(self.depth)
        self._give_back: dict[int, list[list[Op]]] = {}

    def _releases(self, rank: int) -> list[list[Op]]:
        """For each stage the arrivals that give it back, one for each CTA that writes into it."""
        found = self._give_back.get(rank)
        if found is None:
            feeders = self.loader.feeders(rank)
            found = self._give_back[rank] = [
                [
                    ops.MbarrierArrive("empty", s, 1, None if feeder == rank else feeder)
                    for feeder in feeders
                ]
                for s in range(self.num_stages)
            ]
        return found

    def __call__(self, cta: RoleContext) -> Iterator[Op]:
        """The program."""
        num_k_steps, num_stages, depth = self.plan.num_k_steps, self.num_stages, self.depth
        give_back = self._releases(cta.cta_rank)
        commit, wait_mma, fence = self._commit, self._wait_mma, ops.WgmmaFence()
        if self.registers is not None:
            yield ops.SetMaxNReg(self.registers, "inc")
        turns = work(cta, self.plan, first=self.idx, step=2) if self.is_pingpong else work(cta, self.plan)
        stage, parity = 0, 0
        for turn, coordinates in turns:
            if self.is_pingpong:
                stage, parity = turn * num_k_steps % num_stages, turn * num_k_steps // num_stages & 1
                yield ops.MbarrierWait("math_turn", self.idx, (turn // 2 & 1) ^ (self.idx == 0))
            yield fence
            held = stage  # oldest slot that has not been given back
            for k in cta.loop(num_k_steps):
                yield self._wait[stage][parity]
                yield self._mma[stage]
                yield commit
                yield wait_mma
                if k >= depth:
                    yield from give_back[held]
                    held += 1
                    if held == num_stages:
                        held = 0
                stage += 1
                if stage == num_stages:
                    stage, parity = 0, parity ^ 1
            if self.is_pingpong:
                yield ops.MbarrierArrive("math_turn", 1 - self.idx)
            yield ops.WgmmaWaitGroup(0)
            for _ in range(min(depth, num_k_steps)):
                yield from give_back[held]
                held = (held + 1) % num_stages
            if self.is_pingpong:
                yield ops.MbarrierWait("epilogue_turn", self.idx, (turn // 2 & 1) ^ (self.idx == 0))
            yield from self.epilogue.program(cta, coordinates, turn)
            if self.is_pingpong:
                yield ops.MbarrierArrive("epilogue_turn", 1 - self.idx)


class Multistage:
    """One role whose warps load and compute; any number of stages.

    One stage: load, wait, math, wait for the math; nothing overlaps inside of a CTA.

    More, with wgmma: wait until the k-step's slot is there and all warps have passed; then either issue the math and,
    behind it, the load of the slot that the last math has left (``refill`` after_math), or load first
    (before_math); then wait until at most ``wgmma_depth`` groups run. A warp that issues more wgmma than the tensor
    core's queue takes waits there, and its loads with it.

    More, with mma.sync or fma: fragments of the next slice are read (ldmatrix, ld.shared) while the present one is
    multiplied; the k-step's load is issued with the first slice; before the last slice the warps wait for the next
    slot and for one another, so that its first fragments can be read behind the last slice's math.
    """

    def __init__(self, plan: TilePlan, loader: Loader, share: MathShare, epilogue: Epilogue, *, num_warps: int) -> None:
        """``share`` is what one warpgroup computes (wgmma), ``num_warps`` how many warps there are."""
        self.plan = plan
        self.loader = loader
        self.epilogue = epilogue
        self.num_warps = num_warps
        params = plan.params
        assert params.stages is not None and params.wgmma_depth is not None  # resolved
        self.num_stages = params.stages
        self.depth = params.wgmma_depth
        self.by_tma = params.copy_ == "tma"
        self.share = share

    # ------------------------------------------------------------------------------------------ loading

    def _load(self, coordinates: Coordinates, k: int, stage: int) -> Iterator[Op]:
        operand = self.loader.operand
        if self.by_tma:
            yield ops.MbarrierArriveExpectTx("full", stage, self.loader.stage_bytes)
        yield operand(0, coordinates, k, stage, 0)
        yield operand(1, coordinates, k, stage, 0)
        if not self.by_tma:
            yield ops.CpAsyncCommitGroup()

    def _await_slot(self, k: int, distance: int) -> Iterator[Op]:
        """Wait until slot of k-step ``k`` is there; ``distance`` k-steps are loaded ahead."""
        if self.by_tma:
            yield ops.MbarrierWait("full", k % self.num_stages, k // self.num_stages & 1)
        else:
            yield ops.CpAsyncWaitGroup(max(0, distance - 1))
        yield ops.Syncthreads()

    # ------------------------------------------------------------------------------------------ programs

    def __call__(self, cta: RoleContext) -> Iterator[Op]:
        """The program."""
        if self.by_tma:
            yield ops.MbarrierInit("full")
            yield ops.PrefetchTensormap(2)
            yield ops.Syncthreads()
        for turn, coordinates in work(cta, self.plan):
            if self.num_stages == 1:
                yield from self._one_stage(cta, coordinates)
            elif self.plan.params.math == "wgmma":
                yield from self._wgmma_loop(cta, coordinates)
            else:
                yield from self._register_loop(cta, coordinates)
            yield from self.epilogue.program(cta, coordinates, turn)

    def _one_stage(self, cta: RoleContext, coordinates: Coordinates) -> Iterator[Op]:
        for k in cta.loop(self.plan.num_k_steps):
            yield from self._load(coordinates, k, 0)
            yield from self._await_slot(k, 1)
            if self.plan.params.math == "wgmma":
                yield ops.WgmmaFence()
                yield self._wgmma[0]
                yield ops.WgmmaCommitGroup()
                yield ops.WgmmaWaitGroup(0)
            else:
                yield from self._slices_of_one_stage()
            yield ops.Syncthreads()

    def _slices_of_one_stage(self) -> Iterator[Op]:
        slices = self._slices
        token = yield self._read(0, 0)
        for idx in range(len(slices)):
            following = (yield self._read(idx + 1, 0)) if idx + 1 < len(slices) else None
            yield ops.Use(token)
            yield from self._multiply
            token = following

    @cached_property
    def _wgmma(self) -> list[ops.Wgmma]:
        return [
            ops.Wgmma(self.share.atom, self.share.num_issues, (("a", s), ("b", s))) for s in range(self.num_stages)
        ]

    def _wgmma_loop(self, cta: RoleContext, coordinates: Coordinates) -> Iterator[Op]:
        num_k_steps, num_stages = self.plan.num_k_steps, self.num_stages
        distance = num_stages - 1 - self.depth if self.depth else num_stages - 1
        is_first = self.plan.params.refill == "before_math"
        for k in range(min(distance, num_k_steps)):
            yield from self._load(coordinates, k, k % num_stages)
        stage = 0
        for k in cta.loop(num_k_steps):
            yield from self._await_slot(k, distance)
            if is_first:
                yield from self._refill(coordinates, k + distance)
            yield ops.WgmmaFence()
            yield self._wgmma[stage]
            yield ops.WgmmaCommitGroup()
            if not is_first:
                yield from self._refill(coordinates, k + distance)
            yield ops.WgmmaWaitGroup(self.depth)
            stage += 1
            if stage == num_stages:
                stage = 0
        yield ops.WgmmaWaitGroup(0)

    def _refill(self, coordinates: Coordinates, k: int) -> Iterator[Op]:
        if k < self.plan.num_k_steps:
            yield from self._load(coordinates, k, k % self.num_stages)
        elif not self.by_tma:
            yield ops.CpAsyncCommitGroup()  # an empty group keeps the count

    def _register_loop(self, cta: RoleContext, coordinates: Coordinates) -> Iterator[Op]:
        num_k_steps, num_stages = self.plan.num_k_steps, self.num_stages
        distance = num_stages - 1
        for k in range(min(distance, num_k_steps)):
            yield from self._load(coordinates, k, k % num_stages)
        yield from self._await_slot(0, distance)
        last = len(self._slices) - 1
        multiply, read = self._multiply, self._read
        is_first = self.plan.params.refill == "before_math"
        token: Any = yield read(0, 0)
        for k in cta.loop(num_k_steps):
            stage = k % num_stages
            for idx in range(last + 1):
                following: Any = None
                if idx == 0 and (is_first or not last):
                    yield from self._refill(coordinates, k + distance)
                if idx == last:
                    if k + 1 < num_k_steps:
                        yield from self._await_slot(k + 1, distance)
                        following = yield read(0, (stage + 1) % num_stages)
                else:
                    following = yield read(idx + 1, stage)
                yield ops.Use(token)
                yield from multiply
                if idx == 0 and last and not is_first:
                    yield from self._refill(coordinates, k + distance)
                token = following

    # ------------------------------------------------------------------------------------------ slices of a k-step

    @cached_property
    def _slices(self) -> list[AccessPattern]:
        """Fragment reads of all warps for each slice of a k-step."""
        params = self.plan.params
        if params.math == "mma_sync":
            return self._ldmatrix_slices()
        return self._vector_slices()

    def _ldmatrix_slices(self) -> list[AccessPattern]:
        params, plan = self.plan.params, self.plan
        assert params.warps is not None  # resolved
        warps_m, warps_n = params.warps
        atom = mma_sync(params.element)
        rows_a, rows_b = plan.tile[0] // warps_m, plan.tile[1] // warps_n
        slices = []
        for idx in range(plan.tile[2] // atom.k):
            total = AccessPattern()
            for warp_m in range(warps_m):
                reads = ldmatrix_reads(plan.operand_a, rows_per_warp=rows_a, first_row=warp_m * rows_a, k_step_idx=idx)
                total += reads.scaled(warps_n)
            for warp_n in range(warps_n):
                reads = ldmatrix_reads(plan.operand_b, rows_per_warp=rows_b, first_row=warp_n * rows_b, k_step_idx=idx)
                total += reads.scaled(warps_m)
            slices.append(total)
        return slices

    def _vector_slices(self) -> list[AccessPattern]:
        """Each half of a k-step: ld.shared of the thread tiles' rows of A and columns of B, 16 bytes at a time."""
        params, plan = self.plan.params, self.plan
        assert params.warps is not None  # resolved
        warps_m, warps_n = params.warps
        thread_m, thread_n = plan.tile[0] // (warps_m * 4), plan.tile[1] // (warps_n * 8)
        of_a = shared_vector_reads(num_coords=4, lanes_per_coord=8, elements_per_thread=thread_m)
        of_b = shared_vector_reads(
            num_coords=8, lanes_per_coord=1, elements_per_thread=thread_n, is_blocked=False
        )
        return [(of_a + of_b).scaled(warps_m * warps_n * of_half) for of_half in self._halves]

    @cached_property
    def _halves(self) -> list[int]:
        """k's of each slice of an fma k-step."""
        tile_k = self.plan.tile[2]
        return [tile_k - tile_k // 2, tile_k // 2] if tile_k > 1 else [1]

    @cached_property
    def _reads(self) -> list[list[Op]]:
        kind = ops.Ldmatrix if self.plan.params.math == "mma_sync" else ops.SharedLoad
        return [[kind(access, "a", stage) for access in self._slices] for stage in range(self.num_stages)]

    def _read(self, idx: int, stage: int) -> Op:
        return self._reads[stage][idx]

    @cached_property
    def _multiply(self) -> list[Op]:
        """The math of one slice."""
        params, plan = self.plan.params, self.plan
        assert params.warps is not None  # resolved
        warps_m, warps_n = params.warps
        if params.math == "mma_sync":
            atom = mma_sync(params.element)
            num_issues = (plan.tile[0] // warps_m // atom.m) * (plan.tile[1] // warps_n // atom.n)
            return [ops.MmaSync(atom, num_issues)]
        thread_tile = plan.tile[0] * plan.tile[1] // (self.num_warps * 32)
        return [ops.Fma(thread_tile * plan.tile[2] / len(self._halves))]


def fragment_registers(params: GemmParams) -> int:
    """Registers of double-buffered fragments of a thread (none for wgmma from shared memory)."""
    if params.math == "wgmma":
        return 0
    assert params.tile is not None and params.warps is not None  # resolved
    rows, columns = params.tile[0] // params.warps[0], params.tile[1] // params.warps[1]
    if params.math == "mma_sync":
        return 2 * (rows // 16 * 4 + columns // 8 * 2)
    return 2 * (rows // 4 + columns // 8)
