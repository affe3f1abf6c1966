"""Pictures say what the layout says, in the unit that they name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpusim import layout as cute
from gpusim.errors import LayoutError
from gpusim.layout import ComposedLayout, Layout, Swizzle
from gpusim.layout.tiled import SM80_16x8x16

TILE = ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1)))


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_every_offset_is_in_the_picture_once() -> None:
    title, *labels = texts(cute.layout_svg(TILE))
    assert title == f"{TILE}, offsets in elements"
    assert {int(label) for label in labels} >= set(range(512))


def test_the_text_shows_rows_of_mode_0() -> None:
    lines = cute.layout_text(Layout((2, 3), (3, 1))).splitlines()
    rows = [list(map(int, re.findall(r"\d+", line)))[1:] for line in lines[3::2]]
    assert rows == [[0, 1, 2], [3, 4, 5]]


def test_pictures_name_their_unit() -> None:
    assert "offsets in bytes" in cute.layout_text(TILE.to_bytes(16))
    assert "offsets in elements" in cute.layout_text(TILE)


def test_the_table_gives_both_units_and_both_forms_agree() -> None:
    in_elements = cute.offset_table(TILE, element_bits=16)
    assert in_elements == cute.offset_table(TILE.to_bytes(16))
    assert in_elements[1] == ((1, 0), 72, 144)
    assert cute.offset_table(Layout(2))[1] == (1, 1, None)


def test_a_thread_value_picture_names_each_holder() -> None:
    svg = cute.tv_svg(cute.TiledMma(SM80_16x8x16).layout_c_tv(), (16, 8))
    labels = texts(svg)
    assert labels.count("T5") == 4
    assert labels.count("V3") == 32


def test_holders_are_the_layout_the_other_way_round() -> None:
    layout_tv = cute.TiledMma(SM80_16x8x16).layout_c_tv()
    held = cute.holders(layout_tv, 128)
    assert all(layout_tv(thread, value) == place for place, (thread, value) in held.items())
    assert sorted(held) == list(range(128))


def test_the_suffix_picks_the_format(tmp_path: Path) -> None:
    cute.draw_layout(Layout((2, 4)), tmp_path / "a.svg")
    cute.draw_layout(Layout((2, 4)), tmp_path / "a.txt")
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.txt").read_text().startswith("(2,4):(1,2)")
    with pytest.raises(LayoutError, match=r"ends in \.svg or \.txt"):
        cute.draw_layout(Layout((2, 4)), tmp_path / "a.pdf")


def test_what_is_no_picture_is_refused() -> None:
    cute.layout_text(Layout((128, 128)))
    with pytest.raises(LayoutError, match="slice it down"):
        cute.layout_text(Layout((128, 129)))
    with pytest.raises(LayoutError, match="thread, value"):
        cute.tv_svg(Layout(8), (2, 4))


def test_an_explanation_says_what_repeats_and_warns_of_a_layout_as_tiler() -> None:
    said = cute.explain(cute.zipped_divide, Layout((4, 8), (8, 1)), Layout((2, 4), (4, 1)))
    assert "use the shape (2,4), which gives ((2,4),(2,2)):((8,1),(16,4))" in said
    assert "tiles repeat at 4:8" in said
    assert "copies fit at 6:4" in cute.explain(cute.logical_product, Layout(4), Layout(6))


def test_the_algebra_imports_nothing_from_outside() -> None:
    code = (
        "import sys, types, pathlib; gpusim = types.ModuleType('gpusim'); "
        f"gpusim.__path__ = [{str(Path(cute.__file__).parents[1])!r}]; sys.modules['gpusim'] = gpusim; "
        "import gpusim.layout; print([m for m in ('numpy', 'matplotlib', 'simpy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_function_and_class_has_an_example() -> None:
    public = [getattr(cute, name) for name in cute.__all__]
    own = [
        thing for thing in public if getattr(thing, "__module__", "").startswith("gpusim.layout") and callable(thing)
    ]
    assert [thing.__name__ for thing in own if ">>>" not in (thing.__doc__ or "")] == []
