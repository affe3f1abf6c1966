"""Path of ``gpusim.workload.smem.access`` until version 0.2, kept for one release."""

import warnings

from gpusim.workload.smem.access import *  # noqa: F403 - all its public names

warnings.warn("gpusim.workload.access is gpusim.workload.smem.access today", DeprecationWarning, stacklevel=2)
