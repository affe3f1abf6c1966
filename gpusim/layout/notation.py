"""Parser of CuTe's notation: ``((2,4),8):((1,16),2)`` and ``Sw<3,3,3> o 0 o (8,64):(64,1)``."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from gpusim.errors import LayoutError, nearest
from gpusim.layout.int_tuple import ScaledBasis
from gpusim.layout.layout import Layout, method_of_layout
from gpusim.layout.swizzle import SWIZZLE_MODES, ByteLayout, ComposedLayout, Swizzle, element_bytes, mode_of, swizzle_mode

_SWIZZLE = re.compile(r"^S(?:w|wizzle)?<(\d+),(\d+),(-?\d+)>(?:_smem_ptr\[(\d+)b\])?(.*)$")
_THREE_NUMBERS = re.compile(r"(?:(\d+),(\d+),(-?\d+))|(?:(?:S(?:w|wizzle)?)?<(\d+),(\d+),(-?\d+)>)")
_BARE = re.compile(r"[^(),]+(,[^(),]+)+")
_LEAF = re.compile(r"_?(-?\d+)((?:@\d+)*)")


MAX_TEXT = 4000
MAX_NESTING = 64
MAX_DIGITS = 18
"""Maximum number of digits of a number; ``MAX_TEXT``: of characters; ``MAX_NESTING``: of nested parentheses. No real layout
comes near. Beyond these limits, errors would be Python's own."""


def compact(text: str) -> str:
    """``text`` without blanks that separate nothing.

    >>> compact("(4, 8) : (8, 1)"), compact("Sw<3,3,3> o 0 o 8:1")
    ('(4,8):(8,1)', 'Sw<3,3,3>o0o8:1')

    Raises:
        LayoutError: blanks within a number, or text that is too long, too deeply nested, or has too large numbers.
    """
    torn = re.search(r"[0-9_@]\s+[0-9_@]", text)
    if torn is not None:
        raise LayoutError(f"{text[:60]!r}: {torn[0]!r} has a blank in a number: use a comma, or no blank")
    if len(text) > MAX_TEXT:
        raise LayoutError(f"{text[:30]!r}...: {len(text)} characters: use at most {MAX_TEXT}")
    depth = max(accumulate(1 if sign == "(" else -1 for sign in text if sign in "()"), default=0)
    if depth > MAX_NESTING:
        raise LayoutError(f"{text[:30]!r}...: {depth} parentheses deep: use at most {MAX_NESTING}")
    large = re.search(rf"\d{{{MAX_DIGITS + 1},}}", text)
    if large is not None:
        raise LayoutError(f"{large[0][:20]}... has {len(large[0])} digits: use numbers of at most {MAX_DIGITS}")
    far = max((int(mode) for mode in re.findall(r"@(\d+)", text)), default=0)
    if far >= MAX_NESTING:
        raise LayoutError(f"{text[:60]!r}: a basis of mode {far}: use modes below {MAX_NESTING}")
    return "".join(letter for letter in text if not letter.isspace())


@dataclass(frozen=True, slots=True)
class Notation:
    """A text, and a piece of it without blanks whose letters keep their positions in the text.

    >>> full = Notation.of("(4, 8) : 8")
    >>> print(full.bare, full.piece(6, 7).bare, full.piece(6, 7).place(0))
    (4,8):8 8 9
    """

    typed: str
    bare: str
    places: tuple[int, ...]
    """Positions of the letters of ``bare`` in the text, and of its end."""

    @classmethod
    def of(cls, text: str | Notation) -> Notation:
        """The notation of a complete text.

        Raises:
            LayoutError: see ``compact``.
        """
        if isinstance(text, Notation):
            return text
        places = [place for place, letter in enumerate(text) if not letter.isspace()]
        return cls(text, compact(text), (*places, len(text)))

    def piece(self, start: int, end: int | None = None) -> Notation:
        """The part of ``bare`` from ``start`` to ``end``, exclusive."""
        end = len(self.bare) if end is None else end
        return Notation(self.typed, self.bare[start:end], self.places[start : end + 1])

    def split(self, sign: str) -> list[Notation]:
        """The pieces between the occurrences of ``sign``."""
        cuts = [-1, *(i for i, letter in enumerate(self.bare) if letter == sign), len(self.bare)]
        return [self.piece(before + 1, after) for before, after in pairwise(cuts)]

    def place(self, index: int) -> int:
        """Position of the letter ``index`` of ``bare`` in the original text."""
        return self.places[index]

    def rest(self, index: int) -> str:
        """The original text from the letter ``index`` of ``bare`` to the end of the piece."""
        return self.typed[self.places[index] : self.places[-1]].rstrip()

    def refusal(self, sentence: str) -> LayoutError:
        """An error that quotes the original text."""
        return LayoutError(f"{self.typed!r}: {sentence}")


