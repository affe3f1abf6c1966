"""How long is a wgmma alone, how many follow one another in a cycle, and when does the warp that issues them stall?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, WarpRole
from gpusim.evidence.cases import encode as codes
from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, Group, Outputs, WrongAnswer, load_case
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.microbenchmark import cta_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted_constant, median_line, medians
from gpusim.evidence.cases.timing import NUM_REPEATS, SPAN_VALUES, train_cycles, train_lengths
from gpusim.layout.swizzle import ByteLayout
from gpusim.units import WARP_SIZE
from gpusim.workload import ops as words
from gpusim.workload.atoms.mma import K_STEP_BYTES, MmaAtom, legal_wgmma_n
from gpusim.workload.dtypes import dtype as dtype_named
from gpusim.workload.smem.wgmma_operands import wgmma_descriptors, wgmma_wavefronts

operands = import_module(load_case("wgmma_operands").launch.__module__)
"""Shapes and images of operands are those of kernels/wgmma_operands."""
draw, encode, decode = codes.draw, codes.encode, codes.decode
"""For kernels/hopper_gemm, too."""

DTYPES = ("bf16", "fp16", "tf32", "fp8", "int8")
SOME_N = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
MN_MAJORS = (("ss", "mm"), ("ss", "km"), ("ss", "mk"), ("rs", "km"))
STREAM_WGMMAS = 4
"""Of a group where nothing waits, as kernel.cu has it."""
NUM_ISSUED, NUM_FENCES = 8, 8
NUM_WARPS = 4
"""Of a warpgroup."""
TRAFFIC_WARPS = 4
TRAFFIC_BATCH = 8
TRAFFIC_BYTES = 8192
"""Of shared memory that is loaded from beside."""
LENGTHS = {"one": (2, 18), "stream": (2, 18), "traffic": (8, 40), "wait": (2, 18), "fences": (2, 18)}
"""Groups (rounds) of short and long trains."""

OTHERS = ("fences", "clocks")
"""Questions without a wgmma, and their kernels."""

Shape = tuple[str, str, str, int]
"""Where A comes from, types, majors of A and B, n."""


# ---------------------------------------------------------------------------------------------- shapes
def shapes() -> Iterator[Shape]:
    """Every shape: all types and N with K-major operands; bf16 with the others at some N."""
    for source, dtype in product(("ss", "rs"), DTYPES):
        yield from ((source, dtype, "kk", n) for n in legal_wgmma_n(dtype_named(dtype)))
    for n, (source, majors) in product(SOME_N, MN_MAJORS):
        yield source, "bf16", majors, n


ALONE = frozenset(
    shape for shape in shapes() if shape[1:3] == ("bf16", "kk") or (shape[2] == "kk" and shape[3] in SOME_N)
) | {("ss", "bf16", majors, 128) for majors in ("mm", "km")}
"""Shapes that are also timed alone: every N of bf16, some of the others."""
BEHIND: tuple[Shape, ...] = (
    *(("ss", "bf16", "kk", n) for n in (8, 32, 64, 128, 256)), ("rs", "bf16", "kk", 64), ("rs", "bf16", "kk", 256),
    ("ss", "fp8", "kk", 128), ("ss", "fp8", "kk", 256), ("ss", "tf32", "kk", 128), ("ss", "int8", "kk", 128),
)  # fmt: skip
"""Shapes whose waits and issue are looked into."""
WAITS = (*product((1, 2, 4), (0, 1, 2)), (8, 0))
"""Wgmma a group, and groups in flight behind a wait."""


def shape_name(source: str, dtype: str, majors: str, n: int) -> str:
    """A shape as kernels name it."""
    return f"{source}_{dtype}_{majors}_n{n}"


def includes() -> dict[str, str]:
    """``shapes.inc``: a struct with the instruction, and its kernels, for every shape."""
    return {"shapes.inc": "".join(_struct(shape) for shape in shapes())}


def _struct(shape: Shape) -> str:
    source, dtype, majors, n = shape
    atom, name = operands.atom_of(source, dtype, n), shape_name(*shape)
    num = atom.accumulator_registers
    word = "s32" if dtype == "int8" else "f32"
    sums = ", ".join(f"d{i}" for i in range(num))
    if source == "rs":
        a, inputs = "{%0, %1, %2, %3}", ", ".join(f'"r"(a[{i}])' for i in range(4))
    else:
        a, inputs = "%0", '"l"(a_descriptor)'
    b, scale = ("%4", "%5") if source == "rs" else ("%1", "%2")
    others = "" if dtype == "int8" else ", 1, 1"
    if dtype_named(dtype).bits == 16:
        others += "".join(f", {int(major == 'm')}" for major in (majors if source == "ss" else majors[1]))
    begins = " ".join(f"mov.b32 d{i}, 0;" for i in range(num))
    stores = " ".join(f"st.global.v4.{word} [%0+{4 * i}], {{d{i}, d{i + 1}, d{i + 2}, d{i + 3}}};" for i in range(0, num, 4))
    has_one, has_traffic = ("true" if shape in some else "false" for some in (ALONE, BESIDE))
    kernels = f"RATE_KERNEL({name}, {has_one}, {has_traffic})\n"
    if shape in BEHIND:
        kernels += f"ISSUE_KERNEL({name})\n" + "".join(f"WAIT_KERNEL({name}, {num}, {wait})\n" for num, wait in WAITS)
    return f"""struct {name} {{
    static constexpr int kNumAccumulators = {num};
    static constexpr bool kIsRegisterA = {"true" if source == "rs" else "false"};
    static __device__ __forceinline__ void declare() {{ asm volatile(".reg .{word} d<{num}>; {begins}"); }}
    static __device__ __forceinline__ void issue(const uint32_t (&a)[4], uint64_t a_descriptor, uint64_t b_descriptor,
                                                 uint32_t scale) {{
        asm volatile("{{ .reg .pred p; setp.ne.b32 p, {scale}, 0; {atom.ptx} {{{sums}}}, {a}, {b}, p{others}; }}"
                     :: {inputs}, "l"(b_descriptor), "r"(scale));
    }}
    static __device__ __forceinline__ void store(uint32_t *d) {{
        asm volatile("{stores}" :: "l"(d) : "memory");
    }}
}};
{kernels}"""


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; ``num_pending``: groups that a wait leaves in flight, empty where nothing is waited for but the end."""

    question: str
    source: str = ""
    dtype: str = ""
    n: int = 0
    majors: str = ""
    data: str = "random"
    num_warpgroups: int = 1
    is_own: int = 0
    wgmmas_per_group: str = ""
    num_pending: str = ""
    traffic_ways: int = 0
    traffic_gap: int = 0

    @property
    def shape(self) -> Shape:
        """Of a wgmma."""
        return self.source, self.dtype, self.majors, self.n

    @property
    def kernel(self) -> str:
        """The entry point."""
        name = shape_name(*self.shape)
        if self.question == "wait":
            return f"wait_{name}_g{self.wgmmas_per_group}_w{self.num_pending}"
        if self.question == "issue":
            return f"issue_{name}_{'groups' if self.wgmmas_per_group == '1' else 'group'}"
        return self.question if self.question in OTHERS else f"rate_{name}"


