"""Launches that together reach every op and every mechanism of the engine, most of them small.

Options of kernel models are those of real kernels: of ``kernels/*/case.py`` with what SASS tells of them, of Triton's loops
and of cuBLAS's. What kernel models do not reach, kernels in the public vocabulary do (``kernels.py``, ``failing.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpusim import GpuSpec, Launch, load_gpu
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.simulate.settings import L2State
from gpusim.workload.compiled_code import NO_CODE
from tests.reference.programs import BEYOND

from . import kernels
from .answer import Answer, answer
from .failing import DEADLOCKS, HAZARDS, REFUSALS

MHZ: Mapping[str, float] = {
    "h200_sxm": 1755.0, "h100_sxm": 1620.0, "h100_pcie": 1412.5, "a100_sxm_80gb": 1275.0, "toy": 1000.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A launch on a GPU at a clock, and how L2 and what is free are set."""

    name: str
    make: Callable[[GpuSpec], Launch]
    gpu: str = "h200_sxm"
    l2: L2State = "cold"
    mhz: float = 0.0
    ideals: tuple[str, ...] = ()
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Numbers of parts that are other than the GPU's: such as toy's, of which many are none."""

    @property
    def spec(self) -> GpuSpec:
        """The GPU."""
        gpu = load_gpu(self.gpu)
        return replace(gpu, **{part: replace(getattr(gpu, part), **numbers) for part, numbers in self.changes.items()})

    def launch(self) -> Launch:
        """What is launched."""
        return self.make(self.spec)

    def answer(self) -> Answer:
        """What the engine says."""
        gpu = self.spec
        return answer(self.make(gpu), gpu, mhz=self.mhz or MHZ[self.gpu], l2=self.l2, ideals=self.ideals)


def model(name: str, kernel: str, options: Mapping[str, Any], **settings: Any) -> Case:
    """Of a kernel model. A product has no code but what is given."""
    if kernel == "gemm":
        options = {"compiled_code": NO_CODE, **options}
    return Case(name=name, make=lambda gpu: KERNEL_MODELS[kernel].params.model_validate(options).launch(gpu), **settings)


def user(name: str, make: Callable[..., Launch], *arguments: Any, **settings: Any) -> Case:
    """Of a kernel in the public vocabulary; settings that a Case has are its, others the kernel's."""
    of_case = {key: settings.pop(key) for key in tuple(settings) if key in Case.__dataclass_fields__}
    made = partial(make, *arguments, **settings)
    return Case(name=name, make=lambda gpu: made(), **of_case)


# ------------------------------------------------------------------------------------------ products

