"""How long does a matrix product by TMA and wgmma take, by who loads, who multiplies and how the product leaves?"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import (
    Argument,
    Case,
    Config,
    Input,
    KernelLaunch,
    MappedTensor,
    Outputs,
    Repeated,
    Scratch,
    Windows,
    WrongAnswer,
    by_value,
    load_case,
)
from gpusim.evidence.cases.gemm_case import METRICS, ROUNDING, problem_of
from gpusim.evidence.cases.paths import sass_figures
from gpusim.evidence.cases.validation_kernel import GEMM_LIMITS, SHARED, pattern, validation_case, whole_group
from gpusim.kernel_models.gemm import GemmParams
from gpusim.workload.atoms import wgmma
from gpusim.workload.compiled_code import NO_CODE, CompiledCode
from gpusim.workload.dtypes import BF16, dtype
from gpusim.workload.tma.boxes import TensorMap

types = import_module(load_case("wgmma_rate").launch.__module__)
"""Numbers of a type and how they are rounded, as in kernels/wgmma_rate."""

# ---------------------------------------------------------------------------------------------- entry points

SHORT = {"multistage": "ms", "warp_specialized": "ws", "cooperative": "co", "pingpong": "pp"}
PROGRAMS = {
    "multistage": "kMultistage", "warp_specialized": "kSpecialized", "cooperative": "kSpecialized", "pingpong": "kPingpong",
}  # fmt: skip
PANEL_BYTES = 128
MOST_SMEM_BYTES, ALIGNMENT_BYTES, BARRIER_BYTES, TURN_BYTES = 232448, 1024, 16, 32
"""Of a CTA, as a GEMM's room has them."""
ALONE_BYTES = 115712
"""With more shared memory a CTA is alone on its SM."""
NUM_SMS, WARPGROUP, MOST_STAGES = 132, 128, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What an entry point fixes; ``consumers`` are the warpgroups that multiply."""

    schedule: str
    tile: tuple[int, int, int]
    consumers: int = 1
    cluster: tuple[int, int] = (1, 1)
    depth: int = 1
    setmaxnreg: str = "none"
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        """The entry point's."""
        tile, cluster = ("x".join(map(str, numbers)) for numbers in (self.tile, self.cluster))
        regs = ["regs"] if self.setmaxnreg != "none" else []
        who = f"{SHORT[self.schedule]}{self.consumers}"
        return "_".join([who, tile, f"c{cluster}", f"d{self.depth}", *regs, self.dtype])

    @classmethod
    def named(cls, name: str) -> Entry:
        """The entry point of a name.

        >>> [Entry.named(name) == entry for name, entry in ENTRIES.items()] == [True] * len(ENTRIES)
        True
        """
        who, tile, cluster, depth, *regs, kind = name.split("_")
        m, n, k = (int(text) for text in tile.split("x"))
        along_m, along_n = (int(text) for text in cluster.removeprefix("c").split("x"))
        consumers = int(who[2:])
        return cls(
            schedule={short: schedule for schedule, short in SHORT.items()}[who[:2]], tile=(m, n, k), consumers=consumers,
            cluster=(along_m, along_n), depth=int(depth.removeprefix("d")), dtype=kind,
            setmaxnreg="none" if not regs else OF_THREE if consumers == 3 else ON,
        )  # fmt: skip

    @property
    def num_ranks(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def num_threads(self) -> int:
        """Of a CTA."""
        return (self.consumers + (self.schedule != "multistage")) * WARPGROUP

    @property
    def element_bytes(self) -> int:
        """Of A and B."""
        return dtype(self.dtype).num_bytes

    @property
    def stage_bytes(self) -> int:
        """Of A and B in one stage."""
        return (self.tile[0] + self.tile[1]) * self.tile[2] * self.element_bytes

    @property
    def team_rows(self) -> int:
        """Rows of D that leave together: of all warpgroups, or of one."""
        return self.tile[0] if self.schedule in ("multistage", "pingpong") else self.tile[0] // self.consumers

    @property
    def num_teams(self) -> int:
        """How many such there are."""
        return 1 if self.schedule == "multistage" else self.consumers


def _multistage(m: int, n: int, k: int, consumers: int, depth: int) -> Entry:
    return Entry(schedule="multistage", tile=(m, n, k), consumers=consumers, depth=depth)


ON, OF_THREE = "40/232", "32/160"
ENTRIES: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        _multistage(64, 64, 64, 1, 0), _multistage(64, 128, 64, 1, 1), _multistage(128, 64, 64, 2, 1),
        _multistage(128, 128, 64, 2, 0), _multistage(128, 128, 64, 2, 1), _multistage(128, 128, 128, 2, 0),
        *(Entry(schedule="warp_specialized", tile=tile) for tile in ((64, 64, 64), (64, 128, 64), (128, 128, 64))),
        *(
            Entry(schedule="cooperative", tile=tile, consumers=2, cluster=cluster, setmaxnreg=registers)
            for tile, cluster, registers in (
                ((128, 64, 64), (1, 1), ON), ((128, 128, 64), (1, 1), "none"), ((128, 128, 64), (1, 2), ON),
                ((128, 128, 128), (1, 1), ON), ((128, 256, 64), (1, 1), "none"), ((128, 256, 64), (1, 1), ON),
                ((128, 256, 64), (2, 1), ON), ((128, 256, 64), (1, 2), ON), ((256, 128, 64), (1, 1), ON),
                ((256, 128, 64), (2, 1), ON),
            )
        ),
        *(
            Entry(schedule="cooperative", tile=(192, 192, 64), consumers=3, setmaxnreg=registers)
            for registers in ("none", OF_THREE)
        ),
        *(
            Entry(schedule="pingpong", tile=tile, consumers=2, cluster=cluster, setmaxnreg=registers)
            for tile, cluster, registers in (
                ((64, 128, 64), (1, 1), "none"), ((64, 256, 64), (1, 1), "none"), ((64, 256, 64), (1, 1), ON),
                ((64, 256, 64), (2, 1), ON),
            )
        ),
        *(
            Entry(schedule="cooperative", tile=tile, consumers=2, cluster=cluster, setmaxnreg=ON, dtype="fp8")
            for tile, cluster in (((128, 128, 128), (1, 1)), ((128, 256, 128), (2, 1)))
        ),
    )
}  # fmt: skip
"""By name."""


