"""The least that a CTA does for a work tile: what bounds the time of a launch whose programs nobody has run."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.workload.atoms import MmaAtom
from gpusim.workload.smem.access import AccessPattern

NOTHING = AccessPattern()


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWork:
    """What a kernel multiplies, loads and stores; its programs do no less.

    A tile is walked along K in steps, each of which waits for one slot of a ring.
    """

    atom: MmaAtom | None
    """What multiplies; None: FFMA."""
    step_instructions: int
    """Instructions that a k-step of a CTA multiplies with: of warpgroups (wgmma) or of warps."""
    num_steps: int
    """K-steps of a tile, the fewest of any."""
    all_steps: int
    """K-steps of all tiles."""
    num_stages: int
    """Slots of the ring."""
    num_math_roles: int = 1
    """Roles that share a k-step's instructions evenly, and then store a part of the tile each."""
    waits_each_step: bool = False
    """Whether a role waits for a k-step's math before it issues the next one's."""
    takes_turns: bool = False
    """Whether roles take turns at whole tiles: one tile's math is issued before the next one's begins."""
    box_bytes: int = 0
    """Bytes of the smaller of a k-step's two copies by TMA; 0: nothing comes by TMA."""
    copied_bytes: int = 0
    """Bytes that a CTA copies by TMA for a k-step, those that it multicasts once."""
    copied_rows: int = 0
    """Rows of the boxes that they lie in."""
    has_producer: bool = False
    """Whether one lane waits for each k-step's slot and asks for its copies by TMA."""
    is_fenced: bool = False
    """Whether a cluster's CTAs fence what they have stored each time they meet: before they begin and before they end."""
    stored: AccessPattern = NOTHING
    """What a math role stores of a tile at least; nothing where tiles reach beyond the matrix."""
    left_fraction: float = 0.0
    """Of that, the part that must have left the SM before the role goes on."""
    read_bytes: int = 0
    """Bytes that the launch reads of memory, each once."""
