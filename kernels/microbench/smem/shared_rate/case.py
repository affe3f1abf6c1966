"""How long does an access to shared memory take, and how many wavefronts go in a cycle? Chains, streams, mixtures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import GpuSpec, WarpRole
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, Output, by_value
from gpusim.evidence.cases.microbenchmark import cta_cycles
from gpusim.evidence.cases.parameters import median_line, medians
from gpusim.evidence.cases.timing import SPAN_VALUES, train_cycles, train_lengths
from gpusim.units import WARP_SIZE, WAVEFRONT_BYTES
from gpusim.workload import ops as words
from gpusim.workload.smem.access import AccessPattern, data_wavefronts
from gpusim.workload.smem.smem_ops import smem_op

SMEM_BYTES = 32768
SECOND_BYTES = SMEM_BYTES // 2
"""Where the second instruction of a mixture has its part of the buffer."""
CHAIN, IN_FLIGHT, SILENT = 32, 16, 32
"""As kernel.cu has them."""
OFFSET_BYTES = 384
"""A multiple of 128, so that banks stay the same."""
SIMULATED_CHAIN = 16
"""Accesses of a chain that stand for those 32, where the simulator is asked."""
SHORT, LONG = 2, 6
NUM_SUB_PARTITIONS = 4
LANES = np.arange(WARP_SIZE)
EACH, BY_TURNS, BY_SLOTS = 0, 1, 2
"""Modes of a launch: one instruction; two by turns; two, each on warps of its own."""
NEVER = 0xFFFFFFFF
"""What a compare-and-swap compares with, so that it always fails."""


# ---------------------------------------------------------------------------------------------- instructions
@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOp:
    """One access, as kernels name it and as ``gpusim.workload.smem.access`` does.

    ``ptx`` has ``{r0}`` to ``{r3}`` for what it gives, ``{a}`` for its address, ``{v0}`` to ``{v3}`` for what it takes.
    """

    name: str
    rule: str
    ptx: str
    sass: str
    num_results: int = 0
    num_values: int = 0
    has_chain: bool = False
    gives_address: bool = False
    """In a chain it writes its own address where it reads."""
    least_capability: tuple[int, int] = (8, 0)

    @property
    def kind(self) -> str:
        """``ld``, ``st``, ``ldmatrix``, ``stmatrix``, ``atom`` or ``red``."""
        return self.rule.split("_")[0]

    @property
    def needs_use(self) -> bool:
        """Whether a compiler drops the access, or what it gives, where nothing uses that."""
        return self.kind in ("ldmatrix", "atom")

    @property
    def offset_bytes(self) -> int:
        """From one access of a stream to the next; the same place would be the same ldmatrix to a compiler."""
        return OFFSET_BYTES if self.kind == "ldmatrix" else 0

    @property
    def accesses_per_round(self) -> int:
        """Of a stream's loop body."""
        return 2 * IN_FLIGHT // self.num_results if self.num_results else SILENT

    @property
    def accesses_before(self) -> int:
        """Of a train, before its first round: what the first round uses."""
        return IN_FLIGHT // self.num_results if self.num_results else 0


def _vector(letter: str, num: int) -> str:
    names = ", ".join(f"{{{letter}{i}}}" for i in range(num))
    return f"{{{{{names}}}}}" if num > 1 else names