SMALL = {"m": 512, "n": 768, "k": 512}
EDGES = {"m": 1000, "n": 520, "k": 200}
COOPERATIVE = {"tile": "128x256x64", "stages": 4, "schedule": "cooperative"}
PINGPONG = {"tile": "64x256x64", "stages": 4, "schedule": "pingpong", "persistent": True}
OF_SASS = {
    "cooperative": {
        "compiled_code": NO_CODE.replaced(
            prologue={"chain_cycles": 740.0},
            mainloop={"chain_cycles": 302.0},
            producer={"chain_cycles": 125.0},
            tile_scheduler={"chain_cycles": 396.0, "chain_during_wgmma_cycles": 456.0, "imad_wide": 9.0},
            epilogue={"chain_cycles": 2742.0, "chain_during_wgmma_cycles": 3651.0, "imad_wide": 64.0},
            layout={"producer": (0x17240, 0x17CB0)},
        ),
        "registers": 168,
    },
    "parts": {
        "compiled_code": NO_CODE.replaced(
            prologue={"chain_cycles": 701.0},
            mainloop={"chain_cycles": 302.0},
            producer={"chain_cycles": 125.0},
            tile_scheduler={"chain_cycles": 396.0, "imad_wide": 9.0},
            epilogue={"chain_cycles": 2636.0, "imad_wide": 64.0},
            layout={"last_part": (0xCCD0, 0x12BB0)},
        ),
    },
    "apart": {
        "compiled_code": NO_CODE.replaced(
            prologue={"chain_cycles": 701.0},
            epilogue={"chain_cycles": 2636.0},
            layout={"epilogue": (0x12D10, 0x15400)},
        ),
    },
    "pingpong": {
        "compiled_code": NO_CODE.replaced(
            prologue={"chain_cycles": 720.0},
            mainloop={"chain_cycles": 300.0},
            producer={"chain_cycles": 125.0},
            tile_scheduler={
                "chain_cycles": 400.0, "chain_during_wgmma_cycles": 461.0, "chain_after_turn_cycles": 237.0,
                "imad_wide": 9.0,
            },
            epilogue={"chain_cycles": 2791.0, "chain_during_wgmma_cycles": 3701.0, "imad_wide": 64.0},
            layout={"producer": (0x17660, 0x180D0)},
        ),
        "registers": 168,
    },
    "multistage": {
        "compiled_code": NO_CODE.replaced(
            mainloop={"chain_cycles": 390.0},
            producer={"chain_cycles": 182.0},
            tile_scheduler={"chain_cycles": 411.0, "imad_wide": 9.0},
            epilogue={"chain_cycles": 799.0, "imad_wide": 19.0},
        ),
        "registers": 120,
    },
}  # fmt: skip
"""Own code of kernels/hopper_gemm's entry points."""
BY_WARPS = {"copy": "cp_async", "math": "mma_sync", "schedule": "multistage"}
HGEMM = {
    **BY_WARPS, "layout": "tn", "tile": "128x128x32", "warps": "2x2", "stages": 4, "swizzle": "64B", "pad": 0,
    "register_stages": 2, "epilogue": "direct", "prefetch": "before_mma", "swizzle_size": 2, "l2_promotion": 128,
    "stall_on_ldgsts": True, "registers": 168,
    "compiled_code": NO_CODE.replaced(
        mainloop={"math_before_copies": 0.598, "math_before_barrier": 1.25, "math_before_use": 1.0, "chain_cycles": 94.0},
        tile_scheduler={"chain_cycles": 486.0},
        epilogue={"chain_cycles": 120.0},
    ),
}  # fmt: skip
SGEMM = {
    "math": "fma", "dtype": "fp32", "layout": "nt", "tile": "64x64x8", "warps": "2x2", "stages": 1, "epilogue": "direct",
    "prefetch": "before_mma", "registers": 62,
    "compiled_code": NO_CODE.replaced(
        mainloop={"fma_bank_reads": 1.23, "instructions": 17.0, "chain_cycles": 76.0},
        tile_scheduler={"chain_cycles": 497.0},
        epilogue={"chain_cycles": 111.0},
    ),
}  # fmt: skip
TRITON = {
    "layout": "tn", "schedule": "multistage", "math": "wgmma", "consumer_warpgroups": 2, "consumer_split": "m",
    "tile": "128x128x64",
    "stages": 3, "wgmma_depth": 1, "prefetch": "after_wait", "swizzle_size": 8,
}  # fmt: skip
TRITON_CODE = NO_CODE.replaced(mainloop={"chain_cycles": 240.0}, producer={"chain_cycles": 80.0})
POINTERS_CODE = NO_CODE.replaced(mainloop={"imad_wide_per_copy": 1})

