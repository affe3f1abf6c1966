"""Every GPU loads, every number has a source, and what is wrong is refused by file and key."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import cast, get_args

import pytest

from gpusim.errors import ConfigError
from gpusim.machine import config
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import COMPONENT_KINDS, SOURCE_CLASSES, GpuSpec, configs_dir, gpu_names, load_gpu
from gpusim.machine.floorplan import Feature
from gpusim.machine.sm.mbarrier import MbarrierSpec
from gpusim.report.gpu_toml import gpu_toml
from gpusim.workload import launch

REAL_GPUS = [name for name in gpu_names() if name != "toy"]
FLAT = gpu_toml(load_gpu("h100_sxm"))
HOPPERS = [name for name in REAL_GPUS if name.startswith("h")]
GEMM_FLOPS = 2.0 * 8192**3


@pytest.fixture(scope="module")
def gpus() -> dict[str, GpuSpec]:
    return {name: load_gpu(name) for name in gpu_names()}


# ------------------------------------------------------------------------------------------ what is there


def test_all_gpus_are_there() -> None:
    assert gpu_names() == ["a100_sxm_40gb", "a100_sxm_80gb", "h100_pcie", "h100_sxm", "h200_sxm", "toy"]


@pytest.mark.parametrize("name", gpu_names())
def test_a_gpu_is_named_as_its_file(name: str, gpus: dict[str, GpuSpec]) -> None:
    assert gpus[name].name == name and gpus[name].title


def test_a_file_that_has_changed_is_read_again_whatever_was_read_before(tmp_path: Path) -> None:
    path, other = tmp_path / "mine.toml", tmp_path / "other.toml"
    text = (configs_dir() / "h200_sxm.toml").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    other.write_text(text.replace("max_mhz = 1980", "max_mhz = 1981"), encoding="utf-8")
    first = load_gpu(path)
    assert first == load_gpu("h200_sxm")
    assert load_gpu(other).clock.max_mhz == first.clock.max_mhz + 1
    path.write_text(text.replace('name = "h200_sxm"', 'name = "mine"'), encoding="utf-8")
    assert load_gpu(path).name == "mine"
    path.write_text("=", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"mine\.toml: not valid TOML"):
            load_gpu(path)


def test_what_one_changes_in_a_description_another_does_not_see() -> None:
    for tables in ("tensor_core.wgmma_flops_per_cycle", "device.peak_tflops", "device.gpcs", "sources"):
        table = attrgetter(tables)(load_gpu("h200_sxm"))
        before = dict(table)
        table.clear()
        assert attrgetter(tables)(load_gpu("h200_sxm")) == before != {}


@pytest.mark.parametrize("name", gpu_names())
def test_every_parameter_has_a_source_class(name: str, gpus: dict[str, GpuSpec]) -> None:
    gpu = gpus[name]
    classes = {parameter: gpu.source_class(parameter) for parameter in gpu.parameters()}
    assert len(classes) >= 75
    assert set(classes.values()) <= ({"toy"} if name == "toy" else set(SOURCE_CLASSES.values()) - {"toy"})


@pytest.mark.parametrize("name", REAL_GPUS)
def test_a_guess_says_what_would_settle_it(name: str, gpus: dict[str, GpuSpec]) -> None:
    settled = re.compile(r"settled (by|with|together)")
    guesses = {key: text for key, text in gpus[name].sources.items() if text.startswith("guess:")}
    assert guesses and [key for key, text in guesses.items() if not settled.search(text)] == []


@pytest.mark.parametrize("name", REAL_GPUS)
def test_no_gpu_is_inferred_from_itself(name: str, gpus: dict[str, GpuSpec]) -> None:
    assert [key for key, text in gpus[name].sources.items() if text.startswith(f"inferred: {name}")] == []


@pytest.mark.parametrize("name", ["a100_sxm_40gb", "a100_sxm_80gb"])
def test_a100_has_mbarriers_and_neither_tma_nor_clusters_nor_wgmma(
    name: str, gpus: dict[str, GpuSpec]
) -> None:
    gpu = gpus[name]
    assert gpu.tma is None and gpu.dsmem is None and gpu.mbarrier is not None
    assert gpu.device.max_cluster_size == 1
    assert not gpu.tensor_core.wgmma_flops_per_cycle
    assert not [parameter for parameter in gpu.parameters() if parameter.startswith("tensor_core.wgmma")]


@pytest.mark.parametrize("name", [*HOPPERS, "toy"])
def test_hopper_has_every_part_and_class(name: str, gpus: dict[str, GpuSpec]) -> None:
    gpu = gpus[name]
    assert gpu.tma is not None and gpu.dsmem is not None and gpu.mbarrier is not None
    core = gpu.tensor_core
    assert (
        set(core.wgmma_flops_per_cycle)
        == set(core.mma_sync_flops_per_cycle)
        == {"16bit", "tf32", "fp8", "int8"}
    )


@pytest.mark.parametrize("name", gpu_names())
def test_the_data_sheets_peak_is_sms_times_rate_times_clock(name: str, gpus: dict[str, GpuSpec]) -> None:
    gpu = gpus[name]
    core = gpu.tensor_core
    rates = dict(core.wgmma_flops_per_cycle or core.mma_sync_flops_per_cycle)
    peaks = dict(gpu.device.peak_tflops)
    fp32 = gpu.num_sms * 2 * gpu.warp_scheduler.fp32_lanes * gpu.clock.max_mhz / 1e6
    assert fp32 == pytest.approx(peaks.pop("fp32"), rel=0.02)
    clocks = {kind: peak * 1e6 / (gpu.num_sms * rates[kind]) for kind, peak in peaks.items()}
    assert set(clocks) == set(rates)
    assert max(clocks.values()) == pytest.approx(min(clocks.values()), rel=0.02), "one clock explains all tensor peaks"
    assert 0.9 * gpu.clock.max_mhz < clocks["16bit"] <= 1.005 * gpu.clock.max_mhz


@pytest.mark.parametrize("name", gpu_names())
def test_energies_cover_the_classes_that_have_a_rate(name: str, gpus: dict[str, GpuSpec]) -> None:
    classes = set(gpus[name].tensor_core.mma_sync_flops_per_cycle)
    assert set(gpus[name].clock.tensor_pj_per_flop) - {"fp16"} == classes  # a type of its class that draws more


@pytest.mark.parametrize("name", gpu_names())
def test_what_is_sustained_is_within_the_peak_and_far_is_not_nearer_than_near(
    name: str, gpus: dict[str, GpuSpec]
) -> None:
    gpu = gpus[name]
    hbm, clock, device = gpu.hbm, gpu.clock, gpu.device
    assert max(hbm.sustained_read_gb_per_s, hbm.sustained_write_gb_per_s) <= hbm.peak_gb_per_s
    assert gpu.l2.near_latency_cycles <= gpu.l2.far_latency_cycles < hbm.latency_ns * clock.max_mhz / 1e3
    assert clock.min_mhz < clock.max_mhz
    assert clock.idle_power_w < clock.power_limit_w <= clock.single_power_w
    assert gpu.floorplan.num_sms == device.num_sms == len(gpu.floorplan.in_order())


def test_the_toys_nanoseconds_are_cycles_and_its_gigabytes_bytes_a_cycle(gpus: dict[str, GpuSpec]) -> None:
    assert gpus["toy"].clock.max_mhz == 1000.0


# ------------------------------------------------------------------------------------------ clocks under load


def gemm_clock_mhz(gpu: GpuSpec, *, mode: str, data: str, efficiency: float) -> float:
    """SM clock of 8192^3 in bf16 at ``efficiency`` of the tensor rate.

    6.6 GB out of L2, 12.9 GB into tiles of 128 x 256, 1 GB through HBM.
    """
    core = gpu.tensor_core
    rate = (core.wgmma_flops_per_cycle or core.mma_sync_flops_per_cycle)["16bit"]
    activity = Activity(
        cycles=GEMM_FLOPS / (gpu.num_sms * rate * efficiency),
        num_flops=GEMM_FLOPS,
        rate_class="16bit",
        l2_bytes=0.0 if gpu.tma else 6.6e9,
        bulk_bytes=6.6e9 if gpu.tma else 0.0,
        fill_bytes=12.9e9 if gpu.tma else 0.0,
        hbm_bytes=1e9,
        busy_fraction=1.0,
    )
    return PowerLimiter(gpu.clock).clock_mhz(activity, mode=mode, data=data)


def gemm_tflops(gpu: GpuSpec, mode: str, data: str) -> float:
    return gpu.num_sms * 4096 * 0.95 * gemm_clock_mhz(gpu, mode=mode, data=data, efficiency=0.95) / 1e6


@pytest.mark.xfail(strict=True, reason="929 TFLOP/s for 894: zeros slow down at no known limit (deviations/05_clock.md)")
def test_an_h200_runs_a_large_gemm_on_zeros_at_the_clock_that_was_seen(gpus: dict[str, GpuSpec]) -> None:
    assert 0.98 * 894 < gemm_tflops(gpus["h200_sxm"], "sustained", "zeros") < 1.02 * 894


def test_an_h200_runs_a_large_gemm_at_the_clocks_that_were_seen(gpus: dict[str, GpuSpec]) -> None:
    def tflops(mode: str, data: str) -> float:
        return gemm_tflops(gpus["h200_sxm"], mode, data)

    # 769 to 798 and 894 on zeros were seen, in trains of a length that is not told: the limit of a single launch holds for
    # some 20 ms (the marks of kernels/power_clock), the lower one after 100; a train of any length lies between them.
    assert 0.88 * 783 < tflops("sustained", "random") < 798
    assert 769 < tflops("single", "random") < 1.08 * 783
    assert 1550 < gemm_clock_mhz(gpus["h200_sxm"], mode="single", data="random", efficiency=0.95) < 1750


@pytest.mark.parametrize("name", ["a100_sxm_40gb", "a100_sxm_80gb"])
def test_an_a100_nearly_holds_its_clock(name: str, gpus: dict[str, GpuSpec]) -> None:
    assert 1350 <= gemm_clock_mhz(gpus[name], mode="sustained", data="random", efficiency=0.85) <= 1410


@pytest.mark.parametrize("name", REAL_GPUS)
def test_streaming_from_hbm_keeps_the_highest_clock(name: str, gpus: dict[str, GpuSpec]) -> None:
    gpu = gpus[name]
    num_bytes = gpu.hbm.sustained_read_gb_per_s * 1e9
    activity = Activity(
        cycles=gpu.clock.max_mhz * 1e6,
        num_flops=0.0,
        rate_class="fp32",
        l2_bytes=num_bytes,
        hbm_bytes=num_bytes,
        busy_fraction=1.0,
    )
    limiter = PowerLimiter(gpu.clock)
    assert limiter.clock_mhz(activity, mode="single", data="random") == gpu.clock.max_mhz
    assert limiter.clock_mhz(activity, mode="sustained", data="random") >= 0.96 * gpu.clock.max_mhz


# ------------------------------------------------------------------------------------------ what is refused


def write(folder: Path, old: str, new: str, *, base: str = "h100_sxm", name: str = "mine.toml") -> Path:
    """``base``'s flat description with the one ``old`` replaced by ``new``, in ``folder``."""
    text = gpu_toml(load_gpu(base))
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    path = folder / name
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def refusal(path: Path | str) -> str:
    """The message with which ``path`` is refused: one line that begins with the file's name."""
    with pytest.raises(ConfigError) as caught:
        load_gpu(path)
    message = str(caught.value)
    assert "\n" not in message
    if isinstance(path, Path):
        assert message.startswith(f"{path.name}: ")
    return message


