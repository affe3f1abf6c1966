"""What a compiler made of a kernel besides its copies, MMAs, waits and stores: instructions, order, code addresses.

In: figures read from SASS, given in a TOML file, or estimated. Out: :class:`CompiledCode`, which kernel models read.

Cycles are those of one warp alone, in order, with the stalls of the compiler's schedule
(:mod:`gpusim.evidence.toolchain.issue_latency`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from gpusim.errors import ConfigError, nearest

Source = Literal["sass", "given", "estimated"]
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class MainloopCode:
    """A k-step of the math warps, besides math, fragment loads, waits and copies. None: as the source code has it."""

    chain_cycles: float
    """Cycles of a k-step."""
    instructions: float | None = None
    """Instructions of a k-step of FFMA. Each takes an issue slot, also where ``chain_cycles`` are fewer."""
    imad_wide_per_copy: float
    """Mean number of IMAD.WIDE for the address of a cp.async. They do not overlap with wgmma."""
    math_before_copies: float | None = None
    """K-slices of mma.sync before a k-step's copies, on average."""
    math_before_barrier: float | None = None
    """K-slices of mma.sync before the wait for the next stage and its barrier."""
    math_before_use: float | None = None
    """K-slices of mma.sync before the first use of fragments that are loaded after the copies."""
    fma_bank_reads: float | None = None
    """Mean registers that an FFMA reads from the fuller register bank."""
    wgmma_serialized: bool
    """Whether a wait for all groups follows each wgmma (ptxas warning C7510)."""
    wgmma_depth: int | None = None
    """Groups that the wait of a k-step leaves in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCode:
    """TMA copies of a k-step: of the producer warp, or of the warp that issues them."""

    chain_cycles: float
    """Cycles of a k-step, from one try_wait to the next. Ten cycles of a producer's loop head are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrologueCode:
    """A CTA before its first tile: mbarrier set-up and warp roles."""

    chain_cycles: float
    """Cycles of the warp that initializes the mbarriers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileSchedulerCode:
    """Coordinates of a tile, which every role computes before it."""

    chain_cycles: float
    """Cycles without IMAD.WIDE and IMAD.HI."""
    chain_during_wgmma_cycles: float
    """Cycles of the same code while another warpgroup's wgmma runs, where that is more."""
    chain_after_turn_cycles: float
    """Cycles between the wait for a turn and the first stage of a pingpong consumer."""
    imad_wide: float
    """IMAD.WIDE and IMAD.HI of a warp, which do not overlap with wgmma."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpilogueCode:
    """Addresses and bounds of an epilogue, besides conversion and stores."""

    chain_cycles: float
    """Cycles without IMAD.WIDE and IMAD.HI."""
    chain_during_wgmma_cycles: float
    """Cycles of the same code while another warpgroup's wgmma runs, where that is more."""
    imad_wide: float
    """IMAD.WIDE and IMAD.HI of a warp, which do not overlap with wgmma."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLayout:
    """Byte offsets (begin, end) of code from the kernel's first instruction; (0, 0): unknown.

    With caches flushed, code beyond the first 66 KiB waits for DRAM when it first runs.
    """

    producer: tuple[int, int] = (0, 0)
    """Code of the producer, until after the copies of the first k-step."""
    epilogue: tuple[int, int] = (0, 0)
    """Code of the epilogue: stores of D or of a split-K part, or reductions."""
    last_part: tuple[int, int] = (0, 0)
    """Code of the last split-K part after its counter: zeros, and D."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCode:
    """Everything about a kernel that its compiler decides. One record replaces options that were read off SASS."""

    source: Source
    origin: str = ""
    """Kernel or file that ``source`` refers to, for example ``kernel.cubin:entry``."""
    registers: int | None = None
    """Registers of a thread at launch; None: estimated from tile and schedule."""
    math: str = ""
    """Math as SASS has it (``wgmma``, ``mma_sync``, ``fma``); empty: not known."""
    copy: str = ""
    """Copies to shared memory as SASS has them (``tma``, ``cp_async``, ``ldg``); empty: not known."""
    mainloop: MainloopCode
    producer: ProducerCode
    prologue: PrologueCode
    tile_scheduler: TileSchedulerCode
    epilogue: EpilogueCode
    layout: CodeLayout = CodeLayout()

    @property
    def text(self) -> str:
        """The source in words.

        >>> NO_CODE.text, replace(NO_CODE, source="sass", origin="k.cubin:gemm").text
        ('given', 'read from k.cubin:gemm')
        """
        verb = {"sass": "read from", "given": "given in", "estimated": "estimated"}[self.source]
        return f"{verb} {self.origin}" if self.origin and self.source != "estimated" else verb.split()[0]

    def replaced(self, **parts: Any) -> CompiledCode:
        """The record with other values; a mapping changes single fields of a part.

        >>> NO_CODE.replaced(mainloop={"chain_cycles": 302.0}, registers=168).mainloop.chain_cycles
        302.0
        """
        changed = {
            name: replace(getattr(self, name), **value) if isinstance(value, Mapping) else value
            for name, value in parts.items()
        }
        return replace(self, **changed)

    def as_toml(self) -> str:
        """Text of the TOML file that :func:`read_code` reads. Fields that are None are left out."""
        lines = [] if self.registers is None else [f"registers = {self.registers}"]
        for name in PARTS:
            part = getattr(self, name)
            lines += ["", f"[{name}]"]
            for item in fields(part):
                value = getattr(part, item.name)
                if value is not None:
                    lines.append(f"{item.name} = {_toml_value(value)}")
        return "\n".join(lines).lstrip("\n") + "\n"


