"""A GPU's description: TOML in, a frozen GpuSpec out; refuses what is unknown, missing or without a source."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from gpusim.errors import ConfigError, full_gpu_name, nearest
from gpusim.machine.clock import ClockSpec
from gpusim.machine.description import NO_NUMBERS, chain_of, flat_table, parameter_hint, sections
from gpusim.machine.dispatcher import DispatcherSpec, slots_of_grid
from gpusim.machine.floorplan import DeviceSpec, Feature, Floorplan, floorplan_of
from gpusim.machine.memory.dsmem import DsmemSpec
from gpusim.machine.memory.hbm import HbmSpec
from gpusim.machine.memory.l1 import L1Spec
from gpusim.machine.memory.l2 import L2Spec
from gpusim.machine.memory.l2_capacity import L2Partitions
from gpusim.machine.memory.register_file import RegisterFileSpec
from gpusim.machine.memory.smem import SmemSpec
from gpusim.machine.memory.tma import TmaSpec
from gpusim.machine.memory.xbar import XbarSpec
from gpusim.machine.sm.instruction_cache import InstructionCacheSpec
from gpusim.machine.sm.mbarrier import MbarrierSpec
from gpusim.machine.sm.tensor_core import TensorCoreSpec
from gpusim.machine.sm.warp_scheduler import WarpSchedulerSpec

if TYPE_CHECKING:
    from pydantic import TypeAdapter

BELOW = {"l2": "hbm", "xbar": "l2", "l1": "xbar", "tma": "xbar"}
"""Part that each memory part sends its requests to; a description repeats it for its readers."""

FEATURE_PARTS = {"tma": "tma", "mbarrier": "mbarrier", "cluster": "dsmem"}
"""Part of a GPU that each feature needs."""

OPTIONAL_KEYS = "wgmma_"
"""Prefix of keys that a GPU without wgmma leaves out, all of them."""

NOT_ZERO = (
    "l0_bytes", "l1_bytes", "prefetched_bytes", "refresh_granularity_bytes", "math_interval_during_wgmma_cycles",
    "imad_wide_during_wgmma_cycles", "loop_fetch_rate_by_tpc", "_per_cycle", "_per_s", "_mhz", "num_", "sustained_fraction",
    "bulk_read_fraction", "multicast_read_fraction", "allocation_bytes", "allocation_unit", "lanes", "max_queued_boxes",
    "wgmma_max_groups",
)  # fmt: skip
"""Prefixes and suffixes of keys that must not be 0: divisors, and lengths of queues."""

QUEUES = ("max_queued_boxes", "wgmma_max_groups")
MOST_PARTS, MOST_PLACES = 1024, 65536
"""Limits on counts of parts and on lengths of queues, so that a typing error does not exhaust memory."""

WORDS = ("order", "coalesce_scope")
"""Keys whose value is a word, not a number."""

SIGNED = ("component.tma.latency_cycles",)
"""Parameters that may be negative, as differences."""

SOURCE_CLASSES = {
    "vendor": "published", "paper": "published", "measured": "measured", "fitted": "measured",
    "inferred": "inferred", "guess": "guess", "toy": "toy",
}
"""Class of each source, by the word that the source begins with."""

CHANGED = " (changed)"
"""Suffix of a GPU's name whose description differs from ours of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU: all its parameters, each with a source."""

    name: str
    title: str
    device: DeviceSpec
    hbm: HbmSpec
    l2: L2Spec
    xbar: XbarSpec
    l1: L1Spec
    smem: SmemSpec
    register_file: RegisterFileSpec
    tma: TmaSpec | None = None
    dsmem: DsmemSpec | None = None
    warp_scheduler: WarpSchedulerSpec
    tensor_core: TensorCoreSpec
    mbarrier: MbarrierSpec | None = None
    instruction_cache: InstructionCacheSpec
    dispatcher: DispatcherSpec
    clock: ClockSpec
    sources: Mapping[str, str]
    """Source of each parameter, by ``component.parameter``."""

    @property
    def base_name(self) -> str:
        """Name of the GPU, without the suffix of a changed description."""
        return self.name.removesuffix(CHANGED)

    @property
    def compute_capability(self) -> float:
        """CUDA compute capability."""
        return self.device.compute_capability

    @property
    def features(self) -> frozenset[Feature]:
        """Instructions and types of the GPU: those of its description whose part exists."""
        has = {name: self.component(part) is not None for name, part in FEATURE_PARTS.items()}
        return frozenset(feature for feature in self.device.features if has.get(feature, True))

    @property
    def num_sms(self) -> int:
        """Streaming multiprocessors."""
        return self.device.num_sms

    @property
    def floorplan(self) -> Floorplan:
        """Which SMs share a TPC and a GPC."""
        device = self.device
        return floorplan_of(tuple(device.gpcs.items()), device.singleton_tpc_sms, tuple(device.gpc_l2_partition))

    def gpcs_of_clusters(self, size: int) -> tuple[int, ...]:
        """GPC of each cluster of ``size`` CTAs, one CTA an SM, in the order of a grid's first clusters."""
        slots = slots_of_grid(self.dispatcher, self.floorplan, cluster_size=size, ctas_per_sm=1)
        return tuple(self.floorplan.gpc_of_sm[slot[0]] for slot in slots)

    @property
    def partition_of_sm(self) -> tuple[int, ...]:
        """L2 partition of each SM."""
        return tuple(self.floorplan.partition_of_sm)

    @property
    def l2_partitions(self) -> L2Partitions:
        """Capacities of each L2 partition."""
        l2 = self.l2
        return L2Partitions(
            num=l2.num_partitions, partition_bytes=l2.capacity_bytes * l2.partition_capacity_fraction,
            spread=l2.eviction_width_fraction, dirty_bytes=l2.capacity_bytes * l2.dirty_fraction / l2.num_partitions,
            first_bytes=l2.capacity_bytes * l2.evict_first_fraction / l2.num_partitions,
            last_bytes=l2.capacity_bytes * l2.evict_last_fraction / l2.num_partitions,
        )

    @property
    def max_smem_per_cta_bytes(self) -> int:
        """Most shared memory of one CTA, in bytes."""
        return self.device.smem_per_cta_bytes

    def component(self, name: str) -> Any:
        """Spec of part ``name``, or None where the GPU lacks it."""
        return getattr(self, name)

    def parameters(self) -> dict[str, Any]:
        """Every parameter by ``component.parameter``; entries of a table by ``component.parameter.entry``.

        Parameters that the description leaves out are not among them.
        """
        flat: dict[str, Any] = {}
        for name in ("device", *COMPONENT_KINDS):
            spec = getattr(self, name)
            for item in fields(spec) if spec is not None else ():
                value = getattr(spec, item.name)
                if f"{name}.{item.name}" not in self.sources:
                    continue
                if isinstance(value, Mapping):
                    flat.update({f"{name}.{item.name}.{entry}": number for entry, number in value.items()})
                else:
                    flat[f"{name}.{item.name}"] = value
        return flat

    def source_of(self, parameter: str) -> str:
        """Source of ``component.parameter`` (an entry of a table has its table's)."""
        return self.sources[".".join(parameter.split(".")[:2])]

    def source_class(self, parameter: str) -> str:
        """``measured``, ``published``, ``inferred``, ``guess`` or ``toy``."""
        return SOURCE_CLASSES[self.source_of(parameter).split(":", 1)[0]]


