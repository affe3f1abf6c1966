"""How long does an element-wise operation take, by CTA size, vector width, vectors a thread, types and arithmetic?"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Case, Config, KernelLaunch, Outputs, Repeated, Windows, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.encode import decode
from gpusim.evidence.cases.validation_kernel import pattern, validation_case, whole_group, windows
from gpusim.workload.dtypes import dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What an entry point fixes: ``vector`` is in elements."""

    op: str
    dtype: str
    vector: int
    items: int
    out_dtype: str = ""
    loads: str = "batched"
    broadcast: str = "none"

    @property
    def name(self) -> str:
        """Entry point."""
        cast = f"_to_{self.out_dtype}" if self.out_dtype else ""
        rest = "".join(f"_{word}" for word in (self.loads, self.broadcast) if word not in ("batched", "none"))
        return f"{self.op}_{self.dtype}{cast}_v{self.vector}_i{self.items}{rest}"

    @property
    def columns_needed(self) -> bool:
        """Whether a config of it has columns."""
        return self.broadcast != "none"

    @property
    def macro(self) -> str:
        """Definition of the entry point."""
        op = "k" + self.op.title().replace("_", "")
        types = f"{self.dtype}, {self.out_dtype or self.dtype}"
        is_batched = str(self.loads == "batched").lower()
        arguments = f"{types}, {op}, k{self.broadcast.title()}, {self.vector}, {self.items}, {is_batched}"
        return (
            f'extern "C" __global__ void __launch_bounds__(1024) {self.name}(const {self.dtype} *a, const {self.dtype} *b, '
            f"{self.out_dtype or self.dtype} *out, uint32_t num, uint32_t columns) {{\n"
            f"    elementwise<{arguments}>(a, b, out, num, columns);\n}}\n"
        )


ENTRIES: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        *(Entry(op="copy", dtype="fp32", vector=vector, items=items) for vector, items in ((1, 4), (2, 8), (4, 2))),
        *(Entry(op="copy", dtype="bf16", vector=vector, items=items) for vector, items in ((1, 4), (2, 16), (8, 1))),
        *(Entry(op="copy", dtype=name, vector=1, items=4, loads="serial") for name in ("bf16", "fp32")),
        *(Entry(op="add", dtype="fp32", vector=vector, items=items) for vector, items in ((1, 4), (4, 1), (4, 2), (4, 4))),
        *(Entry(op="add", dtype="bf16", vector=vector, items=items) for vector, items in ((2, 4), (8, 1), (8, 2))),
        *(Entry(op="add", dtype="bf16", vector=8, items=1, broadcast=broadcast) for broadcast in ("row", "column")),
        Entry(op="add", dtype="fp32", vector=4, items=2, broadcast="row"),
        *(Entry(op="scale", dtype="fp32", vector=vector, items=items) for vector, items in ((2, 4), (4, 8))),
        Entry(op="scale", dtype="bf16", vector=4, items=4),
        *(
            Entry(op="copy", dtype=given, out_dtype=out, vector=vector, items=items)
            for given, out in (("fp32", "bf16"), ("bf16", "fp32")) for vector, items in ((1, 4), (4, 2), (8, 1))
        ),
        Entry(op="relu", dtype="bf16", vector=8, items=1),
        Entry(op="exp", dtype="fp32", vector=4, items=2),
        Entry(op="silu", dtype="bf16", vector=8, items=1),
        *(Entry(op="gelu", dtype=name, vector=vector, items=1) for name, vector in (("bf16", 8), ("fp32", 4))),
        Entry(op="gelu_tanh", dtype="bf16", vector=8, items=2),
    )
}  # fmt: skip
"""Entry points by name."""


