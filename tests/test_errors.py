"""A hint names what was meant, and nothing that was not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import MOST_LISTED, nearest
from gpusim.workload.smem.smem_ops import SMEM_OPS

GPUS = ["a100_sxm_40gb", "a100_sxm_80gb", "h100_pcie", "h100_sxm", "h200_sxm"]
WORDS = st.text("abcdeXYZ_019", min_size=1, max_size=10)


@pytest.mark.parametrize(
    ("typed", "known", "said"),
    [
        ("H100_SXM", GPUS, "did you mean 'h100_sxm'?"),
        ("a100_sxm", GPUS, "did you mean 'a100_sxm_40gb' or 'a100_sxm_80gb'?"),
        ("a100_smx_40gb", GPUS, "did you mean 'a100_sxm_40gb'?"),
        ("h300", GPUS, "did you mean 'h100_pcie', 'h100_sxm' or 'h200_sxm'?"),
        ("v100", GPUS, "did you mean 'a100_sxm_40gb', 'a100_sxm_80gb' or 'h100_pcie'?"),
        ("rtx4090", GPUS, f"known: {', '.join(GPUS)}"),
        ("256B", ["none", "32B", "64B", "128B"], "known: 128B, 32B, 64B, none"),
        ("128", ["none", "32B", "64B", "128B"], "did you mean '128B'?"),
        ("atom_shared_add", SMEM_OPS, "did you mean 'atom_shared_add_b32', 'atom_shared_add_b64' or 'atom_shared_add_f32'?"),
        ("zzz", SMEM_OPS, f"none of the {len(SMEM_OPS)} known names is near"),
        ("--gpu", ["--plot", "--json", "--layout"], "known: --json, --layout, --plot"),
        ("--swizzle", ["--slice", "--coalesce"], "known: --coalesce, --slice"),
        ("--stagse", ["--stages", "--swizzle"], "did you mean '--stages'?"),
        ("x", [], "none is known"),
    ],
)
def test_a_hint_says_what_was_meant(typed: str, known: list[str], said: str) -> None:
    assert nearest(typed, known) == said


@given(known=st.lists(WORDS, min_size=1, max_size=8, unique_by=str.lower), data=st.data())
def test_a_name_in_another_case_is_found_alone_and_its_beginning_among_three(known: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(known))
    assert nearest(name.swapcase(), known) == f"did you mean {name!r}?"
    beginning = name[: data.draw(st.integers(1, len(name)))]
    meant = [other for other in sorted(known) if other.lower().startswith(beginning.lower())]
    same = [other for other in meant if other.lower() == beginning.lower()]
    hint = nearest(beginning, known)
    assert [repr(other) in hint for other in (same or meant)[:3]] == [True] * min(3, len(same or meant))
    assert hint.count("'") == 2 * min(3, len(same or meant))


@given(known=st.lists(WORDS, unique=True, max_size=2 * MOST_LISTED))
def test_what_resembles_nothing_lists_all_if_they_are_few(known: list[str]) -> None:
    hint = nearest("qqqqqqqqqqqqqqqqqqqq", known)
    assert not hint.startswith("did you")
    if 0 < len(known) <= MOST_LISTED:
        assert hint == f"known: {', '.join(sorted(known))}"