PRODUCTS = [
    model("gemm_cooperative", "gemm", {"m": 1024, "n": 1024, "k": 512, **COOPERATIVE}),
    model("gemm_cooperative_warm", "gemm", {"m": 2048, "n": 2048, "k": 256, **COOPERATIVE}, l2="warm", mhz=1980.0),
    model("gemm_cooperative_two_waves", "gemm", {"m": 2048, "n": 2304, "k": 256, "tile": "128x128x64", "stages": 4,
                                                 "schedule": "cooperative", "epilogue": "smem"}),
    model("gemm_cooperative_persistent", "gemm", {"m": 2048, "n": 2304, "k": 256, **COOPERATIVE, "persistent": True,
                                                  **OF_SASS["cooperative"], "swizzle_size": 2}, l2="flushed"),
    model("gemm_cooperative_cluster", "gemm", {"m": 1024, "n": 1536, "k": 512, "tile": "128x128x64", "stages": 3,
                                               "schedule": "cooperative", "cluster": "2x1", "epilogue": "tma_store"}),
    model("gemm_cooperative_cluster_gpc", "gemm", {"m": 2048, "n": 2048, "k": 192, **COOPERATIVE, "cluster": "1x2",
                                                   "raster_order": "gpc", "raster": "along_m", "raster_boustrophedon": True,
                                                   "cluster_sync": "relaxed", "persistent": True}),
    model("gemm_cooperative_three", "gemm", {"m": 768, "n": 768, "k": 256, "tile": "192x192x64", "consumer_warpgroups": 3,
                                             "schedule": "cooperative", "stages": 3, "setmaxnreg": "40/152",
                                             "consumer_split": "m"}),
    model("gemm_pingpong", "gemm", {"m": 1024, "n": 2048, "k": 256, **PINGPONG, **OF_SASS["pingpong"]}),
    model("gemm_pingpong_cluster", "gemm", {"m": 2048, "n": 2304, "k": 256, **PINGPONG, "cluster": "2x1",
                                            "epilogue": "tma_store"}, l2="warm"),
    model("gemm_warp_specialized", "gemm", {**SMALL, "tile": "128x128x64", "stages": 2, "schedule": "warp_specialized",
                                            "epilogue": "smem"}),
    model("gemm_warp_specialized_batch", "gemm", {"m": 256, "n": 256, "k": 192, "batch": 7, "tile": "64x128x64",
                                                  "stages": 3, "schedule": "warp_specialized", "beta": 0.5,
                                                  "bias": True, "activation": "gelu", "layout": "nn"}),
    model("gemm_by_cp_async_producer", "gemm", {**SMALL, "tile": "128x128x64", "stages": 3, "schedule": "cooperative",
                                                "copy": "cp_async"}),
    model("gemm_split_k", "gemm", {"m": 256, "n": 512, "k": 2048, "tile": "128x128x64", "stages": 3, "split_k": 4,
                                   "schedule": "warp_specialized", **OF_SASS["parts"]}, l2="flushed"),
    model("gemm_split_k_second_kernel", "gemm", {"m": 512, "n": 512, "k": 1024, "tile": "128x128x64", "stages": 3,
                                                 "split_k": 3, "split_k_mode": "second_kernel",
                                                 "schedule": "cooperative", "mbarrier_arrive": "thread",
                                                 **OF_SASS["apart"]}, l2="flushed"),
    model("gemm_split_k_elements", "gemm", {"m": 384, "n": 256, "k": 1024, "tile": "128x128x32", **BY_WARPS,
                                            "split_k": 5, "split_k_mode": "second_kernel", "splitk_reduction": "scalar"}),
    model("gemm_edges", "gemm", {"m": 1000, "n": 1000, "k": 408, "tile": "128x256x64", "stages": 3,
                                 "schedule": "cooperative", "epilogue": "tma_store"}),
    model("gemm_edges_odd_pitch", "gemm", {"m": 515, "n": 777, "k": 333, "alignment": 8, "tile": "128x128x64", "stages": 3,
                                           "schedule": "warp_specialized"}),
    model("gemm_fp8", "gemm", {"m": 512, "n": 1024, "k": 1024, "tile": "128x256x128", "stages": 3, "dtype": "fp8",
                               "schedule": "cooperative", "cluster": "2x1"}),
    model("gemm_tf32", "gemm", {**SMALL, "tile": "128x128x32", "stages": 3, "dtype": "tf32", "schedule": "cooperative",
                                "epilogue": "direct"}),
    model("gemm_int8", "gemm", {**SMALL, "tile": "128x128x128", "stages": 3, "dtype": "int8", "schedule": "cooperative",
                                "out_dtype": "int8"}),
    model("gemm_fp16_nt", "gemm", {**SMALL, "tile": "128x128x64", "stages": 3, "dtype": "fp16", "layout": "nt",
                                   "schedule": "warp_specialized", "l2_promotion": 256, "prefetch_tensormap": False}),
    model("gemm_multistage_tma", "gemm", {**SMALL, "tile": "128x128x64", "stages": 3, "schedule": "multistage",
                                          "copy": "tma", "math": "wgmma", "consumer_warpgroups": 2, "prefetch": "after_mma",
                                          **OF_SASS["multistage"]}),
    model("gemm_triton_descriptors", "gemm", {"m": 1024, "n": 1536, "k": 512, **TRITON, "copy": "tma",
                                              "epilogue": "tma_store", "prefetch_tensormap": False,
                                              "compiled_code": TRITON_CODE}),
    model("gemm_triton_meets", "gemm", {**SMALL, **TRITON, "copy": "tma", "epilogue": "smem", "cta_barrier": "before_mma",
                                        "wgmma_depth": 0}),
    model("gemm_triton_pointers", "gemm", {"m": 1024, "n": 1536, "k": 384, **TRITON, "copy": "cp_async",
                                           "epilogue": "smem", "fence": False,
                                           "compiled_code": POINTERS_CODE}),
    model("gemm_triton_pointers_shared_sms", "gemm", {"m": 2048, "n": 2304, "k": 192, **TRITON, "tile": "64x128x64",
                                                      "consumer_warpgroups": 1, "stages": 2, "copy": "cp_async",
                                                      "epilogue": "smem", "registers": 96,
                                                      "compiled_code": POINTERS_CODE}),
    model("gemm_hgemm", "gemm", {**SMALL, **HGEMM}),
    model("gemm_hgemm_single_stage", "gemm", {**SMALL, **BY_WARPS, "tile": "64x64x64", "warps": "2x4", "stages": 1,
                                              "swizzle": "64B", "register_stages": 2, "stall_on_ldgsts": False,
                                              "compiled_code": NO_CODE.replaced(mainloop={"chain_cycles": 94.0}),
                                              "epilogue": "smem"}),
    model("gemm_hgemm_padded", "gemm", {**EDGES, **BY_WARPS, "tile": "64x64x32", "warps": "2x4", "stages": 3, "pad": 16,
                                        "swizzle": "none", "register_stages": 1, "epilogue": "smem"}, l2="warm"),
    model("gemm_hgemm_unswizzled", "gemm", {**SMALL, **HGEMM, "swizzle": "none", "warps": "2x4", "stages": 3,
                                            "stall_on_ldgsts": None}),
    model("gemm_narrow_copies", "gemm", {"m": 515, "n": 386, "k": 330, "tile": "128x128x32", "stages": 3}),
    model("gemm_ldg", "gemm", {"m": 515, "n": 387, "k": 331, "tile": "128x128x32", "warps": "2x4"}),
    model("gemm_batch_array", "gemm", {"m": 256, "n": 256, "k": 192, "batch": 3, "batch_mode": "array", "tile": "128x128x64",
                                       "schedule": "warp_specialized", "epilogue": "tma_store"}),
    model("gemm_cluster_unparted", "gemm", {"m": 512, "n": 24, "k": 256, "tile": "64x8x64", "cluster": "4x1",
                                            "schedule": "warp_specialized"}),
    model("gemm_tf32_tt", "gemm", {**SMALL, "tile": "128x128x32", "stages": 3, "dtype": "tf32", "layout": "tt"}),
    model("gemm_mma_sync_tma", "gemm", {**SMALL, "tile": "128x128x64", "stages": 3, "schedule": "multistage",
                                        "copy": "tma", "math": "mma_sync"}),
    model("gemm_mma_sync_int8", "gemm", {**SMALL, **BY_WARPS, "tile": "128x64x64", "stages": 3, "dtype": "int8"}),
    model("gemm_sgemm", "gemm", {"m": 256, "n": 512, "k": 64, **SGEMM}),
    model("gemm_sgemm_ring", "gemm", {"m": 1024, "n": 1024, "k": 32, **SGEMM, "tile": "128x128x8", "layout": "tn",
                                      "warps": "4x2", "stages": 2, "registers": 128}),
    model("gemm_sgemm_single", "gemm", {"m": 130, "n": 200, "k": 52, **SGEMM, "layout": "tt", "register_stages": 1,
                                        "compiled_code": SGEMM["compiled_code"].replaced(mainloop={"instructions": None})}),
    model("gemm_no_conflicts", "gemm", {**SMALL, **BY_WARPS, "tile": "64x64x32", "stages": 3, "swizzle": "none"},
          ideals=("bank_conflicts",)),
    model("gemm_no_epilogue", "gemm", {"m": 1024, "n": 1024, "k": 256, **COOPERATIVE}, ideals=("epilogue", "latency")),
    model("gemm_no_own_code", "gemm", {"m": 1024, "n": 1024, "k": 256, **PINGPONG, **OF_SASS["pingpong"]},
          ideals=("overhead_code", "imad_wide")),
    model("gemm_free_memory", "gemm", {"m": 1024, "n": 1024, "k": 256, **COOPERATIVE},
          ideals=("hbm", "l2", "tma", "launch")),
    model("gemm_2048", "gemm", {"m": 2048, "n": 2048, "k": 2048, **COOPERATIVE}),
    model("gemm_4096", "gemm", {"m": 4096, "n": 4096, "k": 4096, **COOPERATIVE}),
    model("gemm_waves_apart", "gemm", {"m": 8192, "n": 8192, "k": 512, **COOPERATIVE, "swizzle_size": 4}),
    model("gemm_small_tiles", "gemm", {"m": 2048, "n": 2048, "k": 256, **BY_WARPS, "tile": "64x64x32", "stages": 3}),
]  # fmt: skip