def _row(question: str, shape: Shape, **others: Any) -> Row:
    source, dtype, majors, n = shape
    return Row(question, source, dtype, n, majors, **others)


def _rate(question: str, shape: Shape, **others: Any) -> Row:
    if question == "one":
        return _row(question, shape, wgmmas_per_group="1", num_pending="0", **others)
    return _row(question, shape, wgmmas_per_group=str(STREAM_WGMMAS), **others)


def every_shape() -> list[Row]:
    """One warpgroup: a stream that nothing waits for, and each wgmma waited for."""
    return [_rate("stream", shape) for shape in shapes()] + [_rate("one", shape) for shape in shapes() if shape in ALONE]


TOGETHER: tuple[Shape, ...] = (
    *(("ss", "bf16", "kk", n) for n in (8, 16, 32, 48, 64, 96, 128, 192, 256)),
    *(("rs", "bf16", "kk", n) for n in (8, 16, 32, 64, 128, 256)),
    ("ss", "fp8", "kk", 128), ("ss", "fp8", "kk", 256), ("ss", "tf32", "kk", 256), ("ss", "int8", "kk", 256),
    ("ss", "bf16", "mm", 128), ("ss", "bf16", "km", 128),
)  # fmt: skip


def warpgroups() -> list[Row]:
    """Two and three warpgroups at once, on the same operands and each on its own."""
    return [
        _rate(question, shape, num_warpgroups=num, is_own=is_own)
        for question, num, is_own, shape in product(("stream", "one"), (2, 3), (0, 1), TOGETHER)
    ]


