"""Second kernel of split-K: sums the parts and writes D."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.mainloop.epilogue_data import PartSums
from gpusim.kernel_models.mainloop.output import SUM_BYTES
from gpusim.kernel_models.streaming import ceil_div
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import by_thread
from gpusim.workload.launch import Footprint, Launch, Program, RoleContext, WarpRole
from gpusim.workload.smem.access import AccessPattern

THREADS = 256
ELEMENTS_PER_THREAD = 4
PER_CTA = THREADS * ELEMENTS_PER_THREAD

THREADS_BY_ELEMENTS = 512
"""Threads of a CTA in which each thread sums one element at a time. Source of this and the next constants: cuBLAS's
splitKreduce_kernel, its grids, and its SASS with the execution count of each instruction (Nsight Compute);
validation/studies/library_sums_h200_sxm.csv."""
CTAS_AN_ELEMENT = 512
"""CTAs of a grid with one element a thread that add one element to each thread. All eight grids follow this rule."""
BEFORE, EACH_ELEMENT, EACH_PART = 50, 32, 5
"""Instructions of a thread: once, for each element, and for each of its parts besides the load and the sum."""
AT_ONCE = 4
"""Parts of an element that are loaded at once. If fewer remain, one is loaded first, then the others."""


def reduction_launch(config: GemmConfig) -> Launch:
    """Launch of the kernel that sums the parts of ``config``, by its ``splitk_reduction``."""
    return _by_elements(config) if config.splitk_reduction == "scalar" else _by_vectors(config)


def _trips(parts: int) -> tuple[int, ...]:
    """Numbers of an element's parts that are loaded at once, in order.

    >>> [_trips(parts) for parts in (2, 3, 4, 9)]
    [(1, 1), (1, 2), (4,), (4, 4, 1)]
    """
    left = parts % AT_ONCE
    return (AT_ONCE,) * (parts // AT_ONCE) + ((1,) if left else ()) + ((left - 1,) if left > 1 else ())


def _by_elements(config: GemmConfig) -> Launch:
    """A kernel in which each thread sums ``split_k`` parts of one element, four at a time, and stores it.

    It then continues with its next element.

    Ignores:
    * The addresses of a tile's elements in the workspace.
    * Edges of its tiles of 32 x 16 elements.
    """
    num_elements = config.m * config.n * config.batch
    each = max(1, ceil_div(num_elements, THREADS_BY_ELEMENTS) // CTAS_AN_ELEMENT)
    per_cta = each * THREADS_BY_ELEMENTS
    parts, width = config.split_k, config.out_element.num_bytes
    alu, mufu = config.output.finishing_cost
    before, of_element = ops.Alu(BEFORE, is_chain=True), ops.Alu(EACH_ELEMENT + alu, is_chain=True)
    of_part, add = ops.Alu(EACH_PART), ops.Fma(1.0, is_chain=True)
    trips, data = _trips(parts), _data(config)

    def elements_at(first: int, op: ops.Op, *, what: Callable[..., Any]) -> Any:
        """Data access of one element a thread, from element ``first`` on."""
        each_of = first + by_thread(THREADS_BY_ELEMENTS, THREADS_BY_ELEMENTS)
        return what(np.where(each_of < num_elements, each_of, -1), op)

    def count_of(cta_idx: int, element: int) -> int:
        left = num_elements - cta_idx * per_cta - element * THREADS_BY_ELEMENTS
        return min(max(left, 0), THREADS_BY_ELEMENTS)

    def access(count: int, num_bytes: int) -> AccessPattern:
        warps, total = ceil_div(count, WARP_SIZE), count * num_bytes
        return AccessPattern(
            num_requests=warps, num_sectors=ceil_div(total, SECTOR_BYTES),
            num_lines=warps * ceil_div(WARP_SIZE * num_bytes, LINE_BYTES), num_bytes=total,
        )

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        yield before
        for element in range(each):
            count = count_of(cta.cta_idx, element)
            if not count:
                return
            sums = access(count, SUM_BYTES)
            step = element * parts
            at = partial(elements_at, cta.cta_idx * per_cta + element * THREADS_BY_ELEMENTS)
            for num in trips:
                tokens = []
                for _ in range(num):
                    yield of_part
                    of_step = partial(at, what=lambda elements, op, part=step % parts: data.part(elements, part, op))
                    tokens.append((yield ops.GlobalLoad("workspace", (cta.cta_idx, step), sums, data=of_step)))
                    step += 1
                for token in tokens:
                    yield ops.Use(token)
                    yield add
            if config.beta != 0.0:
                of_c = partial(at, what=data.c)
                token = yield ops.GlobalLoad("C", (cta.cta_idx, element), access(count, width), data=of_c)
                yield ops.Use(token)
            if config.bias:
                token = yield ops.GlobalLoad("bias", (0, 0), sums, data=partial(at, what=data.bias))
                yield ops.Use(token)
            yield of_element
            if mufu:
                yield ops.Mufu(mufu)
            yield ops.GlobalStore("D", (cta.cta_idx, element), access(count, width), data=partial(at, what=data.d))

    def elements_of(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.clip(num_elements - tiles * per_cta, 0, per_cta))

    return _launch(config, elements_of, ceil_div(num_elements, per_cta), THREADS_BY_ELEMENTS, each, program)


def _by_vectors(config: GemmConfig) -> Launch:
    """A kernel in which each thread sums ``split_k`` parts of four elements, finishes and stores them.

    Ignores:
    * The addresses of a tile's elements in the workspace, which is accessed from end to end.
    """
    num_elements = config.m * config.n * config.batch
    num_ctas = ceil_div(num_elements, PER_CTA)
    parts, width = config.split_k, config.out_element.num_bytes
    alu, mufu = config.output.finishing_cost
    per_element = 1.0 + alu + (config.beta != 0.0) + config.bias  # alpha and conversion
    data = _data(config)

    def elements_at(cta_idx: int, op: ops.Op, *, what: Callable[..., Any]) -> Any:
        """Data access of the elements of a CTA."""
        each_of = cta_idx * PER_CTA + by_thread(THREADS, THREADS, ELEMENTS_PER_THREAD)
        return what(np.where(each_of < num_elements, each_of, -1), op)

    def elements_of(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.clip(num_elements - tiles * PER_CTA, 0, PER_CTA))

    def vectors(cta: RoleContext, num_bytes: int) -> AccessPattern:
        count = min(PER_CTA, num_elements - cta.cta_idx * PER_CTA)
        total = count * num_bytes
        return AccessPattern(
            num_requests=ceil_div(count, ELEMENTS_PER_THREAD * WARP_SIZE),
            num_sectors=ceil_div(total, SECTOR_BYTES), num_lines=ceil_div(total, LINE_BYTES), num_bytes=total,
        )

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        load, at = vectors(cta, SUM_BYTES), partial(elements_at, cta.cta_idx)
        tokens = []
        for part in range(parts):
            of_part = partial(at, what=lambda elements, op, part=part: data.part(elements, part, op))
            tokens.append((yield ops.GlobalLoad("workspace", (cta.cta_idx, part), load, data=of_part)))
        others = []
        if config.beta != 0.0:
            of_c = partial(at, what=data.c)
            others.append((yield ops.GlobalLoad("C", (cta.cta_idx, 0), vectors(cta, width), data=of_c)))
        if config.bias:
            others.append((yield ops.GlobalLoad("bias", (0, 0), load, data=partial(at, what=data.bias))))
        for token in tokens:
            yield ops.Use(token)
            yield ops.Fma(ELEMENTS_PER_THREAD)
        for token in others:
            yield ops.Use(token)
        yield ops.Alu(ELEMENTS_PER_THREAD * per_element)
        if mufu:
            yield ops.Mufu(ELEMENTS_PER_THREAD * mufu)
        yield ops.GlobalStore("D", (cta.cta_idx, 0), vectors(cta, width), data=partial(at, what=data.d))

    return _launch(config, elements_of, num_ctas, THREADS, 1, program)


def _data(config: GemmConfig) -> PartSums:
    """Data accesses of the reduction."""
    padded = max(1, config.alignment)
    pitch = ceil_div(config.n, padded) * padded
    return PartSums(config.finish, config.split_k, config.m * config.n * config.batch, config.n, pitch)


def _launch(
    config: GemmConfig, elements_of: Callable[[NDArray[np.int64]], NDArray[np.int64]], num_ctas: int, threads: int,
    num_steps: int, program: Program,
) -> Launch:
    """Launch of CTAs that each sum the parts of ``elements_of`` elements in ``num_steps`` steps."""
    parts, width = config.split_k, config.out_element.num_bytes

    def out_bytes(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return elements_of(tiles) * width

    def same(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return tiles

    footprints = [
        Footprint(
            tensor="workspace", access="read", panel_of=same,
            panel_bytes=lambda tiles: elements_of(tiles) * SUM_BYTES * parts, num_steps=parts * num_steps,
        ),
        Footprint(tensor="D", access="write", panel_of=same, panel_bytes=out_bytes, num_steps=num_steps),
    ]
    if config.beta != 0.0:
        footprints.append(Footprint(tensor="C", access="read", panel_of=same, panel_bytes=out_bytes, num_steps=num_steps))
    return Launch(
        kernel="gemm_reduction",
        num_ctas=num_ctas,
        num_tiles=num_ctas,
        roles=(WarpRole(name="reduce", num_warps=threads // WARP_SIZE, program=program),),
        registers_per_thread=32,
        registers_source=(
            "as cuBLAS has it" if config.splitk_reduction == "scalar" else "4 accumulators, addresses; a light one"
        ),
        footprints=tuple(footprints),
        num_flops=config.m * config.n * config.batch * parts,
        math_class="fp32",
        has_uniform_programs=True,
    )