def test_an_unchanged_copy_loads_as_the_original(tmp_path: Path) -> None:
    copy = write(tmp_path, "num_slices = 80", "num_slices = 80")
    assert load_gpu(copy) == load_gpu("h100_sxm")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param(
            "num_slices = 80",
            "num_slices = 80\nnum_wheels = 4",
            "component.l2.num_wheels is unknown",
            id="unknown key",
        ),
        pytest.param(
            "num_slices = 80",
            "num_slice = 80",
            "component.l2.num_slice is unknown; did you mean 'num_slices'?",
            id="misspelt key",
        ),
        pytest.param("num_slices = 80\n", "", "component.l2.num_slices is missing", id="missing key"),
        pytest.param("num_sms = 132\n", "", "device.num_sms is missing", id="missing key of the device"),
        pytest.param(
            "\nwgmma_max_groups = 7\n",
            "\n",
            "component.tensor_core.wgmma_max_groups is missing",
            id="half a feature",
        ),
        pytest.param(
            "num_slices = 80",
            "num_slices = -80",
            "component.l2.num_slices is -80, wants a number from 0 up",
            id="negative",
        ),
        pytest.param(
            "num_slices = 80",
            "num_slices = 0",
            "component.l2.num_slices is 0, wants a number above 0",
            id="zero",
        ),
        pytest.param(
            "num_slices = 80",
            "num_slices = 1e12",
            "component.l2.num_slices is 1e+12, wants a number up to 1024",
            id="more than there is room for",
        ),
        pytest.param(
            "bulk_read_fraction = 0.8455", "bulk_read_fraction = 0.0",
            "component.xbar.bulk_read_fraction is 0.0, wants a number above 0", id="no part of a rate",
        ),
        pytest.param(
            "num_slices = 80", "num_slices = 79.5", "component.l2.num_slices is 79.5, wants a valid integer",
            id="fraction of a slice",
        ),
        pytest.param(
            "num_slices = 80",
            'num_slices = "80"',
            "component.l2.num_slices is '80', wants a number",
            id="text",
        ),
        pytest.param(
            "num_slices = 80",
            "num_slices = true",
            "component.l2.num_slices is True, wants a number",
            id="truth",
        ),
        pytest.param("num_slices = 80", "num_slices = inf", "component.l2.num_slices is inf", id="infinite"),
        pytest.param(
            "sustained_fraction = 0.8133",
            "sustained_fraction = 1.1",
            "component.l2.sustained_fraction is 1.1",
            id="above one",
        ),
        pytest.param(
            '{ "16bit" = 4096.0',
            '{ "16bit" = -4096.0',
            "component.tensor_core.wgmma_flops_per_cycle.16bit is -4096.0",
            id="negative in a table",
        ),
        pytest.param(
            'order = "gpc_first"', 'order = "random"', "component.dispatcher.order is 'random', wants 'breadth_first'",
            id="no such order",
        ),
        pytest.param('"16" = 6', '"16" = 5', "device.gpcs hold 116 SMs", id="GPCs that hold other SMs"),
        pytest.param("singleton_tpc_sms = 8", "singleton_tpc_sms = 18", "18 of the first in lone pairs",
        id="more lone SMs than there are"),
        pytest.param("gpc_l2_partition = [0,", "gpc_l2_partition = [2,", "one of 2 L2 partitions", id="GPC on no partition"),
        pytest.param("gpc_l2_partition = [0,", "gpc_l2_partition = [0, 0,", "for each of 8 GPCs", id="a side of no GPC"),
        pytest.param('{ "0" = 0.8968, ', "{ ", "loop_fetch_rate_by_tpc has 1, 2, 3, 4, 5, 6, 7, 8, wants",
        id="a TPC without a pace"),
        pytest.param('{ "0" = 0.8968', '{ "0" = 0.0', "instruction_cache.loop_fetch_rate_by_tpc.0 is 0.0",
        id="a pace of zero"),
        pytest.param('{ "0" = 0.8968', '{ "TPC" = 1.0, "0" = 0.8968', "loop_fetch_rate_by_tpc has TPC, 0",
        id="a pace of no TPC"),
        pytest.param(
            'kind = "l2"',
            'kind = "l3"',
            "component.l2.kind 'l3' is unknown; did you mean 'l1' or 'l2'?",
            id="unknown component",
        ),
        pytest.param('kind = "l2"\n', "", "component.l2 lacks kind", id="no kind"),
        pytest.param(
            '[component.hbm]\nkind = "hbm"',
            '[component.hbn]\nkind = "hbm"',
            "component.hbn is of kind 'hbm'",
            id="misspelt component",
        ),
        pytest.param(
            'below = "hbm"',
            'below = "xbar"',
            "component.l2.below is 'xbar', wants 'hbm'",
            id="wrong level below",
        ),
        pytest.param('below = "hbm"\n', "", "component.l2.below is None, wants 'hbm'", id="no level below"),
        pytest.param(
            "[device]\n", '[device]\nkind = "l2"\n', "device.kind is unknown", id="kind of the device"
        ),
        pytest.param(
            "[component.l2.source]",
            "[component.l2.sources]",
            "component.l2.sources is unknown; did you mean 'source'?",
            id="misspelt source",
        ),
        pytest.param('name = "h100_sxm"', "name = 100", "name is 100, wants a text", id="name"),
        pytest.param(
            'title = "', 'titel = "', "titel is unknown; did you mean 'title'?", id="misspelt title"
        ),
        pytest.param("[device]\n", "[device\n", "not valid TOML", id="no TOML"),
        pytest.param(
            "sustained_read_gb_per_s = 3153.0", "sustained_read_gb_per_s = 3353.0",
            "component.hbm.sustained_read_gb_per_s is 3353, above the peak, peak_gb_per_s, 3352", id="sustained above peak",
        ),
    ],
)
def test_a_wrong_line_is_refused_by_file_and_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in refusal(write(tmp_path, old, new))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("about right", "wants a text that begins with one of vendor:, paper:", id="no prefix"),
        pytest.param(
            "rumour: a forum", "wants a text that begins with one of vendor:, paper:", id="wrong prefix"
        ),
        pytest.param(
            "Vendor: data sheet", "wants a text that begins with one of vendor:, paper:", id="capital"
        ),
        pytest.param("guess:", "and says more", id="nothing after the prefix"),
        pytest.param("toy: round", "'toy:', which only toy.toml may say", id="toy outside toy"),
        pytest.param(" ", "component.l1.hit_latency_cycles has no source", id="empty"),
    ],
)
def test_a_wrong_source_is_refused(tmp_path: Path, text: str, said: str) -> None:
    stated = load_gpu("h100_sxm").source_of("l1.hit_latency_cycles")
    old = f'hit_latency_cycles = "{stated}"'
    message = refusal(write(tmp_path, old, f'hit_latency_cycles = "{text}"'))
    assert said in message and "component.l1" in message and "hit_latency_cycles" in message


