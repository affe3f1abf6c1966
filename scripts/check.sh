#!/usr/bin/env bash
# Sets up a virtual environment in .venv and runs everything that must be green. Needs python3 (3.11+) with venv and pip.
# With arguments, which are pytest's, tests run once, by the sources alone.
set -euo pipefail
cd "$(dirname "$0")/.."
# the explorer is tested in a real browser
has_browser() { command -v chromium >/dev/null && command -v chromedriver >/dev/null; }
if ! has_browser && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null || true
fi
has_browser || echo "Chromium is not there: the explorer's tests in a browser are skipped (as root: apt-get install chromium chromium-driver)"
unset PYTHONDONTWRITEBYTECODE  # many processes read the same modules
python3 -m venv .venv
# bytecode is made of what is imported, and not of all that is installed
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
.venv/bin/ruff check .
.venv/bin/mypy & types=$!  # beside the tests: half a minute of one core
status=0
# a worker begins with one half of the files, in order, so that what tests of a file share is made once, and takes of the other's when it is done
run_tests() { .venv/bin/python -m pytest -q -n auto --dist worksteal --durations=15 "$@" || status=$?; }
if [ $# -gt 0 ]; then
  run_tests "$@"
else
  # What asks for whole predictions runs with compiled modules, which take half of the time; all else, which holds parts, roles
  # and kernel models to their laws, runs the sources (some laws simulate whole products, too). test_compiled.py holds one to the
  # other, to the last bit.
  by_compiled=(
    tests/simulate/test_{compiled,in_step,sampling,skipping,streams}.py
    tests/evidence tests/kernels tests/report tests/lessons tests/notebooks tests/explore tests/test_*.py
  )
  .venv/bin/gpusim compile & modules=$!  # beside the tests: two minutes of one core
  run_tests "${by_compiled[@]/#/--ignore=}"
  # a build that fails where there is all that it needs fails again in test_compiled.py
  wait "$modules" || echo "No modules of these sources are there, as said above: the other tests run the sources, too, and take twice as long"
  GPUSIM_INTERPRETED='' run_tests "${by_compiled[@]}"
fi
wait "$types" || status=$?
exit "$status"
