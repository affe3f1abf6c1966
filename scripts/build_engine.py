"""Builds ``gpusim/engine.wasm`` from ``engine/*.cpp``, the same bytes wherever it is built.

Needs the extra ``engine`` (``ziglang``, one version of it). ``--check`` builds a copy of the sources elsewhere and
compares; it exits with 1 where they differ. ``--native LIBRARY`` builds a shared library of the same sources, for
debuggers, sanitizers and profilers: ``GPUSIM_ENGINE_LIBRARY=LIBRARY`` lets gpusim use it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "engine"
MODULE = ROOT / "gpusim" / "engine.wasm"
CACHE = ROOT / "build" / "zig"
PROFILE = "engine.profdata"
"""How often branches are taken (``scripts/profile_engine.py``), beside the sources. It moves time, never an answer."""

ZIGLANG = "0.17.1"
"""The version that builds the module; the same as in ``pyproject.toml``."""

EXPORTS = ("allocate", "create", "run_slice", "progress", "results", "numeric", "evaluate")
"""What the engine must define, as ``extern "C"``."""

CONSTRUCTORS = "__wasm_call_ctors"
"""Runs constructors of globals once. Unless it is exported the linker wraps each export, which then runs them each time."""

COMMON = (
    "-std=c++17", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
    "-Wall", "-Wextra",
)
"""Of every build. Products and sums are rounded one by one; square roots are instructions."""

WASM = (
    "-target", "wasm32-freestanding", "-mcpu=generic+bulk_memory+nontrapping_fptoint+sign_ext", *COMMON, "-flto",
    "-g0", "-fno-c++-static-destructors", "-nostdlib++", "-nostdinc++", "-fvisibility=hidden", "-s", "-Wl,--no-entry",
    *(f"-Wl,--export={name}" for name in (*EXPORTS, CONSTRUCTORS)),
)
"""Of the module, beside its sources: no path and nothing of this machine."""

DIGEST_SECTION = b"gpusim.sources"
"""The custom section of the module that holds :func:`digest`."""


def sources(folder: Path = SOURCES) -> list[str]:
    """Names of the files that are compiled, in order."""
    return sorted(path.name for path in folder.glob("*.cpp"))


def digest(folder: Path = SOURCES) -> str:
    """SHA-256 of all that the module is made of: names and texts of the sources, compiler and options."""
    found = hashlib.sha256(" ".join((f"ziglang=={ZIGLANG}", *WASM)).encode())
    for path in sorted([*folder.glob("*.cpp"), *folder.glob("*.h"), *folder.glob(PROFILE)], key=lambda path: path.name):
        text = path.read_bytes()
        if path.name != PROFILE:
            text = text.replace(b"\r\n", b"\n")
        found.update(f"\n{path.name} {len(text)}\n".encode())
        found.update(text)
    return found.hexdigest()


def unsigned(number: int) -> bytes:
    r"""``number`` as WebAssembly writes it: seven bits a byte, the lowest first.

    >>> unsigned(5), unsigned(300)
    (b'\x05', b'\xac\x02')
    """
    found = bytearray()
    while True:
        number, byte = number >> 7, number & 0x7F
        found.append(byte | (0x80 if number else 0))
        if not number:
            return bytes(found)


def custom_sections(module: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(name, contents) of each custom section of a module."""

    def read(place: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = module[place]
            value |= (byte & 0x7F) << shift
            shift, place = shift + 7, place + 1
            if byte < 0x80:
                return value, place

    place = 8
    while place < len(module):
        kind = module[place]
        size, begin = read(place + 1)
        place = begin + size
        if not kind:
            length, begin = read(begin)
            yield module[begin : begin + length], module[begin + length : place]


def digest_of(module: bytes) -> str | None:
    """The digest that a module carries."""
    return next((text.decode() for name, text in custom_sections(module) if name == DIGEST_SECTION), None)


def compile_sources(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    """Run a compiler in ``folder``, so that sources have no path.

    Raises:
        SystemExit: it refuses the sources.
    """
    ended = subprocess.run(command, cwd=folder, env={**os.environ, **(environment or {})}, check=False)
    if ended.returncode:
        raise SystemExit(f"build_engine: {command[0]} ended with status {ended.returncode}")


def build_module(output: Path, *, folder: Path = SOURCES, cache: Path = CACHE) -> None:
    """Write the module of the sources in ``folder`` to ``output``.

    Raises:
        SystemExit: the compiler is missing, has another version, or refuses the sources.
    """
    try:
        found = importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(f"build_engine: ziglang is not installed, wants: pip install ziglang=={ZIGLANG}") from None
    if found != ZIGLANG:
        raise SystemExit(f"build_engine: ziglang is {found}, wants {ZIGLANG}: other versions make other bytes")
    if not sources(folder):
        raise SystemExit(f"build_engine: {folder} has no sources (*.cpp)")
    folder, cache = folder.resolve(), cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    profile = []
    if (folder / PROFILE).is_file():  # functions that have changed since have no counts
        counts = (folder / PROFILE).read_bytes()
        named = cache / f"{hashlib.sha256(counts).hexdigest()}.profdata"  # the compiler's cache looks at names alone
        if not named.is_file():
            part = named.with_suffix(f".{os.getpid()}")
            part.write_bytes(counts)
            part.replace(named)  # another process may build at the same time
        quiet = ("-Wno-profile-instr-out-of-date", "-Wno-profile-instr-unprofiled")
        profile = [f"-fprofile-instr-use={named}", *quiet]
    with tempfile.TemporaryDirectory() as made:
        linked = Path(made) / "engine.wasm"
        compile_sources(
            [
                sys.executable, "-m", "ziglang", "c++", *WASM, *profile, f"-ffile-prefix-map={folder}=.", *sources(folder),
                "-o", str(linked),
            ],
            folder, {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)},
        )  # fmt: skip
        named = unsigned(len(DIGEST_SECTION)) + DIGEST_SECTION + digest(folder).encode()
        output.write_bytes(linked.read_bytes() + b"\0" + unsigned(len(named)) + named)


def build_native(output: Path, *, folder: Path = SOURCES, compiler: str = "", flags: Sequence[str] = ()) -> None:
    """Write a shared library of the sources to ``output``; ``flags`` such as ``-fsanitize=address`` come last.

    Raises:
        SystemExit: no compiler is there, or it refuses the sources.
    """
    known = [compiler] if compiler else ["g++", "clang++"]
    found = next((path for name in known if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"build_engine: no C++ compiler is there, wants {' or '.join(known)}")
    compile_sources(
        [found, *COMMON, "-g", "-fPIC", "-shared", *flags, *sources(folder), "-o", str(output.resolve())], folder
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the engine's module, gpusim/engine.wasm.")
    parser.add_argument("--check", action="store_true", help="only compare: status 1 if the module is stale")
    parser.add_argument("--output", type=Path, default=MODULE, help="another file for the module", metavar="FILE")
    parser.add_argument("--native", type=Path, help="build a shared library instead", metavar="LIBRARY")
    parser.add_argument("--compiler", default="", help="of the library: g++ or clang++", metavar="PROGRAM")
    parser.add_argument("flags", nargs="*", help="more options of the library's compiler, behind --")
    asked = parser.parse_args(arguments)
    if asked.native is not None:
        build_native(asked.native, compiler=asked.compiler, flags=asked.flags)
        print(f"{asked.native}: use it by GPUSIM_ENGINE_LIBRARY={asked.native.resolve()}")
        return 0
    if not asked.check:
        build_module(asked.output)
        print(f"{asked.output}: {asked.output.stat().st_size} bytes of sources {digest()[:12]}")
        return 0
    with tempfile.TemporaryDirectory() as made:
        again, elsewhere = Path(made) / "engine.wasm", Path(made) / "somewhere" / "else"
        shutil.copytree(SOURCES, elsewhere)
        build_module(again, folder=elsewhere)
        is_current = asked.output.is_file() and again.read_bytes() == asked.output.read_bytes()
    if not is_current:
        print(f"{asked.output} is stale: run python scripts/build_engine.py")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
