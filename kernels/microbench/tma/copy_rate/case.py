"""How long does an asynchronous copy take, and how many go at once? cp.async, TMA, bulk copies, reductions, multicast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole
from gpusim.errors import LayoutError
from gpusim.evidence.cases.array import read_only, schedules_of
from gpusim.evidence.cases.case import Case, Fitted, FittedConstant, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import Argument, Input, KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.microbenchmark import chained_code, range_cycles
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.evidence.cases.parameters import fitted, fitted_constant
from gpusim.evidence.cases.timing import spread
from gpusim.layout.swizzle import swizzle_mode
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.dtypes import dtype as dtype_named
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tma.boxes import TensorMap

NUM_SAMPLES, MOST_ISSUERS = 128, 32
MOST_TRAIN, TRAIN_ROUNDS, RING_ROUNDS = 32, 12, 2
WARM_ROUNDS = 2
"""Rounds of a train that fetch data, tensor map and instructions; those behind them count."""
ROOM_BYTES = 184 * 1024
"""Shared memory for slots: 227 KiB less the kernel's own stamps."""
LEAST_SMEM_BYTES = 49 * 1024
CP_ASYNC_SMEM_BYTES = 128 * 1024
"""With the stamps, 160 of the 163 KiB that a CTA of an A100 may have."""
TENSOR_BYTES = 1 << 20
PITCH_BYTES = 1024
"""From row to row of a tensor of two or three dimensions."""
PLANES = 32
"""Rows of a plane, and planes, of a tensor of three dimensions."""
START_TILES = 37
"""From one issuer's first tile to the next one's; odd, so that they do not walk in step."""
STORED = 0xA5
"""What a tensor is filled with that stores go to."""

DTYPE_OF_BULK = {"bulk": "int8", "u32": "int32", "fp32": "fp32", "bf16": "bf16"}


