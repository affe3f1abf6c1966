"""Atoms: one record for each copy or MMA instruction.

In: nothing; a new instruction is a new row. Out: ``CopyAtom`` and ``MmaAtom`` records. This package must not know how long
an instruction takes, nor which kernel uses it. No code branches on the name of an atom.
"""

from __future__ import annotations

from gpusim.workload.atoms.copy import COPY_ATOMS, CopyAtom
from gpusim.workload.atoms.cute_names import atom_of, copy_atom, cute_name, is_atom_name, mma_atom
from gpusim.workload.atoms.mma import FFMA, MMA_ATOMS, MmaAtom, largest_wgmma_n, legal_wgmma_n, mma_sync, wgmma

__all__ = [
    "COPY_ATOMS",
    "FFMA",
    "MMA_ATOMS",
    "CopyAtom",
    "MmaAtom",
    "atom_of",
    "copy_atom",
    "cute_name",
    "is_atom_name",
    "largest_wgmma_n",
    "legal_wgmma_n",
    "mma_atom",
    "mma_sync",
    "wgmma",
]
