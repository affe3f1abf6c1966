"""Buffers that go into the engine and come back: a header, a table of sections, and the sections.

In: arrays by section. Out: bytes, and back. ``program/records.py`` names the sections and their records.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import GpusimError
from gpusim.program.records import MAGIC, VERSION, dtype_of

HEADER = struct.Struct("<4I1Q")
"""Magic, version, number of sections, zero, bytes in all."""
PLACE = struct.Struct("<2Q")
"""Begin of a section in bytes, and its number of elements."""
ALIGNMENT_BYTES = 8


def write_buffer(sections: Mapping[str, NDArray[Any]], names: Sequence[str]) -> bytes:
    """Buffer with all sections, in the order of ``names``.

    >>> buffer = write_buffer({"slots": np.array([5, 6, 7]), "ops": np.zeros(0)}, ["slots", "ops"])
    >>> len(buffer), read_buffer(buffer, ["slots", "ops"])["slots"].tolist()
    (72, [5, 6, 7])
    """
    parts: list[bytes | memoryview] = [b""]
    places: list[bytes] = []
    end = HEADER.size + PLACE.size * len(names)
    for name in names:
        array = np.ascontiguousarray(sections[name], dtype=dtype_of(name)).reshape(-1)
        places.append(PLACE.pack(end, len(array)))
        padding = -array.nbytes % ALIGNMENT_BYTES
        parts += (array.data, bytes(padding))
        end += array.nbytes + padding
    parts[0] = HEADER.pack(MAGIC, VERSION, len(names), 0, end) + b"".join(places)
    return b"".join(parts)


def read_buffer(buffer: bytes | bytearray | memoryview, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Sections of a buffer by name, as views without a copy.

    Raises:
        GpusimError: another format, or a section that lies outside.
    """
    magic, version, num_sections, _, num_bytes = HEADER.unpack_from(buffer)
    if (magic, version, num_sections) != (MAGIC, VERSION, len(names)) or num_bytes > len(buffer):
        raise GpusimError(
            f"a buffer of version {version} with {num_sections} sections and {num_bytes} bytes of {len(buffer)}, wants "
            f"version {VERSION} and {len(names)} sections: build the engine anew"
        )
    found: dict[str, NDArray[Any]] = {}
    for idx, name in enumerate(names):
        begin, count = PLACE.unpack_from(buffer, HEADER.size + PLACE.size * idx)
        dtype = dtype_of(name)
        if begin % ALIGNMENT_BYTES or begin + count * dtype.itemsize > num_bytes:
            raise GpusimError(f"section {name} of {count} records at byte {begin} lies outside of {num_bytes} bytes")
        found[name] = np.frombuffer(buffer, dtype=dtype, count=count, offset=begin)
    return found
