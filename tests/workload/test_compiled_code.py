"""Compiled code as a TOML file: what is written is read back, and what cannot be meant is refused in a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpusim.errors import ConfigError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.workload.compiled_code import NO_CODE, read_code

FULL = NO_CODE.replaced(
    registers=168, mainloop={"chain_cycles": 302.0, "math_before_use": 0.25, "wgmma_serialized": True, "wgmma_depth": 1},
    producer={"chain_cycles": 125.0}, epilogue={"chain_cycles": 2742.5, "imad_wide": 64.0},
    layout={"producer": (0x17240, 0x17CB0)},
)  # fmt: skip


@pytest.mark.parametrize("code", [NO_CODE, FULL])
def test_a_file_gives_the_record_back(code: object, tmp_path: Path) -> None:
    path = tmp_path / "code.toml"
    path.write_text(code.as_toml(), encoding="utf-8")  # type: ignore[attr-defined]
    found = read_code(path)
    assert found == replace(code, source="given", origin=str(path))  # type: ignore[type-var]
    assert found.text == f"given in {path}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("chain_cycles = 302", "chain_cycle = 302", "[mainloop]: chain_cycle is unknown; did you mean 'chain_cycles'?"),
        ("[producer]", "[producr]", "producr is unknown; did you mean 'producer'?"),
        ("chain_cycles = 125\n", "", "[producer]: chain_cycles is missing, wants a value"),
        ("[prologue]\nchain_cycles = 0\n", "", "prologue is missing, wants a value"),
        ("chain_cycles = 125", "chain_cycles = -1", "chain_cycles is -1, wants a number from 0 on"),
        ("chain_cycles = 125", 'chain_cycles = "125"', "chain_cycles is '125', wants a number"),
        ("wgmma_depth = 1", "wgmma_depth = 1.5", "wgmma_depth is 1.5, wants a whole number"),
        ("wgmma_serialized = true", "wgmma_serialized = 1", "wgmma_serialized is 1, wants true or false"),
        ("[0x17240, 0x17cb0]", "[9000, 8000]", "producer is [9000, 8000], wants the byte offsets of its begin and"),
        ("registers = 168", "registers = 300", "registers is 300, wants a number from 24 to 255"),
        ("[mainloop]", "[mainloop", "is no TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_place_and_value(old: str, new: str, said: str, tmp_path: Path) -> None:
    path, text = tmp_path / "code.toml", FULL.as_toml()
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_code(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_an_option_takes_a_file_a_table_or_a_record(tmp_path: Path) -> None:
    path = tmp_path / "code.toml"
    path.write_text(FULL.replaced(mainloop={"math_before_use": None}, layout={"producer": (0, 0)}).as_toml(), "utf-8")
    gpu, sizes = load_gpu("h200_sxm"), {"m": 256, "n": 256, "k": 256, "schedule": "multistage", "math": "wgmma"}
    code = read_code(path)
    launches = [GemmParams(**sizes, compiled_code=given).launch(gpu) for given in (str(path), code)]  # type: ignore[arg-type]
    assert {launch.registers_per_thread for launch in launches} == {168}
    assert launches[0].params["compiled_code"] == f"given in {path}"
    with pytest.raises(ConfigError, match="cannot be read"):
        GemmParams(**sizes, compiled_code="missing.toml")  # type: ignore[arg-type]
