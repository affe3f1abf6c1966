#!/usr/bin/env bash
# Runs tests with the lowest versions of libraries that pyproject.toml allows, in .venv-lowest. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv .venv-lowest
python3 scripts/lowest_versions.py > .venv-lowest/lowest.txt
.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c .venv-lowest/lowest.txt \
  -e '.[explore,ci]' pytest pytest-xdist hypothesis httpx2 markdown-it-py nbformat
# old libraries use what new ones call deprecated
exec .venv-lowest/bin/python -m pytest -q -n auto -W ignore::DeprecationWarning "$@"
