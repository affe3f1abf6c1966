"""How long is one step of a chain of an instruction, and how many does an SM do in a cycle? Arithmetic, tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, WarpRole
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.microbenchmark import cta_cycles
from gpusim.evidence.cases.parameters import medians
from gpusim.evidence.cases.timing import SPAN_VALUES, train_cycles, train_lengths
from gpusim.units import WARP_SIZE
from gpusim.workload import ops as words
from gpusim.workload.atoms.mma import K_STEP_BYTES, MMA_ATOMS, MmaAtom

Words = NDArray[Any]
"""Registers of a warp, one a lane: uint32[..., 32], or uint64."""

BODY_INSTRUCTIONS = 256
"""Of a loop's body in kernel.cu."""
CHAINS = (1, 2, 4, 8)
WARPS = (1, 2, 3, 4, 6, 8)
"""Warps of a sub-partition."""
NUM_SUB_PARTITIONS = 4
SHORT, LONG = 1, 3
"""Bodies of the two trains."""
ENOUGH = 8
"""Chains of a sub-partition from which on a pipe is taken to be full: no latency here is longer than 8 intervals."""
BANK_READS: Mapping[tuple[str, int], float] = {("ffma", 1): 2.0, ("ffma", 2): 1.5}
"""Registers that an FFMA reads of the fuller bank, by chains, on the mean; others read one. Source: SASS of nvcc 13.0."""
LOOP_INSTRUCTIONS = 3
"""Of a body beside those: counter, comparison, branch."""
BRANCH_INSTRUCTIONS = 2
"""Of them, each waits for the one before."""
SIMULATED_INSTRUCTIONS = 64.0
"""Of each warp, where the simulator is asked for a rate."""


# ---------------------------------------------------------------------------------------------- instructions
Step = Callable[[Words, Words], Words]
"""(state [num_state, ..., 32], constants [num_constants, 32]) to the next state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MathOp:
    """One step of a chain.

    ``ptx`` has ``{s0}``, ``{s1}`` for the chain's registers and ``{c0}``, ``{c1}`` for constants. ``sass`` lists the
    instructions that it becomes. ``begin`` and ``constants`` are words [n, 32]; every chain begins alike.
    ``pipe`` is the simulator's word for it, empty where there is none.
    """

    name: str
    ptx: str
    sass: tuple[str, ...]
    step: Step
    begin: Words
    constants: Words
    tolerance: float = 0.0
    """Relative, of float words; 0 wants every bit."""
    real: str = ""
    """What the words are seen as where there is a tolerance."""
    pipe: str = ""
    least_capability: tuple[int, int] = (8, 0)
    most_steps: int = 0
    """Of a body; 0 where only its size is a limit."""
    most_chains: int = CHAINS[-1]
    """That fit into 64 registers."""
    num_turned: int = 0
    """Constants, the last ones, that turn by a byte at every step of any chain, or a compiler would do it only once."""

    @property
    def num_instructions(self) -> int:
        """Instructions of a step."""
        return len(self.sass)


def steps_of_body(op: MathOp, num_chains: int) -> int:
    """Steps of each chain in a body."""
    return min(BODY_INSTRUCTIONS // (num_chains * op.num_instructions), op.most_steps or BODY_INSTRUCTIONS)


def chains_of(op: MathOp) -> tuple[int, ...]:
    """Independent chains that there are kernels for."""
    return tuple(chains for chains in CHAINS if chains <= op.most_chains)


def _floats(*shape: int, seed: int, dtype: str = "<f4") -> Words:
    return np.random.default_rng([7, seed]).normal(size=(*shape, 32)).astype(dtype)


def _factors(seed: int, dtype: str = "<f4") -> Words:
    """A factor of 0.3 to 0.7 and a normal summand: chains that stay where they are."""
    rng = np.random.default_rng([8, seed])
    return np.stack([rng.uniform(0.3, 0.7, 32), rng.normal(size=32)]).astype(dtype)


def _bits(*shape: int, seed: int) -> Words:
    return np.random.default_rng([9, seed]).integers(0, 2**32, (*shape, 32), dtype=np.uint32)


def _to_bf16(values: Words) -> Words:
    """Round once, to nearest even; uint16. Of normal numbers."""
    fractions, exponents = np.frexp(values.astype("<f8"))
    rounded = np.ldexp(np.rint(fractions * 2.0**8), exponents - 8).astype("<f4")
    return np.asarray((rounded.view("<u4") >> 16).astype("<u2"))


def _from_bf16(halves: Words) -> Words:
    return np.asarray((halves.astype("<u4") << 16).view("<f4"))


def _fma32(s: Words, c: Words) -> Words:
    x, a, b = (words.view("<f4").astype("<f8") for words in (s, c[0], c[1]))
    return np.asarray((x * a + b).astype("<f4").view("<u4"))


def _fma64(s: Words, c: Words) -> Words:
    return np.asarray((s.view("<f8") * c[0].view("<f8") + c[1].view("<f8")).view("<u8"))


def _fma16(s: Words, c: Words) -> Words:
    x, a, b = (np.ascontiguousarray(words)[..., None].view("<f2").astype("<f8") for words in (s, c[0], c[1]))
    return np.ascontiguousarray((x * a + b).astype("<f2")).view("<u4")[..., 0]


def _fmab16(s: Words, c: Words) -> Words:
    x, a, b = (_from_bf16(np.ascontiguousarray(words)[..., None].view("<u2")).astype("<f8") for words in (s, c[0], c[1]))
    return np.ascontiguousarray(_to_bf16(x * a + b)).view("<u4")[..., 0]


def _add32(s: Words, c: Words) -> Words:
    return np.asarray((s.view("<f4") + c[0].view("<f4")).view("<u4"))


def _by_turns(first: Step, second: Step) -> Step:
    """Register 0 from both, then register 1 from both."""

    def step(s: Words, c: Words) -> Words:
        x = first(s, c)
        return np.stack([x, second(np.stack([x, s[1]]), c)])

    return step


def _rotated(value: Words, below: Words, shift: Words) -> Words:
    """``shf.l.wrap``: the high word of (value : below) moved left."""
    wide = value.astype("<u8") << np.uint64(32) | below.astype("<u8")
    return np.asarray((wide << shift.astype("<u8") >> np.uint64(32)).astype("<u4"))


def _permuted(s: Words, c: Words) -> Words:
    both = (s[0], np.broadcast_to(c[0], s[0].shape))
    pool = np.concatenate([np.ascontiguousarray(words)[..., None].view("u1") for words in both], -1)
    picks = np.stack([c[1] >> np.uint32(4 * i) & np.uint32(7) for i in range(4)], -1)
    found = np.take_along_axis(pool, np.broadcast_to(picks, (*s[0].shape, 4)).astype(np.intp), -1)
    return np.ascontiguousarray(found).view("<u4")[..., 0][None]


def _dot4(s: Words, c: Words) -> Words:
    x, a = (np.ascontiguousarray(words)[..., None].view("i1").astype("<i8") for words in (s, c[0]))
    return np.asarray(((x * a).sum(-1) + c[1].astype("<i8")).astype("<u4"))


def _real(function: Callable[[Words], Words]) -> Step:
    """A function of floats."""
    return lambda s, c: np.asarray(function(s.view("<f4").astype("<f8")).astype("<f4").view("<u4"))


def _shifted(function: Callable[[Words], Words]) -> Step:
    """A function of floats, plus the constant."""
    return lambda s, c: np.asarray((function(s.view("<f4")) + c[0].view("<f4")).astype("<f4").view("<u4"))


def _to_halves(encode: Callable[[Words], Words]) -> Step:
    """``cvt.rn.<two of 16 bits>.f32``: the chain's word above, the constant below."""

    def step(s: Words, c: Words) -> Words:
        above, below = encode(s.view("<f4")), encode(np.broadcast_to(c[0], s.shape).view("<f4"))
        return np.asarray(above.astype("<u4") << 16 | below.astype("<u4"))

    return step


