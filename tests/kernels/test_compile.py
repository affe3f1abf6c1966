"""Every kernel compiles for every architecture that it is for, without a warning, and does what its name says."""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusim.errors import ConfigError
from gpusim.evidence.bench.frameworks import has_source
from gpusim.evidence.cases.case import case_names, load_case
from gpusim.evidence.cases.measured_gpu import MeasuredGpu
from gpusim.evidence.toolchain.cuda_toolkit import (
    Cubin,
    build,
    default_build_dir,
    find_nvcc,
    find_program,
    nvcc_release,
    source_hash,
)
from gpusim.evidence.toolchain.sass import KernelSass, parse_sass, read_sass
from gpusim.machine.config import load_gpu

from .conftest import KEPT, made_with

Sass = Callable[[str, str], dict[str, KernelSass]]
Built = Callable[[str, str], Cubin]
BUILT = [name for name in case_names() if has_source(load_case(name))]
SIZES = {"sm_80": MeasuredGpu.of(load_gpu("a100_sxm_80gb")), "sm_90a": MeasuredGpu()}
BUILDS = [
    (name, arch) for name in BUILT for arch, gpu in SIZES.items()
    if any(not group.lacks(gpu) for group in load_case(name, gpu=gpu).groups.values())
]  # fmt: skip
ONE_BUILD_EACH = [(name, "sm_90a") for name in BUILT]


def test_a_kernel_that_needs_hopper_is_not_built_for_the_a100() -> None:
    assert ("tma_writes", "sm_80") not in BUILDS and ("shared_access", "sm_80") in BUILDS


@pytest.mark.parametrize(("name", "arch"), BUILDS)
def test_a_kernel_compiles_with_every_entry_point_that_its_configs_name(built: Built, name: str, arch: str) -> None:
    case = load_case(name, gpu=SIZES[arch])
    held = built(name, arch).path.read_bytes()
    for group, rules in case.groups.items():
        if not rules.lacks(SIZES[arch]):
            for kernel in {config["kernel"] for config in case.configs(group, 1)}:
                assert f".text.{kernel}\0".encode() in held


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH: nothing can be built here")
def test_a_kernel_is_built_once_and_leaves_nothing_else(tmp_path: Path) -> None:
    cubin = build(load_case("tma_writes"), "sm_90a", tmp_path)
    before = cubin.path.stat().st_mtime_ns
    assert build(load_case("tma_writes"), "sm_90a", tmp_path) == cubin
    assert cubin.path.stat().st_mtime_ns == before
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".cubin", ".txt"]


KEPT_CUBINS = sorted(KEPT.glob("*/*.cubin.xz"), key=lambda path: path.stat().st_size)


def test_cubins_that_are_kept_are_of_today_s_sources_and_options() -> None:
    """After a change: ``python scripts/keep_cubins.py``."""
    assert KEPT_CUBINS
    for path in KEPT_CUBINS:
        name, arch, digest = path.name.removesuffix(".cubin.xz").split("-")
        assert arch in ("sm_80", "sm_90a") and digest == source_hash(load_case(name)), path
        assert path.parent.name == made_with(path.parent.name.partition("-")[0]), path


def test_nvcc_makes_the_bytes_that_are_kept(tmp_path: Path) -> None:
    release = nvcc_release(find_nvcc()) if shutil.which("nvcc") else ""
    path = next((path for path in KEPT_CUBINS if path.parent.name == made_with(release)), None)
    if path is None:
        pytest.skip("nothing is kept of this compiler")
    name, arch, _ = path.name.split("-")
    assert build(load_case(name), arch, tmp_path).path.read_bytes() == lzma.decompress(path.read_bytes())


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH: nothing can be built here")
def test_a_source_that_does_not_compile_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nvcc refuses"):
        build(load_case("power_clock"), "sm_90", tmp_path)  # wgmma is in sm_90a alone
    assert list(tmp_path.iterdir()) == []


def test_cubins_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_build_dir() == tmp_path / "gpusim" / "cubins"


# ---------------------------------------------------------------------------------------------- one access each


