"""Which SMs share a TPC, a GPC and a side of L2, by their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

SMS_PER_TPC = 2
"""Source: NVIDIA A100 and H100 whitepapers."""


class Floorplan:
    """SMs by GPC.

    Models: SMs are numbered in pairs (TPCs), a pair of each GPC in turn for as long as it has any, GPCs with more SMs last;
    some pairs of the first GPC, if any, take part in no cluster beyond a pair and have the last numbers; a GPC is on one
    side of L2.
    Ignores: that GPUs of one name differ (which GPC has lone pairs, and how many; sides); parts of a GPC (CPCs), which the
    crossbar deals out itself for stores.
    Source: kernels/memory_bandwidth (``topology``), launch_order (``start``), line_sharing (``distance``: lone pairs merge
    with the first GPC; sectors cross L2 for two SMs of different sides), h200_sxm, 2026-11-20.
    """

    __slots__ = ("gpc_of_sm", "lone", "members", "num_sms", "side_of_sm", "tpc_of_sm")

    def __init__(self, gpcs: Mapping[str, int], *, lone_sms: int = 0, gpc_sides: Sequence[int] = ()) -> None:
        """``gpcs``: how many GPCs there are of each number of SMs; ``lone_sms``: those of the first in lone pairs.

        ``gpc_sides``: for each GPC its side of L2; by turns if not given.
        """
        sizes = [size for size, count in sorted((int(key), count) for key, count in gpcs.items()) for _ in range(count)]
        self.num_sms = sum(sizes)
        filled: list[list[int]] = [[] for _ in sizes]
        wanted = [size - (0 if idx else lone_sms) for idx, size in enumerate(sizes)]
        next_sm = 0
        while next_sm < self.num_sms - lone_sms:
            for mine, size in zip(filled, wanted, strict=True):
                num = min(SMS_PER_TPC, size - len(mine))
                mine.extend(range(next_sm, next_sm + num))
                next_sm += num
        self.members = tuple(map(tuple, filled))
        """SMs of each GPC that run clusters, in order of number."""
        self.lone = tuple(range(next_sm, self.num_sms))
        """SMs of the first GPC in lone pairs."""
        self.gpc_of_sm, self.tpc_of_sm = [0] * self.num_sms, [0] * self.num_sms
        """For each SM its GPC, and the number of its TPC in its GPC, lone ones last."""
        for gpc_idx, sms in enumerate(self.members):
            for rank, sm_idx in enumerate((*sms, *(() if gpc_idx else self.lone))):
                self.gpc_of_sm[sm_idx], self.tpc_of_sm[sm_idx] = gpc_idx, rank // SMS_PER_TPC
        self.side_of_sm = [gpc_sides[gpc_idx] if gpc_sides else gpc_idx % 2 for gpc_idx in self.gpc_of_sm]
        """For each SM its side of L2."""

    def in_order(self) -> list[int]:
        """All SMs, lone ones first and then GPC by GPC.

        >>> Floorplan({"4": 1, "6": 1}, lone_sms=2).in_order()
        [8, 9, 0, 1, 2, 3, 4, 5, 6, 7]
        """
        return [*self.lone, *(sm_idx for mine in self.members for sm_idx in mine)]

    def some(self, num_sms: int) -> list[int]:
        """``num_sms`` SMs, spread: lone ones, then one SM of each TPC, of each GPC in turn, then the other; in order.

        >>> Floorplan({"4": 1, "6": 1}, lone_sms=2).some(5)
        [8, 9, 0, 2, 4]
        """
        taken = set(self.lone[:num_sms])
        for first in range(SMS_PER_TPC):
            columns = [mine[first::SMS_PER_TPC] for mine in self.members]
            for row in range(max(map(len, columns))):
                for column in columns:
                    if row < len(column) and len(taken) < num_sms:
                        taken.add(column[row])
        return [sm_idx for sm_idx in self.in_order() if sm_idx in taken]

    def clusters(self, size: int) -> list[tuple[int, ...]]:
        """SMs of all clusters of ``size`` that fit at once: lone pairs, then one of each GPC in turn.

        >>> Floorplan({"4": 1, "6": 1}, lone_sms=2).clusters(2)
        [(8, 9), (0, 1), (2, 3), (4, 5), (6, 7)]
        """
        lone = _runs(self.lone, size) if size <= SMS_PER_TPC else []
        rows = [_runs(mine, size) for mine in self.members]
        turns = range(max(map(len, rows)))
        return [*lone, *(row[turn] for turn in turns for row in rows if turn < len(row))]

    def singles(self) -> list[int]:
        """SMs of clusters of one CTA, which are dealt out as clusters are: lone pairs and GPCs in turn, an SM each.

        Source: kernels/sharers_apart (own, bands, wave: H200, 2026-11-23).

        >>> Floorplan({"4": 1, "6": 1}, lone_sms=2).singles()
        [8, 0, 2, 9, 1, 3, 4, 5, 6, 7]
        """
        lone = [self.lone[rank::SMS_PER_TPC] for rank in range(SMS_PER_TPC)]
        turns = range(max(map(len, self.members)))
        rows = [[mine[turn] for mine in self.members if turn < len(mine)] for turn in turns]
        return [sm_idx for turn in turns for sm_idx in (*(lone[turn] if turn < SMS_PER_TPC else ()), *rows[turn])]

    def num_clusters(self, size: int) -> int:
        """Clusters of ``size`` that fit at once, one CTA an SM.

        >>> from gpusim.machine.config import load_gpu
        >>> [load_gpu("h200_sxm").floorplan.num_clusters(size) for size in (1, 2, 4, 8)]
        [132, 66, 30, 15]
        """
        return self.num_sms if size == 1 else len(self.clusters(size))

    def cluster_groups(self) -> list[int]:
        """For each SM a number that all have that may run one cluster: of its GPC, or below 0 of its lone pair."""
        groups = list(self.gpc_of_sm)
        for sm_idx in self.lone:
            groups[sm_idx] = -1 - sm_idx // SMS_PER_TPC
        return groups

    def groups(self, scope: str) -> list[int]:
        """For each SM the number of its group: itself (``sm``), its ``tpc`` or its ``gpc``."""
        if scope == "gpc":
            return list(self.gpc_of_sm)
        return [sm_idx // SMS_PER_TPC if scope == "tpc" else sm_idx for sm_idx in range(self.num_sms)]


def _runs(sms: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """SMs in whole runs of ``size``."""
    return [tuple(sms[start : start + size]) for start in range(0, len(sms) - size + 1, size)]


@lru_cache(maxsize=64)
def floorplan_of(gpcs: tuple[tuple[str, int], ...], lone_sms: int, gpc_sides: tuple[int, ...]) -> Floorplan:
    """A floorplan that is made once: shared, so nobody may change it."""
    return Floorplan(dict(gpcs), lone_sms=lone_sms, gpc_sides=gpc_sides)