BESIDE: tuple[Shape, ...] = (
    *(("ss", "bf16", "kk", n) for n in (8, 32, 64, 128, 256)), *(("rs", "bf16", "kk", n) for n in (8, 32, 64, 256)),
    ("ss", "fp8", "kk", 64), ("ss", "fp8", "kk", 256),
)  # fmt: skip
LOADS = (*product((1,), (0, 24, 48, 96, 192, 384, 768, 1536)), *product((2, 4, 8), (0, 192, 768)))
"""Wavefronts of each load; cycles from one batch of eight to the next, of each warp."""


def traffic() -> list[Row]:
    """Four warps load from shared memory beside one or two warpgroups, or alone."""
    found = [
        _rate("traffic", shape, num_warpgroups=num, traffic_ways=ways, traffic_gap=gap)
        for shape, num, (ways, gap) in product(BESIDE, (1, 2), LOADS)
    ]
    alone = ("ss", "bf16", "kk", 8)
    return found + [_rate("traffic", alone, num_warpgroups=0, traffic_ways=ways, traffic_gap=gap) for ways, gap in LOADS]


def waits() -> list[Row]:
    """Groups of one to eight, of which none, one or two stay in flight behind the wait of the next."""
    return [
        _row("wait", shape, wgmmas_per_group=str(num), num_pending=str(pending))
        for shape, (num, pending) in product(BEHIND, WAITS)
    ]


def issue() -> list[Row]:
    """The clock after each of eight wgmma in a row, in groups of one and in one group."""
    return [_row("issue", shape, wgmmas_per_group=str(num)) for shape, num in product(BEHIND, (1, NUM_ISSUED))]


def zeros() -> list[Row]:
    """Operands of zeros: cycles must be those of random ones."""
    return [_rate(question, shape, data="zeros") for shape in BEHIND for question in ("stream", "one")]


def others() -> list[Row]:
    """Fences where nothing is outstanding, and looks at the clock, of one and two warpgroups."""
    return Row.sweep(question=OTHERS, num_warpgroups=(1, 2))


# ---------------------------------------------------------------------------------------------- operands
SWIZZLE_SPANS = (("128B", 128), ("64B", 64), ("32B", 32), ("none", 16))


def swizzle_of(rows: int, major: str) -> str:
    """The widest swizzle that an operand can have; MN-major ones must fill its span."""
    if major == "k":
        return "128B"
    return next(name for name, span in SWIZZLE_SPANS if 2 * rows % span == 0)


def tile(rows: int, major: str, dtype: str) -> ByteLayout:
    """An operand in shared memory: four steps of 32 bytes of k where k is contiguous, one otherwise."""
    layout = operands.tile(rows, major, swizzle_of(rows, major), dtype_named(dtype).bits)
    if not isinstance(layout, ByteLayout):
        raise TypeError(f"kernels/wgmma_operands gave {layout}")
    return layout


