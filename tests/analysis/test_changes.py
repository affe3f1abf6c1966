"""Changes of one kernel: what exists is tried, what is told is true, and what cannot run is named."""

from __future__ import annotations

import io
import json
import shlex
from typing import Any

import pytest
from rich.console import Console

import gpusim
from gpusim.analysis.changes import NOTHING, Change
from gpusim.analysis.explain import Explanation
from gpusim.cli import main
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.report.explain import change_words, render_explanation
from gpusim.simulate.result import Result

H200 = load_gpu("h200_sxm")

GEMM = {"m": 512, "n": 1024, "k": 512, "tile": "128x256x64", "stages": 2, "schedule": "cooperative", "cluster": "1x1",
        "persistent": False, "epilogue": "direct"}

KERNELS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("gemm", GEMM, ("tile", "split_k", "stages", "schedule")),
    ("sgemm_naive", {"m": 128, "n": 128, "k": 128, "way": "naive"}, ("way",)),
    ("transpose", {"m": 2048, "n": 2048, "smem": "naive"}, ("smem",)),
    ("softmax", {"rows": 2048, "columns": 4096}, ("threads", "per")),
    ("elementwise", {"elements": 2**20, "vector_bytes": 4}, ("vector_bytes", "items_per_thread")),
    ("smem_copy", {"m": 1024, "n": 1024, "copy": "scalar", "tile": "128x64"}, ("tile",)),
    ("reduction", {"rows": 16, "columns": 65536}, ("ctas_per_sum",)),
    ("gather", {"rows": 8192, "columns": 256, "table_rows": 65536, "per": "block"}, ("per", "threads")),
]  # fmt: skip


@pytest.fixture(scope="module")
def explained() -> dict[str, Explanation]:
    """Of each kernel."""
    return {kernel: gpusim.explain(kernel, H200, **options) for kernel, options, _ in KERNELS}


@pytest.mark.parametrize(("kernel", "first"), [(kernel, first) for kernel, _, first in KERNELS])
def test_the_best_change_is_true_and_is_one_of_those_that_experts_try(
    kernel: str, first: tuple[str, ...], explained: dict[str, Explanation], capsys: pytest.CaptureFixture[str]
) -> None:
    found = explained[kernel]
    best = found.best_change
    assert best is not None and best.cycles is not None and best.time_us is not None
    assert next(iter(best.options)) in first
    assert main([*shlex.split(best.command)[1:], "--json", "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["cycles"], said["time_us"]) == (best.cycles, best.time_us)
    assert best.share == pytest.approx(1.0 - said["time_us"] / found.result.time_us)


@pytest.mark.parametrize("kernel", [kernel for kernel, _, _ in KERNELS])
def test_changes_are_ranked_and_those_that_cannot_run_come_last_with_a_reason(
    kernel: str, explained: dict[str, Explanation]
) -> None:
    changes = explained[kernel].changes
    can_run = [item for item in changes if not item.refusal]
    assert list(changes[: len(can_run)]) == can_run
    shares = [item.share for item in can_run]
    assert shares == sorted(shares, reverse=True)
    assert all(item.time_us is None for item in changes[len(can_run) :])
    assert len({json.dumps(item.options, default=str) for item in changes}) == len(changes)


def test_every_kernel_has_options_to_change_that_it_knows() -> None:
    for row in KERNEL_MODELS.values():
        assert row.tuned, row.name
        assert set(row.tuned) <= set(row.params.options()), row.name
        assert not any(row.params.model_fields[row.params.options()[name]].is_required() for name in row.tuned)


def test_a_change_names_what_it_needs_beside_it(explained: dict[str, Explanation]) -> None:
    by_first = {next(iter(item.options)): item.options for item in explained["gemm"].changes if not item.refusal}
    assert "stages" in by_first["tile"]
    asked = GemmParams(**GEMM)
    changes = list(KERNEL_MODELS["gemm"].changes(asked, asked.resolved(H200), H200))
    pingpong = [change for change in changes if change.get("schedule") == "pingpong"]
    assert pingpong and all(change["persistent"] and change["tile"] != "128x256x64" for change in pingpong)
    assert any(change.get("split_k") == 2 for change in changes)


def test_options_that_change_sums_say_so(explained: dict[str, Explanation]) -> None:
    changes = {next(iter(item.options)): item for item in explained["reduction"].changes if item.is_simulated}
    assert "results differ in the last bits" in changes["ctas_per_sum"].note
    assert not any("results differ" in item.note for item in explained["transpose"].changes)


def test_what_is_given_is_held_against_what_a_library_would_choose(explained: dict[str, Explanation]) -> None:
    assert any("what a library would choose" in item.note for item in explained["gemm"].changes)


def test_the_command_line_says_what_python_says(
    explained: dict[str, Explanation], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split("explain transpose --gpu h200_sxm --m 2048 --n 2048 --smem naive --json -")) == 0
    document = json.loads(capsys.readouterr().out)
    found = explained["transpose"].as_dict()
    assert {item["command"]: item for item in document["changes"]} == {
        item["command"]: item for item in json.loads(json.dumps(found["changes"]))
    }
    smem = document["changes"][0]["options"]["smem"]
    assert document["changes"][0]["command"] == f"gpusim predict transpose --m 2048 --n 2048 --smem {smem} --gpu h200_sxm"


def shown(changes: tuple[Change, ...], result: Result, columns: int = 200) -> list[str]:
    stream = io.StringIO()
    explanation = Explanation(result=result, counterfactuals=(), changes=changes, remarks=(), wall_s=0.1)
    console = Console(file=stream, width=columns, color_system=None)
    render_explanation(explanation, console, next_command="gpusim predict gemm --plot gemm.png")
    return stream.getvalue().splitlines()


def made(share: float, *, is_simulated: bool = True, refusal: str = "", **options: Any) -> Change:
    time_us = 20.0 * (1.0 - share) if is_simulated and not refusal else None
    return Change(
        options=options, command=f"gpusim predict gemm {next(iter(options))}", share=share, time_us=time_us,
        is_simulated=is_simulated, refusal=refusal,
    )


def test_each_change_is_told_with_its_command_and_the_rest_is_counted(result: Result) -> None:
    changes = (
        made(0.66, epilogue="tma_store", persistent=True), made(0.2, is_simulated=False, raster="along_m"),
        made(0.004, pad=8), made(-0.1, cluster="1x2"),
        made(0.0, refusal="--stages 5: they need 9 bytes; use --stages 4", stages=5),
    )
    text = "\n".join(shown(changes, result))
    assert "-66.0 % time with --epilogue tma_store --persistent: 6.800 us\n  gpusim predict gemm epilogue\n" in text
    assert "Further: --raster along_m (about 20.0 %)." in text
    assert "2 of 4 changes that were tried save nothing: values of --pad, --cluster." in text
    assert "Cannot run: --stages 5: they need 9 bytes." in text
    assert text.endswith("\nNext: gpusim predict gemm epilogue")
    assert "Verdict: --epilogue tma_store --persistent saves most, 66.0 % of 20 us." in text


def test_where_no_change_saves_anything_it_is_said(result: Result) -> None:
    text = "\n".join(shown((made(NOTHING / 2, pad=8),), result))
    assert "Verdict: no change that was tried saves anything." in text
    assert text.endswith("Next: gpusim predict gemm --plot gemm.png")


def test_words_of_a_change_are_typed_as_options() -> None:
    assert change_words(made(0.1, persistent=False, tile="64x64x64")) == "--no-persistent --tile 64x64x64"
