"""Explorer page of bank conflicts: a shared-memory tile, an access, a swizzle; wavefronts, collisions and fixes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpusim.errors import GpusimError
from gpusim.explore.answers import Answer, Figure, Offer, Question, RefusedError, Shown, Table, field_of
from gpusim.layout import parse_swizzle
from gpusim.report.banks import (
    fix_rows,
    lanes_words,
    phase_remarks,
    ranges,
    swizzle_words,
    tile_words,
    verdict_of,
    ways,
    who_collides,
)
from gpusim.report.layout_arguments import BanksAsked
from gpusim.report.number_format import count
from gpusim.report.plots.banks import plot_banks
from gpusim.workload.smem.bank_conflict_fixes import Fix, Study, study
from gpusim.workload.smem.banks import Instruction

MOST_EXTENT, MOST_PAD = 4096, 1024

COLUMN = "32:1@0"
"""Threads of a warp that reads a column: lane i in row i."""

EVIDENCE = {
    "measured": "counted on hardware", "vendor": "published by the vendor", "paper": "published",
    "inferred": "inferred from what was counted", "guess": "a guess",
}
"""Meaning of the first word of a rule's source."""


class BanksQuestion(Question):
    """Fields of the form of bank conflicts."""

    tile: Literal["rows", "typed"] = "rows"
    rows: Annotated[int, Field(ge=1, le=MOST_EXTENT)] = 64
    columns: Annotated[int, Field(ge=1, le=MOST_EXTENT)] = 64
    order: Literal["row_major", "column_major"] = "row_major"
    pad: Annotated[int, Field(ge=0, le=MOST_PAD)] = 0
    layout: str = "(64,64):(64,1)"
    dtype: str = "bf16"
    access: str = "ldmatrix_x4"
    lanes: Literal["usual", "column", "typed"] = "usual"
    threads: str = COLUMN
    at: str = ""
    swizzle: Literal["none", "32B", "64B", "128B", "typed"] = "none"
    bms: str = "3,3,3"

    def as_layout(self) -> str:
        """CuTe notation of the tile."""
        if self.tile == "typed":
            return self.layout
        rows, columns = self.rows, self.columns
        strides = f"{columns + self.pad},1" if self.order == "row_major" else f"1,{rows + self.pad}"
        return f"({rows},{columns}):({strides})"

    def asked(self) -> BanksAsked:
        """Request to ``gpusim banks`` with these fields."""
        threads = {"usual": None, "column": COLUMN, "typed": self.threads}[self.lanes]
        swizzle = {"none": None, "typed": self.bms}.get(self.swizzle, self.swizzle)
        return BanksAsked(
            layout=self.as_layout(), dtype=self.dtype, access=(self.access,), threads=(threads,), swizzle=swizzle,
            at=self.at or None,
        )

    def label(self) -> str:
        """Summary of the request in a few words."""
        swizzle = {"none": "no swizzle", "typed": f"swizzle {self.bms}"}.get(self.swizzle, f"swizzle {self.swizzle}")
        return f"{self.access} of {self.as_layout()} {self.dtype}, {swizzle}"

    def _fields(self) -> dict[str, str]:
        """Form field of each option of the command line."""
        return {
            "layout": "layout" if self.tile == "typed" else "rows", "dtype": "dtype", "access": "access",
            "swizzle": "bms" if self.swizzle == "typed" else "swizzle",
            "threads": "threads" if self.lanes == "typed" else "lanes", "at": "at",
        }

    def _field_of(self, sentence: str) -> str:
        found = field_of(sentence, self._fields())
        return self._fields()["swizzle"] if not found and "Sw<" in sentence and self.swizzle != "none" else found

    def answer(self) -> Answer:
        """Wavefronts, collisions and bank conflict fixes.

        Raises:
            RefusedError: ``gpusim banks`` refuses the request; the sentence is the same.
        """
        return _answer(self, self.asked(), self.study())

    def study(self) -> Study:
        """Counted wavefronts and conflicts.

        Raises:
            RefusedError: ``gpusim banks`` refuses the request; the sentence is the same.
        """
        try:
            (access,) = self.asked().accesses()
            return study(access)
        except GpusimError as error:
            raise RefusedError(str(error), self._field_of(str(error))) from None


