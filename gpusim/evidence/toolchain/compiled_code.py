"""Compiled code of a GEMM-like kernel, read from its SASS.

In: a kernel's SASS. Out: :class:`gpusim.workload.compiled_code.CompiledCode`.

Models:

* the main loop: the smallest loop that has the kernel's math and waits or copies
* the producer's loop: the smallest loop with UTMALDG and no math
* the loop over tiles: the smallest loop around the main loop
* paths between them: waits succeed at once, and other branches fall through where the path still arrives

Ignores:

* trip counts of loops, but for loops that store D: these run until all accumulators have been stored
* the latencies of memory and of math, which the kernel's model has

Source: the schedule in control words, as :mod:`gpusim.evidence.toolchain.issue_latency` reads it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpusim.errors import ConfigError, nearest
from gpusim.evidence.toolchain.issue_latency import (
    BESIDE_MMA,
    BESIDE_WGMMA,
    LATENCIES,
    beyond_math,
    is_wide,
    issue_cycles,
    loop_cycles,
    turn,
)
from gpusim.evidence.toolchain.register_banks import bank_reads
from gpusim.evidence.toolchain.sass import TENSOR, WARPGROUP_TENSOR, Instruction, KernelSass, read_sass
from gpusim.evidence.toolchain.sass_paths import (
    Items,
    addresses_of,
    groups_of,
    is_of,
    loop_around,
    main_loop,
    math_of,
    path_to,
)
from gpusim.workload.compiled_code import NO_CODE, CompiledCode

FMA_MODELLED = ("FFMA", "LDS", "LDGSTS")
"""Instructions of a k-step of FFMA that the model has as such."""
MATH = {WARPGROUP_TENSOR: "wgmma", TENSOR: "mma_sync", ("FFMA",): "fma"}
COPIES = {"UTMALDG": "tma", "LDGSTS": "cp_async"}
"""Names that options have for math and copies."""
STAGED = ("STSM", "STS", "UTMASTG", "UBLKCP")
SUMS = ("RED", "REDG", "ATOMG", "ATOM")
EPILOGUES = {"direct": (*STAGED, *SUMS), "smem": ("UTMASTG", *SUMS), "tma_store": ("STG", *SUMS)}
"""Instructions that an epilogue of each kind has not."""
HEAD_CYCLES = 10.0
"""Cycles of a producer's loop head that ``mbarrier.one_lane_try_wait_cycles`` includes. Source: ``kernels/tma_loop``."""
MOST_PATHS = 24
"""Paths that are tried for stores."""
NEAR_BYTES = 66 << 10
"""Bytes of code that a launch brings along. Source: ``kernels/cold_launch``."""


def code_in_file(text: str, *, epilogue: str = "direct") -> CompiledCode:
    """Compiled code of ``FILE[:entry]``; the entry may be left out where a file has one GEMM-like kernel.

    Raises:
        ConfigError: there is no such file or entry, or the kernel is none that can be read.
    """
    name, _, entry = text.partition(":") if not Path(text).is_file() else (text, "", "")
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"--sass {text!r}: {name} is no file, wants a cubin or an executable")
    if path.suffix == ".ncu-rep":
        raise ConfigError(
            f"--sass {text!r}: a report has SASS without the compiler's schedule (control words), wants the cubin; "
            "cuobjdump -xelf all writes those of an executable"
        )
    kernels = read_sass(path)
    if entry and entry not in kernels:
        raise ConfigError(f"--sass {text!r}: {entry} is no kernel of {name}; {nearest(entry, kernels)}")
    if not entry:
        kernels = {name: kernel for name, kernel in kernels.items() if math_of(kernel)} or kernels
        if len(kernels) > 1:
            raise ConfigError(f"--sass {text!r} has {len(kernels)} kernels, wants FILE:ENTRY, as {name}:{min(kernels)}")
        (entry,) = kernels
    return read_compiled_code(kernels[entry], origin=f"{path}:{entry}", epilogue=epilogue)


