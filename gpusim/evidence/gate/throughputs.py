"""Shares of peaks of SMs, L1 and L2 under Nsight Compute's names. Each is the largest of its parts.

In: a result, its counts under Nsight Compute's names, and the GPU. Out: shares in percent of the elapsed cycles.

Models:

* of an SM: issue slots, memory instructions, registers that stores read, tensor and FMA pipes
* of L1: its port of requests to L2, and the data stage of loads and stores
* of L2: sectors and look-ups of its tag stage, its ports from and to SMs, and the link between its partitions

Ignores:

* further parts (:data:`NO_RULE`), of which XU is the largest for softmax, and the tag stage of L1 for scattered stores
* loads of parts of lines, which take a request for each line: rows of 64 bytes by cp.async, rows off lines
* GPUs other than Hopper; L2 of GPUs whose L2 clock is not known

Source: ``scripts/fit_shares.py`` fits the constants to two microbenchmarks. Full kernels judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpusim.evidence.cases.judged_metrics import CYCLES, SHARED, THREAD_NUMBERS
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

if TYPE_CHECKING:
    from gpusim.machine.config import GpuSpec
    from gpusim.simulate.result import Result

ELAPSED = "avg.pct_of_peak_sustained_elapsed"
L2_MHZ: Mapping[str, float] = MappingProxyType({"h200_sxm": 1706.0})
"""Clock of L2 by GPU: median of ``lts__cycles_elapsed.avg.per_second``."""
L2_SLICES: Mapping[str, int] = MappingProxyType({"h200_sxm": 94})
"""Slices that these shares count."""

SECTORS_OF_LINE = LINE_BYTES // SECTOR_BYTES
WIDEST_SECTORS = 16
"""Sectors of a warp's widest contiguous access, 16 bytes a lane. A request for more is scattered: it fills none of them."""
PAIRED_SECTORS = 8
"""Sectors of a load from which two neighbouring lines are one request to L2."""
TMA_LOADS = "_mem_global_op_tma_ld"
LOAD_WAVEFRONTS = 1.2
"""Wavefronts of the data stage for each line that a load misses."""
SECTOR_CYCLES, RETURN_CYCLES, PACKET_CYCLES = 1.0 / 3.0, 0.5, 1.0
"""L2 cycles of a slice. The first is of a sector in the tag stage, the next of one sent to SMs, the last of a stored one."""
LINE_PORT_CYCLES = 0.89
"""L2 cycles of the ports for a loaded line."""
LINK_LOOKUPS = 1.75
"""Look-ups of tags for each line that crosses the link, besides one of each line that SMs ask for or store."""
LINK_LOAD_CYCLES, LINK_STORE_CYCLES, LINK_POWER, LINK_IDLE_FRACTION = 2.3, 2.0, 14.0, 0.85
"""Busy L2 cycles of the link for each crossing sector of loads and of stores while few cross. Exponent of its saturation.
Fraction of the time without CTAs in which it is idle."""

PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "sm": (),
    "l1tex": ("l1tex__m_l1tex2xbar_req_cycles_active", "l1tex__data_pipe_lsu_wavefronts"),
    "lts": ("lts__t_sectors", "lts__t_tag_requests", "lts__lts2xbar_cycles_active", "lts__xbar2lts_cycles_active",
            "lts__ltcfabric2ltc_cycles_active"),
})
"""Parts of each unit that are predicted under their names."""
NO_RULE: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "sm": (
        "idc__request_cycles_active", "sm__inst_executed_pipe_adu", "sm__inst_executed_pipe_cbu_pred_on_any",
        "sm__inst_executed_pipe_uniform", "sm__inst_executed_pipe_xu", "sm__mio2rf_writeback_active",
        "sm__pipe_alu_cycles_active", "sm__pipe_fp64_cycles_active", "sm__pipe_tma_cycles_active",
    ),
    "l1tex": (
        "l1tex__data_bank_reads", "l1tex__data_bank_writes", "l1tex__lsu_writeback_active", "l1tex__lsuin_requests",
        "l1tex__m_xbar2l1tex_read_sectors",
    ),
    "lts": ("lts__d_sectors", "lts__d_sectors_fill_device"),
})  # fmt: skip
"""Parts of each unit that no rule predicts. Source: breakdown tables of Nsight Compute 2025.3."""


