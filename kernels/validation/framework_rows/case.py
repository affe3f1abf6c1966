"""Softmax, norms and activation as frameworks write them: what do narrow loads, shared memory and second reads cost?"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Argument, Case, Group, Input, KernelLaunch, Output, Outputs, Repeated, Windows
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.row_kernels import Values, check_rows
from gpusim.evidence.cases.validation_kernel import COUNTED, MIB, WIDTHS, floats, pattern, validation_case, windows
from gpusim.units import WARP_SIZE

DRAWN = 20261129
"""Seed of the numbers of rows and columns, drawn before anything was predicted or measured."""
EPSILON = 1e-5
NOWHERE = np.uint64(0)
"""Null pointer: a kernel without such an array, or one that works in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """An entry point: the model and its options, and the columns that it is for."""

    model: str
    options: Mapping[str, Any]
    columns: tuple[int, int, int]
    """Least and most columns, and the step between them."""
    has_persistent_grid: bool = False


def block(dtype: str, threads: int, keep: str, vector_bytes: int = 16, **more: Any) -> dict[str, Any]:
    """Options of a kernel with a block a row."""
    return {
        "per": "block", "dtype": dtype, "threads": threads, "keep": keep, "vector_bytes": vector_bytes, **more,
    }  # fmt: skip


def warp(dtype: str, vector_bytes: int) -> dict[str, Any]:
    """Options of a kernel with a warp a row, four rows a block."""
    return {"per": "warp", "dtype": dtype, "threads": 128, "keep": "registers", "vector_bytes": vector_bytes}


FIRST, ONLINE, WELFORD = {"combine": "first_warp"}, {"algorithm": "online"}, {"algorithm": "welford"}
KERNELS: Mapping[str, Kernel] = {
    name: Kernel(model=model, options=options, columns=columns, has_persistent_grid="persistent" in name)
    for name, model, options, columns in (
        ("softmax_warp_fp32_v4_n32", "softmax", warp("fp32", 4), (897, 1024, 1)),
        ("softmax_warp_bf16_v2_n32", "softmax", warp("bf16", 2), (897, 1024, 1)),
        ("softmax_warp_bf16_v16_n4", "softmax", warp("bf16", 16), (776, 1024, 8)),
        ("softmax_block_fp32_v4_n8", "softmax", block("fp32", 1024, "registers", 4, **FIRST), (7200, 8192, 32)),
        ("softmax_block_bf16_v16_n4", "softmax", block("bf16", 256, "registers"), (6200, 8192, 8)),
        ("softmax_smem_fp32_v16", "softmax", block("fp32", 1024, "smem", **FIRST), (9216, 24576, 256)),
        ("softmax_smem_bf16_v16", "softmax", block("bf16", 512, "smem", **FIRST), (8192, 49152, 512)),
        ("softmax_reread_fp32_v16", "softmax", block("fp32", 1024, "reread", **FIRST), (32000, 131072, 64)),
        ("softmax_reread_bf16_v16", "softmax", block("bf16", 1024, "reread", **FIRST), (32000, 131072, 64)),
        ("softmax_online_fp32_v16", "softmax", block("fp32", 512, "reread", **ONLINE), (32000, 131072, 64)),
        ("softmax_online_bf16_v16", "softmax", block("bf16", 1024, "reread", **ONLINE), (32000, 131072, 64)),
        ("softmax_persistent_bf16_v16_n4", "softmax", block("bf16", 256, "registers"), (6200, 8192, 8)),
        ("layer_norm_welford_fp32_v16", "layer_norm", block("fp32", 128, "reread", **WELFORD), (768, 8192, 64)),
        ("layer_norm_welford_bf16_v8", "layer_norm", block("bf16", 128, "reread", 8, **WELFORD), (768, 8192, 64)),
        ("layer_norm_reread_bf16_v16", "layer_norm", block("bf16", 256, "reread"), (4096, 65536, 256)),
        ("layer_norm_smem_bf16_v16", "layer_norm", block("bf16", 256, "smem"), (2048, 16384, 256)),
        ("layer_norm_block_fp32_v16_n4", "layer_norm", block("fp32", 256, "registers"), (3076, 4096, 4)),
        ("rms_norm_warp_bf16_v16_n4", "rms_norm", warp("bf16", 16), (776, 1024, 8)),
        ("rms_norm_block_bf16_v16_n2", "rms_norm", block("bf16", 512, "registers", residual=True), (4104, 8192, 8)),
        ("rms_norm_smem_bf16_v16", "rms_norm", block("bf16", 512, "smem", residual=True), (4096, 32768, 512)),
        ("rms_norm_reread_bf16_v16", "rms_norm", block("bf16", 1024, "reread", residual=True), (8192, 65536, 512)),
        ("rms_norm_reread_fp32_v16", "rms_norm", block("fp32", 256, "reread"), (2048, 32768, 256)),
        ("rms_norm_persistent_bf16_v16_n2", "rms_norm", block("bf16", 512, "registers"), (4104, 8192, 8)),
        ("bias_gelu_bf16_v16", "bias_activation", block("bf16", 256, "reread"), (1024, 32768, 256)),
    )
}  # fmt: skip
REGISTERS: Mapping[str, int] = {
    "softmax_warp_fp32_v4_n32": 95, "softmax_warp_bf16_v2_n32": 111, "softmax_warp_bf16_v16_n4": 47,
    "softmax_block_fp32_v4_n8": 29, "softmax_block_bf16_v16_n4": 48,
    "softmax_smem_fp32_v16": 34, "softmax_smem_bf16_v16": 32,
    "softmax_reread_fp32_v16": 32, "softmax_reread_bf16_v16": 32, "softmax_online_fp32_v16": 31,
    "softmax_online_bf16_v16": 32, "softmax_persistent_bf16_v16_n4": 86, "layer_norm_welford_fp32_v16": 32,
    "layer_norm_welford_bf16_v8": 32, "layer_norm_reread_bf16_v16": 32, "layer_norm_smem_bf16_v16": 32,
    "layer_norm_block_fp32_v16_n4": 40, "rms_norm_warp_bf16_v16_n4": 48, "rms_norm_block_bf16_v16_n2": 39,
    "rms_norm_smem_bf16_v16": 34, "rms_norm_reread_bf16_v16": 32, "rms_norm_reread_fp32_v16": 30,
    "rms_norm_persistent_bf16_v16_n2": 54, "bias_gelu_bf16_v16": 31,
}  # fmt: skip
"""Registers of a thread. Source: ptxas, sm_90a."""
SIZES = (8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB)
"""Approximate bytes of the input, one drawn for each config."""
IN_PLACE = ("softmax_block_bf16_v16_n4", "rms_norm_warp_bf16_v16_n4", "layer_norm_reread_bf16_v16", "softmax_smem_fp32_v16")
IN_PLACE_BYTES = 64 * MIB
"""Bytes of an array that is written in place, which is copied to the GPU before each checked launch."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of a config. ``ctas``: CTAs of a persistent grid; 0: one for each row or four rows."""

    kernel: str
    rows: int
    columns: int
    dtype: str
    ctas: int
    in_place: bool

    @property
    def entry(self) -> Kernel:
        """Its entry point."""
        return KERNELS[self.kernel]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * WIDTHS[self.dtype]

    @property
    def num_bytes(self) -> int:
        """Bytes of an array."""
        return self.rows * self.row_bytes


