"""Metrics under Nsight Compute's names: against measured rows, against each other, and by their labels in sections."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusim import Launch, WarpRole, load_gpu, simulate
from gpusim.evidence.cases.case import kernels_dir, load_case
from gpusim.evidence.cases.validation_kernel import CYCLES, row_clock_mhz
from gpusim.evidence.gate import throughputs
from gpusim.evidence.gate.check import Limits, check_profile
from gpusim.evidence.gate.models import Model
from gpusim.evidence.gate.predictions import (
    CONFLICTS,
    EXCESSIVE,
    TENSOR_PIPES,
    WARPS,
    WAVEFRONTS,
    is_shown_only,
    predictions,
    source_wavefronts,
)
from gpusim.evidence.gate.stall_reasons import NAME, stall_reasons
from gpusim.evidence.gate.throughputs import PARTS, with_throughputs
from gpusim.evidence.nsight.metrics import class_of
from gpusim.evidence.nsight.profiles import read_profile
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.simulate.result import Result
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext
from gpusim.workload.smem.access import wavefronts

DATA = Path(__file__).parent / "data"
H200 = load_gpu("h200_sxm")
MEASURED = kernels_dir().parent / "validation" / "measured" / "h200_sxm"
ELAPSED, ACTIVE = "avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active"
GEMM = {"m": 1024, "n": 1024, "k": 512, "tile": "128x128x64"}


def predicted(kernel: str, options: Mapping[str, object], *, ideals: tuple[str, ...] = ()) -> Result:
    launch = Model(kernel=kernel, options=options).launch(H200)
    return simulate(launch, H200, clock=1500.0, l2="flushed", ideals=ideals)


def rows_of(table: str) -> list[dict[str, str]]:
    with (MEASURED / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------------------------------------- against measured rows


@pytest.mark.parametrize(("table", "kernel", "num"), [("hgemm", "gemm", 8), ("hopper_gemm", "gemm", 5)])
def test_achieved_occupancy_is_within_its_limit_of_measured_rows(table: str, kernel: str, num: int) -> None:
    kind = class_of(WARPS)
    assert kind is not None
    case, off = load_case(table), []
    short = [row for row in rows_of(table) if row.get(WARPS) and float(row[CYCLES]) < 1.2e5][:num]
    for row in short:
        options = case.model_options({name: text for name, text in row.items() if "__" not in name}, H200)
        launch = KERNEL_MODELS[kernel].params.model_validate(options).resolved(H200).launch(H200)
        found = simulate(launch, H200, clock=row_clock_mhz(row, H200), l2="flushed").counters[WARPS]
        off.append(abs(found - float(row[WARPS])))
    assert len(off) == num and sorted(off)[int(0.7 * num)] <= kind.limit


WIDTHS = {f"{way}_shared_b{8 * width}": width for way in ("ld", "st") for width in (4, 8, 16)}


def test_bank_conflicts_of_whole_warps_are_wavefronts_less_the_ideal_ones() -> None:
    """What Nsight Compute counted for accesses of 32 addresses, and what the addresses say."""
    counted = 0
    for row in rows_of("shared_access"):
        width = WIDTHS.get(row["kernel"])
        addresses = [int(each) for each in row["addresses"].split()]
        if width is None or row["active"] != "ffffffff" or len(set(addresses)) < len(addresses):
            continue
        num = int(wavefronts(row["kernel"], np.array(addresses)))
        assert float(row[f"{CONFLICTS}.sum"]) == num - 32 * width // 128, row["addresses"]
        counted += 1
    assert counted > 250


# ---------------------------------------------------------------------------------------------- against each other


@pytest.fixture(scope="module")
def gemm() -> Result:
    return predicted("gemm", GEMM)


def test_the_instructions_of_wgmma_count_as_hmma_and_those_of_integers_as_imma(gemm: Result) -> None:
    name = "inst_executed_pipe_tensor_op_{}.sum"
    told = predictions(gemm, (), gpu=H200)
    num_atoms = 1024 * 1024 * 512 / (64 * 128 * 16)
    assert told[f"sm__{name.format('gmma')}"] == told[f"sm__{name.format('hmma')}"] == 4 * num_atoms
    assert told[f"smsp__{name.format('hmma')}"] == told[f"sm__{name.format('hmma')}"]
    assert told["sm__inst_executed_pipe_tensor.sum"] == told[f"sm__{name.format('gmma')}"]
    of_integers = predictions(predicted("gemm", {**GEMM, "dtype": "int8", "tile": "128x128x128"}), (), gpu=H200)
    assert of_integers[f"sm__{name.format('imma')}"] == of_integers[f"sm__{name.format('gmma')}"] > 0.0
    for of_floats in (f"sm__{name.format('hmma')}", f"sm__pipe_tensor_op_hmma_cycles_active.{ELAPSED}"):
        assert of_integers[of_floats] == 0.0


def test_shares_over_the_active_time_are_those_over_all_time_stretched(gemm: Result) -> None:
    told = predictions(gemm, (), gpu=H200)
    stretch = told[CYCLES] / told["sm__cycles_active.avg"]
    assert stretch > 1.0
    for name in (*TENSOR_PIPES, "sm__warps_active", "sm__throughput"):
        assert told[f"{name}.{ACTIVE}"] == pytest.approx(told[f"{name}.{ELAPSED}"] * stretch)
    assert len({told[f"{name}.{ELAPSED}"] for name in TENSOR_PIPES}) == 1
    assert told["sm__warps_active.avg.per_cycle_active"] == pytest.approx(told[WARPS] * 0.64)
    assert told[f"gpu__dram_throughput.{ELAPSED}"] == pytest.approx(
        100.0 * told["dram__bytes.sum.per_second"] / 1e9 / H200.hbm.peak_gb_per_s
    )


def test_no_more_warps_are_active_than_are_resident() -> None:
    for kernel, options in (("gemm", GEMM), ("elementwise", {"op": "copy", "elements": 2**22})):
        told = predictions(predicted(kernel, options), (), gpu=H200)
        assert 0.0 < told[WARPS] <= told["sm__maximum_warps_per_active_cycle_pct"] + 1e-9


@pytest.mark.parametrize(("smem", "has_conflicts"), [("padded", False), ("naive", True), ("none", False)])
def test_wavefronts_by_address_are_ideal_but_for_bank_conflicts(smem: str, has_conflicts: bool) -> None:
    options = {"m": 2048, "n": 2048, "smem": smem}
    result, without = (predicted("transpose", options, ideals=ideals) for ideals in ((), ("bank_conflicts",)))
    told = source_wavefronts(result, without)
    assert told[WAVEFRONTS] - told[f"{WAVEFRONTS}_ideal"] == told[EXCESSIVE] == told[f"{CONFLICTS}.sum"]
    assert (told[EXCESSIVE] > 0.0) is has_conflicts
    assert told[f"{WAVEFRONTS}_ideal"] == (0.0 if smem == "none" else 2 * 2048 * 2048 / 32), "a wavefront a warp, twice"
    if has_conflicts:  # of 32 lanes along a column all are in one bank, in one of the two directions
        assert told[EXCESSIVE] == 31 * 2048 * 2048 / 32


def test_bank_conflicts_are_gated_only_without_tma_and_wgmma(gemm: Result, tmp_path: Path) -> None:
    assert is_shown_only(f"{CONFLICTS}.sum", gemm) and is_shown_only(WAVEFRONTS, gemm) and not is_shown_only(EXCESSIVE, gemm)
    copies = predicted("gemm", {**GEMM, "math": "mma_sync", "copy": "cp_async", "schedule": "multistage"})
    assert is_shown_only(EXCESSIVE, copies) and not is_shown_only("dram__bytes_read.sum", copies)
    path = tmp_path / "p.csv"
    path.write_text(f'"ID","Kernel Name","{CYCLES}","{CONFLICTS}.sum","{WAVEFRONTS}"\n"0","k","90000","77777777","1"\n')
    for kernel, options, is_judged in (("gemm", GEMM, False), ("transpose", {"m": 2048, "n": 2048}, True)):
        (item,) = check_profile(path, gpu=H200, models=[Model(kernel=kernel, options=options)]).launches
        passes = {part.metric: part.passes for part in item.comparisons}
        assert passes[f"{CONFLICTS}.sum"] is (False if is_judged else None)
        assert passes[WAVEFRONTS] is passes[f"{CONFLICTS}.sum"]


def test_a_maximum_of_parts_is_judged_where_rows_of_the_kernel_were(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    names = (f"sm__throughput.{ELAPSED}", f"lts__throughput.{ELAPSED}", f"l1tex__throughput.{ACTIVE}", "idc__request.sum")
    header = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", CYCLES, *names))
    path.write_text(f'{header}\n"0","k","90000","99.5","99.5","99.5","1"\n', encoding="utf-8")
    copy = {"op": "copy", "elements": 2**22}
    for kernel, options, of_l2 in (("gemm", GEMM, None), ("elementwise", copy, False)):  # of GEMMs too far off
        report = check_profile(path, gpu=H200, models=[Model(kernel=kernel, options=options)])
        (item,) = report.launches
        shown = {part.metric: part for part in item.comparisons}
        assert [shown[name].passes for name in names[:3]] == [False, of_l2, None]
        assert item.unpredicted == names[3:] and f"not predicted, and so not compared: {names[3]}" in report.remarks
        assert any("of sm__throughput request_cycles_active, inst_executed_pipe_adu" in line for line in report.remarks)
    limits = Limits(tolerances={"busiest_part": 5.0})
    asked = check_profile(path, gpu=H200, models=[Model(kernel="gemm", options=GEMM)], limits=limits)
    assert [part.passes for part in asked.launches[0].comparisons if part.metric in names[:3]] == [False] * 3


def test_a_throughput_is_the_largest_of_its_parts_and_of_the_measured_ones() -> None:
    """In each of 168 measured launches; in the model, for a copy, a fill and a GEMM."""
    with (MEASURED.parent.parent / "studies" / "nsight_shares_h200_sxm.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for unit in ("l1tex", "lts"):
        parts = [f"{name}.{ELAPSED}" for name in PARTS[unit]]
        counted = [name for name in parts if name in rows[0]]
        assert all(float(row[f"{unit}__throughput.{ELAPSED}"]) == max(float(row[name]) for name in counted) for row in rows)
        for kernel, options in (("gemm", GEMM), ("elementwise", {"op": "fill", "elements": 2**20})):
            told = predictions(predicted(kernel, options), (), gpu=H200)
            assert told[f"{unit}__throughput.{ELAPSED}"] == max(told[name] for name in parts) > 0.0


def test_shares_of_a_copy_follow_from_its_sectors() -> None:
    """By hand: a stored sector holds L1's port for a cycle, and so do two loaded lines.

    16 MiB are read and written, by warps of 512 bytes: 2^19 sectors each way, 2^17 lines, 2^15 loads and stores. Each of
    94 slices of L2 returns two sectors in one of its own cycles.
    """
    result = predicted("elementwise", {"op": "copy", "elements": 2**22, "vector_bytes": 16})
    told, cycles = predictions(result, (), gpu=H200), result.cycles
    port = 2**19 + 2**17 / 2
    assert told[f"l1tex__m_l1tex2xbar_req_cycles_active.{ELAPSED}"] == pytest.approx(100.0 * port / (132 * cycles))
    slice_cycles = 94 * cycles * 1706.0 / 1500.0
    assert told[f"lts__lts2xbar_cycles_active.{ELAPSED}"] == pytest.approx(100.0 * 2**18 / slice_cycles)
    operands = 4 * 2**15  # four registers of data a lane
    issued = result.busy["issue"] * 132 * cycles
    assert told[f"sm__throughput.{ELAPSED}"] == pytest.approx(100.0 * max(operands, issued) / (132 * cycles))


def test_constants_of_shares_are_those_that_microbenchmarks_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(kernels_dir().parent / "scripts"))
    import fit_shares

    found = {fit.name: fit.mean for fit in fit_shares.fits()}
    slices = throughputs.L2_SLICES["h200_sxm"]
    assert [round(found[f"L2_SLICES, by {which} sectors"]) for which in ("stored", "loaded")] == [slices] * 2
    for name, digits in (("LINE_PORT_CYCLES", 2), ("LINK_LOOKUPS", 2), ("LOAD_WAVEFRONTS", 1)):
        assert getattr(throughputs, name) == round(found[name], digits), name
    assert abs(throughputs.SECTOR_CYCLES / found["SECTOR_CYCLES"] - 1.0) < 0.05
    error, constants = fit_shares.link()
    names = ("LINK_LOAD_CYCLES", "LINK_STORE_CYCLES", "LINK_POWER", "LINK_IDLE_FRACTION")
    assert constants == pytest.approx([getattr(throughputs, name) for name in names]) and error < 0.02


def test_a_prediction_has_the_shares_that_a_check_compares() -> None:
    result = predicted("elementwise", {"op": "copy", "elements": 2**18})
    told, shown = predictions(result, (), gpu=H200), with_throughputs(result, H200).counters
    shares = {name: shown[name] for name in shown.keys() - result.counters.keys()}
    assert {name: told[name] for name in shares} == shares and f"lts__throughput.{ELAPSED}" in shares
    several = replace(result, simulated_mhz=0.0)  # of several kernels, which no share describes
    assert with_throughputs(several, H200).counters == result.counters


def test_scattered_stores_take_two_cycles_a_sector() -> None:
    """A transpose without shared memory stores 4 bytes to each sector; one through shared memory fills them."""
    ports = {}
    for smem in ("none", "padded"):
        result = predicted("transpose", {"m": 512, "n": 512, "smem": smem})
        told = predictions(result, (), gpu=H200)
        ports[smem] = told[f"l1tex__m_l1tex2xbar_req_cycles_active.{ELAPSED}"] * result.cycles / 100.0 * 132
    lines = 512 * 512 * 4 / 128
    assert ports["padded"] == pytest.approx(4 * lines + lines) and ports["none"] == pytest.approx(2 * 32 * lines + lines)


REASONS = ("short_scoreboard", "barrier")


def test_stall_reasons_are_shown_as_shares_of_the_warps_that_stay(tmp_path: Path) -> None:
    """A producer of one warp waits for mbarriers in half of its life, four consumer warps for wgmma in a quarter."""
    def nothing(cta: RoleContext) -> Iterator[ops.Op]:
        del cta
        yield from ()

    roles = (
        WarpRole(name="producer", num_warps=4, program=nothing, num_exiting_warps=3),
        WarpRole(name="consumer", num_warps=4, program=nothing),
    )
    launch = Launch(kernel="k", num_ctas=1, num_tiles=1, roles=roles)
    states = {"producer": {"wait_mbarrier": 0.5, "issue": 0.5}, "consumer": {"wait_wgmma": 0.25, "tensor": 0.75}}
    told = stall_reasons(replace(simulate(launch, H200, clock=1500.0), states=states), launch)
    assert told[NAME.format("long_scoreboard")] == pytest.approx(100.0 * 0.5 / 5)
    assert told[NAME.format("barrier")] == pytest.approx(100.0 * 4 * 0.25 / 5) and told[NAME.format("no_instruction")] == 0.0
    path = tmp_path / "p.csv"
    header = ("ID", "Kernel Name", CYCLES, *map(NAME.format, REASONS))
    rows = (header, ("", "", "", "%", "%"), ("0", "k", "90000", "9", "99"))
    path.write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows))
    (item,) = check_profile(path, gpu=H200, models=[Model(kernel="gemm", options=GEMM)]).launches
    (shown,) = [part for part in item.comparisons if part.metric == NAME.format(REASONS[0])]
    assert shown.passes is None and 0.0 <= shown.predicted < 100.0
    assert item.unpredicted == (NAME.format("barrier"),), "its error on measured GEMMs is too large"


def test_a_gpu_without_measured_shares_has_none() -> None:
    """Of H100 the clock of L2 is not known; A100 is no Hopper."""
    for name, units in (("h200_sxm", 3), ("h100_sxm", 2), ("a100_sxm_40gb", 0)):
        gpu = load_gpu(name)
        launch = Model(kernel="elementwise", options={"op": "copy", "elements": 2**18}).launch(gpu)
        told = predictions(simulate(launch, gpu, clock=1200.0), (), gpu=gpu)
        assert sum(metric.endswith(f"__throughput.{ELAPSED}") for metric in told) == units + 1  # memory has one in any case


# ---------------------------------------------------------------------------------------------- labels of sections


def test_labels_of_older_versions_are_aliases_and_unknown_ones_are_named(tmp_path: Path) -> None:
    lines = [f'"0","k","GPU Speed Of Light","{label}","{unit}","{value}"' for label, unit, value in (
        ("SOL SM", "%", "41.5"), ("SOL FB", "%", "12.5"), ("SOL L2 Cache", "%", "7.25"),
        ("Elapsed Cycles", "cycle", "9,000"), ("Luck", "%", "3"),
    )]  # fmt: skip
    header = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
    (tmp_path / "old.csv").write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    profile = read_profile(tmp_path / "old.csv")
    assert profile.launches[0].metrics == {
        f"sm__throughput.{ELAPSED}": 41.5, f"gpu__dram_throughput.{ELAPSED}": 12.5, f"lts__throughput.{ELAPSED}": 7.25,
        "gpc__cycles_elapsed.max": 9000.0,
    }
    assert "labels that no prediction has, not compared: Luck" in profile.remarks


def test_sections_of_a_full_set_are_read_by_their_labels() -> None:
    first = read_profile(DATA / "by_pointers_details.csv").launches[0].metrics
    assert {name: first[name] for name in (
        f"sm__throughput.{ELAPSED}", f"l1tex__throughput.{ACTIVE}", f"lts__throughput.{ELAPSED}",
        f"gpu__dram_throughput.{ELAPSED}", f"gpu__compute_memory_throughput.{ELAPSED}", WARPS,
        "sm__maximum_warps_per_active_cycle_pct", "launch__thread_count", "launch__sm_count", "dram__bytes.sum.per_second",
        "launch__shared_mem_per_block_dynamic",
    )} == {
        f"sm__throughput.{ELAPSED}": 0.51, f"l1tex__throughput.{ACTIVE}": 49.33, f"lts__throughput.{ELAPSED}": 1.55,
        f"gpu__dram_throughput.{ELAPSED}": 1.32, f"gpu__compute_memory_throughput.{ELAPSED}": 1.32, WARPS: 12.47,
        "sm__maximum_warps_per_active_cycle_pct": 12.5, "launch__thread_count": 256.0, "launch__sm_count": 132.0,
        "dram__bytes.sum.per_second": 63.35e9, "launch__shared_mem_per_block_dynamic": 147_460.0,
    }  # fmt: skip