def _half(values: Words) -> Words:
    with np.errstate(over="ignore"):
        return np.asarray(values.astype("<f2").view("<u2"))


def _e4m3_values() -> Words:
    codes = np.arange(127)
    return np.where(codes >> 3, (8 + codes % 8) * 2.0 ** ((codes >> 3) - 10), codes % 8 * 2.0**-9)


def _e4m3(values: Words) -> Words:
    """Nearest code, even ones of two that are as near; saturates."""
    known, size = _e4m3_values(), np.abs(values.astype("<f8"))
    above = np.searchsorted(known, size).clip(1, 126)
    is_above = known[above] - size < size - known[above - 1]
    is_above |= (known[above] - size == size - known[above - 1]) & (above % 2 == 0)
    return np.asarray(np.where(is_above, above, above - 1) | np.signbit(values) << 7).astype("<u4")


def _to_e4m3(s: Words, c: Words) -> Words:
    pair = _e4m3(s.view("<f4")) << np.uint32(8) | _e4m3(np.broadcast_to(c[0], s.shape).view("<f4"))
    return np.asarray(pair | pair << np.uint32(16))


def _from_e4m3(s: Words, _c: Words) -> Words:
    codes = np.stack([s >> np.uint32(16) & np.uint32(0xFF), s >> np.uint32(24)], -1)
    values = np.where(codes & 0x80, -1.0, 1.0) * _e4m3_values()[np.minimum(codes & 0x7F, 126)]
    return np.ascontiguousarray(values.astype("<f2")).view("<u4")[..., 0]


def _extremes(s: Words, c: Words) -> Words:
    above = np.maximum(s[0].view("<f4"), s[1].view("<f4"))
    return np.stack([above, np.minimum(above, c[0].view("<f4"))]).view("<u4")


def _most(a: Words, b: Words, c: Words) -> Words:
    return np.asarray(a & b | a & c | b & c)


def _ones(s: Words, _c: Words) -> Words:
    return np.unpackbits(np.ascontiguousarray(s)[..., None].view("u1"), axis=-1).sum(-1).astype("<u4")


