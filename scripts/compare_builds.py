"""Compares builds of the engine bit for bit: the module, native ones under sanitizers, and one for arm64 that qemu runs.

``python scripts/compare_builds.py gcc clang arm64`` packs the launches of ``tests/engine/launches.py``, and each build runs
them. Every section of every result, timelines and the cycle of each event among them, must be the module's. A build that
the address sanitizer or the sanitizer of undefined behaviour stops fails; leaks are not looked for. ``--launches NAME ...``
and ``--programs NUM`` choose what is run: launches of these names, and so many random programs (``tests/engine/fuzz.py``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from build_engine import CACHE, COMMON, SOURCES, compile_sources, sources  # noqa: E402

from gpusim.errors import GpusimError  # noqa: E402
from gpusim.machine.config import GpuSpec  # noqa: E402
from gpusim.program.records import OUTPUT_SECTIONS  # noqa: E402
from gpusim.simulate.buffers import read_buffer  # noqa: E402
from gpusim.simulate.idealize import idealize  # noqa: E402
from gpusim.simulate.pack import pack, trace_plan  # noqa: E402
from gpusim.simulate.plan import plan_launch  # noqa: E402
from gpusim.simulate.settings import IN_L2, L2State, Settings  # noqa: E402
from gpusim.simulate.wasm_module import MODULE, EngineModule, EngineRun  # noqa: E402
from gpusim.units import Clock  # noqa: E402
from gpusim.workload.launch import Launch  # noqa: E402
from tests.engine.fuzz import drawn  # noqa: E402
from tests.engine.launches import CASES, MHZ  # noqa: E402

DRIVER = ROOT / "scripts" / "run_packed.cpp"
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
MOST_EVENTS = 20_000_000
AT_ONCE = 200
"""Launches that one process runs."""


@dataclass(frozen=True)
class Build:
    """How the driver is compiled and run."""

    compiler: tuple[str, ...]
    flags: tuple[str, ...] = SANITIZED
    runner: tuple[str, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether its programs are there."""
        return all(shutil.which(words[0]) for words in (self.compiler, self.runner) if words)


BUILDS: Mapping[str, Build] = {
    "gcc": Build(("g++",)),
    "clang": Build(("clang++",)),
    "gcc-quick": Build(("g++",), (*SANITIZED, "-g0", "-O0")),
    "gcc-plain": Build(("g++",), ()),
    "arm64": Build(
        (sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-musl"), ("-nostdlib++", "-static"),
        ("qemu-aarch64-static",),
    ),
}
"""By name; ``gcc-quick`` is soon compiled."""


def packed(launch: Launch, gpu: GpuSpec, *, mhz: float, l2: L2State = "cold", ideals: Sequence[str] = ()) -> bytes:
    """The input buffer of a launch: the first SM is recorded, and every event is traced.

    Raises:
        GpusimError: it cannot be run.
    """
    chosen = frozenset(ideals)
    plan = plan_launch(launch, idealize(gpu, chosen), is_warm=l2 in IN_L2)
    settings = Settings(l2=l2, ideals=chosen, recorded_sms="first", max_events=MOST_EVENTS, keeps_trace=True)
    return pack(plan, trace_plan(plan), Clock(sm_mhz=mhz), settings)


def packed_launches(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Those of ``tests/engine/launches.py`` that run, and those that follow them."""
    for name in names:
        case = CASES[name]
        try:
            launch, gpu = case.launch(), case.spec
            for idx, each in enumerate((launch, *launch.following)):
                yield f"{name}.{idx}", packed(each, gpu, mhz=case.mhz or MHZ[case.gpu], l2=case.l2, ideals=case.ideals)
        except GpusimError:  # a refusal, which no engine sees
            continue


def packed_programs(seeds: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    """Random programs."""
    for seed in seeds:
        found = drawn(seed)
        yield f"seed{seed}", packed(found.launch, found.gpu, mhz=found.mhz, l2="warm" if found.is_warm else "cold")


def digest(sections: Mapping[str, NDArray[Any]]) -> str:
    """Of every section of a result."""
    found = sha256()
    for name, section in sections.items():
        found.update(f"{name} {len(section)}\n".encode() + section.tobytes())
    return found.hexdigest()[:16]


def of_module(module: EngineModule, launch: bytes) -> str:
    """What the module says."""
    return digest(EngineRun(launch, kernel="packed", num_ctas=0, module=module).run())


def compiled(build: Build, output: Path) -> Path:
    """The driver with the engine.

    Raises:
        SystemExit: it does not compile.
    """
    cache = {"ZIG_GLOBAL_CACHE_DIR": str(CACHE), "ZIG_LOCAL_CACHE_DIR": str(CACHE)}
    compile_sources([*build.compiler, *COMMON, *build.flags, *sources(), str(DRIVER), "-o", str(output)], SOURCES, cache)
    return output


def run_all(build: Build, program: Path, paths: Sequence[Path]) -> str:
    """Run launches with a build, which leaves PATH.out for each; returns what went wrong."""
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    for begin in range(0, len(paths), AT_ONCE):
        some = [str(path) for path in paths[begin : begin + AT_ONCE]]
        ended = subprocess.run(
            [*build.runner, str(program), *some], env={**os.environ, **options}, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            return f"status {ended.returncode}\n{ended.stderr[-4000:]}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("builds", nargs="+", choices=BUILDS)
    parser.add_argument("--launches", nargs="*", default=None, metavar="NAME", help="all where nothing is chosen")
    parser.add_argument("--programs", type=int, default=0, metavar="NUM", help="random ones, from seed 0 on")
    parser.add_argument("--folder", type=Path, help="where packed launches and results stay", metavar="FOLDER")
    given = parser.parse_args(arguments)
    names = given.launches if given.launches is not None else [] if given.programs else list(CASES)
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        expected: dict[Path, str] = {}
        module = EngineModule.of_wasm(MODULE)
        for launches in (packed_launches(names), packed_programs(range(given.programs))):
            for name, launch in launches:
                path = folder / name
                path.write_bytes(launch)
                expected[path] = of_module(module, launch)
        print(f"{len(expected)} launches packed, and run by the module")
        num_bad = 0
        for name in given.builds:
            build = BUILDS[name]
            if not build.is_possible:
                print(f"{name}: not compared, as {build.compiler[0]} or what runs it is not there")
                continue
            failed = run_all(build, compiled(build, folder / f"{name}.program"), list(expected))
            differ = [
                path.name for path, said in expected.items()
                if not (result := path.with_name(f"{path.name}.out")).exists()
                or digest(read_buffer(result.read_bytes(), OUTPUT_SECTIONS)) != said
            ]
            print(f"{name}: {len(differ)} of {len(expected)} launches differ {' '.join(differ[:20])}\n{failed}".rstrip())
            num_bad += bool(failed or differ)
            for path in expected:
                path.with_name(f"{path.name}.out").unlink(missing_ok=True)
    return int(num_bad > 0)


if __name__ == "__main__":
    sys.exit(main())