def _ops() -> Iterator[SharedOp]:
    for bits, suffix, num in ((8, "u8", 1), (16, "u16", 1), (32, "u32", 1), (64, "v2.u32", 2), (128, "v4.u32", 4)):
        width = {8: ".U8", 16: ".U16", 64: ".64", 128: ".128"}.get(bits, "")
        yield SharedOp(
            name=f"ld_b{bits}", rule=f"ld_shared_b{bits}", sass=f"LDS{width}", num_results=num, has_chain=bits > 8,
            ptx=f"ld.volatile.shared.{suffix} {_vector('r', num)}, [{{a}}];",
        )
        yield SharedOp(
            name=f"st_b{bits}", rule=f"st_shared_b{bits}", sass=f"STS{width}", num_values=num,
            ptx=f"st.volatile.shared.{suffix} [{{a}}], {_vector('v', num)};",
        )
    for num, trans in ((1, ""), (2, ""), (4, ""), (4, ".trans")):
        name, what = f"x{num}{trans.replace('.', '_')}", f"sync.aligned.m8n8.x{num}{trans}.shared.b16"
        yield SharedOp(
            name=f"ldmatrix_{name}", rule=f"ldmatrix_{name}", sass="LDSM", num_results=num, has_chain=not trans,
            ptx=f"ldmatrix.{what} {_braced('r', num)}, [{{a}}];",
        )
        yield SharedOp(
            name=f"stmatrix_{name}", rule=f"stmatrix_{name}", sass="STSM", num_values=num, least_capability=(9, 0),
            ptx=f"stmatrix.{what} [{{a}}], {_braced('v', num)};",
        )
    yield SharedOp(name="atom_add_b32", rule="atom_shared_add_b32", ptx="atom.shared.add.u32 {r0}, [{a}], {v0};",
                   sass="ATOMS", num_results=1, num_values=1, has_chain=True)  # fmt: skip
    yield SharedOp(name="red_add_b32", rule="red_shared_add_b32", ptx="red.shared.add.u32 [{a}], {v0};", sass="ATOMS",
                   num_values=1)  # fmt: skip
    yield SharedOp(name="atom_exch_b32", rule="atom_shared_exch_b32", ptx="atom.shared.exch.b32 {r0}, [{a}], {v0};",
                   sass="ATOMS", num_results=1, num_values=1, has_chain=True, gives_address=True)  # fmt: skip
    yield SharedOp(name="atom_cas_b32", rule="atom_shared_cas_b32", ptx="atom.shared.cas.b32 {r0}, [{a}], {v1}, {v0};",
                   sass="ATOMS", num_results=1, num_values=2, has_chain=True)  # fmt: skip
    yield SharedOp(
        name="atom_cas_b64", rule="atom_shared_cas_b64", sass="ATOMS", num_results=2, num_values=2, has_chain=True,
        ptx="{{ .reg .b64 c, v, r; mov.b64 c, {{{v1}, {v1}}}; mov.b64 v, {{{v0}, {v0}}}; "
            "atom.shared.cas.b64 r, [{a}], c, v; mov.b64 {{{r0}, {r1}}}, r; }}",
    )  # fmt: skip
    yield SharedOp(
        name="st_ld_b32", rule="ld_shared_b32", sass="LDS", num_results=1, has_chain=True,
        ptx="st.volatile.shared.u32 [{a}], {a}; ld.volatile.shared.u32 {r0}, [{a}];",
    )  # fmt: skip


def _braced(letter: str, num: int) -> str:
    return "{{" + ", ".join(f"{{{letter}{i}}}" for i in range(num)) + "}}"


OPS = {op.name: op for op in _ops()}
STREAMED = tuple(op for op in OPS.values() if op.name != "st_ld_b32")
CHASED = tuple(op for op in OPS.values() if op.has_chain)
MIXTURES = (
    ("ld_b32", "st_b32"), ("ld_b128", "st_b128"), ("ldmatrix_x4", "st_b32"), ("ld_b32", "red_add_b32"),
    ("ldmatrix_x4", "stmatrix_x4"),
)  # fmt: skip


def includes() -> dict[str, str]:
    """``ops.inc``: a struct with the access, and its kernels, for every instruction; kernels of two."""
    mixed = "".join(_guarded(f"MIXED_KERNEL({a}, {b})\n", OPS[b]) for a, b in MIXTURES)
    return {"ops.inc": "".join(_struct(op) for op in OPS.values()) + mixed}


def _guarded(text: str, op: SharedOp) -> str:
    major, minor = op.least_capability
    return f"#if __CUDA_ARCH__ >= {major}{minor}0\n{text}#endif\n" if op.least_capability > (8, 0) else text


