"""Device properties, and SM numbers that share a TPC, a GPC and an L2 partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gpusim.units import WARP_SIZE

SMS_PER_TPC = 2
"""SMs of a TPC. Source: NVIDIA A100 and H100 whitepapers."""

Feature = Literal["tma", "mbarrier", "wgmma", "cluster", "setmaxnreg", "cp_async", "mma_sync", "stmatrix", "fp8"]
"""Features of a GPU; equal to ``gpusim.workload.launch.Feature``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """Limits and layout of the GPU, from ``cudaGetDeviceProperties`` and the data sheet."""

    num_sms: int
    """Number of SMs (vendor)."""
    compute_capability: float
    """CUDA compute capability, major.minor (vendor)."""
    max_threads_per_sm: int
    """Most resident threads of an SM (vendor)."""
    max_ctas_per_sm: int
    """Most resident CTAs of an SM (vendor)."""
    smem_per_sm_bytes: int
    """Shared memory of an SM for all its CTAs, reserved bytes included (vendor)."""
    smem_reserved_per_cta_bytes: int
    """Shared memory that CUDA reserves in each CTA (vendor)."""
    smem_allocation_bytes: int
    """Granularity of a CTA's shared-memory allocation (vendor)."""
    features: tuple[Feature, ...]
    """Instructions and types that kernels may use, by architecture in the PTX ISA; no number, so it has no source
    (vendor)."""
    max_cluster_size: int
    """Largest portable cluster, in CTAs; 1 where there are no clusters (vendor)."""
    peak_tflops: Mapping[str, float]
    """Dense peak throughput in the data sheet, by type class (vendor)."""
    gpcs: Mapping[str, int]
    """Number of GPCs by SMs per GPC (memory_bandwidth)."""
    singleton_tpc_sms: int
    """SMs of the first GPC in TPCs that run no cluster larger than two CTAs (memory_bandwidth)."""
    gpc_l2_partition: tuple[int, ...]
    """L2 partition of each GPC, GPCs with fewer SMs first (line_sharing)."""
    smem_carveout_bytes: tuple[int, ...] = ()
    """Sizes that the shared memory of an SM can have, in ascending order; L1 has the rest. Empty: any size (vendor)."""

    @property
    def max_warps_per_sm(self) -> int:
        """Most resident warps of an SM."""
        return self.max_threads_per_sm // WARP_SIZE

    @property
    def smem_per_cta_bytes(self) -> int:
        """Most shared memory of one CTA, by opt-in: all but the reserved bytes."""
        return self.smem_per_sm_bytes - self.smem_reserved_per_cta_bytes