def without_rule(metrics: Iterable[str]) -> str:
    """Sentence on the parts without a rule, of those ``..._throughput`` that ``metrics`` has; empty without any.

    >>> without_rule([f"lts__throughput.{ELAPSED}"])
    'parts without a rule: of lts__throughput d_sectors, d_sectors_fill_device'
    """
    units = [unit for unit in NO_RULE if any(name.startswith(f"{unit}__throughput.") for name in metrics)]
    parts = [f"of {unit}__throughput {', '.join(name.partition('__')[2] for name in NO_RULE[unit])}" for unit in units]
    return f"parts without a rule: {'; '.join(parts)}" if parts else ""


def with_throughputs(result: Result, gpu: GpuSpec) -> Result:
    """Result with its shares of peaks among the counters; unchanged where it is of several kernels."""
    if not result.simulated_mhz:
        return result
    counters = result.counters
    warps = counters["launch__grid_size"] * counters["launch__block_size"] / WARP_SIZE
    numbers = {**counters, SHARED: counters[SHARED] + THREAD_NUMBERS * warps}
    return replace(result, counters={**counters, **throughputs(result, numbers, gpu)})


def throughputs(result: Result, numbers: Mapping[str, float], gpu: GpuSpec) -> dict[str, float]:
    """Shares of peaks in percent: ``sm__throughput``, ``l1tex__throughput``, ``lts__throughput``, and parts of them.

    Args:
        result: a simulated launch.
        numbers: its counts, with the reads of thread numbers.
        gpu: the GPU that was simulated.
    """
    cycles = numbers[CYCLES]
    if "wgmma" not in gpu.features or not cycles:
        return {}
    found = {
        name: 100.0 * busy / (gpu.num_sms * cycles)
        for name, busy in zip(PARTS["l1tex"], _l1_cycles(result, numbers), strict=True)
    }
    largest = {"sm": _sm_share(result, numbers, gpu.num_sms * cycles)}
    if gpu.base_name in L2_MHZ:
        slice_cycles = L2_SLICES[gpu.base_name] * cycles * L2_MHZ[gpu.base_name] / result.sm_clock_mhz
        found |= zip(PARTS["lts"], _l2_shares(numbers, slice_cycles), strict=True)
    largest |= {unit: max(found[name] for name in PARTS[unit]) for unit in ("l1tex", "lts") if PARTS[unit][0] in found}
    found |= {f"{unit}__throughput": share for unit, share in largest.items()}
    return {f"{name}.{ELAPSED}": min(100.0, share) for name, share in found.items()}


def _accesses(numbers: Mapping[str, float], way: str) -> tuple[float, float]:
    """(warp instructions, sectors) of global loads (``ld``) or stores (``st``)."""
    requests, sectors = (numbers[f"l1tex__t_{what}_pipe_lsu_mem_global_op_{way}.sum"] for what in ("requests", "sectors"))
    return requests, sectors


def _is_scattered(requests: float, sectors: float) -> bool:
    """Whether a warp's access has more sectors than its lanes can fill."""
    return sectors > WIDEST_SECTORS * requests


