"""The bench: what is measured first, what is left, what a child's lines mean, and how it refuses without a GPU."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpusim import load_gpu
from gpusim.cli import main
from gpusim.errors import ConfigError
from gpusim.evidence.bench.child_process import Ended, run_child
from gpusim.evidence.bench.gpu import Plan
from gpusim.evidence.bench.runner import Bench, Chunk, Job, Options, counted_text, jobs, match_profiles
from gpusim.evidence.cases.case import Config, case_names, load_case
from gpusim.evidence.cases.measured_gpu import MeasuredGpu
from gpusim.evidence.cases.rows import Table
from gpusim.evidence.toolchain import cuda_toolkit as toolkit
from gpusim.evidence.toolchain.cuda_toolkit import Cubin, GpuFound, arch_of, capability_of, find_gpu, sizes_of, source_hash

H200 = GpuFound("NVIDIA H200", (9, 0), "580.159.04")
A100 = MeasuredGpu.of(load_gpu("a100_sxm_80gb"))
CASES = [load_case(name) for name in case_names()]


def bench(tmp_path: Path) -> Bench:
    cubins = {case.name: Cubin(tmp_path / "k.cubin", "0123456789ab", "13.0.88") for case in CASES}
    return Bench(H200, Options(out=tmp_path), cubins, None, lambda _: None, lambda: {})


def job(num: int, name: str = "global_access", group: str = "load") -> Job:
    case = load_case(name)
    return Job(case, group, tuple(case.configs(group, 1)[:num]))


# ---------------------------------------------------------------------------------------------- what, and in which order


def test_wide_loads_and_atomics_come_first(tmp_path: Path) -> None:
    work, _ = jobs(CASES, Options(out=tmp_path))
    groups = [item.group for item in work]
    assert groups[0] == "wide"
    assert all(item.rules.rank <= 1 for item in work[: groups.index("atomic")])
    assert [item.rules.rank for item in work] == sorted(item.rules.rank for item in work)


def test_an_a100_is_not_asked_what_needs_hopper_and_says_so(tmp_path: Path) -> None:
    work, skipped = jobs(CASES, Options(out=tmp_path, gpu=A100))
    assert {item.case.name for item in work} >= {"shared_access", "global_access"}
    assert all(item.rules.least_capability <= (8, 0) for item in work)
    assert "stmatrix" not in {item.group for item in work}
    assert any("tma_writes" in text and "9.0" in text for text in skipped)


def test_only_names_groups_or_kernels(tmp_path: Path) -> None:
    work, _ = jobs(CASES, Options(out=tmp_path, only=("ld_shared_b*",)))
    kernels = {config["kernel"] for item in work for config in item.configs}
    assert kernels == {f"ld_shared_b{bits}" for bits in (8, 16, 32, 64, 128)}
    with pytest.raises(ConfigError, match="matches no group"):
        jobs(CASES, Options(out=tmp_path, only=("ld_shred",)))


def test_without_counters_only_kernels_with_times_of_their_own_are_measured(tmp_path: Path) -> None:
    work, _ = jobs(CASES, Options(out=tmp_path, has_counters=False))
    has_times = {case.name for case in CASES if case.values or any(group.times for group in case.groups.values())}
    assert {item.case.name for item in work} == has_times
    assert "shared_access" not in {item.case.name for item in work}


def test_what_is_done_is_not_measured_again(tmp_path: Path) -> None:
    options = Options(out=tmp_path, only=("one_box",))
    cases = [load_case("tma_writes"), load_case("global_access")]
    (first,), _ = jobs(cases, options)
    measured, aside = first.configs[0], first.configs[1]
    reason = {"seed": 1, "group": "one_box", "config": dict(aside), "reason": "wrong answer"}
    Table.read(tmp_path / "tma_writes.csv").append({}, [{"seed": "1", "group": "one_box", **measured}], [reason])
    (again,), _ = jobs(cases, options)
    assert again.configs == first.configs[2:]
    (retried,), _ = jobs(cases, Options(out=tmp_path, only=("one_box",), retries=True))
    assert retried.configs == first.configs[1:]
    (other_seed,), _ = jobs(cases, Options(out=tmp_path, only=("one_box",), seed=2))
    assert other_seed.configs == first.configs


# ---------------------------------------------------------------------------------------------- what a child says


def lines(*answers: dict[str, object]) -> list[dict[str, object]]:
    return [{"device": {"num_sms": 132}}, *answers]


def test_wrong_answers_are_put_aside_and_right_ones_kept(tmp_path: Path) -> None:
    chunk, work = Chunk(), job(3)
    said = lines({"idx": 0, "values": {"cycles": 5.0}}, {"idx": 1, "wrong": "lane 3"}, {"idx": 2, "values": {}})
    ended = Ended(said, 0, "")
    assert bench(tmp_path)._take(ended, work.configs, chunk, [0, 1, 2], is_counted=False) == []
    assert chunk.values == {0: {"cycles": 5.0}, 2: {}} and chunk.put_aside == {1: "wrong answer: lane 3"}


@pytest.mark.parametrize("said", [({"idx": 1, "crash": "illegal address"},), ()])
def test_after_a_crash_the_others_are_launched_again(tmp_path: Path, said: tuple[dict[str, object], ...]) -> None:
    chunk, work = Chunk(), job(4)
    ended = Ended(lines({"idx": 0, "values": {}}, *said), 1, "Segmentation fault")
    assert bench(tmp_path)._take(ended, work.configs, chunk, [0, 1, 2, 3], is_counted=False) == [2, 3]
    assert set(chunk.values) == {0} and set(chunk.put_aside) == {1}
    assert chunk.skipped_kernels == {work.configs[1]["kernel"]}


def test_a_child_that_never_began_gives_its_sentence(tmp_path: Path) -> None:
    ended = Ended([], 2, "Traceback\ngpusim: measure: PyCUDA cannot be imported, wants pip install -e '.[cuda]'\n")
    with pytest.raises(ConfigError, match="PyCUDA cannot be imported"):
        bench(tmp_path)._take(ended, job(1).configs, Chunk(), [0], is_counted=False)


def test_further_metrics_are_counted_behind_those_of_the_group(tmp_path: Path) -> None:
    group = job(1).rules
    more = Options(out=tmp_path, metrics=("sm__throughput.avg", *group.metrics[:1]))
    assert more.counted(group) == (*Options(out=tmp_path).counted(group), "sm__throughput.avg")


def profile_text(*kernels: str) -> str:
    rows = [f'"{number}","{kernel}","1,0{number:02}"' for number, kernel in enumerate(kernels)]
    return "\n".join(['"ID","Kernel Name","a.sum"', '"","",""', *rows])


ENDED = Ended([], 0, "")


def launched(work: Job, *idxs: int) -> dict[int, Config]:
    return {idx: work.configs[idx] for idx in idxs}


def test_counts_go_to_configs_by_launch_order(tmp_path: Path) -> None:
    work, chunk = job(3), Chunk(values={0: {}, 2: {}})
    log = tmp_path / "log"
    log.write_text(profile_text(work.configs[0]["kernel"], work.configs[2]["kernel"]), encoding="utf-8")
    match_profiles(counted_text(log, ENDED), ["a.sum"], launched(work, 0, 2), chunk)
    assert {idx: profile.metrics["a.sum"] for idx, profile in chunk.profiles.items()} == {0: 1000.0, 2: 1001.0}


@pytest.mark.parametrize("kernels", [("ld_global_b32",), ("ld_global_b32", "memset"), ("ld_global_b32",) * 3])
def test_other_launches_than_were_made_are_refused(tmp_path: Path, kernels: tuple[str, ...]) -> None:
    work, log = job(2), tmp_path / "log"
    log.write_text(profile_text(*kernels), encoding="utf-8")
    with pytest.raises(ConfigError, match="none of them is kept"):
        match_profiles(counted_text(log, ENDED), ["a.sum"], launched(work, 0, 1), Chunk(values={0: {}, 1: {}}))


def test_counts_of_a_follower_are_added_to_those_of_the_launch_before(tmp_path: Path) -> None:
    work, chunk, log = job(2), Chunk(values={0: {}, 1: {}}), tmp_path / "log"
    first, second = (config["kernel"] for config in work.configs)
    log.write_text(profile_text(first, "add_parts", second), encoding="utf-8")
    match_profiles(counted_text(log, ENDED), ["a.sum"], launched(work, 0, 1), chunk, followers=("add_parts",))
    assert {idx: profile.metrics["a.sum"] for idx, profile in chunk.profiles.items()} == {0: 1000.0 + 1001.0, 1: 1002.0}


def test_a_follower_without_a_launch_before_is_refused(tmp_path: Path) -> None:
    work, log, chunk = job(2), tmp_path / "log", Chunk(values={0: {}, 1: {}})
    first, second = (config["kernel"] for config in work.configs)
    log.write_text(profile_text("add_parts", first, second), encoding="utf-8")
    with pytest.raises(ConfigError, match="none of them is kept"):
        match_profiles(counted_text(log, ENDED), ["a.sum"], launched(work, 0, 1), chunk, followers=("add_parts",))


def test_rows_of_another_kernel_source_are_not_mixed(tmp_path: Path) -> None:
    Table.read(tmp_path / "global_access.csv").append({"source_hash": "another00000"}, [])
    with pytest.raises(ConfigError, match="another00000"):
        next(bench(tmp_path).run(job(1), time.monotonic() + 60))


def test_nothing_is_begun_after_the_time_is_up(tmp_path: Path) -> None:
    assert list(bench(tmp_path).run(job(1), time.monotonic() - 1)) == []
    assert not (tmp_path / "global_access.csv").exists()


# ---------------------------------------------------------------------------------------------- processes


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_childs_lines_are_read_but_not_one_that_was_cut_off(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    code = f"""
with open({str(results)!r}, "w") as file:
    file.write('{{"device": {{"num_sms": 132}}}}\\n{{"idx": 0, "values": {{}}}}\\n{{"idx": 1, "val')