def read_compiled_code(
    kernel: KernelSass, *, origin: str = "", epilogue: str = "direct", num_slices: int = 1
) -> CompiledCode:
    """Compiled code of a kernel.

    Args:
        kernel: its SASS, with control words.
        origin: what messages call it.
        epilogue: which way D takes, where the kernel has several.
        num_slices: turns of a loop over K-slices inside a k-step, if there is one.

    Raises:
        ConfigError: it has no loop of a GEMM.
    """
    math = math_of(kernel)
    loop = main_loop(kernel, math)
    code = NO_CODE.replaced(
        source="sass", origin=origin or kernel.name, registers=max(24, kernel.num_registers) or None,
        math=MATH[math], copy=next((copy for opcode, copy in COPIES.items() if kernel.select(opcode)), "ldg"),
        mainloop=_mainloop(kernel, loop, math, num_slices),
    )
    if is_of(math, WARPGROUP_TENSOR):
        code = code.replaced(producer={"chain_cycles": _producer_cycles(kernel, loop)})
    tiles = loop_around(kernel, loop)
    begin, end = loop.instructions[0].address, loop.instructions[-1].address
    barriers = [item.address for item in kernel.instructions if item.name in ("BAR", "UCGABAR_WAIT")]
    first = next((address for address in barriers if address < begin), None)
    entry, place = kernel.instructions[0].address, begin
    if tiles is not None:
        entry = tiles.instructions[0].address
    elif first is not None and is_of(math, WARPGROUP_TENSOR):
        entry = first
    if loop.select("UTMALDG"):  # of warps that copy, too: they fill the ring first
        begins = [one.instructions[0].address for one in kernel.loops if one.select("UTMALDG")]
        filling = [address for address in begins if entry < address]
        if not filling:
            raise ConfigError(f"{kernel.name}: no loop issues UTMALDG behind 0x{entry:x}, wants one that fills the ring")
        place = min(filling)
    before = path_to(kernel, entry, place)
    if entry != kernel.instructions[0].address:
        start = kernel.instructions[0].address
        prologue = path_to(kernel, start, entry) if first is None or first >= entry else [
            *path_to(kernel, start, first), *(path_to(kernel, first, entry) if first != entry else ())
        ]  # fmt: skip
        code = code.replaced(prologue={"chain_cycles": round(issue_cycles(prologue))})
    code = code.replaced(tile_scheduler=_scheduler(kernel, before))
    behind_math = max(0.0, code.tile_scheduler.chain_cycles - _cycles(before)) if is_of(math, WARPGROUP_TENSOR) else 0.0
    behind = next(item.address for item in kernel.instructions if item.address > end)
    until = None if tiles is None else tiles.instructions[-1].address
    return code.replaced(
        layout=_layout(kernel),
        epilogue=_epilogue(kernel, behind, until, epilogue, _accumulator_bytes(kernel, loop, math), behind_math),
    )


# -------------------------------------------------------------------------------------- parts
def _mainloop(kernel: KernelSass, loop: KernelSass, math: tuple[str, ...], num_slices: int) -> dict[str, Any]:
    if is_of(math, WARPGROUP_TENSOR):
        copies = loop.select("LDGSTS")
        own = _without_copies(kernel, loop)
        waits = loop.wgmma_wait_depths
        wide = sum(is_wide(item) for item in loop.instructions)
        found: dict[str, Any] = {
            "wgmma_serialized": len(waits) >= len(loop.select(*math)) > 1, "wgmma_depth": waits[0] if waits else None,
            "imad_wide_per_copy": round(wide / len(copies), 2) if copies else 0.0,
        }
        counted = [pair for pair in own if not (copies and _is_address(pair[0]))]
        return {**found, "chain_cycles": round(loop_cycles(counted))}
    items = turn(kernel, loop, num_slices)
    if is_of(math, TENSOR):
        return {"chain_cycles": max(0, round(beyond_math(items, BESIDE_MMA))), **_math_places(loop, math)}
    cycles = loop_cycles(items) - sum(item.name in FMA_MODELLED for item, _ in items)
    return {
        "chain_cycles": max(0, round(cycles)), "instructions": sum(item.name not in FMA_MODELLED for item, _ in items),
        "fma_bank_reads": round(bank_reads(_innermost(kernel, loop).instructions, num_warps=2), 2),
    }


