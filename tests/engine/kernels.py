"""Kernels in the public vocabulary that reach what kernel models do not: each a launch for a GPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, NamedBarrier, WarpRole
from gpusim.workload import ops
from gpusim.workload.atoms import mma_sync, wgmma
from gpusim.workload.dtypes import BF16, FP8, INT8, TF32
from gpusim.workload.gmem.line_fetches import Fetches
from gpusim.workload.launch import Footprint, RoleContext
from gpusim.workload.smem.access import AccessPattern

Ops = Iterator[Any]
Program = Callable[[RoleContext], Ops]
LINE, SECTOR = 128, 32


def role(program: Program, name: str = "all", num_warps: int = 4) -> WarpRole:
    return WarpRole(name=name, num_warps=num_warps, program=program)


def launch(name: str, *roles: WarpRole, num_ctas: int | None = 1, **fields: Any) -> Launch:
    """Of so many CTAs, with a ring ``a`` of four stages and rings ``full`` and ``empty`` of as many mbarriers."""
    fields.setdefault("num_tiles", num_ctas)
    fields.setdefault("buffers", (Buffer(name="a", stage_bytes=32768, num_stages=4),))
    fields.setdefault(
        "mbarriers", tuple(Mbarrier(name=each, num_arrivals=1, num_stages=4) for each in ("full", "empty"))
    )
    return Launch(kernel=name, num_ctas=num_ctas, roles=roles, **fields)


def contiguous(num_bytes: int) -> AccessPattern:
    """Warps that touch so many bytes in a row, a line a request."""
    lines = num_bytes // LINE
    return AccessPattern(
        num_requests=lines, num_sectors=num_bytes // SECTOR, num_lines=lines, num_wavefronts=lines, num_bytes=num_bytes
    )


def scattered(num_requests: int) -> AccessPattern:
    """Each lane of so many requests in a line of its own, four bytes each."""
    return AccessPattern(
        num_requests=num_requests, num_sectors=32 * num_requests, num_lines=32 * num_requests,
        num_wavefronts=32 * num_requests, num_bytes=LINE * num_requests,
    )  # fmt: skip


def shared(num_wavefronts: int, num_requests: int = 1) -> AccessPattern:
    return AccessPattern(num_requests=num_requests, num_wavefronts=num_wavefronts, num_bytes=LINE * num_requests)


def wait(stage: int, parity: int = 0, barrier: str = "full", *, by_lane: bool = False) -> ops.MbarrierWait:
    return ops.MbarrierWait(barrier, stage, parity, by_lane)


def expect(stage: int, num_bytes: int) -> ops.MbarrierArriveExpectTx:
    return ops.MbarrierArriveExpectTx("full", stage, num_bytes)


def tma(tile: Any, stage: int, num_bytes: int, num_rows: int = 32, **fields: Any) -> ops.TmaLoad:
    fetched = fields.pop("num_fetched_bytes", num_bytes)
    return ops.TmaLoad("A", tile, num_bytes, fetched, num_rows, "a", stage, "full", **fields)


def itself(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    return tiles


def bytes_of(num_bytes: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    def panel_bytes(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full_like(tiles, num_bytes)

    return panel_bytes


# ------------------------------------------------------------------------------------------ clusters


def far_words(size: int, num_ctas: int) -> Launch:
    """Loads, stores and arrivals in the shared memory of other CTAs, fences, and the cluster's barrier."""

    def program(cta: RoleContext) -> Ops:
        rank, other = cta.cta_rank, (cta.cta_rank + 1) % size
        yield ops.MbarrierInit("full")
        yield ops.FenceMbarrierInit()
        yield ops.ClusterArrive()
        yield ops.Alu(5 + 3 * rank, is_chain=True)
        yield ops.ClusterWait()
        yield expect(0, 1024)
        yield ops.StAsync(other, 1024, "full", 0)
        token = yield ops.DsmemLoad(other, 4096)
        yield ops.DsmemStore(other, 512)
        yield wait(0)
        yield ops.FenceAcqRel()
        yield ops.MbarrierArrive("empty", 1, cta_rank=other)
        yield wait(1, barrier="empty")
        yield ops.Use(token)
        yield ops.DsmemStore(rank, 64)
        yield ops.MbarrierArrive("empty", 2, cta_rank=rank)
        yield wait(2, barrier="empty", by_lane=True)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()

    return launch("far_words", role(program), num_ctas=num_ctas, cluster_size=size)