def test_a_number_without_a_source_is_refused(tmp_path: Path) -> None:
    stated = load_gpu("h100_sxm").source_of("l1.hit_latency_cycles")
    path = write(tmp_path, f'hit_latency_cycles = "{stated}"\n', "")
    assert (
        "component.l1.hit_latency_cycles has no source, add component.l1.source.hit_latency_cycles"
        in refusal(path)
    )


def test_a_source_without_a_number_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "[component.l1.source]\n", '[component.l1.source]\nhit_latency = "guess: forty"\n')
    assert "component.l1.source.hit_latency is unknown; did you mean 'hit_latency_cycles'?" in refusal(path)


def test_one_partition_of_l2_has_no_far_side(tmp_path: Path) -> None:
    path = write(tmp_path, "far_latency_cycles = 200.0", "far_latency_cycles = 300.0", base="toy", name="toy.toml")
    assert "component.l2.far_latency_cycles is 300 where num_partitions is 1; wants 200" in refusal(path)


def test_only_a_file_called_toy_may_say_toy(tmp_path: Path) -> None:
    assert "which only toy.toml may say" in refusal(write(tmp_path, "num_sms = 4", "num_sms = 4", base="toy"))
    kept = write(tmp_path, "max_ctas_per_sm = 32", "max_ctas_per_sm = 16", base="toy", name="toy.toml")
    assert load_gpu(kept).device.max_ctas_per_sm == 16


