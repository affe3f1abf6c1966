"""Ask the real CuTe: draw cases, compile them with g++ against the CUTLASS headers, write the answers as a table.

    python generate.py --cutlass <include folder> --cuda <include folder> [--table instructions] [--seed 0] [--jobs 2]

A case that CuTe's static assertions refuse is written with the assertion as its answer. See README.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cute_headers
from atoms import atom_cases, instruction_cases
from draw_cases import Case
from operations import draw_all

CASES_PER_FILE = 150
INSTRUCTIONS_PER_FILE = 60
TABLES = {"algebra": "cute_answers.json", "instructions": "cute_instructions.json"}

PRELUDE = """
#include <cute/tensor.hpp>
{includes}
#include <cstdio>
using namespace cute;

template <class T> void show(T const& t) {{ print(t); }}
template <class Layout> auto at(Layout const& layout) {{ return make_tensor(static_cast<int*>(nullptr), layout); }}

// A tensor as "offset o layout".
template <class Tensor> struct Place {{ Tensor tensor; }};
template <class Tensor> auto place(Tensor const& tensor) {{ return Place<Tensor>{{tensor}}; }}
template <class Tensor> void show(Place<Tensor> const& p) {{
  std::printf("%ld o ", static_cast<long>(p.tensor.data() - static_cast<int*>(nullptr)));
  print(p.tensor.layout());
}}

// The offsets of a slice.
template <class Layout, class Coord> struct Offsets {{ Layout layout; Coord coord; }};
template <class Layout, class Coord> auto offsets_of(Layout const& layout, Coord const& coord) {{
  return Offsets<Layout, Coord>{{layout, coord}};
}}
template <class Layout, class Coord> void show(Offsets<Layout, Coord> const& o) {{
  auto [kept, start] = slice_and_offset(o.coord, o.layout);
  std::printf("(");
  for (int i = 0; i < int(size(kept)); ++i) std::printf(i ? ",%d" : "%d", int(start + kept(i)));
  std::printf(")");
}}

// Several answers in one.
template <class... Ts> struct Several {{ std::tuple<Ts...> all; }};
template <class... Ts> auto several(Ts const&... ts) {{ return Several<Ts...>{{std::tuple<Ts...>(ts...)}}; }}
template <class... Ts> void show(Several<Ts...> const& s) {{
  std::apply([](auto const&... t) {{ int i = 0; ((std::printf(i++ ? " ; " : ""), show(t)), ...); }}, s.all);
}}

int main() {{
"""


def main() -> None:
    """Draw, compile, run, write."""
    here = Path(__file__).parent
    parser = cute_headers.parser(__doc__)
    parser.add_argument("--table", choices=TABLES, default="algebra")
    parser.add_argument("--out", type=Path, help="the table's own file unless given")
    args = parser.parse_args()
    flags = cute_headers.include_flags(args)
    if args.table == "algebra":
        drawn, atoms = list(draw_all(args.seed)), list(atom_cases(args.seed))
    else:
        drawn, atoms = [], list(instruction_cases(args.seed))
    chunks = [drawn[i : i + CASES_PER_FILE] for i in range(0, len(drawn), CASES_PER_FILE)]
    per_file = 30 if args.table == "algebra" else INSTRUCTIONS_PER_FILE
    chunks += [atoms[i : i + per_file] for i in range(0, len(atoms), per_file)]
    with ThreadPoolExecutor(args.jobs) as pool:
        answers = [row for rows in pool.map(lambda chunk: ask(chunk, flags), chunks) for row in rows]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in answers)
    out = args.out or here / TABLES[args.table]
    out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def ask(cases: Sequence[Case], flags: list[str]) -> list[list[str]]:
    """[operation, arguments ..., answer] of each case."""
    answers = cute_headers.ask(partial(source_text, cases), len(cases), flags, most_letters=60)
    return [
        [case.op, *case.args, cute_headers.without_underscores(answer)]
        for case, answer in zip(cases, answers, strict=True)
    ]


def source_text(cases: Sequence[Case], refused: dict[int, str]) -> str:
    """The program: each case on a line of its own, so that an error names it."""
    includes = "#include <cute/atom/mma_atom.hpp>\n#include <cute/atom/copy_atom.hpp>"
    needs_atoms = any(case.op.startswith(("atoms:", "instructions:")) for case in cases)
    # Every N that the instruction has, not only CuTe's usual ones.
    define = "#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED\n" if any("SM90_64x" in case.cpp for case in cases) else ""
    lines = [define + PRELUDE.format(includes=includes if needs_atoms else ""), '#line 1 "cases"']
    for i, case in enumerate(cases):
        body = "" if i in refused else f'std::printf("{i}\\t"); show({case.cpp}); std::printf("\\n");'
        lines.append(f"  {{ {body} }}")
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    main()
