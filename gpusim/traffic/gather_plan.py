"""L2 hits of tiles that gather random rows of a table, from the bytes touched since each row's last use."""

from __future__ import annotations

import numpy as np

from gpusim.machine.exact_array_math import along, exp_of
from gpusim.machine.memory.l2_capacity import Sides
from gpusim.traffic.panels import FloatArray, Order, PanelTraffic, Touches, distinct, read_traffic

MOST_EDGES = 400
"""Points of a launch at which shares are computed; they are interpolated linearly in between."""


def table_added_bytes(table: Touches, order: Order) -> FloatArray:
    """Distinct bytes of a table that each step touches in each L2 partition, float64[num_steps, num_sides]."""
    size, asked, by_side = float(table.use.table_bytes), *_asked(table, order)
    home = size / order.num_sides * _touched_share(asked / size)
    copies = size * (1.0 - 1.0 / order.num_sides) * _touched_share(by_side / size)
    return np.asarray(home[:, None] + copies)


def table_traffic(table: Touches, order: Order, sides: Sides, others: FloatArray, *, is_warm: bool) -> PanelTraffic:
    """Traffic of a tensor of which each tile reads random rows.

    A row was last requested more than y bytes of row requests ago with probability e^(-y / table). Since then two kinds of
    bytes have been touched: the distinct rows within those y bytes, and other tensors' bytes.

    Args:
        table: rows of the tensor.
        order: wave and L2 partition of each tile.
        sides: capacity of the L2 partitions.
        others: bytes that other tensors touched before each step and at the end, float64[num_steps + 1, num_sides].
        is_warm: whether an earlier launch did the same.

    >>> import numpy as np
    >>> from gpusim.traffic.panels import PanelUse
    >>> tiles = np.arange(1000)
    >>> use = PanelUse(tensor="t", is_write=False, panel_of_tile=tiles, bytes_of_tile=tiles * 0 + 10, table_bytes=1000)
    >>> order = Order.of(tiles // 10, None, num_sides=1, num_passes=1)
    >>> sides = Sides(num=1, side_bytes=2000.0, spread=0.0)
    >>> found = table_traffic(Touches.of(use, order), order, sides, np.zeros((101, 1)), is_warm=False)
    >>> bool(abs(found.read_miss_bytes - 1000 * (1 - np.exp(-10))) < 10)  # of 10,000 bytes: the table, once
    True
    """
    num, size = order.num_sides, float(table.use.table_bytes)
    asked, by_side = _asked(table, order)
    edges = distinct(np.linspace(0, order.num_steps, min(order.num_steps, MOST_EDGES) + 1).astype(np.int64))
    so_far = np.concatenate((np.zeros((1, num + 1)), np.cumsum(np.column_stack((asked, by_side)), axis=0)))[edges] / size
    since = so_far[:, None, :] - so_far[None, :, :]  # (to, from, of all and of each partition), in tables
    untouched = exp_of(-np.maximum(since, 0.0))
    first, steps = np.tri(len(edges), len(edges) - 1, -1), np.arange(order.num_steps)
    home_lost, copy_lost = np.zeros((num, order.num_steps)), np.zeros((num, order.num_steps))
    for side in range(num):
        between = others[edges, side][:, None] - others[edges, side][None, :]
        between = between + size * (1.0 - untouched[:, :, 0]) / num
        between = between + size * (1.0 - 1.0 / num) * (1.0 - untouched[:, :, side + 1])
        lost = sides.lost_share(np.maximum(between, 0.0))
        never = sides.lost_share(between[-1, 0]) if is_warm else 1.0
        for which, found in ((0, home_lost), (side + 1, copy_lost)):
            last = untouched[:, 1:, which] - untouched[:, :-1, which]
            share = (last * first * lost[:, :-1]).sum(axis=1) + untouched[:, 0, which] * never
            of_step = np.column_stack((asked, by_side))[:, which] / size
            again = np.where(of_step > 0.0, _touched_share(of_step) / np.where(of_step > 0.0, of_step, 1.0), 1.0)
            found[side] = along(steps, edges, share) * again
    memory, crossing = np.zeros((num, len(table.step))), np.full((num, len(table.step)), 1.0 - 1.0 / num)
    for side in range(num):
        here, step = table.by_side[side], table.step
        across = copy_lost[side, step]
        crossing[side] = np.where(here, crossing[side] * across, crossing[side])
        for home in range(num):
            lost = home_lost[home, step]
            memory[home] = np.where(here, (lost if home == side else np.minimum(lost, across)) / num, memory[home])
    return read_traffic(table, order, memory, crossing)


def _asked(table: Touches, order: Order) -> tuple[FloatArray, FloatArray]:
    """Bytes of rows that each step requests, float64[num_steps], and by L2 partition, float64[num_steps, num_sides]."""
    by_side = np.stack([
        np.bincount(table.step, weights=table.num_bytes * of_side, minlength=order.num_steps) for of_side in table.by_side
    ], axis=1).astype(np.float64)  # fmt: skip
    return by_side.sum(axis=1), by_side


def _touched_share(asked: FloatArray) -> FloatArray:
    """Share of a table's rows among random row requests of ``asked`` times the table's bytes."""
    return np.asarray(1.0 - exp_of(-asked))
