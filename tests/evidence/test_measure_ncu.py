"""Nsight Compute's raw CSV, with its messages, units and thousands separators, becomes numbers or a sentence."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from gpusim.errors import ConfigError
from gpusim.evidence.nsight.ncu_command import available, complaint, ncu_command, parse_metric_names, parse_profiles

TEXT = (Path(__file__).parent / "ncu_raw.csv").read_text(encoding="utf-8")
COUNTED = "sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum"


def test_launches_come_in_order_with_their_numbers() -> None:
    profiles = parse_profiles(TEXT, [COUNTED, "gpu__time_duration.sum"])
    assert [profile.kernel for profile in profiles] == ["ld_shared_b128", "ld_shared_b128", "atom_shared_add_b32"]
    assert [profile.metrics[COUNTED] for profile in profiles] == [4.0, 1024.0, 32.0]
    assert profiles[1].metrics["gpu__time_duration.sum"] == 12345678.25


def test_a_metric_that_was_not_collected_is_left_out() -> None:
    name = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    assert [name in profile.metrics for profile in parse_profiles(TEXT, [name, "no__such.sum"])] == [True, False, True]



@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
         "administrators only"),
        ("==ERROR== Failed to find metric lts__nothing.sum", "lts__nothing.sum"),
        ("==WARNING== No kernels were profiled.", "no kernel was launched"),
        ("==ERROR== The application returned an error code (11).", "error code"),
        ("", "it said nothing"),
    ],
)  # fmt: skip
def test_no_table_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="no table came back") as error:
        parse_profiles(text, [COUNTED])
    assert says in str(error.value)


def test_a_row_that_is_cut_off_or_lost_is_refused() -> None:
    whole = TEXT.splitlines()
    with pytest.raises(ConfigError, match="fields"):
        parse_profiles("\n".join([*whole[:-1], '"2","4711","python3.12"']), [COUNTED])
    with pytest.raises(ConfigError, match="launch 1 came as 0"):
        parse_profiles("\n".join(whole[:-3] + whole[-2:]), [COUNTED])


def test_text_in_the_place_of_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no number"):
        parse_profiles(TEXT.replace('"1,024"', '"1.024,0"'), [COUNTED])


def test_a_table_of_another_page_is_refused() -> None:
    with pytest.raises(ConfigError, match="raw page"):
        parse_profiles('"ID","Process ID","Metric Name","Metric Value"\n"0","1","a.sum","3"\n', [COUNTED])


def test_no_complaint_is_none() -> None:
    assert complaint("==PROF== Connected to process 7") is None


def test_the_listing_of_metrics_gives_base_names_with_digits_in_their_units() -> None:
    listing = "Device NVIDIA H200 (GH100)\n----\nl1tex__data_bank_reads   Counter  # of\nsm__cycles_elapsed  Counter\n"
    assert parse_metric_names(listing) == {"l1tex__data_bank_reads", "sm__cycles_elapsed"}


def test_what_a_gpu_lacks_is_told_and_not_asked_for() -> None:
    known = {"l1tex__data_bank_reads"}
    assert available(["l1tex__data_bank_reads.sum", "l1tex__gone.sum"], known) == (
        ["l1tex__data_bank_reads.sum"], ["l1tex__gone.sum"],
    )  # fmt: skip
    assert available(["l1tex__gone.sum"], set()) == (["l1tex__gone.sum"], [])


def test_the_command_leaves_clocks_alone_and_asks_for_everything_at_once() -> None:
    command = ncu_command("ncu", ["a.sum", "b.sum"], "log.csv", ["python", "-m", "gpusim"])
    told = dict(pairwise(command))
    assert told["--clock-control"] == "none" and told["--metrics"] == "a.sum,b.sum" and told["--log-file"] == "log.csv"
    assert {"--csv", "--page", "raw"} <= set(command)
