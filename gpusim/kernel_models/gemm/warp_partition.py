"""Partition of a tile among math warps, and the check that the parts suit instructions and registers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpusim.errors import KernelError, nearest_multiple
from gpusim.kernel_models.gemm.advice import TileRefused
from gpusim.kernel_models.gemm.options import GemmOptions
from gpusim.kernel_models.gemm.registers import RegisterNeed, most_accumulators, register_need, widest_wgmma_n
from gpusim.kernel_models.registers import launch_limit
from gpusim.workload.atoms import MmaAtom, legal_wgmma_n, wgmma

PRODUCER_WARPS = 4
"""Warps of the producer: a warpgroup, because setmaxnreg requires one, of which one thread works."""

TEAM_WARPS = 4
"""Warps of a warp group: one of each sub-core."""

UNITS = {"mma_sync": (16, 8), "fma": (16, 32)}
"""(rows, columns) that a warp's part is a multiple of; fma: 4 x 8 lanes with vectors of 4 along both."""


@dataclass(frozen=True)
class Shares:
    """Partition of a tile in a kernel whose tile, math, schedule and consumers (or warps) are known."""

    params: GemmOptions

    @property
    def tile(self) -> tuple[int, int, int]:
        """CTA tile M, N, K."""
        assert self.params.tile is not None  # resolved
        return self.params.tile

    @property
    def ways(self) -> tuple[int, int]:
        """Number of parts of the tile along M and N."""
        params = self.params
        if params.math != "wgmma":
            assert params.warps is not None  # resolved
            return params.warps
        assert params.consumer_warpgroups is not None  # resolved
        if params.schedule == "pingpong":
            return 1, 1
        return (params.consumer_warpgroups, 1) if params.consumer_split != "n" else (1, params.consumer_warpgroups)

    @property
    def share(self) -> tuple[int, int]:
        """Rows and columns of the part of a consumer warpgroup, or of a warp."""
        return self.tile[0] // self.ways[0], self.tile[1] // self.ways[1]

    @property
    def num_math_warps(self) -> int:
        """Number of warps that execute MMAs or FFMA."""
        params = self.params
        if params.math == "wgmma":
            assert params.consumer_warpgroups is not None  # resolved
            return 4 * params.consumer_warpgroups
        return self.ways[0] * self.ways[1]

    @property
    def num_warps(self) -> int:
        """Number of warps of the CTA."""
        return self.num_math_warps + (PRODUCER_WARPS if self.params.is_specialized else 0)

    @property
    def teams(self) -> tuple[int, int]:
        """Parts along M and N of the warps of mma.sync: independent warp groups, each with one warp of each sub-core.

        One group loads or copies while another executes MMAs. (1, 1) if the warps cannot be divided in this way. Also (1, 1)
        for split-K, whose parts are counted by a single thread.
        """
        params, (num, rest) = self.params, divmod(self.num_math_warps, TEAM_WARPS)
        if params.math != "mma_sync" or params.split_k > 1:
            return 1, 1
        if rest or self.tile[0] % (16 * num):
            return 1, 1
        return (1, num) if self.ways[1] % num == 0 else (num, 1) if self.ways[0] % num == 0 else (1, 1)

    @property
    def num_teams(self) -> int:
        """Number of independent warp groups."""
        return self.teams[0] * self.teams[1]

    # -------------------------------------------------------------------------------------- registers

    @property
    def accumulators(self) -> int:
        """Number of 32-bit accumulators of a math thread."""
        rows, columns = self.share
        return rows * columns // (128 if self.params.math == "wgmma" else 32)

    @property
    def fragments(self) -> int:
        """Registers of a thread's fragments, for one or two slices; 0 for wgmma, which reads shared memory."""
        rows, columns = self.share
        ways = 1 if self.params.register_stages == 1 else 2
        if self.params.math == "wgmma":
            return 0
        if self.params.math == "mma_sync":
            return ways * (rows // 16 * 4 + columns // 8 * 2)
        return ways * (rows // 4 + columns // 8)

    @property
    def need(self) -> RegisterNeed:
        """Registers that a math thread needs."""
        params = self.params
        assert params.math is not None  # resolved
        assert params.schedule is not None
        assert params.copy_ is not None
        num_bytes = (self.tile[0] + self.tile[1]) * self.tile[2] * params.element.num_bytes
        copies = 0 if params.is_specialized else -(-num_bytes // (16 * 32 * self.num_warps))
        return register_need(
            schedule=params.schedule, math=params.math, copy=params.copy_, accumulators=self.accumulators,
            fragments=self.fragments, copies_per_thread=copies,
        )

    @property
    def ceiling(self) -> int:
        """Maximum registers of a math thread: those of setmaxnreg, or the limit of the launch."""
        of_consumer = consumer_registers(self.params)
        return launch_limit(self.num_warps) if of_consumer is None else of_consumer

    @property
    def fits_registers(self) -> bool:
        """Whether ptxas neither spills registers nor serializes wgmma."""
        assert self.params.math is not None  # resolved
        most = most_accumulators(self.need, math=self.params.math, ceiling=self.ceiling)
        if self.params.math == "wgmma" and self.atom_or_none is None:
            return False
        return self.accumulators <= most

    @property
    def atom_or_none(self) -> MmaAtom | None:
        """The widest wgmma that divides a part and for which the launch has registers."""
        widest = widest_wgmma_n(self.num_warps)
        columns, element = self.share[1], self.params.element
        dividing = [n for n in legal_wgmma_n(element) if n <= widest and columns > 0 and columns % n == 0]
        return wgmma(dividing[-1], element) if dividing else None

    @property
    def atom(self) -> MmaAtom:
        """The wgmma of a partition that :func:`check_shares` has accepted."""
        atom = self.atom_or_none
        assert atom is not None  # checked
        return atom

    # -------------------------------------------------------------------------------------- instructions

    @property
    def units(self) -> tuple[int, int]:
        """Rows and columns of which the tile must be a multiple."""
        params = self.params
        ways_m, ways_n = self.ways
        if params.math == "wgmma":
            return 64 * ways_m, min(legal_wgmma_n(params.element)) * ways_n
        assert params.math is not None  # resolved
        rows, columns = UNITS[params.math]
        return rows * ways_m, columns * ways_n

    @property
    def is_divisible(self) -> bool:
        """Whether the tile is a multiple of its instructions."""
        units = self.units
        return all(extent % unit == 0 for extent, unit in zip(self.tile[:2], units, strict=True))


ROUND_N = 32
"""Columns of which a proposed tile is a multiple, if the requested tile was."""


def consumer_registers(params: GemmOptions) -> int | None:
    """Registers per thread that setmaxnreg gives a consumer; None without setmaxnreg."""
    return None if params.setmaxnreg in ("none", "auto") else int(params.setmaxnreg.split("/")[1])


def producer_registers(params: GemmOptions) -> int | None:
    """Registers per thread that setmaxnreg leaves a producer; None without setmaxnreg."""
    return None if params.setmaxnreg in ("none", "auto") else int(params.setmaxnreg.split("/")[0])


def default_setmaxnreg(schedule: str, copy: str, consumers: int) -> str:
    """Default of setmaxnreg. Only several consumers with a TMA producer, which needs few registers, have one."""
    if schedule not in ("cooperative", "pingpong") or copy != "tma":
        return "none"
    return {2: "40/232", 3: "32/160"}.get(consumers, "none")


def check_shares(params: GemmOptions) -> None:
    """Refuse a tile that is no multiple of its instructions, or whose accumulators do not fit.

    Raises:
        TileRefused: proposes a tile that fits.
    """
    shares = Shares(params)
    dealt = _dealt(params, shares)
    tile = "x".join(str(part) for part in shares.tile)
    wanted = nearest_multiple(shares.tile[0], shares.units[0]), nearest_multiple(shares.tile[1], shares.units[1])
    for name, extent, unit in zip("MN", shares.tile, shares.units, strict=False):
        if extent % unit:
            raise TileRefused(
                f"--tile {tile}: {name} is {extent}, {params.math} {dealt} takes multiples of {unit}", kind=KernelError,
                tile=(*wanted, shares.tile[2]), otherwise=_other_split(params),
            )
    if shares.fits_registers:
        return
    need = shares.need
    more = f" under --setmaxnreg {params.setmaxnreg}" if consumer_registers(params) is not None else ""
    others = _other_flags(params)
    raise TileRefused(
        f"--tile {tile}: {params.math} {dealt} needs {need.total} registers a thread ({need.story}), a CTA "
        f"of {shares.num_warps} warps has {shares.ceiling}{more}, so it would spill",
        kind=KernelError, tile=None if others else _fitting_tile(params), otherwise=others,
    )


def _dealt(params: GemmOptions, shares: Shares) -> str:
    if params.math != "wgmma":
        return f"with --warps {shares.ways[0]}x{shares.ways[1]}"
    if params.schedule == "pingpong":
        return "with a whole tile a consumer"
    if params.consumer_warpgroups == 1:
        return "with 1 warpgroup"
    return f"with {params.consumer_warpgroups} warpgroups along {'MN'[params.consumer_split == 'n']}"


def _other_split(params: GemmOptions) -> str:
    """``--consumer-split n`` if the same consumers could divide the other dimension."""
    if params.math != "wgmma" or params.consumer_warpgroups == 1 or params.schedule == "pingpong":
        return ""
    split = "m" if params.consumer_split == "n" else "n"
    other = Shares(params.model_copy(update={"consumer_split": split}))
    return f"--consumer-split {split}" if other.is_divisible and other.fits_registers else ""


def _other_flags(params: GemmOptions) -> str:
    """Flags for other warps or consumers that have enough registers; empty if there are none."""
    for flags, changes in _other_shares(params):
        other = Shares(params.model_copy(update=changes))
        if other.is_divisible and other.fits_registers:
            return flags
    return ""


def _fitting_tile(params: GemmOptions) -> tuple[int, int, int] | None:
    """The nearest smaller tile with enough registers."""
    tile_m, tile_n, tile_k = Shares(params).tile
    unit_m, unit_n = Shares(params).units
    round_n = math.lcm(unit_n, ROUND_N) if tile_n % ROUND_N == 0 else unit_n
    for rows in range(tile_m, 0, -unit_m):
        for columns in (*range(tile_n, 0, -round_n), *range(tile_n, 0, -unit_n)):
            if Shares(params.model_copy(update={"tile": (rows, columns, tile_k)})).fits_registers:
                return rows, columns, tile_k
    return None


def _other_shares(params: GemmOptions) -> Iterator[tuple[str, dict[str, object]]]:
    if params.math != "wgmma":
        for warps in warp_choices(params):
            yield f"--warps {warps[0]}x{warps[1]}", {"warps": warps}
        return
    assert params.copy_ is not None  # resolved
    for schedule in ("cooperative",) if params.is_specialized else ("multistage",):
        named = "" if schedule == params.schedule else f"--schedule {schedule} "
        for consumers in (2, 3):
            for split in ("m", "n"):
                yield f"{named}--consumer-warpgroups {consumers} --consumer-split {split}", {
                    "schedule": schedule, "consumer_warpgroups": consumers, "consumer_split": split,
                    "setmaxnreg": default_setmaxnreg(schedule, params.copy_, consumers),
                }


def warp_choices(params: GemmOptions) -> list[tuple[int, int]]:
    """Warps along M and N that divide the tile, the most usual first: 64x64 a warp, 8x8 a thread of fma."""
    assert params.tile is not None  # set before
    assert params.math is not None
    tile_m, tile_n, _ = params.tile
    rows, columns = UNITS[params.math]
    area = 64 * 64 if params.math == "mma_sync" else 32 * 64
    usual = min(16, max(4, tile_m * tile_n // area))
    stretch = 1.0 if params.math == "mma_sync" else 2.0  # fma: 4 lanes along M, 8 along N
    found = [
        (warps_m, warps_n)
        for warps_m in range(1, 17)
        for warps_n in range(1, 17)
        if warps_m * warps_n <= 16 and tile_m % (rows * warps_m) == 0 and tile_n % (columns * warps_n) == 0
    ]

    def rank(warps: tuple[int, int]) -> tuple[float, float, int]:
        piece_m, piece_n = tile_m / warps[0] * stretch, tile_n / warps[1]
        return abs(warps[0] * warps[1] - usual), max(piece_m / piece_n, piece_n / piece_m), warps[0]

    return sorted(found, key=rank)
