"""SASS reader: instructions, loops, wait depths, registers and spills of a compiled kernel.

In: a cubin, or cuobjdump's text. Out: :class:`KernelSass` by kernel.

Models:

* loops that end with a direct backward branch
* the *main loop*: the loop with the most tensor instructions, or else the most memory instructions, the innermost of ties

Ignores:

* latencies beyond the compiler's schedule
* loops closed by indirect branches

Source: ``cuobjdump -sass`` and ``-res-usage`` of CUDA 12 and 13. The control word of Volta and later GPUs is bits 105 to 121
of an instruction (Jia et al., arXiv:1804.06826, 2.1).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path

from gpusim.errors import ConfigError
from gpusim.evidence.toolchain.cuda_toolkit import find_program

TENSOR = ("HGMMA", "QGMMA", "IGMMA", "BGMMA", "HMMA", "IMMA", "QMMA", "DMMA")
WARPGROUP_TENSOR = TENSOR[:4]
MEMORY = ("LDG", "STG", "LDS", "STS", "LDSM", "STSM", "LDGSTS", "UTMALDG", "UTMASTG", "UBLKCP", "ATOMS", "ATOMG", "RED")
LOCAL = ("LDL", "STL")

_INSTRUCTION = re.compile(
    r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][A-Za-z0-9_.]*)\s*([^;]*);"
    r"(?:\s*/\* 0x[0-9a-f]{16} \*/\s*/\* 0x([0-9a-f]{16}) \*/)?",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"^\s*Function : (\S+)$", re.MULTILINE)
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_SHAPE = re.compile(r"\.(\d+x\d+x\d+|\d{4,6})\b")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its address, predicate, opcode with modifiers, and operands as text."""

    address: int
    predicate: str
    opcode: str
    operands: str
    stall_cycles: int = 0
    """Cycles until the warp's next instruction in the compiler's schedule, including NOPs after it.

    0 where the text has no encoding."""
    read_barrier: int | None = None
    """Scoreboard barrier that is free again once the operands are read."""
    waits_for: frozenset[int] = frozenset()
    """Barriers that it waits for before it issues."""
    write_barrier: int | None = None
    """Barrier that is free again once its result is available."""
    name: str = field(init=False, repr=False, compare=False)
    """Opcode without modifiers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.opcode.partition(".")[0])

    @property
    def shape(self) -> str:
        """Shape of a tensor instruction: ``64x128x16`` of a wgmma, ``16816`` of an mma; empty otherwise."""
        found = _SHAPE.search(self.opcode)
        return found[1] if found and self.name in TENSOR else ""

    @property
    def branch_target(self) -> int | None:
        """Target address of a direct branch; None otherwise."""
        if self.name != "BRA":
            return None
        found = re.search(r"0x([0-9a-f]+)\s*$", self.operands)
        return int(found[1], 16) if found else None


@dataclass(frozen=True, slots=True)
class KernelSass:
    """A kernel's instructions, in order, and its resources."""

    name: str
    instructions: tuple[Instruction, ...]
    num_registers: int = 0
    stack_bytes: int = 0
    smem_bytes: int = 0

    @property
    def opcodes(self) -> Counter[str]:
        """Number of instructions by opcode without modifiers."""
        return Counter(instruction.name for instruction in self.instructions)

    def select(self, *names: str) -> tuple[Instruction, ...]:
        """Instructions with one of these opcodes, in order."""
        return tuple(instruction for instruction in self.instructions if instruction.name in names)

    @property
    def num_spills(self) -> int:
        """Number of local-memory loads and stores: spills, and arrays that are indexed at run time."""
        return len(self.select(*LOCAL))

    @property
    def loops(self) -> tuple[KernelSass, ...]:
        """Loops, each from a backward branch's target to the branch; inner loops are also in outer ones."""
        loops = []
        for end, instruction in enumerate(self.instructions):
            target = instruction.branch_target
            if target is not None and target < instruction.address:
                begin = next(i for i, other in enumerate(self.instructions) if other.address >= target)
                loops.append(KernelSass(self.name, self.instructions[begin : end + 1], self.num_registers))
        return tuple(loops)

    @property
    def main_loop(self) -> KernelSass | None:
        """Loop that does the work; None without loops."""

        def work(loop: KernelSass) -> tuple[int, int, int]:
            return len(loop.select(*TENSOR)), len(loop.select(*MEMORY)), -len(loop.instructions)

        return max(self.loops, key=work, default=None)

    @property
    def tensor_shapes(self) -> Counter[str]:
        """Number of tensor instructions by name and shape, for example ``HGMMA 64x128x16``."""
        return Counter(f"{item.name} {item.shape}" for item in self.select(*TENSOR))

    @property
    def wgmma_wait_depths(self) -> tuple[int, ...]:
        """Groups that each wait leaves in flight, in order: the N of ``wgmma.wait_group N``, as compiled."""
        return _depths(self.select("WARPGROUP"), "WARPGROUP.DEPBAR")

    @property
    def cp_async_wait_depths(self) -> tuple[int, ...]:
        """Groups of cp.async that each wait leaves in flight, in order: ``DEPBAR.LE SB0, N``."""
        return _depths(self.select("DEPBAR"), "DEPBAR")

    @property
    def num_dummy_wgmmas(self) -> int:
        """Number of wgmmas that compute nothing. The compiler adds them to end a group where no wgmma of the source can.

        Their results go nowhere (``RZ``). A first wgmma that only reads no accumulator (``RZ, !UPT``) keeps its results.
        """
        return sum(item.operands.startswith("RZ,") for item in self.select(*WARPGROUP_TENSOR))


