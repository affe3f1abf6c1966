"""MMA atoms: a row for each multiply-accumulate instruction (PTX ISA 8.x). ``docs/extend.md`` has the files of a new MMA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

from gpusim.errors import KernelError
from gpusim.layout import Layout, MmaAtomTV
from gpusim.units import WARP_SIZE, WARPGROUP_THREADS
from gpusim.workload.atoms.fragments import fragment, outer_product, shared_operand
from gpusim.workload.dtypes import BF16, FP8, FP16, FP32, FP64, INT8, TF32, DType, accumulator_of, check_dtype

MmaKind = Literal["mma_sync", "wgmma", "fma"]
OperandSource = Literal["smem", "registers"]

K_STEP_BYTES = 32
"""Bytes of k in each row of a wgmma operand, and of the deepest mma.sync. Source: PTX ISA."""

WGMMA_M = 64
"""Rows of every wgmma. Source: PTX ISA."""

_RATE_CLASSES: Mapping[str, str] = MappingProxyType(
    {"bf16": "16bit", "fp16": "16bit", "tf32": "tf32", "fp8": "fp8", "int8": "int8", "fp32": "fp32", "fp64": "fp64"}
)
_PTX_TYPES: Mapping[str, str] = MappingProxyType({
    "bf16": "bf16", "fp16": "f16", "tf32": "tf32", "fp8": "e4m3", "int8": "s8", "fp32": "f32", "int32": "s32", "fp64": "f64",
})
_TENSOR_DTYPES = (BF16, FP16, TF32, FP8, INT8)
_FP16_SUMS = (FP16, FP8)
"""Operand types with an optional fp16 accumulator. Source: PTX ISA, ``mma`` (fp8: from 8.7) and ``wgmma``."""

ACCUMULATOR_VECTOR = 2
"""Number of adjacent accumulator elements of a row in each thread, for all types. Source: PTX ISA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaAtom:
    """One instruction D = A B + C: A is m x k, B is n x k, C and D are m x n.

    A and B have the same dtype. ``num_threads`` execute it together: a warp, or a warpgroup for wgmma. B comes from shared
    memory for wgmma, otherwise from registers; ``a_source`` is the source of A.
    """

    name: str
    ptx: str
    kind: MmaKind
    m: int
    n: int
    k: int
    a_dtype: DType
    acc_dtype: DType
    num_threads: int
    a_source: OperandSource

    @property
    def num_flops(self) -> int:
        """2 m n k floating-point operations: a multiplication and an addition each."""
        return 2 * self.m * self.n * self.k

    @property
    def a_bytes(self) -> int:
        """Bytes of the m x k operand."""
        return self.m * self.k * self.a_dtype.num_bytes

    @property
    def b_bytes(self) -> int:
        """Bytes of the n x k operand."""
        return self.n * self.k * self.a_dtype.num_bytes

    @property
    def accumulator_registers(self) -> int:
        """Number of 32-bit registers in each thread for the m x n accumulator.

        >>> wgmma(256, BF16).accumulator_registers
        128
        """
        return self.m * self.n * self.acc_dtype.bits // (32 * self.num_threads)

    @property
    def rate_class(self) -> str:
        """Throughput class within the atom's kind: "16bit", "tf32", "fp8", "int8", "fp32" or "fp64"."""
        return _RATE_CLASSES[self.a_dtype.name]

    @property
    def tv(self) -> MmaAtomTV:
        """Thread-value layouts of A, B and C: CuTe's ``MMA_Atom`` of this instruction.

        ``a``, ``b`` and ``c`` map (thread, value) to ``row + rows * column`` of the m x k, n x k and m x n operands. For an
        operand in shared memory, each thread of wgmma accesses the full operand. The lanes of FFMA are arranged row by row,
        by choice.

        >>> print(mma_sync(BF16).tv.a)
        ((4,8),(2,2,2)):((32,1),(16,8,128))
        >>> print(wgmma(64, BF16).tv.b)
        (128,(64,16)):(0,(1,64))
        """
        if self.kind == "fma":
            a, b, c = outer_product(self.m, self.n)
        else:
            vector = max(1, 32 // self.a_dtype.bits)
            if self.a_source == "smem":
                a = shared_operand(self.m, self.k, num_threads=self.num_threads)
            else:
                a = fragment(self.m, self.k, vector=vector, num_threads=self.num_threads)
            if self.kind == "wgmma":
                b = shared_operand(self.n, self.k, num_threads=self.num_threads)
            else:
                b = fragment(self.n, self.k, vector=vector)
            c = fragment(self.m, self.n, vector=ACCUMULATOR_VECTOR, num_threads=self.num_threads)
        return MmaAtomTV(shape_mnk=(self.m, self.n, self.k), a=a, b=b, c=c, thr_id=Layout(self.num_threads))


def _mma_sync(k: int, operand: DType, accumulator: DType | None = None, m: int = 16) -> MmaAtom:
    """The row m(m)n8k(k)."""
    acc = accumulator or accumulator_of(operand)
    a_type, acc_type = _PTX_TYPES[operand.name], _PTX_TYPES[acc.name]
    return MmaAtom(
        name=f"mma_sync_m{m}n8k{k}_{operand.name}_{acc.name}",
        ptx=f"mma.sync.aligned.m{m}n8k{k}.row.col.{acc_type}.{a_type}.{a_type}.{acc_type}", kind="mma_sync", m=m, n=8, k=k,
        a_dtype=operand, acc_dtype=acc, num_threads=WARP_SIZE, a_source="registers",
    )


FFMA = MmaAtom(
    name="ffma", ptx="fma.rn.f32", kind="fma", m=4, n=8, k=1, a_dtype=FP32, acc_dtype=FP32, num_threads=WARP_SIZE,
    a_source="registers",
)
"""One fp32 FMA of a warp: a 4 x 8 grid of lanes, row by row, each with one element of the outer product.

(CuTe's ``UniversalFMA`` describes one thread: 1 x 1 x 1.)"""

_ROWS = (
    _mma_sync(8, FP16),
    _mma_sync(16, FP16),
    _mma_sync(8, FP16, FP16),
    _mma_sync(16, FP16, FP16),
    _mma_sync(8, BF16),
    _mma_sync(16, BF16),
    _mma_sync(4, TF32),
    _mma_sync(8, TF32),
    _mma_sync(16, INT8),
    _mma_sync(32, INT8),
    _mma_sync(32, FP8),  # needs sm_89 or later; sm_80 has no fp8
    _mma_sync(16, FP8),  # needs PTX ISA 8.7, like the next two rows
    _mma_sync(32, FP8, FP16),
    _mma_sync(16, FP8, FP16),
    _mma_sync(4, FP64, m=8),  # DMMA; the next three need sm_90
    *(_mma_sync(k, FP64) for k in (4, 8, 16)),
    FFMA,
)

MMA_ATOMS: Mapping[str, MmaAtom] = MappingProxyType({atom.name: atom for atom in _ROWS})
"""Atoms of fixed shape by name. wgmma's shapes come from ``wgmma``."""


def mma_sync(operand: DType, accumulator: DType | None = None) -> MmaAtom:
    """The deepest mma.sync for ``operand``: 32 bytes of k. ``accumulator`` None selects the default type.

    m16n8k16 for 16-bit types, m16n8k8 for tf32, m16n8k32 for fp8 and int8. The fp8 rows need sm_89 or later.

    >>> mma_sync(BF16).name, mma_sync(FP16, FP16).name
    ('mma_sync_m16n8k16_bf16_fp32', 'mma_sync_m16n8k16_fp16_fp16')

    Raises:
        KernelError: no mma.sync has this operand type, or this accumulator type for it.
    """
    acc = _accumulator("mma.sync", operand, accumulator)
    return MMA_ATOMS[f"mma_sync_m16n8k{K_STEP_BYTES // operand.num_bytes}_{operand.name}_{acc.name}"]


@cache
def legal_wgmma_n(operand: DType) -> tuple[int, ...]:
    """Valid N of wgmma for ``operand``, in ascending order.

    Multiples of 8 up to 256 for floats; for int8 8, 24 and the multiples of 16. Source: PTX ISA, ``wgmma`` shapes.

    Raises:
        KernelError: no wgmma has this operand type.
    """
    _check_tensor_dtype("wgmma", operand)
    if operand.kind == "int":
        return tuple(sorted({8, 24, *range(16, 257, 16)}))
    return tuple(range(8, 257, 8))


@cache
def wgmma(n: int, operand: DType, a_source: OperandSource = "smem", accumulator: DType | None = None) -> MmaAtom:
    """The wgmma m64nNk(32 bytes) of ``operand``, with A from ``a_source`` and B from shared memory. Needs sm_90a.

    ``accumulator`` None selects the default type; fp16 and fp8 operands may also have an fp16 accumulator.

    >>> wgmma(128, FP8).ptx
    'wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3'
    >>> wgmma(128, FP16, accumulator=FP16).accumulator_registers
    32

    Raises:
        KernelError: no wgmma has this N, this operand type, or this accumulator type for it.
    """
    legal = legal_wgmma_n(operand)
    if n not in legal:
        close = min(legal, key=lambda candidate: (abs(candidate - n), -candidate))
        raise KernelError(f"wgmma: no m64n{n} for {operand.name}: the nearest legal n is {close}")
    if a_source not in ("smem", "registers"):
        raise KernelError(f"wgmma: A from {a_source!r}: use 'smem' or 'registers'")
    k = K_STEP_BYTES // operand.num_bytes
    acc = _accumulator("wgmma", operand, accumulator)
    a_type = _PTX_TYPES[operand.name]
    summed = "" if acc == accumulator_of(operand) else f"_{acc.name}"
    return MmaAtom(
        name=f"wgmma_m64n{n}k{k}_{operand.name}{summed}_{'ss' if a_source == 'smem' else 'rs'}",
        ptx=f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{_PTX_TYPES[acc.name]}.{a_type}.{a_type}", kind="wgmma", m=WGMMA_M,
        n=n, k=k, a_dtype=operand, acc_dtype=acc, num_threads=WARPGROUP_THREADS, a_source=a_source,
    )


def largest_wgmma_n(tile_n: int, operand: DType) -> int:
    """The largest valid wgmma N that divides ``tile_n``.

    >>> largest_wgmma_n(384, BF16), largest_wgmma_n(40, INT8)
    (192, 8)

    Raises:
        KernelError: ``tile_n`` is no positive multiple of 8, or no wgmma has this operand type.
    """
    dividing = [n for n in legal_wgmma_n(operand) if tile_n > 0 and tile_n % n == 0]
    if not dividing:
        close = max(8, (tile_n + 4) // 8 * 8)
        raise KernelError(f"wgmma: no legal n divides {tile_n} columns: the nearest tile that works has {close}")
    return dividing[-1]


def _check_tensor_dtype(instruction: str, operand: DType) -> None:
    check_dtype(instruction, operand)
    if operand not in _TENSOR_DTYPES:
        known = ", ".join(d.name for d in _TENSOR_DTYPES)
        raise KernelError(f"{instruction}: no atom here takes {operand.name}: use one of {known}")


def _accumulator(instruction: str, operand: DType, accumulator: DType | None) -> DType:
    """Accumulator type for ``operand``: the default, or the requested type if an instruction supports it."""
    _check_tensor_dtype(instruction, operand)
    default = accumulator_of(operand)
    if accumulator is not None:
        check_dtype(instruction, accumulator)
    if accumulator is None or accumulator == default:
        return default
    if accumulator == FP16 and operand in _FP16_SUMS:
        return accumulator
    known = f"{default.name} or fp16" if operand in _FP16_SUMS else default.name
    raise KernelError(f"{instruction}: no atom sums {operand.name} in {accumulator.name}: use {known}")
