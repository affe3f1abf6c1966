#!/usr/bin/env bash
# Sets up a virtual environment in .venv and runs everything that must be green. Needs python3 (3.11+) with venv and pip.
# Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."
# the explorer is tested in a real browser
has_browser() { command -v chromium >/dev/null && command -v chromedriver >/dev/null; }
if ! has_browser && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null & browser=$!
fi
unset PYTHONDONTWRITEBYTECODE  # many processes read the same modules
python3 -m venv .venv
# bytecode is made of what is imported, and not of all that is installed
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
wait ${browser:-} || true  # it came while pip worked
has_browser || echo "Chromium is not there: the explorer's tests in a browser are skipped (as root: apt-get install chromium chromium-driver)"
.venv/bin/ruff check .
find engine scripts -name '*.cpp' -o -name '*.h' ! -name records.h | xargs .venv/bin/clang-format --dry-run -Werror
.venv/bin/mypy & types=$!  # beside the tests: half a minute of one core
.venv/bin/python scripts/build_engine.py --check & module=$!  # the module is what its sources give elsewhere, byte for byte
status=0
# a worker begins with one part of the files, in order, so that what tests of a file share is made once, and then helps others
.venv/bin/python -m pytest -q -n auto --dist worksteal --durations=15 "$@" || status=$?
# the last lines say what failed beside the tests
wait "$types" || { status=$?; echo "mypy failed: see above the tests' dots, or run .venv/bin/mypy"; }
wait "$module" || { status=$?; echo "The module is not what engine/ gives: python scripts/build_engine.py"; }
exit "$status"
