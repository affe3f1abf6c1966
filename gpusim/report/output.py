"""Output files of reports: checked before the work, and written in one step."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import ELOOP
from pathlib import Path
from threading import get_native_id

from gpusim.errors import GpusimError


def check_output(path: Path, *, flag: str, suffixes: tuple[str, ...] = ()) -> None:
    """Check that ``path`` can be written later; ``flag`` names it in errors. No ``suffixes``: any is allowed.

    Raises:
        GpusimError: the suffix is wrong, there is no such directory, the path is a directory, or permission is missing.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise GpusimError(f"{flag} {str(path)!r} {found}, wants a name that ends in {_either(suffixes)}")
    if path.is_dir():
        example = path / f"gpusim{suffixes[0] if suffixes else '.json'}"
        raise GpusimError(f"{flag} {str(path)!r} is a directory, wants the name of a file, for example {example}")
    folder = resolved(path).parent
    if not folder.is_dir():
        raise GpusimError(f"{flag} {str(path)!r} lies in {folder}, which is no directory; make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise GpusimError(f"{flag} {str(path)!r} cannot be written, wants a file that you may write")


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to a temporary file next to ``path`` and rename it; a device or pipe is written directly.

    Raises:
        OSError: the disk is full, or the path has become unwritable. Then ``path`` is unchanged.
    """
    target = resolved(path)
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    part = target.with_name(f".gpusim.{os.getpid()}.{get_native_id()}.part")  # a short name: long ones have a part, too
    try:
        with part.open("wb") as file:
            if target.exists():
                with suppress(PermissionError):  # some disks have no modes
                    part.chmod(target.stat().st_mode & 0o777)
            file.write(content)
        part.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        part.unlink(missing_ok=True)


def resolved(path: Path) -> Path:
    """``path`` with its links followed.

    Raises:
        OSError: links lead in a circle.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno == ELOOP:
            raise OSError(ELOOP, "its links lead in a circle", str(path)) from None
    return path.resolve()


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
