"""Shares of L2 partitions in the slices' bandwidth, and parts of GPCs that share store bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.errors import ConfigError
from gpusim.machine.floorplan import SMS_PER_TPC


def partition_shares(partition_of_sm: Sequence[int], lead_fraction: float) -> dict[int, float]:
    """Share of each partition in the slices' bandwidth: in proportion to its SMs, with a lead for the first of two.

    >>> partition_shares([0, 0, 1, 1], 0.1), partition_shares([0, 0], 0.1)
    ({0: 0.55, 1: 0.45}, {0: 1.0})
    >>> {partition: round(share, 2) for partition, share in partition_shares([0, 0, 0, 1], 0.1).items()}  # the sum stays 1
    {0: 0.83, 1: 0.17}

    Raises:
        ConfigError: the lead leaves the second partition no bandwidth, or there are more than two partitions.
    """
    nums = {partition: partition_of_sm.count(partition) for partition in sorted(set(partition_of_sm))}
    leads = dict.fromkeys(nums, 0.0)
    if len(nums) > 2 and lead_fraction:
        raise ConfigError(f"l2.partition0_lead_fraction is {lead_fraction:g} for {len(nums)} partitions; wants 0 above two")
    if len(nums) == 2:
        first, second = nums
        if lead_fraction * nums[first] >= nums[second]:
            raise ConfigError(
                f"l2.partition0_lead_fraction is {lead_fraction:g}, which leaves {nums[second]} SMs of a partition no "
                f"bandwidth next to {nums[first]} of the other; wants less than {nums[second] / nums[first]:.3g}"
            )
        leads = {first: lead_fraction, second: -lead_fraction * (nums[first] / nums[second])}
    return {partition: num / len(partition_of_sm) * (1.0 + leads[partition]) for partition, num in nums.items()}


def parts_of_gpcs(gpc_of_sm: Sequence[int], num_parts: int) -> list[tuple[int, int]]:
    """(GPC, part of the GPC) of each SM: TPCs are assigned to parts round-robin.

    >>> parts_of_gpcs([0] * 8 + [1] * 2, 3)
    [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 2), (0, 0), (0, 0), (1, 0), (1, 0)]
    """
    seen: dict[int, int] = {}
    found = []
    for gpc_idx in gpc_of_sm:
        rank = seen.get(gpc_idx, 0)
        seen[gpc_idx] = rank + 1
        found.append((gpc_idx, rank // SMS_PER_TPC % num_parts))
    return found
