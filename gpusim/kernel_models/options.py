"""Common base of the parameters of all kernel models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from gpusim.errors import KernelError, nearest
from gpusim.kernel_models.applicability import Rule, conditions_of, refuse_first
from gpusim.kernel_models.spelling import Renamed, as_choice, choices_of, hint_at, in_new_words
from gpusim.workload.launch import Launch, Target

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


PROBLEM, KERNEL = "Problem", "Kernel"
"""Panel of ``--help`` for options of the kernel; ``PROBLEM``: for those of the problem size."""


class KernelParams(BaseModel):
    """Options of one kernel: a frozen pydantic model whose fields are the command line's options.

    Each option is checked on its own. A field that is None is chosen for the GPU by :meth:`resolved`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: ClassVar[KernelModel]
    """The kernel's row of ``KERNEL_MODELS``."""

    renamed: ClassVar[Mapping[str, Renamed]] = MappingProxyType({})
    """Options of an earlier release by their former names, which are accepted for one release."""

    removed: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Hints by option of an earlier release that has no successor."""

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Conditions on other options under which an option applies."""

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
        return {values: ", ".join(texts) for values, texts in conditions_of(cls.options()[option], cls.rules).items()}

    @classmethod
    def derived_of(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Properties that follow from ``options`` and make a kernel another kernel; empty if there are none."""
        del options
        return {}

    @classmethod
    def in_our_words(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options with current names and values: former names, words in any case, and other names of types are accepted.

        Raises:
            KernelError: an option under its former and its current name, or one that was removed.
        """
        options: dict[str, Any] = {}
        fields = cls.options()
        for option, given_value in given.items():
            if option in cls.removed:
                raise KernelError(f"{_flag(option)} is no option of this kernel; {cls.removed[option]}")
            name, value = in_new_words(cls.renamed, option, given_value)
            if name in options:
                raise KernelError(f"{_flag(name)} is given twice, under its old name, too; leave one out")
            choices = choices_of(cls.model_fields[fields[name]].annotation) if name in fields else ()
            options[name] = as_choice(value, choices)
        return options

    @model_validator(mode="wrap")
    @classmethod
    def _refused_in_a_sentence(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Validate the fields. The first error is refused in a sentence with the option's name."""
        if isinstance(given, Mapping):
            given = cls.in_our_words(given)
        try:
            return handler(given)
        except ValidationError as error:
            known = [item.alias or name for name, item in cls.model_fields.items()]
            errors = error.errors()
            slips = [item for item in errors if item["type"] == "extra_forbidden"]  # a misspelled option is missing, too
            raise KernelError(refusal_sentence((slips or errors)[0], known)) from None

    def checked(self) -> Self:
        """The options, checked against each other.

        Raises:
            KernelError: incompatible options, or an option that does not apply.
        """
        refuse_first(self, self.rules, type(self).model_fields)
        self._check()
        return self

    def _check(self) -> None:
        """Refuse incompatible options. A kernel overrides it."""

    def chosen(self, config: Any) -> Self:
        """The options with the values of ``config``, which the kernel's row resolved them to."""
        assert isinstance(config, type(self))
        return config

    def resolved(self, gpu: Target) -> Self:
        """Fill in all defaults that depend on the GPU, and check the result.

        Raises:
            KernelError: incompatible options.
            LaunchError: the GPU lacks instructions or memory for the kernel.
        """
        return self.chosen(self.row.resolve(self, gpu))

    def planned(self, gpu: Target) -> tuple[Self, Launch]:
        """The resolved options, and their launch.

        Raises:
            KernelError: incompatible options.
            LaunchError: a kernel that does not fit on this GPU.
        """
        config = self.row.resolve(self, gpu)
        resolved = self.chosen(config)
        return resolved, replace(self.row.launch(config, gpu), params=resolved.as_options())

    def launch(self, gpu: Target) -> Launch:
        """The kernel's Launch on ``gpu``.

        Raises:
            KernelError: incompatible options.
            LaunchError: a kernel that does not fit on this GPU.
        """
        return self.planned(gpu)[1]

    def meaning_of_none(self, option: str) -> str:
        """Text that is shown for a resolved ``option`` that is None. A kernel may override it."""
        del option
        return "-"

    def as_given(self) -> dict[str, Any]:
        """Options that were given, without those that are filled in."""
        return {name: getattr(self, field) for name, field in self.options().items() if field in self.model_fields_set}

    def decided(self) -> dict[str, Any]:
        """Options of the row that decide the time, as on the command line: those stated always, others unless usual."""
        options, fields = self.as_options(), type(self).model_fields
        return {
            name: options[name] for name in self.row.deciding
            if name in self.row.stated or getattr(self, name) != fields[name].default
        }

    def as_options(self) -> Mapping[str, Any]:
        """All parameters in the spelling and order of the command line (``{"tile": "128x256x64", ...}``)."""
        options: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = "x".join(str(part) for part in value)
            options[name.rstrip("_")] = value
        return options


def _checked(options: KernelParams, gpu: Target) -> KernelParams:
    """Resolve options that do not depend on the GPU."""
    del gpu
    return options.checked()


def _no_values(option: str, given: Mapping[str, Any], gpu: Target) -> None:
    """Values of a kernel whose options have no usual ones."""
    del option, given, gpu


def _as_given(options: KernelParams, gpu: Target) -> tuple[KernelParams, ...]:
    """Configurations of a kernel whose options no library chooses."""
    del gpu
    return (options,)


def _first_given(options: KernelParams, gpu: Target) -> KernelParams:
    """Options of a kernel that has no usual configuration."""
    del gpu
    return options


def one_value_each(asked: KernelParams, resolved: KernelParams, gpu: Target) -> Iterator[Mapping[str, Any]]:
    """Options to change: every other value of every tuned option, one at a time."""
    del gpu
    now = resolved.as_options()
    for option, values in asked.row.tuned.items():
        yield from ({option: value} for value in values if str(value) != str(now[option]))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """A row of ``KERNEL_MODELS``: a kernel's name, its options, and the functions that make a launch of them."""

    name: str
    summary: str
    """Line for ``--help``."""
    params: type[KernelParams]
    """Options, each checked on its own."""
    launch: Callable[[Any, Target], Launch]
    """The Launch on a GPU, from the result of ``resolve``."""
    resolve: Callable[[Any, Target], Any] = _checked
    """Config of the kernel that is built on a GPU, from the options."""
    sweep_values: Callable[[str, Mapping[str, Any], Target], Sequence[Any] | None] = _no_values
    """Values of an option that a sweep tries for ``auto``, with other options given; None: all values, if it has few."""
    configurations: Callable[[Any, Target], Iterable[Any]] = _as_given
    """Configurations that a library has for options of which some may be open. Each is of the class ``params``."""
    usual: Callable[[Any, Target], Any] = _first_given
    """Options with a library's usual values of what is open; unchanged if none can be built."""
    tuned: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Options that decide the time and not what is computed, with values in use. A sweep's ``auto`` tries them."""
    changes: Callable[[Any, Any, Target], Iterable[Mapping[str, Any]]] = one_value_each
    """Options to change in one kernel, from its options as given and as resolved. Each names what it needs in addition."""
    stated: tuple[str, ...] = ()
    """Options with which nothing is chosen if all are given. ``auto`` of the first stands for ``configurations``."""
    deciding: tuple[str, ...] = ()
    """Options that ``configurations`` chooses."""
    family: Callable[[Mapping[str, Any]], str] | None = None
    """Family of measured rows, by the resolved options; None: the kernel's name."""
    knobs: Callable[[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]] = field(default=lambda _: {})
    """Families in which single options differ, which the resolved options set: usual values of these options."""
    also: tuple[str, ...] = ()
    """Alternative names, for hints."""

    def __post_init__(self) -> None:
        """Tell the options their row."""
        self.params.row = self


def _flag(option: str) -> str:
    return f"--{option.rstrip('_').replace('_', '-')}"


def refusal_sentence(error: ErrorDetails, known: list[str]) -> str:
    """A pydantic error as a sentence: flag, value, valid values, nearest name."""
    place = [str(part) for part in error["loc"]]
    flag = f"--{place[0].rstrip('_').replace('_', '-')}" if place else "parameters"
    value, context = error["input"], error.get("ctx", {})
    kind = error["type"]
    if kind == "missing":
        return f"{flag} is missing, wants a value"
    if kind == "extra_forbidden":
        return f"{flag} is no option of this kernel; {nearest(place[0], known)}"
    if kind == "literal_error":
        choices = [choice.strip("'") for choice in str(context["expected"]).replace(" or ", ", ").split(", ")]
        hint = hint_at(str(value), choices)
        rest = f" (known: {', '.join(choices)})" if hint.startswith("did you") else ""
        return f"{flag} {str(value)!r} is unknown; {hint}{rest}"
    if kind.startswith(("int_", "float_")):
        return f"{flag} is {value!r}, wants a {'whole ' if kind.startswith('int_') else ''}number"
    if kind == "finite_number":
        return f"{flag} is {value!r}, wants a finite number"
    bounds = {"greater_than_equal": ("ge", "{} or more"), "greater_than": ("gt", "more than {}"),
              "less_than_equal": ("le", "at most {}"), "less_than": ("lt", "less than {}")}
    if kind in bounds:
        key, text = bounds[kind]
        return f"{flag} is {value}, wants {text.format(context[key])}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if message.startswith(("is ", "wants ", "has ")):
        return f"{flag} {message}"
    if message.startswith("--") or not place:
        return message
    if message.startswith(f"{place[0]} "):  # the message already names the option
        return f"--{message}"
    return f"{flag} is {value!r}: {message[0].lower()}{message[1:]}"
