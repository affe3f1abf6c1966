"""Loops that the engine owns, so that it can move them ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusim.simulate.role import Role

NEVER = -1


class Loop:
    """``for k in role.loop(n)``: an index that several roles' loops move ahead together."""

    __slots__ = ("_boost", "_num_meetings", "_report_at", "_role", "block", "idx", "mark_at", "num_iterations", "on_block")

    def __init__(self, role: Role, num_iterations: int) -> None:
        """``num_iterations`` from 0; reports to ``on_block(loop)`` at every multiple of ``block`` if that is set."""
        self._role = role
        self.num_iterations = num_iterations
        self.idx = -1
        self.block = 0
        self.mark_at = NEVER
        self.on_block: Callable[[Loop], None] | None = None
        self._boost = 0
        self._num_meetings = role.laggard.num_meetings
        self._report_at = NEVER

    @property
    def num_left(self) -> int:
        """Iterations that have not begun."""
        return self.num_iterations - 1 - self.idx

    @property
    def role(self) -> Role:
        """Whose loop this is."""
        return self._role

    def __iter__(self) -> Loop:
        """A loop is its own iterator."""
        return self

    def __next__(self) -> int:
        """Next index, or the end."""
        idx = self.idx + 1
        if idx >= self.num_iterations:
            self._finish()
            raise StopIteration
        self.idx = idx
        if idx == self.mark_at:
            return self._mark()
        return idx

    def report(self, first: int, block: int, on_block: Callable[[Loop], None]) -> None:
        """Ask for ``on_block(self)`` at iteration ``first`` and every ``block`` iterations from there."""
        self.block = block
        self.on_block = on_block
        self._report_at = self.mark_at = first

    def skip(self, num_iterations: int) -> None:
        """Move ahead; the next iteration counts for those that were left out, too."""
        self.idx += num_iterations
        self._boost = max(self._boost, 0) + num_iterations
        self.mark_at = self.idx + 1

    def _mark(self) -> int:
        role = self._role
        if self._boost > 0:  # this iteration stands for the skipped ones
            role.iteration_weight = 1.0 + self._boost
            if role.laggard.num_meetings == self._num_meetings:
                role.laggard.num_alike = role.iteration_weight
            role.update_count()
            self._boost = NEVER
            self.mark_at = self.idx + 1
            return self.idx
        if self._boost == NEVER:
            role.iteration_weight = role.laggard.num_alike = 1.0
            role.update_count()
            self._boost = 0
            self.mark_at = NEVER
        if self.on_block is not None:
            if self.idx == self._report_at:
                self._report_at += self.block
                self.on_block(self)
                if self._boost > 0:  # it moved us; the next iteration stands for the skipped ones
                    return self.idx
            while self._report_at <= self.idx:
                self._report_at += self.block
            self.mark_at = self._report_at
        return self.idx

    def _finish(self) -> None:
        role = self._role
        if role.iteration_weight != 1.0:
            role.iteration_weight = role.laggard.num_alike = 1.0
            role.update_count()
        role.loops.remove(self)
        if self.on_block is not None:
            role.engine.steady.unwatch(self)


class TileLoop:
    """``for turn, tile in role.tiles(n)``: the outer loop of a persistent CTA."""

    __slots__ = ("_boost", "_role", "num_tiles", "on_turn", "step", "turn")

    def __init__(self, role: Role, num_tiles: int, first: int, step: int) -> None:
        """Turns ``first``, ``first + step``, ... whose tile lies below ``num_tiles``."""
        self._role = role
        self.num_tiles = num_tiles
        self.turn = first - step
        self.step = step
        self.on_turn: Callable[[TileLoop], None] | None = None
        self._boost = 0

    @property
    def num_turns(self) -> int:
        """Turns of this CTA, in all."""
        role = self._role
        return max(0, -(-(self.num_tiles - role.cta_idx) // role.num_ctas))

    @property
    def num_turns_left(self) -> int:
        """Turns that have not begun."""
        return self.num_turns - 1 - self.turn

    @property
    def role(self) -> Role:
        """Whose loop this is."""
        return self._role

    def __iter__(self) -> TileLoop:
        """A loop is its own iterator."""
        return self

    def __next__(self) -> tuple[int, int]:
        """Next (turn, tile), or the end."""
        role = self._role
        self.turn += self.step
        if role.turn_weight != 1.0:
            role.turn_weight = 1.0
            role.update_count()
        if self.on_turn is not None:
            self.on_turn(self)
        if self._boost:
            role.turn_weight = 1.0 + self._boost / self.step
            role.update_count()
            self._boost = 0
        tile = role.cta_idx + self.turn * role.num_ctas
        if tile >= self.num_tiles:
            role.tile_loop = None
            raise StopIteration
        role.wave = self.turn
        return self.turn, tile

    def skip(self, num_turns: int) -> None:
        """Move ahead; the next turn counts for those that were left out, too."""
        self.turn += num_turns
        self._boost += num_turns
