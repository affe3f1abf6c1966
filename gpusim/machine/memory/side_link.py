"""What goes from one side of L2 to the other: in order, over lanes whose queues are unlike."""

from __future__ import annotations

from math import sqrt

from gpusim.machine.memory.draws import most_of
from gpusim.machine.timing import GapPipe
from gpusim.units import LINE_BYTES


def lane_deviation(num_bytes: float, num_lanes: float, bytes_per_cycle: float) -> float:
    """How unlike the lanes of a link are that has passed so much, each line on a lane as if drawn: in cycles.

    >>> round(lane_deviation(2**21, 48, 630.0), 1)
    180.2
    """
    return sqrt(num_bytes * LINE_BYTES * num_lanes) / bytes_per_cycle


class SideLink:
    """What goes into one side of L2 from the other: lines that its SMs read there, and the other SMs' stores.

    Models: order of arrival; stores that take more of it beside reads, as many bytes of them as have crossed since it was
    idle and met no store yet; a lane for each slice, which lines fall on as if drawn: what has passed since it was idle
    makes lanes unlike, so that the last of a transfer's lines waits for the fullest of its lanes. Their deviation is no
    more than what the mean lane has waiting, as of queues that lines are drawn to.
    Ignores: why stores take more of it beside reads, and how long ago these crossed on a link that has had no rest; that
    lanes are busy yet when the mean one is idle; turns of reads and stores (they come in order here); requests and headers
    of reads (5 bytes a line at most: kernels/l2_residency, one side against both).
    Source: kernels/side_bursts, h200_sxm, 2026-11-28: what crosses waits for what crosses. That lanes are as many as slices
    of a side is inferred from what the last loads there wait for.
    """

    __slots__ = ("_crossed_bytes", "_num_lanes", "_pipe", "_read_bytes", "_turnaround_fraction")

    def __init__(self, bytes_per_cycle: float, *, num_lanes: float, turnaround_fraction: float) -> None:
        """``turnaround_fraction``: what a byte stored takes more where as many that are read pass the same way."""
        self._pipe = GapPipe(units_per_cycle=bytes_per_cycle)
        self._num_lanes = num_lanes
        self._turnaround_fraction = turnaround_fraction
        self._read_bytes = 0.0
        """Of what it has passed since it was idle, reads that no store has met."""
        self._crossed_bytes = 0.0
        """All that it has passed since it was idle."""

    @property
    def bytes_per_cycle(self) -> float:
        """What passes."""
        return self._pipe.rate

    @property
    def busy_cycles(self) -> float:
        """Cycles for which it was busy, with those of what was skipped."""
        return self._pipe.busy_cycles

    @property
    def free_at(self) -> float:
        """Cycle from which on it is idle."""
        return self._pipe.free_at

    def read(self, num_bytes: float, num_sms: float, *, at_cycle: float, weight: float = 1.0) -> tuple[float, float]:
        """Pass what each of ``num_sms`` SMs reads; it counts ``weight`` times.

        Returns:
            The cycle at which so much has passed with lanes that are even, and a deviation of lanes, in cycles.
        """
        if at_cycle > self._pipe.free_at:
            self._read_bytes = 0.0
        self._read_bytes += num_bytes * num_sms
        return self._pass(num_bytes, num_bytes, num_sms, at_cycle, weight)

    def store(self, num_bytes: float, num_sms: float, *, at_cycle: float, weight: float = 1.0) -> tuple[float, float]:
        """Pass what each of ``num_sms`` SMs stores; see :meth:`read`."""
        read = 0.0 if at_cycle > self._pipe.free_at else self._read_bytes
        beside = min(num_bytes, read / num_sms)
        self._read_bytes = read - beside * num_sms
        taken = num_bytes + self._turnaround_fraction * beside
        return self._pass(num_bytes, taken, num_sms, at_cycle, weight)

    def late_cycles(self, num_bytes: float, deviation_cycles: float) -> float:
        """How much later than with even lanes the last line of ``num_bytes`` has passed."""
        lines = num_bytes / LINE_BYTES
        return most_of(round(min(lines, self._num_lanes))) * deviation_cycles if lines > 1.0 and deviation_cycles else 0.0

    def _pass(
        self, num_bytes: float, taken_bytes: float, num_sms: float, at_cycle: float, weight: float
    ) -> tuple[float, float]:
        """Lines of ``num_bytes``, which take the time of ``taken_bytes``, for each of ``num_sms`` SMs."""
        pipe = self._pipe
        crossed = 0.0 if at_cycle > pipe.free_at else self._crossed_bytes
        self._crossed_bytes = crossed + num_bytes * num_sms
        end = pipe.reserve_alike(taken_bytes, num_sms, at_cycle=at_cycle, weight=weight)
        waited = end - at_cycle - taken_bytes / pipe.rate
        if waited <= 0.0:
            return end, 0.0
        crossed += num_bytes * (num_sms + 1.0) / 2.0  # as the mean of them is through
        return end, min(waited, lane_deviation(crossed, self._num_lanes, pipe.rate))
