"""Keep the five best of Triton's configurations for a GEMM on an H200. Runs without Triton and without a GPU.

With Triton the last lines are ``@triton.autotune(configs, key=["M", "N", "K"], prune_configs_by=...)``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import product

import gpusim


@dataclass(frozen=True)
class Config:
    """What the hook reads of a ``triton.Config``."""

    kwargs: dict[str, int]
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Tensor:
    """What the hook reads of a tensor."""

    dtype: str


CONFIGS = [
    Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8}, num_warps, num_stages)
    for m, n, num_warps, num_stages in product((64, 128), (64, 128, 256), (4, 8), (2, 3, 4))
]


def main() -> None:
    """Print the configurations that are left."""
    prune = gpusim.triton_prune("h200_sxm", keep=5)["early_config_prune"]
    arguments = {"a_ptr": Tensor("torch.bfloat16"), "b_ptr": Tensor("torch.bfloat16"), "M": 2048, "N": 2048, "K": 2048}
    kept = prune(CONFIGS, arguments)
    sys.stdout.write(f"{len(kept)} of {len(CONFIGS)} configurations are left to time:\n")
    for config in kept:
        sys.stdout.write(f"  {config.kwargs} num_warps={config.num_warps} num_stages={config.num_stages}\n")


if __name__ == "__main__":
    main()
