"""Refusals of ops that a program yields. Each message begins with the role that yielded the op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from gpusim.errors import HazardError, LaunchError, nearest
from gpusim.workload import ops
from gpusim.workload.op_arguments import wrong_call


def place_of(kind: str, name: str, stage: int, declared: Mapping[str, Sequence[int]]) -> int:
    """Index of a stage of a buffer, or of a ring of mbarriers.

    >>> place_of("buffer", "b", 1, {"a": range(4), "b": range(4, 6)})
    5

    Raises:
        LaunchError: the launch declares no such buffer or ring, or fewer stages.
    """
    try:
        if stage < 0:  # Python would count from the end
            raise IndexError
        return declared[name][stage]
    except KeyError:
        raise LaunchError(f"{kind} {name!r} is not declared in the launch; {nearest(name, declared)}") from None
    except IndexError:
        raise LaunchError(f"{kind} {name!r} has {len(declared[name])} stages, stage {stage} was used") from None


def issued(num_instructions: float) -> LaunchError:
    """Error for a negative number of instructions."""
    return LaunchError(f"{num_instructions} instructions were issued, wants 0 or more")


def not_below_none(num_instructions: float) -> float:
    """``num_instructions`` as float. Raises LaunchError: the number is negative."""
    if num_instructions < 0:
        raise issued(num_instructions)
    return float(num_instructions)


def not_integer(who: str, op: ops.Op) -> LaunchError:
    """Error for an op whose numbers fit no record."""
    return LaunchError(f"{who} yields {op!r}, wants integers below 2**31 where ops count")


@contextmanager
def named(role: str, who: str) -> Iterator[None]:
    """Put ``who`` before a refusal that does not name the role. numpy's errors about numbers become refusals.

    Raises:
        HazardError, LaunchError: the refusal, with the name.
        KernelError: an op that is created with too few or unknown arguments.
    """
    try:
        yield
    except (HazardError, LaunchError) as error:
        if f"role {role!r}" in str(error):
            raise
        kernel = who.partition(":")[0]
        raise type(error)(f"{who}: {str(error).removeprefix(f'{kernel}: ')}") from error.__cause__
    except TypeError as error:
        if (wrong := wrong_call(who, error)) is not None:
            raise wrong from None
        if "numpy" not in str(error):
            raise
        raise LaunchError(f"{who}: {error}: an op's numbers are Python's own, int(...) or float(...)") from error


def check_tma_load(kernel: str, op: ops.TmaLoad, held_bytes: int) -> None:
    """Refuse a TMA load with inconsistent bytes and rows; a stage of its buffer holds ``held_bytes``.

    Raises:
        LaunchError: bytes and rows are inconsistent.
    """
    if not 0 < op.num_bytes <= held_bytes or not 0 <= op.num_fetched_bytes <= op.num_bytes:
        raise LaunchError(
            f"{kernel}: a TmaLoad of {op.num_bytes} bytes, {op.num_fetched_bytes} of them fetched, into "
            f"{op.buffer!r}, whose stages hold {held_bytes}; wants no more than that"
        )
    if op.num_rows < 1 or op.num_boxes < 1:
        raise LaunchError(f"{kernel}: a TmaLoad of {op.num_rows} rows in {op.num_boxes} boxes, wants 1 or more of each")
    if not 0 <= op.num_outside_rows <= op.num_zero_rows <= op.num_rows:
        raise LaunchError(
            f"{kernel}: a TmaLoad of {op.num_rows} rows, {op.num_zero_rows} of them outside of its tensor, "
            f"{op.num_outside_rows} in boxes all outside, wants no more than all"
        )
    if op.num_fetched_bytes * op.num_rows > op.num_bytes * (op.num_rows - op.num_zero_rows):
        raise LaunchError(
            f"{kernel}: a TmaLoad of {op.num_rows} rows and {op.num_bytes} bytes fetches "
            f"{op.num_fetched_bytes}, wants no more than rows inside have: {op.num_zero_rows} lie outside"
        )


def check_wgmma(kernel: str, op: ops.Wgmma, num_warps: int) -> None:
    """Refuse wgmma that no warpgroup can issue.

    Raises:
        LaunchError: partial warpgroups, no wgmma, or a negative number of instructions between them.
    """
    if num_warps % 4 or op.num_issues < 1:
        raise LaunchError(f"{kernel}: {op.num_issues} wgmma by {num_warps} warps, wants 1 or more by full warpgroups of 4")
    if op.num_between < 0:
        raise LaunchError(f"{kernel}: {op.num_between} instructions between wgmma, wants 0 or more")