def test_a_part_that_every_gpu_has_may_not_lack(tmp_path: Path) -> None:
    text = gpu_toml(load_gpu("h100_sxm"))
    for part, may_lack in (("l1", False), ("tma", True)):
        start = text.index(f"[component.{part}]")
        end = text.index("[component.", text.index(f"[component.{part}.source]") + 1)
        path = tmp_path / f"no_{part}.toml"
        path.write_text(text[:start] + text[end:], encoding="utf-8")
        if may_lack:
            assert "device.features has 'tma', wants component.tma, which does it" in refusal(path)
            path.write_text(path.read_text(encoding="utf-8").replace('"tma", "cluster"', '"cluster"', 1), encoding="utf-8")
            assert load_gpu(path).component(part) is None
        else:
            assert f"component.{part} is missing" in refusal(path)


def test_a_component_that_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flat.toml"
    path.write_text('name = "flat"\ntitle = "flat"\ncomponent = 3\n[device]\n', encoding="utf-8")
    assert "component is 3, wants a table" in refusal(path)


SCALED = {
    "h100_pcie": {
        "hbm.sm_gb_per_s", "dispatcher.round_cycles", "clock.tensor_pj_per_flop", "clock.l2_pj_per_byte",
        "clock.bulk_pj_per_byte", "clock.fill_pj_per_byte", "clock.sm_busy_w", "clock.fp32_pj_per_flop",
        "clock.smem_pj_per_byte",
    },
}  # fmt: skip
"""Inferred from an H200's at other SMs or another clock, as the source says."""


