"""Profiles are read as Nsight Compute writes them, on any page, with any units and separators, or refused in a sentence."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import ConfigError
from gpusim.evidence.nsight.profiles import (
    SCALES,
    SECONDS,
    decimal_sign,
    parse_csv,
    parse_decimal,
    read_profile,
    short_name,
    unit_scale,
)

DATA = Path(__file__).parent / "data"
CYCLES, DURATION = "sm__cycles_elapsed.max", "gpu__time_duration.sum"
READ = "dram__bytes_read.sum"
HEAD = '"ID","Kernel Name","CC","a__b.sum"\n'


def text_of(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------- pages


def test_a_raw_page_has_a_launch_a_line() -> None:
    profile = read_profile(DATA / "transposes_raw.csv")
    assert [launch.kernel for launch in profile.launches] == ["transpose_padded", "transpose_none", "copy_b16_i1"]
    first = profile.launches[0]
    assert (first.idx, first.capability, first.grid, first.block) == ("0", "9.0", (256, 256, 1), (32, 8, 1))
    assert (first.metrics[CYCLES], first.metrics[DURATION], first.metrics[READ]) == (275875.0, 142816.0, 268446976.0)


def test_a_details_page_has_the_same_rounded_and_by_its_labels() -> None:
    (details,) = read_profile(DATA / "transpose_details.csv").launches
    raw = read_profile(DATA / "transposes_raw.csv").launches[0]
    named = {"gpc__cycles_elapsed.max": CYCLES}
    wanted = {"gpc__cycles_elapsed.max", DURATION, READ, "lts__t_sector_hit_rate.pct", "launch__registers_per_thread"}
    assert wanted <= set(details.metrics)
    for name, value in details.metrics.items():
        assert value == pytest.approx(raw.metrics[named.get(name, name)], rel=2e-3), name
    assert (details.grid, details.block, details.kernel) == (raw.grid, raw.block, raw.kernel)


def test_both_pages_that_the_profiler_itself_wrote_say_the_same() -> None:
    raw, details = (read_profile(DATA / f"by_pointers_{page}.csv").launches for page in ("raw", "details"))
    assert [launch.metrics["gpc__cycles_elapsed.max"] for launch in raw] == [196956.0, 196794.0]
    for one, other in zip(raw, details, strict=True):
        assert (one.kernel, one.grid, one.block) == ("by_pointers", (1, 1, 1), (256, 1, 1))
        assert (other.kernel, other.grid, other.block) == (one.kernel, one.grid, one.block)
        common = set(one.metrics) & set(other.metrics)
        assert {DURATION, "lts__t_sector_hit_rate.pct", "launch__registers_per_thread"} <= common
        for name in common:
            assert other.metrics[name] == pytest.approx(one.metrics[name], rel=5e-3, abs=0.01), name


@pytest.mark.parametrize("share", [0.3, 0.6, 0.999])
def test_a_page_of_the_profiler_that_is_cut_off_is_refused(share: float) -> None:
    text = text_of("by_pointers_details.csv")
    with pytest.raises(ConfigError, match="cut off"):
        parse_csv(text[: int(share * len(text))])


def test_passes_are_told_of() -> None:
    assert read_profile(DATA / "transpose_details.csv").remarks == ()
    assert "up to 6 passes" in read_profile(DATA / "copy_raw.csv").remarks[0]


def test_what_the_program_printed_and_a_byte_order_mark_are_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_text("\ufeffhello, world\n" + text_of("copy_raw.csv") + "==PROF== Report\n", encoding="utf-8")
    assert read_profile(path).launches == read_profile(DATA / "copy_raw.csv").launches


def test_what_a_program_prints_between_the_lines_is_left_out_and_a_field_of_two_lines_is_one() -> None:
    text = HEAD + 'done, 3 of 4\n"0","k","9.0","1"\n==PROF== a message\nhello\n"1","two\nlines","9.0","2"\n'
    found, _ = parse_csv(text)
    assert [launch.metrics["a__b.sum"] for launch in found] == [1.0, 2.0]
    assert [launch.kernel for launch in found] == ["k", "twolines"]


def test_a_metric_without_a_number_is_left_out() -> None:
    (launch,), _ = parse_csv('"ID","Kernel Name","a__b.sum","c__d.sum","e__f.policy"\n"0","k","n/a","7","PreferL1"\n')
    assert dict(launch.metrics) == {"c__d.sum": 7.0}


def test_names_lose_arguments_and_keep_templates() -> None:
    assert short_name("void f<(int)4, g(int)>(float *)") == "void f<(int)4, g(int)>"


# ---------------------------------------------------------------------------------------------- numbers and units


def printed(value: float, digits: int, decimal: str, thousands: str) -> str:
    text = f"{value:,.{digits}f}"
    return text.replace(",", "T").replace(".", "," if decimal == "comma" else ".").replace("T", thousands)


@given(
    value=st.integers(0, 10**13), digits=st.integers(0, 6), decimal=st.sampled_from(["point", "comma"]),
    space=st.sampled_from(["", " ", "\u00a0", "\u202f", "'", "own"]),
)  # fmt: skip
def test_a_printed_number_is_read_back(value: int, digits: int, decimal: Any, space: str) -> None:
    thousands = {"point": ",", "comma": "."}[decimal] if space == "own" else space
    number = value / 10**digits
    text = printed(number, digits, decimal, thousands)
    assert parse_decimal(text, decimal) == pytest.approx(number, rel=1e-12, abs=0.5 * 10.0**-digits)
    assert decimal_sign([text]) in (decimal, None)


@given(values=st.lists(st.floats(0, 1e9), min_size=1), decimal=st.sampled_from(["point", "comma"]))
def test_a_file_with_two_decimals_somewhere_tells_its_locale(values: list[float], decimal: Any) -> None:
    thousands = {"point": ",", "comma": "."}[decimal]
    assert decimal_sign(printed(value, 2, decimal, thousands) for value in values) == decimal


@given(scale=st.sampled_from(sorted(SCALES)), time=st.sampled_from(sorted(SECONDS)))
def test_a_rate_has_the_scale_of_its_bytes_over_that_of_its_time(scale: str, time: str) -> None:
    second = "second" if time in ("", "n", "u", "m") else "s"
    assert unit_scale(f"{scale}byte/{time}{second}") == pytest.approx(
        unit_scale(f"{scale}byte") * 1e9 / unit_scale(f"{time}{second}"), rel=1e-12
    )


@pytest.mark.parametrize(
    ("unit", "scale"),
    [("ns", 1.0), ("nsecond", 1.0), ("us", 1e3), ("usecond", 1e3), ("ms", 1e6), ("msecond", 1e6), ("s", 1e9),
     ("second", 1e9), ("byte", 1.0), ("Kbyte", 1e3), ("Mbyte", 1e6), ("Gbyte", 1e9), ("Mbyte/second", 1e6),
     ("Gbyte/s", 1e9), ("hz", 1.0), ("Ghz", 1e9), ("Mhz", 1e6), ("cycle/nsecond", 1e9), ("cycle/usecond", 1e6),
     ("cycle", 1.0), ("inst", 1.0), ("%", 1.0), ("sector/request", 1.0), ("Kbyte/block", 1e3), ("", 1.0)],
)  # fmt: skip
def test_units_become_bytes_nanoseconds_and_hertz(unit: str, scale: float) -> None:
    assert unit_scale(unit) == pytest.approx(scale, rel=1e-12)


def test_a_german_file_is_the_same_file() -> None:
    german = text_of("transposes_raw.csv").replace(".sum", "@sum")
    lines = german.splitlines(keepends=True)
    body = [line.translate(str.maketrans(",.", ".,")).replace('"."', '","') for line in lines[6:]]
    names = "".join(lines[:6]).replace("@sum", ".sum")
    swapped = names + "".join(body).replace('"9,0"', '"9.0"').replace("(32. 8. 1)", "(32, 8, 1)")
    found = parse_csv(swapped)[0]
    assert [dict(launch.metrics) for launch in found] == [
        dict(launch.metrics) for launch in read_profile(DATA / "transposes_raw.csv").launches
    ]


def test_a_number_that_could_be_read_both_ways_is_told_of_and_decided_by_the_caller() -> None:
    text = HEAD + '"0","k","9.0","1.024"\n'
    (launch,), remarks = parse_csv(text)
    assert launch.metrics["a__b.sum"] == 1.024 and "--decimal comma" in remarks[-1]
    (launch,), remarks = parse_csv(text, decimal="comma")
    assert launch.metrics["a__b.sum"] == 1024.0 and not any("--decimal" in said for said in remarks)


def _copy(old: str, new: str) -> str:
    text = text_of("copy_raw.csv")
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"ns"', '"parsec"', "gpu__time_duration.sum: its unit is 'parsec', wants one of time"),
        ('"ns"', '""', "gpu__time_duration.sum: its unit is '', wants one of time"),
        ('"cycle"', '"ns"', "its unit is 'ns', wants one of cycle"),
        ('"byte"', '"sector"', "dram__bytes_read.sum: its unit is 'sector', wants one of byte"),
        ('"byte"', '"KiB"', "its unit is 'KiB', wants one of byte"),
        ('"240,586"', '"lots"', "sm__cycles_elapsed.max: 'lots' is no number"),
        ('"240,586"', '"-240,586"', "sm__cycles_elapsed.max is -240586, wants 0 or more"),
        ('"(65536, 1, 1)"', '"foo"', "its Grid Size is 'foo', wants for example"),
        ('"sm__cycles_active.avg"', '"sm__cycles_elapsed.max"', "has a column sm__cycles_elapsed.max twice"),
        ('","', '";"', "semicolons"),
    ],
)
def test_units_and_numbers_that_cannot_be_are_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_csv(_copy(old, new))
    assert says in str(error.value)


def test_two_tables_in_a_file_are_refused() -> None:
    text = text_of("copy_raw.csv")
    with pytest.raises(ConfigError, match="two tables"):
        parse_csv(text + text)


def test_a_number_with_its_instances_is_that_number_and_what_could_not_be_collected_is_told_of() -> None:
    (launch,), _ = parse_csv(_copy('"240,586"', '"240,586 (1; 2; 3)"'))
    assert launch.metrics["sm__cycles_elapsed.max"] == 240586.0
    for nothing in ("nan", "n/a", "!", "(!) n/a", "(!) nan", "inf", "-nan", "no data", "-"):
        (launch,), remarks = parse_csv(_copy('"240,586"', f'"{nothing}"'))
        assert "sm__cycles_elapsed.max" not in launch.metrics
        assert any(f"sm__cycles_elapsed.max is {nothing!r}: could not be collected" in said for said in remarks)


def test_a_page_without_units_is_told_of() -> None:
    lines = text_of("copy_raw.csv").splitlines(keepends=True)
    (launch,), remarks = parse_csv("".join(line for line in lines if not line.startswith('"","')))
    assert launch.metrics["sm__cycles_elapsed.max"] == 240586.0
    assert any("no line of units" in said for said in remarks)


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no table of Nsight Compute"),
        ("a,b\n1,2\n", "no table of Nsight Compute"),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "administrators only"),
        (HEAD, "holds no launch"),
        (HEAD + '"0","k","9.0"\n', "3 of 4 fields"),
        (HEAD + '"0","k","9.0","12', "cut off"),
        (HEAD + '"0","k","9.0","12"', "no end"),
        (HEAD + '"0","k","9.0","1"\n"0","k","9.0","2"\n', "launch 0 comes twice"),
        (HEAD + '"0","range","9.0","1"\n', "range replay"),
        (HEAD + '"0","k","9.0","1,234.5"\n"1","k","9.0","1.234,5"\n', "one locale"),
        (HEAD + '"0","k","9.0","1,23,4.5"\n', "a__b.sum"),
        ('"Process ID","Kernel Name","Invocations","Metric Name","Average"\n"1","k","2","a","3"\n', "--print-summary"),
        ('"Process ID","Kernel Name","a__b.sum"\n"1","k","2"\n', "with IDs"),
        ('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","k","a__b.sum","","1"\n'
         '"0","k","a__b.sum","","2"\n', "a__b.sum twice"),
    ],
)  # fmt: skip
def test_what_is_no_profile_is_refused_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_csv(text)
    assert says in str(error.value)
    assert str(error.value).count("\n") == 0


@given(kept=st.integers(0, len(text_of("copy_raw.csv").rstrip("\n")) - 1))
def test_a_profile_that_is_cut_off_anywhere_is_refused(kept: int) -> None:
    with pytest.raises(ConfigError):
        parse_csv(text_of("copy_raw.csv")[:kept])


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_profile(path)


# ---------------------------------------------------------------------------------------------- reports


def test_a_report_wants_the_package_of_its_vendor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(ConfigError, match=r"gpusim\[ncu\]"):
        read_profile(tmp_path / "a.ncu-rep")


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    path = tmp_path / "a.ncu-rep"
    with pytest.raises(ConfigError, match="is no file"):
        read_profile(path)
    path.write_bytes(b"no report")
    with pytest.raises(ConfigError, match=r"holds no launch|is no report"):
        read_profile(path)


def test_a_report_gives_what_its_csv_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    metrics = {
        CYCLES: (275875, "cycle"), DURATION: (142.816, "us"), "dram__bytes_read.sum": (math.nan, "byte"),
        "device__attribute_compute_capability_major": (9, ""),
        "device__attribute_compute_capability_minor": (0, ""), "launch__cache_config": ("none", ""),
        **{f"launch__{what}_dim_{axis}": (size, "") for what, shape in (("grid", (256, 256, 1)), ("block", (32, 8, 1)))
           for axis, size in zip("xyz", shape, strict=True)},
    }  # fmt: skip

    def constant(value: Any) -> Callable[..., Any]:
        return lambda *_: value

    def metric(name: str) -> Any:
        return SimpleNamespace(value=constant(metrics[name][0]), unit=constant(metrics[name][1]))

    action = SimpleNamespace(metric_names=constant(list(metrics)), metric_by_name=metric, name=constant("transpose_padded"))
    part = SimpleNamespace(num_actions=constant(1), action_by_idx=constant(action))
    context = SimpleNamespace(num_ranges=constant(1), range_by_idx=constant(part))
    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=constant(context)))
    path = tmp_path / "a.ncu-rep"
    path.touch()
    found = read_profile(path)
    (launch,) = found.launches
    assert found.remarks == ("launch 0, dram__bytes_read.sum is 'nan': could not be collected, not compared",)
    assert "dram__bytes_read.sum" not in launch.metrics
    raw = read_profile(DATA / "transposes_raw.csv").launches[0]
    assert (launch.kernel, launch.capability, launch.grid, launch.block) == (
        raw.kernel, raw.capability, raw.grid, raw.block,
    )  # fmt: skip
    assert [launch.metrics[name] for name in (CYCLES, DURATION)] == pytest.approx([275875.0, 142816.0])
    metrics[DURATION] = (142.816, "byte")
    with pytest.raises(ConfigError, match=r"a\.ncu-rep: launch 0, gpu__time_duration\.sum: its unit is 'byte'"):
        read_profile(path)
