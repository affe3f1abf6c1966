"""Which tiles are in L2 when they are asked for: as was worked out before the run, or found while it runs."""

from __future__ import annotations

import numpy as np

from gpusim.machine.memory.panels import FloatArray


def shares_of_stores(written_back: FloatArray, stored: FloatArray) -> list[float]:
    """What leaves L2 while each wave runs over what it stores; what leaves while nobody stores waits for the next who does.

    Both float64[num_waves], bytes.

    >>> shares_of_stores(np.array([0.0, 2.0, 8.0, 6.0]), np.array([4.0, 4.0, 0.0, 8.0]))
    [0.0, 0.5, 0.0, 1.75]
    """
    waves = np.flatnonzero(stored > 0.0)
    shares = np.zeros(len(stored))
    if len(waves):
        until = np.cumsum(written_back)[waves]
        until[-1] = written_back.sum()
        shares[waves] = np.diff(until, prepend=0.0) / stored[waves]
    return [float(share) for share in shares]
