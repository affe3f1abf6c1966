"""Parts of one SM in the reference engine: schedulers, pipes, shared memory, L1, tensor cores, TMA engine.

Each part computes the cycles of its work. Roles request work and keep the time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from copy import copy

from simpy import Environment

from gpusim.machine.config import GpuSpec
from gpusim.reference.events import EPSILON_CYCLES, Fact, GapPipe, Pipe, Wait
from gpusim.reference.memory import Memory, Request
from gpusim.units import WARP_SIZE
from gpusim.workload.ops import Tile

GREEDY_CYCLES = 16.0
"""Cycles for which a role that multiplies may do something else, and still goes on before others."""


class Sm:
    """One streaming multiprocessor.

    Models:

    * One warp instruction per cycle and scheduler; lanes of each pipe.
    * Warps of a role spread evenly over schedulers.
    * Tensor cores, the TMA engine and its queue.

    Source: the GPU's description.
    """

    def __init__(self, env: Environment, gpu: GpuSpec, memory: Memory, idx: int, *, l1_bytes: float) -> None:
        """Begin idle. ``l1_bytes``: bytes of L1 that shared memory leaves."""
        self.idx, self.data_stage = idx, DataStage(env, gpu)
        self.l1, spec = L1(gpu, memory, capacity_bytes=l1_bytes), gpu.warp_scheduler
        self._num_schedulers, self.slots = spec.num_schedulers, GapPipe(env, spec.num_schedulers)
        """Number of schedulers, and their issue slots."""
        lanes = (spec.fp32_lanes, spec.int32_lanes, spec.mufu_lanes, spec.shuffle_lanes)
        self.fma, self.alu, self.mufu, self.shuffle = (GapPipe(env, num / WARP_SIZE) for num in lanes)
        self.tensor_pipe, self.turns = Pipe(1.0), Turns(env)
        """Tensor cores of all sub-cores as one pipe; and the arbiter of mma.sync between roles."""
        self.network = Pipe(gpu.dsmem.bytes_per_cycle if gpu.dsmem else 1.0)
        """This SM's end of the network between SMs."""
        self.has_run_wgmma = False
        places = gpu.tma.max_queued_boxes if gpu.tma else 1
        self._tma, self.boxes = Pipe(1.0), deque([0.0] * places, maxlen=places)
        """TMA engine, which walks boxes; and the cycle at which each box leaves its queue and makes space."""

    def walk(self, cycles: float, num_boxes: int, at: float) -> float:
        """Queue boxes for ``cycles`` cycles of the TMA engine; returns the cycle at which it begins the first."""
        begin = self._tma.reserve(cycles, at) - cycles
        self.boxes.extend(begin + cycles * (idx + 1) / num_boxes for idx in range(num_boxes))
        return begin

    def issue(self, num_each: float, num_warps: int, at: float, *, turns_each: float = 1.0) -> float:
        """Issue ``num_each`` instructions of each warp; returns the cycle at which the last has been issued.

        All warps share the issue slots of the SM, and warps of one scheduler share its slots.

        Args:
            num_each: instructions of each warp.
            num_warps: warps that issue.
            at: cycle at which they are ready.
            turns_each: issue slots of each instruction.
        """
        own = at + num_each * turns_each * -(-num_warps // self._num_schedulers)
        return max(own, self.slots.reserve(num_each * num_warps * turns_each, at))

    def execute(self, pipe: GapPipe, num_each: float, num_warps: int, at: float, *, turns_each: float = 1.0) -> float:
        """Issue instructions to a pipe, as :meth:`issue`; returns the cycle at which it has taken the last.

        Fewer warps than schedulers reach a correspondingly smaller rate.
        """
        issued, total = self.issue(num_each, num_warps, at, turns_each=turns_each), num_each * num_warps
        own = at + total / (pipe.rate * min(1.0, num_warps / self._num_schedulers))
        return max(issued, own, pipe.reserve(total, at))


class DataStage:
    """The data stage of shared memory: wavefronts of all warps, one after the other.

    Models:

    * Loads, stores and atomics in the order in which they are ready.
    * Writes of cp.async between the wavefronts of the warps, one by one, and in idle cycles.
    * Copies around L1 queue behind earlier requests, without counting the bank conflicts of these.

    Source: the GPU's description.
    """

    def __init__(self, env: Environment, gpu: GpuSpec) -> None:
        """Begin idle."""
        self.rate = gpu.smem.wavefronts_per_cycle
        self._pipe, self._num_filling, self._idle_since = GapPipe(env, self.rate), 0.0, 0.0
        self._way: GapPipe | None = None
        """Queue before the data stage, which counts from the first copy around L1 on."""

    def serve(self, num_wavefronts: float, at: float, *, way_wavefronts: float | None = None) -> float:
        """Read or write; returns the cycle at which the last wavefront has been served.

        ``way_wavefronts``: wavefronts without bank conflicts, for the queue before the stage.
        """
        if self._way is not None:
            on_way = num_wavefronts if way_wavefronts is None else way_wavefronts
            at = self._way.reserve(on_way, at) - on_way / self.rate
        return self._pipe.reserve(num_wavefronts + self._filled_meanwhile(num_wavefronts, at), at)

    def copies_reach_it(self, at: float) -> float:
        """Cycle at which copies around L1, which come at cycle ``at``, have passed earlier requests."""
        self._way = self._way or copy(self._pipe)
        return max(at, self._way.free_at)

    def hold(self, num_cycles: float, at: float) -> None:
        """Let nothing pass to the data stage for so many cycles, while lines of a copy are looked up."""
        if num_cycles > 0.0:
            self._way = self._way or copy(self._pipe)
            self._way.reserve(num_cycles * self.rate, at)

    def fill(self, num_wavefronts: float, at: float) -> float:
        """Write the data of a copy; returns the cycle at which the last wavefront can be written."""
        self._filled_meanwhile(0.0, at)
        self._num_filling += num_wavefronts
        return max(at, self._pipe.free_at) + self._num_filling / self.rate

    def _filled_meanwhile(self, num_wavefronts: float, at: float) -> float:
        """Pending copy wavefronts that are written between ``num_wavefronts`` wavefronts of a warp.

        Other pending ones are written in idle cycles before cycle ``at``.
        """
        idle = at - max(self._idle_since, self._pipe.free_at)
        if self._num_filling and idle > 0.0:
            self._num_filling, self._idle_since = max(0.0, self._num_filling - idle * self.rate), at
        passing = min(self._num_filling, num_wavefronts)
        self._num_filling -= passing
        return passing


class L1:
    """The load/store unit, and the tiles in L1.

    Models:

    * Warp instructions in order, each for as long as the slowest of the unit, its tags and its data.
    * Tiles with least-recently-used eviction.
    * Hits on a tile in flight, which wait for it.
    * A limit of outstanding bytes.
    * Stores that allocate nothing.

    Source: the GPU's description.
    """

    def __init__(self, gpu: GpuSpec, memory: Memory, *, capacity_bytes: float) -> None:
        """Begin empty."""
        self.spec, self._memory, self._capacity, self._num_bytes = gpu.l1, memory, capacity_bytes, 0.0
        self._unit, self.rows = Pipe(1.0), Pipe(1.0)
        """Load/store unit; and copies around L1, in order."""
        self._places = Pipe(gpu.l1.outstanding_bytes)
        """Space for outstanding bytes, in bytes times cycles."""
        self.tiles: OrderedDict[tuple[str, Tile], tuple[float, Fact]] = OrderedDict()
        """Bytes of each tile, and the fact of its arrival."""

    def accept(self, num_requests: float, num_lines: float, num_wavefronts: float, at: float) -> tuple[float, float]:
        """Pass an access through the unit; returns the cycles at which it begins and ends."""
        spec = self.spec
        works = num_requests / spec.requests_per_cycle, num_lines / spec.tag_lines_per_cycle
        cycles = max(*works, num_wavefronts / spec.wavefronts_per_cycle)
        end = self._unit.reserve(cycles, at)
        return end - cycles, end

    def read(self, request: Request, *, allocates: bool, hit_at: float) -> Fact:
        """Fetch a tile, through L1 if it allocates. On a hit L1 delivers it a latency after the cycle ``hit_at``."""
        key = (request.tensor, request.tile)
        if not allocates or key not in self.tiles:
            there = self._memory.read(request, places=self._places)[0]
            if allocates:
                self.tiles[key] = request.num_bytes, there
                self._num_bytes += request.num_bytes
            while self._num_bytes > self._capacity and self.tiles:
                self._num_bytes -= self.tiles.popitem(last=False)[1][0]
            return there
        self.tiles.move_to_end(key)
        soonest, hit = hit_at + self.spec.hit_latency_cycles, Fact(self._memory.env)
        self.tiles[key][1].then(lambda cycle: hit.tell(max(soonest, cycle)))
        return hit


class Turns:
    """Arbiter of an SM's tensor cores between roles that issue mma.sync (greedy, then oldest).

    Models:

    * A role goes on until it has done something else for some cycles. The role that has waited longest follows.
    """

    def __init__(self, env: Environment) -> None:
        """Begin without an owner."""
        self._env, self._until = env, 0.0
        """Environment, and the cycle at which the last math so far will have been issued."""
        self._owner: object = None
        self._waiting: deque[tuple[object, Callable[[float], float], Fact]] = deque()

    def ask(self, role: object, at: float, multiply: Callable[[float], float]) -> Fact:
        """Let a role multiply from cycle ``at`` on, or when its turn comes.

        The returned fact counts when the last MMA is issued. ``multiply(cycle)`` queues the role's math no sooner than a
        cycle. It returns the cycle at which the last of it will have been issued.
        """
        turn, goes_on = Fact(self._env), at <= self._until + GREEDY_CYCLES
        if goes_on if self._owner is role else not goes_on and not self._waiting:
            self._owner, self._until = role, multiply(at)
            turn.tell(self._until)
            return turn
        self._waiting.append((role, multiply, turn))
        if len(self._waiting) == 1:
            self._env.process(self._watch())
        return turn

    def _watch(self) -> Wait:
        """While roles wait: pass the tensor cores to the next one when their owner has stopped."""
        while self._waiting:
            yield self._env.timeout(max(0.0, self._until + GREEDY_CYCLES - self._env.now))
            if self._env.now >= self._until + GREEDY_CYCLES - EPSILON_CYCLES:
                self._owner, multiply, turn = self._waiting.popleft()
                self._until = multiply(self._until)
                turn.tell(self._until)
