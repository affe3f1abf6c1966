"""``scripts/check.sh`` says what it leaves out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "check.sh"


@pytest.mark.parametrize("has_browser", [True, False])
def test_who_has_no_browser_and_may_install_none_is_told(has_browser: bool, tmp_path: Path) -> None:
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "")
    programs = {"id": "echo 1000", "python3": "exit 7", **({"chromium": "", "chromedriver": ""} if has_browser else {})}
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    bash = shutil.which("bash") or ""
    found = subprocess.run([bash, str(SCRIPT)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert found.returncode == 7, found.stderr  # it ends where it would make its virtual environment
    assert ("the explorer's tests in a browser are skipped" in found.stdout) != has_browser
