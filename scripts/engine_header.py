"""Writes ``engine/records.h`` from ``gpusim/program/records.py``: the C++ side of what crosses to the engine and back.

Run it after a change of the records; with ``--check`` it only compares, and exits with 1 where the header is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path

from gpusim.machine.counters import COUNTERS
from gpusim.program import records
from gpusim.simulate.timeline import WarpState

ENGINE = Path(__file__).resolve().parents[1] / "engine"
HEADER = ENGINE / "records.h"
WAITING = {
    name.upper() for path in ENGINE.glob("ops_*.cpp")
    for name in re.findall(r"^bool (\w+)\(Role\* role, const Op&", path.read_text(encoding="utf-8"), re.MULTILINE)
}  # fmt: skip
"""Ops that a role may wait in: their functions return whether it goes on."""

C_TYPES = {"u1": "uint8_t", "u2": "uint16_t", "i4": "int32_t", "i8": "int64_t", "f8": "double"}


def struct_name(table: str) -> str:
    """The C++ name of one record of a table.

    >>> struct_name("tma_loads"), struct_name("accesses"), struct_name("role_states"), struct_name("phase_flips")
    ('TmaLoadRecord', 'AccessRecord', 'RoleStateRecord', 'PhaseFlipRecord')
    """
    singular = {"accesses": "access", "fetches": "fetch", "trace": "trace"}
    word = singular.get(table, re.sub("ie$", "y", table.removesuffix("s")))
    return "".join(part.capitalize() for part in word.split("_")) + "Record"


def camel(word: str) -> str:
    """``warp_scheduler`` becomes ``WarpScheduler``."""
    return "".join(part.capitalize() for part in word.split("_"))


def enum_lines(kind: type[IntEnum]) -> Iterator[str]:
    """One C++ enumeration."""
    yield f"enum class {kind.__name__} : uint8_t {{"
    for item in kind:
        yield f"  {item.name} = {item.value},"
    yield "};"
    yield ""


def struct_lines(name: str, fields: Iterable[tuple[str, str]]) -> Iterator[str]:
    """One C++ struct."""
    yield f"struct {name} {{"
    for field, kind in fields:
        yield f"  {kind} {field};"
    yield "};"
    yield ""


def table_fields(dtype: object) -> list[tuple[str, str]]:
    """(name, C++ type) of each field of a numpy record."""
    fields = dtype.fields or {}  # type: ignore[attr-defined]
    return [(str(name), C_TYPES[kind.str[1:]]) for name, (kind, *_) in fields.items()]


def sections_lines(
    name: str, comment: str, title: str, members: Mapping[str, tuple[str, str]]
) -> Iterator[str]:
    """One C++ struct with a member, (name, type), for each of some sections; ``for_each`` visits them in order."""
    yield f"// {comment}"
    yield f"struct {name} {{"
    for member, kind in members.values():
        yield f"  {kind} {member};"
    yield ""
    yield "  template <class Visit>"
    yield "  void for_each(Visit& visit) {"
    for section, (member, _) in members.items():
        yield f"    visit({title}::{section.upper()}, {member});"
    yield "  }"
    yield "};"
    yield ""


def op_lines() -> Iterator[str]:
    """The function of each kind of op, and the one that calls them."""
    yield "class Role;"
    yield ""
    yield "// What each op costs; ops.h says more."
    for kind in records.OpKind:
        yield f"{'bool' if kind.name in WAITING else 'void'} {kind.name.lower()}(Role* role, const Op& op);"
    yield ""
    yield "inline bool carry_out(Role* role, const Op& op) {"
    yield "  switch (OpKind(op.kind)) {"
    for kind in records.OpKind:
        call = f"{kind.name.lower()}(role, op)"
        does = f"return {call};" if kind.name in WAITING else f"{call}; break;"
        yield f"    case OpKind::{kind.name}: {does}"
    yield "  }"
    yield "  return true;"
    yield "}"
    yield ""


def lines() -> Iterator[str]:
    """All of the header."""
    yield "// What crosses between Python and the engine. Written by scripts/engine_header.py: do not edit."
    yield "#pragma once"
    yield '#include "containers.h"'
    yield ""
    yield "namespace gpusim {"
    yield ""
    yield f"constexpr uint32_t BUFFER_MAGIC = {records.MAGIC:#x};"
    yield f"constexpr uint32_t BUFFER_VERSION = {records.VERSION};"
    yield ""
    for kind in (
        records.OpKind, records.Section, records.Ideal, records.StoreKind, records.Failure, records.Wait,
        WarpState,
    ):
        yield from enum_lines(kind)
    yield f"constexpr uint32_t NUM_STATES = {len(WarpState)};"
    yield ""
    yield from struct_lines("Op", table_fields(records.OPS))
    yield 'static_assert(sizeof(Op) == 32, "an op is 32 bytes");'
    yield ""
    for table, dtype in (*records.TABLES.items(), *records.RESULTS.items()):
        yield from struct_lines(struct_name(table), table_fields(dtype))
    for part, names in records.CONSTANTS.items():
        yield from struct_lines(f"{camel(part)}Constants", [(name, "double") for name in names])
    for part, names in COUNTERS.items():
        yield from struct_lines(f"{camel(part)}Counters", [(name, "double") for name in names])
    yield "struct Counters {"
    for part in COUNTERS:
        yield f"  {camel(part)}Counters {part};"
    yield "};"
    yield ""
    yield from struct_lines("Totals", [(name, "double") for name in records.TOTALS])
    yield from struct_lines("SmTotals", [(name, "double") for name in records.SM_TOTALS])
    yield from struct_lines("FailureRecord", [(name, "double") for name in records.FAILURE])
    for title, names in (("Input", records.INPUT_SECTIONS), ("Output", records.OUTPUT_SECTIONS)):
        yield f"enum class {title} : uint32_t {{"
        for place, name in enumerate(names):
            yield f"  {name.upper()} = {place},"
        yield "};"
        yield f"constexpr uint32_t NUM_{title.upper()}_SECTIONS = {len(names)};"
        yield ""
    yield from sections_lines("InputData", "Everything that is known before the run.", "Input", {
        **{f"constants_{part}": (part, f"const {camel(part)}Constants*") for part in records.CONSTANTS},
        **{table: (table, f"Table<{struct_name(table)}>") for table in records.TABLES},
        **{name: (name, f"Table<{'Op' if kind == 'ops' else C_TYPES[kind]}>") for name, kind in records.ARRAYS.items()},
    })  # fmt: skip
    yield from sections_lines("Recorder", "Timelines of recorded SMs: rows in the order in which they happened.", "Output", {
        table: (table, f"Vector<{struct_name(table)}>") for table in records.RESULTS
    })  # fmt: skip
    yield from op_lines()
    yield "}  // namespace gpusim"


def main() -> int:
    """Write the header, or compare it."""
    wanted = "\n".join(lines()) + "\n"
    if "--check" in sys.argv[1:]:
        is_current = HEADER.exists() and HEADER.read_text(encoding="utf-8") == wanted
        if not is_current:
            print(f"{HEADER} is stale: run scripts/engine_header.py")
        return 0 if is_current else 1
    HEADER.parent.mkdir(exist_ok=True)
    HEADER.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
