"""Forms of the explorer: the fields of each page, and the values that a static copy offers.

A form is data. ``pages`` draws it, for a server that answers everything and for a copy that has some answers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Literal

from gpusim.explore.answers import LONGEST_TEXT
from gpusim.explore.bytes import MOST_STEPS
from gpusim.explore.pipeline import MOST_STAGES
from gpusim.explore.questions import QUESTIONS
from gpusim.explore.sliders import SLIDERS
from gpusim.machine.config import gpu_names
from gpusim.workload.dtypes import DTYPES, STORED_DTYPES
from gpusim.workload.smem.smem_ops import SMEM_OPS, smem_op_families

NARROW = 14
"""Characters of a field that fits next to another field."""

Kind = Literal["select", "number", "text", "range"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One value of a select."""

    value: str
    label: str
    group: str = ""
    is_offered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field, named as in the question.

    ``when`` is another field's name and the value that it must have for this field to matter.
    """

    name: str
    label: str
    kind: Kind = "select"
    choices: tuple[Choice, ...] = ()
    """Values of a select; suggestions for other fields."""
    hint: str = ""
    least: float = 0.0
    """Lower end of a range; the next two are its upper end and step."""
    most: float = 0.0
    step: float = 0.0
    is_asked: bool = False
    """Whether gpusim answers anew when a range moves; otherwise the page does it."""
    longest: int = LONGEST_TEXT
    when: tuple[str, str] | None = None
    is_offered: bool = True
    """Whether answers cover more than the default; false in a static copy that has none."""
    default: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether all its values have answers."""
        return self.is_offered and all(choice.is_offered for choice in self.choices)

    @property
    def is_wide(self) -> bool:
        """Whether the field needs a separate line."""
        return self.kind == "range" or any(len(choice.label) > NARROW for choice in self.choices if self.kind == "select")

    @property
    def groups(self) -> tuple[tuple[str, tuple[Choice, ...]], ...]:
        """Choices by group, in their order."""
        names = dict.fromkeys(choice.group for choice in self.choices)
        return tuple((name, tuple(choice for choice in self.choices if choice.group == name)) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fieldset:
    """Fields that belong together."""

    legend: str
    fields: tuple[FormField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Form of one page."""

    page: str
    title: str
    question: str
    """Question that the page answers."""
    fieldsets: tuple[Fieldset, ...]
    scripts: tuple[str, ...] = ("draw.js", "explore.js")
    """Script files of the page, in order."""

    @property
    def fields(self) -> tuple[FormField, ...]:
        """All fields, in the order of the page."""
        return tuple(field for fieldset in self.fieldsets for field in fieldset.fields)


Offered = Mapping[str, tuple[str, ...]]
"""Values that a static copy of a page offers, by field; other fields have their default only."""


def _choices(*pairs: str | tuple[str, str], group: str = "") -> tuple[Choice, ...]:
    labelled = [pair if isinstance(pair, tuple) else (pair, pair) for pair in pairs]
    return tuple(Choice(value=value, label=label, group=group) for value, label in labelled)


def banks_form() -> Form:
    """Form of a tile, an access and a swizzle."""
    families = list(smem_op_families())
    family = {op: max((name for name in families if op.startswith(name)), key=len) for op in SMEM_OPS}
    accesses = tuple(Choice(value=op, label=op, group=name) for name in families for op in SMEM_OPS if family[op] == name)
    rows, typed = ("tile", "rows"), ("tile", "typed")
    return _with_defaults(Form(
        page="banks", title="Banks",
        question="How many wavefronts does one access of a warp to shared memory take, who collides, and what mends it?",
        fieldsets=(
            Fieldset(legend="Tile in shared memory", fields=(
                FormField(name="tile", label="Layout", choices=_choices(
                    ("rows", "rows and columns"), ("typed", "typed in"))),
                FormField(name="rows", label="Rows", kind="number", when=rows),
                FormField(name="columns", label="Columns", kind="number", when=rows),
                FormField(name="order", label="Order", when=rows, choices=_choices(
                    ("row_major", "row-major"), ("column_major", "column-major"))),
                FormField(name="pad", label="Padding, elements a row", kind="number", when=rows,
                          hint="a column, if it is column-major"),
                FormField(name="layout", label="CuTe layout", kind="text", when=typed,
                          hint="shape:stride, as (64,64):(64,1)"),
                FormField(name="dtype", label="Element type", choices=_choices(*DTYPES, *STORED_DTYPES)),
            )),
            Fieldset(legend="Swizzle", fields=(
                FormField(name="swizzle", label="Swizzle", choices=_choices(
                    "none", ("32B", "32B (TMA, wgmma)"), ("64B", "64B (TMA, wgmma)"), ("128B", "128B (TMA, wgmma)"),
                    ("typed", "B,M,S typed in"))),
                FormField(name="bms", label="B,M,S in elements", kind="text", longest=40, when=("swizzle", "typed"),
                          hint="Swizzle<B,M,S>, as 3,3,3; M counts elements, not bytes"),
            )),
            Fieldset(legend="Access of a warp", fields=(
                FormField(name="access", label="Instruction", choices=accesses),
                FormField(name="lanes", label="Where lanes point", choices=_choices(
                    ("usual", "as usual"), ("column", "down a column: lane i in row i"), ("typed", "typed in")),
                    hint="as usual: vectors side by side, or the rows of a fragment"),
                FormField(name="threads", label="Lanes to elements", kind="text", when=("lanes", "typed"),
                          hint="a CuTe layout from lane to index or coordinate, as 32:1@0"),
                FormField(name="at", label="Starts at", kind="text", longest=40,
                          hint="a coordinate, as (0,16); empty is the tile's first element"),
            )),
        ),
    ))


TILES = ("64x64x64", "128x64x64", "128x128x32", "128x128x64", "128x192x64", "128x256x64", "256x128x64", "256x128x128")
CLUSTERS = ("1x1", "2x1", "1x2", "2x2", "4x1")


def pipeline_form() -> Form:
    """Form of a GPU, and of a GEMM with its tile, stages and schedule."""
    return _with_defaults(Form(
        page="pipeline", title="Pipeline",
        question="How long does a GEMM take with so many stages, in this tile and schedule; who waits for what, and when?",
        fieldsets=(
            Fieldset(legend="Problem", fields=(
                *(FormField(name=name, label=name.upper(), kind="number") for name in ("m", "n", "k")),
                FormField(name="dtype", label="Type of A and B", choices=_choices(
                    "bf16", "fp16", "tf32", "fp8", "int8", "fp32")),
            )),
            Fieldset(legend="Kernel", fields=(
                FormField(name="tile", label="CTA tile, MxNxK", kind="text", longest=20, choices=_choices(*TILES),
                          hint="as 128x128x64, or auto"),
                FormField(name="stages", label="Stages", kind="text", longest=6, hint=f"1 to {MOST_STAGES}, or auto",
                          choices=_choices("1", "2", "3", "4", "5", "6", "7", "8", "auto")),
                FormField(name="schedule", label="Schedule", choices=_choices(
                    "multistage", ("warp_specialized", "warp-specialized"), "cooperative", ("pingpong", "ping-pong"),
                    ("auto", "auto"))),
                FormField(name="copy", label="Copies by", choices=_choices(
                    "auto", ("tma", "TMA"), ("cp_async", "cp.async"))),
                FormField(name="math", label="Products by", choices=_choices(
                    "auto", "wgmma", ("mma_sync", "mma.sync"), ("fma", "FMA"))),
                FormField(name="cluster", label="Cluster, MxN", kind="text", longest=6, choices=_choices(*CLUSTERS),
                          hint="CTAs; operands are multicast"),
            )),
            Fieldset(legend="Machine", fields=(
                FormField(name="gpu", label="GPU", choices=_choices(*gpu_names())),
                *(FormField(name=name, label=slider.label, kind="range", least=slider.least, most=slider.most,
                            step=slider.step, hint=slider.hint) for name, slider in SLIDERS.items()),
            )),
        ),
        scripts=("draw.js", "engine.js", "run.js", "timeline.js", "pipeline.js", "explore.js"),
    ))


def bytes_form() -> Form:
    """Form of a small kernel, and of a step of its run."""
    return _with_defaults(Form(
        page="bytes", title="Bytes",
        question="Which bytes does each step of a small kernel move, from where to where?",
        fieldsets=(
            Fieldset(legend="Kernel, 64 x 64 of bf16", fields=(
                FormField(name="kernel", label="Kernel", choices=_choices(
                    ("tma", "GEMM: TMA, wgmma"), ("cp_async", "GEMM: cp.async, ldmatrix, mma.sync"),
                    ("copy", "copy through shared memory"))),
                FormField(name="swizzle", label="Swizzle", choices=_choices("none", "32B", "64B", "128B")),
                FormField(name="stages", label="Stages", choices=_choices("1", "2", "3", "4"), hint="of a GEMM"),
            )),
            Fieldset(legend="Run", fields=(
                FormField(name="fault", label="Fault", choices=_choices(
                    "none", ("swizzle", "written with another swizzle than it is read with"))),
                FormField(name="step", label="Step", kind="range", most=MOST_STEPS, step=1, is_asked=True),
            )),
        ),
    ))


def _with_defaults(form: Form) -> Form:
    """Form whose fields have the defaults of the question."""
    defaults = {item.alias or name: item.default for name, item in QUESTIONS[form.page].model_fields.items()}
    assert sorted(defaults) == sorted(field.name for field in form.fields)

    def changed(field: FormField) -> FormField:
        value = defaults[field.name]
        return replace(field, default=f"{value:g}" if isinstance(value, float) else str(value))

    return _changed(form, changed)


def _changed(form: Form, change: object) -> Form:
    assert callable(change)
    return replace(form, fieldsets=tuple(
        replace(fieldset, fields=tuple(change(field) for field in fieldset.fields)) for fieldset in form.fieldsets
    ))


FORMS = MappingProxyType({"banks": banks_form, "pipeline": pipeline_form, "bytes": bytes_form})
"""Forms by page."""


# ---------------------------------------------------------------------------------------------- static copies
def narrowed(form: Form, offered: Offered) -> Form:
    """Form of a static copy: fields of ``offered`` are selects of these values, all others stay unchanged."""

    def changed(field: FormField) -> FormField:
        values = offered.get(field.name)
        if field.kind == "range":  # the page itself moves it
            return field
        if values is None:
            return replace(field, is_offered=False)
        field = replace(field, default=field.default if field.default in values else values[0])
        if field.kind != "select":
            return replace(field, kind="select", choices=_choices(*values), hint="")
        return replace(field, choices=tuple(replace(choice, is_offered=choice.value in values) for choice in field.choices))

    return _changed(form, changed)


def key_of(form: Form, words: Mapping[str, str], offered: Offered) -> str:
    """File name of an answer: the values of all offered fields, in the order of the page."""
    return "~".join(words.get(field.name, field.default) for field in form.fields if field.name in offered)


def grid(form: Form, offered: Offered) -> Iterator[tuple[str, dict[str, str]]]:
    """(key, words) of every combination that a static copy offers."""
    names = [field.name for field in form.fields if field.name in offered]
    for values in product(*(offered[name] for name in names)):
        words = dict(zip(names, values, strict=True))
        yield key_of(form, words, offered), words


OFFERED: Mapping[str, Offered] = MappingProxyType({
    "banks": {
        "pad": ("0", "1", "8"), "dtype": ("bf16", "fp32"), "swizzle": ("none", "32B", "64B", "128B"),
        "access": (
            "ld_shared_b32", "ld_shared_b64", "ld_shared_b128", "st_shared_b32", "st_shared_b128", "cp_async_b128",
            "ldmatrix_x1", "ldmatrix_x4", "ldmatrix_x4_trans", "stmatrix_x4", "atom_shared_exch_b32", "atom_shared_cas_b32",
        ),
        "lanes": ("usual", "column"),
    },
    "pipeline": {
        "k": ("1024", "2048", "4096"), "tile": ("64x128x64", "128x128x64", "128x256x64"),
        "stages": ("1", "2", "3", "4", "5", "6"), "schedule": ("multistage", "warp_specialized", "cooperative", "pingpong"),
    },
})
"""Fields and values that ``gpusim explore --export`` has answers for, in all combinations of a page.

Sliders move in the page; other fields keep their defaults."""
