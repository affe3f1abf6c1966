"""Advice on tiles: a refusal proposes a tile only if it is compatible with all other options.

In: refusals that propose a tile. Out: the error for the user. A proposal fixes the cause of its refusal. If the proposed
tile is refused in turn, that refusal's proposal is tried, until one is accepted or none is advised.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusim.errors import GpusimError
from gpusim.kernel_models.gemm.options import MAX_TILE

MOST_STEPS = 12
"""Maximum number of proposals that are followed."""

Tile = tuple[int, int, int]


class TileRefused(GpusimError):  # noqa: N818 - it never leaves this package
    """A tile that no kernel can have, or that does not fit on a GPU. A tile that works is not known yet."""

    def __init__(self, why: str, *, kind: type[GpusimError], tile: Tile | None, otherwise: str = "") -> None:
        """``tile`` is proposed, ``otherwise`` names flags as an alternative; ``kind`` is the class of the final error."""
        super().__init__(why)
        self.kind, self.tile, self.otherwise = kind, tile, otherwise


def advised(refused: TileRefused, accepts: Callable[[Tile], object]) -> GpusimError:
    """The error for the user, with a tile that ``accepts`` does not refuse, or without one.

    Args:
        refused: the first refusal.
        accepts: function that raises an error for tiles that it refuses.
    """
    tile = _followed(refused.tile, accepts)
    flags = [refused.otherwise] if refused.otherwise else []
    if tile is not None:
        flags.append(f"--tile {'x'.join(map(str, tile))}")
    return refused.kind(f"{refused}; use {' or '.join(flags) or 'another tile'}")


def _followed(tile: Tile | None, accepts: Callable[[Tile], object]) -> Tile | None:
    """The first accepted tile in the chain of proposals."""
    seen: set[Tile] = set()
    for _ in range(MOST_STEPS):
        if tile is None or tile in seen or max(tile) > MAX_TILE:
            return None
        seen.add(tile)
        try:
            accepts(tile)
        except TileRefused as error:
            tile = error.tile
        except GpusimError:
            return None
        else:
            return tile
    return None
