"""What notebooks call: answers held against predictions, measured rows, and refusals."""

from __future__ import annotations

import pandas as pd
import pytest

from gpusim import GemmParams, load_gpu
from gpusim.errors import ConfigError, KernelError, LayoutError
from gpusim.layout import Swizzle
from gpusim.lessons import compare, error_table, judged, measured
from gpusim.lessons.curves import plot_errors
from gpusim.lessons.peaks import product_intensity, ridge_flops_per_byte
from gpusim.lessons.pipelines import bytes_in_flight, knee, latency_ns, stage_ladder
from gpusim.lessons.smem import access_cycles, bank_access, bank_study, counted
from gpusim.lessons.swizzles import chunk_positions, swizzle_bits
from gpusim.lessons.tiles import loaded_bytes, warp_sectors


def test_a_prediction_that_is_not_made_is_no_error() -> None:
    for nothing in (..., None):
        found = compare(nothing, 4, "wavefronts")
        assert not found.is_right
        assert found.error_pct is None
        assert "No prediction yet" in str(found)
        assert "4 wavefronts" in str(found)


def test_a_number_is_right_within_a_tenth_and_not_beyond() -> None:
    assert compare(110, 100).is_right
    assert compare(90, 100).is_right
    assert not compare(110.1, 100).is_right
    assert not compare(89.9, 100).is_right
    assert compare(89.9, 100).error_pct == pytest.approx(-10.1)
    assert compare(0, 0).is_right
    assert not compare(1, 0).is_right


def test_a_word_is_right_in_any_case_and_other_words_are_not() -> None:
    assert compare(" HBM ", "hbm").is_right
    assert not compare("L2", "hbm").is_right


def test_a_prediction_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="a number of wavefronts"):
        compare("many", 4, "wavefronts")
    with pytest.raises(ConfigError, match="one of the words"):
        compare(4, "hbm")


def test_what_jupyter_shows_is_escaped() -> None:
    assert "&lt;b&gt;" in compare("<b>", "hbm")._repr_html_()


def test_tables_want_the_same_labels() -> None:
    with pytest.raises(ConfigError, match="wants the same"):
        error_table({"a": 1.0}, {"b": 1.0}, "cycles")
    assert list(error_table([1.0, 2.0], [2.0, 2.0], "us")["error (%)"]) == [-50.0, 0.0]


def test_measured_rows_are_those_asked_for() -> None:
    rows = measured("transpose", kernel=("transpose_naive", "transpose_padded"), m=1024)
    assert len(rows) == 2
    assert rows["sm__cycles_elapsed.max"].min() > 1000
    assert rows.attrs["units"]["gpu__time_duration.sum"] == "ns"
    for wrong in ({"m": 3}, {"width": 1}):
        with pytest.raises(ConfigError, match="has no"):
            measured("transpose", **wrong)
    with pytest.raises(ConfigError, match="is not there"):
        measured("no_such_kernel")
    with pytest.raises(ConfigError, match="no rows"):
        measured("transpose", gpu="no_such_gpu")


def test_rows_that_parameters_were_fitted_to_say_so() -> None:
    chosen = {"kernel": "stream_ld_b32", "num_partitions": 4, "warps_per_partition": 4}
    rates = judged("shared_rate", "wavefronts_per_cycle", **chosen)
    assert set(rates["fitted"]) == {True, False}
    assert not judged("transpose", "sm__cycles_elapsed.max", m=512)["fitted"].any()


def test_what_the_simulator_does_not_answer_is_refused() -> None:
    with pytest.raises(ConfigError, match="no number called"):
        judged("transpose", "cycles", m=512)
    with pytest.raises(ConfigError, match="no answer"):
        judged("tma_writes", "cycles", num_boxes=1)


def test_masks_are_no_numbers() -> None:
    assert set(measured("shared_access", kernel="ld_shared_b8")["active"].map(type)) == {str}
    assert counted("ld_shared_b8")["active lanes"].between(1, 32).all()


def test_a_swizzle_is_given_once_and_not_to_lanes() -> None:
    study = bank_study("(64,64):(64,1)", "bf16", "ldmatrix_x4", swizzle="128B")
    assert study.census.is_free
    with pytest.raises(LayoutError):
        bank_access("(64,64):(64,1)", "bf16", "ldmatrix_x4", threads="Sw<1,0,1> o 0 o 32:1")