def _is_address(item: Instruction) -> bool:
    """Whether the instruction makes an address of a copy, or is the copy; the model's copies have these with them."""
    return item.name == "LDGSTS" or is_wide(item)


def _innermost(kernel: KernelSass, loop: KernelSass) -> KernelSass:
    begin, end = loop.instructions[0].address, loop.instructions[-1].address
    inside = [
        one for one in kernel.loops
        if begin <= one.instructions[0].address and one.instructions[-1].address <= end and one.select("FFMA")
    ]
    return min(inside, key=lambda one: len(one.instructions))


def _math_places(loop: KernelSass, math: tuple[str, ...]) -> dict[str, float]:
    """K-slices of math before copies (mean), barrier, and the first use of fragments loaded after the copies."""
    all_math = loop.select(*math)
    targets = {item.operands.split(",")[0].strip() for item in all_math}
    if len(all_math) < 2 * len(targets) or not loop.select("LDGSTS") or len(loop.select("BAR")) != 1:
        return {}
    each, left = len(targets), len(loop.select("LDGSTS"))
    copies, late, num, barrier, use = list[float](), set[int](), 0, 0.0, None
    for item in loop.instructions:
        registers = [int(found) for found in re.findall(r"\bR(\d+)", item.operands)]
        if item in all_math:
            if use is None and len(registers) > 2 and late & {*range(registers[1], registers[1] + 4), registers[2]}:
                use = num / each
            num += 1
        elif item.name == "LDGSTS":
            copies.append(num / each)
            left -= 1
        elif item.name == "LDSM" and not left and registers:
            late |= set(range(registers[0], registers[0] + 4))
        elif item.name == "BAR":
            barrier = num / each
    places = {"copies": sum(copies) / len(copies), "barrier": barrier, "use": 1.0 if use is None else use}
    return {f"math_before_{name}": round(value, 3) for name, value in places.items()}


def _producer_cycles(kernel: KernelSass, loop: KernelSass) -> float:
    """Cycles of a k-step's TMA copies."""
    if loop.select("UTMALDG"):  # of warps that multiply, too
        others = loop_cycles(_without_copies(kernel, loop))
        return max(0, round(min(map(loop_cycles, _with_copies(kernel, loop))) - others))
    loops = [one for one in kernel.loops if one.select("UTMALDG") and not one.select(*WARPGROUP_TENSOR)]
    if not loops:
        return 0
    # ptxas puts each copy of one thread in a loop of ELECT, and the rest of a wait behind the kernel's end.
    closed = [one for one in loops if not one.select("EXIT")]
    waiting = [one for one in closed if any("PHASECHK" in item.opcode for item in one.instructions)]
    found = min(waiting or loops, key=lambda one: len(one.instructions))
    start = found.instructions[0].address
    items = path_to(kernel, start, start)
    tried = next((idx for idx, (item, _) in enumerate(items) if "PHASECHK" in item.opcode), None)
    if tried is None:
        return max(0, round(loop_cycles(items)))
    done = next(idx for idx in range(tried, len(items)) if items[idx][0].name == "BRA") + 1
    head = tried - (items[tried - 1][0].name == "YIELD")
    return max(0, round(issue_cycles([*items[done:], *items[:head]]) - HEAD_CYCLES))


