"""A warp's access to global memory as text and JSON: sectors, lines, requests, share of bytes used, changes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from gpusim.errors import LayoutError
from gpusim.report.layout_arguments import find_dtype, parse_any, plain_lanes, start_of
from gpusim.report.number_format import count, percent
from gpusim.report.tables import facts_table, plain_table, print_command
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload.gmem.coalescing import Change, Coalescing, GlobalTileAccess, global_tile


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalesceAsked:
    """Request to ``gpusim coalesce`` for a tile as typed; ``threads`` is None for the usual lanes."""

    layout: str
    dtype: str
    access: str
    threads: str | None = None
    at: str | None = None

    def tile_access(self) -> GlobalTileAccess:
        """The access to the tile.

        Raises:
            GpusimError: an option is invalid.
        """
        tile = global_tile(parse_any(self.layout, "--layout"), find_dtype(self.dtype))
        return GlobalTileAccess(
            op=self.access, tile=tile, threads=None if self.threads is None else plain_lanes(self.threads),
            at=(0, 0) if self.at is None else start_of(self.at, parse_any(self.layout, "--layout").rank),
        )

    def changed(self, access: GlobalTileAccess) -> str:
        """Command line of the request after a change of lanes, tile or start."""
        words = ["gpusim", "coalesce", "--layout", str(access.tile.inner), "--dtype", self.dtype, "--access", self.access]
        words += ["--threads", str(access.threads)] if access.threads is not None else []
        return shlex.join([*words, *(["--at", f"({access.at[0]},{access.at[1]})"] if any(access.at) else [])])


def byte_offsets(text: str) -> NDArray[np.int64]:
    """Byte offsets of lanes: numbers with commas, or a layout from lane to byte.

    Raises:
        LayoutError: neither of the two.
    """
    if re.fullmatch(r"\s*\d+(\s*[,\s]\s*\d+)*\s*,?\s*", text) and len(numbers := re.findall(r"\d+", text)) <= WARP_SIZE:
        if max(map(len, numbers)) > 18:
            raise LayoutError(f"--offsets {text[:40]!r} has an offset beyond 2^59: use smaller ones")
        return np.array([int(each) for each in numbers], dtype=np.int64)
    if ":" not in text:
        raise LayoutError(f"--offsets {text[:40]!r} wants up to {WARP_SIZE} bytes like 0,4,8, or a layout like 32:4")
    layout = plain_lanes(text, "--offsets")
    if layout.size > WARP_SIZE or layout.has_basis:
        raise LayoutError(f"--offsets {text!r} wants a layout from up to {WARP_SIZE} lanes to bytes, for example 32:4")
    return np.asarray(layout(np.arange(layout.size)), dtype=np.int64)


def coalesce_verdict(found: Coalescing, changes: Sequence[Change]) -> str:
    """Verdict in one sentence."""
    sectors = count(found.pattern.num_sectors, "sector")
    if found.is_coalesced:
        return f"coalesced: {sectors}, as few as hold the bytes"
    finding = f"not coalesced: {sectors} where {found.num_fewest_sectors} would hold the bytes"
    if not changes:
        return f"{finding}; no change that was tried moves fewer"
    first = changes[0]
    return f"{finding}; {first.words}: {count(first.found.pattern.num_sectors, 'sector')}"


def render_coalesce(
    found: Coalescing, changes: Sequence[Change], asked: str, console: Console, next_command: str | None
) -> None:
    """Print the counts, the changes that move fewer sectors, and a verdict."""
    pattern = found.pattern
    tags = ", ".join(f"{number} on {name.capitalize()}" for name, number in found.num_tag_wavefronts.items())
    console.print()
    console.print(facts_table((
        ("access", asked), ("requests", f"{pattern.num_requests}, one for each instruction with a lane that takes part"),
        ("sectors", f"{pattern.num_sectors} of {SECTOR_BYTES} bytes, {found.num_fewest_sectors} at best"),
        ("lines", f"{pattern.num_lines} of {LINE_BYTES} bytes"), ("tag wavefronts", f"{tags}; L1 looks up lines in them"),
        ("bytes", f"{found.num_used_bytes} used of {pattern.num_sectors * SECTOR_BYTES}: {percent(found.used_fraction)}"),
    )))  # fmt: skip
    console.print()
    if changes:
        table = plain_table("", "change", "sectors", "lines", "bytes used")
        for change in changes:
            counts = change.found.pattern
            share = percent(change.found.used_fraction)
            table.add_row(change.words, str(counts.num_sectors), str(counts.num_lines), share)
        console.print(table)
        console.print()
    console.print(f"[bold]Verdict[/]: {coalesce_verdict(found, changes)}.")
    if next_command is not None:
        console.print("Next: ", end="")
        print_command(next_command, console)


def coalesce_document(found: Coalescing, changes: Sequence[Change], asked: str) -> dict[str, Any]:
    """JSON document of the counts and the changes."""
    return {
        "access": asked, **_counts(found),
        "changes": [{"words": change.words, **_counts(change.found)} for change in changes],
        "verdict": coalesce_verdict(found, changes),
    }


def _counts(found: Coalescing) -> dict[str, Any]:
    pattern = found.pattern
    return {
        "num_requests": pattern.num_requests, "num_sectors": pattern.num_sectors,
        "num_fewest_sectors": found.num_fewest_sectors, "num_lines": pattern.num_lines,
        "num_tag_wavefronts": dict(found.num_tag_wavefronts), "num_used_bytes": found.num_used_bytes,
        "used_fraction": found.used_fraction,
    }
