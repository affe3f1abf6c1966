"""GEMMs written by hand, with data accesses: TMA with wgmma, and cp.async with ldmatrix and mma.sync.

``mutation`` names one wrong step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, Launch, Mbarrier, WarpRole
from gpusim.layout import Layout, make_tiled_copy_A, make_tiled_copy_B, tile_to_shape
from gpusim.layout.swizzle import ByteLayout, swizzle_mode
from gpusim.workload import ops
from gpusim.workload.atoms import copy_atom, mma_sync, wgmma
from gpusim.workload.data_access import (
    Copy,
    GlobalElements,
    IntArray,
    MatrixOffsets,
    MmaFragments,
    SharedElements,
    WgmmaOperands,
    box_copy,
    descriptor_offsets,
    matrix_offsets,
)
from gpusim.workload.dtypes import BF16, FP32
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.smem.wgmma_operands import gmma_atom, wgmma_descriptors
from gpusim.workload.tensor import MemRef
from gpusim.workload.tiled import tiled_copy, tiled_mma, warp_addresses
from gpusim.workload.tma.boxes import TensorMap

ANY = AccessPattern()
NUM_STEPS, STAGES = 5, 2


def operands(m: int, n: int, k: int, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Small integers: every product and sum is exact."""
    random = np.random.default_rng(seed)
    return {
        "A": random.integers(-4, 5, (m, k)).astype(np.float32), "B": random.integers(-4, 5, (k, n)).astype(np.float32),
    }


def tensors(m: int, n: int, k: int) -> tuple[MemRef, ...]:
    b = MemRef(name="B", layout=Layout((k, n), (1, k)), dtype=BF16)
    return MemRef.row_major("A", (m, k), BF16), b, MemRef.row_major("D", (m, n), FP32)


TMA_SHAPE = 64, 32, 64 * NUM_STEPS - 24
"""M, N, K: the last k-step is partly outside."""


def tma_operands(m: int, n: int, k: int, mutation: str = "") -> tuple[dict[str, TensorMap], dict[str, list[IntArray]]]:
    """Tensor maps of A and B in boxes of 64 columns, and the byte offsets of the four wgmma of a k-step."""
    maps, offsets = {}, {}
    for name, rows in (("A", m), ("B", n)):
        height = 56 if mutation == "short box" and name == "A" else rows
        maps[name] = TensorMap(
            dtype=BF16, global_dim=(k, rows), global_strides_bytes=(2 * k,), box_dim=(64, height), swizzle="128B",
        )  # fmt: skip
        found = wgmma_descriptors(tile_to_shape(gmma_atom("K", "128B", element_bits=16), (rows, 64)), "K")
        if mutation == "wrong swizzle" and name == "A":
            found = tuple(replace(each, swizzle="64B", stride_offset_bytes=512) for each in found)
        offsets[name] = [descriptor_offsets(each, "K", rows, BF16) for each in found]
        if mutation == "transposed" and name == "B":
            offsets[name] = [np.concatenate([each[:16].T, each[16:].T]) for each in offsets[name]]
    return maps, offsets


def box_load(name: str, described: TensorMap, step: int, num_stages: int = STAGES) -> ops.TmaLoad:
    """The copy of the box of a k-step."""
    height = described.box_dim[1]
    return ops.TmaLoad(
        name, (0, step), 128 * height, 128 * height, height, name.lower(), step % num_stages, "full",
        data=box_copy(name, described, (64 * step, 0)),
    )  # fmt: skip


def multiply(offsets: dict[str, list[IntArray]], stage: int) -> ops.Wgmma:
    """The wgmma of a k-step."""
    issues = tuple(MatrixOffsets(a=a, b=b, fragment=0) for a, b in zip(offsets["A"], offsets["B"], strict=True))
    return ops.Wgmma(
        wgmma(32, BF16), 4, (("a", stage), ("b", stage)),
        data=WgmmaOperands(a=("a", stage), b=("b", stage), sums="sums", issues=(issues,), num_sums=1),
    )


def store_sums(m: int, n: int) -> ops.GlobalStore:
    """The store of a warpgroup's sums to D."""
    thread, value = np.ogrid[:128, :16]
    column, row = np.divmod(np.asarray(wgmma(32, BF16).tv.c((thread, value))), m)
    return ops.GlobalStore("D", (0, 0), ANY, data=GlobalElements(tensor="D", index=row * n + column, registers="sums"))


