"""Parser for CuTe layouts, element types and shared-memory accesses as typed on the command line and in the explorer.

In: texts. Out: layouts and accesses, remarks on them, and the equivalent command line. An error names the option that it
concerns.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError, KernelError, LayoutError

if TYPE_CHECKING:
    from gpusim.layout import Layout, Swizzle
    from gpusim.layout.notation import Notation
    from gpusim.workload.dtypes import DType
    from gpusim.workload.smem.bank_conflict_fixes import Fix
    from gpusim.workload.smem.tile_access import TileAccess


def parse_any(text: str, flag: str) -> Any:
    """Layout in any of CuTe's forms: plain, swizzled in elements, swizzled in bytes (smem_ptr).

    Raises:
        LayoutError: the notation is unknown; the text names the ``flag``.
    """
    from gpusim.layout.notation import Notation

    try:
        return any_layout(Notation.of(text))
    except LayoutError as error:
        raise LayoutError(f"{flag}: {without_layout(error)}") from None


def any_layout(text: Notation) -> Any:
    """Layout of text that was read already, see :func:`parse_any`; errors name no flag.

    Raises:
        LayoutError: the notation is unknown.
    """
    from gpusim.layout import parse_byte_layout, parse_layout

    return parse_byte_layout(text) if "smem_ptr" in text.bare else parse_layout(text)


def without_layout(error: LayoutError) -> str:
    """Error text that can follow a flag, without a leading ``layout``."""
    return str(error).removeprefix("layout").lstrip(": ")


@contextmanager
def naming(flag: str, instead: str = "") -> Iterator[None]:
    """Context whose errors begin with ``flag``, which replaces their beginning ``instead``."""
    try:
        yield
    except (KernelError, LayoutError) as error:
        raise type(error)(f"{flag} {str(error).removeprefix(instead)}") from None


def find_dtype(name: str) -> DType:
    """Element type of ``--dtype``, where only its width matters.

    Raises:
        KernelError: there is no such element type.
    """
    from gpusim.workload.dtypes import dtype_in_memory

    with naming("--dtype", "dtype: "):
        return dtype_in_memory(name)


# ---------------------------------------------------------------------------------------------- banks
@dataclass(frozen=True, slots=True, kw_only=True)
class BanksAsked:
    """Request to ``gpusim banks`` as typed; ``threads`` has one entry per access, None for the usual lanes."""

    layout: str
    dtype: str
    access: tuple[str, ...]
    threads: tuple[str | None, ...]
    swizzle: str | None = None
    at: str | None = None
    sources: tuple[str | None, ...] = ()
    """Where the copies of each access read from; empty if nothing is known of any."""

    @property
    def element(self) -> DType:
        """Element type.

        Raises:
            KernelError: there is no such element type.
        """
        return find_dtype(self.dtype)

    def accesses(self) -> list[TileAccess]:
        """Accesses to the tile.

        Raises:
            GpusimError: an option is invalid.
        """
        from gpusim.layout import ByteLayout, Layout
        from gpusim.workload.smem.smem_ops import SMEM_OPS, smem_op_hint, smem_op_name
        from gpusim.workload.smem.tile_access import TileAccess, smem_tile

        dtype = self.element
        with naming("--access", "atom: "):
            ops = [smem_op_name(name) for name in self.access]
        for name in ops:
            if name not in SMEM_OPS:
                raise LayoutError(f"--access {name!r} is unknown; {smem_op_hint(name)}")
            _check_number(name, dtype)
        tile = parse_any(self.layout, "--layout")
        if self.swizzle is not None and not isinstance(tile, Layout):
            kind = "in bytes" if isinstance(tile, ByteLayout) else "in elements"
            raise ConfigError(f"--swizzle {self.swizzle!r} and a swizzle {kind} in --layout are two; give one of them")
        in_smem = smem_tile(tile, dtype, None if self.swizzle is None else _swizzle(self.swizzle, dtype))
        start = (0, 0) if self.at is None else start_of(self.at, tile.rank)
        return [
            TileAccess(
                op=name, tile=in_smem, threads=None if text is None else plain_lanes(text), at=start,
                sources=None if source is None else plain_lanes(source, "--sources"),
            )
            for name, text, source in zip(ops, self.threads, self._source_of_each(), strict=True)
        ]

    def _source_of_each(self) -> tuple[str | None, ...]:
        return self.sources or (None,) * len(self.access)

    def remarks(self, accesses: Sequence[TileAccess]) -> tuple[str, ...]:
        """Remarks on ``accesses``, the result of this request: mixed-up units, strides that were left out."""
        from gpusim.workload.smem.bank_conflict_fixes import remarks

        in_elements = "smem_ptr" not in self.layout and (self.swizzle is None or "," in self.swizzle)
        sentences = dict.fromkeys(sentence for one in accesses for sentence in remarks(one, is_in_elements=in_elements))
        if any(one.op.startswith("cp_async") and one.sources is None for one in accesses):
            left_out = "conflicts where the copies read from global memory are left out; --sources LAYOUT counts them"
            sentences[left_out] = None
        return (*sentences, *_stride_remark(self.layout, accesses[0]))

    def command(self) -> str:
        """Command line of this request."""
        words = ["gpusim", "banks", "--layout", self.layout, "--dtype", self.dtype]
        for access, threads, source in zip(self.access, self.threads, self._source_of_each(), strict=True):
            words += ["--access", access]
            if any(self.threads):
                words += ["--threads", threads or "_"]
            if any(self.sources):
                words += ["--sources", source or "_"]
        words += ["--at", self.at] if self.at is not None else []
        words += ["--swizzle", self.swizzle] if self.swizzle is not None else []
        return shlex.join(words)

    def fixed(self, fix: Fix) -> BanksAsked:
        """Request for the tile with a bank conflict fix."""
        swizzle, tile = fix.swizzle_elements, fix.tile
        is_plain = bool(tile.offset) or swizzle is None or not swizzle.num_bits
        return BanksAsked(
            layout=str(tile if tile.offset else tile.inner), dtype=self.element.name, access=self.access,
            threads=self.threads, at=self.at, sources=self.sources,
            swizzle=None if is_plain or swizzle is None else f"{swizzle.num_bits},{swizzle.base},{swizzle.shift}",
        )


def lanes_of(
    access: Sequence[str], threads: Sequence[str] | None, flag: str = "--threads", usual: str = "the usual lanes"
) -> tuple[str | None, ...]:
    """``--threads`` or another ``flag`` of each ``--access``; None for the usual.

    Raises:
        ConfigError: some were given, but not one for each access.
    """
    if not threads:
        return (None,) * len(access)
    if len(threads) != len(access):
        lanes, accesses = ("once" if len(given) == 1 else f"{len(given)} times" for given in (threads, access))
        raise ConfigError(f"{flag} is given {lanes}, --access {accesses}; give one for each, _ for {usual}")
    return tuple(None if text.strip() == "_" else text for text in threads)


def _stride_remark(text: str, access: TileAccess) -> list[str]:
    """Remark on a layout of several modes without strides."""
    from gpusim.layout import Layout, LayoutRight

    inner = access.tile.inner
    if ":" in text or "," not in text.rpartition("o")[2]:
        return []
    rows = Layout(inner.shape, LayoutRight)
    return [f"the layout is typed without strides, so that CuTe's column-major ones are taken: {inner}; for rows use {rows}"]


def _check_number(name: str, dtype: DType) -> None:
    """Check that arithmetic is on numbers of the instruction's kind."""
    verb, _, width = name.removeprefix("atom_shared_").removeprefix("red_shared_").rpartition("_")
    if not name.startswith(("atom_shared", "red_shared")) or verb not in ("", "add", "min", "max"):
        return
    if dtype.kind == "float" and width == "b32":
        kind = name.partition("_")[0]
        raise LayoutError(
            f"--access {name}: is of integers, --dtype {dtype.name} is not; use {kind}_shared_add_f32, which is a loop, or "
            "an integer type"
        )
    if width == "f32" and dtype.name != "fp32":
        raise LayoutError(f"--access {name}: is of fp32, --dtype is {dtype.name}; use --dtype fp32")


