"""Path of ``gpusim.workload.gmem.global_access`` until version 0.2, kept for one release."""

import warnings

from gpusim.workload.gmem.global_access import *  # noqa: F403 - all its public names

warnings.warn("gpusim.workload.global_access is gpusim.workload.gmem.global_access today", DeprecationWarning, stacklevel=2)
