"""CuTe's layout algebra on integers, tuples of integers, and layouts.

In: shapes, strides, offsets and coordinates. Out: layouts and offsets. The package knows no dtype, no memory, no time. Names
and order of arguments are CuTe's. Template arguments come last: ``upcast<2>(layout)`` is ``upcast(layout, 2)``.

``from gpusim.layout import *`` omits CuTe's ``filter`` and ``slice``, which would hide Python's. Import them by name, or
use ``layout(coord)`` with ``_`` for a slice.
"""

from __future__ import annotations

from gpusim.layout.algebra import (
    coalesce,
    complement,
    composition,
    domain_distribute,
    layout_of,
    left_inverse,
    max_common_layout,
    max_common_vector,
    nullspace,
    right_inverse,
)
from gpusim.layout.algebra import filter as filter
from gpusim.layout.divide import (
    blocked_product,
    ceil_div,
    evenly_divides,
    flat_divide,
    flat_product,
    logical_divide,
    logical_product,
    make_fragment_like,
    raked_product,
    tile_to_shape,
    tile_unzip,
    tiled_divide,
    tiled_product,
    tiler_remark,
    zipped_divide,
    zipped_product,
)
from gpusim.layout.draw import (
    draw_layout,
    draw_tv,
    explain,
    holders,
    layout_svg,
    layout_text,
    offset_table,
    table_text,
    tv_svg,
)
from gpusim.layout.int_tuple import (
    Coord,
    E,
    IntTuple,
    ScaledBasis,
    Stride,
    X,
    _,
    basis_like,
    compact_col_major,
    compact_order,
    compact_row_major,
    compatible,
    congruent,
    crd2crd,
    crd2idx,
    idx2crd,
    inner_product,
    product,
    product_each,
    product_like,
    round_up,
    shape_div,
    weakly_congruent,
)
from gpusim.layout.layout import (
    GenColMajor,
    GenRowMajor,
    Layout,
    LayoutLeft,
    LayoutRight,
    append,
    coprofile,
    cosize,
    depth,
    dice,
    filter_zeros,
    flatten,
    get,
    group_modes,
    is_injective,
    make_identity_layout,
    make_layout,
    make_layout_like,
    make_ordered_layout,
    offsets,
    prepend,
    rank,
    replace,
    select,
    shape,
    size,
    slice_and_offset,
    stride,
    take,
    unflatten,
    zip_layout,
)
from gpusim.layout.layout import slice as slice
from gpusim.layout.notation import (
    parse_byte_layout,
    parse_int_tuple,
    parse_layout,
    parse_swizzle,
    show_swizzle,
    units_remark,
)
from gpusim.layout.recast import downcast, max_alignment, recast_layout, upcast
from gpusim.layout.swizzle import (
    SWIZZLE_MODES,
    ByteLayout,
    ComposedLayout,
    Swizzle,
    element_bytes,
    make_swizzle,
    mode_of,
    span_bytes,
    swizzle_mode,
)
from gpusim.layout.tiled import (
    CopyAtomTV,
    MmaAtomTV,
    ThrCopy,
    ThrMma,
    TiledCopy,
    TiledMma,
    make_cotiled_copy,
    make_tiled_copy,
    make_tiled_copy_A,
    make_tiled_copy_B,
    make_tiled_copy_C,
    make_tiled_copy_D,
    make_tiled_copy_S,
)
from gpusim.layout.tiling import (
    Tensor,
    domain_offset,
    inner_partition,
    local_partition,
    local_tile,
    make_identity_tensor,
    make_tensor,
    outer_partition,
    recast,
)

__all__ = [
    "SWIZZLE_MODES", "ByteLayout", "ComposedLayout", "Coord", "CopyAtomTV", "E", "GenColMajor", "GenRowMajor", "IntTuple",
    "Layout", "LayoutLeft", "LayoutRight", "MmaAtomTV", "ScaledBasis", "Stride", "Swizzle", "Tensor", "ThrCopy", "ThrMma",
    "TiledCopy", "TiledMma", "X", "_", "append", "basis_like", "blocked_product", "ceil_div", "coalesce",
    "compact_col_major", "compact_order", "compact_row_major", "compatible", "complement", "composition", "congruent",
    "coprofile", "cosize", "crd2crd", "crd2idx", "depth", "dice", "domain_distribute", "domain_offset", "downcast",
    "draw_layout", "draw_tv", "element_bytes", "evenly_divides", "explain", "filter_zeros", "flat_divide", "flat_product",
    "flatten", "get", "group_modes", "holders", "idx2crd", "inner_partition", "inner_product", "is_injective", "layout_of",
    "layout_svg", "layout_text", "left_inverse", "local_partition", "local_tile", "logical_divide", "logical_product",
    "make_cotiled_copy", "make_fragment_like", "make_identity_layout", "make_identity_tensor", "make_layout",
    "make_layout_like", "make_ordered_layout", "make_swizzle", "make_tensor", "make_tiled_copy", "make_tiled_copy_A",
    "make_tiled_copy_B", "make_tiled_copy_C", "make_tiled_copy_D", "make_tiled_copy_S", "max_alignment", "max_common_layout",
    "max_common_vector", "mode_of", "nullspace", "offset_table", "offsets", "outer_partition", "parse_byte_layout",
    "parse_int_tuple", "parse_layout", "parse_swizzle", "prepend", "product", "product_each", "product_like",
    "raked_product", "rank", "recast", "recast_layout", "replace", "right_inverse", "round_up", "select", "shape",
    "shape_div", "show_swizzle", "size", "slice_and_offset", "span_bytes", "stride", "swizzle_mode", "table_text", "take",
    "tile_to_shape", "tile_unzip", "tiled_divide", "tiled_product", "tiler_remark", "tv_svg", "unflatten", "units_remark",
    "upcast", "weakly_congruent", "zip_layout", "zipped_divide", "zipped_product",
]  # fmt: skip
