"""Wrong data accesses: changes for ``gpusim.functional.mutate.mutated``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np


def rolled(name: str, axis: int = -1) -> Callable[[Any], Any]:
    """The places in the field ``name`` moved on by one."""

    def change(access: Any) -> Any:
        places = getattr(access, name)
        if callable(places):
            return replace(access, **{name: lambda registers: np.roll(places(registers), 1, axis=axis)})
        return replace(access, **{name: np.roll(places, 1, axis=axis)})

    return change


def dropped(access: Any) -> Any:
    """A load, store or copy without its first elements."""
    name = "index" if hasattr(access, "index") else "offsets"
    places = getattr(access, name)

    def without(all_places: Any) -> Any:
        num = all_places.shape[-1]
        return np.where(np.arange(num) < max(1, num // 16), -1, all_places)

    if callable(places):
        return replace(access, index=lambda registers: without(places(registers)))
    return replace(access, **{name: without(places)})


def swapped_issues(access: Any) -> Any:
    """mma.sync with the sums of its first two instructions exchanged."""
    issues = list(access.issues)
    if len(issues) > 1:
        issues[0], issues[1] = (*issues[0][:2], issues[1][2]), (*issues[1][:2], issues[0][2])
    return replace(access, issues=tuple(issues))


def reversed_columns(access: Any) -> Any:
    """wgmma that reads the rows of B backwards."""
    return replace(
        access, issues=tuple(tuple(replace(issue, b=issue.b[::-1]) for issue in issues) for issues in access.issues)
    )


def transposed(access: Any) -> Any:
    """Fragments whose 8 x 8 matrices (or, for wgmma, blocks of k columns of B) are transposed."""
    if hasattr(access, "issues"):
        return replace(access, issues=tuple(
            tuple(
                replace(issue, b=np.concatenate([block.T for block in np.split(issue.b, len(issue.b) // issue.b.shape[1])]))
                for issue in issues
            )
            for issues in access.issues
        ))  # fmt: skip
    matrices = access.offsets.reshape(-1, 8, 4, access.offsets.shape[1] // 2, 2).transpose(0, 3, 1, 2, 4)
    turned = matrices.reshape(*matrices.shape[:2], 8, 8).swapaxes(2, 3).reshape(matrices.shape)
    return replace(access, offsets=turned.transpose(0, 2, 3, 1, 4).reshape(access.offsets.shape))


def one_fewer(access: Any) -> Any:
    """A copy, load or store without its last element inside of the tensor."""
    index, name = access.index, "offsets" if hasattr(access, "offsets") else "index"
    places = getattr(access, name).copy()
    places.reshape(-1)[np.flatnonzero(index >= 0)[-1:]] = -1
    return replace(access, **{name: places})
