"""Partitions of L2: what share of the slices their SMs have."""

from __future__ import annotations

import pytest

from gpusim.errors import ConfigError
from gpusim.machine.memory.gpc_ports import partition_shares


@pytest.mark.parametrize(("partitions", "lead"), [([0] * 12 + [1], 0.1), ([0, 1], 1.0), ([0, 1, 2], 0.01)])
def test_a_lead_that_leaves_the_other_partition_nothing_is_refused(partitions: list[int], lead: float) -> None:
    with pytest.raises(ConfigError, match="partition0_lead_fraction"):
        partition_shares(partitions, lead)


@pytest.mark.parametrize("partitions", [[0] * 12 + [1], [0, 1], [1, 1, 0]])
def test_partitions_have_all_of_the_slices_whoever_leads(partitions: list[int]) -> None:
    shares = partition_shares(partitions, 0.08)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert min(shares.values()) > 0.0
