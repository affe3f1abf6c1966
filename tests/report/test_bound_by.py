"""What bounds a kernel is one answer, whoever says it: every command, JSON, the explorer and lessons."""

from __future__ import annotations

import json
import shlex

import pytest

from gpusim import GemmParams, load_gpu, simulate
from gpusim.cli import main
from gpusim.explore.pipeline import PipelineQuestion
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.lessons.launch_outcome import outcome

CUBED = "--m 4096 --n 4096 --k 4096 --tile 128x256x64 --stages 4 --schedule cooperative --cluster 1x1 --no-persistent " \
    "--epilogue direct"

KERNELS = {
    f"gemm {CUBED}": "tensor",
    "gemm --m 1024 --n 1024 --k 128 --tile 128x64x64 --stages 2 --schedule warp_specialized --cluster 1x1 --no-persistent "
    "--epilogue direct": "launch",
    "elementwise --op copy --elements 67108864": "hbm",
    "transpose --m 2048 --n 2048 --smem naive": "smem",
    "smem_copy --m 4096 --n 4096 --copy scalar --tile 32x32": "l2_link",
    "softmax --rows 8192 --columns 4096": "hbm",
}


@pytest.mark.parametrize(("words", "bound"), KERNELS.items(), ids=str)
def test_every_command_says_the_same(words: str, bound: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said(verb: str, *more: str) -> str:
        typed = words.replace("--no-persistent", "--persistent off") if verb == "sweep" else words
        assert main([verb, *shlex.split(typed), "--gpu", "h200_sxm", *more]) == 0
        return " ".join(capsys.readouterr().out.split())

    document = json.loads(said("predict", "--json", "-"))
    reason = document["reason"]
    assert document["bound_by"] == bound
    assert f"bound by {bound}" in said("predict")
    assert f"bound by {bound}: {reason}." in said("predict", "--all")
    (row,) = json.loads(said("sweep", "--jobs", "1", "--json", "-"))["configurations"]
    assert (row["bound_by"], row["reason"]) == (bound, reason)


@pytest.mark.parametrize("words", [words for words in KERNELS if CUBED not in words][:3])
def test_an_explanation_begins_with_it(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *shlex.split(words), "--gpu", "h200_sxm"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Bound by {KERNELS[words]}: " in text


def test_the_explorer_and_lessons_say_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    question = PipelineQuestion()
    answer = question.plain_answer()
    assert main([*shlex.split(answer.command)[1:], "--json", "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert answer.verdict.endswith(f", bound by {said['bound_by']}: {said['reason']}.")
    gpu = load_gpu("h200_sxm")
    launch = GemmParams(m=1024, n=1024, k=1024, tile="128x128x64", stages=4, schedule="cooperative").launch(gpu)
    assert outcome(launch, gpu).sentence.endswith(simulate(launch, gpu).reason)


def test_advice_has_the_word_of_its_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split("advise gemm --gpu h200_sxm --m 512 --n 512 --k 512 --json -")) == 0
    said = json.loads(capsys.readouterr().out)
    gpu = load_gpu("h200_sxm")
    result = simulate(KERNEL_MODELS["gemm"].params(m=512, n=512, k=512, **said["best"]).launch(gpu), gpu)
    assert (said["bound_by"], said["first_reason"]) == (result.bound_by, result.reason)