def _without_copies(kernel: KernelSass, loop: KernelSass) -> Items:
    """The way around a loop of warps that issue no TMA copy, nor announce its bytes."""
    begin, copies = loop.instructions[0].address, {item.address for item in loop.select("UTMALDG")}
    arrivals = [item for item in loop.select("SYNCS") if "ARRIVE" in item.opcode] if copies else []
    announcing = {item.address for item in arrivals if not item.operands.endswith("RZ")}  # a number of bytes
    try:
        return path_to(kernel, begin, begin, copies | {item.address for item in arrivals})
    except ConfigError:  # all warps arrive, to give a stage back
        return path_to(kernel, begin, begin, copies | announcing)


def _with_copies(kernel: KernelSass, loop: KernelSass) -> list[Items]:
    """Ways around a loop by each of its groups of TMA copies, of which a k-step runs one."""
    groups = groups_of(loop.select("UTMALDG"))
    begin, ways = loop.instructions[0].address, []
    for group in groups:
        avoids = {address for other in groups if other is not group for address in other}
        for falls in (True, False):
            items = path_to(kernel, begin, begin, avoids, falls_through=falls)
            ways += [items] if any(item.address in group for item, _ in items) else []
    return ways


def _producer_places(kernel: KernelSass) -> list[Items]:
    """Ways of a producer from the begin of its loop over tiles to its loop over k-steps; none without a producer."""
    found: list[Items] = []
    if main_loop(kernel, WARPGROUP_TENSOR).select("UTMALDG"):
        return found
    for loop in kernel.loops:
        tiles = loop_around(kernel, loop)
        if loop.select("UTMALDG") and not loop.select(*WARPGROUP_TENSOR) and tiles is not None:
            found.append(path_to(kernel, tiles.instructions[0].address, loop.instructions[0].address))
    return found


def _cycles(items: Items) -> int:
    """Cycles of a path without its IMAD.WIDE."""
    return round(issue_cycles(_others(items)))


def _others(items: Items) -> Items:
    return [pair for pair in items if not is_wide(pair[0])]


def _scheduler(kernel: KernelSass, items: Items) -> dict[str, float]:
    """Code before a tile; what follows a first wait is that of a turn. IMAD.WIDE are the most of any role.

    Consumers often compute a tile's coordinates behind its main loop. Then the producer's code counts.
    """
    if not kernel.select(*WARPGROUP_TENSOR):
        return {"chain_cycles": round(issue_cycles(items))}
    math = next((idx for idx, (item, _) in enumerate(items) if item.name in WARPGROUP_TENSOR), len(items))
    waits = [idx for idx, (item, _) in enumerate(items[:math]) if "PHASECHK" in item.opcode]
    own, turn_code = (items[: waits[0]], items[waits[0] + 1 : math]) if waits else (items[:math], [])
    producers = _producer_places(kernel)
    longest = max(producers, key=_cycles, default=own)
    role = longest if 2 * _cycles(own) < _cycles(longest) else own
    return {
        "chain_cycles": _cycles(role),
        "imad_wide": float(max(len(place) - len(_others(place)) for place in (own, *producers))),
        "chain_during_wgmma_cycles": round(issue_cycles(_others(role), BESIDE_WGMMA)),
        "chain_after_turn_cycles": round(issue_cycles(turn_code, BESIDE_WGMMA)),
    }  # fmt: skip


