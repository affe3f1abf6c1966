"""Print the lowest versions that ``pyproject.toml`` allows, as constraints for pip.

In: ``pyproject.toml``. Out: a line for each library, on stdout.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
LOWEST = re.compile(r"^([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)")


def main() -> None:
    """Print a line for each requirement with a lowest version, of the package and of its extras."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = (*project["dependencies"], *(item for names in extras.values() for item in names))
    for name, version in sorted({found.groups() for found in map(LOWEST.match, requirements) if found}):
        print(f"{name}=={version}.*")


if __name__ == "__main__":
    main()
