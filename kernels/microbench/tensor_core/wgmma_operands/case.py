"""What does a wgmma read from shared memory, and how long does it take? Shapes, types, majors, swizzles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import fragment_places
from gpusim.evidence.cases.case import Case, Group, Input, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.layout import tile_to_shape
from gpusim.layout.layout import Layout
from gpusim.layout.swizzle import ByteLayout, span_bytes
from gpusim.machine.config import GpuSpec
from gpusim.workload.atoms.mma import K_STEP_BYTES, MmaAtom, legal_wgmma_n, wgmma
from gpusim.workload.dtypes import dtype as dtype_named
from gpusim.workload.smem.wgmma_operands import Major, gmma_atom, wgmma_descriptors, wgmma_wavefronts

M = 64
GROUP_WGMMAS = 4
"""Instructions between a fence and a commit, as kernel.cu unrolls them."""
NUM_ROUNDS = 3
"""Rounds where nothing is counted; the last is timed."""
SOME_N = (8, 16, 32, 64, 96, 128, 192, 256)
MN_MAJOR_N = (8, 32, 64, 128, 256)
IMAGE_BYTES = 1024
"""Images are padded to multiples, so that every operand starts on a swizzle's repeat."""

GMMA_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"
NUM_GMMA = "sm__inst_executed_pipe_tensor_op_gmma.sum"
METRICS = (
    GMMA_WAVEFRONTS, "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum", NUM_GMMA,
    "smsp__sass_inst_executed_op_shared_gmma.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum",
    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.sum",
)

TAKES_MAJORS = ("bf16",)
SMALL = {"bf16": 3, "tf32": 3, "int8": 3, "fp8": 2}
"""Operands are whole numbers below these in size, so that every sum is exact; fp8 sums keep few bits."""


# ---------------------------------------------------------------------------------------------- shapes
def kernel_name(source: str, dtype: str, majors: str, n: int) -> str:
    """The entry point of a shape: ``ss`` or ``rs``, A's and B's major as ``k`` or ``m``."""
    return f"wgmma_{source}_{dtype}_{majors}_n{n}"


def shapes() -> Iterator[tuple[str, str, str, int]]:
    """(source of A, type, majors, n) of every kernel."""
    for source in ("ss", "rs"):
        yield from ((source, "bf16", "kk", n) for n in legal_wgmma_n(dtype_named("bf16")))
        for dtype in ("fp8", "tf32", "int8"):
            yield from ((source, dtype, "kk", n) for n in SOME_N)
    for n in MN_MAJOR_N:
        yield from (("ss", "bf16", majors, n) for majors in ("mm", "km", "mk"))
        yield ("rs", "bf16", "km", n)


def atom_of(source: str, dtype: str, n: int) -> MmaAtom:
    """The instruction of a shape."""
    return wgmma(n, dtype_named(dtype), "smem" if source == "ss" else "registers")


def includes() -> dict[str, str]:
    """``shapes.inc``: a struct with the instruction, and a kernel, for every shape."""
    return {"shapes.inc": "".join(_struct(*shape) for shape in shapes())}


def _struct(source: str, dtype: str, majors: str, n: int) -> str:
    atom = atom_of(source, dtype, n)
    name = kernel_name(source, dtype, majors, n).removeprefix("wgmma_")
    num = atom.accumulator_registers
    kind, constraint = ("int32_t", "r") if dtype == "int8" else ("float", "f")
    sums = ", ".join(f"%{i}" for i in range(num))
    outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(num))
    if source == "rs":
        a, b = "{" + ", ".join(f"%{num + i}" for i in range(4)) + "}", f"%{num + 4}"
        inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) + ', "l"(b_descriptor)'
    else:
        a, b, inputs = f"%{num}", f"%{num + 1}", '"l"(a_descriptor), "l"(b_descriptor)'
    scales = "" if dtype == "int8" else ", 1, 1"
    if dtype in TAKES_MAJORS:
        told = majors if source == "ss" else majors[1]
        scales += "".join(f", {int(major == 'm')}" for major in told)
    return f"""struct {name} {{
    using Accumulator = {kind};
    static constexpr int kNumAccumulators = {num};
    static constexpr bool kIsRegisterA = {"true" if source == "rs" else "false"};
    static __device__ __forceinline__ void issue({kind} (&d)[{num}], const uint32_t (&a)[4], uint64_t a_descriptor,
                                                 uint64_t b_descriptor) {{
        asm volatile("{atom.ptx} {{{sums}}}, {a}, {b}, 1{scales};" : {outputs} : {inputs});
    }}
}};
WGMMA_KERNEL({name})
"""


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    source: str
    dtype: str
    n: int
    _: KW_ONLY
    majors: str = "kk"
    swizzle: str = "128B"
    k_step: int = 0
    num_groups: int

    @property
    def kernel(self) -> str:
        """The entry point."""
        return kernel_name(self.source, self.dtype, self.majors, self.n)