# ------------------------------------------------------------------------------------------ streams

STREAMS = [
    model("elementwise_copy", "elementwise", {"op": "copy", "elements": 1 << 20, "vector_bytes": 4,
                                              "items_per_thread": 4}),
    model("elementwise_add_ragged", "elementwise", {"op": "add", "elements": 1_000_003, "dtype": "bf16"}),
    model("elementwise_fill", "elementwise", {"op": "fill", "elements": 1 << 20, "items_per_thread": 2}),
    model("elementwise_scale_warm", "elementwise", {"op": "scale", "elements": 1 << 20, "threads": 512}, l2="warm"),
    model("elementwise_written_back", "elementwise", {"op": "add", "elements": 1 << 21}, changes={
        "l2": {"capacity_bytes": 4 << 20, "write_back_queue_bytes": 65536.0}}),
    model("elementwise_large", "elementwise", {"op": "add", "elements": 1 << 24, "items_per_thread": 8}),
    model("smem_copy_vectorized", "smem_copy", {"m": 1024, "n": 1024}),
    model("smem_copy_scalar", "smem_copy", {"m": 500, "n": 260, "copy": "scalar", "tile": (64, 32), "dtype": "fp32"}),
    model("smem_copy_cp_async", "smem_copy", {"m": 1024, "n": 512, "copy": "cp_async", "swizzle": "128B"}),
    model("smem_copy_tma", "smem_copy", {"m": 1000, "n": 1000, "copy": "tma", "swizzle": "128B"}),
    model("strided_copy", "strided_copy", {"elements": 1 << 18, "stride": 9, "items_per_thread": 4}),
    model("transpose_none", "transpose", {"m": 512, "n": 500, "smem": "none"}),
    model("transpose_naive", "transpose", {"m": 640, "n": 512, "smem": "naive"}),
    model("transpose_padded", "transpose", {"m": 500, "n": 512, "dtype": "fp16"}, l2="warm"),
    model("reduction_row", "reduction", {"rows": 512, "columns": 4096}),
    model("reduction_column", "reduction", {"rows": 2048, "columns": 512, "axis": "column"}),
    model("softmax_block", "softmax", {"rows": 300, "columns": 2048, "per": "block"}),
    model("softmax_warp", "softmax", {"rows": 1000, "columns": 512, "per": "warp", "dtype": "bf16"}),
    model("layer_norm", "layer_norm", {"rows": 512, "columns": 2048}),
    model("layer_norm_warm", "layer_norm", {"rows": 256, "columns": 4096, "dtype": "bf16"}, l2="warm"),
    model("gather_random", "gather", {"rows": 4096, "columns": 256, "table_rows": 8192}),
    model("gather_sequential", "gather", {"rows": 2000, "columns": 64, "table_rows": 4000, "index": "sequential"}),
    model("sgemm_naive", "sgemm_naive", {"m": 96, "n": 160, "k": 64, "way": "naive"}),
    model("sgemm_coalesced", "sgemm_naive", {"m": 160, "n": 200, "k": 64}),
    model("sgemm_tiled", "sgemm_naive", {"m": 320, "n": 256, "k": 96, "way": "tiled"}),
]  # fmt: skip

