"""A GPU's description with calibrated parameters written into it.

In: the text of ``configs/<gpu>.toml``, lines of a calibration. Out: the text with these numbers and sources; comments, order
and all other statements stay.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.errors import ConfigError
from gpusim.evidence.validate.calibrate import Line, parameter, statements
from gpusim.machine.config import configs_dir, load_gpu

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec

WIDTH = 120
SETTLED = ("measured:", "fitted:")
"""Beginnings of sources whose numbers came from rows of this GPU."""


def news(lines: Sequence[Line]) -> list[Line]:
    """Lines that say another number than the description does, or that it has not from rows of this GPU."""
    return [line for line in lines if line.text != line.text_before or not line.source_before.startswith(SETTLED)]


def description_path(gpu_name: str, gpu: GpuSpec) -> Path:
    """File that describes a GPU.

    Raises:
        ConfigError: gpusim is installed without a checkout; the next installation would overwrite the file.
    """
    if gpu_name.endswith(".toml"):
        return Path(gpu_name)
    if configs_dir().parent == Path(__file__).resolve().parents[2]:
        raise ConfigError("calibrate: --write wants gpusim's checkout, whose descriptions stay: pip install -e there")
    return configs_dir() / f"{gpu.name}.toml"


def write(path: Path, lines: Sequence[Line], gpu: GpuSpec) -> None:
    """Write numbers and sources of ``lines`` into the description, which is read back first.

    Raises:
        ConfigError: the changed text would not say these numbers; nothing is written.
    """
    text = path.read_text(encoding="utf-8")
    for section, wanted in statements(lines, gpu).items():
        text = with_statements(text, section, wanted)
    partial = path.with_suffix(".part.toml")
    partial.write_text(text, encoding="utf-8")
    try:
        found = load_gpu(partial)
        if any(parameter(found, line.parameter) != float(line.text) for line in lines):
            raise ConfigError(f"calibrate: --write cannot change {path} as it is written: take the lines over by hand")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def with_statements(text: str, section: str, wanted: Mapping[str, str]) -> str:
    r"""Text in which a section has these values (TOML) by key; new keys come last, a new section behind its part's.

    >>> with_statements("[a]\nx = 1  # one\ny = 2\n", "a", {"y": "3", "z": "4"})
    '[a]\nx = 1  # one\ny = 3\nz = 4\n'
    """
    rows = text.splitlines()
    heads = [idx for idx, row in enumerate(rows) if row.startswith("[")]
    if f"[{section}]" not in rows:
        at = _place(rows, heads, section)
        rows[at:at] = [f"[{section}]", ""] if at < len(rows) else ["", f"[{section}]"]
        heads = [idx for idx, row in enumerate(rows) if row.startswith("[")]
    first = rows.index(f"[{section}]")
    end = next((idx for idx in heads if idx > first), len(rows))
    body = rows[first + 1 : end]
    while body and not body[-1]:
        body.pop()
    for key, value in wanted.items():
        body = _replaced(body, key, f"{key} = {_wrapped(value, WIDTH - len(key))}".split("\n"))
    return "\n".join([*rows[: first + 1], *body, *([""] if end < len(rows) else []), *rows[end:]]) + "\n"


def _place(rows: Sequence[str], heads: Sequence[int], section: str) -> int:
    """Row of a new section: before its sources, or behind the section that it has the sources of."""
    if f"[{section}.source]" in rows:
        return rows.index(f"[{section}.source]")
    part = f"[{section.removesuffix('.source')}]"
    begin = rows.index(part) if part in rows else len(rows)
    return next((idx for idx in heads if idx > begin), len(rows))


def _replaced(body: list[str], key: str, statement: list[str]) -> list[str]:
    for idx, row in enumerate(body):
        if re.match(rf"{re.escape(key)}\s*=", row):
            end = idx + 1
            if row.count('"""') == 1:
                end = next(at for at in range(idx + 1, len(body)) if '"""' in body[at]) + 1
            return [*body[:idx], *statement, *body[end:]]
    return [*body, *statement]


def _wrapped(value: str, width: int) -> str:
    """A long text over several rows, as descriptions have it."""
    if len(value) <= width or not value.startswith('"'):
        return value
    rows = textwrap.wrap(value[1:-1], WIDTH, break_long_words=False, break_on_hyphens=False)
    return '"""\\\n' + " \\\n".join(f"  {row}" for row in rows) + '"""'
