"""Ask the real CuTe for layouts, descriptors and tensor maps: compile with g++, run, write the answers as a table.

    python generate.py --cutlass <include folder> --cuda <include folder> [--seed 0] [--jobs 2]

The driver's ``cuTensorMapEncodeTiled`` is a stub here that prints its arguments. See README.md.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cute_headers
from cases import all_cases

CASES_PER_FILE = 60

PRELUDE = """
#include <cassert>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>

// On the host an address in shared memory is the pointer's value.
static inline std::size_t __cvta_generic_to_shared(void const* p) { return reinterpret_cast<std::size_t>(p); }
#define CUTE_CVTA_GENERIC_TO_SHARED_ACTIVATED 1

#include <cute/tensor.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/copy_traits_sm90_tma.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
using namespace cute;
namespace GMMA = cute::SM90::GMMA;

// An assertion of the run time is an answer.
static std::jmp_buf place_;
extern "C" void __assert_fail(char const* what, char const*, unsigned, char const*) noexcept {
  std::printf("refused: %s", what);
  std::longjmp(place_, 1);
}

// The first two modes, with the swizzle still said to be of bytes.
template <class Swizzle, int Bits, class Layout>
auto first_stage(ComposedLayout<Swizzle, smem_ptr_flag_bits<Bits>, Layout> const& tile) {
  return composition(tile.layout_a(), smem_ptr_flag_bits<Bits>{}, take<0, 2>(tile.layout_b()));
}

// The first modes, with or without a swizzle.
template <int N, class Swizzle, int Bits, class Layout>
auto first_modes(ComposedLayout<Swizzle, smem_ptr_flag_bits<Bits>, Layout> const& tile) {
  return composition(tile.layout_a(), smem_ptr_flag_bits<Bits>{}, take<0, N>(tile.layout_b()));
}
template <int N, class Shape, class Stride> auto first_modes(Layout<Shape, Stride> const& tile) { return take<0, N>(tile); }

// A tensor as "; start o layout", its start in elements from that of the tile or as a coordinate.
template <class Tensor, class Tile> static void place(Tensor const& tensor, Tile const& tile) {
  std::printf(" ; ");
  if constexpr (is_smem<Tensor>::value) {
    auto first = [](auto const& t) { return reinterpret_cast<std::size_t>(raw_pointer_cast(t.data())); };
    std::printf("%d", int(first(tensor) - first(tile)) / 2);
  } else {
    print(tensor.data().coord_);
  }
  std::printf(" o ");
  print(tensor.layout());
}

template <class T> static void list(T const* values, unsigned count) {
  std::printf(", [");
  for (unsigned i = 0; i < count; ++i) std::printf(i ? ", %llu" : "%llu", static_cast<unsigned long long>(values[i]));
  std::printf("]");
}

extern "C" CUresult cuTensorMapEncodeTiled(
    CUtensorMap*, CUtensorMapDataType type, cuuint32_t rank, void* address, cuuint64_t const* dim,
    cuuint64_t const* strides, cuuint32_t const* box, cuuint32_t const* steps, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  std::printf("[%d, %u, %llu", int(type), rank, reinterpret_cast<unsigned long long>(address));
  list(dim, rank);
  list(strides, rank - 1);
  list(box, rank);
  list(steps, rank);
  std::printf(", %d, %d, %d, %d] ", int(interleave), int(swizzle), int(promotion), int(fill));
  return CUDA_SUCCESS;
}

int main() {
"""


def main() -> None:
    """Draw, compile, run, write."""
    here = Path(__file__).parent
    parser = cute_headers.parser(__doc__)
    parser.add_argument("--out", type=Path, default=here / "descriptor_answers.json")
    args = parser.parse_args()
    flags = cute_headers.include_flags(args)
    # What nvcc would say of itself, without which CuTe leaves tensor maps out, and calls of the driver by its name.
    flags += ["-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0", "-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL=1"]
    cases = list(dict.fromkeys(all_cases(args.seed)))
    layouts = sorted({case.layout for case in cases if case.layout})
    with ThreadPoolExecutor(args.jobs) as pool:

        def ask_all(statements: Sequence[str]) -> list[str]:
            chunks = [statements[i : i + CASES_PER_FILE] for i in range(0, len(statements), CASES_PER_FILE)]
            return [answer for answers in pool.map(lambda chunk: ask(chunk, flags), chunks) for answer in answers]

        texts = dict(zip(layouts, ask_all([f"print({layout});" for layout in layouts]), strict=True))
        answers = ask_all([case.cpp for case in cases])
    rows = [
        [case.kind, *(texts[case.layout] if arg == "layout" else arg for arg in case.args), *parsed(answer, case.kind)]
        for case, answer in zip(cases, answers, strict=True)
    ]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    args.out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def parsed(answer: str, kind: str) -> list[object]:
    """The answer; of a tensor map, the driver's arguments and the basis; of a partition, what follows the arguments."""
    if kind == "tma partition":
        return answer.rpartition("] ")[2].split(" ; ")
    if not answer.startswith("["):
        return [answer]
    arguments, _, basis = answer.rpartition("] ")
    return [json.loads(f"{arguments}]"), basis]


def ask(statements: Sequence[str], flags: list[str]) -> list[str]:
    """The answer of each statement."""
    answers = cute_headers.ask(partial(source_text, statements), len(statements), flags, most_letters=80)
    return [notation(answer) for answer in answers]


def source_text(statements: Sequence[str], refused: dict[int, str]) -> str:
    """The program: each statement on a line of its own, so that an error names it."""
    lines = [PRELUDE, '#line 1 "cases"']
    for i, statement in enumerate(statements):
        body = "" if i in refused else f'std::printf("{i}\\t"); if (!setjmp(place_)) {{ {statement} }} std::printf("\\n");'
        lines.append(f"  {{ {body} }}")
    return "\n".join([*lines, "}", ""])


def notation(answer: str) -> str:
    """The answer without the ``_`` of static integers, and an unset pointer as its width alone."""
    if answer.startswith("refused: "):
        return answer
    width = re.sub(r" o smem_ptr\[(\d+)b\]\(unset\) o ", r"_smem_ptr[\1b] o ", answer)
    return cute_headers.without_underscores(width)


if __name__ == "__main__":
    main()
