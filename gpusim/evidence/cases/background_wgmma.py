"""Background wgmma of microbenchmarks: the instruction for ``kernel.cu`` and its operands.

In: where A lies, N, number of rows. Out: text for a case's ``includes``, operands as numbers and as bytes.

Models:

* bf16, M and K of 64
* small integers, so that sums are exact in any order

Ignores:

* other types and depths (kernels/wgmma_operands, wgmma_rate)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpusim.layout.swizzle import swizzle_mode
from gpusim.workload.atoms.mma import MmaAtom, wgmma
from gpusim.workload.dtypes import BF16

M, K, K_STEPS = 64, 64, 4


def atom_of(source: str, n: int) -> MmaAtom:
    """Atom of the wgmma, with A in shared memory (``ss``) or in registers (``rs``)."""
    return wgmma(n, BF16, "smem" if source == "ss" else "registers")


def struct(name: str, source: str, n: int, *, more: str = "") -> str:
    """CUDA text of ``struct name``, whose ``issue`` is the instruction; ``more``: text of further constants."""
    atom = atom_of(source, n)
    num = atom.accumulator_registers
    sums = ", ".join(f"%{i}" for i in range(num))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(num))
    if source == "rs":
        a, b = "{" + ", ".join(f"%{num + i}" for i in range(4)) + "}", f"%{num + 4}"
        inputs, majors = ", ".join(f'"r"(a[{i}])' for i in range(4)) + ', "l"(b_descriptor)', "0"
    else:
        a, b, inputs, majors = f"%{num}", f"%{num + 1}", '"l"(a_descriptor), "l"(b_descriptor)', "0, 0"
    return f"""struct {name} {{
    static constexpr int kNumAccumulators = {num};
    static constexpr bool kIsRegisterA = {"true" if source == "rs" else "false"}{more};
    static __device__ __forceinline__ void issue(float (&d)[{num}], const uint32_t (&a)[4], uint64_t a_descriptor,
                                                 uint64_t b_descriptor) {{
        asm volatile("{atom.ptx} {{{sums}}}, {a}, {b}, 1, 1, 1, {majors};" : {outputs} : {inputs});
    }}
}};
"""


def operand(rows: int, salt: int) -> NDArray[np.int64]:
    """Small integers without 0, so that every sum is exact: int64[rows, 64].

    >>> made = operand(4, 0)
    >>> made.shape, set(made.ravel().tolist()) == {-2, -1, 1, 2}
    ((4, 64), True)
    """
    return np.random.default_rng([rows, salt]).choice(np.array([-2, -1, 1, 2]), (rows, K))


def encode(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Numbers in bf16, uint8[rows, bytes of a row].

    >>> encode(np.array([[1, -2]])).tolist()
    [[128, 63, 0, 192]]
    """
    words = (numbers.astype("<f4").view("<u4") >> 16).astype("<u2")
    return np.ascontiguousarray(words).view(np.uint8).reshape(numbers.shape[0], -1)


def image(rows: int, salt: int) -> NDArray[np.uint8]:
    """Bytes of an operand in shared memory, uint8: rows of 128 bytes, 128B swizzle."""
    plain = encode(operand(rows, salt)).reshape(-1)
    made = np.empty_like(plain)
    made[np.asarray(swizzle_mode("128B")(np.arange(plain.size)))] = plain
    made.setflags(write=False)
    return made