@pytest.mark.parametrize("name", [name for name in HOPPERS if name != "h200_sxm"])
def test_what_is_taken_from_an_h200_is_what_an_h200_has_today(name: str, gpus: dict[str, GpuSpec]) -> None:
    gpu, h200 = gpus[name], gpus["h200_sxm"]

    def value(of: GpuSpec, parameter: str) -> object:
        part, key = parameter.split(".")
        return getattr(getattr(of, part), key)

    same = re.compile(r"inferred: h200_sxm(, same (SM|chip)\b| \()")
    taken = {key for key, source in gpu.sources.items() if same.match(source)}
    assert len(taken) >= 80
    stale = {key for key in taken if value(gpu, key) != value(h200, key)}
    assert stale == SCALED.get(name, set())


# ------------------------------------------------------------------------------------------ one extends another


CHILD = 'name = "mine"\ntitle = "Mine"\nextends = "h100_sxm"\n'
FASTER = '[component.hbm]\nlatency_ns = 300.0\n[component.hbm.source]\nlatency_ns = "guess: less; settled by a chase"\n'


def child(folder: Path, text: str, *, head: str = CHILD) -> Path:
    path = folder / "mine.toml"
    path.write_text(head + text, encoding="utf-8")
    return path


def test_what_a_file_does_not_say_is_as_in_the_one_that_it_extends(tmp_path: Path) -> None:
    gpu, parent = load_gpu(child(tmp_path, FASTER)), load_gpu("h100_sxm")
    assert gpu.hbm == replace(parent.hbm, latency_ns=300.0) != parent.hbm
    assert gpu == replace(parent, name="mine", title="Mine", hbm=gpu.hbm, sources=gpu.sources)
    assert set(gpu.sources) == set(parent.sources)