def _trains(source: str, dtype: str, n: int, **others: Any) -> list[Row]:
    """A short train and a long one: their difference is the steady rate."""
    return [Row(source, dtype, n, **others, num_groups=num_groups) for num_groups in (1, 8)]


def every_n() -> list[Row]:
    """bf16, K-major, swizzle 128B: all N, A from shared memory and from registers."""
    return [
        config for n in legal_wgmma_n(dtype_named("bf16")) for source in ("ss", "rs")
        for config in _trains(source, "bf16", n)
    ]  # fmt: skip


def every_type() -> list[Row]:
    """The other types, at some N."""
    return [
        config for dtype in ("fp8", "tf32", "int8") for n in SOME_N for source in ("ss", "rs")
        for config in _trains(source, dtype, n)
    ]  # fmt: skip


def every_layout() -> list[Row]:
    """bf16 with other swizzles, other k-steps of a span, and MN-major operands."""
    found: list[Row] = []
    for n in MN_MAJOR_N:
        for swizzle in ("none", "32B", "64B"):
            found += _trains("ss", "bf16", n, swizzle=swizzle)
        found += [Row("ss", "bf16", n, k_step=k_step, num_groups=8) for k_step in (1, 3)]
        for swizzle in ("none", "32B", "64B", "128B"):
            for source, majors in (("ss", "mm"), ("ss", "km"), ("ss", "mk"), ("rs", "km")):
                if majors[1] == "k" or n * 2 % max(16, span_bytes(swizzle)) == 0:
                    found += _trains(source, "bf16", n, majors=majors, swizzle=swizzle)
    return found


