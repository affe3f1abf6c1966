"""Order check: accesses to shared memory that nothing orders, whatever the timing.

In: a launch and its programs. Out: findings, one for each pair of roles and each thing that is missing.

Models:

* Happens-before, by vector clocks, from program order, mbarrier phases, named barriers, ``__syncthreads`` and cluster
  barriers. Groups of cp.async, bulk copies and wgmma end with their waits. ``fence.proxy.async`` stands between proxies.
* A stage of a buffer as a number of bytes. Accesses touch different bytes where they fit into the stage: a read and a write
  as a pair, writes by their sum. A read is compared with later writes until these have filled the stage. A buffer that no
  op reads may be written in any order.
* Warps of one role. A ``cp.async.wait_group`` of one warp says nothing about copies of another. An arrival of a role comes
  after what all of its warps have done.
* Registers of wgmma as one set of accumulators a role, which stores use.

Ignores:

* Scratch memory (an empty ``buffer``), global memory, and memory of other CTAs that ops name by bytes alone.
* Elements: which bytes of a stage an op touches. So halves of a stage with mbarriers of their own are not compared.

**One replay is enough.** Each role's ops are carried out once, in some order that the barriers allow. The replay also
checks that this order decides nothing:

1. An arrival, or the bytes of a copy, count in phase n. Their role must know that phase n - 1 is complete. So they cannot
   count earlier. All arrivals of expect_tx count in phase n, so the bytes that it expects are the same in each order. If
   phase n could complete without one of these, it would have more than it expects, which is found.
2. A wait passes behind phase n. Its role must know that phase n - 1 is complete. Else an older phase of the same parity
   could let it pass. And phase n + 1 must complete after the wait has passed. Else the wait could miss it (parity alias).
3. The same holds for generations of barriers of threads.

Take any other order, and its first arrival, delivery of bytes or wait that belongs to another phase than in the replay.
Everything before it agrees. By 1 to 3 it then belongs to the same phase: a contradiction. So every order gives the same
pairs of arrivals and waits, and the same happens-before. A pair of accesses that it leaves open occurs in either order in
some run.

**Turns of a loop are left out.** The replay is a function of its state and of the ops to come. Suppose that two states are
equal, but for numbers that only grew, with every comparison of two numbers kept. Suppose that all roles then repeat the
ops between both states k times. Then each repetition ends in an equal state and finds what the first found. The replay goes
on behind the last repetition.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain

import numpy as np

from gpusim.program.order_findings import operand_findings
from gpusim.program.order_replay import MOST_FINDINGS, Replay
from gpusim.program.order_steps import step_lists
from gpusim.program.programs import Programs
from gpusim.workload.finding import Finding
from gpusim.workload.launch import Launch

MOST_KEPT = 256
"""Launches whose findings are kept, at most."""

_kept: dict[Hashable, tuple[Finding, ...]] = {}


def order_findings(launch: Launch, programs: Programs, *, most_ops: int | None = None) -> list[Finding]:
    """What is wrong with the order of a launch's accesses, once for each class of CTAs, or of clusters.

    Empty for a launch in which barriers order all accesses. Equal programs are looked at once in a process.

    Args:
        launch: a launch that has been traced.
        programs: its programs.
        most_ops: ops that are carried out, at most. If they do not suffice, the last finding says so. None: all.
    """
    size, steps_of, left = launch.cluster_size, step_lists(programs), most_ops
    found: dict[str, Finding] = {finding.message: finding for finding in operand_findings(launch, programs)}
    declared = tuple((role.name, role.num_warps) for role in launch.roles), launch.buffers, launch.mbarriers
    clusters = programs.cta_class[: len(programs.cta_class) // size * size].reshape(-1, size)
    _, firsts = np.unique(clusters, axis=0, return_index=True)
    for first in sorted(firsts.tolist()):
        classes = programs.class_programs[clusters[first]].tolist()
        lists = [[steps_of(program) for program in of_rank] for of_rank in classes]
        steps = tuple((tuple(each.steps), each.codes.tobytes()) for each in chain.from_iterable(lists))
        key = launch.kernel, declared, launch.named_barriers, size, steps
        if key not in _kept:
            replay = Replay(launch, programs, lists, first * size)
            if not replay.run(left):
                message = f"{launch.kernel}: the order of {most_ops} ops is checked, and not of all; gpusim lint checks all"
                found |= {str(each): each for each in (*replay.findings, Finding(kind="unchecked", message=message))}
                break
            left = left and max(0, left - replay.num_ops)
            while len(_kept) >= MOST_KEPT:
                _kept.pop(next(iter(_kept)))
            _kept[key] = replay.findings
        found |= {finding.message: finding for finding in _kept[key]}
    most = list(found.values())[:MOST_FINDINGS]
    return sorted(most, key=lambda finding: finding.kind != "bytes")  # wrong bytes bring races that they explain