# ------------------------------------------------------------------------------------------ other GPUs

ELSEWHERE = [
    model("h100_gemm", "gemm", {"m": 1024, "n": 1280, "k": 512, **COOPERATIVE, "cluster": "2x1"}, gpu="h100_sxm"),
    model("h100_pcie_gemm", "gemm", {"m": 1024, "n": 1024, "k": 256, **PINGPONG}, gpu="h100_pcie", l2="warm"),
    model("a100_gemm", "gemm", {"m": 512, "n": 1024, "k": 256, "tile": "128x128x32", "stages": 3, **BY_WARPS},
          gpu="a100_sxm_80gb"),
    model("a100_softmax", "softmax", {"rows": 400, "columns": 1024}, gpu="a100_sxm_80gb"),
    model("a100_transpose", "transpose", {"m": 500, "n": 500}, gpu="a100_sxm_80gb", l2="flushed"),
    model("toy_gemm", "gemm", {"m": 256, "n": 512, "k": 512, "tile": "64x128x64", "stages": 2,
                               "schedule": "warp_specialized"}, gpu="toy"),
    model("toy_multistage", "gemm", {"m": 256, "n": 256, "k": 256, "tile": "64x64x32", "stages": 3, **BY_WARPS},
          gpu="toy", l2="warm"),
    model("toy_transpose", "transpose", {"m": 300, "n": 128}, gpu="toy"),
]  # fmt: skip