def includes() -> dict[str, str]:
    """``shapes.inc``: the entry points."""
    return {"shapes.inc": "".join(entry.macro for entry in ENTRIES.values())}


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; ``columns`` is 0 without a broadcast."""

    kernel: str
    _: KW_ONLY
    elements: int
    threads: int
    columns: int = 0

    @property
    def entry(self) -> Entry:
        """Entry point."""
        return ENTRIES[self.kernel]


THREADS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
LEAST, MOST = 2**16, 2**29
"""Elements: from a launch of a few CTAs to some GB."""
COLUMNS = (256, 1000, 4096, 12288)
DRAWN_EACH = 2


def drawn(seed: int) -> list[Config]:
    """Each entry point twice: sizes on a logarithmic scale that no CTA divides, CTAs of 32 to 1,024 threads."""
    draw = random.Random(f"{seed} elementwise_shapes")
    names = [name for name in ENTRIES for _ in range(DRAWN_EACH)]
    threads = [THREADS[idx % len(THREADS)] for idx in range(len(names))]
    draw.shuffle(threads)
    rows: list[Config] = []
    for place, name in enumerate(names):
        entry = ENTRIES[name]
        begin = math.log(LEAST) + (place % DRAWN_EACH) * math.log(MOST / LEAST) / DRAWN_EACH
        elements = int(math.exp(begin + draw.random() * math.log(MOST / LEAST) / DRAWN_EACH))
        columns = draw.choice(COLUMNS) if entry.columns_needed else 0
        if columns:
            elements = max(1, elements // columns) * columns
        rows.append(Row(name, elements=elements, threads=threads[place], columns=columns))
    return rows


def threads_of(seed: int) -> list[Config]:
    """Sums of 1.2 GB by CTAs of 32 to 1,024 threads; and a last CTA that is full, and one that is not."""
    del seed
    sweep = [Row("add_fp32_v4_i1", elements=100_000_000, threads=threads) for threads in (32, 64, 128, 256, 512, 1024)]
    tails = [Row("copy_bf16_v8_i1", elements=elements, threads=256) for elements in (300_000, 303_104)]
    return [*sweep, *tails, Row("copy_bf16_v2_i16", elements=300_000, threads=256)]


# ---------------------------------------------------------------------------------------------- launch and check
def options(given: Config) -> Mapping[str, Any]:
    """Options of the element-wise model."""
    config = Row.of(given)
    entry = config.entry
    return {
        "op": entry.op, "elements": config.elements, "dtype": entry.dtype, "out_dtype": entry.out_dtype or None,
        "vector_bytes": entry.vector * dtype(entry.dtype).num_bytes, "items_per_thread": entry.items,
        "threads": config.threads, "loads": entry.loads, "broadcast": entry.broadcast, "columns": config.columns or None,
    }  # fmt: skip


def inputs(config: Row) -> tuple[Repeated, Repeated]:
    """Tensors a and b; one that is not read holds one vector."""
    name = config.entry.dtype
    width = dtype(name).num_bytes
    num_rows = config.elements // max(1, config.columns)
    num_b = {"row": config.columns, "column": num_rows}.get(config.entry.broadcast, config.elements)
    sizes = config.elements * width, num_b * width if config.entry.op == "add" else 16
    return Repeated(pattern(name, 0), sizes[0]), Repeated(pattern(name, 1), sizes[1])


def output(config: Row) -> Windows:
    """Result, and the windows that are checked."""
    width = dtype(config.entry.out_dtype or config.entry.dtype).num_bytes
    num_bytes = config.elements * width
    return Windows("out", num_bytes, windows(num_bytes, unit_bytes=width))


def launch(config: Row) -> KernelLaunch:
    """A CTA for each share."""
    entry = config.entry
    share = config.threads * entry.vector * entry.items
    a, b = inputs(config)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(a, b, output(config), np.uint32(config.elements), np.uint32(max(1, config.columns))),
        grid=(-(-config.elements // share), 1, 1), block=(config.threads, 1, 1),
    )  # fmt: skip


def expected(config: Row, offset: int, num_bytes: int) -> NDArray[np.float64]:
    """Result of a window, before it is rounded to the output's type."""
    entry, (a, b) = config.entry, inputs(config)
    out_width, width = (dtype(name).num_bytes for name in (entry.out_dtype or entry.dtype, entry.dtype))
    first, num = offset // out_width, num_bytes // out_width

    def numbers(tensor: Repeated, begin: int, count: int) -> NDArray[np.float64]:
        raw = tensor.window(begin * width, count * width)
        return decode(raw.view("<u2"), "bf16") if entry.dtype == "bf16" else raw.view("<f4").astype(np.float64)

    value = numbers(a, first, num)
    if entry.op == "add":
        if entry.broadcast == "none":
            return value + numbers(b, first, num)
        index = np.arange(first, first + num)
        index = index % config.columns if entry.broadcast == "row" else index // config.columns
        return value + numbers(b, int(index.min()), int(np.ptp(index)) + 1)[index - index.min()]
    return np.asarray(FUNCTIONS[entry.op](value))


FUNCTIONS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "copy": lambda x: x,
    "scale": lambda x: 1.5 * x,
    "relu": lambda x: np.maximum(x, 0.0),
    "exp": np.exp,
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1.0 + np.vectorize(math.erf)(x * math.sqrt(0.5))),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
}
"""Operations of one input, in float64."""
ROUNDING: Mapping[str, float] = {"fp32": 2.0**-22, "bf16": 2.0**-8}
"""Relative error of a result: rounding to nearest, and for fp32 two units in the last place of expf, erff and tanhf."""
ABSOLUTE = 2.0**-22
"""Absolute error near zero, where a difference of numbers near 1 loses digits."""


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Largest error of the checked windows, relative to the allowed one.

    Raises:
        WrongAnswer: an element is further off than rounding explains.
    """
    out, name = output(config), config.entry.out_dtype or config.entry.dtype
    worst = 0.0
    for (offset, num_bytes), raw in zip(out.windows, out.split(outputs["out"]), strict=True):
        given = decode(raw.view("<u2"), "bf16") if name == "bf16" else raw.view("<f4").astype(np.float64)
        wanted = expected(config, offset, num_bytes)
        share = np.abs(given - wanted) / (ROUNDING[name] * np.abs(wanted) + ABSOLUTE)
        worst = max(worst, float(share.max()))
        if not worst <= 1.0:
            at = int(np.flatnonzero(~(share <= 1.0))[0])
            place = offset // dtype(name).num_bytes + at
            raise WrongAnswer(f"{config.kernel}: element {place} is {given[at]}, wants {wanted[at]}")
    return {"error_share": worst}


CASE = validation_case(
    Case(
        name="elementwise_shapes",
        question=__doc__,
        config_type=Row,
        groups={"drawn": whole_group(drawn), "threads": whole_group(threads_of)},
        launch=launch,
        check=check,
        values={"error_share": "largest error of the checked elements, relative to the allowed one"},
        includes=includes,
    ),
    model="elementwise",
    options=options,
)
