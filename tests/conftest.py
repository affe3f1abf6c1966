"""What tests of several rooms share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from gpusim.cli import main

EXAMPLES = int(os.environ.get("GPUSIM_EXAMPLES", "40"))
"""That hypothesis tries where a test says nothing else."""

# no test is timed: a machine may have other work
settings.register_profile("gpusim", deadline=None, max_examples=EXAMPLES)
settings.load_profile("gpusim")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script: tests of Ctrl-C would not end
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = tuple(
    line for line in (Path(__file__).parent / "long_tests.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"
)
"""Parts of the names of tests that run only with ``GPUSIM_TESTS=all``."""
FULL_SUITE = 15_000
"""Tests from which on a collection is the full suite."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave long tests out, unless all are wanted.

    Raises:
        pytest.UsageError: a name in ``long_tests.txt`` is no test's.
    """
    found = {item: [part for part in LONG if part in item.nodeid] for item in items}
    unknown = set(LONG).difference(*found.values())
    if unknown and len(items) >= FULL_SUITE:
        raise pytest.UsageError(f"tests/long_tests.txt names no test: {', '.join(sorted(unknown))}")
    if os.environ.get("GPUSIM_TESTS") != "all":
        for item in (item for item, parts in found.items() if parts):
            item.add_marker(pytest.mark.skip(reason="long, and its like run; GPUSIM_TESTS=all runs it"))


gc.disable()  # collecting 16,000 tests makes many objects, none of them garbage


def pytest_collection_finish() -> None:
    """Leave all that collection has made out of the search for garbage, and search less often."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


Refuses = Callable[[Sequence[str], Sequence[str]], None]


@pytest.fixture(scope="session", autouse=True)
def _keeps_nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Answers that ``gpusim validate`` keeps go where they are forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


LARGE_CTAS = 10_000
KEPT: dict[tuple[Any, ...], Any] = {}
"""Results of large launches by all that they follow from."""


@pytest.fixture
def runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate simulates a large launch of the library once for all profiles of it."""
    import gpusim.evidence.gate.baseline as of_baseline
    import gpusim.evidence.gate.check as of_check
    from gpusim.analysis.choose import _HashedGpu
    from gpusim.simulate.run import simulate

    def kept(launch: Any, gpu: Any, *, on_progress: Any = None, **how: Any) -> Any:
        if launch.num_ctas < LARGE_CTAS or not launch.params:
            return simulate(launch, gpu, on_progress=on_progress, **how)
        key = (launch.kernel, launch.num_ctas, repr(launch.params), _HashedGpu(gpu), repr(how))
        if key not in KEPT:
            KEPT[key] = simulate(launch, gpu, on_progress=on_progress, **how)
        return KEPT[key]

    for module in (of_check, of_baseline):
        monkeypatch.setattr(module, "simulate", kept)


@pytest.fixture
def refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refuses:
    """Checks that a command line costs one sentence with these words, status 2, and no file."""

    def check(arguments: Sequence[str], said: Sequence[str]) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(list(arguments)) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert err.startswith("gpusim: ")
        for words in said:
            assert words in err
        assert not list(tmp_path.iterdir())

    return check