@pytest.mark.parametrize(
    ("parameter", "of_parent", "of_child"),
    [
        ("hbm.latency_ns", "inferred", "guess: less; settled by a chase"),
        ("hbm.read_write_turnaround_wait_ns", "measured",
        "inferred: h100_sxm (measured: kernels/reads_beside_writes, h100_sxm, 2026-11-2"),
        ("hbm.peak_gb_per_s", "published", "inferred: h100_sxm (vendor: NVIDIA H100 data sheet, SXM, 3.35 TB/s; 5120 bit x"),
        ("hbm.refresh_granularity_bytes", "inferred",
        "inferred: h200_sxm, HBM3 for HBM3e; kernels/memory_channels, 2026-11-22"),
        ("l2.write_back_queue_bytes", "guess", "guess: some KB a slice; settled by the time of stores of 10 to 200 MB"),
    ],
)
def test_an_inherited_number_says_whose_it_is_and_is_no_better_known(
    tmp_path: Path, parameter: str, of_parent: str, of_child: str
) -> None:
    assert load_gpu("h100_sxm").source_class(parameter) == of_parent
    assert load_gpu(child(tmp_path, FASTER)).source_of(parameter).startswith(of_child)


def test_a_source_alone_says_why_an_inherited_number_holds(tmp_path: Path) -> None:
    gpu = load_gpu(child(tmp_path, FASTER + 'peak_gb_per_s = "vendor: a data sheet"\n'))
    assert gpu.source_of("hbm.peak_gb_per_s") == "vendor: a data sheet"
    assert gpu.hbm.peak_gb_per_s == load_gpu("h100_sxm").hbm.peak_gb_per_s


