"""Shared-memory bank conflicts as text and JSON: phases, a picture of lanes and banks, bank conflict fixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from gpusim.layout import ByteLayout, mode_of
from gpusim.layout.int_tuple import show
from gpusim.report.copy_sources import source_document, source_rows, source_verdict
from gpusim.report.number_format import count, number, percent
from gpusim.report.tables import facts_table, plain_table, print_command
from gpusim.workload.smem.bank_conflict_fixes import Fix, JointStudy, Study
from gpusim.workload.smem.banks import NUM_BANKS, Collision, Instruction, Phase
from gpusim.workload.smem.smem_ops import BANK_BYTES, MATRIX_ROWS, SmemOp
from gpusim.workload.smem.tile_access import TileAccess, in_elements

TURNS = ".123456789abcdefghijklmnopqrstuvw"
"""Characters of the picture, by the wavefront that serves a lane; index 0: the bank does not serve it."""

_BANKS_TOGETHER = 4


# ---------------------------------------------------------------------------------------------- words
def swizzle_words(tile: ByteLayout) -> str:
    """Swizzle of a tile in elements and bytes, with the name of the TMA and wgmma mode if there is one.

    >>> from gpusim.layout import Layout, Swizzle
    >>> swizzle_words(ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16))
    'Sw<3,3,3> in elements, Sw<3,4,3> in bytes (the 128B mode of TMA and wgmma)'
    """
    if not tile.swizzle.num_bits:
        return "none"
    elements, mode = in_elements(tile), mode_of(tile.swizzle)
    first = f"{elements} in elements" if elements is not None else "in elements none, it moves parts of one"
    name = f" (the {mode} mode of TMA and wgmma)" if mode is not None else ""
    if elements == tile.swizzle:
        return f"{elements} in elements and in bytes{name}"
    return f"{first}, {tile.swizzle} in bytes{name}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers with runs as ranges.

    >>> ranges([0, 1, 2, 3, 8, 10, 11]), ranges(range(0, 32, 4))
    ('0-3 8 10-11', '0 4 8 12 16 20 24 28')
    """
    runs: list[list[int]] = []
    for value in numbers:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def ways(amount: float) -> str:
    """Name of a conflict of that many ways.

    >>> ways(8.0), ways(1.0), ways(1.5)
    ('8-way', 'free', '1.5-way')
    """
    return "free" if amount == 1.0 else f"{number(amount)}-way"


def series(numbers: Sequence[int], most: int = 4) -> str:
    """List of numbers, shortened where it is regular or long.

    >>> series([0, 32, 64, 96, 128]), series([7, 3, 9]), series([5, 9, 2, 4, 8, 1])
    ('0, 32, .., 128', '7, 3, 9', '5, 9, 2, 4, ... (6)')
    """
    if len(numbers) <= most:
        return ", ".join(map(str, numbers))
    steps = {after - before for before, after in pairwise(numbers)}
    if len(steps) == 1:
        return f"{numbers[0]}, {numbers[1]}, .., {numbers[-1]}"
    return ", ".join(map(str, numbers[:most])) + f", ... ({len(numbers)})"


def collision_words(collision: Collision) -> str:
    """One line with the colliding lanes, their banks and words.

    >>> collision_words(Collision(first_bank=0, last_bank=3, lanes=(0, 1), words=((0, 1, 2, 3), (32, 33, 34, 35))))
    'banks 0-3: lanes 0-1 want 4 words each, from 0, 32'
    >>> collision_words(Collision(first_bank=7, last_bank=7, lanes=(0, 4, 8), words=((7,), (39,), (71,))))
    'bank 7: lanes 0, 4, 8 want words 7, 39, 71'
    """
    first, last = collision.first_bank, collision.last_bank
    banks = f"bank {first}" if first == last else f"banks {first}-{last}"
    starts = [words[0] for words in collision.words]
    is_run = list(collision.lanes) == list(range(collision.lanes[0], collision.lanes[-1] + 1))
    lanes = ranges(collision.lanes) if is_run else series(collision.lanes)
    if len(set(starts)) == 1:
        what = f"word {starts[0]}, one after the other"
    elif first == last:
        what = f"words {series(starts)}"
    else:
        what = f"{last - first + 1} words each, from {series(starts)}"
    return f"{banks}: lanes {lanes} want {what}"


