"""Explorer page of bytes: one step of a small kernel, with each element's place before and after it.

The kernel runs on numbers, without time (``gpusim.functional``).
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gpusim.errors import DataError, GpusimError
from gpusim.explore.answers import Answer, Figure, Question, RefusedError, Shown, Table, field_of
from gpusim.functional.moves import Move, Place, moves_of
from gpusim.functional.mutate import mutated, other_swizzle
from gpusim.functional.run import run_functional
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.machine.config import load_gpu
from gpusim.report.number_format import count, option_words
from gpusim.units import WARP_SIZE
from gpusim.workload.ops import CpAsync, Op, SharedStore, TmaLoad

MOST_STEPS, MOST_ROWS = 63, 16
"""Largest number of a step; ``MOST_ROWS``: elements in the table."""
CELL_BYTES, LANE_BYTES = 16, 4
"""Bytes of a cell of the picture; ``LANE_BYTES``: where threads are drawn."""
WIDE, HIGH, GAP, TOP = 14, 7, 60, 24
"""Pixels of a cell, between the two parts of the picture, and above them."""
HUES = 8
GPU, SIZE, DEPTH = "h200_sxm", 64, 128
"""GPU of the page, rows and columns of a result, and K."""

KERNELS: dict[str, tuple[str, dict[str, str], type[Op]]] = {
    "tma": ("gemm", {"tile": "64x64x64", "copy": "tma", "math": "wgmma", "schedule": "warp_specialized"}, TmaLoad),
    "cp_async": ("gemm", {"tile": "64x64x64", "copy": "cp_async", "math": "mma_sync", "warps": "2x2"}, CpAsync),
    "copy": ("smem_copy", {"tile": "64x64", "copy": "vectorized"}, SharedStore),
}
"""Kernel model, options and ops with the fault of each kernel of the page: all in bf16, with one CTA."""
AXES = {
    "tensor": ("row", "column"), "stage": ("line", "byte"), "registers": ("thread", "value"), "tensor core": ("row", "k"),
}  # fmt: skip
"""Words for the axes of each kind of place."""


class BytesQuestion(Question):
    """Fields of the form of bytes."""

    kernel: Literal["tma", "cp_async", "copy"] = "tma"
    swizzle: Literal["none", "32B", "64B", "128B"] = "128B"
    stages: Annotated[int, Field(ge=1, le=4)] = 2
    fault: Literal["none", "swizzle"] = "none"
    step: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0

    def _options(self) -> tuple[str, dict[str, str]]:
        kernel, options, _ = KERNELS[self.kernel]
        given = {"m": str(SIZE), "n": str(SIZE), **options, "swizzle": self.swizzle}
        return kernel, given if kernel == "smem_copy" else {**given, "k": str(DEPTH), "stages": str(self.stages)}

    def label(self) -> str:
        """Summary of the request in a few words."""
        fault = ", written with another swizzle" if self.fault == "swizzle" else ""
        return f"step {self.step} of {self.kernel}, swizzle {self.swizzle}{fault}"

    def answer(self) -> Answer:
        """Places of the bytes that the step moves.

        Raises:
            RefusedError: the command line refuses the kernel; the sentence is the same.
        """
        kernel, options = self._options()
        try:
            moves, wrong = _run(self.kernel, tuple(options.items()), is_faulty=self.fault != "none")
        except GpusimError as error:
            raise RefusedError(str(error), field_of(str(error), {name: name for name in ("swizzle", "stages")})) from None
        return _answer(self, kernel, options, moves, wrong)


@lru_cache(maxsize=8)
def _run(name: str, options: tuple[tuple[str, str], ...], *, is_faulty: bool) -> tuple[list[Move], str]:
    """Moves of a run, and its first element that numpy does not have. ``is_faulty``: copies have a wrong swizzle."""
    kernel, _, kind = KERNELS[name]
    launch = KERNEL_MODELS[kernel].params(**dict(options)).launch(load_gpu(GPU))
    launch = mutated(launch, kind, other_swizzle) if is_faulty else launch
    random = np.random.default_rng(0)
    shapes = {"A": (SIZE, DEPTH), "B": (DEPTH, SIZE)} if kernel == "gemm" else {"in": (SIZE, SIZE)}
    data: dict[str, NDArray[Any]] = {name: random.integers(-3, 4, shape) for name, shape in shapes.items()}
    expected = {"D": data["A"] @ data["B"]} if kernel == "gemm" else {"out": data["in"]}
    try:
        run_functional(launch, data, expected=expected)
    except DataError as error:
        return moves_of(launch, data)[0], str(error)
    return moves_of(launch, data)[0], ""


def _words(place: Place, at: NDArray[np.int64]) -> str:
    first, second = at.tolist()
    if place.kind == "stage":
        return f"byte {128 * first + second} of {place.memory} (bank {second // 4})"
    if place.kind == "registers":
        return f"thread {first}, value {second}"
    return f"{place.memory}[{first}, {second}]"


def _answer(question: BytesQuestion, kernel: str, options: dict[str, str], moves: list[Move], wrong: str) -> Answer:
    step = min(question.step, len(moves) - 1)
    move, last = moves[step], len(moves) - 1
    num = len(move.elements)
    rows = [
        (
            f"{move.tensor}[{', '.join(map(str, move.elements[at].tolist()))}]" if move.tensor else "a result",
            _words(move.source, move.source.at[at]), _words(move.target, move.target.at[at]),
        )
        for at in range(min(num, MOST_ROWS))
    ]  # fmt: skip
    return Answer(
        page="bytes", label=question.label(), verdict=f"Step {step} of {last}: {move.what}.",
        command=" ".join(["gpusim predict", kernel, "--gpu", GPU, *option_words(options)]),
        figures=(
            Figure(label="moved in this step", value=num * move.width, unit="bytes"),
            Figure(label="elements", value=num, unit=""),
        ),
        facts_title="The run",
        facts=(
            ("From", move.source.memory), ("To", move.target.memory), ("Steps", f"0 to {last}, in the order of the run"),
            ("Result", f"differs from that of numpy: {wrong}" if wrong else "equals that of numpy"),
        ),
        tables=(Table(
            caption=f"The first of {count(num, 'element')}", columns=("element", "from", "to"), rows=tuple(rows), left=3
        ),),
        pictures=(_picture(move),),
        remarks=() if question.step <= last else (f"the run has no step {question.step}, its last is shown",),
    )  # fmt: skip


def _cells(move: Move) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cells of source and target: int64[cells, 2] each. Of registers, those of the first warp that moves any."""
    ends = (move.source, move.target)
    by_lane = any(place.kind == "registers" for place in ends)
    kept = np.ones(len(move.elements), dtype=np.bool_)
    for place in ends:
        warp = place.at[:, 0] // WARP_SIZE
        kept &= (place.kind != "registers") | (warp == warp.min())
    size = LANE_BYTES if by_lane else CELL_BYTES
    cells = []
    for place in ends:
        is_column = place.kind == "tensor" and len(place.at) > 1 and place.at[1, 1] == place.at[0, 1]  # contiguous
        at = place.at[kept][:, :: -1 if is_column else 1].copy()
        at[:, 1] //= max(1, size if place.kind == "stage" else size // move.width)
        cells.append(at)
    unique = np.unique(np.concatenate(cells, axis=1), axis=0)
    return unique[:, :2], unique[:, 2:]