def test_a_feature_that_there_is_not_is_refused(tmp_path: Path) -> None:
    text = '[device]\nfeatures = ["tma", "wgmna"]\n'
    assert "device.features.1 is 'wgmna', wants 'tma', 'mbarrier', 'wgmma'" in refusal(child(tmp_path, text))


def test_features_may_differ_alone_and_are_no_numbers(tmp_path: Path) -> None:
    gpu = load_gpu(child(tmp_path, '[device]\nfeatures = ["cp_async", "mma_sync", "tma"]\n'))
    assert gpu.features == {"cp_async", "mma_sync", "tma"}
    assert gpu.parameters() == load_gpu("h100_sxm").parameters() and "device.features" not in gpu.sources
    assert "device.features is [], wants those that the GPU has" in refusal(child(tmp_path, "[device]\nfeatures = []\n"))
    text = '[device]\nfeatures = ["tma"]\n[device.source]\nfeatures = "guess: some"\n'
    assert "device.source.features is unknown" in refusal(child(tmp_path, text))


@pytest.mark.parametrize("name", gpu_names())
def test_a_feature_has_its_part_and_a_part_its_feature(name: str, gpus: dict[str, GpuSpec]) -> None:
    gpu = gpus[name]
    assert gpu.features == set(gpu.device.features)
    for feature, part in config.FEATURE_PARTS.items():
        assert (feature in gpu.device.features) == (gpu.component(part) is not None)
    assert ("wgmma" in gpu.features) == bool(gpu.tensor_core.wgmma_flops_per_cycle)
    assert ("fp8" in gpu.features) == ("fp8" in gpu.tensor_core.mma_sync_flops_per_cycle)


def test_features_are_those_that_launches_name() -> None:
    assert get_args(Feature) == get_args(launch.Feature)


def test_a_table_is_overridden_as_one(tmp_path: Path) -> None:
    text = (
        '[component.tensor_core]\nmma_sync_accumulate_cycles = { "16bit" = 0.5 }\n'
        '[component.tensor_core.source]\nmma_sync_accumulate_cycles = "guess: none; settled by kernels/math_rate"\n'
    )
    assert load_gpu(child(tmp_path, text)).tensor_core.mma_sync_accumulate_cycles == {"16bit": 0.5}


@pytest.mark.parametrize("name", gpu_names())
def test_a_flat_file_describes_the_same_gpu(name: str, tmp_path: Path, gpus: dict[str, GpuSpec]) -> None:
    path = tmp_path / f"{name}.toml"
    path.write_text(gpu_toml(gpus[name]), encoding="utf-8")
    assert "extends" not in tomllib.loads(path.read_text(encoding="utf-8"))
    assert load_gpu(path) == gpus[name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('extends = "h100_smx"\n' + FASTER, "extends is 'h100_smx', which is no GPU; did you mean 'h100_sxm'?"),
        ("extends = 3\n" + FASTER, "extends is 3, which is no GPU; "),
        ('extends = ["toy"]\n' + FASTER, "extends is ['toy'], which is no GPU; "),
        ('extends = "h100_sxm"\n', "overrides no number of h100_sxm, wants one that differs"),
        (
            'extends = "h100_sxm"\n[component.hbm.source]\nlatency_ns = "guess: yes"\n',
            "overrides no number of h100_sxm, wants one that differs",
        ),
        (
            'extends = "h100_sxm"\n[component.hbm]\nlatency_n = 3.0\n',
            "component.hbm.latency_n is unknown; did you mean 'latency_ns'?",
        ),
        (
            'extends = "h100_sxm"\n[component.hbm]\nlatency_ns = 3.0\n',
            "component.hbm.latency_ns has no source, add component.hbm.source.latency_ns",
        ),
        ('extends = "h100_sxm"\n[component.hbn]\nlatency_ns = 3.0\n', "component.hbn lacks kind"),
        ('extends = "h100_sxm"\ncomponent = 3\n', "component is 3, wants a table for each part"),
        ('extends = "h100_sxm"\n[component]\nhbm = 3\n', "component.hbm is 3, wants a table"),
        ('extends = "h100_sxm"\n[component.hbm]\nsource = 3\n', "component.hbm.source is 3, wants a table"),
    ],
)
def test_an_extension_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(child(tmp_path, text, head='name = "mine"\ntitle = "Mine"\n'))