print("it said this")
raise SystemExit(3)
"""
    told: list[int] = []
    ended = run_child(python(code), results, most_s=60, progress=told.append)
    assert ended.device == {"num_sms": 132} and [line["idx"] for line in ended.answers] == [0]
    assert ended.status == 3 and "it said this" in ended.output and sum(told) == 1


def test_a_child_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "grandchild"
    grandchild = f"import time; time.sleep(3); open({str(mark)!r}, 'w').close()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    begin = time.monotonic()
    ended = run_child(python(code), tmp_path / "results.jsonl", most_s=1)
    assert ended.status != 0 and time.monotonic() - begin < 2.8
    time.sleep(max(0.0, begin + 4 - time.monotonic()))
    assert not mark.exists()


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = Plan(case="k", cubin="k.cubin", configs=[{"kernel": "k", "n": "8"}], is_counted=True, results="r")
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan
    assert json.loads((tmp_path / "plan.json").read_text())["configs"] == [{"kernel": "k", "n": "8"}]


# ---------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["shared_acces"], "did you mean 'shared_access'?"),
        (["--all", "shared_access"], "one or the other"),
        (["--all", "--minutes", "0"], "above 0"),
        (["--all", "--seed", "-1"], "--seed -1"),
        (["--all", "--build-only", "--arch", "hopper"], "for example sm_80"),
    ],
)
def test_bad_input_costs_a_sentence_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["measure", "--all", "--out", str(tmp_path / "out")]) == 2
    assert "no GPU here (nvidia-smi is missing)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_nvcc_it_says_what_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolkit, "USUAL_PLACES", ())
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)  # no Python package holds one
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert main(["measure", "tma_writes", "--build-only", "--arch", "sm_90a", "--build-dir", str(tmp_path / "cubins")]) == 2
    assert "no nvcc on the PATH" in capsys.readouterr().err


def test_without_names_it_lists_the_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in case_names())


# ---------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(("capability", "arch"), [((8, 0), "sm_80"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a")])
def test_an_architecture_and_its_capability_name_one_another(capability: tuple[int, int], arch: str) -> None:
    assert arch_of(capability) == arch and capability_of(arch) == capability


def test_the_hash_of_a_source_counts_what_it_includes() -> None:
    case = load_case("wgmma_operands")
    assert source_hash(case) == source_hash(case) != source_hash(load_case("tma_writes"))
    assert len(case.includes()["shapes.inc"]) > 0


def test_a_gpu_is_named_with_driver_and_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\ncase "$1" in *uuid*) echo "NVIDIA H200, 9.0, 580.159.04, GPU-1f2e";; *) exit 6;; esac\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_gpu() == GpuFound("NVIDIA H200", (9, 0), "580.159.04", "GPU-1f2e")


@pytest.mark.parametrize(("arguments", "says"), [
    (["occupancy", "--build-only", "--arch", "sm_70"], "wants sm_80 or later"),
    (["occupancy", "--build-only", "--only", "nothing"], "--only goes with measuring"),
])  # fmt: skip
def test_what_cannot_be_built_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_kernel_with_nothing_for_an_architecture_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "tma_writes", "--build-only", "--arch", "sm_80"]) == 0
    assert "tma_writes: has nothing for sm_80, skipped" in capsys.readouterr().err


def test_a_case_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "case.py").write_text("CASE = 1 / 0\n")
    with pytest.raises(ConfigError, match=r"kernels/broken/case.py: cannot be imported: ZeroDivisionError .* at case.py:1"):
        load_case("broken", tmp_path)


def test_a_plan_needs_no_gpu_and_has_only_what_its_architecture_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """launch_order follows the SMs, clusters and TMA need 9.0."""
    names = ["kernel_end", "launch_order", "line_sharing", "tma_writes"]
    assert main(["measure", *names, "--plan", "a100_sxm_80gb"]) == 0
    planned = capsys.readouterr().out
    assert all(f"\n {name} " in planned for name in names[:3]) and "\n tma_writes " not in planned
    assert "line_sharing: without multicast, for it needs compute capability 9.0" in planned
    assert "tma_writes: nothing, for it needs compute capability 9.0" in planned


def test_the_grid_of_a_kernel_that_is_made_for_132_sms_is_not_launched_on_others(tmp_path: Path) -> None:
    case = load_case("tile_sharing")
    work, skipped = jobs([case], Options(out=tmp_path, gpu=MeasuredGpu(num_sms=114)))
    assert not work and set(skipped) == {f"tile_sharing {name}: is made for 132 SMs, skipped" for name in case.groups}
    assert jobs([case], Options(out=tmp_path))[0]


def test_a_child_loads_its_case_for_the_gpu_of_its_plan(tmp_path: Path) -> None:
    plan = Plan(case="cold_code", cubin="", configs=[], is_counted=False, results="", gpu=A100)
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan


def test_sizes_are_those_that_the_driver_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        def cuInit(self, flags: int) -> int:  # noqa: N802 - the driver's name
            return flags

        def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802
            return ordinal

        def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802
            value._obj.value = {16: 108, 81: 167_936, 97: 166_912}[attribute]
            return 0

    monkeypatch.setattr("ctypes.CDLL", lambda name: Driver())
    assert sizes_of(GpuFound("NVIDIA A100-SXM4-80GB", (8, 0), "580")) == A100
