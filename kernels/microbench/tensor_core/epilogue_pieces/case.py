"""How long does each piece of an epilogue take? Tiles, types and ways, one SM and all of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from math import isnan

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.array import fragment_places, read_only
from gpusim.evidence.cases.case import Case, Fitted, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Input, KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted, slopes_of_pairs
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.dtypes import DType
from gpusim.workload.dtypes import dtype as dtype_named
from gpusim.workload.launch import Buffer, Launch, RoleContext, WarpRole
from gpusim.workload.operands import OperandTile, epilogue_store, stmatrix_writes, tma_boxes
from gpusim.workload.ops import Op, RangeEnd, RangeStart, Section
from gpusim.workload.smem.access import AccessPattern, wavefronts
from gpusim.workload.tma.boxes import TensorMap

TILES = ((64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 256))
DTYPES = ("bf16", "fp32")
PIECES = {
    "direct": ("store", "drain"),
    "staged": ("write", "meet", "store", "drain", "read"),
    "tma": ("write", "fence", "meet", "issue", "commit", "source_wait", "whole_wait"),
}
"""What lies between two readings of the clock, by way."""
UNCOUNTED = ("read",)
"""Measured for itself; no part of the total."""
ENUM = {"direct": "kDirect", "staged": "kStaged", "tma": "kTma"}

NUM_ROUNDS, NUM_WARM_UP, MOST_PIECES = 7, 2, 8
ISSUE_FRAME_CYCLES = 12.0
"""Thread 0 goes on alone: a branch, the clock, coordinates; one box takes 17 cycles, four 33 (rows that calibrate)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What ptxas made of a tile's writes to shared memory: between two readings of the clock, from SASS.

    Cycles are sums of stall counts, of one warp that waits for nothing; stores are counted from 1.
    """

    first: int
    """Before the first store."""
    pace: int
    """From one store to the next."""
    waits: Mapping[int, int] = field(default_factory=dict)
    """A store whose registers are written anew first, and the one that must have read them; 0: the clock behind all."""


_SIXTEEN = {5: 2, 7: 3, 8: 5, 11: 8, 13: 9, 14: 11}
SCHEDULES: Mapping[tuple[str, str, int, int], Schedule] = {
    ("staged", "bf16", 64, 64): Schedule(first=13, pace=8),
    ("staged", "bf16", 128, 64): Schedule(first=13, pace=8),
    ("staged", "bf16", 64, 128): Schedule(first=13, pace=8, waits={5: 1, 6: 3}),
    ("staged", "bf16", 128, 128): Schedule(first=13, pace=8, waits={5: 1, 6: 3}),
    ("staged", "bf16", 64, 256): Schedule(first=13, pace=8, waits=_SIXTEEN),
    ("staged", "bf16", 128, 256): Schedule(first=39, pace=8, waits={**_SIXTEEN, 5: 1, 6: 2}),
    ("staged", "fp32", 64, 64): Schedule(first=1, pace=4),
    ("staged", "fp32", 128, 64): Schedule(first=1, pace=4),
    ("staged", "fp32", 64, 128): Schedule(first=35, pace=4),
    ("staged", "fp32", 128, 128): Schedule(first=32, pace=4),
    ("staged", "fp32", 64, 256): Schedule(first=37, pace=4),
    ("staged", "fp32", 128, 256): Schedule(first=37, pace=4),
    ("tma", "bf16", 64, 64): Schedule(first=39, pace=6, waits={0: 4}),
    ("tma", "bf16", 128, 64): Schedule(first=39, pace=6, waits={0: 4}),
    ("tma", "bf16", 64, 128): Schedule(first=35, pace=8, waits={5: 1, 6: 3, 0: 4}),
    ("tma", "bf16", 128, 128): Schedule(first=35, pace=8, waits={5: 1, 6: 3, 0: 4}),
    ("tma", "bf16", 64, 256): Schedule(first=13, pace=8, waits={**_SIXTEEN, 0: 15}),
    ("tma", "bf16", 128, 256): Schedule(first=13, pace=8, waits={**_SIXTEEN, 0: 15}),
    ("tma", "fp32", 64, 64): Schedule(first=40, pace=4),
    ("tma", "fp32", 128, 64): Schedule(first=42, pace=4),
    ("tma", "fp32", 64, 128): Schedule(first=37, pace=4),
    ("tma", "fp32", 128, 128): Schedule(first=38, pace=4),
    ("tma", "fp32", 64, 256): Schedule(first=41, pace=4),
    ("tma", "fp32", 128, 256): Schedule(first=41, pace=4),
}  # fmt: skip
"""By way, type and tile."""
NUM_SMS = 132
TILE_COLUMNS, TILE_ROWS = 12, 11
LINE_BYTES = 128
ALONE_SMEM_BYTES = 132 * 1024
"""Room for the largest tile, and so much that no two CTAs share an SM."""
STAGGERS_NS = (0, 500, 2000, 8000)


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config.

    >>> Row(64, 128, "bf16", "tma", 1, 0).kernel
    'epilogue_tma_bf16_64x128'
    """

    m: int
    n: int
    dtype: str
    way: str
    sms: int
    stagger_ns: int

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"epilogue_{self.way}_{self.dtype}_{self.m}x{self.n}"

    @property
    def element_bytes(self) -> int:
        """Of D."""
        return 4 if self.dtype == "fp32" else 2

    @property
    def tile_bytes(self) -> int:
        """Of the tile."""
        return self.m * self.n * self.element_bytes


