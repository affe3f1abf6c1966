"""Conditions on other options under which an option of a kernel applies. Refusals and ``--help`` use the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from string import Formatter
from typing import Any

from gpusim.errors import KernelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """A condition on another option."""

    field: str
    values: tuple[Any, ...] = ()
    """Values of the other option with which the condition holds."""
    least: int = 0
    """Minimum of the other option, instead of ``values``; for a cluster, of its number of CTAs."""
    holds_unset: bool = True
    """Whether the condition holds if the other option has no value yet."""

    def holds_for(self, options: Any) -> bool:
        """Whether ``options`` (or a config) satisfy the condition."""
        value = getattr(options, self.field)
        if value is None:
            return self.holds_unset
        if self.least:
            number: int = prod(value) if self.field == "cluster" else value
            return number >= self.least
        return value in self.values

    @property
    def text(self) -> str:
        """The condition as flags.

        >>> Needs(field="math", values=("mma_sync", "fma")).text, Needs(field="stages", least=2).text
        ('--math mma_sync or fma', '--stages 2 or more')
        """
        flag = f"--{self.field.rstrip('_').replace('_', '-')}"
        if self.values in ((False,), (True,)):
            return typed(self.field, self.values[0])
        if self.least:
            return f"{flag} of {self.least} CTAs or more" if self.field == "cluster" else f"{flag} {self.least} or more"
        return f"{flag} {' or '.join(map(joined, self.values))}"


@dataclass(frozen=True, slots=True)
class Rule:
    """An option applies only if all conditions hold. Otherwise it is refused, if it was given."""

    field: str
    needs: tuple[Needs, ...]
    why: str
    """Reason of the refusal; ``{math}`` and other options in braces are replaced by their values."""
    instead: str
    only: tuple[Any, ...] = ()
    """Values that the rule applies to; empty: all."""
    harmless: tuple[Any, ...] = ()
    """Values that are never refused."""
    unless: Needs | None = None
    """Condition with which the option applies anyway."""

    def is_broken_by(self, options: Any, default: Any) -> bool:
        """Whether the option is given, with another value than its ``default``, although it does not apply."""
        value = getattr(options, self.field)
        if value is None or value == default or value in self.harmless or (self.only and value not in self.only):
            return False
        is_excused = self.unless is not None and self.unless.holds_for(options)
        return not is_excused and not all(condition.holds_for(options) for condition in self.needs)


def refuse_first(options: Any, rules: Iterable[Rule], defaults: Mapping[str, Any]) -> None:
    """Refuse the first option that is given although it does not apply. ``defaults``: pydantic fields, by name.

    Raises:
        KernelError: names the flag.
    """
    for rule in rules:
        if rule.is_broken_by(options, defaults[rule.field].default):
            names = [name for _, name, _, _ in Formatter().parse(rule.why) if name]
            why = rule.why.format(**{name: getattr(options, name) for name in names})
            raise KernelError(f"{typed(rule.field, getattr(options, rule.field))}: {why}; {rule.instead}")


def typed(field: str, value: Any) -> str:
    """An option with its value as flags.

    >>> typed("fence", False), typed("cluster", (2, 1)), typed("alpha", 4.0)
    ('--no-fence', '--cluster 2x1', '--alpha 4')
    """
    flag = field.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value:g}" if isinstance(value, float) else f"--{flag} {joined(value)}"


def joined(value: Any) -> str:
    """A value as typed.

    >>> joined((2, 1)), joined("tma")
    ('2x1', 'tma')
    """
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def conditions_of(field: str, rules: Iterable[Rule]) -> dict[str, list[str]]:
    """Conditions of an option as flags, by the values that they concern. Conditions on the same other option are merged."""
    by_values: dict[str, dict[str, Needs]] = {}
    for rule in rules:
        if rule.field != field:
            continue
        words = (typed(field, value) if isinstance(value, bool) else str(value) for value in rule.only)
        merged = by_values.setdefault(" or ".join(words), {})
        for condition in rule.needs:
            other = merged.setdefault(condition.field, condition)
            if other.values:
                both = tuple(value for value in other.values if value in condition.values)
                merged[condition.field] = replace(other, values=both)
    return {values: [condition.text for condition in merged.values()] for values, merged in by_values.items()}
