"""Shared-memory instructions whose wavefronts are known, with the evidence for each rule.

In: a name. Out: its row of ``SMEM_OPS``, or a hint for an unknown name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpusim.errors import KernelError, LayoutError, nearest
from gpusim.units import WARP_SIZE, WAVEFRONT_BYTES
from gpusim.workload.atoms import CopyAtom, atom_of

BANK_BYTES = 4
MATRIX_ROWS = 8
MATRIX_ROW_BYTES = 16
"""Bytes of a matrix row of ldmatrix, stmatrix and wgmma's core matrix, which have 8 rows. Source: PTX ISA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemOp:
    """The phases of one shared-memory instruction: a row of ``SMEM_OPS``.

    * ``access_bytes``: bytes of one lane's access.
    * ``num_lanes``: lanes that give addresses, from lane 0 on.
    * ``is_collective``: whether all 32 lanes of the warp must be active.
    * ``merges_phases``: whether two neighbouring phases merge if lanes share addresses in pairs and no words conflict.
    * ``is_broadcasting``: whether lanes of a phase that access the same word share a wavefront.
    * ``num_passes``: number of times that each wavefront passes.
    * ``is_loop``: whether SASS implements it as a loop of a load and a compare-and-swap.
    * ``evidence``: source of the rule.
    """

    name: str
    access_bytes: int
    num_lanes: int = WARP_SIZE
    is_collective: bool = False
    merges_phases: bool = False
    is_broadcasting: bool = True
    num_passes: int = 1
    is_loop: bool = False
    evidence: str

    @property
    def lanes_per_phase(self) -> int:
        """Number of lanes that are served together: those that fit in one wavefront of 128 bytes, at most a warp."""
        return min(WARP_SIZE, WAVEFRONT_BYTES // self.access_bytes)

    @property
    def num_phases(self) -> int:
        """Number of phases before any merge."""
        return self.num_lanes // self.lanes_per_phase


_COUNTED = "measured: H200, validation/measured/h200_sxm/shared_access.csv"
_SEEN = f"{_COUNTED}; the plain bank rule; 120 of 120 accesses exact"
_MERGED = {8: f"{_COUNTED}; 800 of 800 accesses exact", 16: f"{_COUNTED}; 3,040 of 3,040 accesses exact"}
_COPY = (
    "measured: H200, validation/measured/h200_sxm/cp_async_access.csv; lanes on one word queue; exact for "
    "all accesses that read adjacent vectors"
)
_ATOMIC = f"{_COUNTED}; lanes on one word queue; 120 of 120 accesses exact"
_SWAP = f"{_COUNTED}; as other atomics, twice over; 120 of 120 accesses exact"
_LOOP = f"{_COUNTED}; a loop of a load and a compare-and-swap; 120 of 120 accesses exact"
_LOOP_OF_FLOATS = "inferred: the loop of 64-bit atomics, which was counted on an H200, with words of 32 bits"
_LOOP_OF_VALUES = f"{_COUNTED}; a loop of a load and a compare-and-swap; at most so many, values may make it shorter"
ATOMIC_VERBS = ("add", "min", "max", "and", "or", "xor", "exch", "cas")
"""Operations of ``atom.shared``. ``red.shared`` lacks the last two, which are useless without a result."""

_SMEM_OP_ROWS = (
    *(
        SmemOp(
            name=f"{verb}_shared_b{8 * n}", access_bytes=n, merges_phases=verb == "ld" and n > 4,
            evidence=_MERGED[n] if verb == "ld" and n > 4 else _SEEN,
        )
        for verb in ("ld", "st")
        for n in (1, 2, 4, 8, 16)
    ),
    *(SmemOp(name=f"cp_async_b{8 * n}", access_bytes=n, is_broadcasting=False, evidence=_COPY) for n in (4, 8, 16)),
    *(
        SmemOp(
            name=f"{verb}_x{n}{trans}", access_bytes=MATRIX_ROW_BYTES, num_lanes=MATRIX_ROWS * n, is_collective=True,
            evidence=_SEEN,
        )
        for verb in ("ldmatrix", "stmatrix")
        for n in (1, 2, 4)
        for trans in ("", "_trans")
    ),
    *(
        SmemOp(
            name=f"{kind}_shared_{verb}_b{8 * n}", access_bytes=n, is_broadcasting=False,
            num_passes=2 if verb == "cas" else 1, is_loop=n == 8 and verb not in ("exch", "cas"),
            evidence=_SWAP if verb == "cas" else _ATOMIC if n == 4 or verb == "exch"
            else _LOOP if verb in ("add", "xor") else _LOOP_OF_VALUES,
        )
        for kind in ("atom", "red")
        for verb in (ATOMIC_VERBS if kind == "atom" else ATOMIC_VERBS[:-2])
        for n in (4, 8)
    ),
    *(
        SmemOp(name=f"{kind}_shared_add_f32", access_bytes=4, is_broadcasting=False, is_loop=True, evidence=_LOOP_OF_FLOATS)
        for kind in ("atom", "red")
    ),
    *(
        SmemOp(
            name=f"{kind}_shared_b{8 * n}", access_bytes=n, is_broadcasting=False, is_loop=n == 8,
            evidence=_ATOMIC if n == 4 else _LOOP,
        )
        for kind in ("atom", "red")
        for n in (4, 8)
    ),
)

SMEM_OPS: Mapping[str, SmemOp] = MappingProxyType({op.name: op for op in _SMEM_OP_ROWS})
"""Shared-memory instructions whose wavefronts are known, by name; ``CopyAtom.smem_op`` refers to one. An atomic without an
operation is an add. Atomics of ``b32`` and ``b64`` are integer atomics; ``f32`` is floating point."""


def smem_op(name: str) -> SmemOp:
    """The row of ``SMEM_OPS`` with this name, or with CuTe's name of an atom.

    >>> smem_op("ldmatrix_x4").num_phases, smem_op("SM75_U32x4_LDSM_N").name
    (4, 'ldmatrix_x4')

    Raises:
        LayoutError: no such instruction.
        KernelError: see :func:`smem_op_name`.
    """
    known = SMEM_OPS.get(name) or SMEM_OPS.get(smem_op_name(name))
    if known is None:
        raise LayoutError(f"wavefronts: {name!r} is unknown; {smem_op_hint(name)}")
    return known


def smem_op_name(name: str) -> str:
    """Name in ``SMEM_OPS`` of the instruction that CuTe's name of an atom means; any other name unchanged.

    >>> smem_op_name("SM75_U32x4_LDSM_N"), smem_op_name("ld_shared_b32")
    ('ldmatrix_x4', 'ld_shared_b32')

    Raises:
        KernelError: CuTe has no such atom, or its lanes address no shared memory.
    """
    if not name.removeprefix("cute::").startswith(("SM", "Copy_", "MMA_")):
        return name
    atom = atom_of(name)
    op = atom.smem_op if isinstance(atom, CopyAtom) else None
    if op is None:
        raise KernelError(f"{name!r} is {atom.name}, whose lanes address no shared memory; use LDSM, STSM or CP_ASYNC")
    return op


def smem_op_families() -> dict[str, str]:
    """Names of ``SMEM_OPS`` by family, with widths (and for atomics operations) combined.

    >>> families = smem_op_families()
    >>> families["ld_shared"], families["ldmatrix"]
    ('ld_shared_b8|b16|b32|b64|b128', 'ldmatrix_x1|x2|x4[_trans]')
    >>> families["red_shared"]
    'red_shared[_add|_min|_max|_and|_or|_xor]_b32|b64|f32'
    """
    widths: dict[str, dict[str, None]] = {}
    verbs: dict[str, dict[str, None]] = {}
    for name in SMEM_OPS:
        stem, _, width = name.removesuffix("_trans").rpartition("_")
        family = next((kind for kind in ("atom_shared", "red_shared") if stem.startswith(kind)), stem)
        widths.setdefault(family, {})[width] = None
        if stem != family:
            verbs.setdefault(family, {})[stem.removeprefix(family)] = None
    rules = {}
    for family, found in widths.items():
        of_atomics = f"[{'|'.join(verbs[family])}]" if family in verbs else ""
        transposed = "[_trans]" if f"{family}_{next(iter(found))}_trans" in SMEM_OPS else ""
        rules[family] = f"{family}{of_atomics}_{'|'.join(found)}{transposed}"
    return rules


def smem_op_hint(name: str) -> str:
    """A hint for a name that ``SMEM_OPS`` lacks: the family that it names, the nearest names, or all families.

    >>> smem_op_hint("ld_shared"), smem_op_hint("atom_shared_add")
    ('use ld_shared_b8|b16|b32|b64|b128', 'use atom_shared_add_b32|b64|f32')
    >>> smem_op_hint("ld_shred_b32")
    "did you mean 'ld_shared_b32'?"
    """
    families, stem = smem_op_families(), name.lower().rstrip("_")
    if stem in families:
        return f"use {families[stem]}"
    widths = [op.removeprefix(f"{stem}_") for op in SMEM_OPS if op.startswith((f"{stem}_b", f"{stem}_f"))]
    if widths:
        return f"use {stem}_{'|'.join(widths)}"
    begun = [family for family in families if stem and family.startswith(stem)]
    if begun:
        return f"use {' or '.join(families[family] for family in begun)}"
    hint = nearest(name, SMEM_OPS)
    return hint if hint.startswith("did you") else f"known: {', '.join(families.values())}"
