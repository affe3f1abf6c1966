"""How many cycles does an access of a warp take where two counters of wavefronts differ? Wide loads, drawn by a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases import access_patterns as draws
from gpusim.evidence.cases.access_patterns import SMEM_BYTES
from gpusim.evidence.cases.case import Case, Config, Group, KernelLaunch, Output, Outputs, WrongAnswer, by_value
from gpusim.evidence.cases.config_row import ConfigRow
from gpusim.evidence.cases.output_check import wrong_if
from gpusim.machine.config import GpuSpec
from gpusim.workload.smem.access import data_wavefronts, wavefronts

NUM_WARPS, IN_FLIGHT = 4, 8
"""As kernel.cu has them."""
NUM_ROUNDS = 256
NUM_LANES = 32 * NUM_WARPS
BYTES = {"ld_shared_b64": 8, "ld_shared_b128": 16}
FAMILIES: tuple[draws.Draw, ...] = (
    draws.partly_alike, draws.paired, draws.window, draws.phases, draws.broadcast, draws.few_banks,
)  # fmt: skip


@dataclass(frozen=True)
class Row(ConfigRow):
    """One config; addresses of the lanes in bytes."""

    kernel: str
    pattern: int
    family: str
    active: str
    addresses: str


def _config(op: str, idx: int, family: str, addresses: NDArray[np.int64], active: NDArray[np.bool_]) -> Row:
    return Row(op, idx, family, draws.mask_text(active), " ".join(map(str, addresses % SMEM_BYTES)))


def wide(seed: int, count: int = 200) -> list[Row]:
    """``count`` of each width, families in turn; some with lanes switched off."""
    made = []
    for op, size in BYTES.items():
        rng = np.random.default_rng([seed, size])
        for idx in range(count):
            family = FAMILIES[idx % len(FAMILIES)]
            active = draws.mask(rng) if rng.random() < 0.4 else np.ones(32, dtype=bool)
            made.append(_config(op, idx, family.__name__, family(rng, size), active))
    return made


def halves(seed: int, count: int = 200) -> list[Row]:
    """``count`` 16-byte loads with few vectors a half-warp, in banks of their own."""
    rng = np.random.default_rng([seed, 3])
    made = []
    for idx in range(count):
        lower, upper = draws.half(rng), draws.half(rng)
        addresses, active = (np.concatenate(parts) for parts in zip(lower, upper, strict=True))
        made.append(_config("ld_shared_b128", idx, "halves", addresses, active))
    return made


def lanes_of(config: Row) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Addresses int64[32] in bytes, active bool[32]."""
    return np.array(config.addresses.split(), dtype=np.int64), draws.mask_of(config.active)


def launch(config: Row) -> KernelLaunch:
    """Four warps, ``NUM_ROUNDS`` times eight accesses each."""
    addresses, _ = lanes_of(config)
    return KernelLaunch(
        kernel=config.kernel,
        arguments=(
            by_value(addresses.astype("<u4")), np.uint32(int(config.active, 16)), np.uint32(NUM_ROUNDS),
            Output("folds", np.full(NUM_LANES, 0xA5A5A5A5, dtype=np.uint32)),
            Output("times", np.zeros((NUM_LANES, 2), dtype=np.int64)),
        ),
        block=(NUM_LANES, 1, 1), smem_bytes=SMEM_BYTES,
    )  # fmt: skip


def folds(config: Row) -> NDArray[np.uint32]:
    """What every active lane of a warp makes of its eight last loads, uint32[32]."""
    addresses, _ = lanes_of(config)
    places = addresses[:, None] + 4 * np.arange(BYTES[config.kernel] // 4)
    words = ((places.astype(np.uint64) >> 2) * 0x9E3779B1 + 0x7F4A7C15).astype(np.uint32)
    return (np.bitwise_xor.reduce(words, axis=1).astype(np.uint64) * IN_FLIGHT).astype(np.uint32)


def check(config: Row, outputs: Outputs) -> dict[str, float]:
    """Cycles of an access, if every active lane loaded what lies there.

    Raises:
        WrongAnswer: says the first lane that did not, or that the clock did not run.
    """
    _, active = lanes_of(config)
    found = outputs["folds"].reshape(NUM_WARPS, 32)
    wrong = np.argwhere((found != folds(config)) & active)
    if len(wrong):
        raise WrongAnswer(f"lane {wrong[0][1]} of warp {wrong[0][0]} loaded other words than lie there")
    begins, ends = outputs["times"].reshape(NUM_WARPS, 32, 2)[:, active].transpose(2, 0, 1)
    cycles = int(ends.max() - begins.min())
    wrong_if(cycles <= 0, f"the clock says {cycles} cycles")
    each = NUM_ROUNDS * IN_FLIGHT
    own = ends.max(axis=1) - begins.min(axis=1)
    return {"cycles_per_access": cycles / (each * NUM_WARPS)} | {
        f"warp_{warp}_cycles_per_access": float(own[warp] / each) for warp in range(NUM_WARPS)
    }


def predict(config: Row, gpu: GpuSpec) -> dict[str, float]:
    """The data stage's wavefronts at its rate."""
    addresses, active = lanes_of(config)
    num_wavefronts = float(data_wavefronts(config.kernel, addresses, active))
    return {"cycles_per_access": num_wavefronts / gpu.smem.wavefronts_per_cycle}


def derive(row: Config) -> dict[str, float]:
    """Wavefronts as both counters have them."""
    asked = row["kernel"], *lanes_of(Row.of(row))
    return {"num_wavefronts": float(wavefronts(*asked)), "num_data_wavefronts": float(data_wavefronts(*asked))}


CASE = Case(
    name="wavefront_cycles",
    question="How many cycles does an access of a warp to shared memory take where two counters of wavefronts differ?",
    config_type=Row, launch=launch, check=check, num_repeats=3, predict=predict, derive=derive,
    groups={"wide": Group(configs=wide, rank=4), "halves": Group(configs=halves, rank=4)},
    values={"cycles_per_access": "SM cycles of an access of one of four warps, the data stage always busy"}
    | {f"warp_{warp}_cycles_per_access": f"SM cycles of an access, by warp {warp}'s clock" for warp in range(NUM_WARPS)},
    tiers={"cycles_per_access": 4},
)  # fmt: skip