def _answer(question: BanksQuestion, asked: BanksAsked, found: Study) -> Answer:
    access, here, name = found.access, found.instructions[found.worst], asked.element.name
    kind = EVIDENCE[access.rule.evidence.partition(":")[0]]
    several = "" if len(found.instructions) == 1 else f"; the worst of {len(found.instructions)} warp instructions is shown"
    facts = (
        ("tile", tile_words(access, name)), ("swizzle", swizzle_words(access.tile)),
        ("access", f"{access.op}: {count(access.rule.access_bytes, 'byte')} with each address{several}"),
        ("lanes", lanes_words(access, here)), ("rule", f"{kind}: {access.rule.evidence}"),
    )
    fixes = Table(caption="Over the whole tile, and mended", columns=("what", "in words"), rows=fix_rows(found), left=2)
    return Answer(
        page="banks", label=question.label(), verdict=f"{verdict_of(found)}.", command=asked.command(),
        figures=(
            Figure(label="wavefronts", value=here.num_wavefronts, unit=""),
            Figure(label="wavefronts at best", value=here.num_ideal_wavefronts, unit=""),
            Figure(label="conflict", value=here.num_ways, unit="ways", digits=0 if here.num_ways.is_integer() else 1),
            Figure(label="bank conflicts over the whole tile", unit="",
                   value=found.census.num_wavefronts - found.census.num_ideal_wavefronts),
        ),
        facts_title="What was asked", facts=facts, tables=(_phases(here, found), fixes),
        pictures=(Shown.of("Lanes and banks, as they are and mended", plot_banks(found)),),
        remarks=asked.remarks([access]), offers=_offers(question, asked, found),
    )


def _phases(here: Instruction, found: Study) -> Table:
    rows = [
        (str(i), ranges(phase.lanes), str(phase.num_wavefronts), str(phase.num_ideal_wavefronts), ways(phase.num_ways),
         who_collides(phase, most=4))
        for i, phase in enumerate(here.phases)
    ]
    if len(rows) > 1:
        total = (str(here.num_wavefronts), str(here.num_ideal_wavefronts), ways(here.num_ways))
        rows.append(("all", "", *total, ""))
    return Table(
        caption="Phases: lanes that are served together, and which of them collide",
        columns=("phase", "lanes", "wavefronts", "ideal", "conflict", "who collides"), rows=tuple(rows), left=6,
        notes=tuple(phase_remarks(here, found.access.rule)),
    )


def _offers(question: BanksQuestion, asked: BanksAsked, found: Study) -> tuple[Offer, ...]:
    """Bank conflict fixes, as requests to continue with."""
    offers = []
    if found.swizzle is not None and found.swizzle.swizzle_bytes != found.access.tile.swizzle:
        offers += _offer(question, asked, found.swizzle, "Take the smallest swizzle")
    if found.padding is not None and found.padding.padding_elements:
        offers += _offer(question, asked, found.padding, "Take the padding instead")
    return tuple(offers)


def _offer(question: BanksQuestion, asked: BanksAsked, fix: Fix, words: str) -> list[Offer]:
    mended = asked.fixed(fix)
    swizzle: dict[str, str] = {"swizzle": "none"}
    if mended.swizzle is not None:
        mode = next((mode for mode in ("32B", "64B", "128B") if _is_mode(mended, mode)), None)
        swizzle = {"swizzle": mode} if mode is not None else {"swizzle": "typed", "bms": mended.swizzle}
    pad = fix.padding_elements
    if question.tile == "rows" and mended.layout == question.model_copy(update={"pad": question.pad + pad}).as_layout():
        tile: dict[str, object] = {"pad": question.pad + pad}
    elif question.tile == "rows" and mended.layout == question.as_layout():
        tile = {}
    else:
        tile = {"tile": "typed", "layout": mended.layout}
    following = question.model_copy(update={**tile, **swizzle})
    return [Offer(label=f"{words}: {_fix_words(following, fix)}", query=following.query())]


def _is_mode(mended: BanksAsked, mode: str) -> bool:
    bits = mended.element.bits
    return mended.swizzle is not None and parse_swizzle(mode, bits) == parse_swizzle(mended.swizzle, bits)


def _fix_words(following: BanksQuestion, fix: Fix) -> str:
    if fix.padding_elements:
        return f"{count(fix.padding_elements, 'element')} more a row"
    return {"none": "none", "typed": following.bms}.get(following.swizzle, following.swizzle)
