"""Layer norm and RMS norm of each row: mean, variance, weights. A row is written once, and read once or in each pass."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.row_data import Array, Reduction
from gpusim.kernel_models.row_passes import RowPass, row_launch
from gpusim.kernel_models.rows import ONE_WORD, VECTOR_BYTES, WORD_BYTES, Meeting, Merge, RowParams, packing, unpacking
from gpusim.kernel_models.stream_data import LOADED, loaded, nothing, of_warps, stored, words_of_warps
from gpusim.kernel_models.streaming import passes, share_footprint, total, whole_footprint
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import GlobalElements, Registers, SharedElements
from gpusim.workload.launch import Launch, RoleContext, Target, WarpRole

BEFORE_LOADS = {"warp": 16, "block": 9}
"""Instructions of a thread before its first load. Source of this and the next constants: SASS of kernels/layer_norm,
sm_90a."""
SCALE = 6
"""Number of dependent instructions around the one MUFU.RSQ of a lane."""
REGISTERS: Mapping[tuple[int, int], int] = {(4, 16): 44, (4, 32): 65, (2, 16): 40, (2, 32): 64}
"""Registers of a thread, by the bytes of an element and the values that it holds."""
OTHER_REGISTERS = 33
"""Registers besides the values, for configurations that were not compiled."""
EPSILON = 1e-5
"""Number that functional runs add to the variance."""
FIRST_PARTS = 1
"""Number of vectors of gamma and beta that are loaded before the variance is known."""
TRIPS: Mapping[tuple[str, int, int], tuple[tuple[int, int], ...]] = {
    ("block", 4, 16): ((2, 0), (1, 4)), ("warp", 4, 32): ((2, 3), (3, 0), (2, 5)),
    ("block", 2, 16): ((1, 2),), ("warp", 2, 32): ((3, 4),),
}  # fmt: skip
"""Loads of the other vectors of gamma and beta, by ``per``, the bytes of an element and the values of a lane. Each pair
gives the vectors that have registers at once, and the vectors of the row that are stored after they have arrived.
Configurations that were not compiled load all at once."""


DIVIDE = 14
"""Dependent instructions around the MUFU.RCP of a division by the number of columns. Source of this and the next: SASS of
kernels/framework_rows, sm_90a."""
MOMENTS = Merge(words=3, alu=23.0, mufu=1.0)
"""Merge of two triples (mean, sum of squared distances, number of elements)."""
WELFORD_ELEMENTS = 8
"""Elements of a lane in flight with Welford's algorithm."""
WELFORD = 6.0
"""Dependent instructions of an element besides its eight of FP32: the branch around the slow path of a division."""


def _moments(words: Array) -> Array:
    """Merge of triples: mean, sum of squared distances, number of elements."""
    means, squares, nums = np.moveaxis(words, -1, 0)
    num = np.maximum(nums.sum(axis=-1), 1)
    mean = (means * nums).sum(axis=-1) / num
    distances = squares.sum(axis=-1) + (nums * (means - mean[..., None]) ** 2).sum(axis=-1)
    return np.stack([mean, distances, num], axis=-1)


MEAN = Reduction(words=lambda x, _: (x,), keep=lambda word, num: {"mean": word / np.float32(num)})
"""Reductions of functional runs. Their results have the square root of ``VARIANCE``."""
VARIANCE = Reduction(
    words=lambda x, kept: ((x - kept["mean"]) ** 2,), keep=lambda word, num: {"variance": word / np.float32(num)}
)
SQUARES = Reduction(words=lambda x, _: (x**2,), keep=VARIANCE.keep)
MEAN_AND_VARIANCE = Reduction(
    words=lambda x, _: (x, np.zeros_like(x), np.ones_like(x)), merge=_moments, identity=(0.0, 0.0, 0.0),
    keep=lambda words, num: {"mean": words[:, :1], "variance": words[:, 1:2] / np.float32(num)},
)


def _root_of(kept: Registers) -> Array:
    return np.asarray(np.sqrt(kept["variance"] + np.float32(EPSILON)))


