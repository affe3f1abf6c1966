"""Conflicts of cp.async where it reads, in words and JSON: lanes whose sources lie in the same banks queue, too."""

from __future__ import annotations

from typing import Any

from gpusim.report.number_format import count
from gpusim.workload.smem.bank_conflict_fixes import Study
from gpusim.workload.smem.banks import copied_wavefronts
from gpusim.workload.smem.tile_access import TileAccess


def source_rows(access: TileAccess) -> list[tuple[str, str]]:
    """Row with the sources of cp.async and the wavefronts with them; none without."""
    copied = copied_wavefronts(access)
    if copied is None:
        return []
    taken = f"{', '.join(map(str, copied))} wavefronts" if len(copied) > 1 else count(copied[0], "wavefront")
    return [("sources", f"lane i reads from element {access.sources} of global memory on: {taken} with them")]


def source_verdict(study: Study) -> str | None:
    """Verdict in one sentence where lanes conflict at their sources; None elsewhere."""
    here, copied = study.instructions[study.worst], max(copied_wavefronts(study.access) or (0,))
    if copied <= here.num_wavefronts:
        return None
    return (
        f"{study.access.op} takes {count(copied, 'wavefront')} where {here.num_ideal_wavefronts} would do: lanes conflict "
        f"where they read; their writes alone take {here.num_wavefronts}"
    )


def source_document(access: TileAccess) -> dict[str, Any] | None:
    """JSON document of the sources of cp.async; None without."""
    copied = copied_wavefronts(access)
    return None if copied is None else {"layout": str(access.sources), "num_wavefronts": list(copied)}