PARTS = ("mainloop", "producer", "prologue", "tile_scheduler", "epilogue", "layout")
"""Tables of a TOML file with compiled code."""

NO_CODE = CompiledCode(
    source="given",
    mainloop=MainloopCode(chain_cycles=0.0, imad_wide_per_copy=0, wgmma_serialized=False),
    producer=ProducerCode(chain_cycles=0.0),
    prologue=PrologueCode(chain_cycles=0.0),
    tile_scheduler=TileSchedulerCode(
        chain_cycles=0.0, chain_during_wgmma_cycles=0.0, chain_after_turn_cycles=0.0, imad_wide=0.0
    ),
    epilogue=EpilogueCode(chain_cycles=0.0, chain_during_wgmma_cycles=0.0, imad_wide=0.0),
)
"""A kernel without any instructions besides those of its model. No real kernel is like this."""


def read_code(path: Path) -> CompiledCode:
    """Compiled code that a TOML file gives.

    Raises:
        ConfigError: there is no such file, it is no TOML, or it is no record of compiled code.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"compiled code: {path} cannot be read ({error}), wants a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"compiled code: {path} is no TOML ({error})") from None
    return code_from(document, source="given", origin=str(path))


def code_from(document: Mapping[str, Any], *, source: Source, origin: str = "") -> CompiledCode:
    """Compiled code of a TOML document.

    >>> import tomllib
    >>> code_from(tomllib.loads(NO_CODE.as_toml()), source="given") == NO_CODE
    True

    Raises:
        ConfigError: a key is unknown or missing, or a value is of another kind.
    """
    where = f"compiled code{f' {origin}' if origin else ''}"
    found = {"layout": {}, **document}
    _check_keys(where, found, {"registers", *PARTS}, PARTS)
    hints = get_type_hints(CompiledCode)
    parts = {name: _part(f"{where}: [{name}]", found[name], hints[name]) for name in PARTS}
    registers = found.get("registers")
    if registers is not None and (not isinstance(registers, int) or not 24 <= registers <= 255):
        raise ConfigError(f"{where}: registers is {registers!r}, wants a number from 24 to 255")
    return CompiledCode(source=source, origin=origin, registers=registers, **parts)


def _check_keys(where: str, found: Mapping[str, Any], known: Any, needed: Any) -> None:
    for key in found:
        if key not in known:
            raise ConfigError(f"{where}: {key} is unknown; {nearest(key, sorted(known))}")
    for key in needed:
        if key not in found:
            raise ConfigError(f"{where}: {key} is missing, wants a value")


def _part(where: str, found: Any, kind: type[Part]) -> Part:
    if not isinstance(found, Mapping):
        raise ConfigError(f"{where} is {found!r}, wants a table")
    assert is_dataclass(kind)
    items = {item.name: item for item in fields(kind)}
    _check_keys(where, found, items, [name for name, item in items.items() if item.default is MISSING])
    hints = get_type_hints(kind)
    return kind(**{name: _value(f"{where} {name}", value, str(hints[name])) for name, value in found.items()})


def _value(where: str, value: Any, hint: str) -> Any:
    """A value of the hinted type.

    Raises:
        ConfigError: it is of another type, negative or not finite.
    """
    if "bool" in hint:
        if not isinstance(value, bool):
            raise ConfigError(f"{where} is {value!r}, wants true or false")
        return value
    if "tuple" in hint:
        is_range = isinstance(value, list | tuple) and len(value) == 2 and all(type(end) is int for end in value)
        if not is_range or not (tuple(value) == (0, 0) or 0 <= value[0] < value[1]):
            raise ConfigError(f"{where} is {value!r}, wants the byte offsets of its begin and of its end, which is behind")
        return tuple(value)
    is_integer = "float" not in hint
    if isinstance(value, bool) or not isinstance(value, int if is_integer else int | float):
        raise ConfigError(f"{where} is {value!r}, wants a {'whole ' if is_integer else ''}number")
    if not isfinite(value) or value < 0:
        raise ConfigError(f"{where} is {value!r}, wants a number from 0 on")
    return value if is_integer else float(value)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(hex, value))}]" if isinstance(value, tuple) else f"{value:.10g}"