class Floorplan:
    """SMs by GPC.

    Models:

    * SM numbers go in pairs (TPCs), one pair of each GPC in turn while it has any, GPCs with more SMs last;
    * some pairs of the first GPC, if any, run no cluster larger than two CTAs and have the last numbers (lone SMs);
    * a GPC belongs to one L2 partition.

    Ignores:

    * differences between GPUs of one name: which GPC has lone pairs, how many, and the partition of each GPC;
    * parts of a GPC (CPCs), which the crossbar assigns itself for stores.

    Source: kernels/memory_bandwidth (``topology``), launch_order (``start``), line_sharing (``distance``), h200_sxm,
    2026-11-20. There, lone pairs coalesce with the first GPC; sectors cross L2 for two SMs of different partitions.
    """

    __slots__ = ("gpc_of_sm", "lone", "members", "num_sms", "partition_of_sm", "tpc_of_sm")

    def __init__(self, gpcs: Mapping[str, int], *, singleton_tpc_sms: int = 0, gpc_l2_partition: Sequence[int] = ()) -> None:
        """Floorplan of GPCs.

        Args:
            gpcs: number of GPCs by SMs per GPC.
            singleton_tpc_sms: SMs of the first GPC in lone pairs.
            gpc_l2_partition: L2 partition of each GPC; 0 and 1 in turn if not given.
        """
        sizes = [size for size, count in sorted((int(key), count) for key, count in gpcs.items()) for _ in range(count)]
        self.num_sms = sum(sizes)
        filled: list[list[int]] = [[] for _ in sizes]
        wanted = [size - (0 if idx else singleton_tpc_sms) for idx, size in enumerate(sizes)]
        next_sm = 0
        while next_sm < self.num_sms - singleton_tpc_sms:
            for mine, size in zip(filled, wanted, strict=True):
                num = min(SMS_PER_TPC, size - len(mine))
                mine.extend(range(next_sm, next_sm + num))
                next_sm += num
        self.members = tuple(map(tuple, filled))
        """SMs of each GPC that run clusters, in order of number."""
        self.lone = tuple(range(next_sm, self.num_sms))
        """SMs of the first GPC in lone pairs."""
        self.gpc_of_sm, self.tpc_of_sm = [0] * self.num_sms, [0] * self.num_sms
        """GPC of each SM, and the number of its TPC in the GPC, lone ones last."""
        for gpc_idx, sms in enumerate(self.members):
            for rank, sm_idx in enumerate((*sms, *(() if gpc_idx else self.lone))):
                self.gpc_of_sm[sm_idx], self.tpc_of_sm[sm_idx] = gpc_idx, rank // SMS_PER_TPC
        self.partition_of_sm = [gpc_l2_partition[gpc_idx] if gpc_l2_partition else gpc_idx % 2 for gpc_idx in self.gpc_of_sm]
        """L2 partition of each SM."""

    def in_order(self) -> list[int]:
        """All SMs, lone ones first and then GPC by GPC.

        >>> Floorplan({"4": 1, "6": 1}, singleton_tpc_sms=2).in_order()
        [8, 9, 0, 1, 2, 3, 4, 5, 6, 7]
        """
        return [*self.lone, *(sm_idx for mine in self.members for sm_idx in mine)]

    def some(self, num_sms: int) -> list[int]:
        """SMs of a small grid: lone ones, then the first SM of each TPC, GPCs in turn, then the second; in order.

        >>> Floorplan({"4": 1, "6": 1}, singleton_tpc_sms=2).some(5)
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
        """SMs of all clusters of ``size`` that fit at once: lone pairs, then one cluster of each GPC in turn.

        >>> Floorplan({"4": 1, "6": 1}, singleton_tpc_sms=2).clusters(2)
        [(8, 9), (0, 1), (2, 3), (4, 5), (6, 7)]
        """
        lone = _runs(self.lone, size) if size <= SMS_PER_TPC else []
        rows = [_runs(mine, size) for mine in self.members]
        turns = range(max(map(len, rows)))
        return [*lone, *(row[turn] for turn in turns for row in rows if turn < len(row))]

    def singles(self) -> list[int]:
        """SMs of clusters of one CTA: one SM of the lone pairs and of each GPC in turn.

        Source: kernels/sharers_apart (own, bands, wave: H200, 2026-11-23).

        >>> Floorplan({"4": 1, "6": 1}, singleton_tpc_sms=2).singles()
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
        """Cluster group of each SM: SMs of one group may run one cluster. Lone pairs have negative numbers."""
        groups = list(self.gpc_of_sm)
        for sm_idx in self.lone:
            groups[sm_idx] = -1 - sm_idx // SMS_PER_TPC
        return groups

    def groups(self, scope: str) -> list[int]:
        """Group of each SM at ``scope``: the SM itself (``sm``), its ``tpc`` or its ``gpc``."""
        if scope == "gpc":
            return list(self.gpc_of_sm)
        return [sm_idx // SMS_PER_TPC if scope == "tpc" else sm_idx for sm_idx in range(self.num_sms)]


def _runs(sms: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """SMs in complete runs of ``size``."""
    return [tuple(sms[start : start + size]) for start in range(0, len(sms) - size + 1, size)]


@lru_cache(maxsize=64)
def floorplan_of(gpcs: tuple[tuple[str, int], ...], singleton_tpc_sms: int, gpc_l2_partition: tuple[int, ...]) -> Floorplan:
    """Cached floorplan; callers share it and must not change it."""
    return Floorplan(dict(gpcs), singleton_tpc_sms=singleton_tpc_sms, gpc_l2_partition=gpc_l2_partition)