def drawn(name: str, num: int, *, num_bytes: int | None = None) -> list[Config]:
    """Configs of an entry point: columns, and rows of an array of one of ``SIZES`` (or ``num_bytes``)."""
    of, numbers = KERNELS[name], random.Random(f"{DRAWN} {name} {num_bytes}")
    least, most, step = of.columns
    found: list[Config] = []
    for size in numbers.sample(SIZES, num):
        columns = least + step * numbers.randint(0, (most - least) // step)
        dtype = str(of.options["dtype"])
        rows = max(1, (num_bytes or size) // (columns * WIDTHS[dtype]))
        ctas = min(rows, 132 * numbers.randint(1, 4)) if of.has_persistent_grid else 0
        found.append(Config(kernel=name, rows=rows, columns=columns, dtype=dtype, ctas=ctas, in_place=num_bytes is not None))
    return found


def kept() -> list[Config]:
    """Rows that stay in registers or in shared memory."""
    return [config for name, of in KERNELS.items() if of.options["keep"] != "reread" for config in drawn(name, 2)]


def reread() -> list[Config]:
    """Rows that are read again."""
    return [config for name, of in KERNELS.items() if of.options["keep"] == "reread" for config in drawn(name, 2)]


def in_place() -> list[Config]:
    """Arrays that the result overwrites."""
    return [config for name in IN_PLACE for config in drawn(name, 1, num_bytes=IN_PLACE_BYTES)]


def weights(config: Config) -> tuple[NDArray[Any], NDArray[Any]]:
    """Gamma (or a bias) and beta."""
    made = pattern(config.dtype, seed=1)  # type: ignore[arg-type]  # one of its words
    return made[: config.columns], made[config.columns : 2 * config.columns]


def arrays(config: Config) -> tuple[Repeated, Repeated, Windows]:
    """Input, residual, and an output with windows of full rows."""
    given, residual = (
        Repeated(pattern(config.dtype, seed=seed), config.num_bytes)  # type: ignore[arg-type]  # one of its words
        for seed in (0, 2)
    )
    return given, residual, Windows("out", config.num_bytes, windows(config.num_bytes, unit_bytes=config.row_bytes))


def launch(config: Config) -> KernelLaunch:
    """A row for each block or each of its warps, or a persistent grid."""
    given, residual, out = arrays(config)
    gamma, beta = weights(config)
    options = config.entry.options
    has_residual, rows_per_block = bool(options.get("residual")), 1
    if options["per"] == "warp":
        rows_per_block = options["threads"] // WARP_SIZE
    to: Argument = Output("out", np.array(given.window(0, config.num_bytes))) if config.in_place else out
    total = Windows("sum", config.num_bytes, out.windows)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            NOWHERE if config.in_place else given, Input(gamma), Input(beta), residual if has_residual else NOWHERE,
            total if has_residual else NOWHERE, to, np.int32(config.rows), np.int32(config.columns),
        ),
        grid=(config.ctas or -(-config.rows // rows_per_block), 1, 1), block=(options["threads"], 1, 1),
        smem_bytes=config.row_bytes if options["keep"] == "smem" else 0,
    )  # fmt: skip


def reference(config: Config, x: Values) -> Values:
    """Expected rows of ``x``."""
    model = config.entry.model
    gamma, beta = (floats(np.ascontiguousarray(item).view(np.uint8), config.dtype) for item in weights(config))
    if model == "softmax":
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
    if model == "bias_activation":
        y = x + gamma
        return np.asarray(0.5 * y * (1.0 + np.tanh(0.7978845608 * (y + 0.044715 * y**3))))
    centered = x - x.mean(axis=1, keepdims=True) if model == "layer_norm" else x
    scale = 1.0 / np.sqrt((centered**2).mean(axis=1, keepdims=True) + EPSILON)
    return np.asarray(centered * scale * gamma + (beta if model == "layer_norm" else 0.0))


ROUNDING = {"fp32": 2e-5, "bf16": 2.0**-8 + 1e-4}
"""Relative, of the result: of ``ex2.approx`` and sums in another order, and the rounding of bf16 to nearest."""
ABSOLUTE = {"softmax": 0.0, "layer_norm": 2e-4, "rms_norm": 2e-4, "bias_activation": 2e-3}
"""Absolute: of cancellation, ``rsqrtf`` and ``tanh.approx``, for results of some units."""


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Windows of full rows, and with a residual those of the sums, which later passes may read as rounded."""
    given, residual, out = arrays(config)
    raw, rounding = outputs["out"], ROUNDING[config.dtype]
    if config.in_place:
        flat = raw.reshape(-1).view(np.uint8)
        raw = np.concatenate([flat[offset : offset + size] for offset, size in out.windows])
    has_residual = bool(config.entry.options.get("residual"))
    inputs = (given, residual) if has_residual else (given,)
    if has_residual:
        check_rows(
            config, outputs["sum"], reference=np.add, allowed=lambda wanted: rounding * np.abs(wanted) + 1e-6, inputs=inputs,
            out=out,
        )  # fmt: skip
    check_rows(
        config, raw, reference=lambda *rows: reference(config, sum(rows[1:], rows[0])), inputs=inputs, out=out,
        allowed=lambda wanted: ABSOLUTE[config.entry.model] + (1 + has_residual) * rounding * np.abs(wanted),
    )  # fmt: skip
    return {}


def options(config: Config) -> dict[str, object]:
    """As ``gpusim predict softmax``, ``layer_norm``, ``rms_norm`` and ``bias_activation`` take them."""
    return {
        **config.entry.options, "rows": config.rows, "columns": config.columns, "in_place": config.in_place,
        "ctas": config.ctas or None, "registers": REGISTERS[config.kernel],
    }  # fmt: skip


def families(group: str, config: Config) -> tuple[str, ...]:
    """By the group, and across groups by the model."""
    return (f"framework_rows {group}", f"framework_rows {config.entry.model}")


CASE: Case = validation_case(
    Case(
        name="framework_rows",
        question="What do row kernels take as frameworks write them, by narrow loads, in shared memory, with second reads?",
        config_type=Config,
        groups={
            name: Group(configs=configs, metrics=COUNTED, rank=4, is_cold=True, times=("single",))
            for name, configs in (("kept", kept), ("reread", reread), ("in_place", in_place))
        },
        launch=launch,
        check=check,
        families=families,
    ),
    model=lambda config: config.entry.model,
    options=options,
)