def _epilogue(
    kernel: KernelSass, begin: int, end: int | None, kind: str, num_bytes: int, place_cycles: float
) -> dict[str, float]:
    """Code after the main loop, without ``place_cycles``: coordinates that are computed there.

    Loops that store run until ``num_bytes`` of a thread have been stored.
    """
    kinds = [kind, *(other for other in EPILOGUES if other != kind)]
    for each in kinds:
        stores = "STSM" if each == "tma_store" else "STG"
        items = _storing(kernel, begin, end, stores, addresses_of(kernel, *EPILOGUES[each]), num_bytes)
        stored = _stored(items, stores)
        if stored:
            break
    else:
        raise ConfigError(f"SASS: {kernel.name}: no path behind its main loop stores D")
    is_wgmma = bool(kernel.select(*WARPGROUP_TENSOR))
    own = _others(items) if is_wgmma else items
    addresses = {item.address for item, _ in items}
    more, wide = {LATENCIES: 0.0, BESIDE_WGMMA: 0.0}, float(len(items) - len(own))
    loops = [
        loop for loop in kernel.loops
        if loop.select(stores) and {loop.instructions[0].address, loop.instructions[-1].address} <= addresses
        and begin <= loop.instructions[0].address and (end is None or loop.instructions[-1].address < end)
    ]  # fmt: skip
    if loops and stored and stored < num_bytes:
        loop = max(loops, key=lambda one: len(one.instructions))
        inside = {item.address for item in loop.instructions}
        again = [pair for pair in items if pair[0].address in inside]
        turns = (num_bytes - stored) / max(1, sum(_width(item) for item, _ in again if item.name == stores))
        own_again = _others(again) if is_wgmma else again
        more = {latencies: turns * loop_cycles(own_again, latencies) for latencies in more}
        wide += turns * (len(again) - len(own_again))
    during = issue_cycles(own, BESIDE_WGMMA) + more[BESIDE_WGMMA]
    return {
        "chain_cycles": round(max(0.0, issue_cycles(own) + more[LATENCIES] - place_cycles)), "imad_wide": float(round(wide)),
        "chain_during_wgmma_cycles": round(max(0.0, during - place_cycles)) if is_wgmma else 0.0,
    }


def _storing(
    kernel: KernelSass, begin: int, end: int | None, stores: str, avoids: set[int], num_bytes: int
) -> Items:
    """The path by one of the stores that stores nearest to ``num_bytes`` of a thread; empty if there is none."""
    found: list[Items] = []
    addresses = [item.address for item in kernel.select(stores) if item.address > begin]
    for place in addresses[:: max(1, len(addresses) // MOST_PATHS)]:
        try:
            found.append([*path_to(kernel, begin, place, avoids), *path_to(kernel, place, end, avoids)])
        except ConfigError:
            continue
        if _stored(found[-1], stores) == num_bytes:
            return found[-1]
    return min(found, key=lambda items: abs(_stored(items, stores) - num_bytes), default=[])


def _stored(items: Items, stores: str) -> int:
    return sum(_width(item) for item, _ in items if item.name == stores)


def _width(item: Instruction) -> int:
    """Bytes of a thread that a store moves."""
    if item.name == "STSM":
        return 4 * int(next((part for part in item.opcode.split(".") if part in ("2", "4")), "1"))
    words = item.opcode.split(".")
    return next((size for word, size in (("128", 16), ("64", 8), ("U16", 2), ("16", 2), ("U8", 1)) if word in words), 4)


def _accumulator_bytes(kernel: KernelSass, loop: KernelSass, math: tuple[str, ...]) -> int:
    """Bytes of D of a thread: two for an accumulator where the kernel packs to 16 bits, four otherwise."""
    targets = {item.operands.split(",")[0].strip() for item in loop.select(*math)}
    each = 1
    if is_of(math, WARPGROUP_TENSOR):
        m, n, _ = map(int, loop.select(*math)[0].shape.split("x"))
        each = m * n // 128
    elif is_of(math, TENSOR):
        each = 4
    packs = any(item.opcode.startswith("F2FP") for item in kernel.instructions)
    return len(targets) * each * (2 if packs else 4)


def _layout(kernel: KernelSass) -> dict[str, tuple[int, int]]:
    """Where the producer's code lies, if the kernel is longer than what a launch brings along."""
    first = kernel.instructions[0].address
    copies = [item.address for item in kernel.select("UTMALDG")]
    if not copies or kernel.instructions[-1].address - first <= NEAR_BYTES:
        return {}
    begins = [item.address for item in kernel.select("EXIT", "USETMAXREG") if item.address < copies[0]]
    return {"producer": ((begins[-1] if begins else copies[0]) - first, copies[-1] + 16 - first)}