# ------------------------------------------------------------------------------------------ kernels of one's own

SMALL_L2 = {"l2": {"capacity_bytes": 8 << 20, "write_back_queue_bytes": 65536.0}}
LOSES_PARTS = {"l2": {"capacity_bytes": 3 << 20, "eviction_width_fraction": 0.3, "write_back_queue_bytes": 65536.0}}
REPLAYS = {"smem": {"overtakable_wavefronts": 100.0, "warp_cycles_per_wavefront": 2.0}}

OWN = [
    user("far_words_2", kernels.far_words, 2, 24),
    user("far_words_4_toy", kernels.far_words, 4, 12, gpu="toy", changes={"dsmem": {"cluster_barrier_cycles": 30.0}}),
    user("multicast_ring_2", kernels.multicast_ring, 2, 64),
    user("multicast_ring_4_h100", kernels.multicast_ring, 4, 40, gpu="h100_sxm"),
    user("hand_overs", kernels.hand_overs, 20),
    user("traded_registers", kernels.traded_registers, 150),
    user("conflicts_shared_sms", kernels.conflicts, 32, 300),
    user("conflicts_in_parts", kernels.conflicts, 40, 140, num_parts=4),
    user("conflicts_short", kernels.conflicts, 2, 140),
    user("conflicts_toy", kernels.conflicts, 24, 12, gpu="toy", changes=REPLAYS),
    user("crowds", kernels.crowds, 500),
    user("crowds_toy", kernels.crowds, 8, gpu="toy", changes=REPLAYS),
    user("kept_lines", kernels.kept_lines, 6, 40, 16384),
    user("lone_readers", kernels.lone_readers, 8),
    user("swaps", kernels.swaps, 150),
    user("swaps_toy", kernels.swaps, 6, gpu="toy", l2="warm"),
    user("fragments", kernels.fragments, 140),
    user("box_edges", kernels.box_edges, 40), user("made_maps", kernels.made_maps, 300),
    user("one_barrier", kernels.one_barrier, 150),
    user("edges_of_all", kernels.edges_of_all, 20),
    user("edges_of_all_toy", kernels.edges_of_all, 4, gpu="toy", l2="warm"),
    user("copies_lru", kernels.copies, 160),
    user("copies_planned", kernels.copies, 160, is_planned=True, l2="warm"),
    user("copies_a100", kernels.copies, 160, gpu="a100_sxm_80gb", mhz=1410.0, is_planned=True),
    user("conflicts_h100_pcie", kernels.conflicts, 16, 130, gpu="h100_pcie"),
    user("named_tiles", kernels.named_tiles, 30),
    user("rereads_warm", kernels.rereads, 8, 30, l2="warm"),
    user("rereads_stored", kernels.rereads, 24, 24, l2="stored", changes={"l2": {"capacity_bytes": 1 << 20}}),
    user("copies_planned_stored", kernels.copies, 160, is_planned=True, l2="stored"),
    user("rereads_toy_evicts", kernels.rereads, 4, 40, gpu="toy", l2="warm", changes={"l2": {"capacity_bytes": 1 << 20}}),
    *(
        user(f"rewrites_{name}", kernels.rewrites, 60, **more, changes={"l2": {"capacity_bytes": 1 << 20}})
        for name, more in {"h200": {}, "h200_warm": {"l2": "warm"}, "toy": {"gpu": "toy"}}.items()
    ),
    user("rereads_evicts", kernels.rereads, 24, 24, changes={"l2": {"capacity_bytes": 1 << 20}}),
    user("uneven", kernels.uneven, 700),
    user("walkers", kernels.walkers, 500),
    user("revisits", kernels.revisits, 1200, num_panels=500, changes=LOSES_PARTS),
    user("revisits_warm", kernels.revisits, 900, num_panels=400, l2="warm", changes=LOSES_PARTS),
    user("revisits_h100", kernels.revisits, 900, num_panels=300, gpu="h100_sxm", changes=LOSES_PARTS),
    user("hinted_small_l2", kernels.hinted, 800, changes=SMALL_L2),
    user("hinted", kernels.hinted, 400),
    user("hinted_warm", kernels.hinted, 400, l2="warm"),
    user("beside_products", kernels.beside_products, 20),
    user("beside_products_flushed", kernels.beside_products, 3, l2="flushed"),
    user("fragments_alone", kernels.fragments_alone, 140),
    user("fragments_alone_free", kernels.fragments_alone, 140, ideals=("epilogue",)),
    user("stores_beside_64", kernels.stores_beside, 20, n=64),
    user("stores_beside_8", kernels.stores_beside, 20, n=8),
    user("turns_of_products", kernels.turns_of_products, 300),
    user("turns_of_products_toy", kernels.turns_of_products, 5, gpu="toy", num_roles=3),
    user("sums_by_age", kernels.sums, 400, by_age=True),
    user("sums_in_turn", kernels.sums, 300, by_age=False, num_warps=8),
    user("sums_alone", kernels.sums, 100, by_age=False),
    *(user(f"drawn_{seed}", kernels.drawn, seed, 30) for seed in range(6)),
    *(
        user(f"drawn_toy_{seed}", kernels.drawn, seed, 10, gpu="toy", num_roles=4, changes=BEYOND) for seed in range(10, 13)
    ),
    user("drawn_h100", kernels.drawn, 20, 150, gpu="h100_sxm", num_ops=25),
]