def includes() -> dict[str, str]:
    """An entry point for each tile, type and way."""
    every = [Row(*tile, dtype, way, 1, 0) for way in PIECES for dtype in DTYPES for tile in TILES]
    lines = [
        f"EPILOGUE({row.kernel}, {row.m}, {row.n}, {str(row.dtype == 'fp32').lower()}, {ENUM[row.way]})" for row in every
    ]
    return {"shapes.inc": "\n".join(lines) + "\n"}


def tiles() -> list[Row]:
    """Every tile, type and way: one SM alone, all at once, and all one after the other."""
    return [
        Row(m, n, dtype, way, sms, stagger_ns)
        for way in PIECES for dtype in DTYPES
        for sms, stagger_ns in ((1, 0), *((NUM_SMS, stagger) for stagger in STAGGERS_NS))
        for m, n in TILES
    ]


def contention() -> list[Row]:
    """One tile by so many SMs at once."""
    return Row.sweep(m=128, n=128, way=PIECES, dtype=DTYPES, sms=(2, 4, 8, 16, 33, 48, 66, 99), stagger_ns=0)


# ---------------------------------------------------------------------------------------------- launch and check
@cache
def source() -> NDArray[np.float32]:
    """Accumulators of all tiles, float32, normal; copied to the GPU once."""
    return read_only(np.random.default_rng(0).standard_normal(NUM_SMS * 128 * 256, dtype=np.float32))


@cache
def matrix() -> NDArray[np.uint8]:
    """Where tiles go: the kernel gets a pointer to it and a map of it. It lies on the GPU once, for all launches."""
    return read_only(np.zeros(TILE_ROWS * 128 * TILE_COLUMNS * 256 * 4, dtype=np.uint8))


def tensor_map(config: Row) -> TensorMap:
    """The matrix in boxes of 128 bytes by the tile's rows."""
    m, n, each = config.m, config.n, config.element_bytes
    return TensorMap(
        dtype=dtype_named(config.dtype), global_dim=(TILE_COLUMNS * n, TILE_ROWS * m),
        global_strides_bytes=(TILE_COLUMNS * n * each,), box_dim=(LINE_BYTES // each, m), swizzle="128B",
    )  # fmt: skip


def launch(config: Row) -> KernelLaunch:
    """A CTA on each of so many SMs, each with its tile."""
    m, sms = config.m, config.sms
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array([config.stagger_ns, 0], dtype="<u4")), Input(source()), Input(matrix()),
            MappedTensor(matrix(), tensor_map(config)), Output("words", np.zeros(2, dtype="<u8")),
            Output("times", np.full((sms, NUM_ROUNDS, MOST_PIECES), -1, dtype="<i8")),
            Output("tiles", np.zeros(sms * config.tile_bytes, dtype=np.uint8)),
        ),
        grid=(sms, 1, 1), block=(2 * m, 1, 1), smem_bytes=ALONE_SMEM_BYTES,
    )  # fmt: skip


