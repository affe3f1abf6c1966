"""tile_order: what was not seen is refused, the lattice has every tile, what looks on fits beside a CTA that fills an SM."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpusim.errors import KernelError
from gpusim.evidence.bench.frameworks import has_source
from gpusim.evidence.bench.store_probe import LATTICE, as_text, lattice_of, of_text, since_first_ns
from gpusim.evidence.cases.case import Outputs, WrongAnswer, kernel_folder, kernels_dir, load_case
from gpusim.evidence.cases.rows import Table, config_of
from gpusim.evidence.cases.tile_waves import num_at_once, seen_times, seen_waves, shape_of_waves
from gpusim.evidence.toolchain.cublas_kernels import as_made, band
from gpusim.evidence.toolchain.cublas_names import parse_name
from gpusim.machine.config import load_gpu

from .conftest import Sass
from .tile_bands import modelled_waves, numbers, seen_bands

CASE, LIBRARY = load_case("tile_order"), load_case("library_gemm")
case = sys.modules[CASE.launch.__module__]
CONFIGS = [*CASE.configs("order", 1), *CASE.configs("lone", 1)]


def seen(*, begin: int = 50, lacking: int | None = None) -> Outputs:
    """Three runs of 2 x 3 points, the last of them later by 10 ns a run; nothing wrong with D."""
    times = np.tile(1000 + 100 * np.arange(6).reshape(2, 3), (3, 1, 1))
    times[:, 1, 2] += 10 * np.arange(3)
    if lacking is not None:
        times[lacking, 0, 1] = 0
    d = np.ones((2, 2), dtype=np.float32)
    return {"d": d, "reference": d, "seen_ns": times, "begin_ns": np.full((3, 16), begin)}


def test_what_was_seen_is_told_from_the_first_on() -> None:
    values = CASE.check(CONFIGS[0], seen())
    assert (values["right_runs"], values["span_us"], values["spread_us"]) == (3.0, 0.51, 0.0)
    assert of_text(as_text(since_first_ns(seen()))).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_run_that_lacks_a_point_does_not_count() -> None:
    assert CASE.check(CONFIGS[0], seen(lacking=1))["right_runs"] == 2.0


def test_who_began_too_late_or_never_looked_gives_no_answer() -> None:
    with pytest.raises(WrongAnswer, match="in no run"):
        CASE.check(CONFIGS[0], seen(begin=1000))
    with pytest.raises(WrongAnswer, match="nobody looked on"):
        CASE.check(CONFIGS[0], {name: array for name, array in seen().items() if name in ("d", "reference")})


def test_d_is_checked_too() -> None:
    outputs = {**seen(), "reference": np.full((2, 2), 3e5, dtype=np.float32)}
    with pytest.raises(WrongAnswer, match="further off"):
        CASE.check(CONFIGS[0], outputs)


def test_shapes_are_no_rows_of_whole_kernels() -> None:
    of_rows = {tuple(config[name] for name in "mnk") for group in LIBRARY.groups for config in LIBRARY.configs(group, 1)}
    assert len(CONFIGS) == 16 + 14
    assert not of_rows & {tuple(config[name] for name in "mnk") for config in CONFIGS}


def test_the_lattice_has_the_corner_of_every_box() -> None:
    for config in CONFIGS:
        lattice = lattice_of(CASE.launch(config, False))[0]
        for side, points, step in (("m", "rows", "row_step"), ("n", "columns", "column_step")):
            num, extent = int(lattice[points]), int(config[side])
            assert (num - 1) * int(lattice[step]) < extent <= num * int(lattice[step])
        assert int(lattice["rows"]) * int(lattice["columns"]) <= 16384
        assert CASE.launch(config, True).watch is None


def test_what_looks_on_fits_beside_a_full_sm(sass: Sass) -> None:
    kernel = sass("tile_order", "sm_90a")["look_on"]
    assert kernel.num_registers <= (65536 - 384 * 168) // 32 and kernel.smem_bytes == 0 and kernel.num_spills == 0
    assert has_source(CASE) and not has_source(LIBRARY)


def test_the_structure_is_laid_out_as_the_kernel_reads_it() -> None:
    text = (kernel_folder("tile_order") / "kernel.cu").read_text(encoding="utf-8")
    fields = text[text.index("struct Lattice {") : text.index("};")]
    names = [name.strip(" ,;") for line in fields.splitlines()[1:] for name in line.split("//")[0].split()[1:]]
    assert [name for name in names if name] == [name for name in LATTICE.names or () if name != "pad"]
    assert LATTICE.fields is not None and LATTICE.fields["most_ns"][1] == 32


@pytest.mark.parametrize(
    ("name", "m", "n"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", 5120, 5120),
        ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", 7168, 4096),
        ("nvjet_tst_168x128_64x5_2x1_v_bz_coopB_TNN", 4096, 7168),
    ],
)
def test_waves_that_are_stored_one_after_the_other_come_back(name: str, m: int, n: int) -> None:
    """Tiles stored in the model's own order, each wave within a quarter of what it takes, are told as the model's waves."""
    gpu, kernel = load_gpu("h200_sxm"), parse_name(name)
    assert kernel is not None
    config = {"m": str(m), "n": str(n), "k": "1024", "dtype": "bf16", "layout": "tn", "row_step": "64", "column_step": "64"}
    row = {"launched": name, "grid": "2x66x1", "block": "384x1x1"}
    waves = modelled_waves(config, row, gpu)
    assert waves is not None and num_at_once(row) == 66
    made, is_ours = as_made(kernel)
    sides = [tile * ranks for tile, ranks in zip(made.tile[:2], made.cluster, strict=True)][:: 1 if is_ours else -1]
    rows, columns = (np.arange(0, extent, 64) // side for extent, side in zip((m, n), sides, strict=True))
    within = np.random.default_rng(0).integers(0, 5000, (len(rows), len(columns)))
    times = 20_000 * waves[rows[:, None], columns[None, :]] + within
    told = case.told(config, {**row, "arrivals": as_text(times[None])})
    found = seen_waves(config, {**row, "arrivals": as_text(times[None])})
    assert found is not None and (found == waves).all()
    shape = shape_of_waves(waves, num_at_once(row))
    assert [told[name] for name in case.SHAPE] == [f"{number:.6g}" for number in shape]


MEASURED = kernels_dir().parent / "validation" / "measured" / "h200_sxm" / "tile_order.csv"
LEAST_WAVES = 4
"""From here on clusters that came late are few beside the others."""


@pytest.mark.skipif(not MEASURED.exists(), reason="validation/measured holds no rows yet")
@pytest.mark.parametrize("half", [0, 1], ids=["read", "judging"])
def test_bands_are_as_wide_as_the_library_walks_them(half: int) -> None:
    """The rule was read off the even rows; the odd ones have other tiles, and agree."""
    rows = [row for row in Table.read(MEASURED).rows if row["group"] == "order"][half::2]
    judged = 0
    for row in rows:
        found = seen_times(config_of(row, CASE.columns), row)
        assert found is not None
        kernel, times = found
        axis = 1 if kernel.walks_along == "n" else 0  # of ours: the library's M is our columns
        width, num = band(kernel, num_at_once(row)), num_at_once(row)
        if width >= times.shape[axis] or times.size < LEAST_WAVES * num:
            continue
        bands = seen_bands(times, axis)
        assert (bands.width, bands.is_snake) == (width, True)
        assert bands.off < seen_bands(times, 1 - axis).off / 1.5
        judged += 1
    assert judged >= 3


LATE_SHARE = 0.5
"""Of the way from the median cluster of the first wave to its last."""
APART = 3.0
"""Times the median, where nothing was held up."""


@pytest.mark.skipif(not MEASURED.exists(), reason="validation/measured holds no rows yet")
@pytest.mark.parametrize("half", [0, 1])
def test_clusters_that_came_late_are_the_last_of_the_grid(half: int) -> None:
    """Watchers hold SMs, so the last clusters begin when others have left: where they are shows bands, way back and table.

    The table was read off rows 2, 8 and 12.
    """
    gpu, judged = load_gpu("h200_sxm"), 0
    for row in Table.read(MEASURED).rows[half::2]:
        config = config_of(row, CASE.columns)
        found = seen_times(config, row)
        try:
            of = numbers(config, row, gpu)
        except KernelError:
            continue  # none of the model's: 168 columns that a pair shares
        assert found is not None and of is not None
        times, num = found[1], min(num_at_once(row), of.size)
        first = of < num
        median, last = float(np.median(times[first])), float(times[first].max())
        if last < APART * median:
            continue
        late = sorted(of[first][times[first] > median + LATE_SHARE * (last - median)].tolist())
        assert late == list(range(num - len(late), num)), row["launched"]
        judged += 1
    assert judged >= 12
