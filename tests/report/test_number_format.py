from __future__ import annotations

import pytest

from gpusim.machine.config import gpu_names, load_gpu
from gpusim.report.number_format import duration, percent, unit_of


@pytest.mark.parametrize("exponent", range(-9, 2))
def test_no_duration_is_shown_as_zero(exponent: int) -> None:
    assert float(duration(3.0 * 10.0**exponent).split()[0]) > 0.0


def test_a_small_share_is_not_shown_as_none() -> None:
    assert percent(0.0004) == "<0.1 %"
    assert percent(0.0005) == "0.1 %"
    assert percent(0.0) == "0.0 %"


@pytest.mark.parametrize("name", gpu_names())
def test_every_parameter_that_is_no_count_has_a_unit(name: str) -> None:
    dimensionless = (
        "num_", "max_", "compute_capability", "_lanes", "_depth", "_slope", "loop_fetch_rate_by_tpc", "allocation_unit",
        "device.gpcs", "singleton_tpc_sms", "gpc_l2_partition", "coalesce_scope", "coalesce_max_requests", "order", "_cv",
    )
    for parameter in load_gpu(name).parameters():
        if not unit_of(parameter):
            assert any(word in parameter for word in dimensionless), parameter
