"""CuTe's names of atoms, like ``SM80_16x8x16_F32BF16BF16F32_TN``: one parser for Python and the command line.

In: a name of an atom, ours or CuTe's, with or without CuTe's namespaces and template arguments. Out: the atom.
Source: CUTLASS ``include/cute/arch``: ``mma_sm80.hpp``, ``mma_sm89.hpp``, ``mma_sm90_gmma.hpp``, ``copy_sm*.hpp``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from gpusim.errors import KernelError, nearest
from gpusim.workload.atoms.copy import COPY_ATOMS, CopyAtom
from gpusim.workload.atoms.mma import MMA_ATOMS, MmaAtom, legal_wgmma_n, wgmma
from gpusim.workload.dtypes import BF16, FP8, FP16, FP64, INT8, TF32, DType

_TYPES = {
    "bf16": "BF16", "fp16": "F16", "tf32": "TF32", "fp8": "E4M3", "int8": "S8", "fp32": "F32", "fp64": "F64", "int32": "S32",
}  # fmt: skip
_BITS = {
    "uint128_t": 128, "uint64_t": 64, "uint32_t": 32, "int64_t": 64, "int32_t": 32, "int": 32, "float": 32, "double": 64,
    "float4": 128, "float2": 64, "int4": 128, "int2": 64, "uint4": 128, "uint2": 64, "uint_byte_t<16>": 128,
    "uint_byte_t<8>": 64, "uint_byte_t<4>": 32,
}  # fmt: skip
"""Bits of the C++ types that CuTe's cp.async atoms take."""

_BY_SPACE = ("UniversalCopy", "DefaultCopy", "AutoVectorizingCopy")
"""Beginnings of CuTe's copies whose instruction follows from where the tensors lie."""


@cache
def _mma_names() -> Mapping[str, MmaAtom]:
    """MMA atoms by CuTe's name without template arguments."""
    found = {}
    for atom in MMA_ATOMS.values():
        if atom.kind == "mma_sync" and (atom.a_dtype != FP8 or atom.k == 32):  # CuTe has no shorter one of fp8
            types, acc = _TYPES[atom.a_dtype.name], _TYPES[atom.acc_dtype.name]
            arch = "SM89" if atom.a_dtype == FP8 else "SM90" if atom.a_dtype == FP64 and atom.m == 16 else "SM80"
            found[f"{arch}_{atom.m}x{atom.n}x{atom.k}_{acc}{types}{types}{acc}_TN"] = atom
    for operand in (FP16, BF16, TF32, FP8, INT8):
        for accumulator in (None, FP16) if operand in (FP16, FP8) else (None,):
            found |= _wgmma_names(operand, accumulator)
    return found


def _wgmma_names(operand: DType, accumulator: DType | None) -> dict[str, MmaAtom]:
    found = {}
    for n in legal_wgmma_n(operand):
        for letters in ("SS", "RS"):
            atom = wgmma(n, operand, "smem" if letters == "SS" else "registers", accumulator)
            types = f"{_TYPES[atom.acc_dtype.name]}{2 * _TYPES[operand.name]}"
            # Types of 16 bits have a major mode of each operand as template argument; others are contiguous along k.
            found[f"SM90_{atom.m}x{n}x{atom.k}_{types}_{letters}{'' if operand.bits == 16 else '_TN'}"] = atom
    return found


@cache
def _copy_names() -> Mapping[str, CopyAtom]:
    """Copy atoms by CuTe's name. Names of cp.async have the type of one vector."""
    ours = {
        **{f"SM75_U32x{n}_LDSM_N": f"ldmatrix_x{n}" for n in (1, 2, 4)},
        **{f"SM75_U16x{2 * n}_LDSM_T": f"ldmatrix_x{n}_trans" for n in (1, 2, 4)},
        **{f"SM90_U32x{n}_STSM_N": f"stmatrix_x{n}" for n in (1, 2, 4)},
        **{f"SM90_U16x{2 * n}_STSM_T": f"stmatrix_x{n}_trans" for n in (1, 2, 4)},
        **{f"SM90_TMA_{verb}{rank}": f"tma_{verb.lower()}" for verb in ("LOAD", "LOAD_MULTICAST", "STORE")
           for rank in ("", *(f"_{dim}D" for dim in range(1, 6)))},
    }  # fmt: skip
    for fill in ("", "_ZFILL"):
        ours[f"SM80_CP_ASYNC_CACHEGLOBAL{fill}<uint128_t>"] = "cp_async_cg_b128"
        ours |= {f"SM80_CP_ASYNC_CACHEALWAYS{fill}<uint{bits}_t>": f"cp_async_ca_b{bits}" for bits in (32, 64, 128)}
    return {name: COPY_ATOMS[atom] for name, atom in ours.items()}