def by_tma(mutation: str = "") -> Launch:
    """One tile of 64 x 32: a producer fills two stages by TMA, and a warpgroup multiplies."""
    m, n, k = TMA_SHAPE
    maps, offsets = tma_operands(m, n, k, mutation)

    def producer(cta: Any) -> Iterator[Any]:
        for step in range(NUM_STEPS):
            stage, parity = step % STAGES, step // STAGES & 1
            if mutation != "no empty wait":
                yield ops.MbarrierWait("empty", stage, parity ^ 1)
            loads = [box_load(name, described, step) for name, described in maps.items()]
            expected = sum(load.num_bytes for load in loads) - (loads[1].num_bytes if mutation == "too few bytes" else 0)
            yield ops.MbarrierArriveExpectTx("full", stage, expected)
            yield from loads

    def consumer(cta: Any) -> Iterator[Any]:
        for step in range(NUM_STEPS):
            stage, parity = step % STAGES, step // STAGES & 1
            if mutation != "no full wait":
                yield ops.MbarrierWait("full", stage, parity)
            read = 1 - stage if mutation == "wrong stage" and step == 3 else stage
            yield ops.WgmmaFence()
            yield multiply(offsets, read)
            yield ops.WgmmaCommitGroup()
            if mutation != "no wgmma wait":
                yield ops.WgmmaWaitGroup(0)
            yield ops.MbarrierArrive("empty", stage)
        yield store_sums(m, n)

    return Launch(
        kernel="by_tma", num_ctas=1, num_tiles=1, tensors=tensors(m, n, k),
        roles=tuple(
            WarpRole(name=program.__name__, num_warps=num, program=program)
            for program, num in ((producer, 1), (consumer, 4))
        ),
        buffers=tuple(
            Buffer(name=name, stage_bytes=rows * 128, num_stages=STAGES) for name, rows in (("a", m), ("b", n))
        ),
        mbarriers=tuple(Mbarrier(name=name, num_arrivals=1, num_stages=STAGES) for name in ("full", "empty")),
    )


