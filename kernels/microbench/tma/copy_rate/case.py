"""How long does an asynchronous copy take, and how many go at once? cp.async, TMA, bulk copies, reductions, multicast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim import Buffer, GpuSpec, Launch, Mbarrier, WarpRole, simulate
from gpusim.errors import LayoutError
from gpusim.evidence.cases.case import (
    Argument,
    Case,
    Config,
    Fitted,
    FittedConstant,
    Group,
    Input,
    KernelLaunch,
    MappedTensor,
    Output,
    Outputs,
    WrongAnswer,
    by_value,
)  # fmt: skip
from gpusim.evidence.cases.config_row import ConfigRow
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
    inner_bytes: int
    outer: str = "1"
    _: KW_ONLY
    dtype: str = "bf16"
    swizzle: str = "none"
    in_flight: int = 1
    num_issuers: int = 1
    num_copies: int = 1
    region_kib: int = TENSOR_BYTES >> 10


def is_cp_async(config: Config) -> bool:
    """One of the older copies, by all threads of a warp."""
    return "cp_async" in config["kernel"]


def is_train(config: Config) -> bool:
    """Copies in a row and one wait."""
    return config["kernel"].startswith("train")


def is_store(config: Config) -> bool:
    """From shared memory, reductions included."""
    return "_store_" in config["kernel"] or "_reduce_" in config["kernel"]


def is_reduction(config: Config) -> bool:
    """Adds to what is there."""
    return "_reduce_" in config["kernel"]


def is_bulk(config: Config) -> bool:
    """Without a tensor map."""
    return "_bulk" in config["kernel"]


def cluster_size(config: Config) -> int:
    """CTAs of a multicast; 1 without."""
    return int(config["kernel"].rsplit("_", 1)[1]) if config["kernel"].startswith("multicast") else 1


def rows_of(config: Config) -> int:
    """Rows of one box."""
    return int(np.prod([int(size) for size in config["outer"].split("x")]))


def copy_bytes(config: Config) -> int:
    """Bytes of one copy; of cp.async, of one warp instruction."""
    return int(config["inner_bytes"]) * (WARP_SIZE if is_cp_async(config) else rows_of(config))


def slot_bytes(config: Config) -> int:
    """From slot to slot: a swizzle's repeat at least; a slot of a multicast holds the boxes of all that issue."""
    num_bytes = copy_bytes(config) * (int(config["num_copies"]) if cluster_size(config) > 1 else 1)
    return -(-num_bytes // 1024) * 1024


def num_slots(config: Config) -> int:
    """Slots of a CTA."""
    if is_train(config):
        return int(config["num_copies"])
    return int(config["in_flight"]) * (1 if cluster_size(config) > 1 else int(config["num_issuers"]))


def smem_bytes(config: Config) -> int:
    """Dynamic shared memory of a launch: always more than 48 KiB, so that the bench opts in, whatever the stamps take.

    cp.async always takes what an A100 has, so that L1 is of one size.
    """
    if is_cp_async(config):
        return CP_ASYNC_SMEM_BYTES
    return max(num_slots(config) * slot_bytes(config), LEAST_SMEM_BYTES)


def _fits(config: Config) -> bool:
    if is_cp_async(config):
        return _cp_smem_bytes(config) <= smem_bytes(config)
    try:
        if not is_bulk(config):
            tensor_map(config)
    except LayoutError:
        return False
    walk = _walk(config)
    rows = walk["rows"] * int(config["num_copies"]) if is_train(config) and walk["height"] > 1 else walk["rows"]
    return smem_bytes(config) <= ROOM_BYTES and rows <= walk["height"]


def _cp_smem_bytes(config: Config) -> int:
    copies = int(config["num_copies"])
    return copy_bytes(config) * copies * (1 if is_train(config) else int(config["in_flight"]) * int(config["num_issuers"]))


def _legal(found: list[Config]) -> list[Config]:
    return [config for config in found if _fits(config)]


CP_ASYNC = (("ca4", 4), ("ca8", 8), ("ca16", 16), ("cg16", 16))
TRAIN = (1, 2, 4, 8, 16, 32)
SWIZZLE_OF = {32: "32B", 64: "64B", 128: "128B"}


def cp_async_train(seed: int) -> list[Config]:
    """One warp: 1 to 32 instructions in a row; data in L2, or in L1 as well."""
    del seed  # a sweep, the same for every seed
    return [
        Row(f"train_cp_async_{name}", size, num_copies=num, region_kib=32, dtype="int8").text() for name, size in CP_ASYNC
        for num in TRAIN
    ]  # fmt: skip


def cp_async_ring(seed: int) -> list[Config]:
    """1 to 16 warps, 1 to 8 groups in flight, of 1 or 4 instructions; 8 KiB stay in L1, 1 MiB does not."""
    del seed  # a sweep, the same for every seed
    return _legal([
        Row(
            f"ring_cp_async_{name}", size, in_flight=depth, num_issuers=warps, num_copies=copies, region_kib=kib,
            dtype="int8",
        ).text()
        for name, size in CP_ASYNC for kib in ((8, 1024) if name != "cg16" else (1024,)) for copies in (1, 4)
        for depth in (1, 2, 4, 8) for warps in (1, 2, 4, 8, 16)
    ])  # fmt: skip


def load_train(seed: int) -> list[Config]:
    """1 to 32 loads in a row by one thread: latency, issue, and what the engine takes for a box, a row, a byte."""
    del seed  # a sweep, the same for every seed
    found = [Row("train_load_bulk", size, num_copies=num, dtype="int8").text()
             for size in (16, 64, 256, 1024, 4096, 16384) for num in TRAIN]
    found += [Row("train_load_1d", size, num_copies=num).text() for size in (16, 32, 64, 128, 256, 512) for num in TRAIN]
    found += [Row("train_load_2d", inner, str(rows), num_copies=num).text()
              for inner in (16, 32, 64, 128, 256) for rows in (1, 4, 8, 16, 32, 64, 128, 256) for num in TRAIN]
    found += [Row("train_load_2d", inner, str(rows), swizzle=swizzle, num_copies=num).text()
              for inner, swizzle in SWIZZLE_OF.items() for rows in (8, 16, 64, 256) for num in TRAIN]
    found += [Row("train_load_3d", inner, outer, swizzle=swizzle, num_copies=num).text()
              for inner, swizzle in ((16, "none"), (64, "none"), (128, "none"), (128, "128B"))
              for outer in ("1x1", "8x1", "1x8", "4x2", "8x8", "16x4") for num in TRAIN]  # fmt: skip
    return _legal(found)


def load_ring(seed: int) -> list[Config]:
    """1 to 16 loads in flight by each of 1 to 8 elected threads: the rate, and the latency under load."""
    del seed  # a sweep, the same for every seed
    shapes = [("2d", 128, str(rows), "128B") for rows in (1, 8, 32, 64, 128, 256)]
    shapes += [("2d", 16, "8", "none"), ("2d", 16, "64", "none"), ("2d", 32, "64", "32B"), ("2d", 64, "64", "64B")]
    shapes += [("2d", 64, "64", "none"), ("2d", 128, "64", "none"), ("2d", 256, "32", "none"), ("3d", 128, "8x8", "128B")]
    shapes += [("1d", 128, "1", "none"), ("1d", 512, "1", "none")]
    shapes += [("bulk", size, "1", "none") for size in (16, 256, 1024, 4096, 16384)]
    return _legal([
        Row(f"ring_load_{kind}", inner, outer, swizzle=swizzle, in_flight=depth, num_issuers=warps,
                dtype="int8" if kind == "bulk" else "bf16").text()
        for kind, inner, outer, swizzle in shapes for warps in (1, 2, 4, 8) for depth in (1, 2, 4, 8, 16)
    ])  # fmt: skip


def load_lanes(seed: int) -> list[Config]:
    """Several lanes of one warp issue: the compiler makes a loop over them."""
    del seed  # a sweep, the same for every seed
    return _legal([
        Row("lanes_load_2d", 128, str(rows), swizzle="128B", in_flight=depth, num_issuers=lanes).text()
        for rows in (1, 8, 64) for depth in (1, 2, 4) for lanes in (1, 2, 4, 8, 16, 32)
    ])  # fmt: skip


def store_train(seed: int) -> list[Config]:
    """1 to 32 stores in a row by one thread, committed once: until the source is read, until all is written."""
    del seed  # a sweep, the same for every seed
    found = [Row("train_store_bulk", size, num_copies=num, dtype="int8").text()
             for size in (16, 256, 1024, 4096, 16384) for num in TRAIN]
    found += [Row("train_store_1d", size, num_copies=num).text() for size in (16, 128, 512) for num in TRAIN]
    found += [Row("train_store_2d", inner, str(rows), num_copies=num).text()
              for inner in (16, 32, 64, 128, 256) for rows in (1, 8, 32, 64, 128, 256) for num in TRAIN]
    found += [Row("train_store_2d", 128, str(rows), swizzle="128B", num_copies=num).text()
              for rows in (8, 64, 256) for num in TRAIN]
    found += [Row("train_store_3d", 128, outer, num_copies=num).text()
              for outer in ("8x1", "1x8", "8x8") for num in TRAIN]  # fmt: skip
    return _legal(found)


def store_ring(seed: int) -> list[Config]:
    """1 to 16 stores in flight by each of 1 to 8 elected threads, by sources read or by writes done."""
    del seed  # a sweep, the same for every seed
    shapes = [("2d", 128, "8", "128B"), ("2d", 128, "64", "128B"), ("2d", 128, "64", "none"), ("2d", 32, "64", "none")]
    shapes += [("2d", 16, "8", "none"), ("1d", 512, "1", "none"), ("3d", 128, "8x8", "128B")]
    shapes += [("bulk", size, "1", "none") for size in (16, 1024, 4096)]
    return _legal([
        Row(f"ring_store_{until}_{kind}", inner, outer, swizzle=swizzle, in_flight=depth, num_issuers=warps,
                dtype="int8" if kind == "bulk" else "bf16").text()
        for kind, inner, outer, swizzle in shapes for until in ("read", "done") for warps in (1, 2, 4, 8)
        for depth in (1, 2, 4, 8, 16)
    ])  # fmt: skip


def reduce_ring(seed: int) -> list[Config]:
    """Additions in L2, with a tensor map and without, by type and size."""
    del seed  # a sweep, the same for every seed
    found = [
        Row(f"ring_reduce_bulk_{name}", size, in_flight=depth, num_issuers=warps, dtype=DTYPE_OF_BULK[name]).text()
        for name in ("u32", "fp32", "bf16") for size in (16, 256, 1024, 4096, 8192) for warps in (1, 4)
        for depth in (1, 4, 16)
    ] + [
        Row("ring_reduce_2d", 128, str(rows), dtype=dtype, in_flight=depth, num_issuers=warps).text()
        for dtype in ("fp32", "bf16") for rows in (8, 64) for warps in (1, 4) for depth in (1, 4, 16)
    ]  # fmt: skip
    return _legal(found)


def _multicasts(sizes: Sequence[int]) -> list[Config]:
    """One CTA sends whole boxes to all, or each sends its share; slots of 2 to 32 KiB."""
    found = []
    for size in sizes:
        for rows in (16, 64, 128, 256):
            for issuing in (1, size):
                if rows % issuing == 0 and (rows // issuing) % 8 == 0:
                    name, share = f"multicast_{size}", str(rows // issuing)
                    found += [
                        Row(name, 128, share, swizzle="128B", in_flight=depth, num_copies=issuing).text()
                        for depth in (1, 2, 4, 8)
                    ]
    return _legal(found)


def multicast(seed: int) -> list[Config]:
    """Clusters of 2, 4 and 8."""
    del seed  # a sweep, the same for every seed
    return _multicasts((2, 4, 8))


def multicast_of_16(seed: int) -> list[Config]:
    """A cluster of 16, which the driver launches only where the kernel has asked for it."""
    del seed  # a sweep, the same for every seed
    return _multicasts((16,))


# ---------------------------------------------------------------------------------------------- launch


def _walk(config: Config) -> dict[str, int]:
    """How tiles follow one another: step and width along x, rows and height along the outermost coordinate."""
    inner, dtype = int(config["inner_bytes"]), dtype_named(config["dtype"])
    if is_cp_async(config):
        return {"step": inner, "width": int(config["region_kib"]) * 1024, "rows": 1, "height": 1}
    if is_bulk(config):
        return {"step": inner, "width": TENSOR_BYTES, "rows": 1, "height": 1}
    sizes = [int(size) for size in config["outer"].split("x")]
    if config["kernel"].endswith("_1d"):
        return {"step": inner // dtype.num_bytes, "width": TENSOR_BYTES // dtype.num_bytes, "rows": 1, "height": 1}
    height = PLANES if config["kernel"].endswith("_3d") else TENSOR_BYTES // PITCH_BYTES
    return {"step": inner // dtype.num_bytes, "width": PITCH_BYTES // dtype.num_bytes, "rows": sizes[-1], "height": height}


def tensor_map(config: Config) -> TensorMap:
    """The map of the tensor that boxes are taken from; a MiB, in one to three dimensions.

    Raises:
        LayoutError: a box that TMA does not take.
    """
    dtype = dtype_named(config["dtype"])
    box = [int(config["inner_bytes"]) // dtype.num_bytes]
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    width = PITCH_BYTES // dtype.num_bytes
    if config["kernel"].endswith("_1d"):
        dims, strides = (TENSOR_BYTES // dtype.num_bytes,), ()
    elif config["kernel"].endswith("_3d"):
        dims, strides = (width, PLANES, PLANES), (PITCH_BYTES, PITCH_BYTES * PLANES)
        box += [int(size) for size in config["outer"].split("x")]
    else:
        dims, strides = (width, TENSOR_BYTES // PITCH_BYTES), (PITCH_BYTES,)
        box += [rows_of(config)]
    return TensorMap(
        dtype=dtype, global_dim=dims, global_strides_bytes=strides, box_dim=tuple(box), swizzle=config["swizzle"],
        l2_promotion="none",
    )  # fmt: skip


@cache
def tensor() -> NDArray[np.uint8]:
    """A MiB of random bytes, the same every time; copied to the GPU once."""
    made = np.random.default_rng(7).integers(0, 256, TENSOR_BYTES, dtype=np.uint8)
    made.setflags(write=False)
    return made


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


def places(config: Config) -> NDArray[np.int64]:
    """Where each byte of a box lies in its slot."""
    return np.asarray(swizzle_mode(config["swizzle"])(np.arange(copy_bytes(config))))


@cache
def _image(num_bytes: int, dtype: str, is_added: bool, swizzle: str, slot: int, slots: int) -> NDArray[np.uint8]:
    one = np.zeros(slot, dtype=np.uint8)
    one[np.asarray(swizzle_mode(swizzle)(np.arange(num_bytes)))] = box_source(num_bytes, dtype, is_added)
    made = np.tile(one, slots)
    made.setflags(write=False)
    return made


def before(config: Config) -> NDArray[np.uint8]:
    """What the tensor holds before stores come."""
    return np.full(TENSOR_BYTES, 0 if is_reduction(config) else STORED, dtype=np.uint8)


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """Nothing is counted here: times come from the kernel."""
    del is_counted
    walk, slots = _walk(config), num_slots(config)
    stores, size = is_store(config), cluster_size(config)
    num_bytes = _cp_smem_bytes(config) if is_cp_async(config) else slots * slot_bytes(config)
    copies = {
        "num_bytes": copy_bytes(config), "slot_bytes": slot_bytes(config), "in_flight": int(config["in_flight"]),
        "num_issuers": int(config["num_issuers"]), **walk, "start": START_TILES, "num_copies": int(config["num_copies"]),
        "source_bytes": num_bytes if stores else 0, "dump_bytes": 0 if stores else num_bytes,
        "num_rounds": TRAIN_ROUNDS if is_train(config) else RING_ROUNDS,
    }  # fmt: skip
    arguments: list[Argument] = [by_value(np.array(list(copies.values()), dtype="<u4"))]
    if stores:
        source = _image(
            copy_bytes(config), config["dtype"], is_reduction(config), config["swizzle"], slot_bytes(config), slots
        )
        arguments += [
            Input(source), np.uint64(0) if is_bulk(config) else MappedTensor(tensor(), tensor_map(config)),
            Output("tensor", before(config)), Output("made", np.zeros(128, dtype=np.uint8)),
        ]  # fmt: skip
    else:
        is_plain = is_bulk(config) or is_cp_async(config)
        arguments.append(Input(tensor()) if is_plain else MappedTensor(tensor(), tensor_map(config)))
        arguments.append(Output("smem", np.full(max(16, size * num_bytes), STORED, dtype=np.uint8)))
    num_words = max(MOST_ISSUERS * NUM_SAMPLES * 2, TRAIN_ROUNDS * (MOST_TRAIN + 4))
    arguments.append(Output("times", np.full(4 + num_words, 0xFFFFFFFF, dtype="<u4")))
    return KernelLaunch(
        kernel=config["kernel"], arguments=tuple(arguments), grid=(size, 1, 1), block=(_num_threads(config), 1, 1),
        smem_bytes=smem_bytes(config), has_large_cluster=size > 8,
    )  # fmt: skip


def _num_threads(config: Config) -> int:
    if is_cp_async(config):
        return WARP_SIZE * (1 if is_train(config) else int(config["num_issuers"]))
    if config["kernel"].startswith("lanes"):
        return WARP_SIZE
    return 128 if is_train(config) or cluster_size(config) > 1 else WARP_SIZE * int(config["num_issuers"])


# ---------------------------------------------------------------------------------------------- check


def tile_bytes(config: Config, tile: int) -> NDArray[np.int64]:
    """Which bytes of the tensor are those of tile number ``tile``, in the order of the box: int64[bytes]."""
    walk, inner = _walk(config), int(config["inner_bytes"])
    per_row, num_rows = walk["width"] // walk["step"], walk["height"] // walk["rows"]
    x, y = tile % per_row * inner, tile // per_row % num_rows * walk["rows"]
    along = x + np.arange(inner)
    if walk["height"] == 1:
        return along
    sizes = [int(size) for size in config["outer"].split("x")]
    if len(sizes) == 1:
        rows = (y + np.arange(sizes[0])) * PITCH_BYTES
    else:
        rows = ((y + np.arange(sizes[1]))[:, None] * PLANES + np.arange(sizes[0])).reshape(-1) * PITCH_BYTES
    return np.asarray((rows[:, None] + along).reshape(-1))


def _train_tile(config: Config, idx: int) -> int:
    walk = _walk(config)
    return idx if walk["height"] == 1 else idx * (walk["width"] // walk["step"])


def expected_slots(config: Config) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(offset, bytes) of every box that must lie in shared memory at the end, swizzled."""
    boxes: list[tuple[int, int]] = []
    slot, depth, count = slot_bytes(config), int(config["in_flight"]), int(config["num_copies"])
    if is_cp_async(config):
        yield from _expected_cp(config)
        return
    if is_train(config):
        boxes = [(idx * slot, _train_tile(config, idx)) for idx in range(count)]
    elif cluster_size(config) > 1:
        per_row, stages = _walk(config)["width"] // _walk(config)["step"], RING_ROUNDS * NUM_SAMPLES
        for stage in range(stages - depth, stages):
            for rank in range(count):
                tile = (stage * count + rank) * per_row
                boxes += [
                    ((cta * depth + stage % depth) * slot + rank * copy_bytes(config), tile)
                    for cta in range(cluster_size(config))
                ]
    else:
        for issuer in range(int(config["num_issuers"])):
            for idx in range(NUM_SAMPLES - depth, NUM_SAMPLES):
                boxes.append(((issuer * depth + idx % depth) * slot, issuer * START_TILES + idx))
    where = places(config)
    for offset, tile in boxes:
        image = np.empty(copy_bytes(config), dtype=np.uint8)
        image[where] = tensor()[tile_bytes(config, tile)]
        yield offset, image


def _expected_cp(config: Config) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    num_bytes, count = copy_bytes(config), int(config["num_copies"])
    if is_train(config):
        for idx in range(count):
            yield idx * num_bytes, tensor()[idx * num_bytes :][:num_bytes]
        return
    warps, depth, groups = int(config["num_issuers"]), int(config["in_flight"]), RING_ROUNDS * NUM_SAMPLES
    region = int(config["region_kib"]) * 1024
    for warp in range(warps):
        for group in range(groups - depth, groups):
            for k in range(count):
                begin = (warp + warps * (group * count + k)) * num_bytes % region
                yield ((warp * depth + group % depth) * count + k) * num_bytes, tensor()[begin : begin + num_bytes]


def _check_data(config: Config, outputs: Outputs) -> None:
    if not is_store(config):
        for offset, image in expected_slots(config):
            if (outputs["smem"][offset : offset + image.size] != image).any():
                raise WrongAnswer(f"the box at byte {offset} of shared memory is not the tensor's")
        return
    wanted = expected_tensor(config)
    if (differs := outputs["tensor"] != wanted).any():
        raise WrongAnswer(f"the tensor is not as stored, first at byte {int(np.nonzero(differs)[0][0])}")


def expected_tensor(config: Config) -> NDArray[np.uint8]:
    """The tensor after all stores, or sums."""
    made, source = before(config), box_source(copy_bytes(config), config["dtype"], is_reduction(config))
    if is_train(config):
        tiles = [_train_tile(config, idx) for idx in range(int(config["num_copies"]))]
    else:
        tiles = [issuer * START_TILES + idx for issuer in range(int(config["num_issuers"])) for idx in range(NUM_SAMPLES)]
    if not is_reduction(config):
        for tile in tiles:
            made[tile_bytes(config, tile)] = source
        return made
    dtype = config["dtype"]
    unit = dtype_named(dtype).num_bytes
    sums, numbers = _numbers_of(dtype, made), _numbers_of(dtype, source)
    for tile in tiles:
        sums[tile_bytes(config, tile)[::unit] // unit] += RING_ROUNDS * numbers
    return _bytes_of(dtype, sums)


def _spread(name: str, numbers: NDArray[np.int64]) -> dict[str, float]:
    found = {"": 50, "min_": 0, "p90_": 90, "max_": 100}
    return {f"{label}{name}": float(np.percentile(numbers, pct, method="nearest")) for label, pct in found.items()}


def _since(later: NDArray[np.uint32], earlier: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Cycles of a clock of 32 bits that may have come round."""
    return np.asarray((later - earlier).astype(np.int64))


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Times, if the bytes are right.

    Raises:
        WrongAnswer: a wait was given up, the clock did not run, or other bytes came.
    """
    times = outputs["times"]
    if times[0]:
        raise WrongAnswer("an mbarrier never completed, the wait was given up")
    _check_data(config, outputs)
    values = _train_values(config, times) if is_train(config) else _ring_values(config, times)
    main = values["cycles" if is_train(config) else "cycles_per_copy"]
    if not 0 < main < 1e8:
        raise WrongAnswer(f"the clock says {main} cycles")
    return values


def _train_values(config: Config, times: NDArray[np.uint32]) -> dict[str, float]:
    num, rounds = int(config["num_copies"]), times[4:][: TRAIN_ROUNDS * (MOST_TRAIN + 4)].reshape(TRAIN_ROUNDS, -1)
    warm = rounds[WARM_ROUNDS:]
    issues = _since(warm[:, 1 : num + 1], warm[:, :num])
    has_read = is_store(config)
    done = _since(warm[:, num + (2 if has_read else 1)], warm[:, 0])
    first = _since(rounds[:1, num + (2 if has_read else 1)], rounds[:1, 0])
    values = {**_spread("cycles", done), "first_cycles": float(first[0])}
    values |= {"first_issue_cycles": float(np.median(issues[:, 0]))}
    if num > 1:
        values |= _spread("issue_cycles", issues[:, 1:])
        values["last_issue_cycles"] = float(np.median(issues[:, -1]))
    if has_read:
        values |= _spread("read_cycles", _since(warm[:, num + 1], warm[:, 0]))
    elif not is_cp_async(config):
        values["clock_cycles"] = float(times[2]) / 8
    return values


def _ring_values(config: Config, times: NDArray[np.uint32]) -> dict[str, float]:
    size, depth = cluster_size(config), int(config["in_flight"])
    count = size if size > 1 else int(config["num_issuers"])
    stamps = times[4:].reshape(MOST_ISSUERS, NUM_SAMPLES, 2)[:count]
    issued, done = stamps[..., 0], stamps[..., 1]
    quarter = NUM_SAMPLES // 4
    spans = _since(done[:, 3 * quarter], done[:, quarter])
    if (spans <= 0).any():
        raise WrongAnswer("the clock stands still")
    per_sample = 2 * quarter / spans.astype(float)
    rate = float(per_sample.mean() if size > 1 else per_sample.sum())
    copies = int(config["num_copies"]) if size > 1 or is_cp_async(config) else 1
    values = {"cycles_per_copy": 1.0 / (rate * copies)}
    if is_store(config):
        values["drain_cycles"] = float(times[1])
        taken = _since(done[:, depth - 1 :], issued[:, : NUM_SAMPLES - depth + 1])
    else:
        taken = _since(done, issued)
    return values | _spread("latency_cycles", taken[:, depth : NUM_SAMPLES - depth - 1])


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
    result = simulate(launch, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    return [span.end_cycle - span.start_cycle for role in result.timeline.roles for span in role.sections]


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """What the simulator has words for: cp.async, loads and stores with a tensor map, multicast as far as clusters go."""
    if is_bulk(config) or config["kernel"].startswith("lanes") or cluster_size(config) > max(1, gpu.device.max_cluster_size):
        return {}
    if is_cp_async(config):
        return _predict_cp_train(config, gpu) if is_train(config) else _predict_cp_ring(config, gpu)
    if is_train(config):
        return _predict_train(config, gpu)
    if is_store(config):
        return {"cycles_per_copy": 1.0 / sum(_rates(_simulated_stores(config, gpu)))}
    if cluster_size(config) > 1:
        spans = _simulated_multicast(config, gpu)
        cycles = max(float(np.mean(spans)) / (TWIN_COPIES // 2), MULTICAST_LOOP_CYCLES)
        return {"cycles_per_copy": cycles / int(config["num_copies"])}
    cycles = 1.0 / sum(_rates(_simulated_loads(config, gpu)))
    loop = LOOP_CYCLES[config["kernel"].rsplit("_", 1)[1]] / int(config["num_issuers"])
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


def _load(config: Config, tile: int, buffer: str, stage: int, barrier: str, ranks: tuple[int, ...] = ()) -> ops.TmaLoad:
    num_bytes = copy_bytes(config)
    return ops.TmaLoad("T", (0, tile), num_bytes, num_bytes, rows_of(config), buffer, stage, barrier, multicast=ranks)


def _code(num_cycles: float, gpu: GpuSpec) -> ops.Alu:
    """Code that takes a warp so long, most of it waiting for itself."""
    return ops.Alu(num_cycles / gpu.warp_scheduler.dependent_cycles, is_chain=True)


def _simulated_loads(config: Config, gpu: GpuSpec) -> list[float]:
    depth, num_issuers, num_bytes = int(config["in_flight"]), int(config["num_issuers"]), copy_bytes(config)
    rest = _code(REST_CYCLES, gpu)

    def issuer(who: int) -> Program:
        def program(cta: RoleContext) -> Iterator[Any]:
            del cta
            for idx in range(-depth, TWIN_COPIES):
                if idx >= 0:
                    yield ops.MbarrierWait(f"full{who}", idx % depth, idx // depth & 1)
                    yield from _middle(idx)
                if idx + depth < TWIN_COPIES:
                    yield rest
                    yield ops.MbarrierArriveExpectTx(f"full{who}", idx % depth, num_bytes)
                    yield _load(config, who * TWIN_COPIES + idx + depth, f"slots{who}", idx % depth, f"full{who}")

        return program

    return _simulated(
        gpu, {f"issuer{who}": (1, issuer(who)) for who in range(num_issuers)},
        [Buffer(name=f"slots{who}", stage_bytes=slot_bytes(config), num_stages=depth) for who in range(num_issuers)],
        [Mbarrier(name=f"full{who}", num_arrivals=1, num_stages=depth) for who in range(num_issuers)],
    )


def _stored(config: Config, buffer: str, stage: int, tile: int) -> ops.TmaStore:
    return ops.TmaStore("T", (0, tile), copy_bytes(config), rows_of(config), buffer, stage, reduce=is_reduction(config))


def _fill(config: Config, buffer: str, num_stages: int) -> Iterator[ops.Op]:
    access = AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=slot_bytes(config))
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


def store_turn(config: Config) -> tuple[float, float]:
    """Cycles of a ring's code from a store to its wait, and of a turn, as they are scheduled."""
    depth = int(config["in_flight"])
    return STORE_TURNS[config["kernel"].removeprefix("ring_")][depth if depth in (1, 16) else 2]


def _simulated_stores(config: Config, gpu: GpuSpec) -> list[float]:
    depth, num_issuers = int(config["in_flight"]), int(config["num_issuers"])
    is_read = "_read_" in config["kernel"]
    before, turn = store_turn(config)
    between = _code(max(0.0, before + COMMIT_CYCLES - gpu.tma.issue_cycles), gpu)
    around = _code(max(0.0, turn - before - gpu.tma.group_wait_cycles), gpu)

    def issuer(who: int) -> Program:
        def program(cta: RoleContext) -> Iterator[Any]:
            del cta
            yield from _fill(config, f"slots{who}", depth)
            for idx in range(TWIN_COPIES):
                yield _stored(config, f"slots{who}", idx % depth, who * TWIN_COPIES + idx)
                yield between
                yield ops.BulkCommitGroup()
                yield ops.BulkWaitGroup(depth - 1, read=is_read)
                yield around
                yield from _middle(idx)

        return program

    return _simulated(
        gpu, {f"issuer{who}": (1, issuer(who)) for who in range(num_issuers)},
        [Buffer(name=f"slots{who}", stage_bytes=slot_bytes(config), num_stages=depth) for who in range(num_issuers)], (),
    )  # fmt: skip


def _predict_train(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """One train: its loads or stores, the wait for the sources, the wait for all; and the issues alone."""
    num, stores = int(config["num_copies"]), is_store(config)

    own = [gpu.tma.issue_cycles + CLOCK_CYCLES * (idx == 0) for idx in range(num)]  # of a gap, what has a word
    codes = [_code(max(0.0, gap - words), gpu) for gap, words in zip(gaps_of(config), own, strict=True)]
    clock = _code(CLOCK_CYCLES, gpu)

    def until(what: str) -> list[float]:
        is_each = what == "issued"

        def program(cta: RoleContext) -> Iterator[Any]:
            del cta
            if stores:
                yield from _fill(config, "slots", num)
            else:
                yield ops.MbarrierArriveExpectTx("full", 0, num * copy_bytes(config))
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

        slots = Buffer(name="slots", stage_bytes=slot_bytes(config), num_stages=num)
        mbarriers = [] if stores else [Mbarrier(name="full", num_arrivals=1)]
        return _simulated(gpu, {"issuer": (1, program)}, [slots], mbarriers)

    issues = until("issued")
    values = {"cycles": until("done")[0], "first_issue_cycles": issues[0]}
    if num > 1:
        values["issue_cycles"] = float(np.median(issues[1:]))
    return values | ({"read_cycles": until("read")[0]} if stores else {})


CLOCK_CYCLES = 2.0
"""Of one reading of the clock: ``clock_cycles``."""
GAPS: Mapping[str, Mapping[int, str]] = {
    "load_1d": {
        2: "1x6 1x6",
        4: "1x6 2x5 1x6",
        8: "1x6 6x5 1x6",
        16: "1x23+ 1x3 11x5 1x10 1x32+ 1x34+",
        32: "1x6 1x5 10x12 5x19 14x19+ 1x28",
    },
    "load_2d": {
        2: "1x7 1x7",
        4: "1x7 2x6 1x7",
        8: "1x7 6x6 1x7",
        16: "1x11+ 2x15+ 11x20+ 2x34+",
        32: "1x7 2x7+ 10x12+ 18x19+ 1x30+",
    },
    "load_3d": {
        2: "1x8 1x8",
        4: "1x9 1x6 1x7 1x8",
        8: "1x23+ 1x7 1x8 4x9 1x10",
        16: "1x8 5x7 1x8 1x23+ 8x32+",
        32: "1x9 4x12 1x16 2x23+ 1x29 5x30+ 18x32+",
    },
    "store_1d": {
        2: "1x3 1x3",
        4: "1x5 3x3",
        8: "1x5 7x3",
        16: "1x5 15x3",
        32: "1x5 26x3 2x23+ 2x29+ 1x32+",
    },
    "store_2d": {
        2: "1x3 1x5",
        4: "1x6 3x5",
        8: "1x6 7x5",
        16: "1x6 11x5 1x8 2x23+ 1x32+",
        32: "1x6 11x5 1x13 1x23+ 12x27+ 1x32+ 5x34+",
    },
    "store_3d": {
        2: "1x3 1x6",
        4: "1x7 3x6",
        8: "1x7 7x6",
        16: "1x7 11x6 1x7 2x23+ 1x32+",
        32: "1x7 11x6 1x13 1x23+ 11x26+ 1x27+ 1x32+ 5x34+",
    },
}  # fmt: skip
"""What the compiler has scheduled from one reading of the clock to the next in a train: by kernel and copies, first copy
first, ``NxC`` for N of C cycles, an issue among them; ``+``: with a wait until a copy has read its operands, whose registers
are written anew. Long trains have more operands than there are uniform registers. From SASS; a test reads it again."""
OPERAND_CYCLES = 9.0
"""Such a wait."""


def gaps_of(config: Config) -> list[float]:
    """Cycles that each copy of a train takes from clock to clock, but for what the machine adds; 0 where nobody looked."""
    kernel, num = config["kernel"].removeprefix("train_"), int(config["num_copies"])
    if num == 1:
        return [0.0]
    parts = [item.partition("x") for item in GAPS[kernel][num].split()]
    return [
        float(cycles.rstrip("+")) + OPERAND_CYCLES * cycles.endswith("+")
        for times, _, cycles in parts for _ in range(int(times))
    ]  # fmt: skip


STORE_HEADER_BYTES, STORE_PORT_BYTES = 32, 32
"""A store's header, and what leaves an SM in a cycle; whole sectors at least. As the H200's description has them."""

def _cp_access(config: Config) -> AccessPattern:
    num_bytes = copy_bytes(config)
    lines = -(-num_bytes // LINE_BYTES)
    return AccessPattern(
        num_requests=1, num_sectors=num_bytes // SECTOR_BYTES, num_lines=lines, num_wavefronts=lines, num_bytes=num_bytes
    )


def _cp(config: Config, tile: int, buffer: str, stage: int, access: AccessPattern) -> ops.CpAsync:
    return ops.CpAsync("T", (0, tile), access, buffer, stage, allocates_in_l1="_ca" in config["kernel"])


def _predict_cp_train(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """The second of two trains, so that L1 has what it keeps; and its issues alone."""
    num, access, step = int(config["num_copies"]), _cp_access(config), _code(CP_STEP_CYCLES, gpu)

    def spans(is_each: bool) -> list[float]:
        def program(cta: RoleContext) -> Iterator[Any]:
            del cta
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

        slots = Buffer(name="slots", stage_bytes=copy_bytes(config), num_stages=num)
        return _simulated(gpu, {"issuer": (1, program)}, [slots], ())

    issues = spans(is_each=True)
    values = {"cycles": spans(is_each=False)[0], "first_issue_cycles": issues[0]}
    return values | ({"issue_cycles": float(np.median(issues[1:]))} if num > 1 else {})


def _predict_cp_ring(config: Config, gpu: GpuSpec) -> dict[str, float]:
    warps, depth, copies = int(config["num_issuers"]), int(config["in_flight"]), int(config["num_copies"])
    access, region, code = _cp_access(config), int(config["region_kib"]) * 1024, ops.Alu(CP_CHAINS[copies], is_chain=True)

    def issuer(who: int) -> Program:
        def program(cta: RoleContext) -> Iterator[Any]:
            del cta
            for idx in range(2 * TWIN_COPIES):  # the first half brings what L1 keeps
                yield code
                for k in range(copies):
                    tile = (who + warps * (idx * copies + k)) % (region // copy_bytes(config))
                    yield _cp(config, tile, f"slots{who}", idx % depth * copies + k, access)
                yield ops.CpAsyncCommitGroup()
                yield ops.CpAsyncWaitGroup(depth - 1)
                yield from _middle(idx, TWIN_COPIES)

        return program

    spans = _simulated(
        gpu, {f"issuer{who}": (1, issuer(who)) for who in range(warps)},
        [Buffer(name=f"slots{who}", stage_bytes=copy_bytes(config), num_stages=depth * copies) for who in range(warps)], (),
        smem_bytes=smem_bytes(config),
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


def _simulated_multicast(config: Config, gpu: GpuSpec) -> list[float]:
    size, issuing, depth = cluster_size(config), int(config["num_copies"]), int(config["in_flight"])
    before, between, seen = (_code(cycles, gpu) for cycles in MULTICAST_CODE_CYCLES)

    def producer(cta: RoleContext) -> Iterator[Any]:
        yield ops.ClusterArrive()
        yield ops.ClusterWait()
        for idx in range(TWIN_COPIES):
            stage = idx % depth
            yield ops.MbarrierWait("empty", stage, idx // depth & 1 ^ 1)
            yield before
            yield ops.MbarrierArriveExpectTx("full", stage, issuing * copy_bytes(config))
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
        [Buffer(name="slots", stage_bytes=slot_bytes(config), num_stages=depth)],
        [Mbarrier(name=name, num_arrivals=num, num_stages=depth) for name, num in (("full", 1), ("empty", size))],
        num_ctas=size,
    )


def derive(row: Config) -> dict[str, float]:
    """Bytes that one SM takes in or gives out in a cycle; of a train, latency and all."""
    if row.get("cycles_per_copy"):
        return {"bytes_per_cycle": copy_bytes(row) / float(row["cycles_per_copy"])}
    if row.get("cycles"):
        return {"bytes_per_cycle": copy_bytes(row) * int(row["num_copies"]) / float(row["cycles"])}
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


MOST_QUEUED = 8
"""Copies of a train that are issued at once."""


def _box_cycles(rows: Sequence[Mapping[str, str]]) -> list[tuple[int, float]]:
    """(rows of a box, cycles that a box more takes) of trains of narrow boxes, between the shortest and the longest.

    Sixty-four rows and more, so that the engine takes longer than the issue, and more slices are no farther.
    """
    trains: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for row in rows:
        is_narrow = row["kernel"] == "train_load_2d" and row["inner_bytes"] in ("16", "32", "64") and rows_of(row) >= 64
        if is_narrow and int(row["num_copies"]) <= MOST_QUEUED and row.get("cycles"):
            shape = (row["inner_bytes"], row["outer"], row["swizzle"])
            trains.setdefault(shape, []).append((int(row["num_copies"]), _number(row, "cycles")))
    found = []
    for (_, outer, _), lengths in trains.items():
        (first, least), (last, most) = min(lengths), max(lengths)
        if last > first:
            found.append((int(outer), (most - least) / (last - first)))
    return found


def fit(rows: Sequence[Mapping[str, str]]) -> list[Fitted]:
    """What the TMA unit and cp.async take to issue, for a row, for a box, and beyond a store's bytes; as the rows tell.

    The unit's latency and its bytes a cycle hide behind those of the wait, of L2 and of the port: they are no single
    row's, see README.md.
    """
    issues = [
        _number(row, "issue_cycles") - _number(row, "clock_cycles") for row in rows
        if row["kernel"] == "train_load_2d" and row["num_copies"] in ("2", "4") and row.get("issue_cycles")
        and row.get("clock_cycles") and rows_of(row) <= 8
    ]  # fmt: skip
    reads = [
        _number(row, "read_cycles") - (STORE_HEADER_BYTES + copy_bytes(row)) / STORE_PORT_BYTES for row in rows
        if row["kernel"] == "train_store_2d" and row["num_copies"] == "1" and row["outer"] == "1"
        and row.get("read_cycles") and copy_bytes(row) >= STORE_PORT_BYTES
    ]  # fmt: skip
    found = []
    if issues:
        how = "median between two of the first loads of a train, less the clock"
        found.append(Fitted(parameter="tma.issue_cycles", value=float(np.median(issues)), how=how))
    narrow, wide = fastest_rings(rows, 16), fastest_rings(rows, 128)
    if 64 in narrow:
        how = "fastest rings of 64 rows of 16 bytes: cycles a box over 64"
        row_cycles = narrow[64] / 64
        found.append(Fitted(parameter="tma.row_cycles", value=row_cycles, how=how))
        boxes = [box - num_rows * row_cycles for num_rows, box in _box_cycles(rows)]
        if boxes:
            how = "trains of boxes of 64 rows of 16 to 64 bytes and more: cycles a box beyond its rows, median, 0 at least"
            found.append(Fitted(parameter="tma.box_cycles", value=max(0.0, float(np.median(boxes))), how=how))
    large = [num * 128 / cycles for num, cycles in wide.items() if num >= 64]
    if large:
        how = "fastest rings of boxes of 8 KiB and more: bytes over cycles"
        found.append(Fitted(parameter="tma.bytes_per_cycle", value=float(np.median(large)), how=how))
    found += _fit_cp_async(rows)
    rings = {
        kind: [_number(row, "cycles_per_copy") for row in rows if row["kernel"] == kernel and row["outer"] == "64"
               and row["inner_bytes"] == "128" and row.get("cycles_per_copy")]
        for kind, kernel in (("st", "ring_store_done_2d"), ("red", "ring_reduce_2d"))
    }  # fmt: skip
    if all(rings.values()):
        value = min(rings["red"]) / min(rings["st"]) - 1.0
        how = "fastest ring of reductions of boxes of 8 KiB over that of stores, less one"
        found.append(Fitted(parameter="xbar.red_header_fraction", value=value, how=how))
    firsts = {
        num: {row["inner_bytes"]: _number(row, "read_cycles") for row in rows if row["kernel"] == "train_store_2d"
              and row["outer"] == "1" and row["num_copies"] == num and row.get("read_cycles")}
        for num in ("1", "4")
    }  # fmt: skip
    boxes = [(firsts["4"][inner] - cycles) / 3 for inner, cycles in firsts["1"].items() if inner in firsts["4"]]
    if boxes:
        how = "trains of stored boxes of one row: cycles of 4 less those of 1, over 3, median"
        found.append(Fitted(parameter="tma.store_box_cycles", value=float(np.median(boxes)), how=how))
    if reads and issues:
        value = float(np.median(reads) - np.median(issues))
        how = "one store of one row until the source is read, less the issue and the port"
        found.append(Fitted(parameter="tma.store_latency_cycles", value=value, how=how))
    return found


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
    slopes = {key: (found[4] - found[1]) / 3 for key, found in turns.items() if len(found) == 2}
    hits = [slope - int(inner) / 4 for (kernel, inner, _), slope in slopes.items() if "_ca" in kernel]
    around = [slope for (kernel, _, _), slope in slopes.items() if "_cg" in kernel]
    rates = [copy_bytes(row) / _number(row, "cycles_per_copy") for row in rows
             if row["kernel"] == "ring_cp_async_cg16" and row.get("cycles_per_copy")]  # fmt: skip
    trains = {int(row["num_copies"]): _number(row, "cycles") for row in rows
              if row["kernel"] == "train_cp_async_ca4" and row.get("cycles")}  # fmt: skip
    full = "full rings, line through groups of 1 and 4"
    commits = [found[1] - slopes[key] for key, found in turns.items() if key in slopes]
    fitted = [
        Fitted(parameter=f"l1.{name}", value=float(np.median(values)), how=f"{full}: {what}") for name, values, what in (
            ("cp_async_cycles", hits, "slope less wavefronts, median"), ("cp_async_bypass_cycles", around, "slope"),
            ("commit_cycles", commits, "intercept, median"),
        ) if values
    ]  # fmt: skip
    if len(trains) > 1:
        pace = (trains[max(trains)] - trains[min(trains)]) / (max(trains) - min(trains))
        how = "trains of 4 bytes a lane: cycles a copy, between the shortest and the longest"
        fitted.append(Fitted(parameter="l1.cp_async_interval_cycles", value=pace, how=how))
    if rates:
        how = "the fastest ring of cp.async around L1, bytes over cycles"
        fitted.append(Fitted(parameter="xbar.sm_read_bytes_per_cycle", value=max(rates), how=how))
    return fitted


def fitted_constants(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[FittedConstant]:
    """What loops and trains take beside what is measured, where SASS does not tell."""
    del gpu  # every number is a difference of rows, or of rows and SASS
    found: list[tuple[str, tuple[str, ...], list[float], str]] = []
    clocks = [_number(row, "clock_cycles") for row in rows if row.get("clock_cycles") and row["kernel"].startswith("train_")]
    found.append(("CLOCK_CYCLES", (), clocks, "clock_cycles, median"))
    waits = []
    for row in rows:
        if row["group"] == "load_train" and not is_bulk(row) and int(row["num_copies"]) >= 16 and rows_of(row) <= 8:
            parts = GAPS[row["kernel"].removeprefix("train_")][int(row["num_copies"])].split()[1:]
            each = sorted(item.partition("x")[2] for item in parts for _ in range(int(item.partition("x")[0])))
            middle = sorted(each, key=lambda item: float(item.rstrip("+")))[len(each) // 2]
            if middle.endswith("+"):
                waits.append(_number(row, "issue_cycles") - float(middle.rstrip("+")))
    how = "trains of 16 and more loads of up to 8 rows, median copy: issue_cycles less the schedule, median"
    found.append(("OPERAND_CYCLES", (), waits, how))
    commits = [
        _number(row, "cycles_per_copy") - store_turn(row)[1] for row in rows
        if row["kernel"].removeprefix("ring_") in STORE_TURNS and row["num_issuers"] == "1" and int(row["in_flight"]) >= 2
        and copy_bytes(row) <= 1024 and row.get("cycles_per_copy")
    ]  # fmt: skip
    how = "rings of one issuer, 2 and more stores of up to 1 KiB in flight: cycles_per_copy less the schedule, median"
    found.append(("COMMIT_CYCLES", (), commits, how))
    rings = [
        row for row in rows if row["kernel"].startswith("ring_load") and not is_bulk(row) and row["num_issuers"] == "1"
        and row.get("cycles_per_copy")
    ]  # fmt: skip
    for shape in LOOP_CYCLES:
        full = [
            _number(row, "cycles_per_copy") for row in rings
            if row["kernel"].endswith(shape) and int(row["in_flight"]) >= 2
        ]
        how = "rings of one issuer, 2 and more loads in flight: least cycles_per_copy"
        found.append(("LOOP_CYCLES", (shape,), [min(full)] if full else [], how))
    alone = {
        (row["kernel"].removeprefix("train_"), row["inner_bytes"], row["outer"]): _number(row, "cycles") for row in rows
        if row["group"] == "load_train" and row["num_copies"] == "1" and row.get("cycles")
    }  # fmt: skip
    boxes = [((row["kernel"].removeprefix("ring_"), row["inner_bytes"], row["outer"]), row) for row in rings]
    rests = [
        _number(row, "cycles_per_copy") - alone[box] for box, row in boxes if row["in_flight"] == "1" and box in alone
    ]
    how = "rings of one issuer, one load in flight: cycles_per_copy less those of a train of one such load, median"
    found.append(("REST_CYCLES", (), rests, how))
    stages = [
        _number(row, "cycles_per_copy") * int(row["num_copies"]) for row in rows
        if row["group"] == "multicast" and row.get("cycles_per_copy")
    ]
    found.append(("MULTICAST_LOOP_CYCLES", (), [min(stages)] if stages else [], "least cycles of a stage"))
    return [
        FittedConstant(name=name, key=key, value=float(np.median(values)), how=how)
        for name, key, values, how in found if values
    ]


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
    columns=("dtype", "inner_bytes", "outer", "swizzle", "in_flight", "num_issuers", "num_copies", "region_kib"),
    groups={
        "load_train": Group(configs=load_train, rank=2, least_capability=HOPPER),
        "load_ring": Group(configs=load_ring, rank=2, least_capability=HOPPER),
        "store_train": Group(configs=store_train, rank=3, least_capability=HOPPER),
        "store_ring": Group(configs=store_ring, rank=3, least_capability=HOPPER),
        "multicast": Group(configs=multicast, rank=3, least_capability=HOPPER),
        "cp_async_train": Group(configs=cp_async_train, rank=3),
        "cp_async_ring": Group(configs=cp_async_ring, rank=3),
        "load_lanes": Group(configs=load_lanes, rank=4, least_capability=HOPPER),
        "reduce_ring": Group(configs=reduce_ring, rank=4, least_capability=HOPPER),
        "multicast_of_16": Group(configs=multicast_of_16, rank=9, least_capability=HOPPER),
    },
    launch=launch,
    check=check,
    values=VALUES,
    num_repeats=3,
    predict=predict,
    tiers={"cycles": 2, "read_cycles": 2, "issue_cycles": 4, "cycles_per_copy": 4},
    fit=fit,
    fitted_constants=fitted_constants,
    derive=derive,
)
