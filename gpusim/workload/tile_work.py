"""Minimum work of a CTA for one work tile: a lower bound on the time of a launch whose programs have not been run."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.workload.atoms import MmaAtom
from gpusim.workload.smem.access import AccessPattern

NOTHING = AccessPattern()


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWork:
    """Math, loads and stores of a kernel. Its programs do at least this work.

    A tile is processed along K in k-steps, each of which waits for one stage of a ring.
    """

    atom: MmaAtom | None
    """MMA instruction of the kernel; None: FFMA."""
    step_instructions: int
    """Number of MMA instructions in a CTA's k-step: of warpgroups (wgmma) or of warps."""
    num_steps: int
    """Number of k-steps of a tile, the minimum over tiles."""
    all_steps: int
    """Number of k-steps of all tiles."""
    num_stages: int
    """Number of stages of the ring."""
    num_math_roles: int = 1
    """Number of roles that share a k-step's instructions evenly. Each then stores a part of the tile."""
    waits_each_step: bool = False
    """Whether a role waits for the math of a k-step before it issues that of the next."""
    takes_turns: bool = False
    """Whether roles alternate tiles (pingpong): all math of one tile is issued before the next tile's math begins."""
    box_bytes: int = 0
    """Bytes of the smaller of a k-step's two TMA copies; 0: no TMA copies."""
    copied_bytes: int = 0
    """Bytes that a CTA copies by TMA for a k-step. A multicast counts once."""
    copied_rows: int = 0
    """Number of box rows in these copies."""
    has_producer: bool = False
    """Whether one lane waits for the stage of each k-step and issues its TMA copies."""
    is_fenced: bool = False
    """Whether the CTAs of a cluster fence their stores at each cluster barrier: before the first tile, and at the end."""
    stored: AccessPattern = NOTHING
    """Minimum stores of a math role for one tile; empty if tiles extend beyond the matrix."""
    left_fraction: float = 0.0
    """Fraction of ``stored`` that must have left the SM before the role continues."""
    read_bytes: int = 0
    """Bytes that the launch reads from memory, each counted once."""
