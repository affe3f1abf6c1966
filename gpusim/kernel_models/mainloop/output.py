"""What an epilogue makes of accumulators, the path of D to global memory, and the staging buffer on that path."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.kernel_models.mainloop.threads import ThreadTile
from gpusim.workload.compiled_code import NO_CODE, EpilogueCode
from gpusim.workload.dtypes import DType

SUM_BYTES = 4
"""Bytes of an fp32 (or int32) partial sum of split-K, and of an element of the bias."""

BY_TMA = ("tma_store", "tma_reduce")
"""Paths of D by TMA."""

ACTIVATION_COST = {"none": (0, 0), "relu": (1, 0), "gelu": (8, 1), "silu": (3, 2), "sigmoid": (2, 2)}
"""(ALU or FMA, MUFU) instructions an element. Source: relu is one FMNMX; gelu by tanh.approx; silu by ex2, rcp; sigmoid is
silu without its product."""

CLAMP_COST = 2
"""Instructions an element of limits on both ends: two FMNMX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What an epilogue makes of accumulators, and the path of D to global memory."""

    element: DType
    """Type of C and D."""
    path: str = "direct"
    """``direct``, ``smem``, ``tma_store`` or ``tma_reduce``."""
    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    bias_along: str = "n"
    """``n``: the bias has an element for each column; ``m``: for each row."""
    activation: str = "none"
    clamp: bool = False
    has_packed_sums: bool = False
    """Whether a register has two sums of fp16."""
    thread_tile: ThreadTile = ThreadTile()  # noqa: RUF009 - frozen
    thread_columns: int = 0
    """Columns of a thread of FFMA; 0 for other math."""
    vector_bytes: int = 16
    """Bytes to which rows of C and D are aligned, up to 16: the widest access of a lane."""
    code: EpilogueCode = NO_CODE.epilogue
    """Overhead instructions of a pass over the accumulators."""
    code_bytes: tuple[int, int] = (0, 0)
    """Byte offsets of begin and end of the epilogue's code, if it is cold; zeros: unknown."""

    @property
    def finishing_cost(self) -> tuple[int, int]:
        """(ALU or FMA, MUFU) instructions an element of activation and limits."""
        alu, mufu = ACTIVATION_COST[self.activation]
        return alu + CLAMP_COST * self.clamp, mufu

    @property
    def by_tma(self) -> bool:
        """Whether TMA moves D from shared memory."""
        return self.path in BY_TMA

    @property
    def reads_c(self) -> bool:
        """Whether warps load C. A TMA reduction adds to D in L2 instead."""
        return self.beta != 0.0 and self.path != "tma_reduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Staging buffer of an epilogue: columns of a slice, bytes, and whether it reuses the memory of the drained stages."""

    slice_n: int = 0
    num_bytes: int = 0
    overlays_stages: bool = True
