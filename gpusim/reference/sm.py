"""The parts of one SM. Each knows what its work takes; roles ask, and keep the time."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heappop, heappush

import simpy

from gpusim.machine.config import GpuSpec
from gpusim.reference.facts import Fact, Wait
from gpusim.reference.memory import Memory
from gpusim.reference.pipes import GapPipe, Pipe
from gpusim.reference.residency import Request
from gpusim.units import WARP_SIZE, WAVEFRONT_BYTES
from gpusim.workload.access import AccessPattern
from gpusim.workload.ops import Tile

GREEDY_CYCLES = 16.0
"""For how long who multiplies may do something else, and still goes on before others."""

LINE_PLACES = 60.0
"""Instructions that the line before the data stage holds."""

TURN_WAVEFRONTS = 32.0
"""Of shared memory that a load may read at once; longer ones take turns."""

EPSILON = 1e-6
"""What rounding may leave of a wait, or of an access."""


class Sm:
    """One streaming multiprocessor."""

    def __init__(self, env: simpy.Environment, gpu: GpuSpec, memory: Memory, idx: int, *, l1_bytes: float) -> None:
        """``l1_bytes``: what shared memory leaves of L1."""
        self.idx, self.memory = idx, memory
        self.schedulers = Schedulers(env, gpu)
        self.data_stage = DataStage(env, gpu)
        self.load_line = LoadLine(env, self.data_stage)
        self.l1 = L1(gpu, memory, capacity_bytes=l1_bytes)
        self.tensor_pipe = Pipe(1.0)
        """The tensor cores of its sub-cores, as one."""
        self.has_run_wgmma = False
        self.turns = Turns(env)
        """At the tensor cores, of roles that multiply by mma.sync."""
        self.network = Pipe(gpu.dsmem.bytes_per_cycle if gpu.dsmem else 1.0)
        """Its end of the network between SMs."""
        self.tma = Pipe(1.0)
        """The engine that walks the boxes of TMA copies."""
        places = gpu.tma.max_queued_boxes if gpu.tma else 1
        self._boxes: deque[float] = deque([0.0] * places, maxlen=places)
        """When the boxes in the TMA engine's queue leave it."""

    def room_at(self) -> float:
        """When the TMA engine's queue has room for one more box."""
        return self._boxes[0]

    def walk(self, cycles: float, num_boxes: int, at: float) -> float:
        """Queue boxes that take the TMA engine so long; returns when it comes to the first."""
        end = self.tma.reserve(cycles, at)
        self._boxes.extend(end - cycles + cycles * (idx + 1) / num_boxes for idx in range(num_boxes))
        return end - cycles