def lanes_words(access: TileAccess, instruction: Instruction) -> str:
    """One line with the elements that the lanes address."""
    if access.threads is not None:
        return f"first element of lane i at --threads {access.threads}, from {show(access.at)} on"
    if access.rule.is_collective:
        starts = [instruction.places[lane] for lane in range(0, access.rule.num_lanes, MATRIX_ROWS)]
        found = ", ".join(show(place) for place in starts)
        rows = "rows" if access.contiguous_mode == 1 else "columns"
        return f"lanes 8i to 8i+7 give the {rows} of matrix i; matrices start at {found}"
    elements = count(access.vector_elements, "element")
    return f"lane i has the i-th vector of {elements} along mode {access.contiguous_mode}, from {show(access.at)} on"


def row_word(access: TileAccess) -> str:
    """Word for a run along the contiguous mode: a row, or a column if that is mode 0."""
    return "row" if access.contiguous_mode == 1 else "column"


def verdict_of(study: Study) -> str:
    """Verdict of a study in one sentence."""
    here, over_tile, op = study.instructions[study.worst], study.census, study.access.op
    if (at_sources := source_verdict(study)) is not None:
        return at_sources
    if here.num_wavefronts > here.num_ideal_wavefronts:
        cost = f"{op} takes {count(here.num_wavefronts, 'wavefront')} where {here.num_ideal_wavefronts} would do"
        why = f"{ways(here.num_ways)} conflict" if here.num_ways > 1 else "two phases would be one if they did not collide"
        finding = f"{cost} ({why})"
    elif over_tile.is_free:
        return f"{op} takes {count(here.num_wavefronts, 'wavefront')}, as few as it can{_why_free(study)}"
    else:
        finding = f"{op} is free of conflicts here, but not at all {study.access.num_tiles} places side by side"
    if study.swizzle is not None and study.swizzle.census.is_free:
        return f"{finding}; {_short(study.swizzle)} mends it"
    row = row_word(study.access)
    if study.padding is not None:
        padding = f"{count(study.padding.padding_elements, 'element')} more a {row}"
        return f"{finding}; no swizzle that was searched frees it, {padding} would"
    return f"{finding}; no swizzle and no padding of {row}s that was searched frees it: let lanes take other elements"


def _why_free(study: Study) -> str:
    here, fix = study.instructions[study.worst], study.swizzle
    rule, asked = study.access.rule, [address for address in here.addresses if address is not None]
    if not rule.is_broadcasting and len(set(asked)) < len(asked):
        return ": lanes queue for the same word, which no layout changes"
    if rule.is_loop:
        return ": a round of its loop takes loads and swaps"
    if rule.num_passes > 1:
        return f": each passes {rule.num_passes} times"
    if not study.access.tile.swizzle.num_bits:
        return ": no swizzle needed"
    if fix is not None and not fix.swizzle_bytes.num_bits:
        return ", and so it would without a swizzle"
    return ", thanks to the swizzle"


def _short(fix: Fix) -> str:
    if not fix.swizzle_bytes.num_bits:
        return "the plain layout"
    if fix.swizzle_elements is None:
        return f"{fix.swizzle_bytes} in bytes"
    return f"{fix.swizzle_elements} in elements"


# ---------------------------------------------------------------------------------------------- text
def render_banks(
    study: Study, console: Console, *, dtype_name: str, remarks: Sequence[str], next_command: str | None
) -> None:
    """Print a study: the access, phases, lanes and banks, the full tile, bank conflict fixes, verdict."""
    instruction = study.instructions[study.worst]
    _print_asked(study, dtype_name, console)
    if len(study.instructions) > 1:
        _print_instructions(study, console)
    _print_phases(instruction, console, study.access.rule)
    _print_picture(instruction, console, is_loop=study.access.rule.is_loop)
    _print_fixes(study, console)
    _print_end(remarks, verdict_of(study), next_command, console)


def _print_end(remarks: Sequence[str], verdict: str, next_command: str | None, console: Console) -> None:
    for remark in remarks:
        console.print(f"[yellow]Remark[/]: {escape(remark)}")
    console.print(f"[bold]Verdict[/]: {escape(verdict)}.")
    if next_command is not None:
        console.print("Next: ", end="")
        print_command(next_command, console)


