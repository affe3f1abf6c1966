"""Bugs of lesson 6: a right kernel, and changes of one of its ops, one for each kind of finding of the order check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpusim.lessons.rings import MATH, TILE_BYTES, ring_launch
from gpusim.workload import ops
from gpusim.workload.finding import FindingKind
from gpusim.workload.launch import Buffer, Launch, NamedBarrier, Program, RoleContext
from gpusim.workload.smem.access import AccessPattern

if TYPE_CHECKING:
    import pandas as pd

    from gpusim.machine.config import GpuSpec

STAGES, STEPS = 3, 12
OUT = AccessPattern(num_requests=16, num_wavefronts=128, num_bytes=TILE_BYTES)
"""Stores of a consumer's accumulators as bf16 to shared memory."""
FULL, EMPTY, SWIZZLE = "full", "empty", "128B"


def producer(cta: RoleContext) -> Iterator[ops.Op]:
    """Loads tiles of A and B into the ring."""
    for k in cta.loop(STEPS):
        stage, parity = k % STAGES, k // STAGES & 1
        yield ops.MbarrierWait(EMPTY, stage, parity ^ 1)
        yield ops.MbarrierArriveExpectTx(FULL, stage, 2 * TILE_BYTES)
        for name in ("a", "b"):
            yield ops.TmaLoad(name.upper(), (0, k), TILE_BYTES, TILE_BYTES, 128, name, stage, FULL, swizzle=SWIZZLE)


def consumer(cta: RoleContext) -> Iterator[ops.Op]:
    """Multiplies tiles, and stores its accumulators by TMA."""
    yield ops.WgmmaFence()
    for k in cta.loop(STEPS):
        stage, parity = k % STAGES, k // STAGES & 1
        yield ops.MbarrierWait(FULL, stage, parity)
        yield ops.Wgmma(MATH, 8, reads=(("a", stage), ("b", stage)), swizzle=SWIZZLE)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)
        yield ops.MbarrierArrive(EMPTY, stage)
    yield ops.Stmatrix(OUT, "d", 0)
    yield ops.FenceProxyAsync()
    yield ops.BarSync("warpgroup")
    yield ops.TmaStore("D", (0, 0), TILE_BYTES, 128, "d", 0)
    yield ops.BulkCommitGroup()
    yield ops.BulkWaitGroup(0)


def kernel(of_producer: Program = producer, of_consumer: Program = consumer) -> Launch:
    """Launch of one CTA with both roles. With these as they are it is right.

    >>> from gpusim import load_gpu
    >>> kernel().check(load_gpu("h200_sxm"))
    []
    """
    launch = ring_launch(of_producer, of_consumer, num_stages=STAGES)
    return replace(
        launch, kernel="kernel", buffers=(*launch.buffers, Buffer(name="d", stage_bytes=TILE_BYTES)),
        named_barriers=(NamedBarrier(name="warpgroup", num_threads=128),),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bug:
    """A change of some ops of one role."""

    what: str
    role: Program
    op: type[ops.Op]
    change: Callable[[Any], list[ops.Op]] = lambda op: []
    """Ops in place of one; none by default."""
    is_last: bool = False
    """Whether only the last op of the type is changed, and not all."""

    def launch(self) -> Launch:
        """The launch with this bug."""

        def program(cta: RoleContext) -> Iterator[ops.Op]:
            own = list(self.role(cta))
            places = [place for place, op in enumerate(own) if isinstance(op, self.op)]
            changed = places[-1:] if self.is_last else places
            for place, op in enumerate(own):
                yield from self.change(op) if place in changed else [op]

        return kernel(program) if self.role is producer else kernel(of_consumer=program)


BUGS: dict[FindingKind, Bug] = {
    "race": Bug("wgmma.wait_group 1 for 0", consumer, ops.WgmmaWaitGroup, lambda op: [replace(op, num_pending=1)]),
    "fence": Bug("no fence.proxy.async before the TMA store", consumer, ops.FenceProxyAsync),
    "order": Bug("the producer does not wait for empty", producer, ops.MbarrierWait),
    "barrier": Bug("two arrivals on empty for one", consumer, ops.MbarrierArrive, lambda op: [replace(op, count=2)]),
    "bytes": Bug("expect_tx with the bytes of one tile of two", producer, ops.MbarrierArriveExpectTx,
                 lambda op: [replace(op, num_bytes=TILE_BYTES)]),
    "deadlock": Bug("the producer waits for the other parity", producer, ops.MbarrierWait,
                    lambda op: [replace(op, parity=op.parity ^ 1)]),
    "accumulators": Bug("no wgmma.wait_group before the epilogue", consumer, ops.WgmmaWaitGroup, is_last=True),
    "swizzle": Bug("wgmma reads with another swizzle than TMA writes", consumer, ops.Wgmma,
                   lambda op: [replace(op, swizzle="64B")]),
    "wgmma_fence": Bug("no wgmma.fence before the first wgmma", consumer, ops.WgmmaFence),
    "unread": Bug("the last tiles are not multiplied", consumer, ops.Wgmma, is_last=True),
}  # fmt: skip
"""A bug for each kind of finding."""


def bug_table(gpu: GpuSpec) -> pd.DataFrame:
    """Each bug, and the first finding of ``Launch.check``: columns ``bug``, ``kind`` and ``finding``."""
    import pandas as pd

    firsts = [(bug.what, bug.launch().check(gpu)[0]) for bug in BUGS.values()]
    return pd.DataFrame([(what, first.kind, first.message) for what, first in firsts], columns=["bug", "kind", "finding"])
