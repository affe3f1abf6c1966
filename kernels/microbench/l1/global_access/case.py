"""Which sectors, tags and wavefronts does one access of one warp to global memory take, cold and in L1?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.access_patterns import LANES, Draw, lane_values, mask_of, mask_text
from gpusim.evidence.cases.case import Case, Group, Input, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.machine.config import GpuSpec
from gpusim.workload.gmem.global_access import tag_hash_of, tag_wavefronts
from gpusim.workload.smem.access import wavefronts

BITS = (8, 16, 32, 64, 128)
LOADS = tuple(f"ld_global_b{bits}" for bits in BITS)
STORES = tuple(f"st_global_b{bits}" for bits in BITS)
OPS = (*LOADS, *STORES)

BUFFER_BYTES = 1 << 20
"""Four times L1: strides of any power of two up to a thirty-second of it are among the patterns."""
STORE_BYTES = 1 << 17

REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
TAGS = "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_{}.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
LOAD_METRICS = (
    REQUESTS.format("ld"), SECTORS.format("ld"), TAGS.format("ld"), "l1tex__t_set_accesses_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_set_conflicts_pipe_lsu_mem_global_op_ld.sum", "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_lgds.sum", "lts__t_sectors_srcunit_tex_op_read.sum",
)  # fmt: skip
STORE_METRICS = (
    REQUESTS.format("st"), SECTORS.format("st"), TAGS.format("st"), "l1tex__t_set_accesses_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_set_conflicts_pipe_lsu_mem_global_op_st.sum", "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_lgds.sum", "lts__t_sectors_srcunit_tex_op_write.sum",
)  # fmt: skip


def _buffer() -> NDArray[np.uint8]:
    words = (np.arange(BUFFER_BYTES // 4, dtype=np.uint64) * 0x9E3779B1 + 0x7F4A7C15).astype("<u4").view(np.uint8)
    words.setflags(write=False)
    return words


BUFFER = _buffer()
"""What loads find: a word of its own at every place; copied to the GPU once."""


# ---------------------------------------------------------------------------------------------- families
def _random(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    span = int(rng.choice([256, 1024, 4096, 32768, STORE_BYTES]))
    return rng.integers(0, span // size, 32) * size


def _strided(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    return LANES * int(rng.integers(0, 66)) * size + int(rng.integers(0, 32)) * size


def _by_line(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """A few lines, each of which several lanes share, with neighbours or scattered."""
    num_lines = int(rng.choice([1, 2, 3, 4, 6, 8, 12, 16]))
    lines = rng.permutation(STORE_BYTES // 128)[:num_lines]
    which = LANES * num_lines // 32 if rng.random() < 0.5 else rng.integers(0, num_lines, 32)
    return lines[which] * 128 + rng.integers(0, 128 // size, 32) * size


def _by_set(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Lines a power of two apart, so that they may share a set; each touched by one lane or several."""
    stride = 128 << int(rng.integers(0, 9))
    num_lines = min(int(rng.choice([2, 4, 8, 16, 32])), BUFFER_BYTES // stride)
    return (LANES * num_lines // 32) * stride + int(rng.integers(0, 128 // size)) * size


def _many_sectors(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Few lines, most of their sectors: the first byte of sector after sector, in order or shuffled."""
    num_lines = int(rng.choice([1, 2, 4, 8]))
    sectors = LANES % (4 * num_lines)
    if rng.random() < 0.5:
        sectors = rng.permutation(sectors)
    return sectors * 32 + int(rng.integers(0, 32 // size)) * size + int(rng.integers(0, 64)) * 1024


def _blocks(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Columns of a matrix: groups of lanes on consecutive elements, a pitch apart that may be odd."""
    width = int(rng.choice([2, 4, 8, 16]))
    pitch = int(rng.choice([128, 160, 256, 1024, 1040, 4096])) // size * size
    return LANES // width * pitch + LANES % width * size


FAMILIES: tuple[Draw, ...] = (_random, _by_line, _strided, _by_set, _many_sectors, _blocks)


def _mask(rng: np.random.Generator) -> NDArray[np.bool_]:
    if rng.random() < 0.6:
        return np.ones(32, dtype=bool)
    kind = rng.integers(3)
    active = rng.random(32) < rng.choice([0.1, 0.3, 0.5, 0.8])
    if kind == 1:
        active = rng.integers(1, 33) > LANES
    elif kind == 2:
        active = (LANES // int(rng.choice([1, 2, 4, 8, 16]))) % 2 == int(rng.integers(2))
    active[int(rng.integers(32))] = True
    return np.asarray(active)


# ---------------------------------------------------------------------------------------------- configs
def access_bytes(kernel: str) -> int:
    """Bytes a lane moves."""
    return int(kernel.removesuffix("_twice").rsplit("_b", 1)[1]) // 8


@dataclass(frozen=True)
class Config(ConfigRow):
    """Columns of one config."""

    kernel: str
    pattern: int
    family: str
    active: str
    addresses: str


def draw(op: str, *, count: int, seed: int) -> list[Config]:
    """``count`` configs of an op, families in turn."""
    rng = np.random.default_rng([seed, OPS.index(op)])
    room = STORE_BYTES if op in STORES else BUFFER_BYTES
    size = access_bytes(op)
    made: list[Config] = []
    for idx in range(count):
        family = FAMILIES[idx % len(FAMILIES)]
        addresses = family(rng, size) % room // size * size
        made.append(Config(
            kernel=op, pattern=idx, family=family.__name__.lstrip("_"), active=mask_text(_mask(rng)),
            addresses=" ".join(map(str, addresses)),
        ))  # fmt: skip
    return made


def configs(ops: Sequence[str], count: int, *, suffix: str = "", every: int = 1) -> Callable[[int], list[Config]]:
    """``count`` configs of each of ``ops``, of which every so manieth, for the kernels with that suffix."""

    def drawn(seed: int) -> list[Config]:
        found = [config for op in ops for config in draw(op, count=count, seed=seed)[::every]]
        return [replace(config, kernel=config.kernel + suffix) for config in found]

    return drawn


def lanes_of(config: Config) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Addresses int64[32] in bytes from the buffer's start, active bool[32]."""
    return np.array(config.addresses.split(), dtype=np.int64), mask_of(config.active)


# ---------------------------------------------------------------------------------------------- launch and check
def launch(config: Config) -> KernelLaunch:
    """The same launch whether it is counted or not."""
    addresses, _ = lanes_of(config)
    stores = config.kernel.startswith("st")
    target = Output("buffer", np.full(STORE_BYTES, 0xA5, dtype=np.uint8)) if stores else Input(BUFFER)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(addresses.astype("<u4")), np.uint32(int(config.active, 16)), np.uint32(0), target,
            Output("out", np.full((32, 16), 0xA5, dtype=np.uint8)),
        ),
        block=(32, 1, 1),
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Refuse wrong data; there are no values."""
    addresses, active = lanes_of(config)
    size, lanes = access_bytes(config.kernel), np.flatnonzero(active)
    if config.kernel.startswith("ld"):
        wanted = np.zeros((32, 16), dtype=np.uint8)
        wanted[lanes, :size] = BUFFER[addresses[lanes, None] + np.arange(size)]
        wrong = np.flatnonzero((outputs["out"] != wanted).any(axis=1))
        if len(wrong):
            raise WrongAnswer(f"lane {wrong[0]} loaded {outputs['out'][wrong[0]].tobytes().hex()}")
        return {}
    values = lane_values()[:, :size]
    untouched = outputs["buffer"].copy()
    for address in np.unique(addresses[lanes]):
        found = outputs["buffer"][address : address + size]
        if not (values[active & (addresses == address)] == found).all(axis=1).any():
            raise WrongAnswer(f"address {address} holds {found.tobytes().hex()}, which no lane on it stored")
        untouched[address : address + size] = 0xA5
    if (untouched != 0xA5).any():
        raise WrongAnswer(f"byte {int(np.argmax(untouched != 0xA5))} was written, and by no lane")
    return {}


def predict(config: Config, gpu: GpuSpec) -> dict[str, float]:
    """Requests, sectors and tag-stage wavefronts; of a load done twice, both times."""
    tags = tag_wavefronts(*lanes_of(config), tag_hash=tag_hash_of(gpu.compute_capability))
    addresses, active = lanes_of(config)
    kind, times = config.kernel[:2], 1 + config.kernel.endswith("_twice")
    sectors = len(np.unique(addresses[active] // 32))
    return {
        REQUESTS.format(kind): float(times), SECTORS.format(kind): float(times * sectors),
        TAGS.format(kind): float(times * int(tags)),
    }  # fmt: skip


def derive(row: Mapping[str, str]) -> dict[str, float]:
    """Of one access: its lines, and the data stage's wavefronts by the plain bank rule."""
    addresses, active = lanes_of(Config.of(row))
    plain = int(wavefronts(f"st_shared_b{8 * access_bytes(row['kernel'])}", addresses, active))
    return {"num_lines": float(len(np.unique(addresses[active] // 128))), "num_plain_wavefronts": float(plain)}


CASE = Case(
    name="global_access",
    question="Which sectors, tags and wavefronts does one access of one warp to global memory take, cold and in L1?",
    config_type=Config,
    groups={
        "load": Group(configs=configs(LOADS[2:], 300), metrics=LOAD_METRICS, rank=3),
        "load_twice": Group(configs=configs(LOADS[2:], 300, suffix="_twice", every=2), metrics=LOAD_METRICS, rank=4),
        "store": Group(configs=configs(STORES, 60), metrics=STORE_METRICS, rank=6),
        "load_narrow": Group(configs=configs(LOADS[:2], 60), metrics=LOAD_METRICS, rank=7),
        "load_narrow_twice": Group(configs=configs(LOADS[:2], 60, suffix="_twice", every=2), metrics=LOAD_METRICS, rank=7),
    },
    launch=launch, check=check, predict=predict,
    tiers={name.format(kind): tier for name, tier in ((REQUESTS, 3), (SECTORS, 3), (TAGS, 3)) for kind in ("ld", "st")},
    derive=derive,
)  # fmt: skip
