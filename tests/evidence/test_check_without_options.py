"""The gate for kernels without a model's options: an older profile, a launch in Python, a library's names."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim import Launch, load_gpu
from gpusim.cli import main
from gpusim.errors import ConfigError
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.cases.validation_kernel import CYCLES, DURATION
from gpusim.evidence.gate.check import Limits, check_profile
from gpusim.evidence.gate.gpu_refusals import NotComparableError
from gpusim.evidence.gate.launch_file import launch_maker, made_launch
from gpusim.evidence.gate.library_models import library_models, problem_of
from gpusim.evidence.gate.models import Model, model_for, read_models
from gpusim.evidence.gate.predictions import WARPS
from gpusim.evidence.gate.tolerances import AskedLimit, Tolerance, parse_tolerance
from gpusim.evidence.gate.verdicts import FAIL, NOT_COMPARABLE, PASS, Change, Comparison, Report
from gpusim.evidence.nsight.launches import ProfiledLaunch, ProfileFile
from gpusim.evidence.nsight.profiles import read_profile
from gpusim.report.utilization import MEMORY, TENSOR, utilization

DATA = Path(__file__).parent / "data"
COPY, THREE, PADDED, NAIVE = (DATA / f"{name}.csv" for name in ("copy_raw", "transposes_raw", "padded_raw", "naive_raw"))
H200 = load_gpu("h200_sxm")
OF_COPY = Model(kernel="elementwise", options={"op": "copy", "elements": 2**26})


Shape = tuple[int, ...]


def launch_of(kernel: str = "k", *, idx: str = "0", grid: Shape = (), block: Shape = ()) -> ProfiledLaunch:
    return ProfiledLaunch(idx=idx, kernel=kernel, metrics=MappingProxyType({}), grid=grid, block=block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a profile has of a launch."""

    cycles: float | None = None
    ns: float | None = None
    warps: float | None = None
    grid: int = 1
    kernel: str = "k"


def _csv(launches: Sequence[Taken]) -> str:
    """Raw page of launches that all have the same metrics."""
    units = {CYCLES: ("cycles", "cycle"), DURATION: ("ns", "ns"), WARPS: ("warps", "%")}
    names = [name for name, (field, _) in units.items() if launches and getattr(launches[0], field) is not None]
    rows = [["ID", "Kernel Name", "CC", "Grid Size", "Block Size", *names], [*[""] * 5, *(units[name][1] for name in names)]]
    for idx, each in enumerate(launches):
        counted = (str(getattr(each, units[name][0])) for name in names)
        rows.append([str(idx), f"{each.kernel}(int)", "9.0", f"({each.grid}, 1, 1)", "(256, 1, 1)", *counted])
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


