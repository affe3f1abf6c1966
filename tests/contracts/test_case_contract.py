"""What every measured kernel keeps to: configs, README, outputs that are checked, model, fit, metrics, tiers."""

from __future__ import annotations

import math
import re
import tomllib
from functools import cache

import pytest

from gpusim import load_gpu
from gpusim.evidence.cases.case import Config, KernelLaunch, case_names, load_case, no_fitted_constants, nothing_fitted
from gpusim.evidence.cases.paths import kernel_folder, kernels_dir
from gpusim.evidence.validate.judge import TIERS

from .outcomes import EXPECTED, outcomes_of
from .right_outputs import RIGHT, few

NAMES = case_names()
GPU = load_gpu("h200_sxm")
UNCHECKED = {"board_power", "conflicting_copies", "device_descriptors", "hopper_knobs", "library_gemm", "tile_gemm"}
"""Cases that have their check from another one: power_clock, copies_beside_reads, and the check of GEMMs."""
DRAWN_ONCE = {"shared_access": ("asleep", "matrix"), "global_access": ("load_narrow", "store")}
"""Groups that are drawn a second time, of cases whose configs take seconds."""
READ_ALL_NUMBERS = {
    "cache_hints", "fill_beside_wgmma", "loads_beside_stores", "memory_channels", "multicast_rings", "ring_math",
    "store_fence", "tensor_map", "tile_arrival", "tile_sharing", "turn_taking",
}  # fmt: skip
"""Cases whose fit takes for granted that each row has all its numbers."""
SLOW_MODELS = {"copy_grains", "piece_order", "power_tma"}
"""Cases whose smallest grid takes seconds; their own tests ask the model."""
OUTCOMES = tomllib.loads(EXPECTED.read_text(encoding="utf-8"))


@cache
def configs_of(name: str) -> dict[str, list[Config]]:
    """Configs by group, with seed 1."""
    case = load_case(name)
    return {group: case.configs(group, 1) for group in case.groups}


@cache
def measured_columns() -> frozenset[str]:
    """Columns of all measured tables."""
    tables = (kernels_dir().parent / "validation" / "measured").glob("*/*.csv")
    return frozenset(name for path in tables for name in path.read_text(encoding="utf-8").partition("\n")[0].split(","))


def numbers_size(config: Config) -> int:
    """Product of a config's whole numbers: small ones are simulated fast."""
    return math.prod(max(1, int(text)) for text in config.values() if text.isdecimal())


@pytest.mark.parametrize("name", NAMES)
def test_configs_are_unique_complete_text_and_the_same_every_time(name: str) -> None:
    case = load_case(name)
    assert case.name == name == kernel_folder(name).name and len(set(case.columns)) == len(case.columns)
    for group, configs in configs_of(name).items():
        assert configs and len({tuple(sorted(config.items())) for config in configs}) == len(configs), group
        for config in configs:
            assert set(config) == {"kernel", *case.columns}, group
            assert all(isinstance(value, str) for value in config.values())
            if case.config_type is not None:  # a row of the table gives the config back
                again = case.config_type.of(dict(config))
                assert again == config and dict(again) == dict(config)
    for group in DRAWN_ONCE.get(name, tuple(case.groups)):
        assert case.configs(group, 1) == configs_of(name)[group], group
        assert case.configs(group, 2), group


