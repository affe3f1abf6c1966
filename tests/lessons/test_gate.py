"""The table of a check, and where profiles lie."""

from __future__ import annotations

import pytest

from gpusim.errors import ConfigError
from gpusim.lessons.gate import check_table, example_profile


def test_a_profile_beside_its_model_says_what_passes() -> None:
    table = check_table(example_profile(), "elementwise", op="copy", elements=67108864)
    assert table.attrs["verdict"].startswith("PASS")
    cycles = table.loc[("copy_b16_i1", "sm__cycles_elapsed.max")]
    assert cycles["passes"] and abs(cycles["difference"]) <= cycles["tolerance"]
    tight = check_table(example_profile(), "elementwise", tolerance={"cycles": "0%"}, op="copy", elements=67108864)
    assert tight.attrs["verdict"].startswith("FAIL")


def test_a_profile_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"no profile is called 'mine.csv', there are: .*copy_raw.csv"):
        example_profile("mine.csv")
