"""Programs of roles: their begin, and errors that they raise, as refusals that name the role and its op.

In: a role, and what its program sees of its CTA. Out: a generator that has not begun.
"""

from __future__ import annotations

from collections.abc import Generator
from inspect import GEN_CREATED, getgeneratorstate
from types import GeneratorType
from typing import Any

from gpusim.errors import GpusimError, LaunchError
from gpusim.workload.launch import WarpRole
from gpusim.workload.op_arguments import wrong_call


def begun(spec: WarpRole, context: Any, who: str) -> Generator[Any, Any, None]:
    """The generator of a role's program, which has yielded nothing yet. ``who`` names the role.

    Raises:
        LaunchError: the program raises an error, is no generator, or is one that has begun before.
    """
    try:
        program = spec.program(context)
    except (Exception, SystemExit) as error:
        raise raised_by_program(who, 0, error) from error
    if not isinstance(program, Generator):
        raise LaunchError(f"{who} has a program that gives {short(program)}, wants a function that yields ops")
    if type(program) is GeneratorType and getgeneratorstate(program) != GEN_CREATED:
        raise LaunchError(f"{who} has a program that gives a generator which has begun before, wants one for each CTA")
    return program


def short(value: object) -> str:
    """Text of a value in a message, of at most a line; a value without one is named by its type."""
    try:
        return " ".join(repr(value)[:200].split())
    except Exception:  # noqa: BLE001  # code of the program's own
        return f"a {type(value).__name__}"


def at_op(error: GpusimError, num_ops: int) -> GpusimError:
    """The refusal with the number of its op, which follows ``num_ops`` others."""
    found = type(error)(f"{error} (op {num_ops + 1} of the role)")
    found.__cause__ = error.__cause__
    return found


def raised_by_program(who: str, num_ops: int, error: BaseException) -> GpusimError:
    """Error for an exception of the program itself, after ``num_ops`` ops."""
    if isinstance(error, GpusimError):
        return at_op(error, num_ops)
    if isinstance(error, TypeError) and (wrong := wrong_call(who, error)) is not None:
        return at_op(wrong, num_ops)
    words = " ".join(str(error).split())
    if num_ops == 0 and isinstance(error, TypeError) and error.__traceback__ and error.__traceback__.tb_next is None:
        return LaunchError(f"{who} has a program that does not take the role's context: {words}")
    raised = f"{type(error).__name__}{f': {words}' if words else ''}"
    return LaunchError(f"{who}: its program raises {raised} before op {num_ops + 1}")
