"""``gpusim sass``: what is told of compiled kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusim.cli import main
from gpusim.cli.sass import summary
from gpusim.evidence.toolchain.cuda_toolkit import find_program
from gpusim.evidence.toolchain.sass import parse_sass

TEXT = """
     Function : k
     /*0000*/                   LDC R1, c[0x0][0x28] ;
     /*0010*/                   UTMALDG.2D [UR4], [UR6] ;
     /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
     /*0030*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
     /*0040*/              @!P0 BRA 0x10 ;
     /*0050*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
     /*0060*/                   STL [R1], R2 ;
     /*0070*/                   EXIT ;
"""


def test_a_summary_counts_what_stands_in_the_kernel_and_in_its_main_loop() -> None:
    told = summary(parse_sass(TEXT)["k"])
    assert (told["instructions"], told["spills"]) == (8, 1)
    assert told["wgmma_wait_depths"] == [1, 0]
    assert told["main_loop"]["wgmma_wait_depths"] == [1]
    assert told["main_loop"]["tensor"] == {"HGMMA 64x128x16": 1}
    assert told["main_loop"]["opcodes"] == {"UTMALDG": 1, "HGMMA": 1, "WARPGROUP": 1, "BRA": 1}


def test_a_kernel_without_a_loop_says_so() -> None:
    assert summary(parse_sass(TEXT.replace("BRA 0x10", "BRA 0x70"))["k"])["main_loop"] is None


@pytest.mark.skipif(not (find_program("nvcc") and find_program("cuobjdump")), reason="no nvcc or no cuobjdump here")
def test_a_folder_of_kernels_is_built_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    assert main(["sass", "occupancy", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found and all(kernel["registers"] > 0 for kernel in found)
    assert f"{found[0]['kernel']}: " in capsys.readouterr().out


@pytest.mark.parametrize(("target", "says"), [
    ("ocupancy", "did you mean 'occupancy'?"),
    ("README.md", "is no file and no folder of kernels/"),
])  # fmt: skip
def test_what_is_no_kernel_is_refused(
    target: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sass", target]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.skipif(not find_program("cuobjdump"), reason="no cuobjdump here")
def test_a_file_without_device_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.cubin").write_text("nothing")
    assert main(["sass", str(tmp_path / "some.cubin")]) == 2
    assert "cuobjdump" in capsys.readouterr().err
