"""What does a TMA box write into shared memory, and how long does it take? Shapes, swizzles, boxes in flight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.evidence.cases.array import read_only
from gpusim.evidence.cases.case import Case, Group, Outputs, WrongAnswer
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.launch_args import KernelLaunch, MappedTensor, Output, by_value
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.layout.swizzle import swizzle_mode
from gpusim.machine.config import GpuSpec
from gpusim.workload.dtypes import dtype as dtype_named
from gpusim.workload.tma.boxes import TensorMap, row_pitch_bytes, tma_bank_writes, tma_fill

PITCH_BYTES = 1024
"""From row to row of the tensor."""
ROOM_BYTES = 200 * 1024
"""Shared memory for boxes; a CTA of Hopper may have 227 KiB."""
STAGE_BYTES = 1024
"""Boxes start at multiples: the period of the widest swizzle."""
NUM_ROUNDS = 4

BANK_WRITES = "l1tex__data_bank_writes.sum"
INSTRUCTIONS = "smsp__sass_inst_executed_op_tma_ld.sum"
SECTORS = "lts__t_sectors_srcunit_tex_op_read.sum"
METRICS = (
    BANK_WRITES, "l1tex__data_bank_reads.sum", INSTRUCTIONS, "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "l1tex__data_bank_conflicts_type_arbitration.sum", SECTORS,
)  # fmt: skip
OWN_WRITES = 8
"""What the kernel writes without any box: its mbarriers. Source: measured, the row of no box."""


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config."""

    dtype: str
    inner_bytes: int
    outer: str
    swizzle: str
    num_boxes: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of a box, beyond the contiguous dimension."""
        return tuple(map(int, self.outer.split("x")))

    @property
    def kernel(self) -> str:
        """The entry point."""
        return f"tma_load_{1 + len(self.sizes)}d"

    @property
    def rows(self) -> int:
        """Rows of one box."""
        return int(np.prod(self.sizes))


def stride_bytes(config: Row) -> int:
    """From box to box in shared memory: room for rows padded to the swizzle's span, should the hardware pad them."""
    return -(-config.rows * padded_bytes(config) // STAGE_BYTES) * STAGE_BYTES


def padded_bytes(config: Row) -> int:
    """From row to row in shared memory, if rows narrower than the swizzle's span are padded to it."""
    return row_pitch_bytes(tensor_map(config).box)


def _fits(config: Row) -> bool:
    if config.num_boxes * stride_bytes(config) > ROOM_BYTES:
        return False
    try:
        tensor_map(config)
    except LayoutError:
        return False
    return True


def one_box() -> list[Row]:
    """One box of every shape that TMA takes, and none: what the kernel costs without any."""
    found = [Row("bf16", 64, "8", "none", 0)]
    widths_of = {"none": (16, 32, 64, 128, 256, 512), "32B": (32, 16), "64B": (64, 32), "128B": (128, 64, 32)}
    for swizzle, widths in widths_of.items():
        rows = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        found += Row.sweep(dtype="bf16", inner_bytes=widths, outer=map(str, rows), swizzle=swizzle, num_boxes=1)
    for dtype in ("int8", "fp32"):
        for inner_bytes, swizzle in ((32, "none"), (128, "none"), (128, "128B")):
            found += [Row(dtype, inner_bytes, str(rows), swizzle, 1) for rows in (1, 8, 64, 256)]
    for outer in ("4x2", "8x8", "2x32", "64x2", "16x16"):
        found += [Row("bf16", 128, outer, "none", 1), Row("bf16", 128, outer, "128B", 1), Row("bf16", 32, outer, "none", 1)]
    return [config for config in found if _fits(config)]


def many_boxes() -> list[Row]:
    """Boxes in flight: 2 to 32 of a shape."""
    found = [
        Row("bf16", inner_bytes, str(rows), swizzle, num_boxes)
        for inner_bytes, swizzle in ((128, "128B"), (64, "64B"), (32, "32B"), (16, "none"), (256, "none"))
        for rows in (8, 32, 64, 128, 256) for num_boxes in (2, 4, 8, 16, 32)
    ]
    return [config for config in found if _fits(config)]


def narrow() -> list[Row]:
    """Rows below 128 bytes in boxes enough to fill the unit's queue: is a row a cycle, and one that crosses a line two?"""
    shapes = (
        (48, 256, "none", 16), (80, 150, "none", 16), (96, 128, "none", 16), (64, 128, "64B", 24), (64, 128, "none", 24),
        (64, 256, "64B", 12), (32, 256, "none", 16), (16, 128, "32B", 32), (32, 128, "64B", 24), (96, 128, "128B", 12),
        (112, 128, "128B", 12), (80, 128, "128B", 12), (48, 256, "64B", 12),
    )  # fmt: skip
    return [
        *(Row("bf16", inner_bytes, str(rows), *others) for inner_bytes, rows, *others in shapes),
        Row("int8", 16, "256", "none", 32), Row("bf16", 16, "16x16", "none", 32), Row("bf16", 48, "64", "none", 1),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- launch and check
def tensor_map(config: Row) -> TensorMap:
    """The map of a tensor just large enough for the boxes of a config, one after the other in the outermost dimension."""
    dtype, outer, num_boxes = dtype_named(config.dtype), config.sizes, max(1, config.num_boxes)
    strides = [PITCH_BYTES]
    for size in outer[:-1]:
        strides.append(strides[-1] * size)
    return TensorMap(
        dtype=dtype, global_dim=(PITCH_BYTES // dtype.num_bytes, *outer[:-1], outer[-1] * num_boxes),
        global_strides_bytes=tuple(strides), box_dim=(config.inner_bytes // dtype.num_bytes, *outer), swizzle=config.swizzle,
        l2_promotion="none",
    )  # fmt: skip


@cache
def tensor(num_rows: int) -> NDArray[np.uint8]:
    """Rows of bytes, no two words alike; copied to the GPU once."""
    words = (np.arange(num_rows * PITCH_BYTES // 4, dtype=np.uint64) * 0x9E3779B1 + 0x7F4A7C15).astype("<u4")
    return read_only(words.view(np.uint8).reshape(num_rows, PITCH_BYTES))


def num_rows(config: Row) -> int:
    """Rows of all boxes together."""
    return config.rows * max(1, config.num_boxes)


def launch(config: Row, is_counted: bool) -> KernelLaunch:
    """One round where it is counted, so that counts are of the boxes alone; more, and a copy of what came, otherwise."""
    num_boxes, stride = config.num_boxes, stride_bytes(config)
    dump_bytes = 0 if is_counted else num_boxes * stride
    num_rounds, num_bytes = 1 if is_counted else NUM_ROUNDS, tensor_map(config).box.num_bytes
    boxes = [num_boxes, num_rounds, num_bytes, stride, config.sizes[-1], dump_bytes]
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(np.array(boxes, dtype="<u4")), MappedTensor(tensor(max(num_rows(config), 1)), tensor_map(config)),
            Output("smem", np.full(max(dump_bytes, 16), 0xA5, dtype=np.uint8)), Output("times", np.full(4, -1, dtype="<i8")),
        ),
        block=(128, 1, 1), smem_bytes=max(num_boxes, 1) * stride,
    )  # fmt: skip


def landed(config: Row, row_pitch_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where each byte of box 0 lies in shared memory, and what all boxes bring: int64[bytes], uint8[boxes, bytes].

    Rows are ``row_pitch_bytes`` apart before the swizzle moves their chunks of 16 bytes.
    """
    inner, num_boxes = config.inner_bytes, config.num_boxes
    rows = tensor(max(num_rows(config), 1))[:, :inner].reshape(max(num_boxes, 1), -1)
    plain = np.arange(rows.shape[1])
    plain = plain // inner * row_pitch_bytes + plain % inner
    return np.asarray(swizzle_mode(config.swizzle)(plain)), rows


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Times of the last and first round, and how rows lie: packed, or padded to the swizzle's span where they are narrower.

    Raises:
        WrongAnswer: boxes that did not come, or came with other bytes.
    """
    issue_cycles, cycles, first_cycles, has_failed = (int(number) for number in outputs["times"])
    wrong_if(has_failed, "the mbarrier never completed, the wait was given up")
    wrong_if(cycles <= 0 or first_cycles <= 0, f"the clock says {cycles} cycles, and {first_cycles} for the first round")
    values = {"cycles": float(cycles), "issue_cycles": float(issue_cycles), "first_cycles": float(first_cycles)}
    num_boxes = config.num_boxes
    if num_boxes == 0:
        return values | {"row_pitch_bytes": 0.0}
    inner = config.inner_bytes
    smem = outputs["smem"].reshape(num_boxes, -1)
    for pitch in dict.fromkeys((inner, padded_bytes(config))):
        places, rows = landed(config, pitch)
        if (smem[:, places] == rows).all():
            return values | {"row_pitch_bytes": float(pitch)}
    begins = smem[0, :16].tobytes().hex()
    raise WrongAnswer(f"the boxes hold other bytes than the tensor, rows packed or padded; box 0 begins {begins}")


def predict(config: Row, _gpu: GpuSpec) -> dict[str, float]:
    """Words written, sectors read and instructions, with what the kernel itself writes. The same on every GPU."""
    num_boxes, box = config.num_boxes, tensor_map(config).box
    return {
        BANK_WRITES: float(OWN_WRITES + num_boxes * tma_bank_writes(box)),
        SECTORS: float(num_boxes * tma_fill([box]).num_sectors),
        INSTRUCTIONS: float(num_boxes),
        "row_pitch_bytes": float(num_boxes and (row_pitch_bytes(box) if box.num_rows > 1 else box.inner_bytes)),
    }


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Bytes of all boxes, and those that arrive in a cycle, latency and all."""
    num_bytes = tensor_map(Row.of(row)).box.num_bytes * int(row["num_boxes"])
    derived = {"num_bytes": float(num_bytes)}
    if row.get("cycles"):
        derived["bytes_per_cycle"] = num_bytes / float(row["cycles"])
    return derived


CASE = Case(
    name="tma_writes",
    question="What does a TMA box write into shared memory, and how long does it take?",
    config_type=Row, launch=launch, check=check, checks_counted=False, num_repeats=5, predict=predict, derive=derive,
    groups={
        name: Group(configs=configs, metrics=METRICS, rank=rank, least_capability=(9, 0))
        for name, configs, rank in (("one_box", one_box, 2), ("many_boxes", many_boxes, 3), ("narrow", narrow, 3))
    },
    values={
        "cycles": "SM cycles from the first instruction to the completion of the last box, in the last round",
        "issue_cycles": "SM cycles from before the first to after the last instruction, in the last round",
        "first_cycles": "SM cycles of the first round, which fetches the tensor map and what L2 lacks",
        "row_pitch_bytes": "bytes from row to row of a box in shared memory, before the swizzle; of one row its own width",
    },
    tiers={BANK_WRITES: 3, SECTORS: 3, INSTRUCTIONS: 3, "row_pitch_bytes": 3},
)  # fmt: skip