def test_a_wavefront_takes_a_cycle_of_a_busy_sm() -> None:
    assert access_cycles("ld_b32")["error (%)"].abs().max() < 1.0


# ---------------------------------------------------------------------- studies


def test_positions_of_chunks_are_refused_where_chunks_are_torn() -> None:
    assert sorted(chunk_positions("fp32", "3,2,3").loc[6]) == list(range(8))
    for wrong in ("1,2,3", "1,6,1"):  # halves of a chunk; rows
        with pytest.raises(LayoutError, match="tears chunks"):
            chunk_positions("bf16", wrong)


def test_the_bits_of_a_swizzle_are_those_of_the_swizzle() -> None:
    for offset in (0, 7, 64, 344, 511):
        found = swizzle_bits("3,3,3", "bf16", offset)
        assert found["number"].iloc[-1] == Swizzle(3, 3, 3)(offset)
        assert int(found["bits"].iloc[-1].replace(" ", ""), 2) == Swizzle(3, 3, 3)(offset)
    for swizzle, offset in (("3,3,4", 0), ("3,3,3", 512), ("3,3,3", -1)):
        with pytest.raises(LayoutError, match="wants S equal to B"):
            swizzle_bits(swizzle, "bf16", offset)


def test_sectors_are_those_of_the_lanes() -> None:
    matrix = "(64,1024):(1024,1)"
    assert [warp_sectors(matrix, "fp32", lanes) for lanes in ("32:0@1", "32:1@1", "32:1@0")] == [1, 4, 32]
    assert warp_sectors(matrix, "bf16", "32:1@1") == 2
    assert warp_sectors(matrix, "fp32", "32:4@1", vector=4) == 16
    for lanes in ("16:1@0", "32:1", "Sw<1,0,1> o 0 o 32:1"):
        with pytest.raises(LayoutError, match="32 lanes"):
            warp_sectors(matrix, "fp32", lanes)


def test_tiles_load_what_the_formula_says_also_where_they_do_not_divide() -> None:
    params = GemmParams(m=100, n=100, k=10)
    assert loaded_bytes(params, (100, 100)) == 2 * 10 * 200
    assert loaded_bytes(params, (64, 100)) == 2 * 2 * 10 * 164


def test_a_ladder_wants_its_first_rung() -> None:
    with pytest.raises(ConfigError, match="wants 1 among them"):
        stage_ladder(GemmParams(m=256, n=256, k=256), (2, 3), load_gpu("h200_sxm"))


def test_the_knee_is_the_fewest_stages_within_two_percent() -> None:
    cycles = pd.Series({1: 300.0, 2: 150.0, 3: 102.0, 4: 100.0, 5: 100.0})
    assert knee(cycles) == 3
    assert knee(cycles, within_pct=1.9) == 4
    assert knee(cycles, within_pct=50.0) == 2


def test_a_ring_keeps_littles_law() -> None:
    flight = bytes_in_flight(2**31)
    assert (flight["Little's law (GB/s)"] >= flight["measured (GB/s)"] - 1e-6).all()
    assert 400 < latency_ns(flight) < 700


def test_a_product_of_nothing_has_no_intensity() -> None:
    with pytest.raises(KernelError, match="use 1 or more"):
        product_intensity(0, 1, 1)
    with pytest.raises(KernelError, match="is unknown"):
        ridge_flops_per_byte(load_gpu("h200_sxm"), "fp3")


def test_a_table_without_numbers_of_either_kind_is_not_drawn() -> None:
    table = error_table([1.0, 2.0], [2.0, 2.0], "us", index="n")
    assert "2 points" in plot_errors(table, x="n", y="time_us").alt
    for wrong in (table[["error (%)"]], table.rename_axis("m")):
        with pytest.raises(ConfigError, match="wants n, and predicted or measured"):
            plot_errors(wrong, x="n", y="time_us")


def test_a_roofline_is_told_where_it_is_asked_for() -> None:
    rows = judged("elementwise", "sm__cycles_elapsed.max", kernel="copy_b16_i4", elements=2**18, has_roofline=True)
    assert rows["roofline (cycles)"].iloc[0] < rows["measured (cycles)"].iloc[0]
    assert rows["roofline error (%)"].iloc[0] < 0
