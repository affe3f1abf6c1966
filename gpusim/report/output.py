"""Files that reports go to: checked before the work, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from gpusim.errors import GpusimError


def check_output(path: Path, *, flag: str, suffixes: tuple[str, ...] = ()) -> None:
    """Refuse a path that could not be written later; ``flag`` names it in errors, no ``suffixes`` means any.

    Raises:
        GpusimError: wrong suffix, no such directory, a directory, or no permission.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise GpusimError(f"{flag} {str(path)!r} {found}, wants a name that ends in {_either(suffixes)}")
    if path.is_dir():
        example = path / f"gpusim{suffixes[0] if suffixes else '.json'}"
        raise GpusimError(f"{flag} {str(path)!r} is a directory, wants the name of a file, such as {example}")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise GpusimError(f"{flag} {str(path)!r} lies in {folder}, which is no directory; make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise GpusimError(f"{flag} {str(path)!r} cannot be written, wants a file that you may write")


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to a temporary file beside ``path`` and rename it; a device or pipe is written directly.

    Raises:
        OSError: the disk is full, or the path has become unwritable. Then ``path`` is what it was.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        part.unlink(missing_ok=True)


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