def includes() -> dict[str, str]:
    """``shapes.inc``: one instruction for each type and width, and the entry points."""
    return {"shapes.inc": shapes(list(ENTRIES.values()))}


def shapes(entries: Sequence[Entry]) -> str:
    """Instructions and entry points as CUDA."""
    used = sorted({(entry.dtype, entry.tile[1]) for entry in entries})
    kinds = sorted({kind for kind, _ in used})
    text = "".join(f"template <int kN>\nstruct {kind};\n" for kind in kinds) + "".join(_struct(*one) for one in used)
    return text + "".join(_kernel(entry) for entry in entries)


def _struct(kind: str, n: int) -> str:
    num, ptx = n // 2, wgmma(n, dtype(kind)).ptx
    sums = ", ".join(f"%{i}" for i in range(num))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(num))
    others = ", 1, 1, 0, 0" if dtype(kind).bits == 16 else ", 1, 1"
    return f"""template <>
struct {kind}<{n}> {{
    static constexpr int kBytes = {dtype(kind).num_bytes};
    static __device__ __forceinline__ void issue(float (&d)[{num}], uint64_t a, uint64_t b, int adds) {{
        asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{num + 2}, 0; {ptx} {{{sums}}}, %{num}, %{num + 1}, p{others}; }}"
                     : {outputs} : "l"(a), "l"(b), "r"(adds));
    }}
}};
"""