def by_one_warpgroup(mutation: str = "") -> Launch:
    """One tile of 64 x 32: the warpgroup that multiplies also fills three stages by TMA, two steps ahead.

    A stage is filled again behind the wait for the wgmma that reads it. "early copy" fills it before that wait.
    """
    (m, n, k), num_stages = TMA_SHAPE, 3
    maps, offsets = tma_operands(m, n, k, mutation)

    def fill(step: int) -> Iterator[Any]:
        if step < NUM_STEPS:
            loads = [box_load(name, described, step, num_stages) for name, described in maps.items()]
            yield ops.MbarrierArriveExpectTx("full", step % num_stages, sum(load.num_bytes for load in loads))
            yield from loads

    def program(cta: Any) -> Iterator[Any]:
        for step in range(num_stages - 1):
            yield from fill(step)
        for step in range(NUM_STEPS):
            yield ops.MbarrierWait("full", step % num_stages, step // num_stages & 1)
            if mutation == "early copy":
                yield from fill(step + num_stages - 1)
            yield ops.WgmmaFence()
            yield multiply(offsets, step % num_stages)
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(1)
            if mutation != "early copy":
                yield from fill(step + num_stages - 1)
        yield ops.WgmmaWaitGroup(0)
        yield store_sums(m, n)

    return Launch(
        kernel="by_one_warpgroup", num_ctas=1, num_tiles=1, tensors=tensors(m, n, k),
        roles=(WarpRole(name="math", num_warps=4, program=program),), registers_per_thread=64,
        buffers=tuple(Buffer(name=name, stage_bytes=rows * 128, num_stages=3) for name, rows in (("a", m), ("b", n))),
        mbarriers=(Mbarrier(name="full", num_arrivals=1, num_stages=3),),
    )


def by_cluster(mutation: str = "") -> Launch:
    """A cluster of two CTAs: one multicasts a tile to both, each loads its own, and adds the other's out of its memory."""
    rows, columns = 16, 32
    size = rows * columns * 4
    described = TensorMap(
        dtype=FP32, global_dim=(columns, 2 * rows), global_strides_bytes=(4 * columns,), box_dim=(columns, rows)
    )
    element = np.arange(rows * columns).reshape(-1, 4)

    def load(name: str, buffer: str, first: int, multicast: tuple[int, ...] = ()) -> ops.TmaLoad:
        data = box_copy(name, described, (0, first))
        return ops.TmaLoad(name, (first, 0), size, size, rows, buffer, 0, "full", multicast=multicast, data=data)

    def program(cta: Any) -> Iterator[Any]:
        rank, other = cta.cta_rank, 1 - cta.cta_rank
        yield ops.MbarrierArriveExpectTx("full", 0, 2 * size)
        yield ops.ClusterArrive()  # both barriers are ready
        yield ops.ClusterWait()
        if not rank:
            yield load("common", "common", 0, (0, 1))
        yield load("own", "own", rank * rows)
        yield ops.MbarrierWait("full", 0, 0)
        if mutation != "no cluster barrier":
            yield ops.ClusterArrive()
            yield ops.ClusterWait()
        places = SharedElements(offsets=4 * element, dtype=FP32, registers="common", buffer="common")
        there = replace(places, registers="other", buffer="common" if mutation == "wrong buffer" else "own")
        tokens = [(yield ops.SharedLoad(ANY, "common", 0, data=places)), (yield ops.DsmemLoad(other, size, data=there))]
        for token in tokens:
            yield ops.Use(token)
        yield ops.ClusterArrive()  # nobody leaves while it is read
        yield ops.ClusterWait()

        def add(registers: Any) -> None:
            registers["sum"] = registers["common"] + registers["other"]

        index = rank * rows * columns + element
        yield ops.GlobalStore("out", (rank, 0), ANY, data=GlobalElements(
            tensor="out", index=index, registers="sum", compute=add
        ))  # fmt: skip

    return Launch(
        kernel="by_cluster", num_ctas=2, num_tiles=2, cluster_size=2, features=frozenset({"cluster", "tma", "mbarrier"}),
        roles=(WarpRole(name="all", num_warps=4, program=program),),
        buffers=tuple(Buffer(name=name, stage_bytes=size) for name in ("common", "own")),
        mbarriers=(Mbarrier(name="full", num_arrivals=1),),
        tensors=tuple(MemRef.row_major(name, (2 * rows, columns), FP32) for name in ("common", "own", "out")),
    )


def by_cp_async(mutation: str = "") -> Launch:
    """Tiles of 32 x 32, one a CTA: four warps copy, load fragments and multiply. Layouts are CuTe's."""
    m, n, k, depth = 64, 64, 32 * NUM_STEPS, 32
    mma = tiled_mma(mma_sync(BF16), Layout((2, 2, 1)), (None, 32, None))
    load = copy_atom("ldmatrix_x4")
    fill = tiled_copy(copy_atom("cp_async_cg_b128"), BF16, Layout((32, 4), (4, 1)), Layout((1, 8)))
    written = ByteLayout(swizzle_mode("64B"), Layout((32, depth), (depth, 1)), element_bits=16)
    read = ByteLayout(swizzle_mode("32B" if mutation == "wrong swizzle" else "64B"), written.layout, element_bits=16)
    eight = np.arange(8)
    threads = warp_addresses(fill, MemRef(name="sA", layout=written, dtype=BF16, space="smem"), "dst").reshape(128, 1)
    offsets = threads + 2 * eight
    if mutation == "an element too few":
        offsets = np.where((np.arange(128)[:, None] == 77) & (eight == 7), -1, offsets)
    source = warp_addresses(fill, MemRef.row_major("gA", (32, depth), BF16), "src").reshape(128, 1) // 2
    row_of, k_of = np.divmod(source + eight, depth)
    tile = MemRef(name="sA", layout=read, dtype=BF16, space="smem")
    trans = copy_atom("ldmatrix_x4_trans" if mutation == "transposed" else "ldmatrix_x4")
    loads = {
        "a": matrix_offsets(trans, warp_addresses(make_tiled_copy_A(load.tv(BF16), mma), tile, "src")),
        "b": matrix_offsets(load, warp_addresses(make_tiled_copy_B(load.tv(BF16), mma), tile, "src")),
    }
    issues = tuple((part, 2 * part + idx, idx) for part in range(2) for idx in range(2))
    thread, value = np.ogrid[:128, :8]
    column, row = np.divmod(np.asarray(mma.layout_c_tv()((thread, value))), 32)

    def program(cta: Any) -> Iterator[Any]:
        of_m, of_n = divmod(cta.cta_idx, n // 32)

        def copies(step: int) -> Iterator[Any]:
            for tensor, buffer, first in (("A", "a", 32 * of_m), ("B", "b", 32 * of_n)):
                index = (first + row_of) * k + step * depth + k_of
                yield ops.CpAsync(
                    tensor, (first, step), ANY, buffer, step % STAGES, data=Copy(tensor=tensor, index=index, offsets=offsets)
                )
            yield ops.CpAsyncCommitGroup()

        yield from copies(0)
        for step in range(NUM_STEPS):
            if step + 1 < NUM_STEPS:
                yield from copies(step + 1)
            if mutation != "no wait":
                yield ops.CpAsyncWaitGroup(1 if step + 1 < NUM_STEPS else 0)
            yield ops.Syncthreads()
            stage = step % STAGES
            yield ops.Use((yield ops.Ldmatrix(ANY, "a", stage, data=tuple(
                SharedElements(offsets=loads[name], dtype=None, registers=name, buffer=name, stage=stage) for name in "ab"
            ))))
            fragments = MmaFragments(a="a", b="b", sums="sums", issues=issues, num_sums=2)
            yield ops.MmaSync(mma_sync(BF16), 4, data=fragments)
            yield ops.Syncthreads()
        index = (32 * of_m + row) * n + 32 * of_n + column
        yield ops.GlobalStore("D", (of_m, of_n), ANY, data=GlobalElements(tensor="D", index=index, registers="sums"))

    return Launch(
        kernel="by_cp_async", num_ctas=m * n // 1024, num_tiles=m * n // 1024, tensors=tensors(m, n, k),
        roles=(WarpRole(name="math", num_warps=4, program=program),),
        buffers=tuple(Buffer(name=name, stage_bytes=32 * depth * 2, num_stages=STAGES) for name in "ab"),
    )