def _print_asked(study: Study, dtype_name: str, console: Console) -> None:
    access = study.access
    each = f"{count(access.rule.access_bytes, 'byte')} ({count(access.vector_elements, 'element')}) with each address"
    rows = (
        ("tile", tile_words(access, dtype_name)), ("swizzle", swizzle_words(access.tile)),
        ("access", f"{access.op}: {each}, along mode {access.contiguous_mode}"),
        ("lanes", lanes_words(access, study.instructions[study.worst])), *source_rows(access),
        ("rule", access.rule.evidence),
    )
    console.print()
    console.print(facts_table(rows))
    console.print()


def tile_words(access: TileAccess, dtype_name: str) -> str:
    """One line with the tile, its bytes and its row pitch."""
    num_bytes, pitch = access.tile.inner.cosize * access.element_bytes, access.row_pitch
    has_rows = pitch is not None and access.extents[1 - access.contiguous_mode] > 1
    row = row_word(access)
    rows = f", {number((pitch or 0) * access.element_bytes)} bytes from {row} to {row}" if has_rows else ""
    start = f", from element {number(access.tile.offset)} on" if access.tile.offset else ""
    return f"{access.tile.inner} of {dtype_name}, {number(num_bytes)} bytes{rows}{start}"


def _print_instructions(study: Study, console: Console) -> None:
    each = [found.num_wavefronts for found in study.instructions]
    taken = f"{count(each[0], 'wavefront')} each" if len(set(each)) == 1 else f"{series(each, most=16)} wavefronts"
    which = "the first" if study.worst == 0 else f"number {study.worst} (from 0), the worst,"
    console.print(f"{len(each)} warp instructions take {taken}; {which} is shown")
    console.print()


def _print_phases(instruction: Instruction, console: Console, rule: SmemOp) -> None:
    table = plain_table("", "phase", "lanes", "wavefronts", "ideal", "conflict", "who collides", left=2, ends=2)
    for i, phase in enumerate(instruction.phases):
        table.add_row(str(i), ranges(phase.lanes), str(phase.num_wavefronts), str(phase.num_ideal_wavefronts),
                      _conflict(phase), who_collides(phase))
    total = (str(instruction.num_wavefronts), str(instruction.num_ideal_wavefronts), ways(instruction.num_ways))
    if len(instruction.phases) > 1:
        table.add_row("all", "", *total, "", style="bold")
    console.print(table)
    for line in phase_remarks(instruction, rule):
        console.print(line)
    console.print()


def _conflict(item: Phase | Instruction) -> Text:
    return Text(ways(item.num_ways), style="red" if item.num_ways > 1 else "green")


def phase_remarks(instruction: Instruction, rule: SmemOp) -> list[str]:
    """Remarks on what the table of phases does not show."""
    found = []
    if sum(phase.num_ideal_wavefronts for phase in instruction.phases) > instruction.num_ideal_wavefronts:
        found.append("ideal for all: lanes share their vectors, so two phases would be one if these did not collide")
    if instruction.num_data_wavefronts != instruction.num_wavefronts:
        found.append(
            f"the data stage serves it in {count(instruction.num_data_wavefronts, 'wavefront')}, which is what it costs; "
            "Nsight Compute counts both (sm__sass_l1tex_pipe_lsu_wavefronts_mem_shared and "
            "l1tex__data_pipe_lsu_wavefronts_mem_shared)"
        )
    if rule.is_loop:
        found.append(_loop_words(instruction))
    elif rule.num_passes > 1:
        found.append(f"each word is served in {rule.num_passes} wavefronts")
    return found


def _loop_words(instruction: Instruction) -> str:
    """Wavefronts of a loop: loads of all remaining lanes, and two for each half-warp that swaps."""
    (loop,) = instruction.phases
    return (
        f"a loop of {count(loop.num_turns, 'round')}: all lanes that are left load, then the first of each bank swaps, two "
        f"wavefronts a phase; {count(loop.num_wavefronts, 'wavefront')} in all"
    )


def who_collides(phase: Phase, most: int = 2) -> str:
    """Worst collisions of a phase, a line each."""
    if phase.num_ways == 1.0:
        return "nobody" if phase.num_turns == 1 else "nobody whom another layout would part"
    worst = sorted(phase.collisions, key=lambda found: -len(found.lanes))
    lines = [collision_words(found) for found in worst[:most]]
    if len(worst) > most:
        lines.append(f"and {count(len(worst) - most, 'more group', 'more groups')} of banks")
    return "\n".join(lines)