def shared_opcode(kernel: str) -> str:
    """The one instruction that is counted, in SASS."""
    opcodes = {"ldmatrix": "LDSM", "stmatrix": "STSM", "cp_async": "LDGSTS", "ld_": "LDS", "st_": "STS"}
    for begin, opcode in opcodes.items():
        if kernel.startswith(begin):
            return opcode
    return "ATOMS"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_shared_access_has_one_access_beside_the_fill_and_the_dump(sass: Sass, arch: str) -> None:
    for name, kernel in sass("shared_access", arch).items():
        opcode = shared_opcode(name)
        # before a wait for cp.async ptxas puts loads that no lane ever executes
        real = KernelSass(name, tuple(item for item in kernel.instructions if item.predicate != "!PT"))
        (access,) = real.select(opcode)
        fills, dumps = not name.startswith(("st", "cp")), not name.startswith("ld")
        is_looped = re.search(r"(add|min|max|and|or|xor)_b64", name) is not None
        assert len(real.select("STS")) == fills + (opcode == "STS"), name
        assert len(real.select("LDS")) == dumps + (opcode == "LDS") + is_looped, name
        assert kernel.num_spills == 0
        assert "POPC" not in access.opcode, name  # an add of one constant becomes a count of lanes
        if opcode in ("LDS", "STS"):
            width = int(name.rsplit("_b", 1)[1])
            assert {8: ".U8", 16: ".U16", 32: "", 64: ".64", 128: ".128"}[width] == access.opcode.removeprefix(opcode), name
        if opcode == "ATOMS" and not is_looped:
            verb = name.split("_")[2]
            assert {"exch": "EXCH", "cas": "CAS"}.get(verb, verb.upper()) in access.opcode, name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_global_access_has_one_access_of_its_kind_or_two(sass: Sass, arch: str) -> None:
    for name, kernel in sass("global_access", arch).items():
        loads, stores = kernel.select("LDG"), kernel.select("STG")
        if name.startswith("st"):
            assert (len(loads), len(stores)) == (0, 1), name
        else:
            assert (len(loads), len(stores)) == (2 if name.endswith("_twice") else 1, 1), name
        width = int(name.removesuffix("_twice").rsplit("_b", 1)[1])
        suffix = {8: ".U8", 16: ".U16", 32: "", 64: ".64", 128: ".128"}[width]
        for access in stores if name.startswith("st") else loads:
            assert access.opcode[3:].replace(".E", "") == suffix, name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_cp_async_access_has_one_copy_and_loads_beside_it_only_to_dump(sass: Sass, arch: str) -> None:
    for name, kernel in sass("cp_async_access", arch).items():
        real = KernelSass(name, tuple(item for item in kernel.instructions if item.predicate != "!PT"))
        (copy,) = real.select("LDGSTS")
        assert (".BYPASS" in copy.opcode) == ("_cg_" in name), copy.opcode
        assert len(real.select("LDS")) == 1 and not real.select("STS"), name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_wavefront_cycles_reads_the_clock_round_a_loop_of_eight_loads(sass: Sass, arch: str) -> None:
    for name, kernel in sass("wavefront_cycles", arch).items():
        loop = kernel.main_loop
        assert loop is not None and len(loop.select("LDS")) == 8 and len(kernel.select("LDS")) == 16, name
        order = [item.opcode.partition(".")[0] for item in kernel.instructions
                 if item.opcode.startswith("LDS") or "SR_CLOCK" in item.operands]  # fmt: skip
        assert order == ["LDS"] * 8 + ["CS2R"] + ["LDS"] * 8 + ["CS2R"], name


def test_a_train_is_four_wgmmas_a_group_of_the_shape_and_nothing_of_the_compilers(sass: Sass) -> None:
    tensor = {"bf16": "HGMMA", "tf32": "HGMMA", "fp8": "QGMMA", "int8": "IGMMA"}
    for name, kernel in sass("wgmma_operands", "sm_90a").items():
        _, source, dtype, _, n = name.split("_")
        k = {"bf16": 16, "tf32": 8, "fp8": 32, "int8": 32}[dtype]
        shape = f"{tensor[dtype]} 64x{n[1:]}x{k}"
        loop = kernel.main_loop
        assert loop is not None
        assert kernel.tensor_shapes == {shape: 4}, name
        assert loop.tensor_shapes == {shape: 4}, name
        assert kernel.num_dummy_wgmmas == 0 and kernel.num_spills == 0, name
        assert kernel.wgmma_wait_depths == (0,), name
        assert all(item.operands.startswith("R") for item in kernel.select(tensor[dtype])), name
        takes_registers = re.match(r"R\d+, R\d+, gdesc", kernel.select(tensor[dtype])[0].operands) is not None
        assert takes_registers == (source == "rs"), name


