"""A warp in plain Python, lane after lane: what the kernels of single accesses must leave, worked out the slow way."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def lane_bytes(lane: int) -> bytes:
    """What kernel.cu's value_of gives the four words of a lane."""
    words = [((4 * lane + word) * 0x85EBCA6B + 0xC2B2AE35) % 2**32 for word in range(4)]
    return b"".join(word.to_bytes(4, "little") for word in words)


def filled_bytes(num_bytes: int) -> bytearray:
    """What kernel.cu's word_at gives a buffer."""
    words = [(idx * 0x9E3779B1 + 0x7F4A7C15) % 2**32 for idx in range(num_bytes // 4)]
    return bytearray(b"".join(word.to_bytes(4, "little") for word in words))


def run_shared(config: Mapping[str, str], order_seed: int) -> dict[str, Any]:
    """The outputs of a checked launch of shared_access; lanes act in an order drawn by a seed where it matters."""
    op, mask = config["kernel"], int(config["active"], 16)
    at = [int(text) for text in config["addresses"].split()]
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    random.Random(order_seed).shuffle(lanes)
    smem = filled_bytes(32768) if not op.startswith(("st", "cp")) else bytearray(32768)
    out = [bytearray(16) for _ in range(32)]
    size = 16 if "matrix" in op else int(op.rsplit("_b", 1)[1]) // 8
    if op.startswith("ldmatrix") or op.startswith("stmatrix"):
        _matrix(op, at, smem, out)
    elif op.startswith("ld"):
        for lane in lanes:
            out[lane][:size] = smem[at[lane] : at[lane] + size]
    elif op.startswith(("st", "cp")):
        for lane in lanes:
            smem[at[lane] : at[lane] + size] = lane_bytes(lane)[:size]
    else:
        _atomic(op, at, lanes, size, smem, out)
    return {
        "out": np.frombuffer(b"".join(out), dtype=np.uint8).reshape(32, 16).copy(),
        "dump": np.frombuffer(bytes(smem), dtype=np.uint8).copy(),
    }


def _matrix(op: str, at: list[int], smem: bytearray, out: list[bytearray]) -> None:
    for matrix in range(int(op.split("_x")[1][0])):
        for lane in range(32):
            for half in range(2):
                row, column = lane // 4, 2 * (lane % 4) + half
                if op.endswith("_trans"):
                    row, column = column, row
                place = at[8 * matrix + row] + 2 * column
                word = 4 * matrix + 2 * half
                if op.startswith("ld"):
                    out[lane][word : word + 2] = smem[place : place + 2]
                else:
                    smem[place : place + 2] = lane_bytes(lane)[word : word + 2]


def _atomic(op: str, at: list[int], lanes: list[int], size: int, smem: bytearray, out: list[bytearray]) -> None:
    kind, _, verb, _ = op.split("_")
    expected = bytes(smem)
    for lane in lanes:
        place = slice(at[lane], at[lane] + size)
        old = int.from_bytes(smem[place], "little")
        value = int.from_bytes(lane_bytes(lane)[:size], "little")
        found = int.from_bytes(expected[place], "little")
        new = {
            "add": (old + value) % 2 ** (8 * size), "min": min(old, value), "max": max(old, value), "and": old & value,
            "or": old | value, "xor": old ^ value, "exch": value, "cas": value if old == found else old,
        }[verb]  # fmt: skip
        smem[place] = new.to_bytes(size, "little")
        if kind == "atom":
            out[lane][:size] = old.to_bytes(size, "little")
