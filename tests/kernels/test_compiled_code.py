"""Compiled code read from SASS: figures of kernels that other tests read by hand, the probes, and the estimate of them."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gpusim import load_gpu
from gpusim.errors import ConfigError, KernelError
from gpusim.evidence.cases.case import load_case
from gpusim.evidence.cases.paths import kernels_dir
from gpusim.evidence.toolchain.compiled_code import code_in_file, read_compiled_code
from gpusim.evidence.toolchain.sass import parse_sass
from gpusim.evidence.toolchain.sass_paths import path_to
from gpusim.kernel_models.gemm import GemmParams, resolve
from gpusim.kernel_models.gemm.estimated_code import PATH, estimated_code
from gpusim.workload.compiled_code import CompiledCode

from .conftest import Built, Sass

H200 = load_gpu("h200_sxm")
MULTISTAGE_STEP = (536 - 390, 582 - 436)
"""Cycles of a k-step that hopper_gemm's multistage kernels have more than one of their two orders of copies runs."""


def of(name: str) -> Any:
    return sys.modules[load_case(name).launch.__module__]


def test_a_kernel_by_tma_and_wgmma_gives_the_figures_of_its_table(sass: Sass) -> None:
    """Equal to the cycle, but for k-steps of multistage kernels, whose SASS holds two orders of copies."""
    case = of("hopper_gemm")
    for name, entry in case.ENTRIES.items():
        config = case.config_of(name, (512, 512, 512), persistent="no", epilogue="direct")
        wanted, found = case.code_of(config), read_compiled_code(sass("hopper_gemm", "sm_90a")[name])
        more = found.mainloop.chain_cycles - wanted.mainloop.chain_cycles
        assert more in (MULTISTAGE_STEP if entry.schedule == "multistage" else (0,)), name
        for part in ("producer", "prologue", "tile_scheduler", "epilogue", "layout"):
            assert asdict(getattr(found, part)) == asdict(getattr(wanted, part)), (name, part)
        assert found.mainloop.wgmma_depth == entry.depth
        assert not found.mainloop.wgmma_serialized
        assert -(-(found.registers or 0) // 8) == -(-case.registers_of(entry) // 8), name


def test_a_kernel_of_mma_sync_or_ffma_gives_the_figures_of_its_table(sass: Sass) -> None:
    case, kernels = of("hgemm"), sass("hgemm", "sm_90a")
    for build in case.builds():
        slices = build.tile[2] // 16 if build.fragments == "single" else 1
        found, code = read_compiled_code(kernels[build.name], num_slices=slices), case.CODE[build.name]
        assert (found.mainloop.chain_cycles, found.tile_scheduler.chain_cycles) == (code["step"], code["tile"]), build.name
        places = case.PLACES.get(build.name, {})
        assert {name: getattr(found.mainloop, name) for name in places} == pytest.approx(dict(places), abs=0.001)
        assert code["direct"] <= found.epilogue.chain_cycles <= code["staged"], build.name  # the two share stores
    case, kernels = of("sgemm"), sass("sgemm", "sm_90a")
    for build in case.builds():
        found, wanted = read_compiled_code(kernels[build.name]), case.code_of(build.name)
        assert replace(found.mainloop, fma_bank_reads=None) == replace(wanted.mainloop, fma_bank_reads=None), build.name
        assert found.mainloop.fma_bank_reads == pytest.approx(wanted.mainloop.fma_bank_reads, abs=0.011)
        assert (found.tile_scheduler, found.epilogue) == (wanted.tile_scheduler, wanted.epilogue), build.name


def test_a_file_is_read_by_entry_and_refused_in_a_sentence(built: Built, tmp_path: Path) -> None:
    cubin = built("hopper_gemm", "sm_90a").path
    name = "co2_128x256x64_c1x1_d1_regs_bf16"
    code = code_in_file(f"{cubin}:{name}")
    assert code.text == f"read from {cubin}:{name}"
    launch = GemmParams(
        m=512, n=512, k=512, tile=(128, 256, 64), schedule="cooperative", compiled_code=code
    ).launch(H200)
    assert launch.registers_per_thread == 168
    others: tuple[dict[str, Any], ...] = ({"math": "mma_sync"}, {"copy": "cp_async"})
    for options, said in zip(others, ("has wgmma; use --math wgmma", "has tma; use --copy tma"), strict=True):
        with pytest.raises(KernelError, match=said):
            GemmParams(m=512, n=512, k=512, compiled_code=code, **options).launch(H200)
    report = tmp_path / "profile.ncu-rep"
    report.write_bytes(b"")
    for text, said in (
        (str(cubin), "kernels, wants FILE:ENTRY"), (f"{cubin}:nothing", "nothing is no kernel"),
        ("none.cubin", "is no file"), (str(report), "without the compiler's schedule"),
        (f"{cubin}:add_parts", "no loop with MMA or FFMA"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            code_in_file(text)


def test_a_path_that_never_arrives_is_refused() -> None:
    kernel = parse_sass("     Function : k\n     /*0000*/   MOV R1, R2 ;\n     /*0010*/   EXIT ;\n")["k"]
    with pytest.raises(ConfigError, match="no path from 0x0"):
        path_to(kernel, 0, 0x40)


@pytest.fixture(scope="module")
def probe() -> Any:
    """The script of the probes."""
    spec = importlib.util.spec_from_file_location("gemm_code_probe", kernels_dir() / "probes" / "gemm_code" / "probe.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_estimate_is_what_the_probes_give_compiled_anew(probe: Any, sass: Sass) -> None:
    table = probe.read_table()
    assert PATH.read_text(encoding="utf-8") == probe.estimate(table)
    some = {item.probe: item for item in probe.compile_probes(every=8)}
    assert len(some) >= 15
    assert {item.kind.split()[0] for item in some.values()} == {item.kind.split()[0] for item in table}
    assert [item for item in table if item.probe in some] == list(some.values())


KINDS: list[dict[str, Any]] = [
    *({"schedule": schedule} for schedule in ("multistage", "warp_specialized", "cooperative", "pingpong")),
    {"schedule": "multistage", "math": "wgmma", "copy": "cp_async"}, {"schedule": "cooperative", "copy": "cp_async"},
    {"math": "mma_sync"}, {"math": "mma_sync", "register_stages": 1}, {"math": "mma_sync", "copy": "tma"},
    {"dtype": "fp32"}, {"dtype": "fp32", "stages": 1, "layout": "tt"}, {"split_k": 4},
]  # fmt: skip


def estimate_of(**options: Any) -> CompiledCode:
    return estimated_code(resolve(GemmParams(m=1024, n=1024, k=1024, **options), H200))


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("epilogue", ["direct", "smem", "tma_store"])
def test_no_estimate_is_zero(options: dict[str, Any], epilogue: str) -> None:
    by_tma = options.get("copy", "cp_async" if "dtype" in options or options.get("math") == "mma_sync" else "tma") == "tma"
    if (epilogue == "tma_store" and not by_tma) or (epilogue != "direct" and "split_k" in options):
        return
    code = estimate_of(**options, epilogue=epilogue)
    assert code.source == "estimated"
    assert min(code.mainloop.chain_cycles, code.tile_scheduler.chain_cycles, code.epilogue.chain_cycles) > 0
    assert (code.producer.chain_cycles > 0) == by_tma
    resolved = GemmParams(m=1024, n=1024, k=1024, **options, epilogue=epilogue).resolved(H200)
    assert resolved.as_options()["compiled_code"] == "estimated"


def test_an_epilogue_grows_with_the_elements_of_a_thread_and_a_step_with_its_wgmma() -> None:
    small, large = (estimate_of(schedule="cooperative", tile=tile) for tile in ("128x128x64", "128x256x64"))
    assert large.epilogue.chain_cycles > 1.5 * small.epilogue.chain_cycles
    assert large.mainloop.chain_cycles == small.mainloop.chain_cycles + 3 * 16.0  # four of 256 columns, 16 cycles more each
    two = estimate_of(schedule="warp_specialized", tile="128x128x64")
    assert two.mainloop.chain_cycles == small.mainloop.chain_cycles + 4 * 12.0