class NormParams(RowParams):
    """Common options of layer norm and RMS norm."""

    residual: bool = Field(False, description="Add a second array first, and store the sum as well")
    weight_loads: Literal["vector", "element"] = Field(
        "vector", description="Loads of weights: by vectors, or element by element (where nvcc sees that stores may alias)"
    )

    @property
    def has_one_loop(self) -> bool:
        """Whether one pass precedes the one that stores the result."""
        return True

    def _check(self) -> None:
        if self.unroll is not None and self.residual and self.has_one_loop:
            raise KernelError(
                f"--unroll {self.unroll}: the pass that adds the residual stores each vector before it loads the next; "
                f"use --no-residual, or leave it out"
            )
        super()._check()

    @property
    def loads_of_weight(self) -> int:
        """Loads of each weight for a vector of the row."""
        return self.vector_elements if self.weight_loads == "element" else 1


class RmsNormParams(NormParams):
    """out = in / sqrt(mean of squares + epsilon) * gamma, row by row, in fp32 arithmetic."""


class LayerNormParams(NormParams):
    """out = (in - mean) / sqrt(variance + epsilon) * gamma + beta, row by row, in fp32 arithmetic."""

    has_plain_program: ClassVar[bool] = True
    compiled_registers: ClassVar[Mapping[tuple[int, int], int]] = REGISTERS
    other_registers: ClassVar[int] = OTHER_REGISTERS

    algorithm: Literal["two_pass", "welford"] = Field(
        "two_pass", description="Mean and variance: one after the other, or both in one pass (Welford)"
    )

    @property
    def has_one_loop(self) -> bool:
        """Whether one pass precedes the one that stores the result."""
        return self.algorithm == "welford"