def _sm_share(result: Result, numbers: Mapping[str, float], sm_cycles: float) -> float:
    """Largest of the parts of SMs in percent.

    A memory instruction takes a cycle. A store reads its data at a register a cycle, up to four a lane.
    """
    stores, sectors = _accesses(numbers, "st")
    width = 1.0 if _is_scattered(stores, sectors) or not stores else max(1.0, sectors / stores / SECTORS_OF_LINE)
    shared = ("smsp__inst_executed_op_shared_ld", "smsp__inst_executed_op_shared_st", "smsp__inst_executed_op_ldsm",
              "sm__inst_executed_op_shared_stsm")
    issued = _accesses(numbers, "ld")[0] + stores + sum(numbers[f"{name}.sum"] for name in shared)
    issued += numbers[SHARED] - result.counters[SHARED]  # reads of thread numbers
    of_sms = max(result.busy.get(part, 0.0) for part in ("issue", "tensor", "fma"))
    return 100.0 * max(of_sms, issued / sm_cycles, stores * width / sm_cycles)


def _l1_cycles(result: Result, numbers: Mapping[str, float]) -> tuple[float, float]:
    """Cycles of the port of requests, and wavefronts of the data stage.

    The port sends a stored sector in a cycle, one that is not filled in two, and the request for a line in one. Two
    neighbouring lines of a wide load are one request, but not of cp.async, whose tiles have rows of a line. The data stage
    takes a wavefront for each stored line, and none for a cp.async that bypasses L1.
    """
    loads, loaded = _accesses(numbers, "ld")
    stores, stored = _accesses(numbers, "st")
    written = numbers["lts__t_sectors_srcunit_tex_op_write.sum"]
    got, by_tma = (numbers[f"l1tex__m_xbar2l1tex_read_bytes{of}.sum"] / SECTOR_BYTES for of in ("", TMA_LOADS))
    is_scattered = _is_scattered(stores, stored)
    lines = max(loads, loaded / SECTORS_OF_LINE)
    missed = lines * min(1.0, (got - by_tma) / loaded) if loaded else 0.0
    is_by_cp_async = result.fill_wavefronts > 0.0
    asked = missed if is_by_cp_async or loaded < PAIRED_SECTORS * loads else missed / 2.0
    stored_lines = stored if is_scattered else max(stores, stored / SECTORS_OF_LINE)
    port = written * (2.0 if is_scattered else 1.0) + asked + by_tma / SECTORS_OF_LINE
    of_loads = 0.0 if is_by_cp_async else LOAD_WAVEFRONTS * missed + (lines - missed)
    return port, numbers[SHARED] + of_loads + stored_lines


def saturated(load: Any, power: float) -> Any:
    """Share of the time in which a part is busy that ``load`` would keep busy for that multiple of the time."""
    return load / (1.0 + load**power) ** (1.0 / power)


def _l2_shares(numbers: Mapping[str, float], slice_cycles: float) -> tuple[float, ...]:
    """Shares of the parts of L2 in percent, in the order of :data:`PARTS`.

    Accesses are full lines, or scattered sectors. The link is busy longer for each sector while few cross. Near its peak
    it saturates.
    """
    read, written = (numbers[f"lts__t_sectors_srcunit_tex_op_{way}.sum"] for way in ("read", "write"))
    crossing = numbers["lts__t_sectors_srcunit_ltcfabric.sum"]
    is_scattered = _is_scattered(*_accesses(numbers, "st"))
    lines, stored = read / SECTORS_OF_LINE, written if is_scattered else written / SECTORS_OF_LINE
    ports = PACKET_CYCLES * written * (2.0 if is_scattered else 1.0) + LINE_PORT_CYCLES * lines
    lookups = lines + stored + LINK_LOOKUPS * crossing / SECTORS_OF_LINE
    idle = max(0.0, 1.0 - numbers["sm__cycles_active.avg"] / numbers[CYCLES])
    window = 1.0 - LINK_IDLE_FRACTION * idle
    of_stores = written / ((read + written) or 1.0)
    sector = LINK_LOAD_CYCLES * (1.0 - of_stores) + LINK_STORE_CYCLES * of_stores
    load = sector * crossing / (slice_cycles * window)
    link = window * saturated(load, LINK_POWER)
    cycles = (SECTOR_CYCLES * (read + written + crossing), lookups, RETURN_CYCLES * read, ports)
    return (*(100.0 * busy / slice_cycles for busy in cycles), 100.0 * link)
