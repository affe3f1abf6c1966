"""Command lines that follow from a prediction: explain, sweep and check of its kernel, and its chosen options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpusim.report.number_format import USUAL_SETTINGS, option_words, setting_words, shortened

NOT_LISTED = ("dtype", "out_dtype", "wgmma_depth", "compiled_code")
"""Options that are not listed as chosen: other lines have them, or they follow from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """Kernel with its options, for use with other commands."""

    kernel: str
    given: Mapping[str, Any]
    """Options of the kernel that were typed."""
    gpu_name: str
    clock: str | float
    l2: str
    data: str
    engine: str
    core_only: bool
    max_events: int | None

    def words(self, verb: str, **changes: Any) -> list[str]:
        """Words of another command for the kernel."""
        engine = "native" if verb == "explain" else self.engine  # the reference has no ideal parts
        words = ["gpusim", verb, self.kernel, *option_words({**self.given, **changes}), "--gpu", self.gpu_name]
        return [*words, *replace(self, engine=engine).setting_words()]

    def setting_words(self) -> list[str]:
        """Words of settings that differ from the defaults."""
        words = setting_words({name: getattr(self, name) for name in USUAL_SETTINGS})
        words += ["--core-only"] if self.core_only else []
        return [*words, *option_words({"max_events": self.max_events})]

    @property
    def has_full_model(self) -> bool:
        """Whether the GPU is simulated with all its mechanisms; a choice of options rests on them."""
        return self.engine == "native" and not self.core_only

    def advise_words(self) -> list[str]:
        """Words of advice on the kernel's open options, without an engine, since ``advise`` has no such option."""
        return replace(self, engine="native", core_only=False, max_events=None).words("advise")

    def check_words(self) -> list[str]:
        """Words of a check of a profile of the kernel."""
        options = [*option_words(self.given), *(["--l2", "warm"] if self.l2 == "warm" else [])]
        return ["gpusim", "check", "profile.csv", "--gpu", self.gpu_name, "--kernel", self.kernel, *options]

    def problem_words(self, options: Mapping[str, Any], needed: Sequence[str]) -> list[str]:
        """Words of the kernel, its ``needed`` options, its type, and all that was typed."""
        names = [*needed, *(name for name in options if name == "dtype" or (name in self.given and name not in needed))]
        names = [name for name in names if name != "compiled_code"]  # a line has it
        shown = {name: options[name] if isinstance(options[name], bool) else shortened(str(options[name])) for name in names}
        return [self.kernel, *option_words(shown), "--gpu", self.gpu_name, *self.setting_words()]

    def chosen_words(
        self, options: Mapping[str, Any], asked: Mapping[str, Any], deciding: Sequence[str] = ()
    ) -> list[str]:
        """Words of options that were not typed: those that differ from ``asked``, or else all.

        ``deciding``: options from which all others of the kernel follow; empty where none are known.
        """
        rest = {
            name: value for name, value in options.items()
            if name not in (*self.given, *NOT_LISTED) and value is not None and value is not False
            and (not deciding or name in deciding)
        }
        chosen = {name: value for name, value in rest.items() if value != asked[name]}
        return option_words(chosen or rest)