def rms_norm_launch(params: RmsNormParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``."""
    last = RowPass(
        fma=2.0, weights=("gamma",), weight_loads=params.loads_of_weight,
        result=lambda x, kept: x / _root_of(kept) * kept["gamma"],
    )
    row_passes = (RowPass(chain=1.0, merge=ONE_WORD, after=_root(), reduction=SQUARES), last)
    return row_launch(params, row_passes, flops=4, has_residual=params.residual)


def _root() -> tuple[ops.Op, ...]:
    """Mean of squares, and the reciprocal of its root."""
    return ops.Mufu(2), ops.Alu(DIVIDE + SCALE, is_chain=True)


def layer_norm_passes(params: LayerNormParams) -> tuple[RowPass, ...]:
    """Passes over a row."""
    last = RowPass(
        fma=3.0, weights=("gamma", "beta"), weight_loads=params.loads_of_weight,
        result=lambda x, kept: (x - kept["mean"]) / _root_of(kept) * kept["gamma"] + kept["beta"],
    )
    if params.algorithm == "welford":
        return RowPass(
            alu_chain=WELFORD, chain=8.0, mufu=1.0, unrolled_elements=WELFORD_ELEMENTS, merge=MOMENTS, after=_root(),
            reduction=MEAN_AND_VARIANCE,
        ), last  # fmt: skip
    mean = (ops.Mufu(1), ops.Alu(DIVIDE, is_chain=True))
    squares = RowPass(fma=1.0, chain=1.0, merge=ONE_WORD, after=_root(), reduction=VARIANCE)
    return RowPass(chain=1.0, merge=ONE_WORD, after=mean, reduction=MEAN), squares, last


def layer_norm_launch(params: LayerNormParams, gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    The warps of the first row request lines of gamma and beta that L1 may lack. The other warps hit these lines in L1 or in
    flight. Only a few of the vectors have registers at once, so loads wait for one another.

    Ignores:
    * Warps of a CTA that run ahead of others on SMs with more than one CTA.
    * That a load waits until a store has read the registers that it overwrites.
    """
    if not params.is_plain:
        return row_launch(params, layer_norm_passes(params), flops=7, has_residual=params.residual)
    per_cta = params.rows_per_cta
    rows = params.rows_at_once(gpu.num_sms)
    num_steps = per_cta // rows
    share, num_bytes = params.row_bytes * per_cta, params.row_bytes * params.rows
    trips = _trips(params)
    num_parts, num_stores = 1 + len(trips), max(1, sum(num > 0 for _, num in trips))
    return Launch(
        kernel="layer_norm",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=tuple(_role(params, step, rows) for step in range(num_steps)),
        registers_per_thread=params.registers_of(params.values),
        registers_source="ptxas of kernels/layer_norm, or the values and 33 more",
        extra_smem_bytes=2 * WORD_BYTES * params.threads // WARP_SIZE if params.per == "block" else 0,
        footprints=(
            share_footprint("in", "read", num_bytes=num_bytes, share_bytes=share, num_steps=num_steps),
            whole_footprint("gamma", num_bytes=params.row_bytes, num_steps=num_parts),
            whole_footprint("beta", num_bytes=params.row_bytes, num_steps=num_parts),
            share_footprint("out", "write", num_bytes=num_bytes, share_bytes=share, num_steps=num_steps * num_stores),
        ),
        num_flops=7 * params.rows * params.columns,
        math_class="fp32",
        has_uniform_programs=True,
        tensors=params.tensors("gamma", "beta"),
    )


def _trips(params: LayerNormParams) -> tuple[tuple[int, int], ...]:
    """Pairs (vectors of gamma and beta that are loaded, vectors of the row that are stored afterwards), in order."""
    others = params.vectors - FIRST_PARTS
    return TRIPS.get((params.per, params.element.num_bytes, params.values), ((others, params.vectors),) if others else ())


class _Data:
    """Data accesses of the warps of some rows of a CTA. ``parts``: first and last vector of each part of the weights."""

    def __init__(self, params: LayerNormParams, step: int, rows: int, parts: list[tuple[int, int]]) -> None:
        self._params, self._step, self._rows, self._parts = params, step, rows, parts
        num_warps = rows * params.lanes // WARP_SIZE
        self.words: tuple[tuple[SharedElements, ...], ...] = ((), ())
        """Accesses of the words of a CTA's two sums."""
        if params.per == "block":
            first = words_of_warps(num_warps, 0, self._sum, partial(self._keep, "mean"))
            self.words = first, words_of_warps(num_warps, num_warps, self._squares, partial(self._keep, "variance"))

    @staticmethod
    def _sum(registers: Registers) -> None:
        registers["word"] = of_warps(registers[LOADED], np.sum)

    @staticmethod
    def _squares(registers: Registers) -> None:
        registers["centered"] = registers[LOADED] - registers["mean"]
        registers["word"] = of_warps(registers["centered"] ** 2, np.sum)

    def _keep(self, name: str, registers: Registers) -> None:
        registers[name] = registers["words"].sum(axis=1, keepdims=True) / np.float32(self._params.columns)

    def row(self, tile: int, _op: ops.Op) -> GlobalElements:
        """The load of the rows."""
        return loaded("in", self._params.elements_of(tile, self._step, self._rows))

    def weight(self, name: str, part: int, _op: ops.Op) -> GlobalElements:
        """The load of a part of a vector of weights, by all rows."""
        begin, end = (vector * self._params.vector_elements for vector in self._parts[part])
        return loaded(name, np.tile(self._params.elements_of(0, 0, 1)[:, begin:end], (self._rows, 1)), f"{name} {part}")

    def store(self, tile: int, trip: int, begin: int, end: int, _op: ops.Op) -> GlobalElements:
        """The store of the vectors ``begin`` to ``end`` of the row, behind the ``trip``-th loads of weights."""
        of_trip = slice(begin * self._params.vector_elements, end * self._params.vector_elements)

        def piece(registers: Registers) -> None:
            if self._params.per == "warp":
                for name, of_sum in (("mean", self._sum), ("variance", self._squares)):
                    of_sum(registers)
                    registers[name] = registers["word"] / np.float32(self._params.columns)
            normed = registers["centered"] / np.sqrt(registers["variance"] + np.float32(EPSILON))
            keys = [[f"{name} {part}" for part in range(trip + 2)] for name in ("gamma", "beta")]
            gamma, beta = (np.concatenate([registers[key] for key in of if key in registers], axis=1) for of in keys)
            registers["piece"] = normed[:, of_trip] * gamma[:, of_trip] + beta[:, of_trip]

        index = self._params.elements_of(tile, self._step, self._rows)[:, of_trip]
        return stored("out", index, "piece", piece)


def _role(params: LayerNormParams, step: int, rows: int) -> WarpRole:
    """The warps of ``rows`` rows of a CTA, the ``step``-th group of that size."""
    values, width = params.values, params.element.num_bytes
    accesses = params.accesses(step, rows)
    num_warps = rows * params.lanes // WARP_SIZE
    meeting = Meeting(num_warps, of_block=params.per == "block")
    before, unpack = ops.Alu(BEFORE_LOADS[params.per], is_chain=True), ops.Alu(values * unpacking(width))
    add, center, squares = ops.Fma(values, is_chain=True), ops.Fma(values), ops.Fma(values, is_chain=True)
    root, about_root = ops.Mufu(1), ops.Alu(SCALE, is_chain=True)
    row = passes(0, params.row_bytes // VECTOR_BYTES, params.lanes, VECTOR_BYTES)
    trips = _trips(params) or ((0, params.vectors),)
    begins = list(accumulate((num for num, _ in trips), initial=FIRST_PARTS))
    weights = total(row[:FIRST_PARTS]), *(total(row[at : at + num]) for at, (num, _) in zip(begins, trips, strict=False))
    data = _Data(params, step, rows, [(0, FIRST_PARTS), *pairwise(begins)])
    ends = list(accumulate((num for _, num in trips), initial=0))
    stores = [total(row[begin:end]) for begin, end in pairwise(ends)]
    num_stores = sum(store.num_requests > 0 for store in stores)
    of_trips = [
        (ops.Alu(2 * each * unpacking(width)), ops.Fma(2 * each), ops.Alu(each * packing(width)))
        for each in (num * values // params.vectors for _, num in trips)
    ]

    @cache
    def loads(part: int, num_rows: int) -> tuple[ops.GlobalLoad, ...]:
        """Loads of a part of both vectors, by the first row's warps, and by the others."""
        first, others = weights[part], weights[part].scaled(num_rows - 1)
        return tuple(
            ops.GlobalLoad(
                name, (0, part), access, data=partial(data.weight, name, part) if access is first else nothing(name)
            )
            for name in ("gamma", "beta") for access in (first, others) if access.num_requests
        )  # fmt: skip

    def ask(part: int, num_rows: int) -> Generator[ops.Op, Any, list[ops.Token]]:
        """Load a part of both vectors."""
        tokens: list[ops.Token] = []
        for load in loads(part, num_rows):
            tokens.append((yield load))
        return tokens

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        access = accesses[cta.cta_idx == params.num_ctas - 1]
        num_rows = access.num_bytes // params.row_bytes
        if not num_rows:
            return
        yield before
        token = yield ops.GlobalLoad("in", (cta.cta_idx, step), access, data=partial(data.row, cta.cta_idx))
        yield ops.Use(token)
        yield unpack
        yield add
        yield from meeting(*data.words[0])
        yield center
        yield squares
        tokens = yield from ask(0, num_rows)
        yield from meeting(*data.words[1])
        yield root
        yield about_root
        num_stored = step * num_stores
        for trip, (finish, store) in enumerate(zip(of_trips, stores, strict=True), start=1):
            tokens += yield from ask(trip, num_rows)
            for token in tokens:
                yield ops.Use(token)
            tokens = []
            if store.num_requests:
                yield from finish
                piece = partial(data.store, cta.cta_idx, trip - 1, ends[trip - 1], ends[trip])
                yield ops.GlobalStore("out", (cta.cta_idx, num_stored), store.scaled(num_rows), data=piece)
                num_stored += 1

    name = "layer_norm" if rows == params.rows_per_cta else f"rows {step}"
    return WarpRole(name=name, num_warps=num_warps, program=program)
