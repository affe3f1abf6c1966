"""Options of a GEMM that are known before it is compiled, or before its registers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COMPILED = ("compiled_code", "registers", "stall_on_ldgsts")
"""Options of a GEMM that are known once it is compiled."""


def without_compiled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that are known before a kernel is written. Of cp.async, ptxas chooses the L2 promotion, too."""
    left_out = {*COMPILED, *(["l2_promotion"] if options.get("copy") == "cp_async" else [])}
    return {name: value for name, value in options.items() if name not in left_out}


def without_registers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without registers as given or as compiled, so that the model's rule estimates them."""
    found = {name: value for name, value in options.items() if name != "registers"}
    code = found.get("compiled_code")
    return found if code is None else {**found, "compiled_code": code.replaced(registers=None)}