def test_a_box_is_loaded_by_one_instruction_in_a_loop(sass: Sass) -> None:
    for name, kernel in sass("tma_writes", "sm_90a").items():
        (load,) = kernel.select("UTMALDG")
        assert load.opcode == f"UTMALDG.{name[-2]}D"
        assert any(load in loop.instructions for loop in kernel.loops)
        assert kernel.num_spills == 0


def test_registers_come_with_the_instructions(sass: Sass) -> None:
    wide = sass("wgmma_operands", "sm_90a")["wgmma_ss_bf16_kk_n256"]
    assert wide.num_registers >= 128  # of the accumulators alone


def test_a_wgmma_whose_sums_go_nowhere_is_the_compilers_and_a_first_one_is_not() -> None:
    """As nvcc 13.0 writes two commits behind a wgmma that takes no sums: the second group has nothing in it."""
    first = "HGMMA.64x8x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT, gsb0"
    empty = "HGMMA.64x8x16.F16 RZ, gdesc[URZ], RZ, !UPT, gsb0"

    def num_dummies(*lines: str) -> int:
        text = "".join(f"        /*{16 * idx:04x}*/                   {line} ;\n" for idx, line in enumerate(lines))
        return parse_sass(f"\t\tFunction : k\n{text}")["k"].num_dummy_wgmmas

    assert num_dummies(first) == 0 and num_dummies(first, empty) == 1
    assert num_dummies(first, "HGMMA.64x8x16.F32.BF16 R24, gdesc[UR4], R24", empty, empty) == 2


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH: nothing can be built here")
@pytest.mark.skipif(find_program("cuobjdump") is None, reason="there is no cuobjdump: SASS cannot be read here")
def test_an_empty_group_is_a_dummy_and_a_first_wgmma_is_none(tmp_path: Path) -> None:
    source, cubin = tmp_path / "k.cu", tmp_path / "k.cubin"
    kernels = [
        f"""
extern "C" __global__ void groups_{num}(float *out, unsigned long long a, unsigned long long b) {{
    float d[4] = {{0, 0, 0, 0}};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%0,%1,%2,%3}}, %4, %5, 0, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    {num * 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");'}
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}}
"""
        for num in (1, 2)
    ]
    source.write_text("".join(kernels), encoding="utf-8")
    command = ["nvcc", "-cubin", "-gencode=arch=compute_90a,code=sm_90a", str(source), "-o", str(cubin)]
    subprocess.run(command, check=True, capture_output=True)
    found = read_sass(cubin)
    assert [found[f"groups_{num}"].num_dummy_wgmmas for num in (1, 2)] == [0, 1]
    assert all("!UPT" in kernel.select("HGMMA")[0].operands for kernel in found.values())


def test_text_without_a_kernel_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds no kernel"):
        parse_sass("code for sm_90a\n")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH: nothing can be built here")
@pytest.mark.skipif(find_program("cuobjdump") is None, reason="there is no cuobjdump: SASS cannot be read here")
def test_wait_depths_and_loops_are_those_of_the_source(tmp_path: Path) -> None:
    """Two cp.async groups may stay in flight in the loop, and none behind it."""
    source, cubin = tmp_path / "k.cu", tmp_path / "k.cubin"
    source.write_text(
        """
extern "C" __global__ void ring(const float4 *in, float *out, int n) {
    __shared__ float4 stages[3][32];
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
        unsigned to = __cvta_generic_to_shared(&stages[i % 3][threadIdx.x]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + 32 * i + threadIdx.x));
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncthreads();
        sum += stages[(i + 1) % 3][threadIdx.x ^ 1].x;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    out[threadIdx.x] = sum;
}
""",
        encoding="utf-8",
    )
    subprocess.run(["nvcc", "-cubin", "-arch=sm_80", str(source), "-o", str(cubin)], check=True, capture_output=True)
    ring = read_sass(cubin)["ring"]
    assert ring.cp_async_wait_depths == (2, 0)
    loop = ring.main_loop
    assert loop is not None and len(loop.select("LDGSTS")) == 1 and len(loop.select("BAR")) == 1
    assert loop.cp_async_wait_depths == (2,)