def _plain(name: str, ptx: str, *sass: str, step: Step, begin: Words, **others: Any) -> MathOp:
    """Constants are zeros where there are none."""
    width = "<u8" if begin.dtype.itemsize == 8 else "<u4"
    held = others.pop("constants", np.zeros((1, 32), dtype=width)).view(width)
    return MathOp(name=name, ptx=ptx, sass=sass, step=step, begin=begin.view(width), constants=held, **others)


_HALF_FACTORS = np.repeat(_factors(3, "<f2")[..., None], 2, -1).view("<u4")[..., 0]
_BF16_FACTORS = np.repeat(_to_bf16(_factors(4))[..., None], 2, -1).view("<u4")[..., 0]
_CHANGED = np.stack([_bits(seed=12), np.full(32, 0x2103, dtype=np.uint32)])
_SHIFTS = np.stack([_bits(seed=3), np.full(32, 7, dtype=np.uint32)])
_NEAR_ONE = np.linspace(0.5, 1.5, 32, dtype="<f4")[None]

PLAIN_OPS = (
    _plain("ffma", "fma.rn.f32 {s0}, {s0}, {c0}, {c1};", "FFMA", pipe="fma",
           step=_fma32, begin=_floats(1, seed=1), constants=_factors(1), tolerance=1e-6, real="<f4"),
    _plain("fadd", "add.rn.f32 {s0}, {s0}, {c0};", "FADD", pipe="fma",
           step=_add32, begin=_floats(1, seed=2), constants=_floats(1, seed=3)),
    _plain("hfma2", "fma.rn.f16x2 {s0}, {s0}, {c0}, {c1};", "HFMA2",
           step=_fma16, begin=_floats(1, seed=4, dtype="<f2").repeat(2, -1).view("<u4"), constants=_HALF_FACTORS),
    _plain("hfma2_bf16", "fma.rn.bf16x2 {s0}, {s0}, {c0}, {c1};", "HFMA2",
           step=_fmab16, begin=_to_bf16(_floats(1, seed=5)).repeat(2, -1).view("<u4"), constants=_BF16_FACTORS),
    _plain("dfma", "fma.rn.f64 {s0}, {s0}, {c0}, {c1};", "DFMA",
           step=_fma64, begin=_floats(1, seed=6, dtype="<f8"), constants=_factors(6, "<f8"), tolerance=1e-14, real="<f8"),
    _plain("iadd3", "add.s32 {s0}, {s0}, {s1}; add.s32 {s0}, {s0}, {c0}; "
           "add.s32 {s1}, {s1}, {s0}; add.s32 {s1}, {s1}, {c1};", "IADD3", "IADD3", pipe="alu",
           step=_by_turns(lambda s, c: s[0] + s[1] + c[0], lambda s, c: s[1] + s[0] + c[1]),
           begin=_bits(2, seed=1), constants=_bits(2, seed=2)),
    _plain("imad", "mad.lo.u32 {s0}, {s0}, {c0}, {c1};", "IMAD",
           step=lambda s, c: s * c[0] + c[1], begin=_bits(1, seed=4), constants=_bits(2, seed=5)),
    _plain("lop3", "lop3.b32 {s0}, {s0}, {s1}, {c0}, 0xe8; lop3.b32 {s1}, {s1}, {s0}, {c1}, 0xe8;", "LOP3", "LOP3",
           pipe="alu",
           step=_by_turns(lambda s, c: _most(s[0], s[1], c[0]), lambda s, c: _most(s[1], s[0], c[1])),
           begin=_bits(2, seed=8), constants=_bits(2, seed=9)),
    _plain("shf", "shf.l.wrap.b32 {s0}, {c0}, {s0}, {c1};", "SHF", pipe="alu",
           step=lambda s, c: _rotated(s, np.broadcast_to(c[0], s.shape), c[1]), begin=_bits(1, seed=10), constants=_SHIFTS),
    _plain("prmt", "prmt.b32 {s0}, {s0}, {c0}, {c1};", "PRMT", pipe="alu",
           step=_permuted, begin=_bits(1, seed=11), constants=_CHANGED),
    _plain("isetp_sel", "{{ .reg .pred p; setp.lt.u32 p, {s0}, {c0}; selp.b32 {s0}, {c1}, {c0}, p; }}", "ISETP", "SEL",
           pipe="alu",
           step=lambda s, c: np.where(s < c[0], c[1], c[0]),
           begin=_bits(1, seed=13), constants=np.sort(_bits(2, seed=14), axis=0)[::-1].copy()),
    _plain("fmnmx", "max.f32 {s0}, {s0}, {s1}; min.f32 {s1}, {s0}, {c0};", "FMNMX", "FMNMX", pipe="alu",
           step=_extremes, begin=_floats(2, seed=15), constants=_floats(1, seed=16)),
    _plain("popc", "popc.b32 {s0}, {s0};", "POPC", step=_ones, begin=_bits(1, seed=17)),
    _plain("idp4a", "dp4a.s32.s32 {s0}, {s0}, {c0}, {c1};", "IDP",
           step=_dot4, begin=_bits(1, seed=18), constants=_bits(2, seed=19)),
    _plain("shfl", "shfl.sync.bfly.b32 {s0}, {s0}, {c0}, 31, -1;", "SHFL", pipe="shfl",
           step=lambda s, c: s[..., np.arange(32) ^ 5], begin=_bits(1, seed=20), constants=np.full((1, 32), 5, dtype="<u4")),
    _plain("mufu_ex2", "{{ .reg .f32 t; neg.f32 t, {s0}; ex2.approx.ftz.f32 {s0}, t; }}", "MUFU.EX2", pipe="mufu",
           step=_real(lambda x: 2.0**-x), begin=_NEAR_ONE, tolerance=1e-5, real="<f4"),
    _plain("mufu_rcp", "rcp.approx.ftz.f32 {s0}, {s0}; add.rn.f32 {s0}, {s0}, {c0};", "MUFU.RCP", "FADD",
           step=_shifted(lambda x: 1 / x), begin=_NEAR_ONE, constants=_NEAR_ONE, tolerance=1e-5, real="<f4"),
    _plain("mufu_rsq", "rsqrt.approx.ftz.f32 {s0}, {s0};", "MUFU.RSQ", pipe="mufu",
           step=_real(lambda x: x**-0.5), begin=_NEAR_ONE, tolerance=1e-5, real="<f4"),
    _plain("mufu_cos", "cos.approx.ftz.f32 {s0}, {s0};", "FMUL", "MUFU.COS",
           step=_real(np.cos), begin=_NEAR_ONE, tolerance=1e-5, real="<f4"),
    _plain("mufu_sin", "sin.approx.ftz.f32 {s0}, {s0}; add.rn.f32 {s0}, {s0}, {c0};", "FMUL", "MUFU.SIN", "FADD",
           step=_shifted(np.sin), begin=_NEAR_ONE, constants=_NEAR_ONE, tolerance=1e-4, real="<f4"),
    _plain("mufu_tanh", "tanh.approx.f32 {s0}, {s0}; add.rn.f32 {s0}, {s0}, {c0};", "MUFU.TANH", "FADD",
           step=_shifted(np.tanh), begin=_NEAR_ONE, constants=_NEAR_ONE, tolerance=2e-3, real="<f4"),
    _plain("cvt_f16x2_f32", "cvt.rn.f16x2.f32 {s0}, {s0}, {c0};", "F2FP", pipe="alu",
           step=_to_halves(_half), begin=_floats(1, seed=21), constants=_NEAR_ONE),
    _plain("cvt_bf16x2_f32", "cvt.rn.bf16x2.f32 {s0}, {s0}, {c0};", "F2FP", pipe="alu",
           step=_to_halves(_to_bf16), begin=_floats(1, seed=22), constants=_NEAR_ONE),
    _plain("cvt_s32_f32", "{{ .reg .s32 t; cvt.rni.s32.f32 t, {s0}; cvt.rn.f32.s32 {s0}, t; }}", "F2I", "I2FP",
           step=_real(np.rint), begin=_floats(1, seed=23) * np.float32(1000.0)),
    _plain("cvt_f32_s32", "cvt.rn.f32.s32 {s0}, {s0};", "I2FP", pipe="alu",
           step=lambda s, c: s.view("<i4").astype("<f4").view("<u4"), begin=_bits(1, seed=24)),
    _plain("cvt_e4m3x2_f32",
           "{{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, {s0}, {c0}; mov.b32 {s0}, {{t, t}}; }}", "F2FP", "PRMT",
           pipe="alu",
           step=_to_e4m3, begin=_floats(1, seed=25), constants=_NEAR_ONE, least_capability=(8, 9)),
    _plain("cvt_f16x2_e4m3x2", "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {s0}; cvt.rn.f16x2.e4m3x2 {s0}, h; }}", "F2FP", "PRMT",
           pipe="alu",
           step=_from_e4m3, begin=np.full((1, 32), 0x38B8C041, dtype=np.uint32), least_capability=(8, 9)),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- mma.sync
_ONES = {"fp16": (0x3C00, 0xBC00), "bf16": (0x3F80, 0xBF80), "tf32": (0x3F800000, 0xBF800000), "int8": (0x01, 0xFF),
         "fp8": (0x38, 0xB8)}  # fmt: skip
"""Plus and minus one."""
MOST_SUM = 20
"""Of a product of ones: so many steps of it are exact even in fp16."""
MMA_STEPS = 32
"""Of a body."""


def _fragment_words(numbers: NDArray[np.int64], layout: Any, codes: tuple[int, int], bits: int) -> Words:
    """A matrix of plus and minus ones as the registers of a warp, uint32[num_registers, 32]."""
    places = np.array([[layout(thread, value) for value in range(layout[1].size)] for thread in range(32)])
    rows = numbers.shape[0]
    picked = numbers[places % rows, places // rows]
    raw = np.where(picked > 0, codes[0], codes[1]).astype(f"<u{bits // 8}")
    return np.ascontiguousarray(np.ascontiguousarray(raw).view("<u4").T)


@cache
def _mma_operands(name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A (m, k) and B (n, k) of plus and minus ones, none of whose sums is large."""
    atom = MMA_ATOMS[name]
    for seed in range(100):
        rng = np.random.default_rng([atom.k, seed])
        a, b = (rng.choice([-1, 1], (rows, atom.k)) for rows in (atom.m, atom.n))
        turned = [np.roll(b.reshape(len(b), -1, 4), turn, axis=-1).reshape(b.shape) for turn in range(4)]
        if max(np.abs(a @ one.T).max() for one in turned) <= MOST_SUM:
            return a, b
    raise ValueError(f"{name}: a hundred seeds gave large sums")


def _accumulators(atom: MmaAtom, turns: Sequence[int]) -> Words:
    """What the registers of a warp hold after the products with B turned by so many bytes, from zero."""
    a, b = _mma_operands(atom.name)
    per_register = b.reshape(len(b), -1, 4) if any(turns) else b[..., None]
    products = [a @ np.roll(per_register, turn, axis=-1).reshape(b.shape).T for turn in range(4)]
    sums, layout = np.tensordot(np.bincount(turns, minlength=4), np.stack(products), 1), atom.tv.c
    places = np.array([[layout(thread, value) for value in range(layout[1].size)] for thread in range(32)])
    dtype = {"fp32": "<f4", "fp16": "<f2", "int32": "<i4"}[atom.acc_dtype.name]
    held = sums[places % atom.m, places // atom.m].astype(dtype)
    return np.ascontiguousarray(np.ascontiguousarray(held).view("<u4").T)


def _mma_op(atom: MmaAtom) -> MathOp:
    a, b = _mma_operands(atom.name)
    codes, bits = _ONES[atom.a_dtype.name], atom.a_dtype.bits
    constants = [_fragment_words(numbers, layout, codes, bits) for numbers, layout in ((a, atom.tv.a), (b, atom.tv.b))]
    counts = (atom.accumulator_registers, len(constants[0]), len(constants[1]))
    sums = ", ".join(f"{{s{i}}}" for i in range(counts[0]))
    a_names = ", ".join(f"{{c{i}}}" for i in range(counts[1]))
    b_names = ", ".join(f"{{c{i + counts[1]}}}" for i in range(counts[2]))
    ptx = f"{atom.ptx} {{{{{sums}}}}}, {{{{{a_names}}}}}, {{{{{b_names}}}}}, {{{{{sums}}}}};"
    is_fp8 = atom.a_dtype.name == "fp8"
    if is_fp8:
        turned = (f"{{c{counts[1] + i}}}" for i in range(counts[2]))
        ptx = "".join(f"shf.l.wrap.b32 {name}, {name}, {name}, 8; " for name in turned) + ptx
    return MathOp(
        name=atom.name, ptx=ptx, sass=("IMMA" if atom.a_dtype.name == "int8" else "HMMA",), step=lambda s, c: s,
        begin=np.zeros((counts[0], 32), dtype="<u4"), constants=np.concatenate(constants), pipe="tensor",
        least_capability=(8, 9) if is_fp8 else (8, 0), most_steps=MMA_STEPS, num_turned=counts[2] if is_fp8 else 0,
        most_chains=4 if is_fp8 else CHAINS[-1],
    )  # fmt: skip


ATOMS = tuple(atom for atom in MMA_ATOMS.values() if atom.kind == "mma_sync" and atom.a_dtype.name in _ONES)
OPS: Mapping[str, MathOp] = {op.name: op for op in (*PLAIN_OPS, *(_mma_op(atom) for atom in ATOMS))}


def includes() -> dict[str, str]:
    """``ops.inc``: a struct with one step, and four kernels, for every instruction."""
    return {"ops.inc": "".join(_struct(op) for op in OPS.values())}


def _struct(op: MathOp) -> str:
    is_wide = op.begin.dtype.itemsize == 8
    letter, word = ("l", "uint64_t") if is_wide else ("r", "uint32_t")
    num_state, num_constants = len(op.begin), len(op.constants)
    num_fixed = num_constants - op.num_turned
    names = {f"s{i}": f"%{i}" for i in range(num_state)}
    names |= {f"c{i}": f"%{num_state + i - num_fixed}" for i in range(num_fixed, num_constants)}
    names |= {f"c{i}": f"%{num_state + op.num_turned + i}" for i in range(num_fixed)}
    written = [f"s[{i}]" for i in range(num_state)] + [f"c[{i}]" for i in range(num_fixed, num_constants)]
    outputs = ", ".join(f'"+{letter}"({name})' for name in written)
    inputs = ", ".join(f'"{letter}"(c[{i}])' for i in range(num_fixed))
    struct = "Step_" + op.name
    text = f"""struct {struct} {{
    using Word = {word};
    static constexpr int kState = {num_state}, kConstants = {num_constants}, kInstructions = {op.num_instructions};
    static constexpr int kMostSteps = {op.most_steps or BODY_INSTRUCTIONS};
    static __device__ __forceinline__ void step(Word (&s)[{num_state}], Word (&c)[{num_constants}]) {{
        asm volatile("{op.ptx.format(**names)}" : {outputs} : {inputs});
    }}
}};
"""
    text += "".join(f"MATH_KERNEL({op.name}, {struct}, {chains})\n" for chains in chains_of(op))
    if op.least_capability > (8, 0):
        text = f"#if __CUDA_ARCH__ >= {op.least_capability[0]}{op.least_capability[1]}0\n{text}#endif\n"
    return text


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    op: str
    num_chains: int
    warps_per_partition: int
    num_partitions: int = NUM_SUB_PARTITIONS

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"{self.op}_c{self.num_chains}"

    @property
    def num_warps(self) -> int:
        """Warps that work."""
        return self.warps_per_partition * self.num_partitions

    @property
    def is_full(self) -> bool:
        """Whether every sub-partition has chains enough to fill its pipe."""
        return self.num_partitions == NUM_SUB_PARTITIONS and self.num_chains * self.warps_per_partition >= ENOUGH

    @property
    def is_alone(self) -> bool:
        """Whether there is one chain."""
        return self.num_chains == self.warps_per_partition == self.num_partitions == 1

    @property
    def is_of_one_bank(self) -> bool:
        """Whether FFMAs read two registers of one bank each, and warps enough hide that they wait for one another."""
        is_lone_chain = self.op == "ffma" and self.num_chains == 1
        return is_lone_chain and self.num_partitions == NUM_SUB_PARTITIONS and self.warps_per_partition >= WARPS_TO_HIDE


def _group(wanted: Callable[[MathOp], bool], capability: tuple[int, int], rank: int) -> Group:
    """Every instruction: one chain of one warp; then chains by warps on all sub-partitions.

    One chain stands at even places for two instructions and at odd ones for the next two, so that both halves have it.
    """

    def configs() -> list[Row]:
        found = []
        for number, op in enumerate(op for op in OPS.values() if wanted(op)):
            alone = [Row(op.name, chains, 1, 1) for chains in chains_of(op)]
            found += [alone[1], alone[0], *alone[2:]] if number // 2 % 2 else alone
            found += Row.sweep(op=op.name, num_chains=chains_of(op), warps_per_partition=WARPS)
        return found

    return Group(configs=configs, rank=rank, least_capability=capability)


SHARED_UNITS = ("ffma", "imad", "dfma", "mufu_ex2", "iadd3", "cvt_s32_f32", "shfl", "mma_sync_m16n8k16_bf16_fp32")
"""Instructions of which it is asked whether sub-partitions share their unit."""


def partitions() -> list[Row]:
    """One to three sub-partitions, each as full as it gets."""
    return Row.sweep(op=SHARED_UNITS, num_chains=4, warps_per_partition=(2, 4), num_partitions=range(1, NUM_SUB_PARTITIONS))


def launch(config: Row) -> KernelLaunch:
    """One CTA; warps of sub-partitions that do not work leave at once."""
    op, num_chains = OPS[config.op], config.num_chains
    num_warps, lengths = config.num_warps, train_lengths(SHORT, LONG)
    begin = np.broadcast_to(op.begin, (num_chains, *op.begin.shape))
    shape = np.array([config.num_partitions, 32 * num_warps, len(lengths), num_chains], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(shape), Input(lengths), Input(np.ascontiguousarray(begin)), Input(np.ascontiguousarray(op.constants)),
            Output("end", np.full((num_warps, *begin.shape), 0xA5, dtype=begin.dtype)),
            Output("times", np.full((len(lengths), num_warps, 2), -1, dtype="<i8")),
        ),
        block=(32 * NUM_SUB_PARTITIONS * config.warps_per_partition, 1, 1),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- answers
@cache
def expected(name: str, num_chains: int) -> Words:
    """The chains' registers after a long train, [num_chains, num_state, 32]."""
    op = OPS[name]
    num_steps = LONG * steps_of_body(op, num_chains)
    if op.pipe == "tensor":
        made = []
        for chain in range(num_chains):
            turns = [(step * num_chains + chain + 1) % 4 if op.num_turned else 0 for step in range(num_steps)]
            made.append(_accumulators(MMA_ATOMS[name], turns))
        return np.stack(made)
    state = op.begin
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(num_steps):
            state = op.step(state, op.constants)
    return np.broadcast_to(state, (num_chains, *state.shape))


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Times of the trains, and the cycles of a step.

    Raises:
        WrongAnswer: a chain does not end where it must.
    """
    op, num_chains = OPS[config.op], config.num_chains
    wanted, found = expected(op.name, num_chains), outputs["end"]
    if op.tolerance:
        is_wrong = ~np.isclose(found.view(op.real), wanted.view(op.real), rtol=op.tolerance, atol=op.tolerance)
    else:
        is_wrong = found != wanted
    if is_wrong.any():
        warp, chain, register, lane = (int(where[0]) for where in np.nonzero(is_wrong))
        raise WrongAnswer(
            f"warp {warp}, chain {chain}: lane {lane} ends with {found[warp, chain, register, lane]:#x} in register "
            f"{register}, not {wanted[chain, register, lane]:#x}"
        )
    values = train_cycles(outputs["times"], train_lengths(SHORT, LONG))
    num_steps = (LONG - SHORT) * steps_of_body(op, num_chains)
    per_step = (values["long_cycles"] - values["short_cycles"]) / num_steps
    return values | {
        "cycles_per_step": per_step,
        "instructions_per_cycle": config.num_warps * num_chains * op.num_instructions / per_step,
    }


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """What the simulator says: rates of full pipes, and the latency of mma.sync; it knows no other latencies."""
    op, num_warps = OPS[config.op], config.num_warps
    is_tensor = op.pipe == "tensor"
    if not op.pipe or (is_tensor and MMA_ATOMS[op.name].rate_class not in gpu.tensor_core.mma_sync_flops_per_cycle):
        return {}
    if config.is_alone and is_tensor:
        return {"cycles_per_step": _simulated_latency(op.name, gpu)}
    if not (config.is_full or config.is_of_one_bank):
        return {}
    reads = BANK_READS.get((op.name, config.num_chains), 1.0)
    cycles = _simulated(op.name, num_warps, 2, gpu, reads) - _simulated(op.name, num_warps, 1, gpu, reads)
    return {"instructions_per_cycle": num_warps * SIMULATED_INSTRUCTIONS / cycles}


def _simulated_latency(name: str, gpu: GpuSpec) -> float:
    """A step of a chain of mma.sync: each waits for the sums of the one before it."""
    atom = MMA_ATOMS[name]

    def cycles(num_steps: int) -> float:
        def program(_cta: Any) -> Any:
            for _ in range(num_steps):
                yield words.MmaSync(atom, 1)
                yield words.RangeStart(words.Section.EPILOGUE)  # reads the accumulators
                yield words.RangeEnd()

        return cta_cycles(gpu, WarpRole(name="chain", num_warps=1, program=program))

    return (cycles(40) - cycles(8)) / 32


def _simulated(name: str, num_warps: int, times: int, gpu: GpuSpec, bank_reads: float = 1.0) -> float:
    """Cycles of so many times 64 instructions of each warp, on a full pipe; FFMAs read so much of a bank."""
    op, num_instructions = OPS[name], times * SIMULATED_INSTRUCTIONS

    def program(_cta: Any) -> Any:
        if op.pipe == "tensor":
            yield words.MmaSync(MMA_ATOMS[op.name], int(num_instructions))
        else:
            fmas = partial(words.Fma, bank_reads=bank_reads)
            yield {"fma": fmas, "alu": words.Alu, "mufu": words.Mufu, "shfl": words.Shfl}[op.pipe](num_instructions)
            if op.pipe in ("fma", "alu"):  # the others leave room for them
                yield words.Alu(num_instructions * LOOP_INSTRUCTIONS / BODY_INSTRUCTIONS)

    return cta_cycles(gpu, WarpRole(name="warps", num_warps=num_warps, program=program))


# ---------------------------------------------------------------------------------------------- parameters
WARPS_TO_HIDE = 4
"""Of a scheduler, so that none waits for its own last instruction."""
CHAINED = ("ffma", "fadd", "shf", "prmt", "imad")
"""Whose lone chains take as long as one instruction waits for another."""
LANES = {
    "fp32_lanes": ("ffma",), "int32_lanes": ("iadd3", "lop3", "shf", "prmt"), "mufu_lanes": ("mufu_ex2", "mufu_rsq"),
    "shuffle_lanes": ("shfl",),
}  # fmt: skip
"""Of the warp scheduler, and what runs on them alone."""


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """Lanes of the plain pipes; rate, least interval and latency of mma.sync."""
    full: dict[str, list[float]] = {}
    for row in rows:
        if row.get("instructions_per_cycle") and Row.of(row).is_full:
            full.setdefault(row["op"], []).append(float(row["instructions_per_cycle"]))
    found: dict[str, tuple[list[float], str]] = {}
    for name, ops in LANES.items():
        rates = [rate for op in ops for rate in full.get(op, [])]
        lanes = [_lanes(float(np.median(rates)))] if rates else []
        found[f"warp_scheduler.{name}"] = lanes, f"instructions a cycle of full pipes, {', '.join(ops)}: median, times 32"
    intervals = []
    for atom in ATOMS:
        rates, is_fp8 = full.get(atom.name, []), atom.a_dtype.name == "fp8"
        if is_fp8:  # those are several instructions each
            continue
        if _is_full_depth(atom):
            name = f"tensor_core.mma_sync_flops_per_cycle.{atom.rate_class}"
            flops = 2 * atom.m * atom.n * atom.k
            of_class = found.setdefault(name, ([], "FLOP a cycle of full pipes, 32 bytes of k: median"))[0]
            of_class += [rate * flops for rate in rates]
        else:
            intervals += [NUM_SUB_PARTITIONS / rate for rate in rates]
    found["tensor_core.mma_sync_min_interval_cycles"] = intervals, "interval of full pipes, 16 bytes of k: median"
    deep, shallow = ([
        float(row["cycles_per_step"]) for row in rows
        if row.get("cycles_per_step") and Row.of(row).is_alone and row["op"] in MMA_ATOMS and not OPS[row["op"]].num_turned
        and _is_full_depth(MMA_ATOMS[row["op"]]) == is_deep
    ] for is_deep in (True, False))  # fmt: skip
    found["tensor_core.mma_sync_latency_cycles"] = deep, "step of one lone chain, 32 bytes of k: median"
    steps = [float(np.median(deep)) - float(np.median(shallow))] if deep and shallow else []
    found["tensor_core.mma_sync_step_latency_cycles"] = steps, "step of one lone chain, 32 bytes of k less 16: medians"
    found |= _of_several(full)
    chained = [
        float(row["cycles_per_step"]) * BODY_INSTRUCTIONS / (BODY_INSTRUCTIONS + BRANCH_INSTRUCTIONS) for row in rows
        if row.get("cycles_per_step") and row["op"] in CHAINED and Row.of(row).is_alone
    ]  # fmt: skip
    of_rows = [row for row in rows if row.get("instructions_per_cycle") and Row.of(row).is_of_one_bank]
    of_one_bank = [_bank_reads(float(row["instructions_per_cycle"])) for row in of_rows]
    how = "FFMAs of two odd registers and an even one (one chain, 4 warps a scheduler and more), cycles over two reads"
    found["warp_scheduler.bank_reads_per_cycle"] = of_one_bank, f"{how}: median, and whole"
    how = f"step of one lone chain of {', '.join(CHAINED)}, less a branch of two more: median"
    found["warp_scheduler.dependent_cycles"] = chained, how
    return medians(found)


def _of_several(full: Mapping[str, Sequence[float]]) -> dict[str, tuple[Sequence[float], str]]:
    """Rate of fp8's products, and what each register of sums adds: least squares over the medians of the shapes."""
    atoms = [atom for atom in ATOMS if atom.a_dtype.name == "fp8" and full.get(atom.name)]
    work = np.array([[2.0 * atom.m * atom.n * atom.k, atom.accumulator_registers] for atom in atoms]).reshape(-1, 2)
    if np.linalg.matrix_rank(work) < 2:
        return {}
    intervals = np.array([NUM_SUB_PARTITIONS / float(np.median(full[atom.name])) for atom in atoms])
    (by_flops, by_register), *_ = np.linalg.lstsq(work, intervals, rcond=None)
    how = "intervals of full pipes by shape, over"
    return {
        "tensor_core.mma_sync_flops_per_cycle.fp8": (
            [NUM_SUB_PARTITIONS / by_flops], f"{how} FLOP: least squares, FLOP a cycle"
        ),
        "tensor_core.mma_sync_accumulate_cycles.fp8": ([by_register], f"{how} registers of sums: least squares"),
    }  # fmt: skip


def _is_full_depth(atom: MmaAtom) -> bool:
    return atom.k * atom.a_dtype.bits == 8 * K_STEP_BYTES


def _lanes(instructions_per_cycle: float) -> float:
    """Of an SM. A sub-partition's pipe takes an instruction every whole number of cycles; a body's loop takes some, too."""
    interval = NUM_SUB_PARTITIONS / instructions_per_cycle
    without_loop = interval * BODY_INSTRUCTIONS / (BODY_INSTRUCTIONS + LOOP_INSTRUCTIONS)
    if abs(without_loop - round(without_loop)) < 0.03 * without_loop:
        interval = round(without_loop)
    return NUM_SUB_PARTITIONS * WARP_SIZE / interval


def _bank_reads(instructions_per_cycle: float) -> float:
    """Registers that a bank gives in a cycle: whole intervals, as of lanes."""
    interval = NUM_SUB_PARTITIONS / instructions_per_cycle * BODY_INSTRUCTIONS / (BODY_INSTRUCTIONS + LOOP_INSTRUCTIONS)
    return BANK_READS["ffma", 1] / round(interval)


CASE = Case(
    name="math_rate",
    question="How long is a step of a chain of one instruction, and how many does an SM do in a cycle?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={
        "plain": _group(lambda op: op.pipe != "tensor" and op.least_capability == (8, 0), (8, 0), 3),
        "plain_fp8": _group(lambda op: op.pipe != "tensor" and op.least_capability > (8, 0), (8, 9), 4),
        "mma_sync": _group(lambda op: op.pipe == "tensor" and op.least_capability == (8, 0), (8, 0), 2),
        "mma_sync_fp8": _group(lambda op: op.pipe == "tensor" and op.least_capability > (8, 0), (8, 9), 3),
        "partitions": Group(configs=partitions, rank=4),
    },
    values={
        **SPAN_VALUES,
        "cycles_per_step": "SM cycles of one step of every chain: long less short train, over the steps between them",
        "instructions_per_cycle": "instructions of all warps in a cycle of the SM, by the same slope",
    },
    tiers={"cycles_per_step": 2, "instructions_per_cycle": 4},
)  # fmt: skip