COMPONENT_KINDS: Mapping[str, type] = {
    name: kind for name, hint in get_type_hints(GpuSpec).items()
    if isinstance(kind := (get_args(hint) or (hint,))[0], type) and is_dataclass(kind) and kind is not DeviceSpec
}  # fmt: skip
"""Spec of each part, by its name in a description."""

OFF: Mapping[str, Any] = {
    f"{part}.{item.name}": item.default for part, kind in COMPONENT_KINDS.items() for item in fields(kind)
    if item.default is not MISSING and not item.name.startswith(OPTIONAL_KEYS)
}  # fmt: skip
"""Parameters with a default that switches their mechanism off; descriptions may leave them out."""

OPTIONAL = {item.name for item in fields(GpuSpec) if item.default is None}
"""Parts that a GPU may lack."""


def configs_dir() -> Path:
    """Folder of the GPUs' descriptions: next to the package in a checkout, inside it when installed."""
    inside = Path(__file__).resolve().parent.parent / "configs"
    return inside if inside.is_dir() else Path(__file__).resolve().parent.parent.parent / "configs"


def gpu_names() -> list[str]:
    """Names of all GPUs that can be loaded."""
    return sorted(path.stem for path in configs_dir().glob("*.toml"))


def load_gpu(name: str | Path) -> GpuSpec:
    """GPU with that name (or the first words of it, if no other has them), or described by the TOML file at that path.

    A file with the name of one of our GPUs and other numbers gives a GPU with another name. Measurements of ours do not
    apply to it.

    Raises:
        ConfigError: unknown name; unknown, missing or unsourced key; value out of range.
    """
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"gpu: there is no file {path}, wants a TOML file or one of {', '.join(gpu_names())}")
    else:
        path = configs_dir() / f"{full_gpu_name(str(name), gpu_names())}.toml"
    found = deepcopy(_described(chain_of(path, configs_dir())))  # tables in it are dicts
    if Path(name).suffix == ".toml" and found.name in gpu_names():
        ours = load_gpu(found.name)
        if found != replace(ours, title=found.title, sources=found.sources):
            return replace(found, name=f"{found.name}{CHANGED}")
    return found


