"""L2 hits of tiles that gather random rows of a table, from the bytes touched since each row's last use."""

from __future__ import annotations

import numpy as np

from gpusim.machine.exact_array_math import along, exp_of
from gpusim.machine.memory.l2_capacity import L2Partitions
from gpusim.traffic.panels import FloatArray, Order, PanelTraffic, Touches, distinct, read_traffic

MOST_EDGES = 400
"""Points of a launch at which shares are computed; they are interpolated linearly in between."""


def table_added_bytes(table: Touches, order: Order) -> FloatArray:
    """Distinct bytes of a table that each step touches in each L2 partition, float64[num_steps, num_partitions]."""
    size, asked, by_partition = float(table.footprint.table_bytes), *_asked(table, order)
    home = size / order.num_partitions * _touched_share(asked / size)
    copies = size * (1.0 - 1.0 / order.num_partitions) * _touched_share(by_partition / size)
    return np.asarray(home[:, None] + copies)


def table_traffic(table: Touches, order: Order, l2: L2Partitions, others: FloatArray, *, is_warm: bool) -> PanelTraffic:
    """Traffic of a tensor of which each tile reads random rows.

    A row was last requested more than y bytes of row requests ago with probability e^(-y / table). Since then two kinds of
    bytes have been touched: the distinct rows within those y bytes, and other tensors' bytes.

    Args:
        table: rows of the tensor.
        order: wave and L2 partition of each tile.
        l2: capacity of the L2 partitions.
        others: bytes that other tensors touched before each step and at the end, float64[num_steps + 1, num_partitions].
        is_warm: whether an earlier launch did the same.

    >>> import numpy as np
    >>> from gpusim.traffic.panels import FootprintRow
    >>> tiles = np.arange(1000)
    >>> row = FootprintRow(tensor="t", is_write=False, panel_of_tile=tiles, bytes_of_tile=tiles * 0 + 10, table_bytes=1000)
    >>> order = Order.of(tiles // 10, None, num_partitions=1)
    >>> l2 = L2Partitions(num=1, partition_bytes=2000.0, spread=0.0)
    >>> found = table_traffic(Touches.of(row, order), order, l2, np.zeros((101, 1)), is_warm=False)
    >>> bool(abs(found.read_miss_bytes - 1000 * (1 - np.exp(-10))) < 10)  # of 10,000 bytes: the table, once
    True
    """
    num, size = order.num_partitions, float(table.footprint.table_bytes)
    asked, by_partition = _asked(table, order)
    edges = distinct(np.linspace(0, order.num_waves, min(order.num_waves, MOST_EDGES) + 1).astype(np.int64))
    columns = np.column_stack((asked, by_partition))
    so_far = np.concatenate((np.zeros((1, num + 1)), np.cumsum(columns, axis=0)))[edges] / size
    since = so_far[:, None, :] - so_far[None, :, :]  # (to, from, of all and of each partition), in tables
    untouched = exp_of(-np.maximum(since, 0.0))
    first, steps = np.tri(len(edges), len(edges) - 1, -1), np.arange(order.num_waves)
    home_lost, copy_lost = np.zeros((num, order.num_waves)), np.zeros((num, order.num_waves))
    for partition in range(num):
        between = others[edges, partition][:, None] - others[edges, partition][None, :]
        between = between + size * (1.0 - untouched[:, :, 0]) / num
        between = between + size * (1.0 - 1.0 / num) * (1.0 - untouched[:, :, partition + 1])
        lost = l2.lost_share(np.maximum(between, 0.0))
        never = l2.lost_share(between[-1, 0]) if is_warm else 1.0
        for which, found in ((0, home_lost), (partition + 1, copy_lost)):
            last = untouched[:, 1:, which] - untouched[:, :-1, which]
            share = (last * first * lost[:, :-1]).sum(axis=1) + untouched[:, 0, which] * never
            of_step = columns[:, which] / size
            again = np.where(of_step > 0.0, _touched_share(of_step) / np.where(of_step > 0.0, of_step, 1.0), 1.0)
            found[partition] = along(steps, edges, share) * again
    memory, crossing = np.zeros((num, len(table.step))), np.full((num, len(table.step)), 1.0 - 1.0 / num)
    for partition in range(num):
        here, step = table.by_partition[partition], table.step
        across = copy_lost[partition, step]
        crossing[partition] = np.where(here, crossing[partition] * across, crossing[partition])
        for home in range(num):
            lost = home_lost[home, step]
            memory[home] = np.where(here, (lost if home == partition else np.minimum(lost, across)) / num, memory[home])
    return read_traffic(table, order, memory, crossing)


def _asked(table: Touches, order: Order) -> tuple[FloatArray, FloatArray]:
    """Bytes of rows that each step requests, float64[num_steps], and by L2 partition, float64[num_steps, num_partitions]."""
    bytes_of_rows = table.num_bytes * table.by_partition
    of_steps = [np.bincount(table.step, weights=each, minlength=order.num_waves) for each in bytes_of_rows]
    by_partition = np.stack(of_steps, axis=1).astype(np.float64)
    return by_partition.sum(axis=1), by_partition


def _touched_share(asked: FloatArray) -> FloatArray:
    """Share of a table's rows among random row requests of ``asked`` times the table's bytes."""
    return np.asarray(1.0 - exp_of(-asked))
