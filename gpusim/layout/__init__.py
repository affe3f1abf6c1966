"""CuTe's algebra on integers: what goes in and what comes out are integers, tuples of them, and layouts.

In: shapes, strides, offsets and coordinates. Out: layouts and offsets. This room knows no dtype, no memory,
no time.
"""

from __future__ import annotations

from gpusim.layout.swizzle import SWIZZLE_MODES, Swizzle, span_bytes, swizzle_mode

__all__ = ["SWIZZLE_MODES", "Swizzle", "span_bytes", "swizzle_mode"]