def _kernel(entry: Entry) -> str:
    m, n, k = entry.tile
    registers = (0, 0) if entry.setmaxnreg == "none" else tuple(map(int, entry.setmaxnreg.split("/")))
    program = PROGRAMS[entry.schedule]
    numbers = (m, n, k * entry.element_bytes, program, entry.consumers, *entry.cluster, entry.depth, *registers)
    macro = "HOPPER_GEMM" if entry.num_ranks == 1 else "HOPPER_GEMM_CLUSTER"
    return f"{macro}({entry.name}, Shape<{entry.dtype}, {', '.join(map(str, numbers))}>)\n"


# ---------------------------------------------------------------------------------------------- room
def entry_of(config: Config) -> Entry:
    """Its entry point."""
    return Entry.named(config["kernel"])


def slice_of(entry: Entry, num_stages: int, is_persistent: bool) -> int:
    """Columns of D that are staged at once: the most that fit over the drained stages, or beside them."""
    column_bytes = entry.team_rows * entry.num_teams * BF16.num_bytes
    ring, columns = num_stages * entry.stage_bytes, entry.tile[1]
    room = MOST_SMEM_BYTES - ALIGNMENT_BYTES - TURN_BYTES - ring - num_stages * BARRIER_BYTES if is_persistent else ring
    return max((n for n in range(8, columns + 1, 8) if columns % n == 0 and n * column_bytes <= room), default=0)


def staging_bytes(entry: Entry, num_stages: int, is_persistent: bool) -> int:
    """Of the room beside the stages; none where it lies over them."""
    columns = slice_of(entry, num_stages, is_persistent) if is_persistent else 0
    return columns * entry.team_rows * entry.num_teams * BF16.num_bytes


def smem_bytes(entry: Entry, num_stages: int, is_persistent: bool, way: str) -> int:
    """Dynamic shared memory."""
    staging = 0 if way == "direct" else staging_bytes(entry, num_stages, is_persistent)
    return ALIGNMENT_BYTES + num_stages * entry.stage_bytes + staging


def is_possible(entry: Entry, *, stages: int, persistent: bool, epilogue: str, refill: str, split_k: int = 1) -> bool:
    """Whether the kernel can be launched so: rings that hold what is in flight, room, slices that it can stage."""
    ring = stages * (entry.stage_bytes + BARRIER_BYTES)
    least = entry.depth + (2 if refill == "after_math" and entry.depth else 1)
    is_refilled = (refill != "") == (entry.schedule == "multistage")
    if stages < least or not is_refilled or ALIGNMENT_BYTES + TURN_BYTES + ring > MOST_SMEM_BYTES:
        return False
    if persistent and (smem_bytes(entry, stages, True, epilogue) <= ALONE_BYTES or split_k > 1):
        return False
    if entry.schedule == "pingpong" and not persistent:
        return False
    if epilogue == "direct":
        return True
    columns = slice_of(entry, stages, persistent)
    return split_k == 1 and columns > 0 and columns % 64 == 0 and (epilogue != "smem" or columns & columns - 1 == 0)


# ---------------------------------------------------------------------------------------------- configs

COLUMNS = (
    "m", "n", "k", "stages", "refill", "persistent", "raster", "raster_group", "split_k", "split_k_mode", "epilogue",
    "promotion",
)  # fmt: skip

SHAPES = (
    (1024, 1024, 1024), (2048, 2048, 2048), (3072, 3072, 3072), (4096, 4096, 4096),
    (128, 8192, 4096), (8192, 256, 4096), (64, 16384, 2048), (16384, 128, 1024),
    (512, 768, 16384), (1024, 1024, 12288), (2048, 16384, 1024), (8192, 4096, 512),
    (1000, 1000, 1000), (4000, 3000, 2000), (2056, 1544, 4112), (333, 4104, 528), (5000, 5000, 640), (129, 264, 8200),
)  # fmt: skip
"""Squares, few rows or columns, deep and shallow K, edges. TMA wants rows of whole 16 bytes: n and k are multiples of 8."""