def wanted_tiles(config: Row) -> NDArray[np.uint8]:
    """What the tiles must hold, uint8[bytes]: the accumulators of the last round, at the places of wgmma's fragment."""
    m, n = config.m, config.n
    sms, num = config.sms, n // 2
    acc = source()[: sms * num * 2 * m].reshape(sms, num, 2 * m)
    (rows, columns), block = fragment_places(n), np.arange(2 * m) // 128
    rows, columns = np.tile(rows, m // 64) + 64 * block, np.tile(columns, m // 64)
    made = np.empty((sms, m, n), dtype=np.float32)
    made[:, rows, columns] = acc * np.float32((-1.0) ** (NUM_ROUNDS - 1))
    if config.dtype == "fp32":
        return made.view(np.uint8).reshape(-1)
    bits = made.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to nearest, ties to even
    return np.ascontiguousarray(rounded.astype("<u2")).view(np.uint8).reshape(-1)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of each piece, of all CTAs and rounds after the first ones.

    Raises:
        WrongAnswer: another tile than was held, CTAs that did not meet, or a clock that stands still.
    """
    wrong = np.flatnonzero(outputs["tiles"] != wanted_tiles(config))
    if len(wrong):
        raise WrongAnswer(f"{len(wrong)} bytes of the tiles are wrong, the first is byte {int(wrong[0])}")
    pieces = PIECES[config.way]
    times = outputs["times"].astype(np.int64)[:, NUM_WARM_UP:, : len(pieces)].reshape(-1, len(pieces))
    wrong_if((times <= 0).any(), "a piece took no time, or the CTAs did not meet")
    values = {f"{piece}_cycles": float(np.median(times[:, idx])) for idx, piece in enumerate(pieces)}
    counted = [idx for idx, piece in enumerate(pieces) if piece not in UNCOUNTED]
    total = times[:, counted].sum(axis=1)
    return values | {
        "total_cycles": float(np.median(total)), "least_total_cycles": float(total.min()),
        "p90_total_cycles": float(np.quantile(total, 0.9)), "most_total_cycles": float(total.max()),
    }  # fmt: skip


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Bytes that leave an SM in a cycle of the whole epilogue."""
    return {"bytes_per_cycle": Row.of(row).tile_bytes / float(row["total_cycles"])} if row.get("total_cycles") else {}


# ---------------------------------------------------------------------------------------------- the simulator's answer
def staging(config: Row) -> OperandTile:
    """The tile in shared memory."""
    return OperandTile(rows=config.m, k=config.n, dtype=dtype_named(config.dtype), is_k_major=True, swizzle="128B")


def writes(config: Row) -> Op:
    """Fragments into the staging buffer."""
    m, n = config.m, config.n
    if config.dtype == "bf16":
        return ops.Stmatrix(stmatrix_writes(m, n, DType("bf16", 16, "float"), "128B"), "staging", 0)
    lane_row, lane_column = np.divmod(np.arange(32), 4)
    rows = 8 * np.arange(m // 8)[:, None, None] + lane_row
    offsets = staging(config).byte_offsets(rows, 32 * np.arange(n // 8)[None, :, None] + 8 * lane_column)
    counted = wavefronts("st_shared_b64", offsets)
    access = AccessPattern(num_requests=counted.size, num_wavefronts=int(counted.sum()), num_bytes=4 * m * n)
    return ops.SharedStore(access, "staging", 0)


def whole_rows(config: Row) -> AccessPattern:
    """The tile row after row, 16 bytes a lane."""
    num_bytes = config.tile_bytes
    return AccessPattern(
        num_requests=num_bytes // 512, num_sectors=num_bytes // 32, num_lines=num_bytes // LINE_BYTES, num_bytes=num_bytes
    )


def part(access: AccessPattern, num_parts: int, times: int = 1) -> AccessPattern:
    """One of so many equal parts of an access, or some of them; every field is a multiple of their number.

    >>> part(AccessPattern(num_requests=8, num_sectors=64, num_bytes=2048), 4)
    AccessPattern(num_requests=2, num_sectors=16, num_lines=0, num_wavefronts=0, num_bytes=512)
    """
    return AccessPattern(**{item.name: getattr(access, item.name) // num_parts * times for item in fields(access)})


def stored(config: Row, tile: ops.Tile) -> tuple[Op, ...]:
    """Fragments into memory, two neighbours a lane.

    Of bf16 the clock waits until the registers of some store have been read, of fp32 for none.
    """
    m, n = config.m, config.n
    whole = epilogue_store(m, n, config.element_bytes, "wgmma")
    if config.dtype == "fp32":
        return (ops.GlobalStore("D", tile, whole),)
    until, behind = (part(whole, n // 4, times) for times in (READ_STORES[n], n // 4 - READ_STORES[n]))
    rest = (ops.GlobalStore("D", tile, behind),) if behind.num_requests else ()
    return (busy(STORE_CYCLES), ops.GlobalStore("D", tile, until), REGISTERS_READ, *rest)


STORE_CYCLES = 7
"""Before the first store of bf16 fragments, in SASS."""
READ_STORES = {64: 9, 128: 32, 256: 62}
"""Which of a warp's stores the clock waits for, in SASS, by columns of the tile."""
REGISTERS_READ = ops.SharedLoad(AccessPattern())
"""Nothing but a load's wait: until the registers of the stores before it have been read."""


def written(config: Row) -> Generator[Op, ops.Token | None, None]:
    """The tile into the staging buffer, store after store of every warp, at the compiler's pace and with its waits."""
    m, n = config.m, config.n
    schedule = SCHEDULES[config.way, config.dtype, m, n]
    num_stores = n // 16 if config.dtype == "bf16" else n // 4
    whole = writes(config)
    assert isinstance(whole, ops.Stmatrix | ops.SharedStore)
    each = replace(whole, access=part(whole.access, num_stores), has_token=True)
    tokens: list[ops.Token] = []
    yield ops.Alu(max(0, schedule.first - schedule.pace) / 2)  # at half rate: two warps of a scheduler take twice as long
    for store in range(1, num_stores + 1):
        if store in schedule.waits:
            yield ops.Use(tokens[schedule.waits[store] - 1])
        yield busy(schedule.pace)
        token = yield each
        assert token is not None  # it was asked for
        tokens.append(token)
    if 0 in schedule.waits:
        yield ops.Use(tokens[schedule.waits[0] - 1])


def busy(cycles: float) -> Op:
    """Instructions that take thread 0's warp so long; others of its scheduler come after it."""
    return ops.Alu(max(cycles - 1.0, 0.0) / 4, is_chain=True)


def chunk_of(config: Row) -> tuple[int, AccessPattern]:
    """Chunks of a warp, 16 bytes a lane each, and one of them of all warps."""
    whole = whole_rows(config)
    num_chunks = whole.num_requests // (config.m // 16)
    return num_chunks, part(whole, num_chunks)


def read(config: Row, *, stores_to: ops.Tile | None = None) -> Generator[Op, ops.Token | None, None]:
    """Rows out of shared memory, eight chunks in flight a turn; alone, or stored once they are there."""
    num_chunks, each = chunk_of(config)
    reads = AccessPattern(
        num_requests=each.num_requests, num_wavefronts=each.num_bytes // LINE_BYTES, num_bytes=each.num_bytes
    )
    first, pace = (READS if stores_to is None else STORES)[config.dtype, config.m, config.n]
    unread = num_chunks == UNROLLED
    for begin in range(0, num_chunks, UNROLLED):
        num = min(UNROLLED, num_chunks - begin)
        tokens = []
        for chunk in range(num):
            yield busy(pace if chunk else first)
            tokens.append((yield ops.SharedLoad(reads, "staging", 0)))
        for chunk, token in enumerate(tokens, begin):
            assert token is not None  # a load's
            yield ops.Use(token)
            if stores_to is not None:
                yield ops.GlobalStore("D", stores_to, each)
                if chunk == num_chunks - 1 - unread:
                    yield REGISTERS_READ  # the clock waits for it
        if stores_to is None:
            yield busy(TURN_CYCLES if begin + num < num_chunks else LAST_CYCLES)


UNROLLED = 8
"""Chunks of a turn of reads or stores, in kernel.cu."""
TURN_CYCLES, LAST_CYCLES = 15, 28
"""From the use of what a turn has read last to the next turn, and to the clock, in SASS."""
READS: Mapping[tuple[str, int, int], tuple[float, float]] = {
    ("bf16", 64, 64): (1, 4), ("bf16", 128, 64): (1, 4), ("bf16", 64, 128): (1, 5), ("bf16", 128, 128): (1, 5),
    ("bf16", 64, 256): (41, 12.6), ("bf16", 128, 256): (37, 13), ("fp32", 64, 64): (1, 5), ("fp32", 128, 64): (1, 5),
    ("fp32", 64, 128): (40, 12), ("fp32", 128, 128): (38, 11.6), ("fp32", 64, 256): (45, 13.7),
    ("fp32", 128, 256): (45, 13.7),
}  # fmt: skip
"""Cycles before a turn's first load and from one to the next, in SASS, by type and tile: addresses."""
STORES: Mapping[tuple[str, int, int], tuple[float, float]] = {
    ("bf16", 64, 64): (1, 4), ("bf16", 128, 64): (1, 4), ("bf16", 64, 128): (2, 4), ("bf16", 128, 128): (2, 4),
    ("bf16", 64, 256): (99, 4), ("bf16", 128, 256): (100, 4), ("fp32", 64, 64): (2, 4), ("fp32", 128, 64): (2, 4),
    ("fp32", 64, 128): (76, 6), ("fp32", 128, 128): (94, 4), ("fp32", 64, 256): (118, 4), ("fp32", 128, 256): (125, 4),
}  # fmt: skip
"""The same of turns that store what they have loaded. The clock behind all waits until the registers of the last store have
been read, but where there are eight: there of the last but one."""


def pieces_of(config: Row, cta_idx: int) -> Iterator[tuple[str, tuple[Op, ...]]]:
    """Each piece that the simulator has words for, with its ops; none where ``written`` and ``read`` have them."""
    tile = (cta_idx, 0)
    if config.way == "direct":
        yield "store", stored(config, tile)
        yield "drain", (ops.FenceAcqRel(), ops.Syncthreads())
        return
    yield "write", ()
    if config.way == "staged":
        yield "meet", (ops.Syncthreads(),)
        yield "store", ()
        yield "drain", (ops.FenceAcqRel(), ops.Syncthreads())
        yield "read", ()
        return
    yield "fence", (ops.FenceProxyAsync(),)
    yield "meet", (ops.Syncthreads(),)
    boxes = tma_boxes(staging(config))
    num_bytes = config.tile_bytes // len(boxes)
    yield "issue", tuple(ops.TmaStore("D", tile, num_bytes, box.num_rows, "staging", 0) for box in boxes)
    yield "commit", (ops.BulkCommitGroup(),)
    yield "source_wait", (ops.BulkWaitGroup(0, read=True),)
    yield "whole_wait", (ops.BulkWaitGroup(0, read=False),)


def wait(cycles: float, num_warps: int, gpu: GpuSpec) -> Op:
    """Integer instructions that take so long: whole warps on the schedulers that they have."""
    spec = gpu.warp_scheduler
    lanes = spec.int32_lanes * min(num_warps, spec.num_schedulers) / spec.num_schedulers
    return ops.Alu(cycles * lanes / 32 / num_warps)


def twin(config: Row, gpu: GpuSpec) -> Launch:
    """The CTAs in the simulator's words, each piece in a range of its own; a later begin is told by arithmetic."""
    m, n, sms = config.m, config.n, config.sms

    def program(cta: RoleContext) -> Generator[Op, ops.Token | None, None]:
        delay_ns = config.stagger_ns * cta.cta_idx / max(1, sms - 1)
        if delay_ns:
            yield wait(delay_ns * gpu.clock.max_mhz / 1e3, m // 16, gpu)
        for name, of_piece in pieces_of(config, cta.cta_idx):
            yield RangeStart(Section.PROLOGUE)
            if name == "write":
                yield from written(config)
            if config.way == "staged" and name in ("store", "read"):
                yield from read(config, stores_to=(cta.cta_idx, 0) if name == "store" else None)
            for op in of_piece:
                token = yield op
                if token is not None:
                    yield ops.Use(token)
            yield RangeEnd()

    role = WarpRole(name="all", num_warps=m // 16, program=program)
    staged = Buffer(name="staging", stage_bytes=config.tile_bytes)
    return Launch(
        kernel=config.kernel, num_ctas=sms, num_tiles=sms, roles=(role,), buffers=(staged,),
        registers_per_thread=min(255, n // 2 + 40), extra_smem_bytes=ALONE_SMEM_BYTES - staged.num_bytes,
    )  # fmt: skip


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """Cycles of the pieces that the simulator has words for; the total where it has all of them.

    Nothing for a GPU of fewer SMs than there are CTAs, or without TMA where the way is TMA's.
    """
    if config.sms > gpu.num_sms or (config.way == "tma" and gpu.tma is None):
        return {}
    result = simulate(twin(config, gpu), gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    names = [name for name, _ in pieces_of(config, 0)]
    times = np.array([[span.end_cycle - span.start_cycle for span in item.sections] for item in result.timeline.roles])
    found = {f"{name}_cycles": float(np.median(times[:, idx])) for idx, name in enumerate(names)}
    counted = [idx for idx, name in enumerate(names) if name not in UNCOUNTED]
    found["total_cycles"] = float(np.median(times[:, counted].sum(axis=1)))
    if config.way == "tma":
        found["issue_cycles"] += ISSUE_FRAME_CYCLES
        found["total_cycles"] += ISSUE_FRAME_CYCLES
    return found


# ---------------------------------------------------------------------------------------------- parameters
Rows = Sequence[Mapping[str, str]]


def fit(rows: Rows) -> list[Fitted]:
    """What a line's packet takes of the port, and what waits behind the port."""
    found = {
        "xbar.store_packet_bytes": (
            _packet_bytes(rows), "fp32 fragments stored by one SM, a sector a line, until a fence: slope over lines"
        ),
        "xbar.store_in_flight_bytes": (
            _way_bytes(rows),
            "stores by TMA of 132 SMs at once: bytes less what L2 takes of them until the source is read, median",
        ),
    }
    return [one for name, (values, how) in found.items() for one in fitted(name, values, how)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median over pairs of (x, y); NaN without two of different x."""
    return float(np.median(slopes_of_pairs(points) or [np.nan]))


Tile = tuple[int, int, str]
"""Rows, columns and type."""


def _of(rows: Rows, name: str, **fields: str) -> dict[Tile, float]:
    """A value by tile and type, of the rows that say so."""
    return {
        (int(row["m"]), int(row["n"]), row["dtype"]): float(row[name]) for row in rows
        if row.get(name) and row["group"] == "tiles" and all(row[key] == value for key, value in fields.items())
    }  # fmt: skip


def _tile_bytes(tile: Tile) -> int:
    return tile[0] * tile[1] * (4 if tile[2] == "fp32" else 2)


def _packet_bytes(rows: Rows) -> list[float]:
    """Bytes of the port, whose rate is that of TMA's stores; the time is that until all stores have arrived."""
    rate = slope([(cycles, _tile_bytes(tile)) for tile, cycles in _until_read(rows, "1").items()])
    alone = _of(rows, "total_cycles", way="direct", dtype="fp32", sms="1")
    lines = {tile: epilogue_store(*tile[:2], 4, "wgmma").num_lines for tile in alone}  # of each instruction by itself
    each = slope([(lines[tile], cycles) for tile, cycles in alone.items()])
    return [] if isnan(rate * each) else [rate * each]


def _until_read(rows: Rows, sms: str) -> dict[Tile, float]:
    """From the first box's issue until TMA has read its source, of so many SMs at once."""
    issues, waits = (_of(rows, f"{piece}_cycles", way="tma", sms=sms, stagger_ns="0") for piece in ("issue", "source_wait"))
    return {tile: issues[tile] + wait_cycles for tile, wait_cycles in waits.items() if tile in issues}


def _way_bytes(rows: Rows) -> list[float]:
    """Of tiles that TMA stores more slowly where all SMs do: what they are short of their bytes at the rate of then."""
    alone, together = (_until_read(rows, sms) for sms in ("1", str(NUM_SMS)))
    port = slope([(_tile_bytes(tile), cycles) for tile, cycles in alone.items()])
    slowed = [tile for tile in together if tile in alone and together[tile] > 1.1 * alone[tile]]
    rate = slope([(together[tile], _tile_bytes(tile)) for tile in slowed])
    if isnan(port * rate):
        return []
    latencies = {tile: alone[tile] - port * _tile_bytes(tile) for tile in slowed}
    return [_tile_bytes(tile) - rate * (together[tile] - latencies[tile]) for tile in slowed]


MEANINGS = {
    "store_cycles": "direct: every st.global of the fragments; staged: ld.shared and st.global, row after row",
    "drain_cycles": "fence.acq_rel.gpu behind the stores and __syncthreads: all warps' stores have arrived",
    "write_cycles": "conversion and stmatrix (bf16) or st.shared (fp32) of the whole tile",
    "meet_cycles": "__syncthreads",
    "read_cycles": "ld.shared of the whole tile alone, afterwards; no part of the total",
    "fence_cycles": "fence.proxy.async.shared::cta",
    "issue_cycles": "all boxes, by one thread",
    "commit_cycles": "cp.async.bulk.commit_group",
    "source_wait_cycles": "cp.async.bulk.wait_group.read 0",
    "whole_wait_cycles": "cp.async.bulk.wait_group 0 behind it",
    "total_cycles": "from the first reading of the clock to the last, the median",
    "least_total_cycles": "the least of all CTAs and rounds",
    "p90_total_cycles": "of all CTAs and rounds",
    "most_total_cycles": "the most of all CTAs and rounds",
}

CASE = Case(
    name="epilogue_pieces",
    question="How long does each piece of an epilogue take?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, derive=derive, includes=includes,
    groups={
        "tiles": Group(configs=tiles, rank=2, least_capability=(9, 0), num_sms=132),
        "contention": Group(configs=contention, rank=4, least_capability=(9, 0), num_sms=132),
    },
    values={name: f"SM cycles of thread 0: {text}" for name, text in MEANINGS.items()},
    tiers={
        "store_cycles": 4, "write_cycles": 4, "read_cycles": 4, "drain_cycles": 2, "fence_cycles": 2, "meet_cycles": 2,
        "issue_cycles": 2, "source_wait_cycles": 2, "whole_wait_cycles": 2, "total_cycles": 6,
    },
)  # fmt: skip
