"""Common base of the parameters of all kernel models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from gpusim.errors import KernelError, nearest
from gpusim.kernel_models.spelling import Renamed, as_choice, choices_of, hint_at, in_new_words
from gpusim.workload.launch import Launch, Target

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


PROBLEM, KERNEL = "Problem", "Kernel"
"""Panel of ``--help`` for options of the kernel; ``PROBLEM``: for those of the problem size."""

COMPILER_OUTPUT = "Compiler output (read from SASS; 0 means unknown)"
"""Panel of options that are known after compiling. ``--help-all`` shows it."""


class KernelParams(BaseModel):
    """Options of one kernel: a frozen pydantic model whose fields are the command line's options.

    Each option is checked on its own. A field that is None is chosen for the GPU by :meth:`resolved`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    renamed: ClassVar[Mapping[str, Renamed]] = MappingProxyType({})
    """Options of an earlier release by their former names, which are accepted for one release."""

    @classmethod
    def options(cls) -> Mapping[str, str]:
        """Field of each option, by the option's name."""
        return {(item.alias or name): name for name, item in cls.model_fields.items()}

    @classmethod
    def panel_of(cls, option: str) -> str:
        """Panel of ``--help`` for an option."""
        item = cls.model_fields[cls.options()[option]]
        return PROBLEM if item.is_required() or option == "dtype" else KERNEL

    @classmethod
    def applies_when(cls, option: str) -> Mapping[str, str]:
        """Conditions on other options, as text, by the option's values (empty: all); empty if the option always applies."""
        del option
        return {}

    @classmethod
    def in_our_words(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options with current names and values: former names, words in any case, and other names of types are accepted.

        Raises:
            KernelError: an option under its former and its current name.
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
        """Validate the fields.

        Raises:
            KernelError: the first error, as a sentence with the option's name.
        """
        if isinstance(given, Mapping):
            given = cls.in_our_words(given)
        try:
            return handler(given)
        except ValidationError as error:
            known = [item.alias or name for name, item in cls.model_fields.items()]
            found = error.errors()
            slips = [item for item in found if item["type"] == "extra_forbidden"]  # a misspelled option is missing, too
            raise KernelError(refusal_sentence((slips or found)[0], known)) from None

    @abstractmethod
    def resolved(self, gpu: Target) -> Self:
        """Fill in all defaults that depend on the GPU, and check the result.

        Raises:
            KernelError: incompatible parameters.
            LaunchError: the GPU lacks instructions for the kernel.
        """

    @abstractmethod
    def launch(self, gpu: Target) -> Launch:
        """The kernel's Launch on ``gpu``.

        Raises:
            KernelError: parameters that no kernel can have.
            LaunchError: a kernel that does not fit on this GPU.
        """

    def planned(self, gpu: Target) -> tuple[Self, Launch]:
        """The resolved parameters, and their launch.

        Raises:
            KernelError: see :meth:`resolved` and :meth:`launch`.
            LaunchError: see :meth:`resolved` and :meth:`launch`.
        """
        params = self.resolved(gpu)
        return params, params.launch(gpu)

    def meaning_of_none(self, option: str) -> str:
        """Text that is shown for a resolved ``option`` that is None. A kernel may override it."""
        del option
        return "-"

    def answer_to(self, ideal: str) -> Mapping[str, Any]:
        """Options to try if the counterfactual ``ideal`` saves the most time; empty if none is known."""
        del ideal
        return {}

    @classmethod
    def usual(cls, option: str, given: Mapping[str, Any], gpu: Target) -> Sequence[Any] | None:
        """Values of ``option`` that a sweep tries for ``auto``, with the options ``given``; None if there are none.

        By default: all values of an option with a fixed set of them, or of a flag.
        """
        del given, gpu
        for name, item in cls.model_fields.items():
            if option == (item.alias or name):
                is_flag = item.annotation is bool or bool in get_args(item.annotation)
                return (False, True) if is_flag else choices_of(item.annotation) or None
        return None

    def as_options(self) -> Mapping[str, Any]:
        """All parameters in the spelling and order of the command line (``{"tile": "128x256x64", ...}``)."""
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
    """A pydantic error as a sentence: flag, value, valid values, nearest name."""
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
        hint = hint_at(str(found), choices)
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
    if message.startswith(f"{place[0]} "):  # the message already names the option
        return f"--{message}"
    return f"{flag} is {found!r}: {message[0].lower()}{message[1:]}"
