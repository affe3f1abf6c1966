"""How far a prediction may be off: what nine in ten measured rows of its family kept (``validation/held_out.toml``).

No row of a whole kernel was fitted to. Of families that are held out no row was looked at, either: their error is what may
be expected of a kernel that nobody has measured.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpusim.evidence.places import CYCLES, held_out_families, kernels_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What nine in ten predictions of a family's cycles kept."""

    p90_pct: float
    gpu: str
    """Whose rows judged: another GPU's, where the one that is asked about has none."""
    family: str
    """Of rows."""
    is_held_out: bool
    """Whether nobody has looked for mechanisms in that family's rows."""

    @property
    def text(self) -> str:
        """In words."""
        kind = "held-out family" if self.is_held_out else "family"
        return f"nine in ten rows of the {kind} {self.family} on {self.gpu} were closer"


def expected_error(kernel: str, gpu: str, params: Mapping[str, Any] | None = None) -> Expected | None:
    """Of a prediction of ``kernel`` on ``gpu``, by ``params`` of the family that it is like; None where nothing judged it.

    A family's rows go before those of all of the kernel's families, and ``gpu``'s before the first GPU's that has any.
    """
    path = kernels_dir().parent / "validation" / "held_out.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for family in dict.fromkeys((family_of(kernel, params or {}), kernel)):
        for name in (gpu, *table):
            found = table.get(name, {}).get(family, {}).get(CYCLES)
            if found is not None:
                held_out = family in held_out_families()
                return Expected(p90_pct=float(found), gpu=name, family=family, is_held_out=held_out)
    return None


def family_of(kernel: str, params: Mapping[str, Any]) -> str:
    """The family of measured rows that a prediction is like; ``kernel`` itself where none is.

    >>> family_of("gemm", {"math": "wgmma", "copy": "tma", "schedule": "pingpong", "dtype": "bf16", "split_k": 1})
    'hopper_gemm pingpong'
    >>> family_of("gemm", {"math": "fma"}), family_of("softmax", {})
    ('sgemm', 'softmax')
    """
    if kernel != "gemm" or "math" not in params:
        return kernel
    if params["math"] in ("fma", "mma_sync"):
        return {"fma": "sgemm", "mma_sync": "hgemm"}[params["math"]]
    if params.get("copy") == "cp_async":
        return "tile_gemm by_pointers"
    if str(params.get("dtype")) == "fp8":
        return "hopper_gemm fp8"
    return f"hopper_gemm {'split_k' if params.get('split_k', 1) > 1 else params['schedule']}"
