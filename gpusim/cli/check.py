"""``check``: compares an Nsight Compute profile with predictions. It has the options of the named kernel, too."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from gpusim.cli.kernel_command import kernel_command
from gpusim.cli.options import check_choice, console_for, find_gpu, spinner, write_json
from gpusim.cli.parameters import checked_params, given_options, kernel_parameters, output_paths
from gpusim.errors import FAULT, INTERRUPTED, ConfigError, GpusimError, nearest

if TYPE_CHECKING:
    from gpusim.evidence.gate.models import Model
    from gpusim.evidence.gate.verdicts import Report
    from gpusim.kernel_models import KernelModel
    from gpusim.machine.config import GpuSpec

SIGNS = ("point", "comma")
OTHER_WAYS = ("--models", "--launch", "--problem")
ONE_WAY = (
    "check wants one of --kernel NAME, --models FILE, --launch FILE.py:NAME and --problem MxNxK, or --baseline alone"
)


class CheckCommand(TyperCommand):
    """Command that also has the options of a kernel if ``--kernel NAME`` is given."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Context of the command with the kernel's options."""
        name = _value_of("--kernel", args)
        if name is None:
            try:
                return super().make_context(info_name, args, parent, **extra)
            except TyperException as error:
                _refuse_option_of_a_kernel(getattr(error, "option_name", None))
                raise
        from gpusim.kernel_models import KERNEL_MODELS

        if name not in KERNEL_MODELS:
            raise ConfigError(f"check: --kernel {name!r} is no kernel model; {nearest(name, KERNEL_MODELS)}")
        ways = [way for way in OTHER_WAYS if _value_of(way, args) is not None]
        if ways:
            raise ConfigError(f"{ONE_WAY}; {' and '.join([*ways, '--kernel'])} are given")
        whole: Any = _with_options_of(KERNEL_MODELS[name])
        return whole.make_context(info_name, args, parent, **extra)


def _refuse_option_of_a_kernel(option: str | None) -> None:
    """Name the missing ``--kernel`` if only kernels have ``option``.

    Raises:
        ConfigError: a kernel has that option.
    """
    from gpusim.kernel_models import KERNEL_MODELS

    kernels = [
        name for name, row in KERNEL_MODELS.items()
        if option in {f"--{name.replace('_', '-')}" for name in (*row.params.options(), *row.params.renamed)}
    ]
    if kernels:
        whose = kernels[0] if len(kernels) == 1 else f"{len(kernels)} kernels"
        raise ConfigError(f"check: {option} is an option of {whose}; say which kernel, as --kernel {kernels[0]}")


def _value_of(option: str, args: Sequence[str]) -> str | None:
    for place, word in enumerate(args):
        if word == option and place + 1 < len(args):
            return args[place + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def _with_options_of(row: KernelModel) -> Any:
    """Command with the options of ``check`` and those of the kernel, named as in ``gpusim predict``."""
    signature = inspect.signature(check_command, eval_str=True)
    own = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in signature.parameters.values()]

    def command(**values: Any) -> None:
        ours = {item.name: values.pop(item.name) for item in own}
        _check(ours, row, values)

    return kernel_command(row, command, [*own, *kernel_parameters(row)], check_command.__doc__, "check")


