"""Commands with the options of a kernel model: their help, old names, and the names of Triton and CUTLASS.

In: words as typed. Out: the words with today's names of options and values; errors that name the right option.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand
from typer.main import get_command

from gpusim.cli.options import Commands, where
from gpusim.errors import ConfigError

if TYPE_CHECKING:
    from gpusim.kernel_models import KernelModel

FOREIGN: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType({
    **dict.fromkeys(("num_stages", "pipe_stages", "pipeline_stages"), (("stages",), "Triton's num_stages")),
    "num_warps": (("warps", "consumer_warpgroups"), "Triton's num_warps; a warpgroup has four warps"),
    "num_ctas": (("cluster",), "Triton's num_ctas"),
    "cluster_shape": (("cluster",), "CUTLASS's ClusterShape"),
    **dict.fromkeys(("group_m", "group_size_m"), (("swizzle_size",), "Triton's GROUP_SIZE_M")),
    **dict.fromkeys(("max_swizzle", "max_swizzle_size"), (("swizzle_size",), "CUTLASS's swizzle size")),
    **dict.fromkeys(("mainloop", "mainloop_schedule", "kernel_schedule"), (("schedule",), "CUTLASS's KernelSchedule")),
    "epilogue_schedule": (("epilogue",), "CUTLASS's EpilogueSchedule"),
    **dict.fromkeys(("tile_shape", "cta_tile", "threadblock_shape"), (("tile",), "CUTLASS's TileShape")),
    **dict.fromkeys(("splits", "split_k_slices"), (("split_k",), "CUTLASS's split_k_slices")),
    **dict.fromkeys(("block", "block_size", "num_threads"), (("threads",), "threads of a CTA")),
    "m": (("rows",), "this kernel's rows"),
    "n": (("columns", "elements"), "this kernel's size"),
    "cols": (("columns",), "this kernel's columns"),
    "size": (("elements",), "this kernel's size"),
})
"""Names of options in other tools: the possible options here, and the reason."""

BLOCK = re.compile(r"(?:--)?block(?:[-_]size)?[-_]([mnk])", re.IGNORECASE)
"""Pattern of Triton's names for the extents of a tile."""


class KernelCommand(TyperCommand):
    """Command with the options of one kernel."""

    row: ClassVar[KernelModel]
    is_help = False

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Context for the words with today's names; prints a remark on stderr for each old name."""
        known = {word for item in self.params for word in (*getattr(item, "opts", ()), *getattr(item, "secondary_opts", ()))}
        path = f"{where(parent)[:-2]} {info_name}: ".lstrip()
        words = in_todays_words(args, self.row, known, path)
        return super().make_context(info_name, words, parent, **extra)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, in which a flag has one name."""
        self.is_help = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.is_help = False

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters; in the form of the help if that is being written."""
        found = super().get_params(ctx)
        if not self.is_help:
            return found
        ordered = sorted(found, key=lambda item: item.name == "help")
        return [self._shown(item) for item in ordered]

    def _shown(self, item: Any) -> Any:
        shown = copy(item)
        if item.name == "help":
            shown.rich_help_panel = "Output"
            shown.metavar, shown.help = "flag", "Show this message."
        if item.secondary_opts:
            shown.secondary_opts = []
            shown.metavar = "flag"
            if "efault: on" in (item.help or "") or "efault on" in (item.help or ""):
                shown.opts, shown.help = list(item.secondary_opts), f"Leave out: {item.help}"
        return shown


