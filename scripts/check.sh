#!/usr/bin/env bash
# Sets up a virtual environment in .venv and runs everything that must be green. Needs python3 (3.11+) with venv and pip.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/python -m pytest -q -n auto "$@"
