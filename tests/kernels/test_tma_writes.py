"""Boxes that TMA takes, the bytes that must land, and where: packed or padded, swizzled as the driver's modes say."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.evidence.cases.case import MappedTensor, Output, WrongAnswer, load_case
from gpusim.machine.config import load_gpu

CASE = load_case("tma_writes")
TOY = load_gpu("toy")
case = sys.modules[CASE.launch.__module__]
typed = case.Row.of
CONFIGS = [config for group in CASE.groups for config in CASE.configs(group, 1)]


def one(swizzle: str, inner_bytes: int, rows: str, num_boxes: int = 1, dtype: str = "bf16") -> dict[str, str]:
    kernel = f"tma_load_{1 + len(rows.split('x'))}d"
    return {"kernel": kernel, "dtype": dtype, "inner_bytes": str(inner_bytes), "outer": rows, "swizzle": swizzle,
            "num_boxes": str(num_boxes)}  # fmt: skip


def test_every_swizzle_width_rank_and_number_of_boxes_is_asked() -> None:
    assert {config["swizzle"] for config in CONFIGS} == {"none", "32B", "64B", "128B"}
    assert {int(config["inner_bytes"]) for config in CONFIGS} >= {16, 32, 64, 128, 256, 512}
    assert {config["dtype"] for config in CONFIGS} == {"bf16", "int8", "fp32"}
    assert {config["kernel"] for config in CONFIGS} == {"tma_load_2d", "tma_load_3d"}
    assert {int(config["num_boxes"]) for config in CONFIGS} >= {0, 1, 2, 4, 8, 16, 32}


def test_boxes_fit_into_shared_memory_and_lie_on_the_swizzles_repeat() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, True)
        assert launch.smem_bytes <= 227 * 1024
        assert case.stride_bytes(typed(config)) % case.tensor_map(typed(config)).smem_alignment_bytes == 0
        assert int(config["num_boxes"]) * case.tensor_map(typed(config)).box.num_bytes < 1 << 20


def test_the_tensor_holds_all_boxes() -> None:
    for config in CONFIGS:
        launch = CASE.launch(config, False)
        (tensor,) = [item for item in launch.arguments if isinstance(item, MappedTensor)]
        dims = tensor.tensor_map.global_dim
        assert tensor.array.nbytes == int(np.prod(dims[1:])) * case.PITCH_BYTES
        assert tensor.tensor_map.global_strides_bytes[0] == dims[0] * tensor.tensor_map.dtype.num_bytes == case.PITCH_BYTES


@pytest.mark.parametrize(("swizzle", "chunks"), [("128B", 8), ("64B", 4), ("32B", 2)])
def test_a_chunk_lands_where_the_mode_says(swizzle: str, chunks: int) -> None:
    """Chunk c of row r goes to chunk c ^ (r * row bytes / 128 mod chunks) of its row."""
    inner = 16 * chunks
    places, _ = case.landed(typed(one(swizzle, inner, "16")), inner)
    for row in range(16):
        for chunk in range(chunks):
            moved = chunk ^ (row * inner // 128 % chunks)
            assert places[row * inner + 16 * chunk] == row * inner + 16 * moved


def outputs_of(config: dict[str, str], pitch: int) -> dict[str, np.ndarray]:
    """What a launch must leave where rows are ``pitch`` bytes apart, byte by byte out of the tensor."""
    num_boxes, inner, rows = int(config["num_boxes"]), int(config["inner_bytes"]), typed(config).rows
    (smem, _) = [item.array.copy() for item in CASE.launch(config, False).arguments if isinstance(item, Output)]
    for box in range(num_boxes):
        for row in range(rows):
            for byte in range(inner):
                at = (box * rows + row) * case.PITCH_BYTES + byte
                word = (at // 4 * 0x9E3779B1 + 0x7F4A7C15) % 2**32
                place = row * pitch + byte
                bits = {"none": 0, "32B": 1, "64B": 3, "128B": 7}[config["swizzle"]]
                place ^= (place >> 7 & bits) << 4
                smem[box * case.stride_bytes(typed(config)) + place] = word >> 8 * (at % 4) & 255
    return {"smem": smem, "times": np.array([40, 700, 1500, 0], dtype="<i8")}


@pytest.mark.parametrize(
    ("config", "pitch"),
    [
        (one("none", 16, "8"), 16), (one("none", 256, "4", 2), 256), (one("128B", 128, "8", 2), 128),
        (one("64B", 32, "8"), 32), (one("64B", 32, "8"), 64), (one("128B", 128, "4x2"), 128), (one("32B", 32, "8x2", 2), 32),
    ],
)  # fmt: skip
def test_right_bytes_pass_and_say_how_rows_lie_and_one_wrong_byte_does_not(config: dict[str, str], pitch: int) -> None:
    outputs = outputs_of(config, pitch)
    values = CASE.check(config, outputs)
    assert values == {"cycles": 700.0, "issue_cycles": 40.0, "first_cycles": 1500.0, "row_pitch_bytes": float(pitch)}
    outputs["smem"][0] ^= 1
    with pytest.raises(WrongAnswer, match="other bytes"):
        CASE.check(config, outputs)


def test_the_counted_launch_is_one_round_and_copies_nothing_out() -> None:
    config = one("128B", 128, "64", 4)
    counted, alone = (np.frombuffer(CASE.launch(config, flag).arguments[0].tobytes(), dtype="<u4") for flag in (True, False))
    assert (counted[1], counted[5]) == (1, 0)
    assert (alone[1], alone[5]) == (case.NUM_ROUNDS, 4 * 64 * 128)
    assert counted[2] == 64 * 128


def test_the_simulator_predicts_words_sectors_and_instructions() -> None:
    assert CASE.predict(one("128B", 128, "64", 4), TOY) == {
        case.BANK_WRITES: 8 + 4 * 64 * 32.0, case.SECTORS: 4 * 64 * 4.0, case.INSTRUCTIONS: 4.0, "row_pitch_bytes": 128.0,
    }  # fmt: skip
    assert CASE.predict(one("128B", 64, "64"), TOY)[case.BANK_WRITES] == 8 + 64 * 16


def test_what_follows_from_a_row_are_bytes_and_their_rate() -> None:
    assert CASE.derive({**one("128B", 128, "64"), "cycles": "1024"}) == {"num_bytes": 8192.0, "bytes_per_cycle": 8.0}
