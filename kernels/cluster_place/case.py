"""On which SMs do the clusters of a grid run, by the scheduling policy that is asked for?"""

from __future__ import annotations

import numpy as np

from gpusim.evidence.case import Case, Config, Group, KernelLaunch, Output, Outputs, WrongAnswer

COLUMNS = ("size", "policy", "num_clusters", "again")
POLICIES = {"default": 0, "spread": 1, "load_balancing": 2}
"""``CUclusterSchedulingPolicy``. Source: cuda.h 13.0."""
GRIDS = ((2, 66), (2, 64), (2, 40), (4, 30), (4, 20), (8, 15))
"""CTAs of a cluster; clusters: as many as an H200 holds at once, and fewer."""
NUM_TURNS = 2
THREADS, SMEM_BYTES = 384, 200 * 1024
"""As GEMMs that fill an SM with one CTA."""
STAY_NS = 50_000
MOST_CTAS = 132


def configs(seed: int) -> list[Config]:
    """Every grid by policy, several times."""
    del seed  # the same for every seed
    return [
        {"kernel": f"place_{size}", "size": str(size), "policy": policy, "num_clusters": str(num), "again": str(again)}
        for again in range(NUM_TURNS) for size, num in GRIDS for policy in POLICIES
    ]  # fmt: skip


def launch(config: Config, is_counted: bool) -> KernelLaunch:
    """A grid of clusters side by side, each CTA alone on its SM."""
    del is_counted
    size, num = int(config["size"]), int(config["num_clusters"])
    return KernelLaunch(
        kernel=config["kernel"],
        arguments=(Output("sm_of_cta", np.full(size * num, -1, dtype=np.int32)), np.uint32(STAY_NS)),
        grid=(size, num, 1), block=(THREADS, 1, 1), smem_bytes=SMEM_BYTES, cluster_policy=POLICIES[config["policy"]],
    )  # fmt: skip


def check(config: Config, outputs: Outputs) -> dict[str, float]:
    """Every CTA was somewhere, no two on one SM.

    Raises:
        WrongAnswer: one was not, or two were: the grid did not fit at once.
    """
    sms = outputs["sm_of_cta"]
    if (sms < 0).any():
        raise WrongAnswer(f"CTA {int(np.flatnonzero(sms < 0)[0])} wrote down no SM")
    if len(np.unique(sms)) != len(sms):
        raise WrongAnswer(f"{len(sms)} CTAs were on {len(np.unique(sms))} SMs: the grid did not fit at once")
    return {f"sm_of_cta_{idx}": float(sm) for idx, sm in enumerate(sms.tolist())}


CASE = Case(
    name="cluster_place",
    question=__doc__,
    columns=COLUMNS,
    groups={"places": Group(configs=configs, rank=5, least_capability=(9, 0))},
    launch=launch,
    check=check,
    values={f"sm_of_cta_{idx}": f"the SM of CTA {idx}" for idx in range(MOST_CTAS)},
)