def kernel_command(
    row: KernelModel, run: Callable[..., None], parameters: Sequence[inspect.Parameter], text: str | None, name: str = ""
) -> Any:
    """Command that calls ``run`` with ``parameters``, the kernel's options among them; ``text``: its help."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads options from it
    single = typer.Typer(add_completion=False, rich_markup_mode="rich",
                         context_settings={"help_option_names": ["-h", "--help"]})
    single.command(name=name or row.name, help=text, cls=type("KernelCommand", (KernelCommand,), {"row": row}))(run)
    return get_command(single)


class Kernels(Commands):
    """One command per row of KERNEL_MODELS; the models are imported when a command is used."""

    noun = "kernel"

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.created: dict[str, Any] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all kernels."""
        from gpusim.kernel_models import KERNEL_MODELS

        return list(KERNEL_MODELS)

    def hint(self, name: str, known: Sequence[str]) -> str:
        """Hint at the kernel that is meant, which may have further names."""
        from gpusim.kernel_models import KERNEL_MODELS

        called = [row.name for row in KERNEL_MODELS.values() if name.lower().replace("-", "_") in row.also]
        return f"did you mean {called[0]!r}?" if called else super().hint(name, known)

    def command_for(self, row: KernelModel, verb: str) -> Any:
        """Command ``verb`` for one kernel."""
        raise NotImplementedError

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command of this group for one kernel."""
        from gpusim.kernel_models import KERNEL_MODELS

        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name not in self.created:
            self.created[cmd_name] = self.command_for(KERNEL_MODELS[cmd_name], ctx.info_name)
        return self.created[cmd_name]


def kernel_group(kind: type[Kernels], text: str) -> typer.Typer:
    """Group with a command per kernel; ``text``: its help."""
    return typer.Typer(cls=kind, help=text, rich_markup_mode="rich")


def in_todays_words(args: Sequence[str], row: KernelModel, known: set[str], path: str) -> list[str]:
    """Typed words with today's names of options and values; ``known``: options of the command.

    Raises:
        ConfigError: an option has the name of another tool, or is given by its old and its new name.
    """
    found: list[str] = []
    typed: dict[str, str] = {}
    words = iter(args)
    for word in words:
        if not word.startswith("--"):
            if "=" in word and BLOCK.fullmatch(word.partition("=")[0]):
                _refuse_foreign(word.partition("=")[0], args, row, path)
            found.append(word)
            continue
        flag, mark, value = word.partition("=")
        low = flag.lower().replace("_", "-")
        flag = low if flag not in known and low in known else flag
        if hint := row.params.removed.get(flag.removeprefix("--").replace("-", "_")):
            raise ConfigError(f"{path}{flag} is no option of this kernel; {hint}")
        now = _renamed(flag, value if mark else None, words, row, known)
        if typed.setdefault(now[0].partition("=")[0], flag) != flag:
            raise ConfigError(f"{path}: {typed[now[0].partition('=')[0]]} and {flag} are one option; give one of them")
        found += now
        if found[-1].startswith("--") and flag not in known and not _is_old(flag, row):
            _refuse_foreign(flag, args, row, path)
    return found


def _is_old(flag: str, row: KernelModel) -> bool:
    return flag.removeprefix("--").removeprefix("no-").replace("-", "_") in row.params.renamed


def _renamed(flag: str, value: str | None, words: Iterator[str], row: KernelModel, known: set[str]) -> list[str]:
    """One option, and its value where that is read, with today's names."""
    from gpusim.kernel_models.spelling import in_new_words

    no = "no-" if flag.startswith("--no-") and flag not in known else ""
    name = flag.removeprefix("--").removeprefix(no).replace("-", "_")
    news = {item.name for item in row.params.renamed.values() if item.values}
    if name not in row.params.renamed and name not in news:
        return [flag if value is None else f"{flag}={value}"]
    new = f"--{no}{in_new_words(row.params.renamed, name, None)[0].replace('_', '-')}"
    if value is None and f"--no-{new[2:].removeprefix('no-')}" not in known:  # the option is no flag
        value = next(words, None)
    parts = [] if value is None else [str(in_new_words(row.params.renamed, name, part)[1]) for part in value.split(",")]
    now = [new] if value is None else [new, ",".join(parts)]
    before = [flag] if value is None else [flag, value]
    if now != before:
        sys.stderr.write(f"gpusim: {' '.join(before)} is now {' '.join(now)}; the old name goes with the next release\n")
    return now


def _refuse_foreign(flag: str, args: Sequence[str], row: KernelModel, path: str) -> None:
    """Refuse an option that has the name of another tool.

    Raises:
        ConfigError: the text has the name here.
    """
    options = row.params.options()
    if BLOCK.fullmatch(flag) and "tile" in options:
        sides = dict(zip("mnk", "MNK", strict=True)) | dict(_sides(args))
        raise ConfigError(f"{path}{flag} is unknown; did you mean --tile {'x'.join(sides.values())} (Triton's BLOCK_M/N/K)?")
    name = flag.removeprefix("--").lower().replace("-", "_")
    meant, why = FOREIGN.get(name, ((), ""))
    here = [f"--{option.replace('_', '-')}" for option in meant if option in options]
    if here and name not in options:
        raise ConfigError(f"{path}{flag} is unknown; did you mean {' or '.join(here)} ({why})?")


def _sides(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(m, n or k; extent) of a tile that is given by Triton's names."""
    for place, word in enumerate(args):
        flag, mark, value = word.partition("=")
        found = BLOCK.fullmatch(flag)
        text = value if mark else args[place + 1] if place + 1 < len(args) else ""
        if found and text.isdigit():
            yield found[1].lower(), text
