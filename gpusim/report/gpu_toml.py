"""GPU description as one flat TOML file, without ``extends``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gpusim.machine.config import BELOW, COMPONENT_KINDS, GpuSpec


def gpu_toml(gpu: GpuSpec) -> str:
    """Flat TOML text of ``gpu``, every number with its source; it loads to the same GPU.

    >>> from gpusim import load_gpu
    >>> gpu_toml(load_gpu("toy")).splitlines()[:4]
    ['name = "toy"', 'title = "Toy GPU for tests worked out by hand"', '', '[device]']
    """
    lines = [f"name = {_value(gpu.name)}", f"title = {_value(gpu.title)}"]
    for part in ("device", *COMPONENT_KINDS):
        spec = gpu.component(part)
        if spec is None:
            continue
        keys = [item.name for item in fields(spec) if f"{part}.{item.name}" in gpu.sources]
        path = part if part == "device" else f"component.{part}"
        lines += ["", f"[{path}]"]
        lines += [f"kind = {_value(part)}"] if part != "device" else []
        lines += [f"below = {_value(BELOW[part])}"] if part in BELOW else []
        lines += [f"features = {_value(gpu.device.features)}"] if part == "device" else []
        lines += [f"{key} = {_value(getattr(spec, key))}" for key in keys]
        lines += ["", f"[{path}.source]", *(f"{key} = {_value(gpu.sources[f'{part}.{key}'])}" for key in keys)]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        entries = (f"{key if key.isidentifier() else _value(key)} = {_value(number)}" for key, number in value.items())
        return f"{{ {', '.join(entries)} }}"
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, tuple | list) else repr(value)