def counts_in(readme: str, sizes: dict[str, int]) -> tuple[list[tuple[int, int]], bool]:
    """(pairs of a count and what it should be, whether all configs are accounted for) of a README."""
    found, told = [], set()
    for cell, count in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\d+)(?= *(?:\||,|:|$))", readme, re.MULTILINE):
        groups = re.findall(r"`(\w+)`", cell)
        if set(groups) <= set(sizes):
            found.append((int(count), sum(sizes[group] for group in groups)))
            told |= set(groups)
    for group, count in re.findall(r"^- `(\w+)` \((\d+) configs", readme, re.MULTILINE):
        found.append((int(count), sizes[group]))
        told.add(group)
    totals = [int(count) for count in re.findall(r"(?:# |Measured: |kernels?(?: \([^)]*\))?, )(\d+) configs", readme)]
    return found + [(count, sum(sizes.values())) for count in totals], bool(totals) or told == set(sizes)


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_says_how_many_configs_there_are(name: str) -> None:
    sizes = {group: len(configs) for group, configs in configs_of(name).items()}
    counts, is_complete = counts_in((kernel_folder(name) / "README.md").read_text(encoding="utf-8"), sizes)
    assert [said for said, _ in counts] == [wanted for _, wanted in counts]
    assert is_complete, f"say in README.md: {sum(sizes.values())} configs"


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_known_and_tiers_name_judged_numbers(name: str) -> None:
    case = load_case(name)
    unknown = set(case.metrics) - measured_columns()
    assert not {metric for metric in unknown if not metric.startswith("l1tex__t_") or "_op_ldgsts" not in metric}
    assert set(case.tiers) <= case.names and set(case.tiers.values()) <= set(TIERS)


@pytest.mark.parametrize("name", NAMES)
def test_a_launch_has_threads_and_entry_points_that_the_case_names(name: str) -> None:
    configs = [config for group in configs_of(name).values() for config in group]
    launch = load_case(name).launch(min(configs, key=numbers_size), False)
    if isinstance(launch, KernelLaunch):
        named = {*load_case(name).followers, *(config["kernel"] for config in configs)}
        for each in (launch, *launch.following):
            assert each.kernel in named and math.prod(each.grid) > 0 and 0 < math.prod(each.block) <= 1024


@pytest.mark.parametrize("name", sorted(set(NAMES) - UNCHECKED))
def test_right_outputs_pass_and_changed_ones_come_out_as_written_down(name: str) -> None:
    """``outcomes.toml``: the words of each refusal, values that change, parts of outputs that nothing looks at."""
    case, found, wanted = load_case(name), outcomes_of(name), OUTCOMES[name]
    values, expected = found.pop("values"), wanted.pop("values")
    assert found == wanted
    assert [set(each) for each in values] == [set(each) for each in expected]
    for each, right in zip(values, expected, strict=True):
        assert set(each) <= set(case.values) and each == pytest.approx(right, rel=1e-9, abs=1e-12, nan_ok=True)
    words = {word for key, of_part in found.items() if key != "configs" for text in of_part for word in text.split(" | ")}
    assert words - {"", "ignored", "other values", "IndexError"}, "nothing is refused"


def test_every_case_has_right_outputs() -> None:
    assert set(RIGHT) == set(OUTCOMES) == set(NAMES) - UNCHECKED


@pytest.mark.parametrize("name", sorted(set(NAMES) - SLOW_MODELS))
def test_the_model_answers_with_finite_numbers_of_declared_names(name: str) -> None:
    case = load_case(name)
    config = min((config for configs in configs_of(name).values() for config in configs), key=numbers_size)
    found = case.predict(config, GPU)
    assert all(math.isfinite(number) for number in found.values())
    assert set(found) <= case.names or (case.is_validation and set(found) & case.names)


@pytest.mark.parametrize("name", [name for name in NAMES if load_case(name).fit is not nothing_fitted])
def test_rows_that_tell_nothing_fit_nothing(name: str) -> None:
    case = load_case(name)
    assert list(case.fitted([], GPU)) == []
    if name not in READ_ALL_NUMBERS:
        bare = [{**config, "group": group} for group, configs in configs_of(name).items() for config in few(configs, 40)]
        assert list(case.fitted(bare, GPU)) == []


@pytest.mark.parametrize("name", [name for name in NAMES if load_case(name).fitted_constants is not no_fitted_constants])
def test_no_rows_give_no_constants(name: str) -> None:
    assert list(load_case(name).fitted_constants([], GPU)) == []