def _print_picture(instruction: Instruction, console: Console, *, is_loop: bool) -> None:
    digit = "the round of the loop in which the lane swaps" if is_loop else "the wavefront of its phase that serves the lane"
    console.print(f"Lanes and banks: a digit is {digit}", style="bold")
    for line in picture_lines(instruction):
        console.print(line, no_wrap=True, soft_wrap=True)
    console.print()


def picture_lines(instruction: Instruction) -> list[Text]:
    """Lines with a row for each lane and a column for each bank, phase by phase. Each phase ends with words per bank."""
    places = ["-" if place is None else show(place) for place in instruction.places]
    width = max(len("first"), *map(len, places))
    margin = f"{'lane':>4}  {'first':<{width}}  {'byte':>6}  "
    fours = "".join(f"{bank:<{_BANKS_TOGETHER + 1}}" for bank in range(0, NUM_BANKS, _BANKS_TOGETHER))
    lines = [Text(f"{margin}bank {fours.rstrip()}", style="bold")]
    for i, phase in enumerate(instruction.phases):
        for lane in phase.lanes:
            line = Text(f"{lane:>4}  {places[lane]:<{width}}  {instruction.addresses[lane]:>6}       ")
            lines.append(line + _cells([int(turn) for turn in instruction.turns[lane]]))
        served = instruction.turns[list(phase.lanes)].max(axis=0)
        label = f"phase {i}: {count(phase.num_wavefronts, 'wavefront')}"
        foot = Text(f"{label:>{len(margin) + 4}} ", style="dim")
        lines.append(foot + _cells([int(most) for most in served]))
    return lines


def _cells(turns: Sequence[int]) -> Text:
    cells = Text()
    for bank, turn in enumerate(turns):
        if bank and bank % _BANKS_TOGETHER == 0:
            cells.append(" ")
        cells.append(TURNS[turn], style="dim" if turn == 0 else "green" if turn == 1 else "bold red")
    return cells


def _print_fixes(study: Study, console: Console) -> None:
    console.print(facts_table(fix_rows(study)))
    console.print()


def fix_rows(study: Study) -> tuple[tuple[str, str], ...]:
    """(name, words) rows: the full tile as it is, and with each bank conflict fix."""
    over_tile = study.census
    access = study.access
    what = "here" if access.num_tiles == 1 else f"{number(access.num_tiles)} places side by side"
    beyond = over_tile.num_wavefronts - over_tile.num_ideal_wavefronts
    places = f" at {over_tile.num_tiles_with_conflicts} of them" if access.num_tiles > 1 else ""
    state = "free of conflicts" if over_tile.is_free else f"so {number(beyond)} bank conflicts{places}"
    wavefronts = f"{number(over_tile.num_wavefronts)} wavefronts, {number(over_tile.num_ideal_wavefronts)} at best"
    return (
        ("as it is", f"{what}: {wavefronts}, {state}{_left_out(access)}"), ("smallest swizzle", _swizzle_cell(study)),
        ("usual formula", _formula_cell(study)), ("padding", _padding_cell(study)),
    )


def _left_out(access: TileAccess) -> str:
    """Text on the tile positions that are not counted."""
    unaligned, beyond = access.num_tiles_unaligned, access.num_tiles_beyond
    words = f"; {number(unaligned)} more left out, where vectors are not aligned" if unaligned else ""
    return f"{words}; {number(beyond)} farther ones not counted" if beyond else words


def _where(access: TileAccess) -> str:
    return "here" if access.num_tiles == 1 else f"at all {number(access.num_tiles)} places"


def _swizzle_cell(study: Study) -> str:
    return _swizzle_words(study.swizzle, study.access.tile, _where(study.access))


def _swizzle_words(fix: Fix | None, tile: ByteLayout, where: str) -> str:
    if fix is None:
        return "none with S > 0 that keeps vectors and words whole, in no more memory, is better than the plain layout"
    if not fix.swizzle_bytes.num_bits:
        return "no swizzle needed: the plain layout is free of conflicts"
    if fix.swizzle_bytes == tile.swizzle:
        return f"{_short(fix)}, the one that is there: {_counted(fix, where)}"
    return f"{swizzle_words(fix.tile)}: {_counted(fix, where)}, no more memory"


