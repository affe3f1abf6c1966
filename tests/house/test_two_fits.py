"""The page of what two Hoppers' rows give is what the script writes, and descriptions say what their rows give."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from gpusim.evidence.validate.write_description import news
from gpusim.machine.config import load_gpu

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("two_fits", ROOT / "scripts" / "two_fits.py")
assert SPEC is not None and SPEC.loader is not None
two_fits = importlib.util.module_from_spec(SPEC)
sys.modules["two_fits"] = two_fits
SPEC.loader.exec_module(two_fits)

FIRST, SECOND = load_gpu(two_fits.FIRST), load_gpu(two_fits.SECOND)
PAIRS, _ = two_fits.fits(FIRST, SECOND)


def test_the_page_is_what_the_script_writes() -> None:
    written = (ROOT / "docs" / "hopper_fits.md").read_text(encoding="utf-8")
    assert "\n".join(two_fits.page(FIRST, SECOND)) + "\n" == written


def test_the_h100_is_described_as_its_rows_have_it() -> None:
    """Otherwise ``gpusim calibrate --write`` has not been run since."""
    assert [line.parameter for line in news([pair.first for pair in PAIRS])] == []


def test_the_h200_is_described_as_its_rows_have_it() -> None:
    assert [pair.name for pair in PAIRS if abs(pair.second.change_pct) > 0.2] == []


def test_a_reason_is_given_for_what_differs_alone() -> None:
    apart = {pair.name for pair in PAIRS if abs(pair.difference_pct) > two_fits.SAME_PCT}
    assert set(two_fits.REASONS) <= apart


def test_slices_give_alike_where_their_number_is_the_reason() -> None:
    """80 and 96 slices: a rate a slice is within 6 % on both."""
    num = FIRST.l2.num_slices / SECOND.l2.num_slices
    ratios = {pair.name: pair.first.after / pair.second.after / num for pair in PAIRS if pair.name in two_fits.OF_SLICES}
    assert len(ratios) == 3 and all(abs(ratio - 1.0) < 0.06 for ratio in ratios.values())