def check_command(
    profile: Annotated[str, typer.Argument(
        metavar="PROFILE", help="Profile: CSV of ncu --csv (raw or details page), or a report (.ncu-rep).")],
    gpu_name: Annotated[str | None, typer.Option("--gpu", metavar="NAME|TOML",
        help="GPU that was profiled: name, unique beginning of it, or TOML file. Models want it.")] = None,
    kernel: Annotated[str | None, typer.Option(
        "--kernel", metavar="NAME",
        help="Kernel model of the launches. Its options follow, as for gpusim predict NAME.")] = None,
    match: Annotated[str | None, typer.Option(
        "--match", metavar="REGEX", help="Compare only launches whose kernel name matches.")] = None,
    models: Annotated[str | None, typer.Option(
        "--models", metavar="FILE.toml",
        help="TOML file with a kernel model for each kernel name, instead of --kernel.")] = None,
    launch: Annotated[str | None, typer.Option(
        "--launch", metavar="FILE.py:NAME",
        help="Launch written in Python: a Launch, or a function of a GPU or of nothing that returns one.")] = None,
    problem: Annotated[str | None, typer.Option(
        "--problem", metavar="MxNxK[:TYPE][:LAYOUT]",
        help="GEMM that cuBLAS was called for. Tile, stages and schedule are read from names of kernels.")] = None,
    tolerance: Annotated[list[str] | None, typer.Option(
        "--tolerance", metavar="NAME=LIMIT",
        help="Limit of a difference: cycles=10%, bytes=5%, hit_rate=2 (points), or a metric's name. Repeatable. "
        "With a second number (bytes=5%,4096) only what exceeds both fails.")
    ] = None,
    clock_mhz: Annotated[float | None, typer.Option(
        "--clock", metavar="MHZ", help="SM clock of launches whose profile tells none, in MHz.")] = None,
    l2_state: Annotated[str, typer.Option(
        "--l2", metavar="flushed|warm|stored", help="Caches before each kernel: flushed (or cold), as by Nsight Compute. "
        "With --cache-control none: warm, or stored (the kernel before stored what this one reads).")] = "flushed",
    baseline: Annotated[str | None, typer.Option(
        "--baseline", metavar="FILE",
        help="Older profile. The report says what became worse since, and what explains it.")] = None,
    worse: Annotated[list[str] | None, typer.Option(
        "--worse", metavar="NAME=LIMIT",
        help="Limit of a change for the worse against the baseline, for example cycles=3%. Repeatable.")] = None,
    was: Annotated[list[str] | None, typer.Option(
        "--was", metavar="OPTION=VALUE", help="Option of the kernel that had another value in the baseline. Repeatable.")
    ] = None,
    strict: Annotated[bool, typer.Option(
        "--strict", help="Status 3 also for a model without a launch, a launch without a model, or without cycles and time.")
    ] = False,
    decimal: Annotated[str | None, typer.Option(
        "--decimal", metavar="point|comma", help="Decimal sign of the profile, detected by default.")] = None,
    json_path: Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON. - is stdout.")]
    = None,
    junit_path: Annotated[str | None, typer.Option("--junit", metavar="FILE", help="Write the result as JUnit XML.")] = None,
) -> None:  # fmt: skip
    """Compare an Nsight Compute profile with the predictions of kernel models.

    Status 0: all within tolerance; 1: something is not; 2: bad input; 3: nothing, or not all that was requested, to compare.
    """
    _check(locals(), None, {})


def _check(ours: Mapping[str, Any], row: KernelModel | None, values: Mapping[str, Any]) -> None:
    from gpusim.evidence.gate.gpu_refusals import NotComparableError
    from gpusim.evidence.gate.verdicts import NOT_COMPARABLE
    from gpusim.report.check import check_document, check_junit, junit_bytes, none_junit_bytes, render_check
    from gpusim.report.output import write_whole

    inputs = {"PROFILE": ours["profile"], "--baseline": ours["baseline"], "--models": ours["models"]}
    json_path, junit_path = output_paths(ours, inputs).values()
    if junit_path is not None:
        check_junit()
    try:
        report = _report(ours, row, values)
    except BaseException as error:
        status, verdict, sentence = _of_no_report(error)
        if junit_path is not None:
            write_whole(junit_path, none_junit_bytes(sentence))
        if json_path is not None:
            write_json({"status": status, "verdict": f"{verdict}: {sentence}", "launches": []}, json_path)
        if not isinstance(error, NotComparableError):
            raise
        typer.echo(f"gpusim: {error}", err=True)
        raise typer.Exit(NOT_COMPARABLE) from None
    if junit_path is not None:
        write_whole(junit_path, junit_bytes(report))
    if json_path is not None:
        write_json(check_document(report), json_path)
    render_check(report, console_for(json_path))
    if report.status:
        raise typer.Exit(report.status)


def _of_no_report(error: BaseException) -> tuple[int, str, str]:
    """(Status, verdict, sentence) where the command ends without a report, by what was raised."""
    from gpusim.evidence.gate.gpu_refusals import NotComparableError
    from gpusim.evidence.gate.verdicts import BAD_INPUT, NOT_COMPARABLE

    if isinstance(error, NotComparableError):
        return NOT_COMPARABLE, "NOT COMPARABLE", str(error)
    if isinstance(error, GpusimError | OSError):
        return BAD_INPUT, "BAD INPUT", str(error)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "INTERRUPTED", "nothing was compared"
    return FAULT, "FAULT", f"a fault of gpusim: {type(error).__name__}"


