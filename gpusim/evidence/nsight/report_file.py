"""Report files of Nsight Compute (``.ncu-rep``), read with NVIDIA's ``ncu_report``.

In: a file. Out: its launches with metrics in base units, and remarks.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpusim.errors import ConfigError
from gpusim.evidence.nsight.launches import DEVICE, ProfiledLaunch, ProfileFile, short_name
from gpusim.evidence.nsight.metrics import is_needed
from gpusim.evidence.nsight.units import in_base_unit, wanted_dimension


def read_report(path: Path) -> ProfileFile:
    """Launches of a report file, read with NVIDIA's ``ncu_report``.

    Raises:
        ConfigError: the package is not installed, the file is no report, or a metric that is judged cannot be read.
    """
    try:
        import ncu_report
    except ImportError:
        raise ConfigError(
            f"{path}: reading a report wants NVIDIA's package: pip install 'gpusim[ncu]', or export it with "
            f"ncu --import {path.name} --csv --page raw"
        ) from None
    if not path.is_file():
        raise ConfigError(f"{path} is no file, wants a report of Nsight Compute")
    try:
        context = ncu_report.load_report(str(path))
    except Exception as error:  # noqa: BLE001  # ncu_report raises any exception
        raise ConfigError(f"{path}: is no report of Nsight Compute, or cut off ({error})") from None
    actions = [
        context.range_by_idx(i).action_by_idx(j)
        for i in range(context.num_ranges()) for j in range(context.range_by_idx(i).num_actions())
    ]  # fmt: skip
    if not actions:
        raise ConfigError(f"{path}: holds no launch: nothing was profiled, or it is cut off")
    remarks: list[str] = []
    try:
        launches = tuple(_of_action(str(idx), action, remarks) for idx, action in enumerate(actions))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return ProfileFile(path=path, launches=launches, remarks=tuple(remarks))


def _of_action(idx: str, action: Any, remarks: list[str]) -> ProfiledLaunch:
    """Launch of a report's action. Metrics that could not be collected are added to ``remarks``."""
    metrics: dict[str, float] = {}
    device = ""
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = metric.value()
        if isinstance(value, float) and math.isinf(value) and is_needed(name):
            raise ConfigError(f"launch {idx}, {name}: '{value}' is no number")
        if isinstance(value, float) and not math.isfinite(value):
            if wanted_dimension(name):
                remarks.append(f"launch {idx}, {name} is '{value}': could not be collected, not compared")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            try:
                metrics[name] = in_base_unit(f"launch {idx}, {name}", name, float(value), metric.unit() or None)
            except ConfigError:
                if is_needed(name):
                    raise
                if (remark := f"left out, as its unit or number cannot be read: {name}") not in remarks:
                    remarks.append(remark)
        elif name == DEVICE:
            device = str(value)
    shape = {what: tuple(int(metrics.get(f"launch__{what}_dim_{axis}", 0)) for axis in "xyz") for what in ("grid", "block")}
    parts = [metrics.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    capability = ".".join(f"{part:.0f}" for part in parts if part is not None)
    return ProfiledLaunch(
        idx=idx, kernel=short_name(action.name()), metrics=MappingProxyType(metrics), capability=capability,
        device=device,
        grid=shape["grid"] if all(shape["grid"]) else (), block=shape["block"] if all(shape["block"]) else (),
    )