DEEP = ((512, 512, 16384), (1024, 1024, 8192), (256, 2048, 8192), (1000, 520, 10000))
"""Few tiles, of which k is parted."""

BEST = ("co2_128x256x64_c2x1_d1_regs_bf16", "co2_256x128x64_c2x1_d1_regs_bf16", "pp2_64x256x64_c2x1_d1_regs_bf16")
OF_PARTS = (
    "ms1_64x64x64_c1x1_d0_bf16", "ms2_128x128x64_c1x1_d1_bf16", "ws1_64x128x64_c1x1_d1_bf16", "ws1_128x128x64_c1x1_d1_bf16",
    "co2_128x128x64_c1x1_d1_bf16", "co2_128x256x64_c1x1_d1_regs_bf16",
)  # fmt: skip
RASTER_GROUPS, SPLITS = (1, 2, 4, 8, 16), (2, 3, 4, 8)
EACH, EACH_WITHOUT_DEPTH, MOST_WITHOUT_DEPTH = 2, 3, 3
"""Drawn configs of an entry point; more of those that leave no group in flight, whose rings are short."""


def config_of(name: str, shape: tuple[int, int, int], **others: object) -> Config:
    """A config as text; what is not said is the usual."""
    usual = {
        **dict(zip("mnk", shape, strict=True)), "stages": 4, "refill": "", "persistent": "yes", "raster": "along_n",
        "raster_group": 8, "split_k": 1, "split_k_mode": "", "epilogue": "tma_store", "promotion": "256B",
    }  # fmt: skip
    return {"kernel": name, **{column: str(value) for column, value in {**usual, **others}.items()}}


def best(seed: int) -> list[Config]:
    """The usual winners at two sizes that a library is measured at, too."""
    del seed
    return [config_of(name, (side,) * 3) for side in (4096, 8192) for name in BEST]


