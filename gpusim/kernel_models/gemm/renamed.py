"""Former names of a GEMM's options, so that scripts, documents and measured tables with them stay valid."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpusim.kernel_models.spelling import Renamed

RENAMED: Mapping[str, Renamed] = MappingProxyType({
    "consumers": Renamed("consumer_warpgroups"),
    "split": Renamed("consumer_split"),
    "refill": Renamed("prefetch", {"before_math": "before_mma", "after_math": "after_mma"}),
    "copies_held": Renamed("stall_on_ldgsts"),
    "fetch_bytes": Renamed("l2_promotion"),
    "sum_by": Renamed("splitk_reduction", {"vectors": "vectorized", "elements": "scalar"}),
    "raster_snake": Renamed("raster_boustrophedon"),
    "raster_table": Renamed("raster_order"),
    "raster_group": Renamed("swizzle_size"),
    "meets": Renamed("cta_barrier", {"before_math": "before_mma"}),
    "cluster_meeting": Renamed("cluster_sync"),
    "arrivals": Renamed("mbarrier_arrive", {"elected": "warpgroup", "every_thread": "thread"}),
    "fragments": Renamed("register_stages", {"double": 2, "single": 1}),
    "prefetch_maps": Renamed("prefetch_tensormap"),
})
"""New names and values by former name."""

REMOVED: Mapping[str, str] = MappingProxyType(dict.fromkeys(
    (
        "math_before_copies", "math_before_meeting", "math_before_use", "wide_per_copy", "fma_bank_reads", "step_code",
        "step_instructions", "copy_code", "setup_code", "tile_code", "tile_wide_code", "tile_beside_code", "turn_code",
        "store_code", "store_wide_code", "store_beside_code", "producer_code_begin", "producer_code_end", "store_code_begin",
        "store_code_end", "last_part_code_begin", "last_part_code_end",
    ), "use --compiled-code, a file with all figures of compiled code",
))  # fmt: skip
"""Where to look, by option of an earlier release that has no successor."""