def _swizzle(text: str, dtype: DType) -> Swizzle:
    from gpusim.layout import parse_swizzle

    with naming("--swizzle", "swizzle "):
        return parse_swizzle(text, dtype.bits)


def plain_lanes(text: str, flag: str = "--threads") -> Layout:
    """Layout of ``--threads`` or another ``flag``.

    Raises:
        LayoutError: the notation is unknown, or has a swizzle.
    """
    from gpusim.layout import Layout

    layout = parse_any(text, flag)
    if not isinstance(layout, Layout):
        raise LayoutError(f"{flag} {text!r} has a swizzle, wants a plain layout; give the tile's with --swizzle")
    return layout


def start_of(text: str, rank: int) -> tuple[int, int]:
    """Coordinate of ``--at`` in a layout of ``rank`` modes.

    Raises:
        ConfigError: it is no such coordinate.
    """
    numbers = re.findall(r"-?\d+", text)
    if not re.fullmatch(r"\(?\s*-?\d+\s*(,\s*-?\d+\s*)?\)?", text) or len(numbers) != rank:
        wanted = "two numbers, for example (0,16)" if rank > 1 else "one number, as the layout has one mode"
        raise ConfigError(f"--at {text!r} is no coordinate of the layout, wants {wanted}")
    return (int(numbers[0]), int(numbers[1])) if rank > 1 else (0, int(numbers[0]))