class Schedulers:
    """The issue slots of an SM, and behind them its pipes for arithmetic.

    Models: one warp instruction a cycle and scheduler; lanes of each pipe; warps of a role spread evenly over schedulers.
    Source: the GPU's description.
    """

    def __init__(self, env: simpy.Environment, gpu: GpuSpec) -> None:
        """All idle."""
        spec = gpu.warp_scheduler
        self._num = spec.num_schedulers
        self.slots = GapPipe(env, spec.num_schedulers)
        self.fma = GapPipe(env, spec.fp32_lanes / WARP_SIZE)
        self.alu = GapPipe(env, spec.int32_lanes / WARP_SIZE)
        self.mufu = GapPipe(env, spec.mufu_lanes / WARP_SIZE)
        self.shuffle = GapPipe(env, spec.shuffle_lanes / WARP_SIZE)

    def issue(self, num_each: float, num_warps: int, at: float, *, turns_each: float = 1.0) -> float:
        """Issue so many instructions of each warp, of so many turns each; returns when the last has been issued.

        All warps share the slots, and one scheduler's warps its own.
        """
        own = at + num_each * turns_each * -(-num_warps // self._num)
        return max(own, self.slots.reserve(num_each * num_warps * turns_each, at))

    def execute(self, pipe: GapPipe, num_each: float, num_warps: int, at: float, *, turns_each: float = 1.0) -> float:
        """Issue to a pipe; returns when it has taken the last. Fewer warps than schedulers reach as much less of it."""
        issued = self.issue(num_each, num_warps, at, turns_each=turns_each)
        total = num_each * num_warps
        own = at + total / (pipe.rate * min(1.0, num_warps / self._num))
        return max(issued, own, pipe.reserve(total, at))


class DataStage:
    """The data stage of shared memory: wavefronts of all warps, one after the other.

    Models: loads, stores and atomics in the order in which they are ready; what cp.async brings goes in between the
    wavefronts of the warps, one by one, and in cycles that these leave idle; copies around L1 stand behind what was asked
    for before them, but for its conflicts.
    Source: the GPU's description.
    """

    def __init__(self, env: simpy.Environment, gpu: GpuSpec) -> None:
        """Idle."""
        self.rate = gpu.smem.wavefronts_per_cycle
        self._pipe = GapPipe(env, self.rate)
        self._way: GapPipe | None = None
        """The way to it, which counts from the first copy around L1 on."""
        self._num_filling = self._idle_since = 0.0

    def serve(self, num_wavefronts: float, at: float, *, way_wavefronts: float | None = None) -> float:
        """Read or write; returns when the last wavefront has been served. ``way_wavefronts``: without its conflicts."""
        if self._way is not None:
            on_way = num_wavefronts if way_wavefronts is None else way_wavefronts
            if on_way:
                at = self._way.reserve(on_way, at) - on_way / self.rate
        return self._pipe.reserve(num_wavefronts + self._filled_meanwhile(num_wavefronts, at), at)

    def copies_reach_it(self, at: float) -> float:
        """When rows of copies around L1, which come at cycle ``at``, are past what was asked for before them."""
        if self._way is None:
            self._way = self._pipe.copy()
        return max(at, self._way.free_at)

    def fill(self, num_wavefronts: float, at: float) -> float:
        """Write what a copy has brought; returns when the last wavefront can be in."""
        self._filled_meanwhile(0.0, at)
        self._num_filling += num_wavefronts
        return max(at, self._pipe.free_at) + self._num_filling / self.rate

    def _filled_meanwhile(self, num_wavefronts: float, at: float) -> float:
        """Of what copies have brought and not written, what goes in idle cycles, and in between so many wavefronts."""
        if not self._num_filling:
            return 0.0
        idle = at - max(self._idle_since, self._pipe.free_at)
        if idle > 0.0:
            self._num_filling = max(0.0, self._num_filling - idle * self.rate)
            self._idle_since = at
        passing = min(self._num_filling, num_wavefronts)
        self._num_filling -= passing
        return passing


class LongLoad:
    """A load from shared memory of many wavefronts, which takes turns with others.

    ``first``: when its first part has been served; ``whole``: when all of it has.
    """

    def __init__(
        self, env: simpy.Environment, access: AccessPattern, wavefronts: float, num_warps: int, num_parts: int
    ) -> None:
        """A turn is a warp's share, and no less than what is worth one."""
        self.left = wavefronts
        self.turn = max(TURN_WAVEFRONTS, wavefronts / num_warps)
        self.num_places = max(1.0, access.num_requests * self.turn / wavefronts)
        self.way_wavefronts = way_wavefronts(access, wavefronts)
        self.first_left = wavefronts / num_parts
        self.first, self.whole = Fact(env), Fact(env)


class LoadLine:
    """The line before the data stage.

    Models: so many instructions in it, in the order in which they came. Who waits for a place gets it when somebody leaves:
    loads of the CTA that came first, and of one CTA in turns.
    """

    def __init__(self, env: simpy.Environment, stage: DataStage) -> None:
        """Empty."""
        self._env, self._stage = env, stage
        self._line: deque[tuple[float, float]] = deque()
        """Until when, and how many instructions."""
        self._waiting: list[tuple[int, int, LongLoad]] = []
        self._num_asked = 0
        self._is_watched = False

    def ask(self, load: LongLoad, cta_idx: int, at: float) -> None:
        """Wait for a place, and so on until all of it is read."""
        self._wait(load, cta_idx)
        self._let_in(at)

    def _wait(self, load: LongLoad, cta_idx: int) -> None:
        self._num_asked += 1
        heappush(self._waiting, (cta_idx, self._num_asked, load))

    def _let_in(self, at: float) -> None:
        """All for whom there is room."""
        while self._line and self._line[0][0] <= at:
            self._line.popleft()
        while self._waiting:
            cta_idx, _, load = self._waiting[0]
            if self._line and sum(places for _, places in self._line) + load.num_places > LINE_PLACES:
                break
            heappop(self._waiting)
            self._line.append((self._serve(load, at), load.num_places))
            if load.left:
                self._wait(load, cta_idx)
        if self._waiting and not self._is_watched:
            self._is_watched = True
            self._env.process(self._watch(self._line[0][0]))

    def _serve(self, load: LongLoad, at: float) -> float:
        """A turn of a load at the data stage; returns when it ends."""
        turn = min(load.left, load.turn)
        end = self._stage.serve(turn, at, way_wavefronts=load.way_wavefronts)
        load.way_wavefronts = 0.0
        load.left -= turn
        if load.first_left > 0.0:
            load.first_left -= turn
            if load.first_left <= EPSILON:
                load.first.tell(end + load.first_left / self._stage.rate)
        if load.left <= EPSILON:
            load.left = 0.0
            load.whole.tell(end)
        return end

    def _watch(self, leaves_at: float) -> Wait:
        """Until the first in line leaves."""
        yield self._env.timeout(max(0.0, leaves_at - self._env.now))
        self._is_watched = False
        self._let_in(self._env.now)


def way_wavefronts(access: AccessPattern, wavefronts: float) -> float:
    """Wavefronts of a load without those that its conflicts add."""
    return min(wavefronts, max(access.num_requests, access.num_bytes / WAVEFRONT_BYTES))


class L1:
    """The load/store unit, and the tiles that L1 has.

    Models: warp instructions in order, each for as long as the slowest of the unit, its tags and its data works on it;
    tiles that stay, the least recently used leave; hits on a tile that is on its way wait for it. Stores allocate nothing.
    Source: the GPU's description.
    """

    def __init__(self, gpu: GpuSpec, memory: Memory, *, capacity_bytes: float) -> None:
        """Empty."""
        self.spec, self._memory, self._capacity = gpu.l1, memory, capacity_bytes
        self._unit = Pipe(1.0)
        self._tiles: OrderedDict[tuple[str, Tile], tuple[float, Fact]] = OrderedDict()
        """Bytes of each, and when it is there."""
        self._num_bytes = 0.0
        self._places = Pipe(gpu.l1.outstanding_bytes)
        """For bytes on their way to it, by the cycles that they take."""
        self.rows = Pipe(1.0)
        """Copies around L1, in their order."""

    def accept(self, num_requests: float, num_lines: float, num_wavefronts: float, at: float) -> tuple[float, float]:
        """Pass an access through the unit; returns when that begins and ends."""
        spec = self.spec
        cycles = max(
            num_requests / spec.requests_per_cycle, num_lines / spec.tag_lines_per_cycle,
            num_wavefronts / spec.wavefronts_per_cycle,
        )
        end = self._unit.reserve(cycles, at)
        return end - cycles, end

    def holds(self, tensor: str, tile: Tile) -> bool:
        """Whether a tile is here, or on its way."""
        return (tensor, tile) in self._tiles

    def read_past(self, request: Request) -> Fact:
        """Fetch a tile that it does not have, or shall not keep."""
        return self._memory.read(request, places=self._places)

    def read(self, request: Request, *, hit_at: float) -> Fact:
        """Fetch a tile through L1, which gives what it has a latency behind cycle ``hit_at``."""
        key = (request.tensor, request.tile)
        if key not in self._tiles:
            there = self.read_past(request)
            self._tiles[key] = request.num_bytes, there
            self._num_bytes += request.num_bytes
            while self._num_bytes > self._capacity and self._tiles:
                self._num_bytes -= self._tiles.popitem(last=False)[1][0]
            return there
        self._tiles.move_to_end(key)
        soonest = hit_at + self.spec.hit_latency_cycles
        hit = Fact(self._memory.env)
        self._tiles[key][1].then(lambda cycle: hit.tell(max(soonest, cycle)))
        return hit


class Turns:
    """Whose mma.sync an SM's tensor cores take, where several roles multiply so.

    Models: who multiplies goes on until it has done something else for some cycles; then the one that has waited longest.
    """

    def __init__(self, env: simpy.Environment) -> None:
        """Nobody's turn."""
        self._env = env
        self._owner: object = None
        self._until = 0.0
        """When the last of the math so far will have been issued."""
        self._waiting: deque[tuple[object, Callable[[float], float], Fact]] = deque()

    def ask(self, role: object, at: float, multiply: Callable[[float], float]) -> Fact:
        """Let a role multiply from cycle ``at`` on, or when its turn comes; known when the last of it is issued.

        ``multiply(cycle)`` queues its math not before a cycle, and returns when the last of it will have been issued.
        """
        turn = Fact(self._env)
        goes_on = at <= self._until + GREEDY_CYCLES
        if goes_on if self._owner is role else not goes_on and not self._waiting:
            self._owner, self._until = role, multiply(at)
            turn.tell(self._until)
            return turn
        self._waiting.append((role, multiply, turn))
        if len(self._waiting) == 1:
            self._env.process(self._watch())
        return turn

    def _watch(self) -> Wait:
        """While somebody waits: when who multiplies has stopped, the next one does."""
        while self._waiting:
            stops_at = self._until + GREEDY_CYCLES
            yield self._env.timeout(max(0.0, stops_at - self._env.now))
            if self._env.now >= self._until + GREEDY_CYCLES - EPSILON:
                self._owner, multiply, turn = self._waiting.popleft()
                self._until = multiply(self._until)
                turn.tell(self._until)