def _depths(instructions: Iterable[Instruction], opcode: str) -> tuple[int, ...]:
    return tuple(
        int(depth[1], 16) for instruction in instructions
        if instruction.opcode.startswith(opcode) and (depth := re.search(r",\s*0x([0-9a-f]+)", instruction.operands))
    )


def parse_sass(text: str, usage: str = "") -> dict[str, KernelSass]:
    """Kernels by name.

    >>> text = '''
    ...     Function : k
    ...     /*0000*/                   LDC R1, c[0x0][0x28] ;
    ...     /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
    ...     /*0020*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
    ...     /*0030*/              @!P0 BRA 0x10 ;
    ... '''
    >>> kernel = parse_sass(text, "Function k: REG:90 STACK:0 SHARED:1024 LOCAL:0")["k"]
    >>> kernel.num_registers, kernel.wgmma_wait_depths, dict(kernel.main_loop.tensor_shapes)
    (90, (1,), {'HGMMA 64x128x16': 1})

    Args:
        text: of ``cuobjdump -sass``.
        usage: of ``cuobjdump -res-usage``.

    Raises:
        ConfigError: the text has no kernel.
    """
    sizes = {found[0]: tuple(map(int, found[1:4])) for found in _USAGE.findall(usage)}
    names = list(_FUNCTION.finditer(text))
    if not names:
        raise ConfigError("SASS: holds no kernel, wants the text of cuobjdump -sass")
    kernels = {}
    for found, following in zip(names, [*names[1:], None], strict=True):
        body = text[found.end() : following.start() if following else len(text)]
        instructions: list[Instruction] = []
        for address, predicate, opcode, operands, upper in _INSTRUCTION.findall(body):
            stall, read, waited, written = _control(upper)
            if opcode != "NOP":
                made = Instruction(int(address, 16), predicate, opcode, operands.strip(), stall, read, waited, written)
                instructions.append(made)
            elif instructions:
                last = instructions[-1]
                instructions[-1] = replace(last, stall_cycles=last.stall_cycles + stall)
        kernels[found[1]] = KernelSass(found[1], tuple(instructions), *sizes.get(found[1], ()))
    return kernels


def _control(upper: str) -> tuple[int, int | None, frozenset[int], int | None]:
    """(stall, barrier of the operands, barriers waited for, barrier of the result) from the upper half of an encoding.

    >>> _control("000fe20008000f00")
    (1, None, frozenset(), None)
    """
    return _control_of(int(upper, 16) >> 41 & 0x1FFFF) if upper else (0, None, frozenset(), None)


@cache
def _control_of(word: int) -> tuple[int, int | None, frozenset[int], int | None]:
    """Fields of the control word's 17 bits, as :func:`_control`; cached, since words repeat often."""
    written, read, waited = word >> 5 & 7, word >> 8 & 7, word >> 11 & 63
    barriers = frozenset(idx for idx in range(6) if waited >> idx & 1)
    return word & 15, read if read < 6 else None, barriers, written if written < 6 else None


def read_sass(cubin: Path) -> dict[str, KernelSass]:
    """Kernels of a cubin by name. Those of the last files are kept, as a large one takes seconds.

    Raises:
        ConfigError: there is no cuobjdump, or it refuses the file.
    """
    found = cubin.stat() if cubin.is_file() else None
    return dict(_disassembled(cubin, found and (found.st_mtime_ns, found.st_size, found.st_ino)))


@lru_cache(maxsize=3)
def _disassembled(cubin: Path, _version: tuple[int, ...] | None) -> dict[str, KernelSass]:
    program = find_program("cuobjdump")
    if program is None:
        raise ConfigError(
            "SASS: no cuobjdump on the PATH, wants the CUDA toolkit, or pip install nvidia-cuda-cuobjdump "
            "nvidia-cuda-nvdisasm"
        )
    texts = []
    folder = Path(program).parent  # of nvdisasm, too
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}
    for option in ("-sass", "-res-usage"):
        done = subprocess.run([program, option, str(cubin)], capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise ConfigError(f"SASS: cuobjdump refuses {cubin}: {' '.join((done.stderr or done.stdout).split())}")
        texts.append(done.stdout)
    return parse_sass(*texts)
