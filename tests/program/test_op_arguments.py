"""A wrong argument of any op gets one sentence, which names the op and the argument."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest

from gpusim.errors import GpusimError, KernelError, LaunchError
from gpusim.program.encode import ENCODERS
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .launches import ACCESS, launch, traced
from .test_records import every_op


class Cta:
    """The context that ``every_op`` looks at."""

    cta_idx, cta_rank, num_ctas = 0, 0, 4

    def tiles(self, num_tiles: int) -> Iterator[tuple[int, int]]:
        return iter(())


def samples() -> dict[str, Any]:
    """One op of each class."""
    found: dict[str, Any] = {}
    program, token = every_op(Cta()), None  # type: ignore[arg-type]  # a context as far as it is looked at
    while True:
        try:
            op = program.send(token)
        except StopIteration:
            return found
        token = ops.Token()
        found.setdefault(type(op).__name__, op)


SAMPLES = samples()
NEVER: dict[Any, tuple[Any, ...]] = {
    str: (5, None), bool: ("yes", 2), int: ("4", 2.5, None), float: ("4", -1.0, None), ops.Tile: (None, [0, 0]),
    ops.Section: ("mainloop",), ops.Token: (0,), tuple[int, ...]: (3, ("a",)), tuple[str, ...]: (("A", 4),),
}
"""Values that no field of a type takes; of other types, a word."""
MAY_BE_BELOW_NONE = {"stage"}
CASES = [
    (name, item, value)
    for name, op in SAMPLES.items() for item, hint in get_type_hints(type(op)).items()
    for value in (*NEVER.get(hint, ("a word",)), *((-1,) if hint is int and item not in MAY_BE_BELOW_NONE else ()))
]  # fmt: skip


def refusal(program: Any) -> GpusimError:
    with pytest.raises(GpusimError) as raised:
        traced(launch(program, num_ctas=4, cluster_size=2))
    return raised.value


def test_every_op_has_a_sample() -> None:
    assert {kind.__name__ for kind in ENCODERS} == set(SAMPLES)


@pytest.mark.parametrize(("name", "item", "value"), CASES)
def test_a_wrong_argument_gets_a_sentence(name: str, item: str, value: Any) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        if name == "RangeEnd":
            yield ops.RangeStart(ops.Section.MAINLOOP)
        yield replace(SAMPLES[name], **{item: value})

    sentence = str(refusal(program))
    assert "role 'role0' of CTA 0" in sentence and "\n" not in sentence
    words = {item, str(value), *item.removeprefix("num_").split("_")}
    assert name in sentence or any(word in sentence for word in words), sentence


@pytest.mark.parametrize("name", [name for name, op in SAMPLES.items() if fields(op)])
def test_an_op_with_unknown_arguments_gets_a_sentence(name: str) -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield getattr(ops, name)(color="red")

    error = refusal(program)
    assert isinstance(error, KernelError)
    assert f"{name} got an unexpected keyword argument 'color'; it takes {fields(SAMPLES[name])[0].name}" in str(error) or (
        f"[, {fields(SAMPLES[name])[0].name}]" in str(error)
    )


def test_an_op_without_its_tile_gets_a_sentence() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.TmaStore("D", num_bytes=64, num_rows=2, buffer="a", stage=0)  # type: ignore[call-arg]

    sentence = "TmaStore missing 1 required positional argument: 'tile'; it takes tensor, tile, num_bytes"
    assert sentence in str(refusal(program))


def test_later_ops_of_a_kind_are_checked_as_well() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for num_bytes in (64, 64, -64):
            yield ops.TmaStore("D", (0, 0), num_bytes, 2, "a", 0)
        yield ops.GlobalStore("D", (0, 0), ACCESS)

    assert "TmaStore has num_bytes=-64, wants an integer of 0 or more" in str(refusal(program))


def test_an_error_of_a_program_itself_names_role_cta_and_op() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        yield ops.Alu(len(3))  # type: ignore[arg-type]

    with pytest.raises(LaunchError, match=r"of CTA 0: its program raises TypeError: .*has no len.* before op 1") as error:
        traced(launch(program))
    assert type(error.value.__cause__) is TypeError
