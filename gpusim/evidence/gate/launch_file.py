"""Launches written in Python, as the gate and ``lint`` take them: ``my_kernel.py:launch``.

In: a file and a name in it. Out: a :class:`~gpusim.evidence.gate.models.Model` of all launches that its expression matches.
"""

from __future__ import annotations

import inspect
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError, GpusimError, nearest
from gpusim.workload.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusim.machine.config import GpuSpec

VARIADIC = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
USERS_MODULE = "gpusim_users_kernel"


def launch_maker(text: str, flag: str = "--launch") -> Callable[[GpuSpec], Launch]:
    """Function that makes the launch of ``FILE.py:NAME``. NAME is a Launch, or a function that returns one.

    Raises:
        ConfigError: there is no such file or name, or the file raises an exception; the text names it.
    """
    file, mark, name = text.rpartition(":")
    path = Path(file)
    if not mark or path.suffix != ".py" or not name.isidentifier():
        raise ConfigError(f"{flag} {text!r} wants FILE.py:NAME, for example my_kernel.py:launch")
    found = names_of(path, flag)
    if name not in found:
        raise ConfigError(f"{flag}: {file} has no {name!r}; {nearest(name, [known for known in found if known[0] != '_'])}")
    return lambda gpu: made_launch(found[name], gpu, f"{flag}: {text}")


def names_of(path: Path, flag: str) -> dict[str, Any]:
    """Names that a file defines. It may import modules of its folder.

    Raises:
        ConfigError: there is no such file, or it raises an exception.
    """
    if not path.is_file():
        raise ConfigError(f"{flag} {str(path)!r} is no file, wants one that is there")
    spec = spec_from_file_location(USERS_MODULE, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{flag}: {path} cannot be imported, wants a Python file")
    module = module_from_spec(spec)
    sys.modules[USERS_MODULE] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except GpusimError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's file raises any exception
        raise ConfigError(f"{flag}: {path} raised {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    return vars(module)


def made_launch(found: Any, gpu: GpuSpec, where: str = "launch") -> Launch:
    """``found`` itself if it is a Launch, or what it makes.

    A function gets the GPU as its parameter ``gpu``, or as the one that has no default.

    Raises:
        ConfigError: it makes something else, or raises an exception.
    """
    if callable(found) and not isinstance(found, Launch):
        try:
            parameters = inspect.signature(found).parameters.values()
            wanted = [item for item in parameters if item.kind not in VARIADIC and item.default is item.empty]
            wanted = wanted or [item for item in parameters if item.name == "gpu"]
            if len(wanted) > 1:
                raise ConfigError(f"{where} wants {len(wanted)} arguments, wants none or the GPU")
            by_name = {item.name: gpu for item in wanted if item.kind is not item.POSITIONAL_ONLY}
            found = found(**by_name) if by_name else found(*[gpu for _ in wanted])
        except GpusimError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's function raises any exception
            raise ConfigError(f"{where} raised {type(error).__name__}: {error}") from None
    if not isinstance(found, Launch):
        raise ConfigError(f"{where} gives a {type(found).__name__}, wants a Launch")
    return found
