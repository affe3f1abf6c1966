"""Profiles are read as Nsight Compute writes them, on any page, with any units and separators, or refused in a sentence."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import ConfigError
from gpusim.evidence.nsight.launches import short_name
from gpusim.evidence.nsight.profiles import parse_csv, read_profile
from gpusim.evidence.nsight.units import SCALES, SECONDS, decimal_sign, parse_decimal, unit_scale

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


def test_three_digits_behind_one_sign_are_thousands_where_all_numbers_have_them() -> None:
    text = HEAD + '"0","k","9.0","1.024"\n'
    (launch,), remarks = parse_csv(text)
    assert launch.metrics["a__b.sum"] == 1024.0 and "taken for a sign of thousands; give --decimal point" in remarks[-1]
    for decimal, number in (("comma", 1024.0), ("point", 1.024)):
        (launch,), remarks = parse_csv(text, decimal=decimal)  # type: ignore[arg-type]  # both are signs
        assert launch.metrics["a__b.sum"] == number and not any("--decimal" in said for said in remarks)
    (launch,), _ = parse_csv(HEAD.replace("\n", ',"c__d.sum"\n') + '"0","k","9.0","1.024","70000"\n')
    assert launch.metrics["a__b.sum"] == 1.024, "a longer number without a sign has no thousands, and so none has"
    (launch,), _ = parse_csv(HEAD + '"0","k","9.0","1,024"\n')
    assert launch.metrics["a__b.sum"] == 1024.0
    with pytest.raises(ConfigError, match=r"cannot both have thousands.*give --decimal"):
        parse_csv(HEAD + '"0","k","9.0","1,024"\n"1","k","9.0","1.024"\n')


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
        ('"240,586"', '"24 0 58"', "sm__cycles_elapsed.max: '24 0 58' is no number"),
        ('"240,586"', '"1 2"', "'1 2' is no number"),
        ('"240,586"', '"2\'4"', "is no number with a decimal point"),
        ('"240,586"', '"24 0586"', "'24 0586' is no number"),
        ('"240,586"', '"1e400"', "sm__cycles_elapsed.max: '1e400' is too large"),
        ('"240,586"', f'"{"9" * 400}"', "is too large for a number"),
        ('"240,586"', '"240.586"', "sm__cycles_elapsed.max is 240.586, wants an integer"),
        ('"0","4711"', '"","4711"', "a line of 'copy_b16_i1' has no ID"),
        ('"0","4711"', '"x","4711"', "a line of 'copy_b16_i1' has the ID 'x'"),
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
    for nothing in ("nan", "n/a", "!", "(!) n/a", "(!) nan", "-nan", "no data", "-"):
        (launch,), remarks = parse_csv(_copy('"240,586"', f'"{nothing}"'))
        assert "sm__cycles_elapsed.max" not in launch.metrics
        assert any(f"sm__cycles_elapsed.max is {nothing!r}: could not be collected" in said for said in remarks)
    for infinite in ("inf", "-inf", "(!) inf", "Infinity"):
        with pytest.raises(ConfigError, match=r"sm__cycles_elapsed\.max: .* is no number"):
            parse_csv(_copy('"240,586"', f'"{infinite}"'))


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
        (HEAD.replace("a__b.sum", READ) + '"0","k","9.0","1,23,4.5"\n', READ),
        ('"Process ID","Kernel Name","Invocations","Metric Name","Average"\n"1","k","2","a","3"\n', "--print-summary"),
        ('"Process ID","Kernel Name","a__b.sum"\n"1","k","2"\n', "with IDs"),
        ('"ID","Kernel Name","Metric Name","Metric Unit"\n"0","k","a__b.sum",""\n', "without the column Metric Value"),
        ('"ID","Kernel Name","Metric Name","Metric Value"\n"0","k","a__b.sum","3"\n', "without the column Metric Unit"),
        ('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"","k","a__b.sum","","1"\n', "has no ID"),
        ('"ID","ID","Kernel Name","a__b.sum"\n"0","0","k","2"\n', "a column ID twice"),
        ("Time (%),Total Time (ns),Instances,Avg (ns),Name\n100.0,1,1,1.0,k\n", "table of Nsight Systems"),
        ("Start (ns),Duration (ns),CorrId,GrdX,Name\n1,1,1,1,k\n", "table of Nsight Systems"),
        ('"Kernel Name","k"\n"#","Address","Source","Instructions Executed"\n"0","7f","MOV","3"\n', "is a source page"),
        ('"ID","Kernel Name","Address","Source"\n"0","k","7f","MOV"\n', "is a source page"),
        ("  k (1, 1, 1)x(32, 1, 1), Context 1\n    Section: Launch Statistics\n", "without --csv"),
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


@pytest.mark.parametrize("suffix", [".nsys-rep", ".qdrep", ".sqlite"])
def test_a_report_of_another_profiler_is_named(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ConfigError, match="is a report of Nsight Systems"):
        read_profile(tmp_path / f"a{suffix}")


def test_a_metric_that_no_prediction_needs_never_refuses_a_profile() -> None:
    odd = {
        "derived__lts_bytes.sum.per_second": ("byte", "7"), "a__b_bytes.sum": ("parsec", "7"),
        "c__d.avg.pct_of_peak_sustained_elapsed": ("cycle", "7"), "e__sectors.sum": ("", "1 2"),
        "f__inst_executed.sum": ("inst", "1.5"),
    }  # fmt: skip
    header, units = (",".join(f'"{each}"' for each in (*first, CYCLES, *rest)) for first, rest in
                     ((("ID", "Kernel Name"), odd), (("", ""), (unit for unit, _ in odd.values()))))
    units = units.replace(CYCLES, "cycle")
    values = ",".join(f'"{each}"' for each in ("0", "k", "70000", *(value for _, value in odd.values())))
    (launch,), remarks = parse_csv(f"{header}\n{units}\n{values}\n")
    assert dict(launch.metrics) == {CYCLES: 70000.0}
    assert remarks == (f"left out, as their units or numbers cannot be read: {', '.join(list(odd)[:3])} and 2 more",)


def test_many_numbers_that_could_not_be_collected_are_one_line() -> None:
    lines = "".join(f'"{idx}","k","n/a"\n' for idx in range(40))
    _, remarks = parse_csv(f'"ID","Kernel Name","{READ}"\n"","","byte"\n{lines}')
    assert len(remarks) == 4 and remarks[-1] == "37 more numbers could not be collected and are not compared"


# ---------------------------------------------------------------------------------------------- what is lost


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "profile.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_profile_that_lost_launches_says_so(tmp_path: Path) -> None:
    lines = text_of("transposes_raw.csv").splitlines(keepends=True)
    rows = [place for place, line in enumerate(lines) if line.startswith('"') and line[1].isdigit()]
    for gone, name in zip(rows, ("transpose_padded", "transpose_none", "copy_b16_i1"), strict=True):
        found = read_profile(written(tmp_path, "".join(line for place, line in enumerate(lines) if place != gone)))
        assert found.lost == (name,) and len(found.launches) == 2
        assert any(f"profiled 3 launches, the table has 2: {name} is lost" in said for said in found.remarks)
    found = read_profile(written(tmp_path, "".join(lines)))
    assert found.lost == () and not any("lost" in said for said in found.remarks)


def test_a_gap_among_the_ids_is_told_of(tmp_path: Path) -> None:
    text = HEAD + "".join(f'"{idx}","k","9.0","1"\n' for idx in (2, 3, 6))
    assert "go from 2 to 6, and 2 of them are missing" in read_profile(written(tmp_path, text)).remarks[-1]
    text = HEAD + "".join(f'"{idx}","k","9.0","1"\n' for idx in (2, 3, 4))
    assert [said.split(":")[0] for said in read_profile(written(tmp_path, text)).remarks] == ["no line of units"]


DAMAGE = ("", '"', "0", "nan", "-1", "1e999", "9" * 5000, "1 2", "\0", "\u0661", "(1, 2", "launch", "==PROF==", ",", "%")


@pytest.mark.parametrize("name", ["transposes_raw.csv", "transpose_details.csv", "by_pointers_details.csv", "copy_raw.csv"])
def test_a_damaged_profile_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    """250 copies of each file, in each of which a field, a line or a column's name is damaged."""
    draw, text = Random(name), text_of(name)
    lines = text.splitlines(keepends=True)
    header = next(place for place, line in enumerate(lines) if '"Kernel Name"' in line)
    refusals = []
    for _ in range(250):
        changed = list(lines)
        place = draw.choice([header, draw.randrange(header, len(lines))])
        fields = changed[place].rstrip("\n").split('","')
        for _ in range(draw.randint(1, 2)):
            fields[draw.randrange(len(fields))] = draw.choice((*DAMAGE, draw.choice(fields)))
        changed[place] = draw.choice(('","'.join(fields) + "\n", "", lines[draw.randrange(len(lines))]))
        try:
            read_profile(written(tmp_path, "".join(changed)))
        except ConfigError as error:
            refusals.append(str(error))
    assert len(refusals) > 20
    assert not [said for said in refusals if "\n" in said or len(said) > 500]


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
        "derived__x_bytes.sum.per_second": (7.0, "byte"),
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
    assert found.remarks == (
        "launch 0, dram__bytes_read.sum is 'nan': could not be collected, not compared",
        "left out, as its unit or number cannot be read: derived__x_bytes.sum.per_second",
    )
    assert "dram__bytes_read.sum" not in launch.metrics
    raw = read_profile(DATA / "transposes_raw.csv").launches[0]
    assert (launch.kernel, launch.capability, launch.grid, launch.block) == (
        raw.kernel, raw.capability, raw.grid, raw.block,
    )  # fmt: skip
    assert [launch.metrics[name] for name in (CYCLES, DURATION)] == pytest.approx([275875.0, 142816.0])
    metrics[DURATION] = (142.816, "byte")
    with pytest.raises(ConfigError, match=r"a\.ncu-rep: launch 0, gpu__time_duration\.sum: its unit is 'byte'"):
        read_profile(path)