def _picture(move: Move) -> Shown:
    """Two grids of cells. A cell keeps its colour: the hue is its column before the step, the lightness its row."""
    ends = _cells(move)
    parts, left, height = [], 0, 0
    colors = [f"hsl({360 // HUES * (column % HUES)},60%,{40 + 4 * (row % HUES)}%)" for row, column in ends[0].tolist()]
    for place, cells, word in zip((move.source, move.target), ends, ("from", "to"), strict=True):
        at = cells - cells.min(axis=0)
        axes = AXES[place.kind]
        parts.append(f'<text x="{left}" y="10">{word} {escape(place.memory)}</text>')
        parts.append(f'<text x="{left}" y="20">down: {axes[0]}, right: {axes[1]}</text>')
        parts += [
            f'<rect x="{left + WIDE * column}" y="{TOP + HIGH * row}" width="{WIDE - 1}" height="{HIGH - 1}" '
            f'fill="{color}"/>'
            for (row, column), color in zip(at.tolist(), colors, strict=True)
        ]
        rows, columns = (at.max(axis=0) + 1).tolist()
        left += max(WIDE * columns, 130) + GAP
        height = max(height, HIGH * rows)
    size = f'width="{left}" height="{TOP + height}" viewBox="0 0 {left} {TOP + height}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="9">{"".join(parts)}</svg>'
    size_of_cell = LANE_BYTES if "registers" in (move.source.kind, move.target.kind) else CELL_BYTES
    return Shown(
        title=f"Where {size_of_cell} bytes lie before and after the step, each in one colour",
        alt=f"{move.what} moves {count(len(move.elements), 'element')} from {move.source.memory} to {move.target.memory}.",
        svg=svg,
    )