@lru_cache(maxsize=16)
def _described(chain: tuple[tuple[str, str], ...]) -> GpuSpec:
    """GPU that a file describes; cached, as callers that predict many rows load it for each."""
    if len(chain) > 1:
        _described(chain[1:])  # so that an error there names that file
    return gpu_from_table(flat_table(chain), chain[0][0])


def gpu_from_table(table: Mapping[str, Any], where: str) -> GpuSpec:
    """GPU from a description that extends no other; ``where`` is its name in errors."""
    known = ("name", "title", "device", "component")
    _refuse_unknown(where, "", table, {*known, "extends"})
    for key in known:
        if key not in table:
            raise ConfigError(f"{where}: {key} is missing, a GPU's description needs it")
    for key in ("name", "title"):
        if not isinstance(table[key], str):
            raise ConfigError(f"{where}: {key} is {table[key]!r}, wants a text")
    sources: dict[str, str] = {}
    described = sections(where, table)
    parts: dict[str, Any] = {"device": _part(where, "device", described.pop("device"), DeviceSpec, sources)}
    for name, section in described.items():
        kind = section.get("kind")
        if kind is None:
            raise ConfigError(f"{where}: component.{name} lacks kind, wants one of {', '.join(COMPONENT_KINDS)}")
        if not isinstance(kind, str) or kind not in COMPONENT_KINDS:
            raise ConfigError(f"{where}: component.{name}.kind {kind!r} is unknown; {nearest(str(kind), COMPONENT_KINDS)}")
        if name != kind:
            raise ConfigError(f"{where}: component.{name} is of kind {kind!r}, wants the same name, component.{kind}")
        below = section.get("below")
        if below != BELOW.get(name):
            raise ConfigError(f"{where}: component.{name}.below is {below!r}, wants {BELOW.get(name)!r}")
        parts[name] = _part(where, f"component.{name}", section, COMPONENT_KINDS[kind], sources)
    for name in COMPONENT_KINDS:
        if name not in parts and name not in OPTIONAL:
            raise ConfigError(f"{where}: component.{name} is missing, a GPU's description needs it")
    device, l2, hbm = parts["device"], parts["l2"], parts["hbm"]
    if not device.features:
        raise ConfigError(f"{where}: device.features is [], wants those that the GPU has, for example cp_async and mma_sync")
    for way in ("read", "write"):
        rate = getattr(hbm, f"sustained_{way}_gb_per_s")
        if rate > hbm.peak_gb_per_s:
            raise ConfigError(
                f"{where}: component.hbm.sustained_{way}_gb_per_s is {rate:g}, above the peak, peak_gb_per_s, "
                f"{hbm.peak_gb_per_s:g}"
            )
    for feature, part in FEATURE_PARTS.items():
        if feature in device.features and part not in parts:
            raise ConfigError(f"{where}: device.features has {feature!r}, wants component.{part}, which does it")
    held = sum(int(size) * count for size, count in device.gpcs.items() if size.isdecimal())
    smallest = min((int(size) for size in device.gpcs if size.isdecimal()), default=0)
    if held != device.num_sms or device.singleton_tpc_sms > smallest:
        raise ConfigError(
            f"{where}: device.gpcs hold {held} SMs, {device.singleton_tpc_sms} of the first in lone pairs; wants the "
            f"{device.num_sms} of device.num_sms, and no more lone ones than the smallest has"
        )
    partitions, num_gpcs = range(l2.num_partitions), sum(device.gpcs.values())
    if len(device.gpc_l2_partition) != num_gpcs or not set(device.gpc_l2_partition) <= set(partitions):
        raise ConfigError(
            f"{where}: device.gpc_l2_partition is {list(device.gpc_l2_partition)}, wants one of {l2.num_partitions} L2 "
            f"partitions for each of {num_gpcs} GPCs, counted from 0"
        )
    if l2.num_partitions == 1 and l2.far_latency_cycles != l2.near_latency_cycles:
        raise ConfigError(
            f"{where}: component.l2.far_latency_cycles is {l2.far_latency_cycles:g} where num_partitions is 1; wants "
            f"{l2.near_latency_cycles:g}, as near_latency_cycles is: there is no far partition"
        )
    floorplan = Floorplan(device.gpcs, singleton_tpc_sms=device.singleton_tpc_sms, gpc_l2_partition=device.gpc_l2_partition)
    paces = parts["instruction_cache"].loop_fetch_rate_by_tpc
    wanted = [str(tpc) for tpc in range(max(floorplan.tpc_of_sm) + 1)]
    if not set(wanted) <= set(paces) or not all(key.isdecimal() for key in paces):
        raise ConfigError(
            f"{where}: component.instruction_cache.loop_fetch_rate_by_tpc has {', '.join(paces) or 'nothing'}, wants a "
            f"number of each TPC: {', '.join(wanted)}"
        )
    return GpuSpec(name=table["name"], title=table["title"], sources=sources, **parts)


