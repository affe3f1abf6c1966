"""Models of published microbenchmarks: one function for each kind of number.

Most run the model of a measuring kernel (``kernels/<name>/case.py``) with a config that measures the published quantity. The
others are programs in ``microbenchmark_programs.py``.

In: a row's parameters, a GPU. Out: the simulated number, in the unit of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import kernel_path, load_case
from gpusim.evidence.validate import microbenchmark_programs as own
from gpusim.evidence.validate.microbenchmark_programs import At, Params
from gpusim.kernel_models.elementwise import ElementwiseParams
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.units import LINE_BYTES, WARP_SIZE, WAVEFRONT_BYTES
from gpusim.workload.atoms.mma import MMA_ATOMS

Ask = Callable[[Params, GpuSpec], float | At]
"""Function from parameters and a GPU to the answer; a plain number is at the GPU's highest clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of published number.

    Args:
        unit: unit of the answer of ``ask``: ``cycles``, ``B/cycle`` (of the GPU), or a unit that is not converted.
        parameters: names of all parameters that a row states.
        ask: the simulator's answer; None where there is none, and every such row states why.
    """

    unit: str
    parameters: tuple[str, ...] = ()
    ask: Ask | None = None


# ---------------------------------------------------------------------------------------------- models of kernels
def answer(
    case_name: str, group: str, name: str, gpu: GpuSpec, wanted: Params, *, changed: Params = MappingProxyType({})
) -> float:
    """``name`` as a kernel's model predicts it for the first config of ``group`` that matches ``wanted``, with ``changed``.

    Raises:
        ConfigError: there is no such config, or the model has no such answer for this GPU.
    """
    case = load_case(case_name)
    match = next((config for config in case.configs(group, 1) if wanted.items() <= config.items()), None)
    if match is None:
        options = ", ".join(f"{key} {value}" for key, value in wanted.items())
        raise ConfigError(f"{kernel_path(case_name)} has no config with {options}")
    predicted = case.predict({**match, **changed}, gpu)
    if name not in predicted:
        raise ConfigError(f"the model of {kernel_path(case_name)} has no {name} for {gpu.name}")
    return predicted[name]


def _shared_chain(op: str, ways: str, gpu: GpuSpec) -> float:
    lone = {"num_partitions": "1", "warps_per_partition": "1", "sharing": "bank"}
    wanted = {"question": "chase", "op": op, "ways": ways, **lone}
    for group in load_case("shared_rate").groups:
        configs = load_case("shared_rate").configs(group, 1)
        if any(config["question"] == "chase" and config["op"] == op for config in configs):
            return answer("shared_rate", group, "cycles_per_access", gpu, wanted)
    raise ConfigError(f"kernels/shared_rate has no chain of {op}")


def smem_load_latency(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a load in a dependent chain of 4-byte smem loads, one warp."""
    return _shared_chain("ld_b32", params["ways"], gpu)


def smem_atomic_latency(params: Params, gpu: GpuSpec) -> float:
    """Cycles of an atomic in a dependent chain of smem atomics, one warp."""
    return _shared_chain(f"atom_{params['op']}_b32", "1", gpu)


def ldmatrix_latency(params: Params, gpu: GpuSpec) -> float:
    """Cycles of an ldmatrix in a dependent chain, one warp."""
    return _shared_chain(f"ldmatrix_x{params['matrices']}", "1", gpu)