FAILING = [
    *(user(f"deadlock_{name}", make, gpu="toy", l2="warm") for name, make in DEADLOCKS.items()),
    *(user(f"hazard_{name}", make, gpu="toy", l2="warm") for name, make in HAZARDS.items()),
    *(user(f"refusal_{name}", make, gpu="toy", l2="warm") for name, make in REFUSALS.items()),
    user("deadlock_on_h200", DEADLOCKS["many_blocked"]),
    user("refusal_clusters_a100", DEADLOCKS["cluster_barrier"], gpu="a100_sxm_80gb"),
    user("refusal_tma_a100", DEADLOCKS["too_few_bytes"], gpu="a100_sxm_80gb"),
    user("refusal_registers_a100", DEADLOCKS["registers"], gpu="a100_sxm_80gb"),
    user("hazard_on_h200", HAZARDS["refilled_by_tma"]),
]  # fmt: skip

CASES: Mapping[str, Case] = {case.name: case for case in (*PRODUCTS, *STREAMS, *ELSEWHERE, *OWN, *FAILING)}
"""All of them, by name."""

FROZEN = Path(__file__).parents[2] / "validation" / "frozen" / "launches.json"
"""Where their answers stand, written by ``scripts/freeze_engine.py``."""


def frozen_answers() -> dict[str, dict[str, Any]]:
    """By name: cycles, events, hash of the trace and a digest of the rest, or the error and its sentence."""
    found: dict[str, dict[str, Any]] = json.loads(FROZEN.read_text(encoding="utf-8"))
    return found
