"""The links of GPCs into L2, and the turns in which slices and links serve who shares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpusim.errors import ConfigError
from gpusim.machine.floorplan import SMS_PER_TPC, Floorplan
from gpusim.machine.numeric import sum_in_order
from gpusim.machine.timing import Pipe, SharedPipe


class Link:
    """A GPC's way in, which slices serve it, and how many of its SMs are live."""

    __slots__ = (
        "bulk_share", "bytes_per_cycle", "is_narrow", "num_gpcs", "num_live", "num_lone_live", "pipe", "share", "slices",
        "whole_share_bytes_per_cycle",
    )

    def __init__(
        self, bytes_per_cycle: float, whole_share_bytes_per_cycle: float, slices: SharedPipe, num_gpcs: int = 1
    ) -> None:
        """``num_gpcs``: like ones that are one here, whose ways in carry ``bytes_per_cycle`` each."""
        self.bytes_per_cycle = bytes_per_cycle * num_gpcs
        self.num_gpcs = num_gpcs
        self.pipe = Pipe(units_per_cycle=self.bytes_per_cycle)
        self.slices = slices
        """Those of its side."""
        self.share = 1.0
        """What threads of one of its SMs get of them while they are short, where the mean of their SMs gets 1."""
        self.bulk_share = 1.0
        """The same of bulk copies, of which lone pairs have no turn of their own."""
        self.num_lone_live = 0
        """Of its live SMs those in lone pairs, which the slices serve in a turn of their own."""
        self.whole_share_bytes_per_cycle = whole_share_bytes_per_cycle
        """What the slices serve its SMs of while all SMs are live: that they were measured with."""
        self.num_live = 0
        self.is_narrow = False
        """Whether it carries less than slices and ports would give its live SMs."""

    @property
    def num_turns(self) -> int:
        """Turns that its SMs have among those of other GPCs: one, and one for its lone pairs."""
        return ((self.num_live > self.num_lone_live) + (self.num_lone_live > 0)) * self.num_gpcs


def by_turns(total: float, turns: Sequence[int], most: Sequence[float]) -> list[float]:
    """What each gets of ``total`` who has so many ``turns`` and takes ``most`` at most; what one leaves others share.

    >>> by_turns(90.0, [1, 1, 2], [50.0, 50.0, 30.0])
    [30.0, 30.0, 30.0]
    >>> by_turns(100.0, [1, 1], [10.0, 20.0])
    [10.0, 20.0]
    """
    gets = [0.0] * len(turns)
    wanting = list(range(len(turns)))
    while wanting:
        turn = total / sum(turns[idx] for idx in wanting)
        full = [idx for idx in wanting if most[idx] <= turn * turns[idx]]
        for idx in full or wanting:
            gets[idx] = most[idx] if full else turn * turns[idx]
        total -= sum_in_order(gets[idx] for idx in full)
        wanting = [idx for idx in wanting if idx not in full] if full else []
    return gets


def side_shares(side_of_sm: Sequence[int], lead_fraction: float) -> dict[int, float]:
    """What each side's slices deliver of all: in proportion to its SMs, and of two the first so much more than its part.

    >>> side_shares([0, 0, 1, 1], 0.1), side_shares([0, 0], 0.1)
    ({0: 0.55, 1: 0.45}, {0: 1.0})
    >>> {side: round(share, 2) for side, share in side_shares([0, 0, 0, 1], 0.1).items()}  # no more than all
    {0: 0.83, 1: 0.17}

    Raises:
        ConfigError: a lead that leaves the other side nothing, or sides of which one cannot lead.
    """
    nums = {side: side_of_sm.count(side) for side in sorted(set(side_of_sm))}
    leads = dict.fromkeys(nums, 0.0)
    if len(nums) > 2 and lead_fraction:
        raise ConfigError(f"l2.side_lead_fraction is {lead_fraction:g} for {len(nums)} sides; wants 0 with more than two")
    if len(nums) == 2:
        first, second = nums
        if lead_fraction * nums[first] >= nums[second]:
            raise ConfigError(
                f"l2.side_lead_fraction is {lead_fraction:g}, which leaves {nums[second]} SMs of a side nothing beside "
                f"{nums[first]} of the other; wants less than {nums[second] / nums[first]:.3g}"
            )
        leads = {first: lead_fraction, second: -lead_fraction * (nums[first] / nums[second])}
    return {side: num / len(side_of_sm) * (1.0 + leads[side]) for side, num in nums.items()}


def parts_of_gpcs(gpc_of_sm: Sequence[int], num_parts: int) -> list[tuple[int, int]]:
    """(GPC, part of it) of each SM: its TPCs are dealt out to its parts, in order.

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


def are_gpcs_one(floorplan: Floorplan, alike: Mapping[int, int]) -> bool:
    """Whether SMs stand for those of other GPCs, too; ``alike``: which are simulated, and for how many each stands.

    >>> plan = Floorplan({"2": 2}, gpc_sides=(0, 0))
    >>> are_gpcs_one(plan, {0: 2, 2: 2}), are_gpcs_one(plan, {0: 4})
    (False, True)
    """
    num = Counter[int]()
    for sm_idx, num_alike in alike.items():
        num[floorplan.gpc_of_sm[sm_idx]] += num_alike
    return any(num_sms > floorplan.gpc_of_sm.count(gpc_idx) for gpc_idx, num_sms in num.items())


def like_gpcs(floorplan: Floorplan) -> list[int]:
    """For each SM its GPC or, of GPCs of one side that have as many SMs and lone ones, the first.

    >>> like_gpcs(Floorplan({"2": 3, "4": 1}, gpc_sides=(0, 1, 0, 0)))
    [0, 0, 1, 1, 0, 0, 3, 3, 3, 3]
    """
    gpcs, sides, lone = floorplan.gpc_of_sm, floorplan.side_of_sm, set(floorplan.lone)
    kinds: dict[tuple[int, int, int], int] = {}
    first = []
    for gpc_idx in range(len(floorplan.members)):
        sms = [sm_idx for sm_idx, of_sm in enumerate(gpcs) if of_sm == gpc_idx]
        first.append(kinds.setdefault((sides[sms[0]], len(sms), len(lone.intersection(sms))), gpc_idx))
    return [first[gpc_idx] for gpc_idx in gpcs]


def like_parts(
    parts: Sequence[tuple[int, int]], gpc_of_sm: Sequence[int]
) -> tuple[list[tuple[int, int]], dict[tuple[int, int], float]]:
    """``parts`` by their number of SMs, and how many each of these new ones is; ``gpc_of_sm`` says which GPCs are one.

    >>> like_parts([(0, 0), (0, 0), (0, 1), (0, 1), (0, 2)], [0, 0, 0, 0, 0])
    ([(0, 2), (0, 2), (0, 2), (0, 2), (0, 1)], {(0, 2): 2.0, (0, 1): 1.0})
    >>> like_parts([(0, 0), (0, 0), (1, 0), (1, 0)], [0, 0, 0, 0])
    ([(0, 2), (0, 2), (0, 2), (0, 2)], {(0, 2): 2.0})
    """
    num_sms = {part: parts.count(part) for part in dict.fromkeys(parts)}
    first = {part[0]: gpc_idx for part, gpc_idx in zip(parts, gpc_of_sm, strict=True)}
    widths: dict[tuple[int, int], float] = {}
    for (gpc_idx, _), num in num_sms.items():
        like = first[gpc_idx], num
        widths[like] = widths.get(like, 0.0) + 1.0
    return [(first[part[0]], num_sms[part]) for part in parts], widths
