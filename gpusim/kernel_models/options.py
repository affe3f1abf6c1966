"""What the parameters of every kernel model have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from gpusim.errors import KernelError, nearest
from gpusim.workload.launch import Launch, Target

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """All values of a field that takes some words.

    >>> choices_of(Literal["m", "n"] | None), choices_of(int)
    (('m', 'n'), ())
    """
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(choice for member in get_args(annotation) if not isinstance(member, str) for choice in choices_of(member))


class KernelParams(BaseModel):
    """Options of one kernel, each checked by itself: a frozen pydantic model whose fields are the command line's options.

    A field that is None is chosen for the GPU by :meth:`resolved`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _refused_in_a_sentence(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """What the fields refuse.

        Raises:
            KernelError: the first thing, as a sentence with the option's name.
        """
        try:
            return handler(given)
        except ValidationError as error:
            known = [item.alias or name for name, item in cls.model_fields.items()]
            found = error.errors()
            slips = [item for item in found if item["type"] == "extra_forbidden"]  # what is misspelled is missing, too
            raise KernelError(refusal_sentence((slips or found)[0], known)) from None

    @abstractmethod
    def resolved(self, gpu: Target) -> Self:
        """The same with every default that depends on the GPU filled in, and the whole checked.

        Raises:
            KernelError: parameters that do not go together.
            LaunchError: a kernel that this GPU lacks instructions for.
        """

    @abstractmethod
    def launch(self, gpu: Target) -> Launch:
        """The kernel as it is launched on ``gpu``.

        Raises:
            KernelError: parameters that no kernel can have.
            LaunchError: a kernel that this GPU cannot hold.
        """

    def planned(self, gpu: Target) -> tuple[Self, Launch]:
        """:meth:`resolved`, and its launch.

        Raises:
            KernelError: as of both.
            LaunchError: likewise.
        """
        params = self.resolved(gpu)
        return params, params.launch(gpu)

    def meaning_of_none(self, option: str) -> str:
        """What a resolved ``option`` that is None is shown as: without a meaning, unless a kernel says otherwise."""
        del option
        return "-"

    def answer_to(self, ideal: str) -> Mapping[str, Any]:
        """Options to try where making ``ideal`` free (a name of a counterfactual) saves most; empty where none is known."""
        del ideal
        return {}

    @classmethod
    def usual(cls, option: str, given: Mapping[str, Any], gpu: Target) -> Sequence[Any] | None:
        """Values of ``option`` that a sweep tries for ``auto``, beside those ``given``; None where nothing is usual.

        Unless a kernel says otherwise: all of an option that takes some words, or is on or off.
        """
        del given, gpu
        for name, item in cls.model_fields.items():
            if option == (item.alias or name):
                is_flag = item.annotation is bool or bool in get_args(item.annotation)
                return (False, True) if is_flag else choices_of(item.annotation) or None
        return None

    def as_options(self) -> Mapping[str, Any]:
        """Every parameter as the command line spells it, in its order (``{"tile": "128x256x64", ...}``)."""
        options: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = "x".join(str(part) for part in value)
            options[name.rstrip("_")] = value
        return options


def refusal_sentence(error: ErrorDetails, known: list[str]) -> str:
    """What a pydantic model refused, in a sentence: flag, found, wanted, nearest."""
    place = [str(part) for part in error["loc"]]
    flag = f"--{place[0].rstrip('_').replace('_', '-')}" if place else "parameters"
    found, context = error["input"], error.get("ctx", {})
    kind = error["type"]
    if kind == "missing":
        return f"{flag} is missing, wants a value"
    if kind == "extra_forbidden":
        return f"{flag} is no option of this kernel; {nearest(place[0], known)}"
    if kind == "literal_error":
        choices = [choice.strip("'") for choice in str(context["expected"]).replace(" or ", ", ").split(", ")]
        hint = nearest(str(found), choices)
        rest = f" (known: {', '.join(choices)})" if hint.startswith("did you") else ""
        return f"{flag} {str(found)!r} is unknown; {hint}{rest}"
    if kind.startswith(("int_", "float_")):
        return f"{flag} is {found!r}, wants a {'whole ' if kind.startswith('int_') else ''}number"
    if kind == "finite_number":
        return f"{flag} is {found!r}, wants a finite number"
    bounds = {"greater_than_equal": ("ge", "{} or more"), "greater_than": ("gt", "more than {}"),
              "less_than_equal": ("le", "at most {}"), "less_than": ("lt", "less than {}")}
    if kind in bounds:
        key, text = bounds[kind]
        return f"{flag} is {found}, wants {text.format(context[key])}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if message.startswith(("is ", "wants ", "has ")):
        return f"{flag} {message}"
    if message.startswith("--") or not place:
        return message
    if message.startswith(f"{place[0]} "):  # the message names it by itself
        return f"--{message}"
    return f"{flag} is {found!r}: {message[0].lower()}{message[1:]}"