def _struct(op: SharedOp) -> str:
    names = {f"r{i}": f"%{i}" for i in range(op.num_results)} | {"a": f"%{op.num_results}"}
    names |= {f"v{i}": f"%{op.num_results + 1 + i}" for i in range(op.num_values)}
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(op.num_results))
    inputs = ", ".join(['"r"(address)', *(f'"r"(v[{i}])' for i in range(op.num_values))])
    kernels = [f"CHASE_KERNEL({op.name})"] if op.has_chain else []
    if op in STREAMED:
        kernels.append(f"{'LOAD' if op.num_results else 'STORE'}_KERNEL({op.name})")
    num, gives, needs = max(1, op.num_results), *("true" if flag else "false" for flag in (op.gives_address, op.needs_use))
    return _guarded(f"""struct {op.name} {{
    static constexpr int kResults = {num};
    static constexpr bool kGivesAddress = {gives}, kNeedsUse = {needs};
    static constexpr uint32_t kOffset = {op.offset_bytes};
    static __device__ __forceinline__ void access(uint32_t (&r)[{num}], uint32_t address, const uint32_t (&v)[4]) {{
        asm volatile("{op.ptx.format(**names)}" : {outputs} : {inputs} : "memory");
    }}
}};
""" + "\n".join(kernels) + "\n", op)  # fmt: skip


# ---------------------------------------------------------------------------------------------- configs
WARPS = (1, 2, 4, 8)
PLACES = (*((1, warps) for warps in WARPS), (2, 1), (2, 4), (3, 1), (3, 4), *((4, warps) for warps in WARPS))
"""Sub-partitions, and warps on each."""
CHAIN_PLACES = ((1, 1), (1, 4), (4, 1), (4, 4))


def ways_of(op: SharedOp) -> tuple[int, ...]:
    """Conflicts that a phase of the instruction can have."""
    return tuple(ways for ways in (1, 2, 4, 8, 16, 32) if ways <= _lanes_of_phase(op))