@method_of_layout
def parse_layout(text: str | Notation) -> Layout | ComposedLayout:
    """A layout, or a swizzle over an offset and a layout, from CuTe's notation. Blanks are ignored.

    >>> parse_layout("(4,8):(8,1)")
    Layout((4, 8), (8, 1))
    >>> parse_layout("Sw<2,3,3> o 8 o 64:1")
    ComposedLayout(Swizzle(2, 3, 3), 8, Layout(64, 1))

    Raises:
        LayoutError: text that is no layout; the error names the position.
    """
    text = Notation.of(text)
    match = _SWIZZLE.match(text.bare)
    if match is None:
        _refuse_swizzle(text.bare)
        return _plain(text)
    if match[4] is not None:
        raise LayoutError(f"{text.typed!r} is in bytes: use parse_byte_layout")
    parts = text.piece(match.start(5)).split("o")
    if len(parts) not in (2, 3) or parts[0].bare:
        raise text.refusal("use Sw<B,M,S> o offset o shape:stride")
    offset = _number(parts[1]) if len(parts) == 3 else 0
    return ComposedLayout(_swizzle(match), offset, _plain(parts[-1]))


def parse_byte_layout(text: str | Notation) -> ByteLayout:
    """A layout in shared memory with a swizzle of byte addresses, from CuTe's notation.

    >>> parse_byte_layout("Sw<3,4,3>_smem_ptr[16b] o (8,64):(64,1)")
    ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16)
    >>> parse_byte_layout("Sw<3,4,3>_smem_ptr[16b] o 64 o (8,64):(64,1)").offset  # in elements
    64

    Raises:
        LayoutError: text that is no such layout.
    """
    text = Notation.of(text)
    match = _SWIZZLE.match(text.bare)
    if match is None:
        _refuse_swizzle(text.bare)
    parts = [] if match is None else text.piece(match.start(5)).split("o")
    if match is None or match[4] is None or len(parts) not in (2, 3) or parts[0].bare:
        raise text.refusal(
            "use Sw<B,M,S>_smem_ptr[bits b] o shape:stride, without blanks in the brackets, or with o offset o"
        )
    offset = _number(parts[1]) if len(parts) == 3 else 0
    return ByteLayout(_swizzle(match), _plain(parts[-1]), element_bits=int(match[4]), offset=offset)


def _refuse_swizzle(bare: str) -> None:
    """Refuse a swizzle without exactly three numbers."""
    found = re.match(r"S(?:w|wizzle)?<([^>]*)>", bare)
    if found is not None and not re.fullmatch(r"\d+,\d+,-?\d+", found[1]):
        raise LayoutError(f"{found[0]!r}: a swizzle has three numbers: use Sw<B,M,S>, for example Sw<3,3,3>")


def _swizzle(match: re.Match[str]) -> Swizzle:
    return Swizzle(int(match[1]), int(match[2]), int(match[3]))


def parse_swizzle(text: str, element_bits: int) -> Swizzle:
    """The swizzle **of byte addresses** for ``B,M,S`` in elements, or for ``none``, ``32B``, ``64B``, ``128B``.

    CuTe's ``Sw<B,M,S>`` is also accepted.

    >>> print(parse_swizzle("3,3,3", 16), parse_swizzle("128B", 16), parse_swizzle("Sw<3,4,3>", 16))
    Sw<3,4,3> Sw<3,4,3> Sw<3,5,3>

    Raises:
        LayoutError: neither form, bit fields that overlap, or an element width that is no multiple of a byte.
    """
    if text in SWIZZLE_MODES:
        return swizzle_mode(text)
    numbers = _THREE_NUMBERS.fullmatch(compact(text))
    if numbers is None:
        hint = nearest(text, SWIZZLE_MODES)
        more = f"; {hint}" if hint.startswith("did") else ""
        raise LayoutError(f"swizzle {text!r}: use B,M,S in elements, for example 3,3,3, or {', '.join(SWIZZLE_MODES)}{more}")
    return Swizzle(*(int(number) for number in numbers.groups() if number is not None)).downcast(element_bytes(element_bits))


def units_remark(text: str, element_bits: int, *, is_short: bool = False) -> str | None:
    """A remark if ``B,M,S`` in elements looks like a mode of TMA and wgmma, whose numbers count bytes; otherwise None.

    ``is_short`` omits the advice, for sentences that contain it.

    >>> print(units_remark("3,4,3", 16))
    Sw<3,4,3> counts elements here and is Sw<3,5,3> in bytes: it is not the 128B mode of TMA and wgmma, whose Sw<3,4,3> \
counts bytes; in elements of 16 bits that is Sw<3,3,3>: use 3,3,3 or 128B
    >>> print(units_remark("3,4,3", 16, is_short=True))
    Sw<3,4,3> counts elements here; the 128B mode, which counts bytes, is Sw<3,3,3> in elements of 16 bits
    >>> units_remark("3,4,3", 8), units_remark("3,3,3", 16), units_remark("128B", 16)
    (None, None, None)

    Raises:
        LayoutError: see ``parse_swizzle``.
    """
    meant = parse_swizzle(text, element_bits)
    factor = element_bytes(element_bits)
    if text in SWIZZLE_MODES or factor == 1:
        return None
    typed = meant.to_units(factor)
    mode = mode_of(typed)
    if mode in (None, "none"):
        return None
    right = typed.to_units(factor)
    if is_short:
        in_elements = f"{right} in elements of {element_bits} bits"
        return f"{typed} counts elements here; the {mode} mode, which counts bytes, is {in_elements}"
    return (
        f"{typed} counts elements here and is {meant} in bytes: it is not the {mode} mode of TMA and wgmma, whose {typed} "
        f"counts bytes; in elements of {element_bits} bits that is {right}: use {right.num_bits},{right.base},{right.shift} "
        f"or {mode}"
    )