class Evenly:
    """Draws so that all values come about equally often."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._seen: Counter[Any] = Counter()

    def __call__(self, column: str, values: Sequence[Any]) -> Any:
        """One of those that came least often."""
        least = min(self._seen[column, value] for value in values)
        chosen = self._draw.choice([value for value in values if self._seen[column, value] == least])
        self._seen[column, chosen] += 1
        return chosen


def drawn(seed: int) -> list[Config]:
    """Every entry point with shapes and options that the seed draws, each option about equally often."""
    draw = random.Random(f"{seed} hopper_gemm")
    evenly = Evenly(draw)
    entries = [entry for entry in ENTRIES.values() for _ in range(EACH if entry.depth else EACH_WITHOUT_DEPTH)]
    draw.shuffle(entries)
    return [drawn_for(entry, evenly) for entry in entries]


def drawn_for(entry: Entry, evenly: Evenly, *, may_persist: bool = True) -> Config:
    """A config of an entry point. Without ``may_persist`` there is a CTA a tile."""
    shape = evenly("shape", [shape for shape in SHAPES if shape[2] * entry.element_bytes % 16 == 0])
    refills = ("after_math", "after_wait") if entry.schedule == "multistage" else ("",)
    possible = [
        {"stages": stages, "refill": refill, "persistent": is_persistent, "epilogue": epilogue}
        for stages, refill, is_persistent, epilogue in itertools.product(
            range(1, 1 + (MOST_STAGES if entry.depth else MOST_WITHOUT_DEPTH)), refills, (False, True)[: 1 + may_persist],
            WAYS,
        )
        if is_possible(entry, stages=stages, refill=refill, persistent=is_persistent, epilogue=epilogue)
    ]
    for column in ("epilogue", "stages", "persistent", "refill"):
        chosen = evenly(f"{entry.schedule} {entry.depth} {column}", sorted({option[column] for option in possible}))
        possible = [option for option in possible if option[column] == chosen]
    option = {**possible[0], "persistent": "yes" if possible[0]["persistent"] else "no"}
    return config_of(
        entry.name, shape, raster=evenly("raster", ("along_n", "along_m")), raster_group=evenly("group", RASTER_GROUPS),
        promotion=evenly("promotion", ("128B", "256B")), **option,
    )  # fmt: skip


def parts(seed: int) -> list[Config]:
    """Parts of k, added up in the kernel or by a second one."""
    draw = random.Random(f"{seed} hopper_gemm parts")
    evenly = Evenly(draw)
    found = []
    for name, mode in itertools.product(OF_PARTS, ("in_kernel", "second_kernel")):
        entry = ENTRIES[name]
        refill = "after_wait" if entry.schedule == "multistage" else ""
        stages = [
            n for n in range(1, 1 + MOST_STAGES)
            if is_possible(entry, stages=n, refill=refill, persistent=False, epilogue="direct", split_k=2)
        ]  # fmt: skip
        found.append(
            config_of(
                name, evenly("shape", DEEP), stages=evenly("stages", stages), refill=refill, persistent="no",
                epilogue="direct", raster_group=evenly("group", RASTER_GROUPS), split_k=evenly("split", SPLITS),
                split_k_mode=mode,
            )
        )  # fmt: skip
    return found


def options(config: Config) -> Mapping[str, Any]:
    """The same kernel to the model."""
    return {**options_without_code(config), "compiled_code": code_of(config)}


def options_without_code(config: Config) -> dict[str, Any]:
    """Options of the GEMM model, without what the compiler made of the kernel."""
    entry = entry_of(config)
    found: dict[str, Any] = {
        **{name: int(config[name]) for name in "mnk"}, "dtype": entry.dtype, "layout": "tn", "tile": entry.tile,
        "stages": int(config["stages"]), "copy": "tma", "math": "wgmma", "schedule": entry.schedule,
        "consumer_warpgroups": entry.consumers, "cluster": entry.cluster, "persistent": config["persistent"] == "yes",
        "raster": config["raster"], "swizzle_size": int(config["raster_group"]), "split_k": int(config["split_k"]),
        "swizzle": "128B", "epilogue": config["epilogue"], "setmaxnreg": entry.setmaxnreg, "wgmma_depth": entry.depth,
        "l2_promotion": int(config["promotion"].removesuffix("B")),
    }  # fmt: skip
    if entry.schedule != "pingpong":
        found["consumer_split"] = "m"
    if config["refill"]:
        found |= GemmParams.in_our_words({"refill": config["refill"]})  # the column has the names of an earlier release
    if config["refill"] == "after_wait":
        found["cta_barrier"] = "before_mma"
    if config["split_k_mode"]:
        found["split_k_mode"] = config["split_k_mode"]
    return found


SASS = sass_figures("hopper_gemm")
"""Tables of ``sass.toml``, with their sources."""
REGISTERS, CODE, SETUP, PLACES = (SASS[name] for name in ("registers", "code", "setup", "places"))
LIMITED = {384: 168, 512: 128}
"""Registers of a thread with setmaxnreg, by threads of a CTA: the most that all its warps can have."""
STAGED_CODE = {"smem": (435, 266), "tma_store": (345, 140)}
STAGED_WIDE = {"smem": 4, "tma_store": 0}
"""Cycles of an epilogue through shared memory, as in ``sass.toml``, and more for each 64 columns and rows of a warpgroup.

Source: SASS of ``ws1_64x64x64`` and ``ws1_64x128x64``, whose tiles leave as one slice: the line through both."""


MODES_OF_CODE = {"in_kernel": {"last_part": "last_part"}, "second_kernel": {"epilogue": "store"}}
"""Parts of a code's layout by split-K mode, with their names in ``sass.toml``."""