def _lanes_of_phase(op: SharedOp) -> int:
    size = max(4, smem_op(op.rule).access_bytes)
    return min(WARP_SIZE, WAVEFRONT_BYTES // size)


def lane_addresses(op: SharedOp, ways: int, sharing: str) -> NDArray[np.int64]:
    """Bytes from the buffer's start, int64[32]: so many lanes of a phase on a bank, or on a word."""
    size, lanes = max(4, smem_op(op.rule).access_bytes), _lanes_of_phase(op)
    if sharing == "word":
        return LANES // ways * size
    phase, lane = LANES // lanes, LANES % lanes
    across = lanes // ways
    return np.asarray(lane % across * size + (lane // across + phase * ways) * WAVEFRONT_BYTES)


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    question: str
    op: str
    second_op: str
    ways: int
    sharing: str
    num_partitions: int
    warps_per_partition: int
    mode: int

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"mixed_{self.op}_{self.second_op}" if self.second_op else f"{self.question}_{self.op}"

    @property
    def num_warps(self) -> int:
        """Warps that work."""
        return self.num_partitions * self.warps_per_partition


def _conflicts(op: SharedOp) -> list[tuple[int, str]]:
    """Ways and kinds: atomics can also meet on a word."""
    found = [(ways, "bank") for ways in ways_of(op)]
    if op.kind in ("atom", "red"):
        found += [(ways, "word") for ways in (2, 4, 8, 16, 32)]
    return found


def _group_of(
    question: str, ops: Sequence[SharedOp], places: Sequence[tuple[int, int]], rank: int, least: tuple[int, int]
) -> Group:
    def configs() -> list[Row]:
        return [
            Row(question, op.name, "", ways, sharing, *place, EACH)
            for op, place in product(ops, places) for ways, sharing in _conflicts(op)
        ]

    return Group(configs=configs, rank=rank, least_capability=least)


def _mixed(least: tuple[int, int], rank: int) -> Group:
    def configs() -> list[Row]:
        return [
            Row("mixed", first, second, ways, "bank", *place, mode)
            for (first, second), mode, place, ways in product(
                MIXTURES, (BY_TURNS, BY_SLOTS), ((1, 2), (1, 4), (4, 2), (4, 4), (4, 8)), (1, 2, 8)
            )
            if OPS[second].least_capability == least
        ]

    return Group(configs=configs, rank=rank, least_capability=least)


# ---------------------------------------------------------------------------------------------- launches
@cache
def random_image() -> NDArray[np.uint32]:
    """What is in shared memory beforehand, uint32[8192]."""
    return read_only(np.random.default_rng(11).integers(1, 2**32 - 1, SMEM_BYTES // 4, dtype=np.uint32))


def addresses_of(config: Row) -> NDArray[np.uint32]:
    """Of both instructions, uint32[2, 32]."""
    ways, sharing = config.ways, config.sharing
    first = lane_addresses(OPS[config.op], ways, sharing)
    second = SECOND_BYTES + lane_addresses(OPS[config.second_op], ways, sharing) if config.second_op else 0 * first
    return np.stack([first, second]).astype("<u4")


def chain_image(op: SharedOp, addresses: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Every lane finds its own address where it looks."""
    image = random_image().copy()
    places = addresses.astype(np.int64)
    if op.kind == "ldmatrix":  # lane i has word i % 4 of row i / 4 of the first matrix
        places = places[LANES // 4] + 4 * (LANES % 4)
    image[places // 4] = addresses
    return image


def values_of(config: Row) -> NDArray[np.uint32]:
    """What stores and atomics take, uint32[4, 32]: by lane, the same for all warps."""
    values = np.random.default_rng(12).integers(1, 2**32 - 1, (4, WARP_SIZE), dtype=np.uint32)
    if config.op.startswith("atom_cas"):
        values[1] = NEVER
    elif config.question == "chase":
        values[0] = 0
    return values


def launch(config: Row) -> KernelLaunch:
    """One CTA; warps of sub-partitions that do not work leave once the buffer is filled."""
    lengths, num_warps = train_lengths(SHORT, LONG), config.num_warps
    addresses = addresses_of(config)
    is_chain = config.question == "chase"
    image = chain_image(OPS[config.op], addresses[0]) if is_chain else random_image()
    shape = np.array([config.num_partitions, WARP_SIZE * num_warps, len(lengths), config.mode], dtype="<u4")
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(shape), Input(lengths), Input(image), Input(addresses), Input(values_of(config)),
            Output("out", np.full((num_warps, WARP_SIZE), 0xA5A5A5A5, dtype="<u4")),
            Output("dump", np.full(SMEM_BYTES // 4, 0xA5A5A5A5, dtype="<u4")),
            Output("times", np.full((len(lengths), num_warps, 2), -1, dtype="<i8")),
        ),
        block=(WARP_SIZE * NUM_SUB_PARTITIONS * config.warps_per_partition, 1, 1),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- answers
def num_accesses(op: SharedOp, per_round: int) -> int:
    """Of a warp, in all trains."""
    lengths = train_lengths(SHORT, LONG)
    return int(lengths.sum()) * per_round + len(lengths) * op.accesses_before


def loaded_sum(op: SharedOp, addresses: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The sum of the registers that each lane gets of one load of the untouched buffer, uint32[32]."""
    image, where = random_image(), addresses.astype(np.int64)
    raw, size = image.view("u1"), smem_op(op.rule).access_bytes
    if op.kind == "ldmatrix":
        rows = [where[8 * matrix : 8 * matrix + 8] for matrix in range(op.num_results)]
        if op.name.endswith("_trans"):
            halves, row, column = raw.view("<u2").astype("<u4"), 2 * (LANES % 4), LANES // 4
            each = [halves[at[row] // 2 + column] | halves[at[row + 1] // 2 + column] << np.uint32(16) for at in rows]
        else:
            each = [image[at[LANES // 4] // 4 + LANES % 4] for at in rows]
        return np.asarray(np.sum(each, axis=0, dtype="<u4"))
    if size < 4:
        return np.asarray(raw.view(f"<u{size}")[where // size].astype("<u4"))
    return np.asarray(image[where[:, None] // 4 + np.arange(op.num_results)].sum(axis=1, dtype="<u4"))


def stream_sum(op: SharedOp, addresses: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What each lane has summed up behind the last train: all of its loads, or the last ones of every train."""
    lengths, half = train_lengths(SHORT, LONG), op.accesses_before
    each = [loaded_sum(op, addresses + np.uint32(i * op.offset_bytes)) for i in range(2 * half)]
    last = sum(each[half:], start=np.zeros(WARP_SIZE, dtype="<u4"))
    sums = last * np.uint32(len(lengths))
    return sums + (sum(each[:half], start=last) * np.uint32(lengths.sum())) if op.needs_use else sums


def stored(op: SharedOp, addresses: NDArray[np.uint32], values: NDArray[np.uint32], image: NDArray[np.uint32]) -> None:
    """Write what a store leaves into ``image``."""
    where, size = addresses.astype(np.int64), smem_op(op.rule).access_bytes
    if op.kind == "stmatrix":
        for matrix in range(op.num_values):
            rows = where[8 * matrix : 8 * matrix + 8]
            if op.name.endswith("_trans"):
                halves = image.view("<u2")
                for half in (0, 1):
                    places = rows[2 * (LANES % 4) + half] // 2 + LANES // 4
                    halves[places] = values[matrix] >> np.uint32(16 * half) & np.uint32(0xFFFF)
            else:
                image[rows[LANES // 4] // 4 + LANES % 4] = values[matrix]
    elif size < 4:
        image.view(f"<u{size}")[where // size] = values[0].astype(f"<u{size}")
    else:
        image[where[:, None] // 4 + np.arange(op.num_values)] = values[: op.num_values].T


def expected_dump(config: Row) -> NDArray[np.uint32]:
    """What a stream leaves in shared memory, uint32[8192]."""
    image, addresses, values = random_image().copy(), addresses_of(config), values_of(config)
    first = OPS[config.op]
    second = OPS[config.second_op] if config.second_op else None
    _apply(first, addresses[0], values, image, num_accesses(first, first.accesses_per_round) * _num_warps_of(config, 0))
    if second is not None:
        by_turns = config.mode == BY_TURNS
        times = num_accesses(first if by_turns else second, first.accesses_per_round)
        _apply(second, addresses[1], values, image, times * _num_warps_of(config, 1))
    return image


def _num_warps_of(config: Row, which: int) -> int:
    """Warps that execute the first or the second instruction."""
    if config.mode != BY_SLOTS:
        return config.num_warps
    slots = config.warps_per_partition
    return config.num_partitions * (slots // 2 if which else slots - slots // 2)


def _apply(
    op: SharedOp, addresses: NDArray[np.uint32], values: NDArray[np.uint32], image: NDArray[np.uint32], times: int
) -> None:
    if op.kind in ("st", "stmatrix"):
        stored(op, addresses, values, image)
    elif "_add_" in op.name:
        added = (values[0].astype("<u8") * np.uint64(times)).astype("<u4")
        np.add.at(image, addresses.astype(np.int64) // 4, added)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Times of the trains, cycles of an access, wavefronts a cycle.

    Raises:
        WrongAnswer: an address, a sum or shared memory is not what it must be.
    """
    op = OPS[config.op]
    if config.question == "chase":
        _check_words("lane ends at", outputs["out"], np.broadcast_to(addresses_of(config)[0], outputs["out"].shape))
    else:
        _check_stream(config, outputs)
    values = train_cycles(outputs["times"], train_lengths(SHORT, LONG))
    per_round = (values["long_cycles"] - values["short_cycles"]) / (LONG - SHORT)
    return values | _per_access(config, op, per_round)


def _check_stream(config: Row, outputs: Outputs) -> None:
    op, dump = OPS[config.op], outputs["dump"]
    wanted = expected_dump(config)
    if op.name == "atom_exch_b32":  # of lanes that share a word, any may be the last
        addresses, values = addresses_of(config)[0].astype(np.int64), values_of(config)[0]
        for place in np.unique(addresses):
            if dump[place // 4] not in values[addresses == place]:
                raise WrongAnswer(f"shared memory holds {dump[place // 4]:#x} at byte {place}, which no lane has put there")
        wanted[addresses // 4] = dump[addresses // 4]
    _check_words("shared memory holds, at word", dump, wanted)
    if op.kind in ("ld", "ldmatrix"):
        sums = stream_sum(op, addresses_of(config)[0])
        warps = np.arange(config.num_warps)
        loads = np.ones(len(warps), dtype=bool)
        if config.mode == BY_SLOTS:
            loads = warps // config.num_partitions % 2 == 0
        _check_words("sum of lane", outputs["out"], np.where(loads[:, None], sums, np.uint32(0)))


def _check_words(what: str, found: NDArray[np.uint32], wanted: NDArray[np.uint32]) -> None:
    if (found != wanted).any():
        place = tuple(int(where[0]) for where in np.nonzero(found != wanted))
        raise WrongAnswer(f"{what} {place}: {found[place]:#x}, not {wanted[place]:#x}")


def wavefronts_of(config: Row) -> tuple[int, int]:
    """Of one access of either instruction, by the rules of ``gpusim.workload.smem.access``; 0 for none."""
    addresses = addresses_of(config).astype(np.int64)
    second = OPS[config.second_op].rule if config.second_op else ""
    first = int(data_wavefronts(OPS[config.op].rule, addresses[0]))
    return first, int(data_wavefronts(second, addresses[1])) if second else 0


def _per_access(config: Row, op: SharedOp, per_round: float) -> dict[str, float]:
    """From cycles a round: those of an access of a warp, and wavefronts a cycle of the SM."""
    if config.question == "chase":
        return {"cycles_per_access": per_round / CHAIN}
    num = op.accesses_per_round
    total = num * sum(each * _num_warps_of(config, which) for which, each in enumerate(wavefronts_of(config)))
    return {"cycles_per_access": per_round / num, "wavefronts_per_cycle": total / per_round}


# ---------------------------------------------------------------------------------------------- the simulator
def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The twin in the simulator's words: latency of chains; rate of streams on all four sub-partitions."""
    is_chain = config.question == "chase"
    if not is_chain and config.num_partitions < NUM_SUB_PARTITIONS:
        return {}
    short, long = (_simulated(config, length, gpu) for length in (SHORT, LONG))
    per_round = (long - short) / (LONG - SHORT)
    if is_chain:
        return {"cycles_per_access": per_round / SIMULATED_CHAIN}
    return {"wavefronts_per_cycle": _per_access(config, OPS[config.op], per_round)["wavefronts_per_cycle"]}


def _word(op: SharedOp, num_wavefronts: int, num_warps: int) -> words.Op:
    rule = smem_op(op.rule)
    access = AccessPattern(
        num_requests=num_warps, num_wavefronts=num_wavefronts * num_warps,
        num_bytes=rule.access_bytes * rule.num_lanes * num_warps,
    )  # fmt: skip
    kinds = {"ld": words.SharedLoad, "st": words.SharedStore, "ldmatrix": words.Ldmatrix, "stmatrix": words.Stmatrix}
    return kinds.get(op.kind, words.SharedAtomic)(access)


def _simulated(config: Row, length: int, gpu: GpuSpec) -> float:
    """Cycles of a train. Chains: a role a warp; streams: a role of all warps, two where warps differ."""
    op, (first, second), mode = OPS[config.op], wavefronts_of(config), config.mode
    num_first, num_second = _num_warps_of(config, 0), _num_warps_of(config, 1)
    if config.question == "chase":
        chain = _chain_program(op, first, length)
        chains = [WarpRole(name=f"warp{i}", num_warps=1, program=chain) for i in range(num_first)]
        return cta_cycles(gpu, *chains)
    beside = (OPS[config.second_op], second) if mode == BY_TURNS else None
    roles = [WarpRole(name="first", num_warps=num_first, program=_stream_program(op, first, num_first, length, beside))]
    if mode == BY_SLOTS:
        other = OPS[config.second_op]
        program = _stream_program(other, second, num_second, length, None, op.accesses_per_round)
        roles.append(WarpRole(name="second", num_warps=num_second, program=program))
    return cta_cycles(gpu, *roles)


def _chain_program(op: SharedOp, num_wavefronts: int, length: int) -> Any:
    access = _word(op, num_wavefronts, 1)
    store = _word(OPS["st_b32"], num_wavefronts, 1) if op.name == "st_ld_b32" else None

    def program(_cta: Any) -> Any:
        for _ in range(length * SIMULATED_CHAIN):
            if store is not None:
                yield store
            token = yield access
            yield words.Use(token)

    return program


def _stream_program(
    op: SharedOp, num_wavefronts: int, num_warps: int, length: int, beside: tuple[SharedOp, int] | None,
    silent: int = SILENT,
) -> Any:
    """As kernel.cu: half of the registers are loaded while the other half is used."""
    access = _word(op, num_wavefronts, num_warps)
    other = _word(beside[0], beside[1], num_warps) if beside else None
    num = op.accesses_before or silent

    def some() -> Any:
        tokens = []
        for _ in range(num):
            tokens.append((yield access))
            if other is not None:
                yield other
        return [token for token in tokens if token is not None]

    def program(_cta: Any) -> Any:
        if not op.num_results:
            last = []
            for _ in range(length):
                last = yield from some()
            for token in last[-1:]:
                yield words.Use(token)
            return
        before = yield from some()
        for _ in range(2 * length):
            after = yield from some()
            for token in before if op.needs_use else ():
                yield words.Use(token)
            before = after
        for token in before:
            yield words.Use(token)

    return program


# ---------------------------------------------------------------------------------------------- parameters
ISSUE_CYCLES = 1.0
"""Of an access, before its latency begins."""
ATOMICS = ("atom_add_b32", "atom_exch_b32", "atom_cas_b32")
VECTORS = {"ld_b64": 2, "ld_b128": 4}
"""Loads of several words a lane."""
FULL_WARPS = 4
"""Of each sub-partition, from which on a stream of loads is taken to fill the data stage."""


Rows = Sequence[Mapping[str, str]]


def fit(rows: Rows) -> list[Fitted]:
    """Latencies of a load, a vector's words and an atomic, a lone warp's pace, and what the data stage does in a cycle."""
    slope, alone = _lone_chain(rows, "ld_b32")
    full = [
        float(row["wavefronts_per_cycle"]) for row in rows
        if row["question"] == "stream" and row.get("wavefronts_per_cycle") and row["op"] in ("ld_b32", "ld_b64", "ld_b128")
        and int(row["num_partitions"]) == NUM_SUB_PARTITIONS and int(row["warps_per_partition"]) >= FULL_WARPS
    ]  # fmt: skip
    own = 1.0 / float(np.median(full)) if full else float("nan")
    atomics = [_lone_chain(rows, name)[1] - ISSUE_CYCLES - own for name in ATOMICS]
    wide = [
        float(row["cycles_per_access"]) - alone - slope * (wavefronts_of(Row.of(row))[0] - 1) for row in rows
        if row["op"] in VECTORS and _is_lone_chain(row)
    ]  # fmt: skip
    words = [VECTORS[row["op"]] - 1 for row in rows if row["op"] in VECTORS and _is_lone_chain(row)]
    chains = "line through a lone warp's chains"
    return medians({
        "smem.load_latency_cycles": ([alone - ISSUE_CYCLES], f"{chains} of ld_b32, at one wavefront"),
        "smem.warp_cycles_per_wavefront": ([slope], f"{chains} of ld_b32: slope over wavefronts"),
        "smem.vector_word_cycles": (
            [more / num for more, num in zip(wide, words, strict=True)],
            "a lone warp's chains of ld_b64 and ld_b128 over that line, by words beyond the first: median",
        ),
        "smem.wavefronts_per_cycle": (full, "streams of loads on 16 and 32 warps: median"),
        "smem.atomic_latency_cycles": (atomics, f"{chains} of add, exch, cas, at one wavefront: median"),
    } | {name: (found, f"streams of stores of a warp on 1 to 4 schedulers: {how}, median")
         for name, (found, how) in store_queue(rows).items()})  # fmt: skip


STORED_WORDS = {
    "st_b32": 1, "st_b64": 2, "st_b128": 4, "stmatrix_x1": 1, "stmatrix_x2": 2, "stmatrix_x4": 4, "stmatrix_x4_trans": 4,
}  # fmt: skip
"""Words a lane of the stores that tell the queue's places."""
FEWEST_WAYS, BUSY = 4, 0.45
"""Of a stream that keeps the queue full: bank conflicts, and the part of the time in which the data stage works."""


def store_queue(rows: Rows) -> dict[str, tuple[list[float], str]]:
    """The queue's parameters, a value for each instruction with what it says.

    A train of n stores on each of P schedulers ends n * t - (q + s / P) * t + r cycles after it begins, where a store on
    each takes t: q places a scheduler, s for all, r until a place is free again. By least squares over P and the ways.
    """
    per_scheduler, requests, sizes, release = [], [], [], []
    for name, num_words in STORED_WORDS.items():
        points = [point for row in rows if row["op"] == name for point in _stored_ahead(row)]
        if len({(partitions, each) for partitions, each, _ in points}) < 4:
            continue
        wanted = np.array([[each, each / partitions, -1.0] for partitions, each, _ in points])
        places, shared, late = np.linalg.lstsq(wanted, np.array([ahead for *_, ahead in points]), rcond=None)[0]
        per_scheduler.append(float(places))
        release.append(float(late))
        if num_words == 1:
            requests.append(float(shared))
        else:
            sizes.append(float(shared) * num_words * WAVEFRONT_BYTES)
    return {
        "l1.max_queued_stores": (requests, "places beside those of the schedulers, one word a lane"),
        "l1.store_queue_bytes": (sizes, "the same in bytes, two and four words a lane"),
        "l1.max_queued_scheduler_stores": (per_scheduler, "places more for each scheduler"),
        "l1.store_release_cycles": (release, "what the stores ahead fall short of the places"),
    }


def _stored_ahead(row: Mapping[str, str]) -> list[tuple[int, float, float]]:
    """[(schedulers, cycles of a store on each, cycles by which the last is ahead)] of a stream that fills the queue."""
    if row["question"] != "stream" or not row.get("short_cycles") or row["warps_per_partition"] != "1" or int(row["mode"]):
        return []
    if int(row["ways"]) < FEWEST_WAYS or float(row["wavefronts_per_cycle"]) < BUSY:
        return []
    short, long = SHORT * SILENT, LONG * SILENT
    each = (float(row["long_cycles"]) - float(row["short_cycles"])) / (long - short)
    return [(int(row["num_partitions"]), each, short * each - float(row["short_cycles"]))]


def _is_lone_chain(row: Mapping[str, str]) -> bool:
    return (
        row["question"] == "chase" and bool(row.get("cycles_per_access"))
        and row["num_partitions"] == row["warps_per_partition"] == "1"
    )  # fmt: skip


def _lone_chain(rows: Sequence[Mapping[str, str]], name: str) -> tuple[float, float]:
    """(cycles for each wavefront more, cycles of one) of a lone warp's chain over bank conflicts; NaN without rows."""
    mine = [
        (wavefronts_of(Row.of(row))[0], float(row["cycles_per_access"])) for row in rows
        if row["op"] == name and row["sharing"] == "bank" and _is_lone_chain(row)
    ]  # fmt: skip
    slope, intercept = median_line(mine)
    return slope, intercept + slope


def _of(capability: tuple[int, int], ops: Sequence[SharedOp]) -> list[SharedOp]:
    return [op for op in ops if op.least_capability == capability]


OLD, NEW = (8, 0), (9, 0)

CASE = Case(
    name="shared_rate",
    question="How long does an access to shared memory take, and how many wavefronts go in a cycle?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, includes=includes,
    groups={
        "chase": _group_of("chase", CHASED, CHAIN_PLACES, 2, OLD),
        "stream": _group_of("stream", _of(OLD, STREAMED), PLACES, 2, OLD),
        "stream_stmatrix": _group_of("stream", _of(NEW, STREAMED), PLACES, 3, NEW),
        "mixed": _mixed(OLD, 3),
        "mixed_stmatrix": _mixed(NEW, 4),
    },
    values={
        **SPAN_VALUES,
        "cycles_per_access": "SM cycles of one access of each warp (of a chain: its latency): the slope between trains",
        "wavefronts_per_cycle": "of all warps, counted by the rules of gpusim.workload.smem.access, by the same slope",
    },
    tiers={"cycles_per_access": 2, "wavefronts_per_cycle": 4},
)  # fmt: skip