def _refuse_unknown(where: str, prefix: str, section: Mapping[str, Any], known: set[str]) -> None:
    for key in section:
        if key not in known:
            raise ConfigError(f"{where}: {prefix}{key} is unknown; {parameter_hint(key, known)}")


@cache
def _checker(spec: type) -> TypeAdapter[Any]:
    """Validator of a Spec's values; cached, as making one takes longer than reading a description."""
    from pydantic import TypeAdapter  # heavy, so late

    return TypeAdapter(spec)


def _part(where: str, path: str, section: Mapping[str, Any], spec: type, sources: dict[str, str]) -> Any:
    """Frozen Spec of one section; adds its sources to ``sources``."""
    from pydantic import ValidationError  # heavy, so late

    names = {item.name for item in fields(spec)}
    _refuse_unknown(where, f"{path}.", section, names | ({"source"} if path == "device" else NO_NUMBERS))
    for item in fields(spec):
        if item.name not in section and not _may_lack(item, section):
            raise ConfigError(f"{where}: {path}.{item.name} is missing, {path} needs it")
    stated = section.get("source")
    if stated is None:
        raise ConfigError(f"{where}: {path}.source is missing, every number needs a source")
    sourced = [key for key in section if key in names and key != "features"]
    _refuse_unknown(where, f"{path}.source.", stated, set(sourced))
    values = {key: value for key, value in section.items() if key in names}
    for key in sourced:
        source = stated.get(key)
        if not isinstance(source, str) or not source.strip():
            raise ConfigError(f"{where}: {path}.{key} has no source, add {path}.source.{key}")
        prefix, _, words = source.partition(":")
        if not words.strip() or prefix not in SOURCE_CLASSES:
            raise ConfigError(
                f"{where}: {path}.source.{key} is {source!r}, wants a text that begins with one of "
                f"{', '.join(name + ':' for name in SOURCE_CLASSES)} and says more"
            )
        if prefix == "toy" and where != "toy.toml":
            raise ConfigError(f"{where}: {path}.source.{key} is 'toy:', which only toy.toml may say")
        sources[f"{path.rpartition('.')[2]}.{key}"] = source
    for key, value in values.items():
        _check_range(where, f"{path}.{key}", key, value)
    try:
        return _checker(spec).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        wanted = first["msg"].lower().replace("input should be", "wants")
        raise ConfigError(f"{where}: {path}.{key} is {first['input']!r}, {wanted}") from None


def _may_lack(item: Field[Any], section: Mapping[str, Any]) -> bool:
    """Whether a description may leave ``item`` out because of a default. A feature's keys come together or not at all."""
    has_feature = item.name.startswith(OPTIONAL_KEYS) and any(key.startswith(OPTIONAL_KEYS) for key in section)
    return not (has_feature or item.default is item.default_factory is MISSING)


def _check_range(where: str, path: str, key: str, value: Any) -> None:
    """Refuse values that are no numbers, negative numbers, rates of zero and fractions above one."""
    if isinstance(value, Mapping):
        for entry, number in value.items():
            _check_range(where, f"{path}.{entry}", key, number)
    elif isinstance(value, bool) or (isinstance(value, str) and key not in WORDS):
        raise ConfigError(f"{where}: {path} is {value!r}, wants a number")
    elif isinstance(value, int | float):
        if not (-1e16 if path in SIGNED else 0) <= value < 1e16:
            raise ConfigError(f"{where}: {path} is {value}, wants a number from 0 up")
        if not value and (key.startswith(NOT_ZERO) or key.endswith(NOT_ZERO)):
            raise ConfigError(f"{where}: {path} is {value}, wants a number above 0")
        most = MOST_PLACES if key in QUEUES else MOST_PARTS if key.startswith("num_") and key != "num_registers" else value
        if value > most:
            raise ConfigError(f"{where}: {path} is {value:g}, wants a number up to {most:g}")
        if key.endswith("_fraction") and value > 1:
            raise ConfigError(f"{where}: {path} is {value}, wants a fraction from 0 to 1")