def image(values: NDArray[np.float64], dtype: str, layout: ByteLayout) -> NDArray[np.uint8]:
    """Shared memory with an operand in it, padded."""
    elements, where = encode(values, dtype), operands.places(layout)
    raw = np.ascontiguousarray(elements)[..., None].view("u1")
    made = np.zeros(-(-int(where.max() + raw.shape[-1]) // operands.IMAGE_BYTES) * operands.IMAGE_BYTES, dtype=np.uint8)
    made[where[..., None] + np.arange(raw.shape[-1])] = raw
    return made


@cache
def _operand(name: str, rows: int, major: str, dtype: str, data: str) -> dict[str, Any]:
    """An operand's image, first descriptor, distance of descriptors, and numbers [rows, k] of each step."""
    step, layout = 8 * K_STEP_BYTES // dtype_named(dtype).bits, tile(rows, major, dtype)
    num_k = int(layout.layout[1].size)
    values = draw(rows, num_k, dtype, ord(name)) if data == "random" else np.zeros((rows, num_k))
    starts = [descriptor.bits for descriptor in wgmma_descriptors(layout, "K" if major == "k" else "MN")]
    return {
        name: image(values, dtype, layout), f"{name}_descriptor": starts[0],
        f"{name}_step": starts[1] - starts[0] if len(starts) > 1 else 0,
        "parts": [values[:, i * step : (i + 1) * step] for i in range(len(starts))],
    }  # fmt: skip


@cache
def operands_of(source: str, dtype: str, majors: str, n: int, data: str) -> dict[str, Any]:
    """Images, descriptors without their addresses, their steps, A's rows for registers, products and their sizes by step."""
    made: dict[str, Any] = {}
    parts = {}
    for name, rows, major in (("a", operands.M, majors[0]), ("b", n, majors[1])):
        one = _operand(name, rows, major, dtype, data)
        parts[name] = one["parts"]
        made |= {what: value for what, value in one.items() if what != "parts"}
    made["a_rows"] = np.ascontiguousarray(encode(parts["a"][0], dtype)).view("u1").reshape(operands.M, K_STEP_BYTES)
    if source == "rs":
        made |= {"a": np.zeros(0, dtype=np.uint8), "a_step": 0}
        parts["a"] = parts["a"][:1]
    pairs = [(parts["a"][i % len(parts["a"])], parts["b"][i % len(parts["b"])]) for i in range(STREAM_WGMMAS)]
    made["products"] = np.stack([a @ b.T for a, b in pairs])
    made["sizes"] = np.stack([np.abs(a) @ np.abs(b).T for a, b in pairs])
    for array in made.values():
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return made


def shape_of(row: Mapping[str, str]) -> Shape:
    """The shape of a row."""
    return Row.of(row).shape


def lengths_of(config: Row) -> NDArray[np.uint32]:
    """Groups of each train; of eight wgmma in a row there are as many trains, of one length."""
    if config.question in ("issue", "clocks"):
        return np.full(2 * NUM_REPEATS, 1, dtype=np.uint32)
    return train_lengths(*LENGTHS[config.question])


def launch(config: Row) -> KernelLaunch:
    """One CTA: the warpgroups that multiply, and four warps behind them where there is traffic."""
    lengths, kind = lengths_of(config), config.question
    if kind in OTHERS:
        num_stamps, num_warps = NUM_ISSUED + 2 if kind == "clocks" else 2, NUM_WARPS * config.num_warpgroups
        times = Output("times", np.full((len(lengths), num_warps, num_stamps), -1, dtype="<i8"))
        inputs = (Input(lengths),) if kind == "fences" else ()
        arguments: tuple[Any, ...] = (np.uint32(len(lengths)), *inputs, times)
        return KernelLaunch(kernel=config.kernel, arguments=arguments, block=(WARP_SIZE * num_warps, 1, 1))
    made = operands_of(*config.shape, config.data)
    num_groups, has_traffic = config.num_warpgroups, kind == "traffic"
    numbers = [
        made["a_step"], made["b_step"], made["a"].nbytes, made["b"].nbytes, num_groups, config.is_own, len(lengths),
        int(kind == "one"), config.traffic_ways, config.traffic_gap,
    ]  # fmt: skip
    descriptors = np.array([made["a_descriptor"], made["b_descriptor"]], dtype="<u8")
    num_warps = NUM_WARPS * num_groups
    dtype = "<i4" if config.dtype == "int8" else "<f4"
    shape = (len(lengths), max(num_warps, 1), NUM_ISSUED + 2 if kind == "issue" else 2)
    arguments = (
        by_value(np.concatenate([descriptors.view(np.uint8), np.array(numbers, dtype="<u4").view(np.uint8)])),
        *(() if kind == "issue" else (Input(lengths),)), Input(made["a"]), Input(made["b"]), Input(made["a_rows"]),
        Output("d", np.full((max(num_groups, 1), 128, config.n // 2), -1, dtype=dtype)),
        Output("times", np.full(shape, -1, dtype="<i8")),
        *((Output("traffic", np.full((TRAFFIC_WARPS, 3), -1, dtype="<i8")),) if config.kernel.startswith("rate") else ()),
    )  # fmt: skip
    copies = num_groups if config.is_own else 1
    return KernelLaunch(
        kernel=config.kernel, arguments=arguments,
        block=(WARP_SIZE * (num_warps + (TRAFFIC_WARPS if has_traffic else 0)), 1, 1),
        smem_bytes=copies * (made["a"].nbytes + made["b"].nbytes) + (TRAFFIC_BYTES if has_traffic else 0),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- answers
TOLERANCES = {"bf16": 1e-4, "fp16": 1e-4, "tf32": 1e-4, "fp8": 1.5e-2, "int8": 0.0}
"""Of a sum, as a part of the sum of its products' sizes; fp8 sums keep some 13 bits behind the leading one."""


def num_wgmmas(config: Row, length: int) -> NDArray[np.int64]:
    """How many wgmma of a train take each step of k, int64[4]."""
    per_group = NUM_ISSUED if config.question == "issue" else int(config.wgmmas_per_group)
    return length * np.bincount(np.arange(per_group) % STREAM_WGMMAS, minlength=STREAM_WGMMAS)


def check_sums(config: Row, sums: NDArray[Any]) -> None:
    """Hold the accumulators of every warpgroup against the product.

    Raises:
        WrongAnswer: they are not the sum that the last train must leave.
    """
    made, counts = operands_of(*config.shape, config.data), num_wgmmas(config, int(lengths_of(config)[-1]))
    wanted, sizes = (operands.accumulators(np.tensordot(counts, made[name], 1)).T for name in ("products", "sizes"))
    is_wrong = ~(np.abs(sums - wanted) <= TOLERANCES[config.dtype] * sizes)
    if is_wrong.any():
        group, thread, register = (int(where[0]) for where in np.nonzero(is_wrong))
        raise WrongAnswer(
            f"warpgroup {group}, thread {thread} has {sums[group, thread, register]} in accumulator {register}, "
            f"not {wanted[thread, register]}"
        )


def traffic_rate(told: NDArray[np.int64], ways: int) -> float:
    """Wavefronts a cycle of all warps that load, the looks at the flag included.

    Raises:
        WrongAnswer: a warp did not load.
    """
    wrong_if((told[:, :2] <= 0).any(), "a warp that loads beside has not told how often")
    return float(((TRAFFIC_BATCH * ways + 1) * told[:, 0] / told[:, 1]).sum())


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Times of the trains, cycles of a wgmma, the traffic beside.

    Raises:
        WrongAnswer: sums that are not the product's, or clocks that stand still.
    """
    kind, values = config.question, {}
    if kind == "traffic":
        values["traffic_wavefronts_per_cycle"] = traffic_rate(outputs["traffic"], config.traffic_ways)
        if not config.num_warpgroups:
            return values
    if kind == "clocks":
        return {"cycles_each": issue_values(outputs["times"])["after_wait"] / (NUM_ISSUED + 1)}
    if kind != "fences":
        check_sums(config, outputs["d"])
    if kind == "issue":
        return values | issue_values(outputs["times"])
    lengths = lengths_of(config)
    values |= train_cycles(outputs["times"], lengths)
    num_rounds = int(lengths.max()) - int(lengths.min())
    slope = (values["long_cycles"] - values["short_cycles"]) / num_rounds
    return values | {"cycles_each": slope / (NUM_FENCES if kind == "fences" else int(config.wgmmas_per_group))}


def issue_values(stamps: NDArray[np.int64]) -> dict[str, float]:
    """Cycles from before the fence to each stamp, the median of all warps and trains but the first two.

    Raises:
        WrongAnswer: the clock stands still.
    """
    wrong_if((stamps <= 0).any() or (np.diff(stamps, axis=-1) <= 0).any(), "the clock stands still")
    since = np.median((stamps[2:, :, 1:] - stamps[2:, :, :1]).reshape(-1, NUM_ISSUED + 1), axis=0)
    return {name: float(cycles) for name, cycles in zip(STAMPS, since, strict=True)}


STAMPS = (*(f"after_wgmma_{i}" for i in range(1, NUM_ISSUED + 1)), "after_wait")


# ---------------------------------------------------------------------------------------------- the simulator
def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The twin in the simulator's words; nothing where loads compete, as it has no such mechanism."""
    kind, num_groups = config.question, config.num_warpgroups
    if kind in ("traffic", "clocks") or not gpu.tensor_core.wgmma_flops_per_cycle:
        return {}
    if kind == "fences":
        return {"cycles_each": _simulated_fences(num_groups, gpu)}
    source, dtype, majors, n = config.shape
    atom = operands.atom_of(source, dtype, n)
    a = tile(operands.M, majors[0], dtype) if source == "ss" else None
    if wgmma_wavefronts(atom, (a, tile(n, majors[1], dtype))) != wgmma_wavefronts(atom):
        return {}  # the word for a wgmma says nothing of how its operands lie
    per_group, pending = int(config.wgmmas_per_group), config.num_pending
    if kind == "issue":
        return _simulated_issue(atom, per_group, gpu)
    short, long = LENGTHS[kind]
    round_cycles = ROUND_CYCLES["one" if kind == "one" else "wait"][source]
    turn = words.Alu(round_cycles / gpu.warp_scheduler.dependent_cycles, is_chain=True)
    train = Train(atom=atom, per_group=per_group, pending=int(pending or -1), turn=turn)
    cycles = [_simulated(train, length, num_groups, gpu) for length in (short, long)]
    each = (cycles[1] - cycles[0]) / ((long - short) * per_group)
    return {"short_cycles": cycles[0], "long_cycles": cycles[1], "cycles_each": each}


BRANCH_INSTRUCTIONS = 2.0
"""Of a loop, each waiting for the one before: comparison and branch (kernels/math_rate has 8 cycles for them)."""

ROUND_CYCLES = {"one": {"ss": 20.0, "rs": 16.0}, "wait": {"ss": 13.5, "rs": 14.5}}
"""What a round of trains takes beside its wgmma, by where A comes from: comparison, branch, the predicate that says whether
sums are taken, descriptors (SASS has 30 scheduled cycles for ``one`` from shared memory, 26 elsewhere, the wgmma and its
wait among them). A ``stream`` hides what ``wait`` shows."""


def _group(atom: MmaAtom, num: int) -> Iterator[words.Op]:
    yield words.WgmmaFence()
    yield words.Wgmma(atom, num)
    yield words.WgmmaCommitGroup()


def _cycles(program: Any, num_warpgroups: int, gpu: GpuSpec) -> float:
    """Of warpgroups that all do the same."""
    roles = [WarpRole(name=f"group{i}", num_warps=NUM_WARPS, program=program) for i in range(num_warpgroups)]
    return cta_cycles(gpu, *roles)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Groups of ``per_group`` wgmma and turns; a wait behind each leaves ``pending`` in flight (-1: no waits)."""

    atom: MmaAtom
    per_group: int
    pending: int
    turn: words.Alu


def _simulated(train: Train, length: int, num_warpgroups: int, gpu: GpuSpec) -> float:
    """Cycles of a train of so many groups and turns."""

    def program(_cta: Any) -> Any:
        for _ in range(length):
            yield from _group(train.atom, train.per_group)
            if train.pending >= 0:
                yield words.WgmmaWaitGroup(train.pending)
            yield train.turn
        yield words.WgmmaWaitGroup(0)

    return _cycles(program, num_warpgroups, gpu)


def _simulated_fences(num_warpgroups: int, gpu: GpuSpec) -> float:
    """Cycles of a fence."""

    def program(num: int, _cta: Any) -> Any:
        for _ in range(num):
            yield from [words.WgmmaFence()] * NUM_FENCES
            yield words.Alu(BRANCH_INSTRUCTIONS, is_chain=True)

    short, long = (_cycles(partial(program, num), num_warpgroups, gpu) for num in LENGTHS["fences"])
    return (long - short) / (NUM_FENCES * (LENGTHS["fences"][1] - LENGTHS["fences"][0]))


def _simulated_issue(atom: MmaAtom, per_group: int, gpu: GpuSpec) -> dict[str, float]:
    """Where the issuing warps stand after each of eight wgmma, and after the wait for all."""

    def program(num: int, waits: bool, _cta: Any) -> Any:
        yield words.WgmmaFence()
        for idx in range(num):
            yield words.Wgmma(atom, 1)
            if (idx + 1) % per_group == 0:
                yield words.WgmmaCommitGroup()
        if waits:
            yield words.WgmmaWaitGroup(0)

    return {
        stamp: _cycles(partial(program, min(number, NUM_ISSUED), stamp == "after_wait"), 1, gpu)
        for number, stamp in enumerate(STAMPS, 1)
    }


# ---------------------------------------------------------------------------------------------- parameters
BRANCH_CYCLES = 8.0
"""Of a loop: kernels/math_rate, chains that take 4 cycles a step, less those."""
GREEDY_GAP = 96
"""Cycles from one batch of loads to the next that loads beside are always behind with."""
NARROW_N = 32
"""Below which ``rs`` is looked at for the least interval."""
LEAST_N = 64
"""From which on arithmetic takes longer than the operands of ``ss`` where that is known; issue is looked at from it, too."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a wgmma in a row takes: max(n x arithmetic, wavefronts x operands, least) + overhead, in cycles."""

    per_n: Mapping[str, float]
    """By class of type."""
    per_wavefront: float
    overhead: float
    least: float = 0.0

    def arithmetic(self, row: Mapping[str, str]) -> float:
        """Of the shape of a row; NaN where nothing is known of its class."""
        return self.per_n.get(_class_of(row), float("nan")) * int(row["n"]) + self.overhead

    def operands(self, row: Mapping[str, str]) -> float:
        """The same of its operands."""
        return _wavefronts(row) * self.per_wavefront + self.overhead

    def cycles(self, row: Mapping[str, str]) -> float:
        """Of the shape of a row; NaN where nothing is known of its class."""
        return max(self.arithmetic(row), self.operands(row), self.least + self.overhead)


def _wavefronts(row: Mapping[str, str]) -> float:
    source, dtype, _, n = shape_of(row)
    return float(wgmma_wavefronts(operands.atom_of(source, dtype, n)))


def _class_of(row: Mapping[str, str]) -> str:
    return str(operands.atom_of(row["source"], row["dtype"], int(row["n"])).rate_class)


def pace_of(rows: Sequence[Mapping[str, str]]) -> Pace:
    """Lines through the streams of one warpgroup: over n where arithmetic decides, over wavefronts where operands do."""
    streams = [
        row for row in rows
        if row["group"] == "every_shape" and row["question"] == "stream" and row["majors"] == "kk" and row.get("cycles_each")
    ]  # fmt: skip
    per_n: dict[str, float] = {}
    bound: list[tuple[float, float]] = []
    for name in dict.fromkeys(map(_class_of, streams)):
        mine = [row for row in streams if _class_of(row) == name]
        wide = [(int(row["n"]), float(row["cycles_each"])) for row in mine if int(row["n"]) >= LEAST_N]
        per_n[name], start = median_line(wide)
        for row in mine:
            n, cycles = int(row["n"]), float(row["cycles_each"])
            if row["source"] == "ss" and n < LEAST_N and cycles > per_n[name] * n + start + 1.0:  # slower than arithmetic
                bound.append((_wavefronts(row), cycles))
    per_wavefront, _ = median_line(bound)
    without = Pace(per_n, per_wavefront, 0.0)
    over = [float(row["cycles_each"]) - without.cycles(row) for row in streams]
    overhead = float(np.median(over)) if over else float("nan")
    known = Pace(per_n, per_wavefront, overhead)
    narrow = [
        float(row["cycles_each"]) - overhead for row in streams
        if row["source"] == "rs" and int(row["n"]) < NARROW_N and float(row["cycles_each"]) > known.cycles(row) + 0.5
    ]  # fmt: skip
    return Pace(per_n, per_wavefront, overhead, float(np.median(narrow)) if narrow else 0.0)


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Rates of arithmetic and operands, least interval, overhead, start and latency of wgmma, and groups in flight."""
    pace = pace_of(rows)
    fences = [float(row["cycles_each"]) for row in rows if row["question"] == "fences" and row.get("cycles_each")]
    fence = float(np.median(fences)) - BRANCH_CYCLES / NUM_FENCES if fences else float("nan")
    waits: list[float] = []  # behind the last one's operands
    starts: dict[str, list[float]] = {"ss": [], "rs": []}  # behind the last one's arithmetic, its start included
    for row in rows:
        if row["question"] == "issue" and row.get("after_wait"):
            behind = float(row["after_wait"]) - fence - (NUM_ISSUED - 1) * pace.cycles(row)
            if row["source"] == "ss":
                waits.append(behind - pace.operands(row))
            if int(row["n"]) >= LEAST_N:
                starts[row["source"]].append(behind - pace.arithmetic(row))
    latency = min(waits, default=float("nan"))  # of the narrowest, where operands and not arithmetic come last
    least, row_of = [pace.least] if pace.least else [], "eight in a row and a wait,"
    found = {
        f"tensor_core.wgmma_flops_per_cycle.{name}": (
            [2 * operands.M * _atom_k(name) / slope], "streams: line over n from 64 on, FLOP over its slope"
        )
        for name, slope in pace.per_n.items() if slope > 0
    }  # fmt: skip
    between = [
        float(row["traffic_wavefronts_per_cycle"]) * float(row["cycles_each"]) for row in rows
        if row["question"] == "traffic" and row["num_warpgroups"] == "1" and row["traffic_ways"] == "1"
        and int(row["traffic_gap"]) <= GREEDY_GAP and row.get("traffic_wavefronts_per_cycle") and row.get("cycles_each")
        and pace.operands(row) >= pace.arithmetic(row)
    ]  # fmt: skip
    return medians({
        **found,
        "tensor_core.wgmma_min_free_wavefronts": (
            between, "loads without conflicts beside ss up to n = 64, wavefronts a wgmma: median"
        ),
        "tensor_core.wgmma_smem_wavefronts_per_cycle": (
            [1.0 / pace.per_wavefront] if pace.per_wavefront > 0 else [],
            "streams of ss below n = 64 that operands bound: wavefronts over cycles, slope",
        ),
        "tensor_core.wgmma_overhead_cycles": ([pace.overhead], "streams less what arithmetic or operands take, median"),
        "tensor_core.wgmma_min_interval_cycles": (
            least, "streams of rs below n = 32 that are slower than arithmetic: median"
        ),
        "tensor_core.wgmma_smem_a_cycles": (
            [start - latency for start in starts["ss"]], f"{row_of} ss from n = 64 on, less arithmetic and wait: median"
        ),
        "tensor_core.wgmma_register_a_cycles": (
            [start - latency for start in starts["rs"]], f"{row_of} rs from n = 64 on, less arithmetic and wait: median"
        ),
        "tensor_core.wgmma_latency_cycles": ([latency], f"{row_of} ss, less a fence and operands: the least (n = 8)"),
        "tensor_core.wgmma_max_groups": (
            _depths(rows, pace), "groups of one issued before the first that takes as long as a stream's"
        ),
    })  # fmt: skip


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What a round takes beside its wgmma: of one warpgroup that waits for every group, so that nothing hides it."""
    left: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        is_lone = row["question"] in ROUND_CYCLES and row["num_warpgroups"] == "1" and row["num_pending"] == "0"
        if is_lone and row.get("cycles_each"):
            each = predict(Row.of(row), gpu).get("cycles_each")
            if each is not None:
                beyond = (float(row["cycles_each"]) - each) * int(row["wgmmas_per_group"])
                key = (row["question"], row["source"])
                left.setdefault(key, []).append(ROUND_CYCLES[key[0]][key[1]] + beyond)  # what stands there cancels
    how = "one warpgroup that waits for every group: cycles of a round beyond the twin's, median"
    return [one for key, values in left.items() for one in fitted_constant("ROUND_CYCLES", values, how, *key)]


def _atom_k(rate_class: str) -> int:
    return next(8 * K_STEP_BYTES // dtype_named(name).bits for name in DTYPES if _class_of_type(name) == rate_class)


def _class_of_type(name: str) -> str:
    return str(operands.atom_of("ss", name, 8).rate_class)


def _depths(rows: Sequence[Mapping[str, str]], pace: Pace) -> list[float]:
    """Of each shape that is slow enough to tell a wait from a look at the clock: groups before the first that waits."""
    clocks = [float(row["cycles_each"]) for row in rows if row["question"] == "clocks" and row.get("cycles_each")]
    look = float(np.median(clocks)) if clocks else 0.0
    found = []
    for row in rows:
        if row["question"] != "issue" or row["wgmmas_per_group"] != "1" or int(row["n"]) < LEAST_N:
            continue
        if not all(row.get(stamp) for stamp in STAMPS):
            continue
        steps = np.diff([float(row[stamp]) for stamp in STAMPS[:NUM_ISSUED]]) - look
        waits = np.flatnonzero(steps > pace.cycles(row) / 2)
        if waits.size:
            found.append(float(waits[0] + 1))
    return found


CASE = Case(
    name="wgmma_rate",
    question="How long is a wgmma alone and in a row, when does its warp stall, and what do others do to it?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, fitted_constants=fitted_constants,
    includes=includes,
    groups={
        name: Group(configs=configs, rank=rank, least_capability=(9, 0))
        for name, configs, rank in (
            ("every_shape", every_shape, 2), ("warpgroups", warpgroups, 2), ("waits", waits, 2), ("issue", issue, 2),
            ("traffic", traffic, 3), ("zeros", zeros, 4), ("others", others, 4),
        )
    },
    values={
        **SPAN_VALUES,
        "cycles_each": "SM cycles of a wgmma of one warpgroup (a fence, a look at the clock): the slope between trains",
        "traffic_wavefronts_per_cycle": "of all warps that load beside, from their first load to their last",
        **dict.fromkeys(STAMPS, "SM cycles from before the fence to here; the median of warps and trains"),
    },
    tiers={"cycles_each": 4, "after_wait": 2},
)  # fmt: skip
