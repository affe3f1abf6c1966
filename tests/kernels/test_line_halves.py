"""line_halves: each byte is read once, right sums pass; the twin's halves take longer by as much as a request each costs."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import load_case

from .conftest import Sass

CASE = load_case("line_halves")
case = sys.modules[CASE.launch.__module__]
ALL = CASE.configs("reads", 1)
NAMES = sorted({config["kernel"] for config in ALL})


@pytest.mark.parametrize("name", NAMES)
def test_each_byte_of_a_share_is_read_once_by_as_many_parts_of_lines_as_the_name_says(name: str) -> None:
    width, way = case.parts(case.Config(name, 0))
    places = case.places(case.Config(name, 0))
    assert sorted(places.reshape(-1).tolist()) == list(range(0, case.SHARE_BYTES, width))
    lines = places // 128
    asked = {(line, warp, num) for (warp, num, _), line in np.ndenumerate(lines)}
    assert len(asked) == case.SHARE_BYTES // 128 * case.PARTS[way]


def test_kernels_load_what_their_names_say(sass: Sass) -> None:
    kernels = sass("line_halves", "sm_90a")
    for name in NAMES:
        width, _ = case.parts(case.Config(name, 0))
        assert kernels[name].num_spills == 0
        assert [item.name for item in kernels[name].instructions].count("LDG") == case.UNDER_WAY // width


def test_halves_of_the_twin_take_what_each_request_of_them_costs() -> None:
    gpu = load_gpu("h100_sxm")
    free = replace(gpu, hbm=replace(gpu.hbm, partial_line_request_bytes=0.0))

    def ns(name: str, of: object) -> float:
        config = {"kernel": name, "array_bytes": str(case.SIZES[0] // 8)}  # less than is measured takes seconds less
        return CASE.predict(config, of)["gpu__time_duration.sum"]

    for name, request_bytes in (("b2_near", 64), ("b4_near", 128), ("b8_near", 256)):
        more = ns(name, gpu) / ns(name, free) - 1.0
        assert more == pytest.approx(gpu.hbm.partial_line_request_bytes / request_bytes, rel=0.2), name
    assert ns("b4_whole", gpu) == ns("b4_whole", free)
