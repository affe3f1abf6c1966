"""Which tile to type where one is refused: a tile is advised only if all else that was asked for goes with it.

In: refusals that propose a tile. Out: the sentence that leaves. A proposal mends what it was refused for; what the proposed
tile is refused for in its turn is mended likewise, until one is accepted, or none is advised.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusim.errors import GpusimError
from gpusim.kernel_models.gemm.options import MAX_TILE, AnyGemm

MOST_STEPS = 12
"""Proposals that are followed."""

Tile = tuple[int, int, int]


class TileRefused(GpusimError):  # noqa: N818 - it never leaves this room
    """A tile that no kernel can have, or that a GPU has no room for; what would do is not known yet."""

    def __init__(self, why: str, *, kind: type[GpusimError], tile: Tile | None, otherwise: str = "") -> None:
        """``tile`` is proposed, ``otherwise`` names flags that would do as well; ``kind`` is what the refusal becomes."""
        super().__init__(why)
        self.kind, self.tile, self.otherwise = kind, tile, otherwise


def advised(refused: TileRefused, accepts: Callable[[Tile], object]) -> GpusimError:
    """The refusal in a sentence, with a tile that ``accepts`` (which raises what it refuses) does take, or without one."""
    tile = _followed(refused.tile, accepts)
    flags = [refused.otherwise] if refused.otherwise else []
    if tile is not None:
        flags.append(f"--tile {'x'.join(map(str, tile))}")
    return refused.kind(f"{refused}; use {' or '.join(flags) or 'another tile'}")


def _followed(tile: Tile | None, accepts: Callable[[Tile], object]) -> Tile | None:
    """The first tile that is accepted on the way from one proposal to the next."""
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


def with_tile(params: AnyGemm, tile: Tile) -> AnyGemm:
    """The same with another tile."""
    return params.model_copy(update={"tile": tile})