def held_against(now: Sequence[Taken], before: Sequence[Taken], *, match: str = "", **worse: float) -> Report:
    """Report of two profiles, without a model."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("now.csv", "before.csv")]
        for path, launches in zip(paths, (now, before), strict=True):
            path.write_text(_csv(launches), encoding="utf-8")
        limits = Limits(worse=worse, match=match)
        return check_profile(paths[0], gpu=None, models=(), baseline=paths[1], limits=limits)


# ---------------------------------------------------------------------------------------------- an older profile alone


def test_two_profiles_are_compared_without_a_model() -> None:
    report = check_profile(NAIVE, gpu=None, models=(), baseline=PADDED)
    (item,) = report.launches
    assert report.status == FAIL and item.model is None and item.result is None and not item.comparisons
    worse = {part.metric for part in item.changes if part.is_worse}
    assert {CYCLES, DURATION, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"} <= worse
    assert any("wavefronts of shared memory grew 13x" in said for said in item.causes)
    assert not any("model" in said for said in item.causes)
    assert "worse than padded_raw.csv, without a model" in report.verdict
    same = check_profile(PADDED, gpu=None, models=(), baseline=PADDED)
    assert same.status == PASS and same.verdict.startswith("PASS: 0 of ")
    lax = dict.fromkeys(("cycles", "time", "wavefronts", "instructions"), 2000.0)
    assert check_profile(NAIVE, gpu=None, models=(), baseline=PADDED, limits=Limits(worse=lax)).status == PASS


def test_launches_of_several_kernels_are_paired_by_name_and_order() -> None:
    report = check_profile(THREE, gpu=None, models=(), baseline=THREE)
    assert report.status == PASS and [item.launch.kernel for item in report.launches] == [
        "transpose_padded", "transpose_none", "copy_b16_i1",
    ]  # fmt: skip
    assert check_profile(COPY, gpu=None, models=(), baseline=PADDED).status == NOT_COMPARABLE, "no kernel in common"


def test_a_metric_without_a_limit_is_no_pass_and_fails_with_one() -> None:
    before, now = ([Taken(warps=share)] for share in (80.0, 10.0))
    assert held_against(now, before).status == NOT_COMPARABLE
    assert "no metric that both profiles have has a limit" in held_against(now, before).verdict
    assert held_against(now, before, occupancy=5.0).status == FAIL, "fewer active warps are worse"
    assert held_against(before, now, occupancy=5.0).status == PASS


@pytest.mark.parametrize(("cycles", "ns", "says"), [
    (1000.0, 800.0, "the SM clock fell from 2,000 to 1,250 MHz: time grew by 60 % by that alone"),
    (1600.0, 800.0, "and the clock did not fall"), (1600.0, None, "the clock is not known"),
])  # fmt: skip
def test_the_clock_is_compared_without_a_gpu(cycles: float, ns: float | None, says: str) -> None:
    before, now = [Taken(cycles=1000.0, ns=500.0)], [Taken(cycles=cycles, ns=ns)]
    (item,) = held_against(now, before).launches
    assert len(item.causes) == 1 and says in item.causes[0]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_launches_of_equal_grids_are_paired_in_any_order(data: st.DataObject) -> None:
    grids = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    shuffled = data.draw(st.permutations(grids))
    before, now = ([Taken(cycles=1000.0 * grid, grid=grid) for grid in each] for each in (grids, shuffled))
    assert all(part.before == part.now for item in held_against(now, before).launches for part in item.changes)


def test_a_launch_of_another_grid_is_compared_with_what_is_left_of_its_name() -> None:
    before = [Taken(cycles=1000.0, grid=1), Taken(cycles=2000.0, grid=2)]
    now = [Taken(cycles=3000.0, grid=3), Taken(cycles=1000.0, grid=1), Taken(cycles=9.0, grid=4)]
    report = held_against(now, before)
    assert [[part.before for part in item.changes] for item in report.launches] == [[2000.0], [1000.0], []]
    assert report.status == FAIL and "has fewer launches of k than this profile" in report.launches[2].remarks[-1]


def test_an_expression_selects_launches_of_two_profiles() -> None:
    before = [Taken(cycles=1000.0), Taken(cycles=1000.0, kernel="other")]
    now = [Taken(cycles=1000.0), Taken(cycles=2000.0, kernel="other"), Taken(cycles=1.0, kernel="new")]
    assert held_against(now, before).status == FAIL and held_against(now, before, match="^k").status == PASS
    with pytest.raises(NotComparableError, match="no launch's name has 'zebra'"):
        held_against(now, before, match="zebra")


def test_profiles_of_two_gpus_are_not_comparable(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(COPY.read_text(encoding="utf-8").replace("NVIDIA H200", "NVIDIA B200"), encoding="utf-8")
    with pytest.raises(NotComparableError, match="ran on NVIDIA B200, those of the profile on NVIDIA H200"):
        check_profile(COPY, gpu=None, models=(), baseline=other)


def test_a_baseline_alone_wants_neither_gpu_nor_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit = tmp_path / "check.xml"
    assert main(["check", str(NAIVE), "--baseline", str(PADDED), "--junit", str(junit), "--json", "-"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["launches"][0]["model"] is None and "without a model" in err
    assert 'classname="no_model.baseline"' in junit.read_text(encoding="utf-8")
    assert main(["check", str(PADDED), "--baseline", str(PADDED)]) == 0
    with pytest.raises(ConfigError, match="wants a kernel model or an older profile"):
        check_profile(COPY, gpu=None, models=())


# ---------------------------------------------------------------------------------------------- a launch in Python

KERNEL = '''
from gpusim import load_gpu
from gpusim.kernel_models.elementwise import ElementwiseParams

def launch(gpu):
    return ElementwiseParams(op="copy", elements=2**26).resolved(gpu).launch(gpu)

def of_nothing():
    return launch(load_gpu("h200_sxm"))

ready = of_nothing()
number = 3

def broken(gpu):
    return 1 / 0

def gone():
    raise SystemExit(0)
'''


def test_a_launch_in_python_is_judged_like_the_model_that_makes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my_kernel.py"
    file.write_text(KERNEL, encoding="utf-8")
    wanted = check_profile(COPY, gpu=H200, models=[OF_COPY]).launches[0]
    for name in ("launch", "of_nothing", "ready"):
        assert main(["check", str(COPY), "--gpu", "h200_sxm", "--launch", f"{file}:{name}", "--json", "-"]) == 0
        (launch,) = json.loads(capsys.readouterr().out)["launches"]
        assert launch["model"] == f"{file}:{name}"
        assert {row["metric"]: row["predicted"] for row in launch["metrics"]} == {
            part.metric: part.predicted for part in wanted.comparisons
        }
        assert all("P90" not in (row["tolerance_from"] or "") for row in launch["metrics"]), "nobody judged that kernel"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("number", "gives a int, wants a Launch"), ("broken", "raised ZeroDivisionError: division by zero"),
        ("gone", "raised SystemExit"),
        ("lunch", "did you mean 'launch'?"), ("", "wants FILE.py:NAME"), ("a.b", "wants FILE.py:NAME"),
    ],
)  # fmt: skip
def test_what_is_no_launch_in_python_costs_a_sentence(tmp_path: Path, name: str, says: str) -> None:
    file = tmp_path / "my_kernel.py"
    file.write_text(KERNEL, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        launch_maker(f"{file}:{name}")(H200)
    assert says in str(error.value)


def test_a_file_that_raises_or_is_missing_costs_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "my_kernel.py"
    with pytest.raises(ConfigError, match="is no file"):
        launch_maker(f"{file}:launch")
    file.write_text("import nothing_of_that_name", encoding="utf-8")
    with pytest.raises(ConfigError, match="raised ModuleNotFoundError"):
        launch_maker(f"{file}:launch")
    assert isinstance(made_launch(OF_COPY.launch(H200), H200), Launch)


# ---------------------------------------------------------------------------------------------- which launch


@pytest.mark.parametrize(
    ("model", "covered"),
    [
        ({"grid": (64,)}, [True, False, True, False]), ({"block": (128, 1, 1)}, [True, True, False, False]),
        ({"grid": (64, 1), "block": (128,)}, [True, False, False, False]),
        ({"launch_ids": ("0", "3")}, [True, False, False, True]),
        ({"match": "k", "grid": (64,)}, [True, False, False, False]), ({"regex": "k"}, [True, True, False, False]),
        ({}, [True] * 4),
    ],
)  # fmt: skip
def test_a_model_selects_by_number_grid_block_and_name(model: dict[str, Any], covered: list[bool]) -> None:
    launches = [
        launch_of("k", idx="0", grid=(64, 1, 1), block=(128, 1, 1)),
        launch_of("k2", idx="1", grid=(8, 8, 1), block=(128, 1, 1)),
        launch_of("other", idx="2", grid=(64, 1, 1), block=(256, 1, 1)), launch_of("other", idx="3"),
    ]  # fmt: skip
    made = replace(OF_COPY, **model)
    assert [made.covers(launch) for launch in launches] == covered
    assert made.is_for_all == (not model)


def test_the_closest_selection_takes_precedence() -> None:
    models = [
        replace(OF_COPY, regex="k"), replace(OF_COPY, match="k"), replace(OF_COPY, regex="k", grid=(64,)),
        replace(OF_COPY, launch_ids=("7",)),
    ]  # fmt: skip
    assert model_for(launch_of("k", idx="7", grid=(64, 1, 1)), models) is models[3]
    assert model_for(launch_of("k", grid=(64, 1, 1)), models) is models[2]
    assert model_for(launch_of("k", grid=(8, 1, 1)), models) is models[1]
    assert model_for(launch_of("kk"), models) is models[0]
    with pytest.raises(ConfigError, match=r"two models stand for it, elementwise \(grid 64\) and elementwise \(grid 64x1\)"):
        model_for(launch_of(grid=(64, 1, 1)), [replace(OF_COPY, grid=(64,)), replace(OF_COPY, grid=(64, 1))])


def test_a_file_selects_launches_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(
        '[[model]]\nkernel = "transpose"\nlaunch = 0\noptions = { m = 8192, n = 8192 }\n'
        '[[model]]\nkernel = "elementwise"\ngrid = [65536]\nblock = [256, 1, 1]\nregex = "copy"\n'
        'options = { op = "copy", elements = 67108864 }\n',
        encoding="utf-8",
    )
    models = read_models(path)
    assert (models[0].launch_ids, models[1].grid, models[1].block) == (("0",), (65536,), (256, 1, 1))
    assert models[1].awaited == "copy, grid 65536, block 256x1x1" and models[0].awaited == "launch 0"
    report = check_profile(THREE, gpu=H200, models=models)
    assert [item.launch.idx for item in report.launches] == ["0", "2"]


@pytest.mark.parametrize(
    "given", ["grid = 0", "grid = [1, 2, 3, 4]", 'launch = "0"', "launch = -1", "block = []", "block = true"]
)
def test_a_selection_that_is_none_is_refused(tmp_path: Path, given: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(f'[[model]]\nkernel = "transpose"\n{given}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"models\.toml: \[\[model\]\] {given.split(maxsplit=1)[0]} is .*, wants"):
        read_models(path)


TRANSPOSES = '''
[[model]]
regex = "transpose_(?P<way>[a-z]+)"
kernel = "transpose"
options = {{ m = "{m}", n = "grid_x * 32", smem = "{{way}}" }}
'''


def test_one_model_predicts_many_shapes_by_its_expressions(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(TRANSPOSES.format(m="(grid_y + 0 * launch) * block_x"), encoding="utf-8")
    (model,) = read_models(path)
    for launch, ways in (
        (launch_of("transpose_padded", grid=(256, 128, 1), block=(32, 8, 1)), "padded"),
        (launch_of("transpose_none", grid=(4, 2), block=(32, 8), idx="7"), "none"),
    ):
        assert model.of(launch).options == {"m": launch.grid[1] * 32, "n": launch.grid[0] * 32, "smem": ways}
    profile = tmp_path / "small.csv"
    lines = [f'"{idx}","transpose_{way}","(32, 8, 1)","({side}, {side}, 1)","9000"'
             for idx, (way, side) in enumerate([("padded", 8), ("none", 8), ("padded", 4)])]
    profile.write_text("\n".join([f'"ID","Kernel Name","Block Size","Grid Size","{CYCLES}"', *lines, ""]), encoding="utf-8")
    report = check_profile(profile, gpu=H200, models=[model], limits=Limits(clock_mhz=1700.0))
    told = [(item.model.options["smem"], item.model.options["m"]) for item in report.launches if item.model]
    assert told == [("padded", 256), ("none", 256), ("padded", 128)] and not report.unmet
    sizes = [part.difference for item in report.launches for part in item.comparisons if part.metric.endswith("_size")]
    assert sizes == [0.0] * 6


@pytest.mark.parametrize(
    ("m", "says"),
    [
        ("grid_x ** 2", "'grid_x ** 2' is no arithmetic, wants integers, names"), ("grid_x / 2", "is no arithmetic"),
        ("abs(grid_x)", "is no arithmetic"), ("grid_x if launch else 2", "is no arithmetic"), ("1.5", "is no arithmetic"),
        ("grid_x.real", "is no arithmetic"), ("grid_x +", "is no arithmetic"), ("[1]", "is no arithmetic"),
        ("1" * 201 + " + 1", "an expression of 205 letters, wants at most 200"), ("True * 2", "is no arithmetic"),
        ("grid_q * 3", "'grid_q' is unknown; did you mean 'grid_x'"), ("grid_x // (launch - launch)", "divides by zero"),
        ("way * 2", "way is 'padded', wants digits"), ("grid_x" + " * 99999999" * 3, "gives more than 2^53"),
        ("grid_x - 999", "--m"),
    ],
)  # fmt: skip
def test_anything_but_arithmetic_is_refused_in_a_sentence(tmp_path: Path, m: str, says: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(TRANSPOSES.format(m=m), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"models\.toml: \[\[model\]\] .*{re.escape(says)}"):
        check_profile(DATA / "transposes_raw.csv", gpu=H200, models=read_models(path))


def test_a_launch_without_a_grid_and_a_group_with_its_name_are_refused(tmp_path: Path) -> None:
    model = Model(kernel="transpose", options={"m": "grid_y", "n": 64}, regex="(?P<n>.)")
    with pytest.raises(ConfigError, match="launch 0: the launch has no grid_y, its values are launch, n"):
        model.of(launch_of("transpose"))
    with pytest.raises(ConfigError, match="a group has the name 'grid_x', which a launch has"):
        replace(model, regex="(?P<grid_x>.)").refuse_expressions()


# ---------------------------------------------------------------------------------------------- a library's names


def test_a_librarys_kernel_is_judged_by_its_name_and_launch(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", str(DATA / "gemm_raw.csv"), "--gpu", "h200_sxm", "--problem", "2048x2048x2048", "--json", "-"]
    main(words)
    (launch,) = json.loads(capsys.readouterr().out)["launches"]
    told = launch["options"]
    assert (told["tile"], told["stages"], told["cluster"], told["schedule"]) == ("256x128x64", 4, "1x2", "cooperative")
    judged = {row["metric"]: row for row in launch["metrics"]}
    for name in ("launch__grid_size", "launch__block_size", "l1tex__m_xbar2l1tex_read_bytes.sum"):
        assert judged[name]["difference"] == 0.0
    assert judged[CYCLES]["passes"] is True


def test_every_measured_gemm_of_the_library_is_known_by_its_name() -> None:
    """Split-K with its reduction, too: the launch that the name gives has the CTAs that ran."""
    with (kernels_dir().parent / "validation" / "measured" / "h200_sxm" / "library_gemm.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        names = row["launched"].split(" + ")
        grid, block = (tuple(map(int, row[key].split("x"))) for key in ("grid", "block"))
        launches = [launch_of(names[0], grid=grid, block=block), *(launch_of(name, idx="1") for name in names[1:])]
        problem = f"{row['m']}x{row['n']}x{row['k']}:{row['dtype']}:{row['layout']}"
        profile = ProfileFile(path=Path("p.csv"), launches=tuple(launches))
        model, *sums = library_models(profile, problem, H200)
        launch = model.launch(H200)
        assert launch.num_ctas in (math.prod(grid), None), row["launched"]
        assert launch.num_threads + 32 * launch.roles[-1].num_idle_warps == math.prod(block), row["launched"]
        assert [item.launch_ids for item in sums] == [("1",)] * (len(names) - 1)
        assert not model.doubt, "the letters of its name are those of the layout"
    assert len(rows) > 30 and any(" + " in row["launched"] for row in rows)


def test_a_reduction_of_split_k_is_judged_by_the_second_kernel_of_its_gemm(tmp_path: Path) -> None:
    """It was launched with the CTAs and threads that the model gives it, and read and wrote its sectors."""
    with (kernels_dir().parent / "validation" / "studies" / "library_sums_h200_sxm.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["m"], row["k"]) == ("16", "4096")]
    counted = [name for name in rows[0] if "__" in name]
    units = {DURATION: "ns", "dram__bytes_read.sum": "byte"}
    lines = [["ID", "Kernel Name", "Grid Size", "Block Size", "CC", *counted]]
    lines += [["", "", "", "", "", *(units.get(name, "") for name in counted)]]
    lines += [
        [str(idx), row["kernel"], row["grid"].replace("x", ", "), row["block"].replace("x", ", "), "9.0",
         *(row[name] for name in counted)] for idx, row in enumerate(rows)
    ]  # fmt: skip
    path = tmp_path / "sums.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(lines)
    models = library_models(read_profile(path), "16x4096x4096", H200)
    report = check_profile(path, gpu=H200, models=models)
    gemm, sums = report.launches
    assert (gemm.kernel_idx, sums.kernel_idx, report.unmodelled) == (0, 1, ())
    exact = {part.metric for part in sums.comparisons if part.difference == 0.0}
    sectors = {f"lts__t_sectors_srcunit_tex_op_{way}.sum" for way in ("read", "write")}
    assert exact >= {"launch__grid_size", "launch__block_size", *sectors}
    (block,) = (part for part in gemm.comparisons if part.metric == "launch__block_size")
    assert block.passes and block.predicted == 384.0  # a consumer warpgroup of three has no tile


def test_a_profile_without_a_librarys_gemm_and_a_problem_that_is_none_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no kernel of the profile is a library's GEMM .*\(copy_b16_i1\)"):
        library_models(read_profile(COPY), "64x64x64", H200)
    gemm = read_profile(DATA / "gemm_raw.csv")
    assert len(library_models(gemm, "2048x2048x2048", H200, match="nvjet")) == 1
    with pytest.raises(ConfigError, match="no kernel of the profile"):
        library_models(gemm, "2048x2048x2048", H200, match="cutlass")
    for text in ("64x64", "64x64x64:bf16:tx", "0x64x64", "64x64x64x64", "axbxc"):
        with pytest.raises(ConfigError, match="wants MxNxK"):
            problem_of(text)
    assert problem_of("8x4x2:tt") == problem_of("8X4x2:BF16:TT")
    assert problem_of("8x4x2:fp16:nn") == {"m": "8", "n": "4", "k": "2", "dtype": "fp16", "layout": "nn"}


# ---------------------------------------------------------------------------------------------- marks of utilization


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({TENSOR[0]: 85.0}, ["Tensor cores 85.0 %, above 80 %: saturated"]),
        ({TENSOR[3]: 79.0}, ["Tensor cores 79.0 %, below 80 %: not saturated; use a larger tile or a shorter epilogue"]),
        ({TENSOR[0]: 0.0}, []), ({}, []),
        ({MEMORY[0]: 85.0}, ["HBM 85.0 %, above 80 %: memory bounds it; only fewer bytes make it faster"]),
        ({MEMORY[1]: 70.0}, ["HBM 70.0 %, between 60 and 80 %: near what bounds a kernel"]),
        ({TENSOR[0]: 99.0, MEMORY[0]: 85.0}, [
            "Tensor cores 99.0 %, above 80 %: saturated",
            "HBM 85.0 %, above 80 %: memory bounds it; use a larger tile, so that more is reused",
        ]),
        ({"derived__memory_l1_wavefronts_shared_excessive": 0.0}, ["Bank conflicts 0"]),
        ({"derived__memory_l1_wavefronts_shared_excessive": 2048.0},
         ["Bank conflicts 2,048: check the swizzle with gpusim banks"]),
        ({"sm__cycles_active.avg": 900.0, CYCLES: 1000.0},
         ["SMs 90.0 %, below 95 %: SMs idle; check the grid's size and its last wave"]),
        ({"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 7e6}, []),
    ],
)  # fmt: skip
def test_utilization_has_a_sentence_for_each_mark(metrics: dict[str, float], says: list[str]) -> None:
    assert utilization(metrics) == says


def test_check_and_predict_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(DATA / "gemm_raw.csv"), "--gpu", "h200_sxm", "--problem", "2048x2048x2048"])
    assert "Utilization: SMs 87.7 %, below 95 %" in capsys.readouterr().out
    words = "predict gemm --gpu h200_sxm --m 4096 --n 4096 --k 4096 --tile 128x128x64 --all"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    assert out.count("Utilization: ") == 3 and "Utilization: Tensor cores" in out


# ---------------------------------------------------------------------------------------------- two conditions


def test_no_advice_contradicts_what_bounds_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["transpose", "--gpu", "h200_sxm", "--smem", "naive", "--m", "2048", "--n", "2048", "--all"]
    assert main(["predict", *words]) == 0
    out = capsys.readouterr().out
    assert "bound by smem" in out and "Bank conflicts not counted, shared memory bounds the kernel" in out
    assert "not saturated, as shared memory is busy" in out and "keep more bytes in flight" not in out


def test_only_what_exceeds_both_conditions_fails() -> None:
    name, limit = parse_tolerance("dram__bytes_write.sum=10%,4096")
    assert isinstance(limit, AskedLimit) and (name, limit, limit.absolute) == ("dram__bytes_write.sum", 10.0, 4096.0)
    tolerance = Tolerance(limit=10.0, absolute=4096.0)
    numbers = ((1e6, 1.2e6, False), (1e6, 1.05e6, True), (100.0, 4000.0, True), (100.0, 5000.0, False))
    for measured, predicted, passes in numbers:
        assert Comparison(metric="a__b.sum", measured=measured, predicted=predicted, tolerance=tolerance).passes is passes
        assert Change(metric="a__b.sum", before=measured, now=predicted, tolerance=tolerance).is_worse is not passes
    for text in ("cycles=10%,", "cycles=10%,x", "cycles=,5", "cycles=10%,-5"):
        with pytest.raises(ConfigError, match="with a second condition: cycles=10%,2000"):
            parse_tolerance(text)


def test_a_second_condition_reaches_the_verdict() -> None:
    for absolute, status in ((0.0, FAIL), (1e9, PASS)):
        limits = Limits(tolerances={"registers": AskedLimit(0.0, absolute)})
        report = check_profile(COPY, gpu=H200, models=[OF_COPY], limits=limits)
        assert report.status == status


# ---------------------------------------------------------------------------------------------- what is lost


def test_a_lost_launch_of_a_judged_kernel_is_not_comparable_and_of_another_one_a_remark(tmp_path: Path) -> None:
    lines = THREE.read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "cut.csv"
    path.write_text("".join(line for line in lines if not line.startswith('"2"')), encoding="utf-8")
    padded = Model(kernel="transpose", options={"m": 8192, "n": 8192}, regex="padded")
    report = check_profile(path, gpu=H200, models=[padded])
    assert report.status == PASS and any("copy_b16_i1 is lost" in said for said in report.remarks)
    path.write_text("".join(line for line in lines if not line.startswith('"1"')), encoding="utf-8")
    report = check_profile(path, gpu=H200, models=[replace(padded, regex="transpose_(padded|none)")])
    assert report.status == NOT_COMPARABLE and "lacks launches of transpose_none that were profiled" in report.verdict


def test_a_judged_metric_that_the_profile_lacks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "typo.csv"
    text = COPY.read_text(encoding="utf-8").replace("dram__bytes_read.sum", "dram__bytes_raed.sum")
    path.write_text(text, encoding="utf-8")
    report = check_profile(path, gpu=H200, models=[OF_COPY])
    assert "judged where a profile has it, and not in this one: dram__bytes_read.sum" in report.remarks
    assert any(said.startswith("not predicted, and so not compared: ") and "bytes_raed" in said for said in report.remarks)
    whole = check_profile(COPY, gpu=H200, models=[OF_COPY])
    assert not any("judged where" in said for said in whole.remarks)