def _formula_cell(study: Study) -> str:
    if study.formula is None:
        return f"has no answer: it wants {row_word(study.access)}s of a power of two of elements"
    cost = f"{number(study.formula.num_extra_bytes)} bytes more" if study.formula.num_extra_bytes else "no more memory"
    elements = study.formula.swizzle_elements
    along = row_word(study.access)
    same = study.swizzle is not None and study.swizzle.swizzle_bytes == study.formula.swizzle_bytes
    counted = _counted(study.formula, _where(study.access))
    found = f"{elements}, the same" if same else f"{swizzle_words(study.formula.tile)}: {counted}, {cost}"
    vector = "vector" if study.access.rule.access_bytes >= BANK_BYTES else "word"
    return f"M = log2({vector}), B and S from the {along}: {found}"


def _padding_cell(study: Study) -> str:
    return _padding_words(study.access, study.padding, _where(study.access))


def _padding_words(access: TileAccess, fix: Fix | None, where: str) -> str:
    row = row_word(access)
    if fix is None:
        if access.row_pitch is None:
            return f"not searched: {row}s have no single pitch"
        return f"none of up to 128 bytes a {row} keeps vectors aligned, fits in shared memory, and frees the tile"
    if not fix.padding_elements:
        return "no padding needed" if fix.census.is_free else "none is better than the plain layout"
    plain = access.tile.inner.cosize * access.element_bytes
    cost = f"{number(fix.num_extra_bytes)} bytes more ({percent(fix.num_extra_bytes / plain)})"
    return f"{count(fix.padding_elements, 'element')} more a {row}, {fix.tile.inner}: {_counted(fix, where)}, {cost}"


def _counted(fix: Fix, where: str) -> str:
    if fix.census.is_free:
        return f"free {where}"
    return f"{number(fix.census.num_wavefronts)} wavefronts, {number(fix.census.num_ideal_wavefronts)} at best"


# ---------------------------------------------------------------------------------------------- several accesses
def joint_verdict_of(joint: JointStudy) -> str:
    """Verdict on several accesses in one sentence."""
    costs = [
        f"{study.access.op} takes {study.instructions[study.worst].num_wavefronts} of "
        f"{study.instructions[study.worst].num_ideal_wavefronts}"
        for study in joint.studies
    ]
    finding = f"wavefronts, against the fewest: {', '.join(costs)}"
    fix, access = joint.fix, joint.studies[0].access
    if joint.census.is_free:
        return f"{finding}; all are free of conflicts, side by side over the tile"
    if fix is None:
        searched = f"no swizzle and no padding of {row_word(access)}s that was searched helps"
        return f"{finding}; {searched}: let lanes take other elements"
    padding = f"{count(fix.padding_elements, 'element')} more a {row_word(access)}"
    what = padding if fix.padding_elements else _short(fix)
    if fix.census.is_free:
        return f"{finding}; {what} frees {'both' if len(joint.studies) == 2 else 'all'}"
    saved = f"{number(joint.census.num_wavefronts)} wavefronts in all to {number(fix.census.num_wavefronts)}"
    return f"{finding}; no swizzle and no padding that was searched frees all, {what} does best, from {saved}"


def render_joint(
    joint: JointStudy, console: Console, *, dtype_name: str, remarks: Sequence[str], next_command: str | None
) -> None:
    """Print several accesses to one tile: the cost of each, and the one layout that suits all."""
    access = joint.studies[0].access
    lanes = [lanes_words(study.access, study.instructions[study.worst]) for study in joint.studies]
    console.print()
    console.print(facts_table((
        ("tile", tile_words(access, dtype_name)), ("swizzle", swizzle_words(joint.tile)),
        *(("access", f"{study.access.op}: {words}") for study, words in zip(joint.studies, lanes, strict=True)),
        *(row for study in joint.studies for row in source_rows(study.access)),
    )))
    console.print()
    _print_costs(joint.studies, console)
    console.print(facts_table((
        ("as it is", _counted_words(joint.census.num_wavefronts, joint.census.num_ideal_wavefronts)),
        ("one swizzle", _swizzle_words(joint.swizzle, joint.tile, "side by side")),
        ("one padding", _padding_words(access, joint.padding, "side by side")),
    )))
    console.print()
    _print_end(remarks, joint_verdict_of(joint), next_command, console)


