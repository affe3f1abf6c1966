"""Predictions are the same to the last bit on every machine, under every version of Python and numpy: the frozen digests."""

from __future__ import annotations

import json

import pytest

from gpusim.kernel_models import KERNEL_MODELS
from gpusim.program.records import INPUT_SECTIONS
from gpusim.simulate.buffers import write_buffer

from .predictions import PREDICTIONS, frozen_fingerprints, packed_sections, prediction, short

AGAIN = "where the model changed on purpose, run python scripts/freeze_engine.py"


@pytest.mark.parametrize("name", PREDICTIONS)
def test_a_prediction_is_the_frozen_one_to_the_last_bit(name: str) -> None:
    frozen = frozen_fingerprints()[name]
    sections, said = packed_sections(name), prediction(name)
    of_sections = {section: short(sections[section].tobytes()) for section in INPUT_SECTIONS}
    assert short(write_buffer(sections, INPUT_SECTIONS)) == frozen["packed"], f"packed otherwise, {AGAIN}: {of_sections}"
    assert short(json.dumps(said, sort_keys=True).encode()) == frozen["said"], f"said otherwise, {AGAIN}: {said}"


def test_predictions_are_of_every_kernel_model_and_frozen() -> None:
    assert {kernel for kernel, _, _ in PREDICTIONS.values()} == set(KERNEL_MODELS)
    assert set(frozen_fingerprints()) == set(PREDICTIONS)