def code_of(config: Config) -> CompiledCode:
    """Figures of an entry point in ``sass.toml``."""
    entry, epilogue = entry_of(config), config["epilogue"]
    code = CODE[entry.name]
    rows = entry.tile[0] if entry.schedule == "pingpong" else entry.tile[0] // entry.consumers
    panels = (entry.tile[1] // 64) * (rows // 64)
    base, each = STAGED_CODE.get(epilogue, (code["store"], 0))
    places = PLACES.get(entry.name, {})
    parts = {"producer": "producer", **MODES_OF_CODE.get(config["split_k_mode"], {})} if places else {}
    return NO_CODE.replaced(
        source="sass", origin=entry.name, registers=registers_of(entry), mainloop={"chain_cycles": code["step"]},
        producer={"chain_cycles": code["copy"]}, prologue={"chain_cycles": SETUP[entry.name]},
        tile_scheduler={
            "chain_cycles": code["tile"], "chain_during_wgmma_cycles": code["tile_beside"],
            "chain_after_turn_cycles": code["turn"], "imad_wide": code["tile_wide"],
        },
        epilogue={
            "chain_cycles": base + each * panels, "chain_during_wgmma_cycles": 0 if each else code["store_beside"],
            "imad_wide": STAGED_WIDE[epilogue] * panels if each else code["store_wide"],
        },
        layout={part: (places[f"{name}_begin"], places[f"{name}_end"]) for part, name in parts.items()},
    )  # fmt: skip


def registers_of(entry: Entry) -> int:
    """What a thread is launched with."""
    return LIMITED[entry.num_threads] if entry.setmaxnreg != "none" else REGISTERS[entry.name]


# ---------------------------------------------------------------------------------------------- launch
@cache
def fp8_pattern(seed: int) -> NDArray[np.uint8]:
    """Normal numbers as e4m3, some 8 MiB that cannot be written to; rows of two powers of two never begin alike."""
    drawn = np.random.default_rng(seed).standard_normal(2**23 - 48, dtype=np.float32)
    made: NDArray[np.uint8] = types.encode(drawn, "fp8")
    made.setflags(write=False)
    return made


def operands(config: Config) -> tuple[Repeated, Repeated]:
    """A and B."""
    entry, k = entry_of(config), int(config["k"])
    made = [fp8_pattern(seed) if entry.dtype == "fp8" else pattern("bf16", seed) for seed in (0, 1)]
    a, b = (Repeated(array, int(config[side]) * k * entry.element_bytes) for array, side in zip(made, "mn", strict=True))
    return a, b


MOST_FLOPS = 2e9
"""Of a reference."""
ROW_STEP = 16


@cache
def _sample(m: int, n: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of D that are checked: all of a small product, else some of every 16 rows, and of more columns."""
    if 2.0 * m * n * k <= MOST_FLOPS:
        return np.arange(m), np.arange(n)
    rows = _one_of_each(m, ROW_STEP)
    step = max(8, 2 ** math.ceil(math.log2(2.0 * len(rows) * n * k / MOST_FLOPS)))
    return rows, _one_of_each(n, step)


def _one_of_each(extent: int, step: int) -> NDArray[np.int64]:
    starts = np.arange(0, extent, step)
    found = starts + np.random.default_rng(extent).integers(0, np.minimum(step, extent - starts))
    return np.unique(np.concatenate([[0], found, [extent - 1]]))


def product_of(config: Config) -> Windows:
    """D, of which whole rows come back."""
    m, n, k = (int(config[name]) for name in "mnk")
    row_bytes = n * BF16.num_bytes
    return Windows("d", m * row_bytes, tuple((int(row) * row_bytes, row_bytes) for row in _sample(m, n, k)[0]))


def operand_map(config: Config, side: str) -> TensorMap:
    """Boxes of 128 bytes of k by what a CTA brings of the rows."""
    entry, k, rows = entry_of(config), int(config["k"]), int(config[side])
    is_b = side == "n"
    return TensorMap(
        dtype=dtype(entry.dtype), global_dim=(k, rows), global_strides_bytes=(k * entry.element_bytes,),
        box_dim=(PANEL_BYTES // entry.element_bytes, entry.tile[is_b] // entry.cluster[1 - is_b]),
        swizzle="128B", l2_promotion=config["promotion"],
    )  # fmt: skip


def product_map(config: Config) -> TensorMap:
    """Boxes of 128 bytes of n by the rows that leave together."""
    m, n = int(config["m"]), int(config["n"])
    box = PANEL_BYTES // BF16.num_bytes, entry_of(config).team_rows
    return TensorMap(
        dtype=BF16, global_dim=(n, m), global_strides_bytes=(n * BF16.num_bytes,), box_dim=box, swizzle="128B",
        l2_promotion=config["promotion"],
    )  # fmt: skip


def tiles_of(config: Config) -> tuple[int, int]:
    """Tiles along m and n, rounded up to whole clusters."""
    entry = entry_of(config)
    sides = zip("mn", entry.tile, entry.cluster, strict=False)
    m, n = (math.ceil(int(config[side]) / (rows * ranks)) * ranks for side, rows, ranks in sides)
    return m, n


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """A CTA for each tile and part of k, or one on every SM."""
    del is_counted
    entry = entry_of(config)
    m, n, k, stages = (int(config[name]) for name in ("m", "n", "k", "stages"))
    num_parts, is_persistent, epilogue = int(config["split_k"]), config["persistent"] == "yes", config["epilogue"]
    way = WAYS.index(epilogue)
    num_m, num_n = tiles_of(config)
    num_tiles = num_m * num_n * num_parts
    mode = MODES.index(config["split_k_mode"])
    plan = np.array(
        [
            m, n, num_m, num_n, num_tiles, math.ceil(k / entry.tile[2]), num_parts, mode, stages,
            config["refill"] == "after_wait", config["raster"] == "along_n", int(config["raster_group"]), way,
            slice_of(entry, stages, is_persistent), stages * entry.stage_bytes if is_persistent else 0,
            not is_persistent and way > 0,
        ],
        dtype="<u4",
    )  # fmt: skip
    a, b = (MappedTensor(operand, operand_map(config, side)) for operand, side in zip(operands(config), "mn", strict=True))
    product, unused = product_of(config), Scratch("unused", 16)
    by_tma = epilogue == "tma_store"
    map_d: Argument = MappedTensor(product, product_map(config)) if by_tma else Input(NO_MAP)
    d: Argument = unused if by_tma or mode == MODES.index("second_kernel") else product
    room = (unused, Scratch("sums", m * n * 4), Scratch("parts", num_parts * m * n * 4))[mode]
    counters = Scratch("counters", num_m * num_n * entry.num_teams * 4) if mode == 1 else unused
    main = KernelLaunch(
        kernel=entry.name, arguments=(by_value(plan), a, b, map_d, d, room, counters),
        grid=(min(num_tiles, NUM_SMS) if is_persistent else num_tiles, 1, 1), block=(entry.num_threads, 1, 1),
        smem_bytes=smem_bytes(entry, stages, is_persistent, epilogue),
    )  # fmt: skip
    if config["split_k_mode"] != "second_kernel":
        return main
    num_vectors = m * n // 4
    adding = KernelLaunch(
        kernel="add_parts", arguments=(room, product, np.uint32(num_vectors), np.uint32(num_parts)),
        grid=(math.ceil(num_vectors / 256), 1, 1), block=(256, 1, 1),
    )  # fmt: skip
    return replace(main, following=(adding,))


WAYS, MODES = ("direct", "smem", "tma_store"), ("", "in_kernel", "second_kernel")
"""As the kernel counts them."""
NO_MAP = np.zeros(128, dtype=np.uint8)
NO_MAP.setflags(write=False)


# ---------------------------------------------------------------------------------------------- check
@cache
def reference(m: int, n: int, k: int, kind: str) -> NDArray[np.float64]:
    """The sampled elements of D, in float64 from the very bytes."""
    rows, columns = _sample(m, n, k)
    a, b = (
        Repeated(fp8_pattern(seed) if kind == "fp8" else pattern("bf16", seed), extent * k * dtype(kind).num_bytes)
        for seed, extent in ((0, m), (1, n))
    )
    found: NDArray[np.float64] = _numbers(a, rows, k, kind) @ _numbers(b, columns, k, kind).T
    return found


def _numbers(operand: Repeated, rows: NDArray[np.int64], k: int, kind: str) -> NDArray[np.float64]:
    row_bytes = k * dtype(kind).num_bytes
    raw = np.stack([operand.window(int(row) * row_bytes, row_bytes) for row in rows])
    made: NDArray[np.float64] = types.decode(raw if kind == "fp8" else raw.view("<u2"), kind)
    return made


def allowed(config: Config, exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far off an element may be: rounded to bf16, summed up in fp32; sums of fp8 keep some 13 bits."""
    k = int(config["k"])
    spare = 0.25 * math.sqrt(k) * ROUNDING
    if entry_of(config).dtype == "fp8":
        spare += k / 32 * 2.0**-13 * math.sqrt(k)
    return ROUNDING * np.abs(exact) + spare


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """The largest error of the sample, in units of what may be; of the sampled rows all is written.

    Raises:
        WrongAnswer: an element that was not written, or is further off than rounding explains.
    """
    m, n, k = (int(config[name]) for name in "mnk")
    rows, columns = _sample(m, n, k)
    found = types.decode(outputs["d"].view("<u2"), "bf16").reshape(len(rows), n)
    if not np.isfinite(found).all():
        row, column = np.argwhere(~np.isfinite(found))[0]
        num = np.count_nonzero(~np.isfinite(found))
        raise WrongAnswer(f"{num} of {found.size} elements were not written, the first at row {rows[row]}, column {column}")
    exact = reference(m, n, k, entry_of(config).dtype)
    share = np.abs(found[:, columns] - exact) / allowed(config, exact)
    if share.max() > 1.0:
        row, column = np.unravel_index(share.argmax(), share.shape)
        raise WrongAnswer(
            f"{np.count_nonzero(share > 1.0)} of {share.size} elements are off, one by {share.max():.1f} times "
            f"what rounding explains: row {rows[row]}, column {columns[column]}"
        )
    return {"error_share": float(share.max())}


# ---------------------------------------------------------------------------------------------- the case

COUNTED = (
    *METRICS,
    "smsp__inst_executed.sum",
    SHARED,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
    "sm__inst_executed_op_shared_stsm.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "smsp__inst_executed_op_tma_ld.sum",
    "smsp__inst_executed_op_tma_st.sum",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sectors_op_atom.sum",
    "launch__occupancy_limit_blocks",
)

HOPPER = (9, 0)


def group(configs: Callable[[int], list[Config]]) -> Any:
    """Group of GEMMs: counted with caches flushed, and timed in both protocols."""
    return whole_group(configs, metrics=COUNTED, least_capability=HOPPER)


def families(group: str, config: Config) -> tuple[str, ...]:
    """By type, parts of K, and then by schedule; across them all with clusters, and all that are persistent."""
    entry = entry_of(config)
    own = "fp8" if entry.dtype == "fp8" else "split_k" if group == "parts" else entry.schedule
    cuts = [*(["clusters"] if entry.num_ranks > 1 else []), *(["persistent"] if config["persistent"] == "yes" else [])]
    return (f"hopper_gemm {own}", *(f"hopper_gemm, {cut}" for cut in cuts))


CASE = replace(
    validation_case(
        Case(
            name="hopper_gemm",
            question=__doc__,
            columns=COLUMNS,
            groups={"best": group(best), "drawn": group(drawn), "parts": group(parts)},
            launch=launch,
            check=check,
            values={"error_share": "largest error of the sample, of what rounding allows"},
            limits=GEMM_LIMITS,
            families=families,
            problem=lambda config: problem_of(config, entry_of(config).dtype),
            includes=includes,
            checks_counted=False,
        ),
        model="gemm",
        options=options,
    ),
    followers=("add_parts",),
)