def show_swizzle(swizzle: Swizzle, element_bits: int) -> str:
    """A swizzle of byte addresses as text: the name of its mode, or else ``B,M,S`` in elements.

    A swizzle that moves parts of an element is shown in bytes.

    >>> [show_swizzle(Swizzle(3, base, 3), 16) for base in (4, 5)], show_swizzle(Swizzle(0, 9, 3), 16)
    (['128B', '3,4,3'], 'none')
    """
    mode = mode_of(swizzle)
    if mode is not None:
        return mode
    low = element_bytes(element_bits).bit_length() - 1
    if swizzle.base < low:
        return f"{swizzle} of bytes"
    return f"{swizzle.num_bits},{swizzle.base - low},{swizzle.shift}"


def _number(text: Notation) -> int:
    if not re.fullmatch(r"_?\d+", text.bare):
        raise text.refusal(f"the offset {text.rest(0)!r} is no number: use 0 or more")
    return int(text.bare.lstrip("_"))


def _plain(text: Notation) -> Layout:
    if not re.match(r"[(\d_:,.-]", text.bare):
        raise text.refusal(f"no layout at position {text.place(0)}: use shape:stride, for example (8,64):(64,1)")
    colon = text.bare.find(":")
    parts = [text] if colon < 0 else [text.piece(0, colon), text.piece(colon + 1)]
    if any(_BARE.fullmatch(part.bare) for part in parts):
        closed = ":".join(f"({part.bare})" if _BARE.fullmatch(part.bare) else part.bare for part in parts)
        raise text.refusal(f"parentheses are missing: use {closed}")
    return Layout(*(parse_int_tuple(part) for part in parts))


def parse_int_tuple(text: str | Notation) -> Any:
    """An IntTuple from CuTe's notation. Parentheses always make a tuple, and ``_`` alone is None.

    >>> parse_int_tuple("((2,_4),8)"), parse_int_tuple("(7)"), parse_int_tuple("(1@0,2@1)")
    (((2, 4), 8), (7,), (E(0), 2 * E(1)))
    >>> parse_int_tuple("(_,3)")
    (None, 3)

    Raises:
        LayoutError: text that is no IntTuple; the error names the position.
    """
    text = Notation.of(text)
    if _BARE.fullmatch(text.bare):
        raise text.refusal(f"parentheses are missing: use ({text.bare})")
    value, end = _tree(text, 0)
    if end != len(text.bare):
        raise text.refusal(f"{text.rest(end)!r} is left over at position {text.place(end)}: {_advice(text.rest(end))}")
    return value


def _advice(rest: str) -> str:
    """Advice on the ``rest`` of a text that could not be parsed."""
    if rest[0] != "o":
        return "remove it"
    inner = rest[1:].strip()
    operand = shlex.quote(inner) if inner and "o" not in inner else "LAYOUT"
    return f"use --composition {operand} of gpusim layout, or composition() in Python"


def _tree(text: Notation, start: int) -> tuple[Any, int]:
    bare = text.bare
    if bare[start : start + 1] == "(":
        return _tuple(text, start)
    match = _LEAF.match(bare, start)
    if match is None and bare[start : start + 1] == "_":
        return None, start + 1
    if match is None:
        raise text.refusal(f"no number at position {text.place(start)}: use integers and parentheses")
    fraction = re.match(r"-?[\d.]+", bare[start:])
    if fraction is not None and "." in fraction[0]:
        raise text.refusal(f"{fraction[0]} is no integer: use integers and parentheses")
    value, modes = int(match[1]), tuple(int(mode) for mode in reversed(match[2].split("@")[1:]))
    return (ScaledBasis(value, modes) if modes else value), match.end()


def _tuple(text: Notation, start: int) -> tuple[Any, int]:
    items: list[Any] = []
    end = start
    while not items or text.bare[end : end + 1] == ",":
        item, end = _tree(text, end + 1)
        items.append(item)
    if text.bare[end : end + 1] != ")":
        raise text.refusal(f"the parenthesis at position {text.place(start)} is not closed: add ')'")
    return tuple(items), end + 1
