"""Copy atoms: one row for each instruction that moves bytes. Source of all rows: PTX ISA 8.x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from gpusim.errors import KernelError
from gpusim.layout import CopyAtomTV
from gpusim.units import WARP_SIZE
from gpusim.workload.atoms.fragments import matrix_registers, matrix_rows
from gpusim.workload.dtypes import DType

Space = Literal["global", "smem", "dsmem", "registers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyAtom:
    """One instruction that copies bytes from ``source`` to ``target``.

    * ``num_threads``: threads that execute it together: 32 for a warp's instruction, 1 for an elected thread's.
    * ``bits_per_thread``: bits that each thread copies; None if a descriptor determines the size (TMA).
    * ``smem_op``: name of its rule in ``SMEM_OPS``, for shared-memory wavefronts; None if it has none.
    * ``num_matrices``: 8 x 16-byte matrices of ldmatrix and stmatrix; 0 if each thread copies a separate vector.
    """

    name: str
    ptx: str
    num_threads: int
    bits_per_thread: int | None
    source: Space
    target: Space
    smem_op: str | None = None
    num_matrices: int = 0
    is_trans: bool = False

    @property
    def bytes_per_thread(self) -> int:
        """Bytes that one thread copies.

        Raises:
            KernelError: the atom copies boxes.
        """
        if self.bits_per_thread is None:
            raise KernelError(f"{self.name}: its box says how much it moves: ask tma.TmaBox.num_bytes")
        return self.bits_per_thread // 8

    @property
    def num_bytes(self) -> int:
        """Bytes that one instruction copies with every thread active.

        >>> COPY_ATOMS["ldmatrix_x4"].num_bytes
        512

        Raises:
            KernelError: the atom copies boxes.
        """
        return self.num_threads * self.bytes_per_thread

    def tv(self, dtype: DType) -> CopyAtomTV:
        """Thread-value layout of the instruction for elements of ``dtype``: CuTe's ``Copy_Atom``.

        If each thread copies a separate vector (loads, stores, cp.async), the layout is that of one thread. For ldmatrix and
        stmatrix it is that of a warp. There, ``src`` and ``dst`` map to element ``column + row * width`` of the consecutive
        matrices, whose rows are 16 bytes wide. Transposing instructions move units of 16 bits, so pairs of 8-bit elements
        stay together.

        >>> from gpusim.workload.dtypes import BF16
        >>> atom = COPY_ATOMS["ldmatrix_x2"].tv(BF16)
        >>> print(atom.src, atom.dst)
        ((16,2),8):((8,0),1) (32,(2,2)):(2,(1,64))
        >>> print(COPY_ATOMS["cp_async_cg_b128"].tv(BF16).src)
        (1,8):(0,1)

        Raises:
            KernelError: the atom copies boxes, or elements of this type do not fit its units.
        """
        if self.bits_per_thread is None:
            raise KernelError(f"{self.name}: it moves boxes, and threads have no elements: use tma.TmaBox for its shape")
        # A matrix's register has 32 bits. A transposing instruction keeps 16 bits together.
        widest = (16 if self.is_trans else 32) if self.num_matrices else self.bits_per_thread
        if dtype.bits > widest:
            raise KernelError(
                f"{self.name}: its units have {widest} bits, {dtype.name} has {dtype.bits}: use a narrower type"
            )
        if not self.num_matrices:
            return CopyAtomTV.vector(self.bits_per_thread // dtype.bits)
        rows = matrix_rows(self.num_matrices)
        registers = matrix_registers(self.num_matrices, is_trans=self.is_trans)
        is_load = self.target == "registers"
        return CopyAtomTV.from_bits(
            src=rows if is_load else registers, dst=registers if is_load else rows, ref=registers, element_bits=dtype.bits
        )


# PTX has .b128 for scalar loads only from version 8.3 on; compilers emit .v4.b32.
_PTX_TYPE = {8: "b8", 16: "b16", 32: "b32", 64: "b64", 128: "v4.b32"}


def _vector(verb: str, space: Literal["global", "shared"], bits: int) -> CopyAtom:
    name = f"{verb}_{space}_b{bits}"
    memory: Space = "global" if space == "global" else "smem"
    return CopyAtom(
        name=name, ptx=f"{verb}.{space}.{_PTX_TYPE[bits]}", num_threads=WARP_SIZE, bits_per_thread=bits,
        source=memory if verb == "ld" else "registers", target=memory if verb == "st" else "registers",
        smem_op=name if space == "shared" else None,
    )


def _cp_async(cache: Literal["ca", "cg"], bits: int) -> CopyAtom:
    return CopyAtom(
        name=f"cp_async_{cache}_b{bits}", ptx=f"cp.async.{cache}.shared.global [dst], [src], {bits // 8}",
        num_threads=WARP_SIZE, bits_per_thread=bits, source="global", target="smem", smem_op=f"cp_async_b{bits}",
    )


def _matrix(verb: Literal["ldmatrix", "stmatrix"], num_matrices: int, *, is_trans: bool) -> CopyAtom:
    name = f"{verb}_x{num_matrices}" + ("_trans" if is_trans else "")
    return CopyAtom(
        name=name, ptx=f"{verb}.sync.aligned.m8n8.x{num_matrices}{'.trans' if is_trans else ''}.shared.b16",
        num_threads=WARP_SIZE, bits_per_thread=32 * num_matrices, source="smem" if verb == "ldmatrix" else "registers",
        target="registers" if verb == "ldmatrix" else "smem", smem_op=name, num_matrices=num_matrices, is_trans=is_trans,
    )


def _tma(name: str, ptx: str, source: Space, target: Space) -> CopyAtom:
    return CopyAtom(name=name, ptx=ptx, num_threads=1, bits_per_thread=None, source=source, target=target)


def _st_async(bits: int) -> CopyAtom:
    return CopyAtom(
        name=f"st_async_b{bits}", ptx=f"st.async.shared::cluster.mbarrier::complete_tx::bytes.{_PTX_TYPE[bits]}",
        num_threads=WARP_SIZE, bits_per_thread=bits, source="registers", target="dsmem",
    )


_ROWS = (
    *(_vector("ld", "global", bits) for bits in (8, 16, 32, 64, 128)),
    *(_vector("st", "global", bits) for bits in (8, 16, 32, 64, 128)),
    *(_vector("ld", "shared", bits) for bits in (8, 16, 32, 64, 128)),
    *(_vector("st", "shared", bits) for bits in (8, 16, 32, 64, 128)),
    *(_cp_async("ca", bits) for bits in (32, 64, 128)),
    _cp_async("cg", 128),
    *(_matrix("ldmatrix", n, is_trans=trans) for n in (1, 2, 4) for trans in (False, True)),
    *(_matrix("stmatrix", n, is_trans=trans) for n in (1, 2, 4) for trans in (False, True)),
    _tma("tma_load", "cp.async.bulk.tensor.shared::cluster.global.mbarrier::complete_tx::bytes", "global", "smem"),
    _tma(
        "tma_load_multicast", "cp.async.bulk.tensor.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
        "global", "dsmem",
    ),
    _tma("tma_store", "cp.async.bulk.tensor.global.shared::cta.bulk_group", "smem", "global"),
    *(_st_async(bits) for bits in (32, 64, 128)),
)

COPY_ATOMS: Mapping[str, CopyAtom] = MappingProxyType({atom.name: atom for atom in _ROWS})
"""Copy atoms by name. TMA rows omit the rank (.1d to .5d) that PTX requires after ``tensor``."""