def multicast_ring(size: int, num_ctas: int, num_steps: int = 12) -> Launch:
    """Each CTA loads a part of every step for the whole cluster; consumers give slots back to all producers."""
    part, everyone = 8192, tuple(range(size))

    def meet() -> Ops:
        yield ops.ClusterArrive()
        yield ops.ClusterWait()

    def producer(cta: RoleContext) -> Ops:
        yield from meet()
        for step in cta.loop(num_steps):
            stage = step % 4
            yield wait(stage, (step // 4 & 1) ^ 1, "empty", by_lane=True)
            yield expect(stage, part * size)
            yield tma(
                (cta.cta_rank, step), stage, part, 64, multicast=everyone, fetches=Fetches(part, 256, 256, 256, 64, 128, 32)
            )
        yield from meet()

    def consumer(cta: RoleContext) -> Ops:
        yield from meet()
        for step in cta.loop(num_steps):
            stage = step % 4
            yield wait(stage, step // 4 & 1)
            yield ops.WgmmaFence()
            yield ops.Wgmma(wgmma(64, BF16), 4, (("a", stage),))
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(0)
            for rank in everyone:
                yield ops.MbarrierArrive("empty", stage, cta_rank=rank)
        yield from meet()

    rings = (Mbarrier(name="full", num_arrivals=1, num_stages=4), Mbarrier(name="empty", num_arrivals=size, num_stages=4))
    return launch(
        "multicast_ring", role(producer, "producer", 1), role(consumer, "consumer", 4), num_ctas=num_ctas,
        cluster_size=size, mbarriers=rings, tensor_maps=("A",),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ barriers and registers


def hand_overs(num_ctas: int, num_rounds: int = 6) -> Launch:
    """Two roles that hand each other turns by named barriers, and a third that all meet now and then."""

    def first(cta: RoleContext) -> Ops:
        for turn in range(num_rounds):
            yield ops.Fma(40 + 7 * turn)
            yield ops.BarArrive("to_second")
            yield ops.Mufu(9)
            yield ops.BarSync("to_first")
            if turn % 3 == 2:
                yield ops.Syncthreads()

    def second(cta: RoleContext) -> Ops:
        for turn in range(num_rounds):
            yield ops.BarSync("to_second")
            yield ops.Alu(30)
            yield ops.BarArrive("to_first")
            yield ops.Shfl(5, is_chain=turn % 2 == 0, num_warps=2)
            if turn % 3 == 2:
                yield ops.Syncthreads()

    def third(cta: RoleContext) -> Ops:
        for _ in range(num_rounds // 3):
            yield ops.Fma(200, is_chain=True)
            yield ops.Syncthreads()

    return launch(
        "hand_overs", role(first, "first"), role(second, "second"), role(third, "third", 1), num_ctas=num_ctas,
        named_barriers=tuple(NamedBarrier(name=name, num_threads=256) for name in ("to_second", "to_first")),
    )


def traded_registers(num_ctas: int) -> Launch:
    """Two consumers wait until a producer has given its registers back, in two parts."""

    def producer(cta: RoleContext) -> Ops:
        for left in (104, 40):
            yield ops.Mufu(100)
            yield ops.SetMaxNReg(left, "dec")

    def consumer(cta: RoleContext) -> Ops:
        yield ops.SetMaxNReg(232, "inc")
        yield ops.Fma(100)
        yield ops.SetMaxNReg(232, "inc")

    return launch(
        "traded_registers", role(consumer, "first"), role(consumer, "second"), role(producer, "producer"),
        num_ctas=num_ctas, registers_per_thread=168,
    )


# ------------------------------------------------------------------------------------------ shared memory


def conflicts(ways: int, num_ctas: int, *, num_rounds: int = 3, num_parts: int = 1) -> Launch:
    """CTAs that share SMs: loads with conflicts long enough for turns, and behind them global loads and copies."""

    def program(cta: RoleContext) -> Ops:
        yield ops.Syncthreads()
        for turn in range(num_rounds):
            token = yield ops.SharedLoad(shared(ways * 16, 16), num_parts=num_parts)
            yield ops.CpAsync("lines", (cta.cta_idx, turn), contiguous(2048), "a", turn % 4, num_rows=4, num_between=3.0)
            yield ops.CpAsyncCommitGroup(is_held=turn % 2 == 1)
            there = yield ops.GlobalLoad("more", (cta.cta_idx, turn), contiguous(1024), allocates_in_l1=turn % 2 == 0)
            yield ops.Use(token)
            yield ops.Use(there)
            yield ops.CpAsyncWaitGroup(0)
            yield ops.Syncthreads()
            yield ops.Use((yield ops.SharedLoad(shared(16, 16), "a", turn % 4)))

    return launch(
        "conflicts", role(program), num_ctas=num_ctas, registers_per_thread=40,
        buffers=(Buffer(name="a", stage_bytes=2048, num_stages=4),),
    )


def lone_readers(num_readers: int, ways: int = 32) -> Launch:
    """Roles of one warp each that read with conflicts, and one that asks global memory behind them."""

    def reader(cta: RoleContext) -> Ops:
        for _ in range(3):
            yield ops.Use((yield ops.SharedLoad(shared(ways * 8, 8))))

    def prober(cta: RoleContext) -> Ops:
        yield ops.Alu(30, is_chain=True)
        yield ops.Use((yield ops.GlobalLoad("lines", (0, 0), contiguous(128))))
        yield ops.CpAsync("lines", (0, 0), contiguous(128), "a", 0, allocates_in_l1=True)
        yield ops.CpAsyncCommitGroup()
        yield ops.CpAsyncWaitGroup(0)

    roles = [role(reader, f"reader{idx}", 1) for idx in range(num_readers)]
    return launch("lone_readers", *roles, role(prober, "prober", 1))


def swaps(num_ctas: int) -> Launch:
    """Atomics in shared and global memory, with results and without, and fences for them."""

    def program(cta: RoleContext) -> Ops:
        for turn in range(4):
            yield ops.Use((yield ops.SharedAtomic(shared(40, 8))))
            yield ops.SharedAtomic(shared(8, 8))
            yield ops.GlobalAtomic("sums", (0, turn), contiguous(1024))
            token = yield ops.GlobalAtomic("count", (0, 0), contiguous(128), returns=True)
            yield ops.Use(token)
            yield ops.GlobalStore("out", (cta.cta_idx, turn), contiguous(4096))
            yield ops.FenceAcqRel()

    return launch("swaps", role(program, num_warps=8), num_ctas=num_ctas)


def fragments(num_ctas: int) -> Launch:
    """ldmatrix, stmatrix and stores with tokens, proxy fences, a stage that goes out by TMA, and one that is added."""

    def program(cta: RoleContext) -> Ops:
        for turn in range(5):
            stage = turn % 2
            yield ops.BulkWaitGroup(1)
            yield ops.Syncthreads()
            first = yield ops.Stmatrix(shared(32, 8), "a", stage, has_token=True)
            yield ops.SharedStore(shared(48, 8), "a", stage)
            second = yield ops.SharedStore(shared(64, 16), "", 0, has_token=True)
            yield ops.Use(first)
            yield ops.Use(second)
            yield ops.FenceProxyAsync()
            yield ops.Syncthreads()
            yield ops.Use((yield ops.Ldmatrix(shared(64, 16), "a", stage)))
            yield ops.TmaStore("D", (cta.cta_idx, turn), 4096, 32, "a", stage, num_boxes=2)
            yield ops.TmaStore("E", (0, turn), 2000, 20, "a", stage, reduce=True)
            yield ops.BulkCommitGroup()
        yield ops.BulkWaitGroup(0, read=False)

    return launch("fragments", role(program), num_ctas=num_ctas, tensor_maps=("D", "E"))


def crowds(num_ctas: int, *, num_rounds: int = 2) -> Launch:
    """More long loads than have places in line: others wait for one before they ask global memory, the oldest first."""

    def program(cta: RoleContext) -> Ops:
        for turn in range(num_rounds):
            token = yield ops.SharedLoad(shared(1024, 128), num_parts=2)
            yield ops.CpAsync("lines", (cta.cta_idx, turn), contiguous(2048), "a", turn % 4, num_rows=4)
            yield ops.CpAsyncCommitGroup()
            yield ops.Fma(40.0, num_runs=2)
            there = yield ops.GlobalLoad("more", (cta.cta_idx, turn), contiguous(1024))
            yield ops.Use(token)
            yield ops.Use(there)
            yield ops.CpAsyncWaitGroup(0)
            yield ops.Use((yield ops.SharedLoad(shared(8, 4), num_parts=4)))

    def lone(cta: RoleContext) -> Ops:
        yield ops.Alu(60, is_chain=True)
        yield ops.Use((yield ops.GlobalLoad("more", (cta.cta_idx, 9), contiguous(128))))
        yield ops.Use((yield ops.SharedLoad(shared(64, 8))))

    return launch(
        "crowds", role(program, "first"), role(program, "second"), role(lone, "lone", 1), num_ctas=num_ctas,
        registers_per_thread=40, buffers=(Buffer(name="a", stage_bytes=2048, num_stages=4),),
    )


def kept_lines(num_ctas: int, num_tiles: int, num_bytes: int) -> Launch:
    """Loads through L1 of more than it holds, some of them again; a role that ends with a load."""

    def program(cta: RoleContext) -> Ops:
        for step in range(num_tiles):
            yield ops.Use((yield ops.GlobalLoad("T", (cta.cta_idx % 2, step * step % num_tiles), contiguous(num_bytes))))

    def ends(cta: RoleContext) -> Ops:
        yield ops.GlobalLoad("T", (0, 0), contiguous(1024))

    return launch("kept_lines", role(program, num_warps=8), role(ends, "ends", 1), num_ctas=num_ctas)


# ------------------------------------------------------------------------------------------ copies


def box_edges(num_ctas: int) -> Launch:
    """Boxes half or all outside of their tensor, tiles that come along, hints, several boxes, maps asked for ahead."""

    def producer(cta: RoleContext) -> Ops:
        yield ops.PrefetchTensormap(("A",))
        for step in range(8):
            stage, panel = step % 4, cta.cta_idx // 2
            yield wait(stage, (step // 4 & 1) ^ 1, "empty")
            yield expect(stage, 8192)
            if step % 4 == 3:
                yield tma((panel, step), stage, 8192, 64, num_fetched_bytes=0, num_zero_rows=64, num_outside_rows=64)
            elif step % 4 == 2:
                yield tma(
                    (panel, step), stage, 8192, 64, num_fetched_bytes=5120, num_zero_rows=24, num_boxes=2,
                    fetches=Fetches(5120, 160, 176, 168, 48, 100, 20),
                )  # fmt: skip
            else:
                yield tma(
                    (panel, step), stage, 8192, 64, promoted_tiles=((panel, step ^ 1),), new_fraction=0.75,
                    cache_hint="evict_last" if step == 1 else "evict_normal",
                )

    def consumer(cta: RoleContext) -> Ops:
        for step in range(8):
            yield wait(step % 4, step // 4 & 1)
            yield ops.Use((yield ops.SharedLoad(shared(64, 64), "a", step % 4)))
            yield ops.MbarrierArrive("empty", step % 4)

    return launch(
        "box_edges", role(producer, "producer", 1), role(consumer, "consumer"), num_ctas=num_ctas, tensor_maps=("A", "B")
    )


def made_maps(num_ctas: int) -> Launch:
    """Each CTA makes the tensor map of A, and copies through it and through one of the host."""

    def producer(cta: RoleContext) -> Ops:
        yield ops.Alu(40, is_chain=True)
        yield ops.FenceProxyTensormap(("A",))
        for step in range(4):
            yield expect(step, 8192)
            yield tma((cta.cta_idx, step), step, 8192, 64)

    def consumer(cta: RoleContext) -> Ops:
        for step in range(4):
            yield wait(step, 0)
            yield ops.Use((yield ops.SharedLoad(shared(64, 64), "a", step)))

    return launch(
        "made_maps", role(producer, "producer", 1), role(consumer, "consumer"), num_ctas=num_ctas, tensor_maps=("B",)
    )


def copies(num_ctas: int, *, is_planned: bool = False) -> Launch:
    """cp.async through L1 and around it, with pieces of sectors, tiles that come along, empty groups, mbarriers."""
    part = AccessPattern(num_requests=16, num_sectors=96, num_lines=32, num_wavefronts=24, num_bytes=2048)

    def program(cta: RoleContext) -> Ops:
        panel = cta.cta_idx % 3
        for step in cta.loop(6):
            stage = step % 2
            yield ops.CpAsync("A", (panel, step), contiguous(4096), "a", stage, allocates_in_l1=True, num_rows=32)
            yield ops.CpAsync(
                "B", (cta.cta_idx, step), part, "a", stage, num_rows=20, fetches=Fetches(2304, 72, 80, 76, 30, 40, 12),
                num_passes=26.0, promoted_tiles=((cta.cta_idx, step ^ 1),), new_fraction=0.5,
            )  # fmt: skip
            yield ops.CpAsyncCommitGroup()
            if step % 3 == 0:
                yield ops.CpAsyncCommitGroup()
            yield ops.CpAsyncWaitGroup(0)
            yield ops.Syncthreads()
            yield ops.Use((yield ops.SharedLoad(shared(32, 16), "a", stage)))
            yield ops.Syncthreads()
        yield ops.CpAsync("B", (cta.cta_idx, 9), contiguous(2048), "a", 2)
        yield ops.CpAsyncMbarrierArrive("full", 0)
        yield wait(0)
        yield ops.CpAsyncMbarrierArrive("full", 1)
        yield wait(1)

    footprints: tuple[Footprint, ...] = ()
    if is_planned:
        footprints = (
            Footprint(
                tensor="B", access="read", panel_of=itself, panel_bytes=bytes_of(7 * 2304), num_steps=7, piece_bytes=256,
                piece_stride_bytes=8192,
            ),
            Footprint(
                tensor="A", access="read", panel_of=lambda tiles: tiles % 3, panel_bytes=bytes_of(6 * 4096), num_steps=6
            ),
        )  # fmt: skip
    return launch(
        "copies", role(program), num_ctas=num_ctas, footprints=footprints, registers_per_thread=64,
        mbarriers=(Mbarrier(name="full", num_arrivals=128, num_stages=4), Mbarrier(name="empty", num_arrivals=1)),
    )


def one_barrier(num_ctas: int, num_steps: int = 4) -> Launch:
    """Four copies that one mbarrier waits for, of tiles that neighbours want, too."""

    def producer(cta: RoleContext) -> Ops:
        for step in range(num_steps):
            stage = step % 2
            yield wait(stage, (step // 2 & 1) ^ 1, "empty")
            yield expect(stage, 4 * 4096)
            for part in range(4):
                yield tma((cta.cta_idx // (1 << part), 4 * step + part), stage, 4096, 32)

    def consumer(cta: RoleContext) -> Ops:
        for step in range(num_steps):
            yield wait(step % 2, step // 2 & 1)
            yield ops.Fma(100)
            yield ops.MbarrierArrive("empty", step % 2)

    return launch("one_barrier", role(producer, "producer", 1), role(consumer, "consumer"), num_ctas=num_ctas)


def edges_of_all(num_ctas: int) -> Launch:
    """Copies to a pair of CTAs, some of whose rows, or all, lie outside of the tensor; one that brings nothing."""

    def program(cta: RoleContext) -> Ops:
        yield ops.MbarrierInit("full")
        for step in range(4):
            yield expect(step, 16384)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        for step in range(4):
            outside = (0, 24, 64, 0)[step]
            fetched = (8192, 5120, 0, 0)[step]
            yield tma(
                (cta.cta_idx, step), step, 8192, 64, num_fetched_bytes=fetched, num_zero_rows=outside,
                num_outside_rows=outside if outside == 64 else 0, multicast=(0, 1),
            )  # fmt: skip
        for step in range(4):
            yield wait(step)
        yield ops.TmaStore("D", (cta.cta_idx, 0), 8192, 64, "", 0)
        yield ops.BulkCommitGroup()
        yield ops.BulkWaitGroup(0)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()

    return launch("edges_of_all", role(program, num_warps=1), num_ctas=num_ctas, cluster_size=2)


def named_tiles(num_ctas: int) -> Launch:
    """Tiles that are words, without footprints: L2 keeps those that were touched last."""

    def program(cta: RoleContext) -> Ops:
        for step in range(6):
            name = f"piece {(cta.cta_idx + step) % 5}" if step % 2 else ("row", cta.cta_idx % 3, step)
            yield ops.Use((yield ops.GlobalLoad("T", name, contiguous(4096))))  # type: ignore[arg-type]
            yield ops.GlobalStore("T", name, contiguous(2048))  # type: ignore[arg-type]

    return launch("named_tiles", role(program), num_ctas=num_ctas)


def rereads(num_ctas: int, num_tiles: int, *, num_bytes: int = 65536) -> Launch:
    """Tiles walked over and over, without footprints, in an order of each CTA's own: more than L2 may hold."""

    def program(cta: RoleContext) -> Ops:
        for step in range(num_tiles):
            tile = (0, (step * (1 + cta.cta_idx % 3) + cta.cta_idx) % num_tiles)
            yield ops.Use((yield ops.GlobalLoad("T", tile, contiguous(num_bytes), allocates_in_l1=False)))

    return launch("rereads", role(program, num_warps=8), num_ctas=num_ctas)


def rewrites(num_ctas: int) -> Launch:
    """Without footprints: what is stored in parts, read again, stored by several CTAs, and more than L2 may hold dirty."""

    def program(cta: RoleContext) -> Ops:
        for step in range(12):
            for part in range(2):
                yield ops.GlobalStore("own", (cta.cta_idx, step), contiguous(2048 << part))
            yield ops.GlobalAtomic("sums", (cta.cta_idx // 4, step % 3), contiguous(1024))
            yield ops.Use((yield ops.GlobalLoad("read", (cta.cta_idx, step), contiguous(8192), allocates_in_l1=False)))
            yield ops.Use((yield ops.GlobalLoad("own", (cta.cta_idx, step // 2), contiguous(6144), allocates_in_l1=False)))

    return launch("rewrites", role(program), num_ctas=num_ctas)


def uneven(num_ctas: int) -> Launch:
    """CTAs of unlike length, more of them than run at once; scattered loads, stores by parts, some without any work."""

    def program(cta: RoleContext) -> Ops:
        for step in range(cta.cta_idx * 7 % 5):
            first = yield ops.GlobalLoad("in", (cta.cta_idx, step), scattered(2))
            second = yield ops.GlobalLoad("in", (cta.cta_idx, step), contiguous(1024), cache_hint="evict_first")
            yield ops.Alu(10 * step)
            yield ops.Use(first)
            yield ops.Use(second)
            yield ops.GlobalStore("out", (cta.cta_idx, step), scattered(2) if step % 2 else contiguous(2048))

    return launch("uneven", role(program, num_warps=6), num_ctas=num_ctas, registers_per_thread=128)


def walkers(num_tiles: int) -> Launch:
    """A persistent grid of two roles that walk over work tiles, each every second turn."""
    math = wgmma(128, TF32)

    def walker(first: int) -> Program:
        def program(cta: RoleContext) -> Ops:
            for turn, tile in cta.tiles(num_tiles, first=first, step=2):
                for step in cta.loop(3):
                    yield ops.CpAsync("A", (tile // 4, step), contiguous(8192), "a", 2 * first + step % 2, num_rows=64)
                    yield ops.CpAsyncCommitGroup()
                    yield ops.CpAsyncWaitGroup(0)
                    yield ops.BarSync(f"group{first}")
                    yield ops.FenceProxyAsync()
                    yield ops.Wgmma(math, 2, (("a", 2 * first + step % 2),))
                    yield ops.WgmmaCommitGroup()
                    yield ops.WgmmaWaitGroup(0)
                yield ops.Alu(20 + turn, is_chain=True)
                yield ops.GlobalStore("D", (tile, 0), contiguous(16384))

        return program

    footprints = (
        Footprint(tensor="A", access="read", panel_of=lambda tiles: tiles // 4, panel_bytes=bytes_of(3 * 8192), num_steps=3),
        Footprint(tensor="D", access="write", panel_of=itself, panel_bytes=bytes_of(16384)),
    )
    return launch(
        "walkers", role(walker(0), "even"), role(walker(1), "odd"), num_ctas=None, num_tiles=num_tiles,
        footprints=footprints, registers_per_thread=96,
        named_barriers=tuple(NamedBarrier(name=f"group{idx}", num_threads=128) for idx in range(2)),
    )


def revisits(num_ctas: int, *, num_panels: int, num_bytes: int = 2048, piece_bytes: int = 256) -> Launch:
    """Panels that later waves read again, by a few lines at a time, when L2 has lost a part of them; and a vector."""
    num_steps = num_bytes // piece_bytes

    def program(cta: RoleContext) -> Ops:
        panel = cta.cta_idx % num_panels
        token = yield ops.GlobalLoad("bias", (0, 0), contiguous(128))
        for step in range(num_steps):
            yield ops.Use((yield ops.GlobalLoad("in", (panel, step), contiguous(piece_bytes), allocates_in_l1=False)))
        yield ops.Use((yield ops.GlobalLoad("first", (cta.cta_idx, 0), contiguous(2048), cache_hint="evict_first")))
        yield ops.Use(token)
        yield ops.GlobalStore("out", (cta.cta_idx, 0), contiguous(num_bytes))

    footprints = (
        Footprint(
            tensor="in", access="read", panel_of=lambda tiles: tiles % num_panels, panel_bytes=bytes_of(num_bytes),
            num_steps=num_steps,
        ),
        Footprint(
            tensor="first", access="read", panel_of=itself, panel_bytes=bytes_of(2048), cache_hint="evict_first"
        ),
        Footprint(tensor="out", access="write", panel_of=itself, panel_bytes=bytes_of(num_bytes)),
    )  # fmt: skip
    return launch(
        "revisits", role(program), num_ctas=num_ctas, footprints=footprints, buffers=(), mbarriers=(),
        registers_per_thread=128,
    )


def hinted(num_ctas: int) -> Launch:
    """A table that rows are read out of at random, lines that are kept or leave first, and a part of L2 set aside."""

    def program(cta: RoleContext) -> Ops:
        for walk in range(2):
            for step in range(2):
                yield ops.Use((yield ops.GlobalLoad("again", (cta.cta_idx, step), contiguous(8192), allocates_in_l1=False)))
                if not walk:
                    yield ops.Use((yield ops.GlobalLoad("kept", (cta.cta_idx // 8, step), contiguous(8192))))
                yield ops.Use((yield ops.GlobalLoad("table", (cta.cta_idx, step), scattered(4), allocates_in_l1=False)))
            yield ops.GlobalStore("out", (cta.cta_idx, walk), contiguous(8192), cache_hint="evict_first")

    footprints = (
        Footprint(
            tensor="kept", access="read", panel_of=lambda tiles: tiles // 8, panel_bytes=bytes_of(16384), num_steps=2,
            cache_hint="evict_last",
        ),
        Footprint(
            tensor="again", access="read", panel_of=itself, panel_bytes=bytes_of(16384), num_steps=2
        ),
        Footprint(
            tensor="table", access="read", panel_of=itself, panel_bytes=bytes_of(8192), num_steps=2, table_bytes=1 << 22
        ),
        Footprint(
            tensor="out", access="write", panel_of=itself, panel_bytes=bytes_of(16384), num_steps=2,
            cache_hint="evict_first", piece_bytes=64,
        ),
    )  # fmt: skip
    return launch(
        "hinted", role(program), num_ctas=num_ctas, footprints=footprints, set_aside_bytes=1 << 22, buffers=(), mbarriers=()
    )


# ------------------------------------------------------------------------------------------ arithmetic


def beside_products(num_ctas: int) -> Launch:
    """Code, wide products, stores and loads beside another warpgroup's wgmma, and its queue full."""

    def math(cta: RoleContext) -> Ops:
        for turn in range(6):
            yield ops.WgmmaFence()
            for part in range(5 if turn == 2 else 1):
                yield ops.Wgmma(wgmma(256 if turn % 2 else 32, BF16), 3 + part, num_between=12.0 * (turn % 3))
                yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(turn % 2)
        yield ops.Wgmma(wgmma(128, FP8), 4)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    def other(cta: RoleContext) -> Ops:
        for turn in range(3):
            yield ops.FetchCode("body", 4096)
            yield ops.Alu(40, is_chain=True, num_beside=90.0, num_more=20.0)
            yield ops.ImadWide(30, is_interleaved=turn == 1, sets_pace=turn == 2)
            yield ops.Fma(60)
            yield ops.Mufu(10)
            yield ops.SharedStore(shared(120, 16))
            yield ops.SharedLoad(shared(64, 16))
            yield ops.GlobalStore("out", (cta.cta_idx, turn), contiguous(8192))
            yield ops.Use((yield ops.Ldmatrix(shared(64, 16))))
            yield ops.FetchCode("tail", 60000)
            yield ops.FetchColdCode("far", 70000, 90000, 300.0)

    return launch("beside_products", role(math, "math", 8), role(other, "other"), num_ctas=num_ctas)


def fragments_alone(num_ctas: int) -> Launch:
    """One role of mma.sync that has its SM to itself."""

    def program(cta: RoleContext) -> Ops:
        for turn in range(4):
            yield ops.MmaSync(mma_sync(BF16), 8 + turn)
            yield ops.RangeStart(ops.Section.EPILOGUE)
            yield ops.Use((yield ops.Ldmatrix(shared(32, 8))))
            yield ops.Use((yield ops.SharedStore(shared(32, 8), has_token=True)))
            yield ops.RangeEnd()

    return launch("fragments_alone", role(program), num_ctas=num_ctas)


def stores_beside(num_ctas: int, *, n: int) -> Launch:
    """Stores, atomics and conflicts beside narrow wgmma, which leave them little of the data stage."""

    def math(cta: RoleContext) -> Ops:
        for _ in range(4):
            yield ops.Wgmma(wgmma(n, BF16), 20)
            yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    def other(cta: RoleContext) -> Ops:
        yield ops.Alu(20, is_chain=True)
        yield ops.Alu(10, is_chain=True, num_beside=12.0)
        yield ops.GlobalStore("out", (cta.cta_idx, 9), contiguous(512))
        yield ops.Use((yield ops.SharedLoad(shared(40, 8))))
        for turn in range(3):
            yield ops.GlobalStore("out", (cta.cta_idx, turn), contiguous(32768))
            yield ops.Use((yield ops.SharedAtomic(shared(64, 8))))
            yield ops.Use((yield ops.SharedLoad(shared(128, 8))))
            yield ops.GlobalAtomic("sum", (0, turn), contiguous(2048))

    return launch("stores_beside", role(math, "math"), role(other, "other"), num_ctas=num_ctas)


def turns_of_products(num_ctas: int, *, num_roles: int = 2) -> Launch:
    """CTAs of several roles that take turns at mma.sync, of two types."""

    def program(cta: RoleContext) -> Ops:
        for turn in range(5):
            yield ops.MmaSync(mma_sync(BF16), 10)
            yield ops.Alu(3 * turn, is_chain=True)
            yield ops.MmaSync(mma_sync(INT8), 6)
            yield ops.Use((yield ops.Ldmatrix(shared(32, 8))))

    roles = [role(program, f"warps{idx}") for idx in range(num_roles)]
    return launch("turns_of_products", *roles, num_ctas=num_ctas, registers_per_thread=64, buffers=())


def sums(num_ctas: int, *, by_age: bool, num_warps: int = 4) -> Launch:
    """CTAs that share an SM's FMA pipe in turns, with copies that wait for runs of others, and a loop of much code."""

    def program(cta: RoleContext) -> Ops:
        for step in range(6):
            yield ops.CpAsync("T", (cta.cta_idx % 4, step), contiguous(1024), "a", 0)
            yield ops.CpAsync("T", (cta.cta_idx % 4, step + 10), contiguous(1024), "a", 0)
            yield ops.CpAsyncCommitGroup()
            for part in range(3):
                yield ops.LoopBody(600.0 * (1 + 3 * part), 40.0, 1.2)
                yield ops.Fma(256.0, bank_reads=1.25, num_runs=1 + part, by_age=by_age)
            yield ops.Alu(2, is_chain=True)
            yield ops.CpAsync("T", (cta.cta_idx % 4, step + 20), contiguous(512), "a", 0)
            yield ops.CpAsyncCommitGroup()
            yield ops.Alu(30, is_chain=True)
            yield ops.CpAsyncWaitGroup(0)

    return launch(
        "sums", role(program, num_warps=num_warps), num_ctas=num_ctas, registers_per_thread=64,
        buffers=(Buffer(name="a", stage_bytes=4096, num_stages=1),),
    )


# ------------------------------------------------------------------------------------------ drawn


def drawn(seed: int, num_ctas: int, *, num_roles: int = 3, num_ops: int = 40) -> Launch:
    """Roles of ops drawn from the vocabulary, all but those that wait for other roles; and barriers that all come to."""
    plans = [
        [plan for part in range(3) for plan in (*_drawn_ops(random.Random(1000 * seed + 10 * idx + part), num_ops), None)]
        for idx in range(num_roles)
    ]

    def program(idx: int) -> Program:
        def run(cta: RoleContext) -> Ops:
            tokens: list[Any] = []
            for plan in plans[idx]:
                if plan is None:
                    yield ops.Syncthreads()
                    continue
                op = plan(cta.cta_idx, tokens)
                if op is None:
                    continue
                token = yield op
                if token is not None:
                    tokens.append(token)
            yield ops.WgmmaWaitGroup(0)
            yield ops.CpAsyncWaitGroup(0)

        return run

    roles = [role(program(idx), f"role{idx}", (4, 8, 1)[idx % 3]) for idx in range(num_roles)]
    return launch("drawn", *roles, num_ctas=num_ctas, registers_per_thread=64)


Plan = Callable[[int, list[Any]], Any]


def _drawn_ops(draw: random.Random, num: int) -> Iterator[Plan]:
    def use(cta_idx: int, tokens: list[Any]) -> Any:
        return ops.Use(tokens.pop(0)) if tokens else None

    for _ in range(num):
        count, step, size = draw.randint(1, 60), draw.randint(0, 3), draw.choice((512, 1024, 4096))
        ways, requests = draw.choice((1, 2, 8, 20)), draw.choice((1, 4, 16))
        yield draw.choice([
            lambda cta_idx, tokens, count=count: ops.Fma(count),
            lambda cta_idx, tokens, count=count: ops.Alu(count, is_chain=count % 2 == 0, num_more=count % 3),
            lambda cta_idx, tokens, count=count: ops.Mufu(count / 4),
            lambda cta_idx, tokens, count=count: ops.Shfl(count / 2, is_chain=count % 3 == 0),
            lambda cta_idx, tokens, count=count: ops.ImadWide(count / 3, is_interleaved=count % 2 == 0),
            lambda cta_idx, tokens, count=count: ops.FetchCode(f"code{count % 4}", 1024 * (1 + count % 4)),
            lambda cta_idx, tokens, count=count: ops.MmaSync(mma_sync(BF16), 1 + count % 5),
            lambda cta_idx, tokens, step=step, size=size: ops.GlobalLoad("in", (cta_idx // 2, step), contiguous(size)),
            lambda cta_idx, tokens, step=step, size=size: ops.GlobalStore("out", (cta_idx, step), contiguous(size)),
            lambda cta_idx, tokens, step=step: ops.GlobalAtomic("sum", (0, step), contiguous(512), returns=step == 0),
            lambda cta_idx, tokens, ways=ways, requests=requests: ops.SharedLoad(shared(ways * requests, requests)),
            lambda cta_idx, tokens, ways=ways, requests=requests: ops.SharedStore(shared(ways * requests, requests)),
            lambda cta_idx, tokens, requests=requests: ops.SharedAtomic(shared(2 * requests, requests)),
            lambda cta_idx, tokens, requests=requests: ops.Ldmatrix(shared(4 * requests, requests)),
            lambda cta_idx, tokens: ops.FenceProxyAsync(),
            lambda cta_idx, tokens: ops.FenceAcqRel(),
            use, use, use, use,
        ])  # fmt: skip
