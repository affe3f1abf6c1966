"""Finding: one thing that is wrong with a launch, whatever its timing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingKind = Literal[
    "race", "fence", "order", "barrier", "bytes", "deadlock", "accumulators", "swizzle", "wgmma_fence", "unread", "unchecked"
]
"""Kind of a finding. The last three are remarks of a simulation, the others are errors."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Finding:
    """One thing that is wrong with a launch, whatever its timing. As text it is its sentence."""

    kind: FindingKind
    message: str
    """Sentence with the kernel, both places and what is missing."""

    @property
    def is_error(self) -> bool:
        """Whether ``simulate`` refuses the launch. Otherwise its result has a remark."""
        return self.kind not in ("wgmma_fence", "unread", "unchecked")

    def __str__(self) -> str:
        return self.message

    __repr__ = __str__