def atom_of(name: str) -> MmaAtom | CopyAtom:
    """The atom with a name of ours or of CuTe.

    ``cute::`` and ``SM90::GMMA::MMA_``, ``MMA_Atom<...>``, ``Copy_Atom<..., T>``, major modes and saturation may be there.

    >>> atom_of("SM80_16x8x16_F32BF16BF16F32_TN").name, atom_of("SM80_CP_ASYNC_CACHEGLOBAL<cute::uint128_t>").name
    ('mma_sync_m16n8k16_bf16_fp32', 'cp_async_cg_b128')
    >>> atom_of("SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::MN>").name
    'wgmma_m64n128k16_fp16_ss'

    Raises:
        KernelError: no such atom; it names the nearest.
    """
    known: dict[str, MmaAtom | CopyAtom] = {**MMA_ATOMS, **COPY_ATOMS, **_mma_names(), **_copy_names()}
    known |= {atom.name: atom for atom in _mma_names().values()}
    bare = _bare(name)
    for each, atom in known.items():
        if each.lower() == bare.lower():
            return atom
    if bare.startswith(_BY_SPACE):
        raise KernelError(f"atom: {name!r} follows from where tensors lie: use ld_global_b128, st_shared_b128 or the like")
    if re.fullmatch(r"SM80_CP_ASYNC_CACHE(GLOBAL|ALWAYS)(_ZFILL)?", bare):
        raise KernelError(f"atom: {name!r} wants the type of a vector, for example {bare}<uint128_t>")
    hint = nearest(bare, [each for each in known if each.startswith("SM") == bare.upper().startswith("SM")])
    examples = "CuTe's are like SM80_16x8x16_F32BF16BF16F32_TN, SM90_64x128x16_F32F16F16_SS and SM75_U32x4_LDSM_N"
    raise KernelError(f"atom: {name!r} is unknown; {hint if hint.startswith('did') else examples}")


def cute_name(atom: MmaAtom | CopyAtom) -> str:
    """CuTe's name of an atom, without template arguments of MMAs; empty where CuTe has none.

    >>> cute_name(MMA_ATOMS["mma_sync_m16n8k16_bf16_fp32"]), cute_name(COPY_ATOMS["tma_load"])
    ('SM80_16x8x16_F32BF16BF16F32_TN', 'SM90_TMA_LOAD')
    >>> cute_name(COPY_ATOMS["st_global_b32"]), cute_name(MMA_ATOMS["ffma"])
    ('UniversalCopy<uint32_t>', '')
    """
    if isinstance(atom, CopyAtom) and atom.name.startswith(("ld_", "st_")) and atom.bits_per_thread:
        return f"UniversalCopy<uint{atom.bits_per_thread}_t>"
    return next((name for name, known in {**_mma_names(), **_copy_names()}.items() if known == atom), "")


def is_atom_name(text: str) -> bool:
    """Whether text is meant as the name of an atom, known or not, and not as a layout.

    >>> is_atom_name("SM80_16x8x99"), is_atom_name("ldmatrix_x4"), is_atom_name("(4,8):(8,1)"), is_atom_name("Sw<3,3,3>")
    (True, True, False, False)
    """
    names = r"\s*(cute::|(MMA|Copy)_(Atom|Traits)<|(Universal|Default|AutoVectorizing)Copy|(?i:sm)\d|[a-z]+_\w|ffma$)"
    return re.match(names, text) is not None and "ptr" not in text


def _bare(name: str) -> str:
    """CuTe's name without blanks, namespaces, wrappers, major modes, saturation; a vector's type by its bits."""
    text = re.sub(r"\s", "", name).replace("cute::", "").replace("SM90::GMMA::MMA_", "SM90_")
    text = re.sub(r"^SM90::", "", text)
    wrapped = re.fullmatch(r"(?:MMA_Atom|MMA_Traits)<(.*)>|Copy_(?:Atom|Traits)<(.*?)(?:,[\w:]+)?>", text)
    if wrapped is not None:
        text = wrapped[1] or wrapped[2]
    stem, opened, argument = text.partition("<")
    argument = argument.removesuffix(">")
    if stem.startswith("SM80_CP_ASYNC") and opened:
        first = argument.split(",")[0]
        return f"{stem}<uint{_BITS[first]}_t>" if first in _BITS else text
    return stem.removesuffix("_SATURATE") if stem.startswith("SM") else text


def copy_atom(name: str) -> CopyAtom:
    """The copy atom with a name of ours or of CuTe.

    >>> copy_atom("cp_async_cg_b128").smem_op, copy_atom("SM75_U32x4_LDSM_N").name
    ('cp_async_b128', 'ldmatrix_x4')

    Raises:
        KernelError: no such atom, or an MMA.
    """
    atom = atom_of(name)
    if not isinstance(atom, CopyAtom):
        raise KernelError(f"copy atom: {name!r} is an MMA: use mma_atom")
    return atom


def mma_atom(name: str) -> MmaAtom:
    """The MMA atom with a name of ours or of CuTe.

    >>> mma_atom("SM90_64x256x32_F32E4M3E4M3_RS_TN").name, mma_atom("SM80_16x8x32_S32S8S8S32_TN").name
    ('wgmma_m64n256k32_fp8_rs', 'mma_sync_m16n8k32_int8_int32')

    Raises:
        KernelError: no such atom, or a copy.
    """
    atom = atom_of(name)
    if not isinstance(atom, MmaAtom):
        raise KernelError(f"MMA atom: {name!r} is a copy: use copy_atom")
    return atom
