"""What the parameters of every kernel model have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict

from gpusim.workload.launch import Launch, Target


class KernelParams(BaseModel):
    """Options of one kernel, each checked by itself: a frozen pydantic model whose fields are the command line's options.

    A field that is None is chosen for the GPU by :meth:`resolved`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def resolved(self, gpu: Target) -> Self:
        """The same with every default that depends on the GPU filled in, and the whole checked.

        Raises:
            KernelError: parameters that do not go together.
            LaunchError: a kernel that this GPU lacks instructions for.
        """

    @abstractmethod
    def launch(self, gpu: Target) -> Launch:
        """The kernel as it is launched on ``gpu``.

        Raises:
            KernelError: parameters that no kernel can have.
            LaunchError: a kernel that this GPU cannot hold.
        """

    def answer_to(self, ideal: str) -> Mapping[str, Any]:
        """Options to try where making ``ideal`` free (a name of a counterfactual) saves most; empty where none is known."""
        del ideal
        return {}

    @classmethod
    def usual(cls, option: str, given: Mapping[str, Any], gpu: Target) -> Sequence[Any] | None:
        """Values of ``option`` that a sweep tries for ``auto``, beside those ``given``; None where nothing is usual.

        Unless a kernel says otherwise: all of an option that takes some words, or is on or off.
        """
        del given, gpu
        from gpusim.kernel_models.choices import choices_of

        for name, item in cls.model_fields.items():
            if option == (item.alias or name):
                is_flag = item.annotation is bool or bool in get_args(item.annotation)
                return (False, True) if is_flag else choices_of(item.annotation) or None
        return None

    def as_options(self) -> Mapping[str, Any]:
        """Every parameter as the command line spells it, in its order (``{"tile": "128x256x64", ...}``)."""
        options: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = "x".join(str(part) for part in value)
            options[name.rstrip("_")] = value
        return options