def _print_costs(studies: Sequence[Study], console: Console) -> None:
    titles = ("access", "wavefronts", "ideal", "side by side", "ideal", "conflict", "who collides")
    table = plain_table("", *titles, ends=2)
    for study in studies:
        found, over_tile = study.instructions[study.worst], study.census
        worst = max(found.phases, key=lambda phase: phase.num_ways)
        table.add_row(
            study.access.op, str(found.num_wavefronts), str(found.num_ideal_wavefronts), number(over_tile.num_wavefronts),
            number(over_tile.num_ideal_wavefronts), _conflict(found), who_collides(worst, most=1),
        )
    console.print(table)
    console.print()


def _counted_words(num_wavefronts: int, num_ideal_wavefronts: int) -> str:
    return f"{number(num_wavefronts)} wavefronts side by side, {number(num_ideal_wavefronts)} at best"


def joint_document(joint: JointStudy, *, dtype_name: str, remarks: Sequence[str]) -> dict[str, Any]:
    """JSON document of several accesses to one tile: ``accesses`` lists the document of each alone."""
    return {
        "layout": str(joint.tile.inner), "dtype": dtype_name, "swizzle": _swizzle_document(joint.tile),
        "accesses": [banks_document(study, dtype_name=dtype_name, remarks=()) for study in joint.studies],
        "offset_elements": joint.tile.offset,
        "side_by_side": {
            "num_wavefronts": joint.census.num_wavefronts, "num_ideal_wavefronts": joint.census.num_ideal_wavefronts,
        },
        "mends": {
            "swizzle": _fix_document(joint.swizzle), "padding": _fix_document(joint.padding),
            "best": _fix_document(joint.fix),
        },
        "remarks": list(remarks), "verdict": joint_verdict_of(joint),
    }


# ---------------------------------------------------------------------------------------------- JSON
def banks_document(study: Study, *, dtype_name: str, remarks: Sequence[str]) -> dict[str, Any]:
    """JSON document of a study."""
    access = study.access
    return {
        "layout": str(access.tile.inner), "dtype": dtype_name, "access": access.op,
        "threads": None if access.threads is None else str(access.threads), "at": list(access.at),
        "swizzle": _swizzle_document(access.tile), "rule": access.rule.evidence, "sources": source_document(access),
        "instructions": [_instruction_document(found) for found in study.instructions],
        "offset_elements": access.tile.offset,
        "side_by_side": {
            "num_tiles": access.num_tiles, "num_tiles_unaligned": access.num_tiles_unaligned,
            "num_tiles_beyond": access.num_tiles_beyond, "num_tiles_with_conflicts": study.census.num_tiles_with_conflicts,
            "num_wavefronts": study.census.num_wavefronts, "num_ideal_wavefronts": study.census.num_ideal_wavefronts,
        },
        "mends": {
            "swizzle": _fix_document(study.swizzle), "formula": _fix_document(study.formula),
            "padding": _fix_document(study.padding),
        },
        "remarks": list(remarks), "verdict": verdict_of(study),
    }


def _instruction_document(found: Instruction) -> dict[str, Any]:
    return {
        "num_wavefronts": found.num_wavefronts, "num_ideal_wavefronts": found.num_ideal_wavefronts,
        "num_data_wavefronts": found.num_data_wavefronts, "num_ways": found.num_ways,
        "places": list(found.places), "addresses": list(found.addresses),
        "phases": [
            {
                "lanes": list(phase.lanes), "num_wavefronts": phase.num_wavefronts,
                "num_ideal_wavefronts": phase.num_ideal_wavefronts, "num_ways": phase.num_ways,
                "collisions": [
                    {"first_bank": c.first_bank, "last_bank": c.last_bank, "lanes": list(c.lanes),
                     "words": [list(words) for words in c.words]}
                    for c in phase.collisions
                ],
            }
            for phase in found.phases
        ],
        "turns": found.turns.tolist(),
    }


def _swizzle_document(tile: ByteLayout) -> dict[str, str | None]:
    if not tile.swizzle.num_bits:
        return {"elements": "none", "bytes": "none"}
    elements = in_elements(tile)
    return {"elements": None if elements is None else str(elements), "bytes": str(tile.swizzle)}


def _fix_document(fix: Fix | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    return {
        "layout": str(fix.tile.inner), "padding_elements": fix.padding_elements, "num_extra_bytes": fix.num_extra_bytes,
        "swizzle": _swizzle_document(fix.tile), "num_wavefronts": fix.census.num_wavefronts, "is_free": fix.census.is_free,
    }
