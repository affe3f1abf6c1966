"""Every refusal is one sentence that names the flag, what was found, what is wanted, and what to type instead."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.errors import KernelError, LaunchError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec
from gpusim.simulate.plan import check
from gpusim.workload.compiled_code import NO_CODE

SIZE = {"m": 4096, "n": 4096, "k": 4096}

KERNEL_REFUSALS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"tile": "100x128x64"}, ("--tile 100x128x64", "M is 100", "multiples of 128", "--tile 128x128x64")),
    ({"tile": "128x100x64"}, ("--tile 128x100x64", "N is 100", "multiples of 8", "--tile 128x104x64")),
    ({"tile": "128x128x60"}, ("--tile 128x128x60", "K is 60", "multiples of 16", "--tile 128x128x64")),
    (
        {"tile": "320x128x64", "consumer_warpgroups": 2, "consumer_split": "m"},
        ("--tile 320x128x64", "M is 320", "128", "--consumer-split n or --tile 384x128x64"),
    ),
    ({"tile": "128x128x64", "math": "mma_sync", "warps": "3x2"}, ("M is 128", "--warps 3x2", "48", "144")),
    ({"tile": "128x16x16", "dtype": "fp32", "warps": "2x2"}, ("N is 16", "fma", "64", "--tile 128x64x16")),
    ({"tile": "128x128x48", "dtype": "int8"}, ("K is 48", "int8", "multiples of 32", "64")),
    (
        {"tile": "256x256x64", "consumer_warpgroups": 1, "schedule": "warp_specialized"},
        ("--tile 256x256x64", "544 registers", "512 accumulators", "8 warps has 255", "use --"),
    ),
    (
        {"tile": "128x256x64", "schedule": "warp_specialized"},
        ("288 registers", "255", "spill", "--schedule cooperative --consumer-warpgroups 2"),
    ),
    (
        {"tile": "256x256x64", "consumer_warpgroups": 2},
        ("288 registers", "232 under --setmaxnreg 40/232", "--tile 256x192x64"),
    ),
    ({"tile": "128x256x32", "math": "mma_sync", "warps": "2x2"}, ("256 accumulators", "--warps 2x4")),
    ({"tile": "256x256x16", "dtype": "fp32", "warps": "2x2"}, ("512 accumulators", "spill", "use --tile 256x64x16")),
    (
        {"dtype": "tf32", "layout": "nn", "math": "wgmma"},
        ("--layout nn", "A is M-contiguous", "wgmma", "tf32", "--layout tn, or --math mma_sync"),
    ),
    ({"dtype": "fp8", "layout": "tt"}, ("--layout tt", "B is N-contiguous", "fp8", "--layout tn")),
    (
        {"dtype": "int8", "layout": "nt", "math": "mma_sync"},
        ("--layout nt", "A is M-contiguous", "ldmatrix", "--layout tn"),
    ),
    ({"dtype": "bf16", "math": "fma"}, ("--math fma", "fp32", "bf16", "--math mma_sync")),
    ({"dtype": "fp32", "math": "wgmma"}, ("--math wgmma", "fp32", "--math fma", "tf32")),
    ({"dtype": "fp32", "schedule": "cooperative"}, ("--schedule cooperative", "fma", "--schedule multistage")),
    ({"math": "mma_sync", "schedule": "pingpong"}, ("--schedule pingpong", "mma_sync", "--math wgmma")),
    ({"dtype": "fp32", "copy": "tma"}, ("--copy tma", "fma", "--copy cp_async")),
    ({"out_dtype": "int8"}, ("--out-dtype int8", "bf16", "fp32", "use --out-dtype")),
    ({"warps": "2x2"}, ("--warps 2x2", "warpgroups", "--consumer-warpgroups")),
    ({"math": "mma_sync", "consumer_warpgroups": 2}, ("--consumer-warpgroups 2", "mma_sync", "--warps")),
    ({"math": "mma_sync", "consumer_split": "n"}, ("--consumer-split n", "mma_sync", "--warps")),
    ({"schedule": "pingpong", "consumer_split": "m"}, ("--consumer-split m", "pingpong", "whole tiles", "cooperative")),
    ({"math": "mma_sync", "wgmma_depth": 1}, ("--wgmma-depth 1", "mma_sync", "leave it out")),
    (
        {"schedule": "cooperative", "prefetch": "before_mma"},
        ("--prefetch before_mma", "cooperative", "multistage"),
    ),
    ({"schedule": "multistage", "mbarrier_arrive": "thread"}, ("--mbarrier-arrive thread", "multistage", "warpgroup")),
    ({"schedule": "pingpong", "mbarrier_arrive": "thread"}, ("--mbarrier-arrive thread", "pingpong", "cooperative")),
    (
        {"schedule": "cooperative", "copy": "cp_async", "mbarrier_arrive": "thread"},
        ("--mbarrier-arrive thread", "cp.async", "--copy tma"),
    ),
    (
        {"schedule": "cooperative", "cluster": "2x1", "mbarrier_arrive": "thread"},
        ("--mbarrier-arrive thread", "its own CTA", "--cluster 1x1"),
    ),
    *(
        ({**options, "compiled_code": NO_CODE.replaced(**code)}, (f"--compiled-code: {said}", "change the options"))
        for options, code, said in (
            ({}, {"mainloop": {"math_before_copies": 0.5}}, "mainloop math_before_copies is 0.5: there is such code"),
            ({"math": "mma_sync", "register_stages": 1}, {"mainloop": {"math_before_use": 1.0}}, "mainloop math_before_use"),
            ({"math": "mma_sync", "stages": 1}, {"mainloop": {"math_before_barrier": 1.0}}, "mainloop math_before_barrier"),
            ({}, {"mainloop": {"instructions": 40.0}}, "mainloop instructions is 40.0: there is such code only in"),
            ({}, {"mainloop": {"fma_bank_reads": 1.25}}, "mainloop fma_bank_reads is 1.25"),
            ({"copy": "cp_async"}, {"producer": {"chain_cycles": 8.0}}, "producer chain_cycles is 8.0"),
            ({"schedule": "multistage"}, {"layout": {"producer": (0, 99000)}}, "layout producer is (0, 99000): there"),
            ({}, {"layout": {"last_part": (0, 99000)}}, "layout last_part is (0, 99000): there is such code only"),
            *(
                (options, {"mainloop": {"imad_wide_per_copy": 1}}, "mainloop imad_wide_per_copy is 1")
                for options in ({"copy": "tma"}, {"math": "mma_sync"}, {"schedule": "warp_specialized"})
            ),
        )
    ),
    ({"math": "mma_sync", "copy": "tma", "stall_on_ldgsts": True}, ("--stall-on-ldgsts: ", "cp.async", "leave it out")),
    ({"math": "mma_sync", "prefetch": "after_wait"}, ("--prefetch after_wait", "mma_sync", "before_mma")),
    *(
        ({**others, "cta_barrier": "before_mma"},
         ("--cta-barrier before_mma", "by TMA after their wait", "--prefetch after_wait"))
        for others in (
            {}, {"schedule": "cooperative"}, {"math": "mma_sync"}, {"schedule": "multistage", "prefetch": "after_mma"},
            {"schedule": "multistage", "prefetch": "after_wait", "copy": "cp_async"},
        )
    ),
    ({"step_code": 40.0}, ("--step-code is no option of this kernel", "--compiled-code")),
    ({"dtype": "fp32", "swizzle": "128B"}, ("--swizzle 128B", "fma", "--swizzle none")),
    ({"register_stages": 1}, ("--register-stages 1", "wgmma", "leave it out")),
    ({"pad": 8}, ("--pad 8", "wgmma", "--math mma_sync")),
    ({"math": "mma_sync", "copy": "tma", "pad": 8}, ("--pad 8", "TMA", "--copy cp_async")),
    ({"math": "mma_sync", "swizzle": "64B", "pad": 8}, ("--pad 8", "swizzled", "--swizzle none")),
    ({"math": "mma_sync", "pad": 12}, ("--pad 12", "multiples of 8", "--pad 16")),
    ({"schedule": "pingpong", "persistent": False}, ("--no-persistent", "pingpong", "--persistent")),
    ({"split_k": 4, "persistent": True}, ("--split-k 4", "CTAs of their own", "--no-persistent")),
    ({"split_k": 4, "schedule": "pingpong"}, ("--split-k 4", "--schedule cooperative")),
    ({"split_k": 100}, ("--split-k 100", "64 steps", "--split-k 64")),
    ({"schedule": "cooperative", "consumer_warpgroups": 1},
     ("--consumer-warpgroups 1", "2 or 3", "--consumer-warpgroups 2")),
    ({"schedule": "warp_specialized", "consumer_warpgroups": 3},
     ("--consumer-warpgroups 3", "1", "--consumer-warpgroups 1")),
    ({"schedule": "pingpong", "consumer_warpgroups": 3}, ("--consumer-warpgroups 3", "--consumer-warpgroups 2")),
    ({"math": "mma_sync", "warps": "8x8"}, ("--warps 8x8", "64 warps", "32", "--warps 8x4")),
    (
        {"tile": "128x128x32", "swizzle": "128B"},
        ("--swizzle 128B", "A's rows", "32 bf16 (64 bytes)", "128 bytes", "--swizzle 64B", "--tile 128x128x64"),
    ),
    ({"tile": "128x32x64", "layout": "tt", "swizzle": "128B"}, ("B's rows", "64 bytes", "along N", "64B")),
    (
        {"tile": "320x64x64", "layout": "nn", "math": "mma_sync", "copy": "tma", "swizzle": "none"},
        ("--swizzle none", "320", "256", "--swizzle 128B"),
    ),
    ({"wgmma_depth": 4, "stages": 4}, ("--wgmma-depth 4", "ring of 4", "at most 3")),
    ({"wgmma_depth": 2, "stages": 3, "schedule": "multistage"}, ("--wgmma-depth 2", "ring of 3", "at most 1")),
    ({"wgmma_depth": 1, "stages": 1, "schedule": "multistage"}, ("--wgmma-depth 1", "ring of 1", "at most 0")),
    ({"setmaxnreg": "40/240"}, ("--setmaxnreg 40/240", "66560", "64512", "--setmaxnreg 40/232")),
    ({"registers": 40}, ("--setmaxnreg 40/232", "64512", "15360", "--registers 168")),
    ({"setmaxnreg": "24/64"}, ("--tile", "64 under --setmaxnreg 24/64", "use --")),
    ({"setmaxnreg": "40/232", "schedule": "multistage"}, ("--setmaxnreg 40/232", "multistage", "none")),
    ({"raster_order": "gpc"}, ("--raster-order gpc", "without clusters", "--cluster 2x1", "leave it out")),
    ({"cluster": "8x4"}, ("--cluster 8x4", "32 CTAs", "at most 16", "--cluster 8x2")),
    ({"cluster": "2x1", "copy": "cp_async"}, ("--cluster 2x1", "cp_async", "--copy tma")),
    ({"cluster": "2x1", "schedule": "multistage"}, ("--cluster 2x1", "multistage", "--schedule cooperative")),
    ({"epilogue": "tma_store", "copy": "cp_async"}, ("--epilogue tma_store", "cp_async", "--epilogue smem")),
    ({"epilogue": "tma_reduce"}, ("--epilogue tma_reduce", "--beta 1", "--epilogue tma_store")),
    ({"epilogue": "smem", "split_k": 2}, ("--epilogue smem", "--split-k 2", "--epilogue direct")),
    ({"epilogue": "smem", "tile": "64x8x64", "out_dtype": "fp8"}, ("8 fp8 (8 bytes)", "16 bytes", "direct")),
    ({"m": 1 << 24, "n": 1 << 24}, ("--m 16777216", "GB", "at most", "use smaller")),
    ({"m": 1 << 17, "n": 1 << 17, "k": 8, "tile": "64x8x64"}, ("--tile 64x8x64", "33554432 tiles", "larger")),
]


@pytest.mark.parametrize(("options", "words"), KERNEL_REFUSALS, ids=lambda value: str(value)[:60])
def test_a_kernel_that_cannot_be_is_refused_in_one_sentence(
    h200: GpuSpec, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(KernelError) as refused:
        GemmParams(**{**SIZE, **options}).launch(h200)
    assert_one_sentence(str(refused.value), words)


LAUNCH_REFUSALS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("h200", {"tile": "128x256x64", "stages": 5}, ("--stages 5", "246896", "232448", "at most --stages 4")),
    ("h200", {"tile": "128x256x64", "stages": 99}, ("--stages 99", "232448", "at most --stages 4")),
    ("h200", {"tile": "64x8x16", "stages": 70}, ("--stages 70: kernels of at most 64 stages", "at most --stages 64")),
    ("h200", {"tile": "256x128x512"}, ("--stages 1", "394288", "232448", "use --tile 256x128x288")),
    ("a100", {"stages": 12}, ("--stages 12", "197856", "166912", "at most --stages 10")),
    ("a100", {"schedule": "cooperative"}, ("--schedule cooperative", "a100_sxm_40gb has no wgmma", "--schedule multistage")),
    ("a100", {"math": "wgmma"}, ("--math wgmma", "a100_sxm_40gb has no wgmma", "--math mma_sync")),
    ("a100", {"copy": "tma"}, ("--copy tma", "a100_sxm_40gb has no tma", "--copy cp_async")),
    ("a100", {"cluster": "2x1"}, ("--cluster 2x1", "a100_sxm_40gb has no cluster", "--cluster 1x1")),
    ("a100", {"consumer_warpgroups": 2}, ("--consumer-warpgroups 2", "a100_sxm_40gb has no wgmma", "--warps")),
    ("a100", {"setmaxnreg": "40/232"}, ("--setmaxnreg 40/232", "a100_sxm_40gb has no setmaxnreg", "none")),
    ("a100", {"epilogue": "tma_store"}, ("--epilogue tma_store", "a100_sxm_40gb has no tma", "--epilogue smem")),
    ("a100", {"dtype": "fp8"}, ("--dtype fp8", "a100_sxm_40gb has no fp8", "--dtype bf16")),
]


@pytest.mark.parametrize(("gpu", "options", "words"), LAUNCH_REFUSALS, ids=lambda value: str(value)[:60])
def test_what_a_gpu_cannot_hold_is_refused_in_one_sentence(
    request: pytest.FixtureRequest, gpu: str, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(LaunchError) as refused:
        GemmParams(**{**SIZE, **options}).launch(request.getfixturevalue(gpu))
    assert_one_sentence(str(refused.value), words)


def assert_one_sentence(message: str, words: tuple[str, ...]) -> None:
    assert message.startswith("--")
    assert "\n" not in message
    assert "use " in message or "leave it out" in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"m": 0}, "--m is 0, wants 1 or more"),
        ({"n": -5}, "--n is -5, wants 1 or more"),
        ({"k": 1 << 25}, "wants at most 16777216"),
        ({"m": 12.5}, "--m is 12.5, wants a whole number"),
        ({"batch": 0}, "--batch is 0, wants 1 or more"),
        ({"tile": "128x256"}, "is '128x256', wants 3 numbers from 1 to 1024 joined by x, such as 128x256x64"),
        ({"tile": "128x0x64"}, "wants 3 numbers from 1"),
        ({"tile": (128, "a", 64)}, "is '128xax64', wants 3 numbers"),
        ({"tile": "128x4096x64"}, "1024"),
        ({"warps": "2xx2"}, "wants 2 numbers from 1 to 32 joined by x, such as 2x1"),
        ({"cluster": "32x1"}, "from 1 to 16"),
        ({"cluster": -2}, "valid tuple"),
        ({"stages": 0}, "--stages is 0, wants 1 or more"),
        ({"dtype": "fp7"}, "--dtype 'fp7' is unknown; did you mean"),
        ({"setmaxnreg": "40-232"}, "wants producer/consumer such as 40/232"),
        ({"setmaxnreg": "41/232"}, "multiples of 8 from 24 to 256"),
        ({"alpha": float("nan")}, "finite number"),
        ({"swizzle_size": 0}, "--swizzle-size is 0, wants 1 or more"),
        ({"split_k": 257}, "wants at most 256"),
        ({"wgmma_depth": 9}, "wants at most 8"),
        ({"shape": 3}, "--shape is no option of this kernel"),
        ({"stagse": 3}, "did you mean 'stages'"),
        ({"m": 0, "stagse": 3}, "--stagse is no option of this kernel"),
        ({"m": None}, "--m is None, wants a whole number"),
    ],
)
def test_a_value_that_no_option_takes_is_refused_by_the_model(options: dict[str, Any], words: str) -> None:
    with pytest.raises(KernelError) as refused:
        GemmParams(**{**SIZE, **options})
    assert words in str(refused.value)


def test_as_many_stages_as_the_refusal_names_do_fit(every_gpu: GpuSpec) -> None:
    for tile in ("64x64x64", "128x128x64", "64x256x32", "192x64x16"):
        for epilogue, persistent in (("direct", False), ("smem", True)):
            options: dict[str, Any] = {"tile": tile, "epilogue": epilogue, "persistent": persistent}
            with pytest.raises(LaunchError, match="at most --stages") as refused:
                GemmParams(**SIZE, **options, stages=64).launch(every_gpu)
            most = int(str(refused.value).split("at most --stages ")[1].split()[0])
            launch = GemmParams(**SIZE, **options, stages=most).launch(every_gpu)
            assert check(launch, every_gpu).ctas_per_sm == 1
            with pytest.raises(LaunchError):
                GemmParams(**SIZE, **options, stages=most + 1).launch(every_gpu)
