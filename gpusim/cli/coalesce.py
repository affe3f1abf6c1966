"""``coalesce``: sectors, lines and requests of a warp's access to global memory, and what would make them fewer."""

from __future__ import annotations

import inspect
from typing import Any

from gpusim.cli.options import console_for, write_json
from gpusim.cli.parameters import REQUIRED, json_option, option, output_paths
from gpusim.errors import ConfigError

OF_A_TILE = ("layout", "dtype", "threads", "at")


def coalesce_command(**values: Any) -> None:
    """Count sectors, lines and requests of a warp's access to global memory, and find what would coalesce it.

    Without --threads, lane i has the i-th vector along the contiguous mode,
    row after row.

    For example:
    gpusim coalesce --layout '(64,64):(64,1)' --dtype fp32 --access ld_global_b32 --threads 32:1
    gpusim coalesce --offsets 32:8 --access ld_global_b32
    """
    from gpusim.report.coalesce import CoalesceAsked, byte_offsets, coalesce_document, render_coalesce
    from gpusim.report.layout_arguments import naming
    from gpusim.workload.gmem import coalescing as counts

    outputs, access, offsets = output_paths(values), values["access"], values["offsets"]
    of_tile = {name: values[name] for name in OF_A_TILE}
    with naming("--access", "coalesce: "):
        num_bytes = counts.global_op(access).access_bytes
    following = None
    if offsets is not None:
        if extra := [name for name in OF_A_TILE if of_tile[name] is not None]:
            raise ConfigError(f"--offsets are bytes of lanes, --{extra[0]} is of a tile; give one of them")
        lanes = byte_offsets(offsets)
        with naming("--offsets:", "coalesce: "):
            found = counts.coalescing_of_offsets(lanes, num_bytes)
        changes = counts.changes_of_offsets(lanes, num_bytes)
        words = f"{access}: {num_bytes} bytes at each of {len(lanes)} byte offsets"
    else:
        if of_tile["layout"] is None or of_tile["dtype"] is None:
            raise ConfigError("a tile wants --layout and --dtype; --offsets takes bytes of lanes instead")
        asked = CoalesceAsked(access=access, **of_tile)
        tile = asked.tile_access()
        found, changes = counts.coalescing_of(tile), counts.changes_of_tile(tile)
        words = f"{access} of {tile.tile.inner}, {asked.dtype}" + (f", lanes {asked.threads}" if asked.threads else "")
        if changes and changes[0].access is not None:
            following = asked.changed(changes[0].access)
    if outputs["--json"] is not None:
        write_json(coalesce_document(found, changes, words), outputs["--json"])
    render_coalesce(found, changes, words, console_for(outputs["--json"]), following)


coalesce_command.__signature__ = inspect.Signature([  # type: ignore[attr-defined]  # typer reads options from it
    option("access", "The instruction: ld_global_ or st_global_ with b8, b16, b32, b64 or b128.", default=REQUIRED,
           metavar="NAME"),
    option("layout", "The tile in global memory, in CuTe's notation; its start is aligned.", metavar="LAYOUT"),
    option("dtype", "Element type: bf16, fp32, fp8, ...", metavar="NAME"),
    option("threads", "Layout from lane to the first element of its vector: the index in the tile (mode 0 counts first), or "
           "a coordinate. 32:1@0 is one lane a row. Lanes from the 33rd on are those of a second instruction.",
           metavar="LAYOUT"),
    option("at", "Where the access starts in the tile, for example (0,16).", metavar="COORD"),
    option("offsets", "Instead of a tile: the byte of each lane, as 0,4,8,... or as a layout 32:4.", metavar="BYTES"),
    json_option("Write the result as JSON."),
])  # fmt: skip
