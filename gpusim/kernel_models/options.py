"""What the parameters of every kernel model have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from gpusim.errors import KernelError, nearest
from gpusim.kernel_models.spelling import Renamed, as_choice, choices_of, in_new_words
from gpusim.workload.launch import Launch, Target

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


PROBLEM, KERNEL = "Problem", "Kernel"
"""Panels of ``--help``: how large a problem is, and how a kernel does it."""

COMPILER_OUTPUT = "Compiler output (read from SASS; 0 means unknown)"
"""The panel of options that are known once a kernel is compiled. ``--help-all`` shows it."""


class KernelParams(BaseModel):
    """Options of one kernel, each checked by itself: a frozen pydantic model whose fields are the command line's options.

    A field that is None is chosen for the GPU by :meth:`resolved`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    renamed: ClassVar[Mapping[str, Renamed]] = MappingProxyType({})
    """Options of an earlier release by their old names, which are understood for one release."""

    @classmethod
    def options(cls) -> Mapping[str, str]:
        """For each option's name its field."""
        return {(item.alias or name): name for name, item in cls.model_fields.items()}

    @classmethod
    def panel_of(cls, option: str) -> str:
        """The panel of ``--help`` in which an option stands."""
        item = cls.model_fields[cls.options()[option]]
        return PROBLEM if item.is_required() or option == "dtype" else KERNEL

    @classmethod
    def applies_when(cls, option: str) -> Mapping[str, str]:
        """Under which other options an option applies, as text by its values (empty: all); none where it always does."""
        del option
        return {}

    @classmethod
    def in_our_words(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options as the fields take them: old names as new ones, words in any case, other names of types.

        Raises:
            KernelError: an option under its old name and its new one.
        """
        found: dict[str, Any] = {}
        fields = cls.options()
        for option, given_value in given.items():
            name, value = in_new_words(cls.renamed, option, given_value)
            if name in found:
                raise KernelError(f"{_flag(name)} is given twice, under its old name, too; leave one out")
            choices = choices_of(cls.model_fields[fields[name]].annotation) if name in fields else ()
            found[name] = as_choice(value, choices)
        return found

    @model_validator(mode="wrap")
    @classmethod
    def _refused_in_a_sentence(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """What the fields refuse.

        Raises:
            KernelError: the first thing, as a sentence with the option's name.
        """
        if isinstance(given, Mapping):
            given = cls.in_our_words(given)
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


def _flag(option: str) -> str:
    return f"--{option.rstrip('_').replace('_', '-')}"


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