def _report(ours: Mapping[str, Any], row: KernelModel | None, values: Mapping[str, Any]) -> Report:
    """Report of the requested comparison.

    Raises:
        NotComparableError: nothing can be compared.
        GpusimError: the input is bad.
    """
    from gpusim.evidence.gate.check import Limits, check_profile
    from gpusim.evidence.gate.tolerances import parse_tolerance

    for flag, name in (("--was", "was"), ("--worse", "worse")):
        if ours[name] and ours["baseline"] is None:
            raise ConfigError(f"{flag} goes with --baseline, an older profile")
    if ours["decimal"] is not None:
        check_choice("--decimal", ours["decimal"], SIGNS)
    gpu = None if ours["gpu_name"] is None else find_gpu(ours["gpu_name"], "--gpu")
    found = _models(ours, row, values, gpu)
    tolerances, worse = (
        dict(parse_tolerance(text, f"--{name}") for text in ours[name] or ()) for name in ("tolerance", "worse")
    )
    baseline = None if ours["baseline"] is None else _file(ours["baseline"], "--baseline")
    with spinner("comparing" if gpu is None else f"simulating on {gpu.name}") as status:
        return check_profile(
            _file(ours["profile"], "PROFILE"), gpu=gpu, models=found, baseline=baseline,
            limits=Limits(tolerances=tolerances, worse=worse, clock_mhz=ours["clock_mhz"], is_strict=ours["strict"],
                          match=_regex(ours["match"]), on_progress=status.show_progress),
            decimal=ours["decimal"],
        )


def _models(
    ours: Mapping[str, Any], row: KernelModel | None, values: Mapping[str, Any], gpu: GpuSpec | None
) -> tuple[Model, ...]:
    """Models by the one of four ways that is given; none where a baseline is given alone."""
    from gpusim.evidence.gate.launch_file import launch_maker
    from gpusim.evidence.gate.library_models import library_models
    from gpusim.evidence.gate.models import L2, Model, read_models, refuse_without_models
    from gpusim.evidence.nsight.profiles import read_profile

    l2: Any = check_choice("--l2", ours["l2_state"], get_args(L2))
    ways = [way for way in OTHER_WAYS if ours[way[2:]] is not None] + ["--kernel"] * (row is not None)
    if len(ways) > 1 or (not ways and ours["baseline"] is None):
        found = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise ConfigError(f"{ONE_WAY}; {found}")
    refuse_without_models(bool(ways), tolerance=ours["tolerance"], clock=ours["clock_mhz"], mark="--")
    with_kernel = (("--was", "was"), *((("--match", "match"),) if ways == ["--models"] else ()))
    for flag, name in with_kernel if row is None else ():
        if ours[name]:
            of_file = "; --models FILE says it for each model" if ours["models"] else ""
            raise ConfigError(f"{flag} goes with --kernel{of_file}")
    if l2 == "warm" and (not ways or ours["models"] is not None):
        raise ConfigError("--l2 goes with --kernel; --models FILE says it for each model")
    if not ways:
        return ()
    if gpu is None:
        raise ConfigError("check: --gpu is missing, wants the GPU that was profiled")
    if ours["models"] is not None:
        return read_models(_file(ours["models"], "--models"))
    if ours["launch"] is not None:
        make = launch_maker(ours["launch"])
        return (Model(kernel=ours["launch"], options={}, regex=_regex(ours["match"]), l2=l2, make=make),)
    if row is None:
        profile = read_profile(_file(ours["profile"], "PROFILE"), decimal=ours["decimal"])
        return library_models(profile, ours["problem"], gpu, match=_regex(ours["match"]), l2=l2)
    given = given_options(row, values)
    known = (*row.params.options(), *row.params.renamed)
    was = row.params.in_our_words(dict(_option(text, known) for text in ours["was"] or ()))
    checked = _checked(row, given)
    changed = _checked(row, {**given, **was})
    return (
        Model(
            kernel=row.name, options=checked, regex=_regex(ours["match"]), l2=l2,
            was={name: changed[name] for name in was},
        ),
    )


def _checked(row: KernelModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options in the model's types: numbers and flags as such, all others as typed."""
    found = checked_params(row, given).model_dump(by_alias=True)
    return {name: found[name] if isinstance(found.get(name), int | float) else value for name, value in given.items()}


def _regex(text: str | None) -> str:
    try:
        re.compile(text or "")
    except re.error as error:
        raise ConfigError(f"--match {text!r} is no regular expression: {error}") from None
    return text or ""


def _option(text: str, known: Any) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    name = name.removeprefix("--").replace("-", "_")
    if not mark:
        raise ConfigError(f"--was {text!r} wants OPTION=VALUE, for example stages=3")
    if name not in known:
        raise ConfigError(f"--was {name!r} is no option of the kernel; {nearest(name, known)}")
    return name, value


def _file(text: str, flag: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ConfigError(f"{flag} {text!r} is no file, wants one that is there")
    return path