# ---------------------------------------------------------------------------------------------- configs
@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    kernel: str
    dtype: str = field(default="bf16", kw_only=True)
    inner_bytes: int
    outer: str = "1"
    _: KW_ONLY
    swizzle: str = "none"
    in_flight: int = 1
    num_issuers: int = 1
    num_copies: int = 1
    region_kib: int = TENSOR_BYTES >> 10

    @property
    def is_cp_async(self) -> bool:
        """One of the older copies, by all threads of a warp."""
        return "cp_async" in self.kernel

    @property
    def is_train(self) -> bool:
        """Copies in a row and one wait."""
        return self.kernel.startswith("train")

    @property
    def is_store(self) -> bool:
        """From shared memory, reductions included."""
        return "_store_" in self.kernel or self.is_reduction

    @property
    def is_reduction(self) -> bool:
        """Adds to what is there."""
        return "_reduce_" in self.kernel

    @property
    def is_bulk(self) -> bool:
        """Without a tensor map."""
        return "_bulk" in self.kernel

    @property
    def cluster_size(self) -> int:
        """CTAs of a multicast; 1 without."""
        return int(self.kernel.rsplit("_", 1)[1]) if self.kernel.startswith("multicast") else 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of a box, beyond the contiguous dimension."""
        return tuple(map(int, self.outer.split("x")))

    @property
    def rows(self) -> int:
        """Rows of one box."""
        return int(np.prod(self.sizes))

    @property
    def copy_bytes(self) -> int:
        """Bytes of one copy; of cp.async, of one warp instruction."""
        return self.inner_bytes * (WARP_SIZE if self.is_cp_async else self.rows)

    @property
    def slot_bytes(self) -> int:
        """From slot to slot: a swizzle's repeat at least; a slot of a multicast holds the boxes of all that issue."""
        return -(-self.copy_bytes * (self.num_copies if self.cluster_size > 1 else 1) // 1024) * 1024

    @property
    def num_slots(self) -> int:
        """Slots of a CTA."""
        return self.num_copies if self.is_train else self.in_flight * (1 if self.cluster_size > 1 else self.num_issuers)

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of a launch: always more than 48 KiB, so that the bench opts in, whatever the stamps take.

        cp.async always takes what an A100 has, so that L1 is of one size.
        """
        return CP_ASYNC_SMEM_BYTES if self.is_cp_async else max(self.num_slots * self.slot_bytes, LEAST_SMEM_BYTES)


def _fits(config: Row) -> bool:
    if config.is_cp_async:
        return _cp_smem_bytes(config) <= config.smem_bytes
    try:
        if not config.is_bulk:
            tensor_map(config)
    except LayoutError:
        return False
    walk = _walk(config)
    rows = walk["rows"] * config.num_copies if config.is_train and walk["height"] > 1 else walk["rows"]
    return config.smem_bytes <= ROOM_BYTES and rows <= walk["height"]


def _cp_smem_bytes(config: Row) -> int:
    return config.copy_bytes * config.num_copies * (1 if config.is_train else config.in_flight * config.num_issuers)


def _legal(found: list[Row]) -> list[Row]:
    return [config for config in found if _fits(config)]


CP_ASYNC = (("ca4", 4), ("ca8", 8), ("ca16", 16), ("cg16", 16))
TRAIN = (1, 2, 4, 8, 16, 32)
SWIZZLE_OF = {32: "32B", 64: "64B", 128: "128B"}


def cp_async_train() -> list[Row]:
    """One warp: 1 to 32 instructions in a row; data in L2, or in L1 as well."""
    return [
        Row(f"train_cp_async_{name}", size, num_copies=num, region_kib=32, dtype="int8") for name, size in CP_ASYNC
        for num in TRAIN
    ]  # fmt: skip


def cp_async_ring() -> list[Row]:
    """1 to 16 warps, 1 to 8 groups in flight, of 1 or 4 instructions; 8 KiB stay in L1, 1 MiB does not."""
    return _legal([
        Row(
            f"ring_cp_async_{name}", size, in_flight=depth, num_issuers=warps, num_copies=copies, region_kib=kib,
            dtype="int8",
        )
        for name, size in CP_ASYNC for kib in ((8, 1024) if name != "cg16" else (1024,)) for copies in (1, 4)
        for depth in (1, 2, 4, 8) for warps in (1, 2, 4, 8, 16)
    ])  # fmt: skip


def load_train() -> list[Row]:
    """1 to 32 loads in a row by one thread: latency, issue, and what the engine takes for a box, a row, a byte."""
    found = [Row("train_load_bulk", size, num_copies=num, dtype="int8")
             for size in (16, 64, 256, 1024, 4096, 16384) for num in TRAIN]
    found += [Row("train_load_1d", size, num_copies=num) for size in (16, 32, 64, 128, 256, 512) for num in TRAIN]
    found += [Row("train_load_2d", inner, str(rows), num_copies=num)
              for inner in (16, 32, 64, 128, 256) for rows in (1, 4, 8, 16, 32, 64, 128, 256) for num in TRAIN]
    found += [Row("train_load_2d", inner, str(rows), swizzle=swizzle, num_copies=num)
              for inner, swizzle in SWIZZLE_OF.items() for rows in (8, 16, 64, 256) for num in TRAIN]
    found += [Row("train_load_3d", inner, outer, swizzle=swizzle, num_copies=num)
              for inner, swizzle in ((16, "none"), (64, "none"), (128, "none"), (128, "128B"))
              for outer in ("1x1", "8x1", "1x8", "4x2", "8x8", "16x4") for num in TRAIN]  # fmt: skip
    return _legal(found)


def load_ring() -> list[Row]:
    """1 to 16 loads in flight by each of 1 to 8 elected threads: the rate, and the latency under load."""
    shapes = [("2d", 128, str(rows), "128B") for rows in (1, 8, 32, 64, 128, 256)]
    shapes += [("2d", 16, "8", "none"), ("2d", 16, "64", "none"), ("2d", 32, "64", "32B"), ("2d", 64, "64", "64B")]
    shapes += [("2d", 64, "64", "none"), ("2d", 128, "64", "none"), ("2d", 256, "32", "none"), ("3d", 128, "8x8", "128B")]
    shapes += [("1d", 128, "1", "none"), ("1d", 512, "1", "none")]
    shapes += [("bulk", size, "1", "none") for size in (16, 256, 1024, 4096, 16384)]
    return _legal([
        Row(f"ring_load_{kind}", inner, outer, swizzle=swizzle, in_flight=depth, num_issuers=warps,
                dtype="int8" if kind == "bulk" else "bf16")
        for kind, inner, outer, swizzle in shapes for warps in (1, 2, 4, 8) for depth in (1, 2, 4, 8, 16)
    ])  # fmt: skip


def load_lanes() -> list[Row]:
    """Several lanes of one warp issue: the compiler makes a loop over them."""
    return _legal([
        Row("lanes_load_2d", 128, str(rows), swizzle="128B", in_flight=depth, num_issuers=lanes)
        for rows in (1, 8, 64) for depth in (1, 2, 4) for lanes in (1, 2, 4, 8, 16, 32)
    ])  # fmt: skip


def store_train() -> list[Row]:
    """1 to 32 stores in a row by one thread, committed once: until the source is read, until all is written."""
    found = [Row("train_store_bulk", size, num_copies=num, dtype="int8")
             for size in (16, 256, 1024, 4096, 16384) for num in TRAIN]
    found += [Row("train_store_1d", size, num_copies=num) for size in (16, 128, 512) for num in TRAIN]
    found += [Row("train_store_2d", inner, str(rows), num_copies=num)
              for inner in (16, 32, 64, 128, 256) for rows in (1, 8, 32, 64, 128, 256) for num in TRAIN]
    found += [Row("train_store_2d", 128, str(rows), swizzle="128B", num_copies=num)
              for rows in (8, 64, 256) for num in TRAIN]
    found += [Row("train_store_3d", 128, outer, num_copies=num) for outer in ("8x1", "1x8", "8x8") for num in TRAIN]
    return _legal(found)


def store_ring() -> list[Row]:
    """1 to 16 stores in flight by each of 1 to 8 elected threads, by sources read or by writes done."""
    shapes = [("2d", 128, "8", "128B"), ("2d", 128, "64", "128B"), ("2d", 128, "64", "none"), ("2d", 32, "64", "none")]
    shapes += [("2d", 16, "8", "none"), ("1d", 512, "1", "none"), ("3d", 128, "8x8", "128B")]
    shapes += [("bulk", size, "1", "none") for size in (16, 1024, 4096)]
    return _legal([
        Row(f"ring_store_{until}_{kind}", inner, outer, swizzle=swizzle, in_flight=depth, num_issuers=warps,
                dtype="int8" if kind == "bulk" else "bf16")
        for kind, inner, outer, swizzle in shapes for until in ("read", "done") for warps in (1, 2, 4, 8)
        for depth in (1, 2, 4, 8, 16)
    ])  # fmt: skip


def reduce_ring() -> list[Row]:
    """Additions in L2, with a tensor map and without, by type and size."""
    found = [
        Row(f"ring_reduce_bulk_{name}", size, in_flight=depth, num_issuers=warps, dtype=DTYPE_OF_BULK[name])
        for name in ("u32", "fp32", "bf16") for size in (16, 256, 1024, 4096, 8192) for warps in (1, 4)
        for depth in (1, 4, 16)
    ] + [
        Row("ring_reduce_2d", 128, str(rows), dtype=dtype, in_flight=depth, num_issuers=warps)
        for dtype in ("fp32", "bf16") for rows in (8, 64) for warps in (1, 4) for depth in (1, 4, 16)
    ]  # fmt: skip
    return _legal(found)


def _multicasts(sizes: Sequence[int]) -> list[Row]:
    """One CTA sends whole boxes to all, or each sends its share; slots of 2 to 32 KiB."""
    found = []
    for size in sizes:
        for rows in (16, 64, 128, 256):
            for issuing in (1, size):
                if rows % issuing == 0 and (rows // issuing) % 8 == 0:
                    name, share = f"multicast_{size}", str(rows // issuing)
                    found += [
                        Row(name, 128, share, swizzle="128B", in_flight=depth, num_copies=issuing)
                        for depth in (1, 2, 4, 8)
                    ]
    return _legal(found)


def multicast() -> list[Row]:
    """Clusters of 2, 4 and 8."""
    return _multicasts((2, 4, 8))


def multicast_of_16() -> list[Row]:
    """A cluster of 16, which the driver launches only where the kernel has asked for it."""
    return _multicasts((16,))


# ---------------------------------------------------------------------------------------------- launch
def _walk(config: Row) -> dict[str, int]:
    """How tiles follow one another: step and width along x, rows and height along the outermost coordinate."""
    inner, dtype = config.inner_bytes, dtype_named(config.dtype)
    if config.is_cp_async:
        return {"step": inner, "width": config.region_kib * 1024, "rows": 1, "height": 1}
    if config.is_bulk:
        return {"step": inner, "width": TENSOR_BYTES, "rows": 1, "height": 1}
    if config.kernel.endswith("_1d"):
        return {"step": inner // dtype.num_bytes, "width": TENSOR_BYTES // dtype.num_bytes, "rows": 1, "height": 1}
    height = PLANES if config.kernel.endswith("_3d") else TENSOR_BYTES // PITCH_BYTES
    step, width = inner // dtype.num_bytes, PITCH_BYTES // dtype.num_bytes
    return {"step": step, "width": width, "rows": config.sizes[-1], "height": height}


def tensor_map(config: Row) -> TensorMap:
    """The map of the tensor that boxes are taken from; a MiB, in one to three dimensions.

    Raises:
        LayoutError: a box that TMA does not take.
    """
    dtype = dtype_named(config.dtype)
    box = [config.inner_bytes // dtype.num_bytes]
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    width = PITCH_BYTES // dtype.num_bytes
    if config.kernel.endswith("_1d"):
        dims, strides = (TENSOR_BYTES // dtype.num_bytes,), ()
    elif config.kernel.endswith("_3d"):
        dims, strides = (width, PLANES, PLANES), (PITCH_BYTES, PITCH_BYTES * PLANES)
        box += config.sizes
    else:
        dims, strides = (width, TENSOR_BYTES // PITCH_BYTES), (PITCH_BYTES,)
        box += [config.rows]
    return TensorMap(
        dtype=dtype, global_dim=dims, global_strides_bytes=strides, box_dim=tuple(box), swizzle=config.swizzle,
        l2_promotion="none",
    )  # fmt: skip


@cache
def tensor() -> NDArray[np.uint8]:
    """A MiB of random bytes, the same every time; copied to the GPU once."""
    return read_only(np.random.default_rng(7).integers(0, 256, TENSOR_BYTES, dtype=np.uint8))


def _bytes_of(dtype: str, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    if dtype == "int32":
        return numbers.astype("<i4").view(np.uint8)
    floats = numbers.astype("<f4")
    return floats.view(np.uint8) if dtype == "fp32" else (floats.view("<u4") >> 16).astype("<u2").view(np.uint8)


def _numbers_of(dtype: str, raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    if dtype == "int32":
        return np.asarray(raw.view("<i4").astype(np.int64))
    floats = raw.view("<f4") if dtype == "fp32" else (raw.view("<u2").astype("<u4") << 16).view("<f4")
    return np.asarray(np.rint(floats).astype(np.int64))


@cache
def box_source(num_bytes: int, dtype: str, is_added: bool) -> NDArray[np.uint8]:
    """What every store brings: random bytes, or small whole numbers where it is added, none of them 0."""
    generator = np.random.default_rng([num_bytes, is_added])
    if not is_added:
        return generator.integers(0, 256, num_bytes, dtype=np.uint8)
    numbers = generator.integers(1, 4, num_bytes // dtype_named(dtype).num_bytes)
    return _bytes_of(dtype, numbers)


def places(config: Row) -> NDArray[np.int64]:
    """Where each byte of a box lies in its slot."""
    return np.asarray(swizzle_mode(config.swizzle)(np.arange(config.copy_bytes)))


@cache
def _image(num_bytes: int, dtype: str, is_added: bool, swizzle: str, slot: int, slots: int) -> NDArray[np.uint8]:
    one = np.zeros(slot, dtype=np.uint8)
    one[np.asarray(swizzle_mode(swizzle)(np.arange(num_bytes)))] = box_source(num_bytes, dtype, is_added)
    return read_only(np.tile(one, slots))


def before(config: Row) -> NDArray[np.uint8]:
    """What the tensor holds before stores come."""
    return np.full(TENSOR_BYTES, 0 if config.is_reduction else STORED, dtype=np.uint8)


def launch(config: Row) -> KernelLaunch:
    """Nothing is counted here: times come from the kernel."""
    walk, slots = _walk(config), config.num_slots
    stores, size = config.is_store, config.cluster_size
    num_bytes = _cp_smem_bytes(config) if config.is_cp_async else slots * config.slot_bytes
    copies = {
        "num_bytes": config.copy_bytes, "slot_bytes": config.slot_bytes, "in_flight": config.in_flight,
        "num_issuers": config.num_issuers, **walk, "start": START_TILES, "num_copies": config.num_copies,
        "source_bytes": num_bytes if stores else 0, "dump_bytes": 0 if stores else num_bytes,
        "num_rounds": TRAIN_ROUNDS if config.is_train else RING_ROUNDS,
    }  # fmt: skip
    arguments: list[Argument] = [by_value(np.array(list(copies.values()), dtype="<u4"))]
    if stores:
        source = _image(config.copy_bytes, config.dtype, config.is_reduction, config.swizzle, config.slot_bytes, slots)
        arguments += [
            Input(source), np.uint64(0) if config.is_bulk else MappedTensor(tensor(), tensor_map(config)),
            Output("tensor", before(config)), Output("made", np.zeros(128, dtype=np.uint8)),
        ]  # fmt: skip
    else:
        is_plain = config.is_bulk or config.is_cp_async
        arguments.append(Input(tensor()) if is_plain else MappedTensor(tensor(), tensor_map(config)))
        arguments.append(Output("smem", np.full(max(16, size * num_bytes), STORED, dtype=np.uint8)))
    num_words = max(MOST_ISSUERS * NUM_SAMPLES * 2, TRAIN_ROUNDS * (MOST_TRAIN + 4))
    arguments.append(Output("times", np.full(4 + num_words, 0xFFFFFFFF, dtype="<u4")))
    return KernelLaunch(
        kernel=config.kernel, arguments=tuple(arguments), grid=(size, 1, 1), block=(_num_threads(config), 1, 1),
        smem_bytes=config.smem_bytes, has_large_cluster=size > 8,
    )  # fmt: skip


def _num_threads(config: Row) -> int:
    if config.is_cp_async:
        return WARP_SIZE * (1 if config.is_train else config.num_issuers)
    if config.kernel.startswith("lanes"):
        return WARP_SIZE
    return 128 if config.is_train or config.cluster_size > 1 else WARP_SIZE * config.num_issuers


# ---------------------------------------------------------------------------------------------- check
def tile_bytes(config: Row, tile: int) -> NDArray[np.int64]:
    """Which bytes of the tensor are those of tile number ``tile``, in the order of the box: int64[bytes]."""
    walk, inner = _walk(config), config.inner_bytes
    per_row, num_rows = walk["width"] // walk["step"], walk["height"] // walk["rows"]
    x, y = tile % per_row * inner, tile // per_row % num_rows * walk["rows"]
    along = x + np.arange(inner)
    if walk["height"] == 1:
        return along
    sizes = config.sizes
    if len(sizes) == 1:
        rows = (y + np.arange(sizes[0])) * PITCH_BYTES
    else:
        rows = ((y + np.arange(sizes[1]))[:, None] * PLANES + np.arange(sizes[0])).reshape(-1) * PITCH_BYTES
    return np.asarray((rows[:, None] + along).reshape(-1))


def _train_tile(config: Row, idx: int) -> int:
    walk = _walk(config)
    return idx if walk["height"] == 1 else idx * (walk["width"] // walk["step"])


def expected_slots(config: Row) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(offset, bytes) of every box that must lie in shared memory at the end, swizzled."""
    boxes: list[tuple[int, int]] = []
    slot, depth, count = config.slot_bytes, config.in_flight, config.num_copies
    if config.is_cp_async:
        yield from _expected_cp(config)
        return
    if config.is_train:
        boxes = [(idx * slot, _train_tile(config, idx)) for idx in range(count)]
    elif config.cluster_size > 1:
        per_row, stages = _walk(config)["width"] // _walk(config)["step"], RING_ROUNDS * NUM_SAMPLES
        for stage in range(stages - depth, stages):
            for rank in range(count):
                tile = (stage * count + rank) * per_row
                boxes += [
                    ((cta * depth + stage % depth) * slot + rank * config.copy_bytes, tile)
                    for cta in range(config.cluster_size)
                ]
    else:
        for issuer in range(config.num_issuers):
            for idx in range(NUM_SAMPLES - depth, NUM_SAMPLES):
                boxes.append(((issuer * depth + idx % depth) * slot, issuer * START_TILES + idx))
    where = places(config)
    for offset, tile in boxes:
        image = np.empty(config.copy_bytes, dtype=np.uint8)
        image[where] = tensor()[tile_bytes(config, tile)]
        yield offset, image


def _expected_cp(config: Row) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    num_bytes, count = config.copy_bytes, config.num_copies
    if config.is_train:
        for idx in range(count):
            yield idx * num_bytes, tensor()[idx * num_bytes :][:num_bytes]
        return
    warps, depth, groups = config.num_issuers, config.in_flight, RING_ROUNDS * NUM_SAMPLES
    region = config.region_kib * 1024
    for warp in range(warps):
        for group in range(groups - depth, groups):
            for k in range(count):
                begin = (warp + warps * (group * count + k)) * num_bytes % region
                yield ((warp * depth + group % depth) * count + k) * num_bytes, tensor()[begin : begin + num_bytes]


def _check_data(config: Row, outputs: Outputs) -> None:
    if not config.is_store:
        for offset, image in expected_slots(config):
            if (outputs["smem"][offset : offset + image.size] != image).any():
                raise WrongAnswer(f"the box at byte {offset} of shared memory is not the tensor's")
        return
    wanted = expected_tensor(config)
    if (differs := outputs["tensor"] != wanted).any():
        raise WrongAnswer(f"the tensor is not as stored, first at byte {int(np.nonzero(differs)[0][0])}")


def expected_tensor(config: Row) -> NDArray[np.uint8]:
    """The tensor after all stores, or sums."""
    made, source = before(config), box_source(config.copy_bytes, config.dtype, config.is_reduction)
    if config.is_train:
        tiles = [_train_tile(config, idx) for idx in range(config.num_copies)]
    else:
        tiles = [issuer * START_TILES + idx for issuer in range(config.num_issuers) for idx in range(NUM_SAMPLES)]
    if not config.is_reduction:
        for tile in tiles:
            made[tile_bytes(config, tile)] = source
        return made
    dtype = config.dtype
    unit = dtype_named(dtype).num_bytes
    sums, numbers = _numbers_of(dtype, made), _numbers_of(dtype, source)
    for tile in tiles:
        sums[tile_bytes(config, tile)[::unit] // unit] += RING_ROUNDS * numbers
    return _bytes_of(dtype, sums)


def _since(later: NDArray[np.uint32], earlier: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Cycles of a clock of 32 bits that may have come round."""
    return np.asarray((later - earlier).astype(np.int64))


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Times, if the bytes are right.

    Raises:
        WrongAnswer: a wait was given up, the clock did not run, or other bytes came.
    """
    times = outputs["times"]
    wrong_if(times[0], "an mbarrier never completed, the wait was given up")
    _check_data(config, outputs)
    values = _train_values(config, times) if config.is_train else _ring_values(config, times)
    main = values["cycles" if config.is_train else "cycles_per_copy"]
    wrong_if(not 0 < main < 1e8, f"the clock says {main} cycles")
    return values


def _train_values(config: Row, times: NDArray[np.uint32]) -> dict[str, float]:
    num, rounds = config.num_copies, times[4:][: TRAIN_ROUNDS * (MOST_TRAIN + 4)].reshape(TRAIN_ROUNDS, -1)
    warm = rounds[WARM_ROUNDS:]
    issues = _since(warm[:, 1 : num + 1], warm[:, :num])
    has_read = config.is_store
    done = _since(warm[:, num + (2 if has_read else 1)], warm[:, 0])
    first = _since(rounds[:1, num + (2 if has_read else 1)], rounds[:1, 0])
    values = {**spread("cycles", done), "first_cycles": float(first[0])}
    values |= {"first_issue_cycles": float(np.median(issues[:, 0]))}
    if num > 1:
        values |= spread("issue_cycles", issues[:, 1:])
        values["last_issue_cycles"] = float(np.median(issues[:, -1]))
    if has_read:
        values |= spread("read_cycles", _since(warm[:, num + 1], warm[:, 0]))
    elif not config.is_cp_async:
        values["clock_cycles"] = float(times[2]) / 8
    return values


def _ring_values(config: Row, times: NDArray[np.uint32]) -> dict[str, float]:
    size, depth = config.cluster_size, config.in_flight
    count = size if size > 1 else config.num_issuers
    stamps = times[4:].reshape(MOST_ISSUERS, NUM_SAMPLES, 2)[:count]
    issued, done = stamps[..., 0], stamps[..., 1]
    quarter = NUM_SAMPLES // 4
    spans = _since(done[:, 3 * quarter], done[:, quarter])
    wrong_if((spans <= 0).any(), "the clock stands still")
    per_sample = 2 * quarter / spans.astype(float)
    rate = float(per_sample.mean() if size > 1 else per_sample.sum())
    copies = config.num_copies if size > 1 or config.is_cp_async else 1
    values = {"cycles_per_copy": 1.0 / (rate * copies)}
    if config.is_store:
        values["drain_cycles"] = float(times[1])
        taken = _since(done[:, depth - 1 :], issued[:, : NUM_SAMPLES - depth + 1])
    else:
        taken = _since(done, issued)
    return values | spread("latency_cycles", taken[:, depth : NUM_SAMPLES - depth - 1])


# ---------------------------------------------------------------------------------------------- the simulator's answer
Program = Callable[[RoleContext], Iterator[Any]]
TWIN_COPIES = 128
"""Copies of each issuer in a ring that is simulated."""


def _simulated(
    gpu: GpuSpec, roles: Mapping[str, tuple[int, Program]], buffers: Sequence[Buffer], mbarriers: Sequence[Mbarrier], *,
    num_ctas: int = 1, smem_bytes: int = 0,
) -> list[float]:
    """Cycles between RangeStart and RangeEnd of every role that has them, data in L2, at the highest clock."""
    launch = Launch(
        kernel="copy_rate", num_ctas=num_ctas, num_tiles=num_ctas, cluster_size=num_ctas, buffers=tuple(buffers),
        roles=tuple(WarpRole(name=name, num_warps=warps, program=program) for name, (warps, program) in roles.items()),
        mbarriers=tuple(mbarriers), extra_smem_bytes=max(0, smem_bytes - sum(buffer.num_bytes for buffer in buffers)),
    )  # fmt: skip
    return [cycles for spans in range_cycles(launch, gpu).values() for cycles in spans]


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """What the simulator has words for: cp.async, loads and stores with a tensor map, multicast as far as clusters go."""
    if config.is_bulk or config.kernel.startswith("lanes") or config.cluster_size > max(1, gpu.device.max_cluster_size):
        return {}
    if config.is_cp_async:
        return _predict_cp_train(config, gpu) if config.is_train else _predict_cp_ring(config, gpu)
    if config.is_train:
        return _predict_train(config, gpu)
    if config.is_store:
        return {"cycles_per_copy": 1.0 / sum(_rates(_simulated_stores(config, gpu)))}
    if config.cluster_size > 1:
        spans = _simulated_multicast(config, gpu)
        cycles = max(float(np.mean(spans)) / (TWIN_COPIES // 2), MULTICAST_LOOP_CYCLES)
        return {"cycles_per_copy": cycles / config.num_copies}
    cycles = 1.0 / sum(_rates(_simulated_loads(config, gpu)))
    loop = LOOP_CYCLES[config.kernel.rsplit("_", 1)[1]] / config.num_issuers
    return {"cycles_per_copy": max(cycles, loop)}


LOOP_CYCLES = {"1d": 215.0, "2d": 245.0, "3d": 245.0}
"""One turn of the ring's loop where nothing is waited for, by the coordinates that it counts: a try_wait by the warp,
election, notes, coordinates."""
REST_CYCLES = 75.0
"""Of that, what one in flight cannot hide: between a copy that is done and the next one's issue, beside the wait."""
MULTICAST_LOOP_CYCLES = 198.0
"""The same of the multicast's loop, a stage."""
MULTICAST_CODE_CYCLES = (19.0, 26.0, 66.0)
"""Of that, what the compiler has scheduled from the producer's wait to its announcement, from there to the copy (less its
issue), and from the other warp's wait to its arrivals. From SASS; a test reads it again."""


def _rates(spans: Sequence[float]) -> list[float]:
    return [TWIN_COPIES // 2 / span for span in spans]


def _middle(idx: int, first: int = TWIN_COPIES // 4) -> Iterator[ops.Op]:
    """Half of the copies, from number ``first`` on."""
    if idx == first:
        yield ops.RangeStart(ops.Section.MAINLOOP)
    if idx == first + TWIN_COPIES // 2:
        yield ops.RangeEnd()


def _load(config: Row, tile: int, buffer: str, stage: int, barrier: str, ranks: tuple[int, ...] = ()) -> ops.TmaLoad:
    num_bytes = config.copy_bytes
    return ops.TmaLoad("T", (0, tile), num_bytes, num_bytes, config.rows, buffer, stage, barrier, multicast=ranks)


def _simulated_loads(config: Row, gpu: GpuSpec) -> list[float]:
    depth, num_issuers, num_bytes = config.in_flight, config.num_issuers, config.copy_bytes
    rest = chained_code(REST_CYCLES, gpu)

    def issuer(who: int, _cta: RoleContext) -> Iterator[Any]:
        for idx in range(-depth, TWIN_COPIES):
            if idx >= 0:
                yield ops.MbarrierWait(f"full{who}", idx % depth, idx // depth & 1)
                yield from _middle(idx)
            if idx + depth < TWIN_COPIES:
                yield rest
                yield ops.MbarrierArriveExpectTx(f"full{who}", idx % depth, num_bytes)
                yield _load(config, who * TWIN_COPIES + idx + depth, f"slots{who}", idx % depth, f"full{who}")

    return _simulated(
        gpu, {f"issuer{who}": (1, partial(issuer, who)) for who in range(num_issuers)},
        [Buffer(name=f"slots{who}", stage_bytes=config.slot_bytes, num_stages=depth) for who in range(num_issuers)],
        [Mbarrier(name=f"full{who}", num_arrivals=1, num_stages=depth) for who in range(num_issuers)],
    )


def _stored(config: Row, buffer: str, stage: int, tile: int) -> ops.TmaStore:
    return ops.TmaStore("T", (0, tile), config.copy_bytes, config.rows, buffer, stage, reduce=config.is_reduction)


def _fill(config: Row, buffer: str, num_stages: int) -> Iterator[ops.Op]:
    access = AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=config.slot_bytes)
    for stage in range(num_stages):  # done long before, by all threads
        yield ops.SharedStore(access, buffer, stage)
    yield ops.FenceProxyAsync()


STORE_TURNS: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "store_done_1d": {1: (7.0, 51.0), 2: (4.0, 53.0), 16: (5.0, 31.0)},
    "store_read_1d": {1: (7.0, 50.0), 2: (4.0, 52.0), 16: (5.0, 30.0)},
    "store_done_2d": {1: (15.0, 60.0), 2: (10.0, 60.0), 16: (13.1, 38.2)},
    "store_read_2d": {1: (15.0, 59.0), 2: (10.0, 59.0), 16: (13.1, 37.2)},
    "store_done_3d": {1: (15.0, 60.0), 2: (13.0, 61.0), 16: (11.2, 37.8)},
    "store_read_3d": {1: (15.0, 59.0), 2: (13.0, 60.0), 16: (11.2, 36.8)},
    "reduce_2d": {1: (15.0, 60.0), 2: (10.0, 60.0), 16: (13.1, 38.2)},
}
"""What the compiler has scheduled in a ring of stores: cycles from a store to its wait, and of a whole turn, by kernel and
groups in flight; 2 stands for 2 to 8, and the loop for 16 is unrolled. From SASS; a test reads it again."""
COMMIT_CYCLES = 9.0
"""What committing a store adds to that, before the wait."""


def store_turn(config: Row) -> tuple[float, float]:
    """Cycles of a ring's code from a store to its wait, and of a turn, as they are scheduled."""
    depth = config.in_flight
    return STORE_TURNS[config.kernel.removeprefix("ring_")][depth if depth in (1, 16) else 2]


def _simulated_stores(config: Row, gpu: GpuSpec) -> list[float]:
    depth, num_issuers = config.in_flight, config.num_issuers
    is_read = "_read_" in config.kernel
    before, turn = store_turn(config)
    between = chained_code(max(0.0, before + COMMIT_CYCLES - gpu.tma.issue_cycles), gpu)
    around = chained_code(max(0.0, turn - before - gpu.tma.group_wait_cycles), gpu)

    def issuer(who: int, _cta: RoleContext) -> Iterator[Any]:
        yield from _fill(config, f"slots{who}", depth)
        for idx in range(TWIN_COPIES):
            yield _stored(config, f"slots{who}", idx % depth, who * TWIN_COPIES + idx)
            yield between
            yield ops.BulkCommitGroup()
            yield ops.BulkWaitGroup(depth - 1, read=is_read)
            yield around
            yield from _middle(idx)

    return _simulated(
        gpu, {f"issuer{who}": (1, partial(issuer, who)) for who in range(num_issuers)},
        [Buffer(name=f"slots{who}", stage_bytes=config.slot_bytes, num_stages=depth) for who in range(num_issuers)], (),
    )  # fmt: skip


def _predict_train(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """One train: its loads or stores, the wait for the sources, the wait for all; and the issues alone."""
    num, stores = config.num_copies, config.is_store

    own = [gpu.tma.issue_cycles + CLOCK_CYCLES * (idx == 0) for idx in range(num)]  # of a gap, what has a word
    codes = [chained_code(max(0.0, gap - words), gpu) for gap, words in zip(gaps_of(config), own, strict=True)]
    clock = chained_code(CLOCK_CYCLES, gpu)

    def until(what: str) -> list[float]:
        is_each = what == "issued"

        def program(_cta: RoleContext) -> Iterator[Any]:
            if stores:
                yield from _fill(config, "slots", num)
            else:
                yield ops.MbarrierArriveExpectTx("full", 0, num * config.copy_bytes)
            if not is_each:
                yield ops.RangeStart(ops.Section.MAINLOOP)
            for idx in range(num):
                if is_each:
                    yield ops.RangeStart(ops.Section.MAINLOOP)
                yield codes[idx]
                yield _stored(config, "slots", idx, idx) if stores else _load(config, idx, "slots", 0, "full")
                if idx == (0 if is_each else num - 1):
                    yield clock
                if is_each:
                    yield ops.RangeEnd()
            yield ops.BulkCommitGroup() if stores else ops.MbarrierWait("full", 0, 0)
            if stores:
                yield ops.BulkWaitGroup(0, read=True)
            if stores and what == "done":
                yield ops.BulkWaitGroup(0, read=False)
            if not is_each:
                yield ops.RangeEnd()

        slots = Buffer(name="slots", stage_bytes=config.slot_bytes, num_stages=num)
        mbarriers = [] if stores else [Mbarrier(name="full", num_arrivals=1)]
        return _simulated(gpu, {"issuer": (1, program)}, [slots], mbarriers)

    issues = until("issued")
    values = {"cycles": until("done")[0], "first_issue_cycles": issues[0]}
    if num > 1:
        values["issue_cycles"] = float(np.median(issues[1:]))
    return values | ({"read_cycles": until("read")[0]} if stores else {})


CLOCK_CYCLES = 2.0
"""Of one reading of the clock: ``clock_cycles``."""
GAPS = schedules_of(__file__, "sass.csv")
"""What the compiler has scheduled from one reading of the clock to the next in a train: by kernel and copies, first copy
first, ``NxC`` for N of C cycles, an issue among them; ``+``: with a wait until a copy has read its operands, whose registers
are written anew. Long trains have more operands than there are uniform registers. From SASS; a test reads it again."""
OPERAND_CYCLES = 9.0
"""Such a wait."""


def gaps_of(config: Row) -> list[float]:
    """Cycles that each copy of a train takes from clock to clock, but for what the machine adds; 0 where nobody looked."""
    kernel, num = config.kernel.removeprefix("train_"), config.num_copies
    if num == 1:
        return [0.0]
    parts = [item.partition("x") for item in GAPS[kernel][num].split()]
    return [
        float(cycles.rstrip("+")) + OPERAND_CYCLES * cycles.endswith("+")
        for times, _, cycles in parts for _ in range(int(times))
    ]  # fmt: skip


STORE_HEADER_BYTES, STORE_PORT_BYTES = 32, 32
"""A store's header, and what leaves an SM in a cycle; whole sectors at least. As the H200's description has them."""

def _cp_access(config: Row) -> AccessPattern:
    num_bytes = config.copy_bytes
    lines = -(-num_bytes // LINE_BYTES)
    return AccessPattern(
        num_requests=1, num_sectors=num_bytes // SECTOR_BYTES, num_lines=lines, num_wavefronts=lines, num_bytes=num_bytes
    )


def _cp(config: Row, tile: int, buffer: str, stage: int, access: AccessPattern) -> ops.CpAsync:
    return ops.CpAsync("T", (0, tile), access, buffer, stage, allocates_in_l1="_ca" in config.kernel)


def _predict_cp_train(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The second of two trains, so that L1 has what it keeps; and its issues alone."""
    num, access, step = config.num_copies, _cp_access(config), chained_code(CP_STEP_CYCLES, gpu)

    def spans(is_each: bool) -> list[float]:
        def program(_cta: RoleContext) -> Iterator[Any]:
            for turn in range(2):
                if turn and not is_each:
                    yield ops.RangeStart(ops.Section.MAINLOOP)
                for idx in range(num):
                    if turn and is_each:
                        yield ops.RangeStart(ops.Section.MAINLOOP)
                    yield _cp(config, idx, "slots", idx, access)
                    yield step
                    if turn and is_each:
                        yield ops.RangeEnd()
                yield ops.CpAsyncCommitGroup()
                yield ops.CpAsyncWaitGroup(0)
            if not is_each:
                yield ops.RangeEnd()

        slots = Buffer(name="slots", stage_bytes=config.copy_bytes, num_stages=num)
        return _simulated(gpu, {"issuer": (1, program)}, [slots], ())

    issues = spans(is_each=True)
    values = {"cycles": spans(is_each=False)[0], "first_issue_cycles": issues[0]}
    return values | ({"issue_cycles": float(np.median(issues[1:]))} if num > 1 else {})


def _predict_cp_ring(config: Row, gpu: GpuSpec) -> dict[str, float]:
    warps, depth, copies = config.num_issuers, config.in_flight, config.num_copies
    access, region, code = _cp_access(config), config.region_kib * 1024, ops.Alu(CP_CHAINS[copies], is_chain=True)

    def issuer(who: int, _cta: RoleContext) -> Iterator[Any]:
        for idx in range(2 * TWIN_COPIES):  # the first half brings what L1 keeps
            yield code
            for k in range(copies):
                tile = (who + warps * (idx * copies + k)) % (region // config.copy_bytes)
                yield _cp(config, tile, f"slots{who}", idx % depth * copies + k, access)
            yield ops.CpAsyncCommitGroup()
            yield ops.CpAsyncWaitGroup(depth - 1)
            yield from _middle(idx, TWIN_COPIES)

    spans = _simulated(
        gpu, {f"issuer{who}": (1, partial(issuer, who)) for who in range(warps)},
        [Buffer(name=f"slots{who}", stage_bytes=config.copy_bytes, num_stages=depth * copies) for who in range(warps)], (),
        smem_bytes=config.smem_bytes,
    )  # fmt: skip
    loop = CP_LOOP_CYCLES.get((copies, depth), 0.0) / warps
    return {"cycles_per_copy": max(1.0 / sum(_rates(spans)), loop) / copies}


CP_LOOP_CYCLES = {(1, 2): 55.0, (1, 4): 49.7, (1, 8): 52.7, (4, 2): 86.0, (4, 4): 80.5, (4, 8): 119.9}
"""One turn of the loop where nothing is waited for, by copies and groups in flight, which are unrolled. From calibrating
rows of one warp."""
CP_CHAINS = {1: 7, 4: 17}
"""Instructions between a wait and the next copies, each of which waits for the one before, by copies. From calibrating rows
of one warp with 1 in flight, out of L1."""
CP_STEP_CYCLES = 3.0
"""Between two copies of a train, beside the issue: addresses, the clock's reading. From calibrating rows."""


def _simulated_multicast(config: Row, gpu: GpuSpec) -> list[float]:
    size, issuing, depth = config.cluster_size, config.num_copies, config.in_flight
    before, between, seen = (chained_code(cycles, gpu) for cycles in MULTICAST_CODE_CYCLES)

    def producer(cta: RoleContext) -> Iterator[Any]:
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        for idx in range(TWIN_COPIES):
            stage = idx % depth
            yield ops.MbarrierWait("empty", stage, idx // depth & 1 ^ 1)
            yield before
            yield ops.MbarrierArriveExpectTx("full", stage, issuing * config.copy_bytes)
            yield between
            if cta.cta_rank < issuing:
                yield _load(config, idx * issuing + cta.cta_rank, "slots", stage, "full", tuple(range(size)))
        yield ops.ClusterArrive()
        yield ops.ClusterWait()

    def waiter(cta: RoleContext) -> Iterator[Any]:
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        for idx in range(TWIN_COPIES):
            yield ops.MbarrierWait("full", idx % depth, idx // depth & 1)
            yield from _middle(idx)
            yield seen
            for rank in range(size):
                yield ops.MbarrierArrive("empty", idx % depth, cta_rank=rank)
        yield ops.ClusterArrive()
        yield ops.ClusterWait()

    return _simulated(
        gpu, {"producer": (1, producer), "waiter": (1, waiter)},
        [Buffer(name="slots", stage_bytes=config.slot_bytes, num_stages=depth)],
        [Mbarrier(name=name, num_arrivals=num, num_stages=depth) for name, num in (("full", 1), ("empty", size))],
        num_ctas=size,
    )


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Bytes that one SM takes in or gives out in a cycle; of a train, latency and all."""
    if row.get("cycles_per_copy"):
        return {"bytes_per_cycle": Row.of(row).copy_bytes / float(row["cycles_per_copy"])}
    if row.get("cycles"):
        return {"bytes_per_cycle": Row.of(row).copy_bytes * int(row["num_copies"]) / float(row["cycles"])}
    return {}


# ---------------------------------------------------------------------------------------------- parameters
def _number(row: Mapping[str, str], name: str) -> float:
    return float(row[name])


NUM_TOP = 3


def fastest_rings(rows: Sequence[Mapping[str, str]], inner_bytes: int) -> dict[int, float]:
    """Cycles a box of ``inner_bytes`` wide rows in the fastest ring of 4 or 8 issuers, by the rows of a box."""
    found: dict[int, float] = {}
    for row in rows:
        is_one = row["kernel"] == "ring_load_2d" and row["inner_bytes"] == str(inner_bytes)
        if is_one and int(row["num_issuers"]) >= 4 and row.get("cycles_per_copy"):
            num, cycles = int(row["outer"]), _number(row, "cycles_per_copy")
            found[num] = min(found.get(num, cycles), cycles)
    return found


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What the TMA unit and cp.async take to issue, for a row, for a box, and beyond a store's bytes; as the rows tell.

    The unit's latency and its bytes a cycle hide behind those of the wait, of L2 and of the port: they are no single
    row's, see README.md.
    """
    issues = [
        _number(row, "issue_cycles") - _number(row, "clock_cycles") for row in rows
        if row["kernel"] == "train_load_2d" and row["num_copies"] in ("2", "4") and row.get("issue_cycles")
        and row.get("clock_cycles") and Row.of(row).rows <= 8
    ]  # fmt: skip
    reads = [
        _number(row, "read_cycles") - (STORE_HEADER_BYTES + Row.of(row).copy_bytes) / STORE_PORT_BYTES for row in rows
        if row["kernel"] == "train_store_2d" and row["num_copies"] == "1" and row["outer"] == "1"
        and row.get("read_cycles") and Row.of(row).copy_bytes >= STORE_PORT_BYTES
    ]  # fmt: skip
    found = fitted("tma.issue_cycles", issues, "median between two of the first loads of a train, less the clock")
    narrow, wide = fastest_rings(rows, 16), fastest_rings(rows, 128)
    if 64 in narrow:
        row_cycles = narrow[64] / 64
        found += fitted("tma.row_cycles", [row_cycles], "fastest rings of 64 rows of 16 bytes: cycles a box over 64")
    large = [num * 128 / cycles for num, cycles in wide.items() if num >= 64]
    found += fitted("tma.bytes_per_cycle", large, "fastest rings of boxes of 8 KiB and more: bytes over cycles")
    found += _fit_cp_async(rows)
    rings = {
        kind: [_number(row, "cycles_per_copy") for row in rows if row["kernel"] == kernel and row["outer"] == "64"
               and row["inner_bytes"] == "128" and row.get("cycles_per_copy")]
        for kind, kernel in (("st", "ring_store_done_2d"), ("red", "ring_reduce_2d"))
    }  # fmt: skip
    how = "fastest ring of reductions of boxes of 8 KiB over that of stores, less one"
    more = [min(rings["red"]) / min(rings["st"]) - 1.0] if all(rings.values()) else []
    found += fitted("xbar.red_header_fraction", more, how)
    firsts = {
        num: {row["inner_bytes"]: _number(row, "read_cycles") for row in rows if row["kernel"] == "train_store_2d"
              and row["outer"] == "1" and row["num_copies"] == num and row.get("read_cycles")}
        for num in ("1", "4")
    }  # fmt: skip
    boxes = [(firsts["4"][inner] - cycles) / 3 for inner, cycles in firsts["1"].items() if inner in firsts["4"]]
    how = "trains of stored boxes of one row: cycles of 4 less those of 1, over 3, median"
    found += fitted("tma.store_box_cycles", boxes, how)
    latency = [float(np.median(reads) - np.median(issues))] if reads and issues else []
    how = "one store of one row until the source is read, less the issue and the port"
    return found + fitted("tma.store_latency_cycles", latency, how)


def _fit_cp_async(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """The load/store unit under sixteen warps, by lines through groups of 1 and of 4; a lone warp's pace; the SM's port."""
    turns: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        is_full = row["num_issuers"] == "16" and int(row["in_flight"]) >= 4
        is_least = ("_cg" in row["kernel"]) != (row["region_kib"] == "8")  # L1 holds it, or is not asked
        if row["kernel"].startswith("ring_cp_async") and is_full and is_least and row.get("cycles_per_copy"):
            num = int(row["num_copies"])
            key = (row["kernel"], row["inner_bytes"], row["in_flight"])
            turns.setdefault(key, {})[num] = num * _number(row, "cycles_per_copy")
    slopes = {key: (by_num[4] - by_num[1]) / 3 for key, by_num in turns.items() if len(by_num) == 2}
    hits = [slope - int(inner) / 4 for (kernel, inner, _), slope in slopes.items() if "_ca" in kernel]
    around = [slope for (kernel, _, _), slope in slopes.items() if "_cg" in kernel]
    rates = [Row.of(row).copy_bytes / _number(row, "cycles_per_copy") for row in rows
             if row["kernel"] == "ring_cp_async_cg16" and row.get("cycles_per_copy")]  # fmt: skip
    trains = {int(row["num_copies"]): _number(row, "cycles") for row in rows
              if row["kernel"] == "train_cp_async_ca4" and row.get("cycles")}  # fmt: skip
    full = "full rings, line through groups of 1 and 4"
    commits = [by_num[1] - slopes[key] for key, by_num in turns.items() if key in slopes]
    found = [
        one for name, values, what in (
            ("cp_async_cycles", hits, "slope less wavefronts, median"), ("cp_async_bypass_cycles", around, "slope"),
            ("commit_cycles", commits, "intercept, median"),
        ) for one in fitted(f"l1.{name}", values, f"{full}: {what}")
    ]  # fmt: skip
    if len(trains) > 1:
        pace = (trains[max(trains)] - trains[min(trains)]) / (max(trains) - min(trains))
        how = "trains of 4 bytes a lane: cycles a copy, between the shortest and the longest"
        found += fitted("l1.cp_async_interval_cycles", [pace], how)
    how = "the fastest ring of cp.async around L1, bytes over cycles"
    return found + fitted("xbar.sm_read_bytes_per_cycle", [max(rates)] if rates else [], how)


def fitted_constants(rows: Sequence[Mapping[str, str]], _gpu: GpuSpec) -> list[FittedConstant]:
    """What loops and trains take beside what is measured, where SASS does not tell."""
    clocks = [_number(row, "clock_cycles") for row in rows if row.get("clock_cycles") and row["kernel"].startswith("train_")]
    found = fitted_constant("CLOCK_CYCLES", clocks, "clock_cycles, median")
    waits = []
    for row in rows:
        config = Row.of(row)
        if row["group"] == "load_train" and not config.is_bulk and config.num_copies >= 16 and config.rows <= 8:
            parts = GAPS[row["kernel"].removeprefix("train_")][int(row["num_copies"])].split()[1:]
            each = sorted(item.partition("x")[2] for item in parts for _ in range(int(item.partition("x")[0])))
            middle = sorted(each, key=lambda item: float(item.rstrip("+")))[len(each) // 2]
            if middle.endswith("+"):
                waits.append(_number(row, "issue_cycles") - float(middle.rstrip("+")))
    how = "trains of 16 and more loads of up to 8 rows, median copy: issue_cycles less the schedule, median"
    found += fitted_constant("OPERAND_CYCLES", waits, how)
    commits = [
        _number(row, "cycles_per_copy") - store_turn(Row.of(row))[1] for row in rows
        if row["kernel"].removeprefix("ring_") in STORE_TURNS and row["num_issuers"] == "1" and int(row["in_flight"]) >= 2
        and Row.of(row).copy_bytes <= 1024 and row.get("cycles_per_copy")
    ]  # fmt: skip
    how = "rings of one issuer, 2 and more stores of up to 1 KiB in flight: cycles_per_copy less the schedule, median"
    found += fitted_constant("COMMIT_CYCLES", commits, how)
    rings = [
        row for row in rows if row["kernel"].startswith("ring_load_") and "_bulk" not in row["kernel"]
        and row["num_issuers"] == "1" and row.get("cycles_per_copy")
    ]  # fmt: skip
    for shape in LOOP_CYCLES:
        full = [
            _number(row, "cycles_per_copy") for row in rings
            if row["kernel"].endswith(shape) and int(row["in_flight"]) >= 2
        ]
        how = "rings of one issuer, 2 and more loads in flight: least cycles_per_copy"
        found += fitted_constant("LOOP_CYCLES", [min(full)] if full else [], how, shape)
    alone = {
        (row["kernel"].removeprefix("train_"), row["inner_bytes"], row["outer"]): _number(row, "cycles") for row in rows
        if row["group"] == "load_train" and row["num_copies"] == "1" and row.get("cycles")
    }  # fmt: skip
    boxes = [((row["kernel"].removeprefix("ring_"), row["inner_bytes"], row["outer"]), row) for row in rings]
    rests = [_number(row, "cycles_per_copy") - alone[box] for box, row in boxes if row["in_flight"] == "1" and box in alone]
    how = "rings of one issuer, one load in flight: cycles_per_copy less those of a train of one such load, median"
    found += fitted_constant("REST_CYCLES", rests, how)
    stages = [
        _number(row, "cycles_per_copy") * int(row["num_copies"]) for row in rows
        if row["group"] == "multicast" and row.get("cycles_per_copy")
    ]
    return found + fitted_constant("MULTICAST_LOOP_CYCLES", [min(stages)] if stages else [], "least cycles of a stage")


HOPPER = (9, 0)
_SPREAD = {"": "median", "min_": "least", "p90_": "90th percentile", "max_": "most"}
VALUES = {
    **{f"{label}cycles": "SM cycles from before a train's first instruction until all is there (or written), "
       f"{word} of the warm rounds" for label, word in _SPREAD.items()},
    "first_cycles": "the same of the first round, with a cold tensor map, and data and instructions from wherever they were",
    "first_issue_cycles": "SM cycles of a train's first copy instruction, a reading of the clock included, median",
    **{f"{label}issue_cycles": f"... of its other copy instructions, {word}" for label, word in _SPREAD.items()},
    "last_issue_cycles": "... of its last, median",
    **{f"{label}read_cycles": f"SM cycles from before a train's first store until all sources may be written again, {word}"
       for label, word in _SPREAD.items()},
    "clock_cycles": "SM cycles of one reading of the clock, mean of eight",
    "cycles_per_copy": "SM cycles a copy in steady state, over all issuers (of cp.async, a warp instruction)",
    **{f"{label}latency_cycles": f"SM cycles from before a ring's copy until the issuer has seen it done, {word}"
       for label, word in _SPREAD.items()},
    "drain_cycles": "SM cycles from a store ring's last wait until all of issuer 0's is written",
}  # fmt: skip

CASE = Case(
    name="copy_rate",
    question="How long does an asynchronous copy take, what does issuing it cost, and how many go at once?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, fit=fit, fitted_constants=fitted_constants,
    derive=derive,
    groups={
        name: Group(configs=configs, rank=rank, least_capability=(8, 0) if "cp_async" in name else HOPPER)
        for name, configs, rank in (
            ("load_train", load_train, 2), ("load_ring", load_ring, 2), ("store_train", store_train, 3),
            ("store_ring", store_ring, 3), ("multicast", multicast, 3), ("cp_async_train", cp_async_train, 3),
            ("cp_async_ring", cp_async_ring, 3), ("load_lanes", load_lanes, 4), ("reduce_ring", reduce_ring, 4),
            ("multicast_of_16", multicast_of_16, 9),
        )
    },
    values=VALUES,
    tiers={"cycles": 2, "read_cycles": 2, "issue_cycles": 4, "cycles_per_copy": 4},
)  # fmt: skip