# ---------------------------------------------------------------------------------------------- operands
@cache
def tile(rows: int, major: str, swizzle: str, element_bits: int) -> ByteLayout:
    """The canonical layout of an operand: (rows, as many k as a span of the swizzle holds, a k-step at least)."""
    along_k = max(span_bytes(swizzle), K_STEP_BYTES) if major == "k" else K_STEP_BYTES
    long_major: Major = "K" if major == "k" else "MN"
    atom = gmma_atom(long_major, swizzle, element_bits=element_bits)
    made = tile_to_shape(atom, (rows, along_k * 8 // element_bits))
    if not isinstance(made, ByteLayout):
        raise TypeError(f"tile_to_shape gave {made}")
    return made


def places(layout: ByteLayout) -> NDArray[np.int64]:
    """The byte at which each element lies, int64[rows, k]: a layout's modes add up, then the swizzle acts."""
    offsets = [np.array([_offset(layout.layout, mode, idx) for idx in range(_extent(layout, mode))]) for mode in (0, 1)]
    return np.asarray(layout.swizzle((offsets[0][:, None] + offsets[1]) * (layout.element_bits // 8)))


def _extent(layout: ByteLayout, mode: int) -> int:
    return int(layout.layout[mode].size)


def _offset(layout: Layout, mode: int, idx: int) -> int:
    return int(layout[mode](idx))


def operand(rows: int, num_k: int, dtype: str, salt: int) -> NDArray[np.int64]:
    """Small whole numbers, int64[rows, num_k], the same every time."""
    small = SMALL[dtype]
    return np.random.default_rng([rows, num_k, salt]).integers(1 - small, small, (rows, num_k))


def encode(numbers: NDArray[np.int64], dtype: str) -> NDArray[np.uint8]:
    """Elements as bytes, uint8[rows, k, bytes of one]."""
    if dtype == "bf16":
        words = (numbers.astype("<f4").view("<u4") >> 16).astype("<u2")
    elif dtype == "tf32":
        words = numbers.astype("<f4").view("<u4")
    elif dtype == "int8":
        words = numbers.astype("i1").view("u1")
    else:  # e4m3: sign, exponent biased by 7, 3 bits
        words = np.array([0xB8, 0x00, 0x38], dtype=np.uint8)[numbers + 1]
    return np.ascontiguousarray(words)[..., None].view(np.uint8)


def image(numbers: NDArray[np.int64], dtype: str, layout: ByteLayout) -> NDArray[np.uint8]:
    """Shared memory with an operand in it, padded."""
    elements, where = encode(numbers, dtype), places(layout)
    num_bytes = -(-int(where.max() + elements.shape[-1]) // IMAGE_BYTES) * IMAGE_BYTES
    made = np.zeros(num_bytes, dtype=np.uint8)
    made[where[..., None] + np.arange(elements.shape[-1])] = elements
    return made


@cache
def operands(source: str, dtype: str, n: int, majors: str, swizzle: str, k_step: int) -> dict[str, Any]:
    """Images, descriptors without their addresses, A's rows for registers, and the product."""
    bits = dtype_named(dtype).bits
    step = 8 * K_STEP_BYTES // bits
    taken = slice(k_step * step, (k_step + 1) * step)
    made: dict[str, Any] = {}
    parts = []
    for name, rows, major in (("a", M, majors[0]), ("b", n, majors[1])):
        layout = tile(rows, major, swizzle, bits)
        numbers = operand(rows, _extent(layout, 1), dtype, salt=ord(name))
        descriptor = wgmma_descriptors(layout, "K" if major == "k" else "MN")[k_step]
        made[name] = image(numbers, dtype, layout)
        made[f"{name}_descriptor"] = descriptor.bits
        parts.append(numbers[:, taken])
    made["a_rows"] = encode(parts[0], dtype).reshape(M, K_STEP_BYTES)
    if source == "rs":
        made["a"] = np.zeros(0, dtype=np.uint8)
    made["product"] = parts[0] @ parts[1].T
    for array in made.values():
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return made


def _operands_of(config: Row) -> dict[str, Any]:
    return operands(config.source, config.dtype, config.n, config.majors, config.swizzle, config.k_step)


def launch(config: Row, is_counted: bool) -> KernelLaunch:
    """One round where it is counted; more, of which the last is timed, otherwise."""
    made = _operands_of(config)
    num_rounds = 1 if is_counted else NUM_ROUNDS
    descriptors = np.array([made["a_descriptor"], made["b_descriptor"]], dtype="<u8")
    others = np.array([made["a"].nbytes, made["b"].nbytes, config.num_groups, num_rounds], dtype="<u4")
    num = config.n // 2
    dtype = "<i4" if config.dtype == "int8" else "<f4"
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.concatenate([descriptors.view(np.uint8), others.view(np.uint8)])),
            Input(made["a"]), Input(made["b"]), Input(made["a_rows"]),
            Output("d", np.full((num, 128), -1, dtype=dtype)), Output("times", np.full(2, -1, dtype="<i8")),
        ),
        block=(128, 1, 1), smem_bytes=made["a"].nbytes + made["b"].nbytes,
    )  # fmt: skip


def accumulators(product: NDArray[np.int64]) -> NDArray[np.int64]:
    """What each thread holds of the product (m, n), int64[n / 2, 128]: PTX's fragment of D."""
    return np.asarray(product[fragment_places(product.shape[1])])


def num_wgmmas(config: Row) -> int:
    """Instructions of one round."""
    return GROUP_WGMMAS * config.num_groups


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """The cycles of a round.

    Raises:
        WrongAnswer: the sums are not so many times the product.
    """
    times = num_wgmmas(config) * int(outputs["times"][1])
    wanted = times * accumulators(_operands_of(config)["product"])
    if (outputs["d"] != wanted).any():
        register, thread = (int(where[0]) for where in np.nonzero(outputs["d"] != wanted))
        raise WrongAnswer(
            f"thread {thread} has {outputs['d'][register, thread]} in accumulator {register}, not {wanted[register, thread]}"
        )
    cycles = int(outputs["times"][0])
    wrong_if(cycles <= 0, f"the clock says {cycles} cycles")
    return {"cycles": float(cycles)}


def predict(config: Row, _gpu: GpuSpec) -> dict[str, float]:
    """Instructions (one a warp of the four) and wavefronts of one round."""
    atom = atom_of(config.source, config.dtype, config.n)
    bits = dtype_named(config.dtype).bits
    a = tile(M, config.majors[0], config.swizzle, bits) if config.source == "ss" else None
    b = tile(config.n, config.majors[1], config.swizzle, bits)
    per_wgmma = wgmma_wavefronts(atom, (a, b))
    return {GMMA_WAVEFRONTS: float(num_wgmmas(config) * per_wgmma), NUM_GMMA: 4.0 * num_wgmmas(config)}


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Per instruction: wavefronts and cycles, the train's start and end included."""
    derived: dict[str, float] = {}
    for name, column in (("wavefronts_per_wgmma", GMMA_WAVEFRONTS), ("cycles_per_wgmma", "cycles")):
        if row.get(column):
            derived[name] = float(row[column]) / num_wgmmas(Row.of(row))
    return derived


CASE = Case(
    name="wgmma_operands",
    question="What does a wgmma read from shared memory, and how long does it take?",
    config_type=Row, launch=launch, check=check, num_repeats=5, predict=predict, derive=derive, includes=includes,
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=rank, least_capability=(9, 0))
        for name, configs, rank in (
            ("every_n", every_n, 2), ("every_type", every_type, 3), ("every_layout", every_layout, 4),
        )
    },
    values={"cycles": "SM cycles of the last round: from before the first wgmma to after the wait for all of them"},
    tiers={GMMA_WAVEFRONTS: 3, NUM_GMMA: 3},
)  # fmt: skip
