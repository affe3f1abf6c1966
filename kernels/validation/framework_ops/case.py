"""What does torch launch for softmax, norms, sums and element-wise operations, what does that move and take?"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from gpusim.evidence.cases.case import Case, Operation, Outputs
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.framework_case import check_sample, operation_case, operation_group
from gpusim.evidence.cases.validation_kernel import MIB, WIDTHS
from gpusim.evidence.toolchain.torch_kernels import ModelOptions, function_of
from gpusim.evidence.toolchain.torch_kernels import model_of as torch_model

DRAWN, DRAWN_AGAIN = 20261201, 20261213
"""Seeds of the shapes, drawn before any of them was predicted or measured. ``DRAWN_AGAIN``: of the groups ``*_again``."""
SIZES = (4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
"""Approximate bytes of the input, one drawn for each config."""


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of a config; ``kernel`` is the operation."""

    kernel: str
    rows: int
    columns: int
    dtype: str


COLUMNS: Mapping[str, tuple[range, ...]] = {
    "softmax": (range(129, 2049), range(2049, 9217), range(9224, 12001, 8), range(32000, 131073, 64)),
    "layer_norm": (range(512, 4097, 4), range(4096, 16385, 4)),
    "rms_norm": (range(512, 4097, 4), range(4096, 16385, 4)),
    "sum_rows": (range(256, 4097, 32), range(8192, 131073, 64)),
    "sum_columns": (range(256, 2049, 128), range(2048, 16385, 128)),
    "sum_all": (range(1024, 8193, 256),),
    **dict.fromkeys(("add", "mul", "relu", "gelu", "silu"), (range(1000, 9001),)),
    "cast": (range(1000, 9001), range(1024, 8193, 8)),
    "add_bias": (range(1024, 8193, 8),),
    "transpose": (range(512, 2049), range(1024, 8193, 64)),
    "embedding": (range(64, 513, 8), range(1024, 8193, 64)),
}
"""Numbers of columns of each class of an operation."""
OF_A_CLASS = 3


def drawn(operation: str, seed: int) -> list[Config]:
    """Three configs of each class of an operation."""
    numbers = random.Random(f"{seed} {operation}")
    found: list[Config] = []
    for of_class in COLUMNS[operation]:
        for _ in range(OF_A_CLASS):
            dtype, columns = numbers.choice(("fp32", "bf16")), numbers.choice(of_class)
            rows = max(1, numbers.choice(SIZES) // (columns * WIDTHS[dtype]))
            found.append(Config(kernel=operation, rows=rows, columns=columns, dtype=dtype))
    return found


OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "rows": ("softmax", "layer_norm", "rms_norm"),
    "sums": ("sum_rows", "sum_columns", "sum_all"),
    "maps": ("add", "mul", "relu", "gelu", "silu", "cast", "add_bias", "transpose", "embedding"),
}
"""Operations of each group."""


def configs(names: tuple[str, ...], seed: int) -> list[Config]:
    """Configs of some operations."""
    return [config for operation in names for config in drawn(operation, seed)]


def launch(config: Config) -> Operation:
    """The operation on normal random numbers."""
    dtype = config.dtype
    return Operation(name=config.kernel, shape=(config.rows, config.columns), dtype=dtype)  # type: ignore[arg-type]


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """A sample of the output."""
    summed = {"sum_rows": config.columns, "sum_columns": config.rows, "sum_all": config.rows * config.columns}
    absolute = {"softmax": 1e-9}.get(config.kernel, 1e-4 * math.sqrt(summed.get(config.kernel, 4)))
    return check_sample(config.dtype, outputs, absolute=absolute)


def model_of(config: Config, row: Mapping[str, str]) -> ModelOptions | None:
    """Kernel model of what was launched."""
    return torch_model(config.kernel, (config.rows, config.columns), config.dtype, row)


CASE = operation_case(
    Case(
        name="framework_ops",
        question=__doc__,
        framework="torch",
        config_type=Config,
        groups={
            name + suffix: operation_group(partial(configs, names, seed))
            for suffix, seed in (("", DRAWN), ("_again", DRAWN_AGAIN)) for name, names in OPERATIONS.items()
        },
        launch=launch,
        text_columns=lambda _config, facts: {"torch_kernel": function_of(facts.get("launched", ""))},
        families=lambda group, config: (f"framework_ops {group}", f"framework_ops {config.kernel}"),
        values={"torch_kernel": "name of the kernel without namespaces and template arguments; empty where it is unknown"},
        check=check,
    ),
    model_of=model_of,
)