def smem_read_bandwidth(_: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle and SM of a stream of 4-byte loads by 16 or more warps, free of bank conflicts."""
    for group in load_case("shared_rate").groups:
        for config in load_case("shared_rate").configs(group, 1):
            is_full = config["num_partitions"] == "4" and int(config["warps_per_partition"]) >= 4
            if config["question"] == "stream" and config["op"] == "ld_b32" and config["ways"] == "1" and is_full:
                return WAVEFRONT_BYTES * load_case("shared_rate").predict(config, gpu)["wavefronts_per_cycle"]
    raise ConfigError("kernels/shared_rate has no full stream of ld_b32")


def _math(name: str, metric: str, gpu: GpuSpec, chains: Params) -> float:
    for group in load_case("math_rate").groups:
        if any(config["op"] == name for config in load_case("math_rate").configs(group, 1)):
            return answer("math_rate", group, metric, gpu, {"op": name, **chains})
    raise ConfigError(f"kernels/math_rate has no config of {name}")


ALONE = MappingProxyType({"num_chains": "1", "warps_per_partition": "1", "num_partitions": "1"})
FULL = MappingProxyType({"num_chains": "4", "warps_per_partition": "4", "num_partitions": "4"})


def fma_rate(_: Params, gpu: GpuSpec) -> float:
    """FLOP per cycle of an SM whose FMA pipes are full."""
    return 2 * WARP_SIZE * _math("ffma", "instructions_per_cycle", gpu, FULL)


def _mma_name(params: Params) -> str:
    name = f"mma_sync_{params['shape']}_{params['dtype']}_{params['accumulator']}"
    if name not in MMA_ATOMS:
        raise ConfigError(f"the simulator has no atom {name}")
    return name


def mma_sync_latency(params: Params, gpu: GpuSpec) -> float:
    """Cycles of an mma.sync in a dependent chain, one warp."""
    return _math(_mma_name(params), "cycles_per_step", gpu, ALONE)


def mma_sync_interval(params: Params, gpu: GpuSpec) -> float:
    """Cycles between mma.sync on a full SM sub-partition, of which there are four."""
    return 4.0 / _math(_mma_name(params), "instructions_per_cycle", gpu, FULL)


def mma_sync_rate(params: Params, gpu: GpuSpec) -> float:
    """FLOP per cycle of an SM full of mma.sync."""
    name = _mma_name(params)
    return MMA_ATOMS[name].num_flops * _math(name, "instructions_per_cycle", gpu, FULL)


def wgmma_interval(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a wgmma in a stream of one warpgroup without waits."""
    wanted = {"question": "stream", "source": params["a"], "dtype": params["dtype"], "n": params["n"], "majors": "kk"}
    return answer("wgmma_rate", "every_shape", "cycles_each", gpu, wanted)


def wgmma_interval_waited(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a wgmma in groups, each followed by a wait that leaves some groups in flight."""
    wanted = {"question": "wait", "source": params["a"], "dtype": params["dtype"], "n": params["n"]}
    changed = {"wgmmas_per_group": params["per_group"], "num_pending": params["pending"]}
    for group in load_case("wgmma_rate").groups:
        if any(config["question"] == "wait" for config in load_case("wgmma_rate").configs(group, 1)):
            return answer("wgmma_rate", group, "cycles_each", gpu, wanted, changed=changed)
    raise ConfigError("kernels/wgmma_rate has no config with waits")


def wgmma_group_latency(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a fence, a group, its commit, and the wait for the full group."""
    return int(params["per_group"]) * wgmma_interval_waited({**params, "pending": "0"}, gpu)


def _barrier_slope(probe: str, group: str, gpu: GpuSpec, **wanted: str) -> float:
    """Cycles that one more repetition of ``probe`` takes: slope between rows of 16 and of 8."""
    suffix = f"_c{wanted['cluster']}" if int(wanted.get("cluster", "1")) > 1 else ""
    many, some = (
        answer("barriers", group, "cycles", gpu, {"kernel": f"{probe}_{count}{suffix}", **wanted}) for count in (16, 8)
    )
    return (many - some) / 8.0


def bar_sync(params: Params, gpu: GpuSpec) -> float:
    """Cycles of ``__syncthreads`` in a CTA."""
    return _barrier_slope("bar_sync", "bar", gpu, warps=params["warps"])


def mbarrier_arrive(_: Params, gpu: GpuSpec) -> float:
    """Cycles of an mbarrier arrival by one lane."""
    return _barrier_slope("mbarrier_arrive", "mbarrier", gpu, lanes="1")


def mbarrier_round_trip(_: Params, gpu: GpuSpec) -> float:
    """Cycles of an mbarrier arrival and the wait for the phase that it completes."""
    return _barrier_slope("mbarrier_self", "mbarrier", gpu)


def dsmem_latency(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a load in a dependent chain of loads from another CTA's shared memory."""
    return _barrier_slope("dsmem_chain", "cluster", gpu, cluster=params["cluster"], partner=params["partner"])


def cluster_barrier(params: Params, gpu: GpuSpec) -> float:
    """Cycles of a barrier over a cluster of CTAs of four warps."""
    return _barrier_slope("cluster_barrier", "cluster", gpu, cluster=params["cluster"], warps="4", clusters="1")


def dsmem_read_bandwidth(params: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle and SM that each CTA of a cluster reads from its neighbour while all do."""
    size = params["cluster"]
    wanted = {"kernel": f"dsmem_load_c{size}", "cluster": size, "warps": "32", "only_first": "0", "clusters": "1"}
    many, some = (answer("barriers", "dsmem", "cycles", gpu, {**wanted, "loads": loads}) for loads in ("32", "16"))
    return 16 * WARP_SIZE * 32 * 16 / (many - some)


def tma_multicast_bandwidth(params: Params, gpu: GpuSpec) -> float:
    """Bytes per cycle and SM that each CTA of a cluster receives while each multicasts its part of a slot to all."""
    size, slot = int(params["ctas"]), int(params["slot_bytes"])
    share = slot // size
    wanted = {"kernel": f"multicast_{size}", "num_copies": str(size), "in_flight": "4", "outer": str(share // LINE_BYTES)}
    return share / answer("copy_rate", "multicast", "cycles_per_copy", gpu, wanted)


def repeated_scale(params: Params, gpu: GpuSpec) -> float:
    """Cycles that ``elements`` doubles, scaled to another array, take beyond ``base_elements``.

    Each launch reads what the one before stored, and both arrays are in L2.
    """
    cycles = []
    for name in ("elements", "base_elements"):
        options = {"op": "scale", "elements": 2 * int(params[name]), "vector_bytes": 8, "threads": int(params["threads"])}
        launch = ElementwiseParams.model_validate(options).launch(gpu)
        cycles.append(simulate(launch, gpu, clock="max", l2="stored").cycles)
    return cycles[0] - cycles[1]


# ---------------------------------------------------------------------------------------------- kinds of numbers

_CHASE = ("footprint_kib", "cached", "warmed")
_MMA = ("shape", "dtype", "accumulator")
_READ = ("footprint_kib", "threads", "ctas_per_sm", "access_bytes", "in_flight", "part_kib")
_HBM = ("threads", "ctas_per_sm", "access_bytes")
_TMA = ("box_bytes", "row_bytes", "stages", "ctas_per_sm", "level")
_WGMMA = ("dtype", "n", "a")

CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "cached": ("l1", "l2"), "warmed": ("yes", "no"), "level": tuple(own.L2_OF), "kernel": tuple(own.STREAMS),
    "pattern": ("stride", "block"), "data": ("random", "zeros"), "a": ("ss", "rs"),
})  # fmt: skip
"""Allowed values of parameters that have few."""
NAMES = frozenset({"dtype", "shape", "accumulator", "op", "direction", "order", "how", "addresses"})
"""Parameters whose value is a name; all others are integers."""

KINDS: Mapping[str, Kind] = MappingProxyType({
    **dict.fromkeys(
        ("load_latency_l1", "load_latency_l1_evicted", "load_latency_l2", "load_latency_hbm"),
        Kind(unit="cycles", parameters=_CHASE, ask=own.load_latency),
    ),
    **dict.fromkeys(
        ("load_latency_l2_near", "load_latency_l2_far", "load_latency_hbm_near", "load_latency_hbm_far", "smem_atomic_pair",
         "syncwarp", "shuffle", "threadfence", "grid_sync", "launch_latency"),
        Kind(unit="cycles"),
    ),
    "smem_load_latency": Kind(unit="cycles", parameters=("ways",), ask=smem_load_latency),
    "smem_atomic_latency": Kind(unit="cycles", parameters=("op",), ask=smem_atomic_latency),
    "ldmatrix_latency": Kind(unit="cycles", parameters=("matrices",), ask=ldmatrix_latency),
    "smem_read_bandwidth": Kind(unit="B/cycle/SM", ask=smem_read_bandwidth),
    "l1_read_bandwidth": Kind(unit="B/cycle/SM", parameters=("access_bytes",), ask=own.l1_read_bandwidth),
    "l1_load_cycles": Kind(unit="cycles", parameters=("pattern", "element_bytes", "parameter"), ask=own.l1_load_cycles),
    "alu_latency": Kind(unit="cycles", parameters=("dtype",)),
    "fma_rate": Kind(unit="FLOP/cycle/SM", parameters=("dtype",), ask=fma_rate),
    "mma_sync_latency": Kind(unit="cycles", parameters=_MMA, ask=mma_sync_latency),
    "mma_sync_interval": Kind(unit="cycles", parameters=_MMA, ask=mma_sync_interval),
    "mma_sync_rate": Kind(unit="FLOP/cycle/SM", parameters=_MMA, ask=mma_sync_rate),
    "wgmma_interval": Kind(unit="cycles", parameters=_WGMMA, ask=wgmma_interval),
    "wgmma_interval_waited": Kind(
        unit="cycles", parameters=(*_WGMMA, "per_group", "pending"), ask=wgmma_interval_waited
    ),
    "wgmma_group_latency": Kind(unit="cycles", parameters=(*_WGMMA, "per_group"), ask=wgmma_group_latency),
    "wgmma_interval_contended": Kind(unit="cycles", parameters=_WGMMA),
    "wgmma_rate": Kind(unit="TFLOP/s", parameters=(*_WGMMA, "data"), ask=own.wgmma_rate),
    "l2_read_bandwidth": Kind(unit="B/cycle", parameters=_READ, ask=own.l2_read_bandwidth),
    "sm_read_bandwidth": Kind(unit="B/cycle/SM", parameters=("footprint_kib",), ask=own.sm_read_bandwidth),
    "hbm_read_bandwidth": Kind(unit="B/cycle", parameters=_HBM, ask=own.hbm_read_bandwidth),
    "hbm_write_bandwidth": Kind(unit="B/cycle", parameters=_HBM, ask=own.hbm_write_bandwidth),
    "stream_bandwidth": Kind(unit="B/cycle", parameters=("kernel", "threads"), ask=own.stream_bandwidth),
    "repeated_scale": Kind(unit="cycles", parameters=("threads", "elements", "base_elements"), ask=repeated_scale),
    "tma_latency": Kind(unit="cycles", parameters=("bytes", "row_bytes", "level"), ask=own.tma_latency),
    "tma_ring_interval": Kind(unit="cycles", parameters=("box_bytes", "stages")),
    "tma_read_bandwidth": Kind(unit="B/cycle", parameters=_TMA, ask=own.tma_read_bandwidth),
    "tma_multicast_bandwidth": Kind(unit="B/cycle/SM", parameters=("ctas", "slot_bytes"), ask=tma_multicast_bandwidth),
    "dsmem_latency": Kind(unit="cycles", parameters=("cluster", "partner"), ask=dsmem_latency),
    "dsmem_read_bandwidth": Kind(unit="B/cycle/SM", parameters=("cluster",), ask=dsmem_read_bandwidth),
    "dsmem_pair_bandwidth": Kind(unit="B/cycle/SM", parameters=("cluster", "direction")),
    "bar_sync": Kind(unit="cycles", parameters=("warps",), ask=bar_sync),
    "mbarrier_arrive": Kind(unit="cycles", ask=mbarrier_arrive),
    "mbarrier_round_trip": Kind(unit="cycles", ask=mbarrier_round_trip),
    "mbarrier_round_trip_busy": Kind(unit="cycles", parameters=("warps",)),
    "cluster_barrier": Kind(unit="cycles", parameters=("cluster",), ask=cluster_barrier),
    "flag_hand_over": Kind(unit="cycles", parameters=("order",)),
    "atomic_rate": Kind(unit="Gop/s", parameters=("addresses",)),
    "null_kernel": Kind(unit="cycles", ask=own.null_kernel),
    "launch_interval": Kind(unit="cycles", parameters=("how",)),
    "grid_ramp": Kind(unit="cycles", parameters=("ctas",)),
})  # fmt: skip
"""Kinds of published numbers, by the word in the table's column ``what``."""