def test_an_extension_without_a_name_is_refused(tmp_path: Path) -> None:
    assert "name is missing" in refusal(child(tmp_path, FASTER, head='title = "Mine"\nextends = "h100_sxm"\n'))


def test_gpus_that_extend_each_other_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, parent in (("one", "two"), ("two", "one"), ("self", "self")):
        text = f'name = "{name}"\ntitle = "{name}"\nextends = "{parent}"\n{FASTER}'
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr("gpusim.machine.config.configs_dir", lambda: tmp_path)
    for name in ("one", "two", "self"):
        assert "which extends it in turn; one of them must not" in refusal(name)


def test_what_is_wrong_in_a_parent_is_said_of_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "num_slices = 80", "num_slices = 0", name="h100_sxm.toml")
    path = child(tmp_path, FASTER)
    monkeypatch.setattr("gpusim.machine.config.configs_dir", lambda: tmp_path)
    with pytest.raises(ConfigError, match=r"^h100_sxm\.toml: component\.l2\.num_slices is 0"):
        load_gpu(path)


def test_a_parent_that_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.machine.config.configs_dir", lambda: tmp_path)
    path = child(tmp_path, FASTER)
    for slices in (80, 40):
        text = FLAT.replace("num_slices = 80", f"num_slices = {slices}")
        (tmp_path / "h100_sxm.toml").write_text(text, encoding="utf-8")
        assert load_gpu(path).l2.num_slices == slices


def test_a_new_number_may_have_a_value_that_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Newer(MbarrierSpec):
        far_cycles: float = 0.0

    monkeypatch.setitem(cast(dict[str, type], COMPONENT_KINDS), "mbarrier", Newer)
    gpu = config.gpu_from_table(tomllib.loads(FLAT), "h100_sxm.toml")
    assert isinstance(gpu.mbarrier, Newer) and gpu.mbarrier.far_cycles == 0.0
    assert "mbarrier.far_cycles" not in gpu.parameters()
    table = tomllib.loads(FLAT)
    table["component"]["mbarrier"] |= {"far_cycles": 7.0}
    table["component"]["mbarrier"]["source"] |= {"far_cycles": "measured: a kernel"}
    gpu = config.gpu_from_table(table, "h100_sxm.toml")
    assert isinstance(gpu.mbarrier, Newer) and gpu.parameters()["mbarrier.far_cycles"] == gpu.mbarrier.far_cycles == 7.0


def test_a_side_of_l2_holds_about_half(gpus: dict[str, GpuSpec]) -> None:
    for gpu in gpus.values():
        assert 0.9 < gpu.l2.partition_capacity_fraction * gpu.l2.num_partitions < 1.1


def test_an_unknown_gpu_is_refused_with_the_nearest_name_of_that_model() -> None:
    assert "did you mean 'h200_sxm'?" in refusal("h200_smx")
    for other in ("b200", "h300", "gh200_sxm"):
        assert f"gpu: {other!r} is unknown; known: a100_sxm_40gb, " in refusal(other)


def test_a_gpu_has_any_name_that_none_else_begins_with() -> None:
    assert load_gpu("H200") is not None
    assert (load_gpu("H200"), load_gpu("h200-sxm")) == (load_gpu("h200_sxm"), load_gpu("h200_sxm"))
    assert "'a100' is the beginning of 2 names; wants one of a100_sxm_40gb, a100_sxm_80gb" in refusal("a100")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*none\.toml"):
        load_gpu(tmp_path / "none.toml")


def test_a_file_that_changes_one_of_ours_is_another_gpu(tmp_path: Path) -> None:
    text = (configs_dir() / "h200_sxm.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    assert load_gpu(path).name == "h200_sxm"
    assert "imad_wide_lanes = 32" in text
    path.write_text(text.replace("imad_wide_lanes = 32", "imad_wide_lanes = 16", 1), encoding="utf-8")
    assert load_gpu(path).name == "h200_sxm (changed)"


def test_another_product_is_no_short_name() -> None:
    assert load_gpu("h200").name == "h200_sxm"
    with pytest.raises(ConfigError, match="'h20' is unknown"):
        load_gpu("h20")
