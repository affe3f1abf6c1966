"""The core of the model in simpy's words, to be read in one sitting by who knows CUDA and a little simpy.

In: a Launch, and a GPU that has nothing beyond the core (``core``). Out: cycles and counters. It knows no engine.

It is slow, and it is the reference: an engine is right where it gives the same cycles. Read it in this order:

================  ==================================================================================
``core``          what it has of a GPU, and what it leaves out
``events``        what processes wait for: facts, and pipes in order, with gaps, shared
``kernel``        CTAs are dealt out, exit, and others take their place
``cta``           the process of a role, and what roles of a CTA share
``instructions``  what each op takes of whom
``sm``            the parts of an SM
``memory``        what lies below the SMs
================  ==================================================================================
"""

from gpusim.reference.core import beyond_core, core_only
from gpusim.reference.kernel import Answer, simulate

__all__ = ["Answer", "beyond_core", "core_only", "simulate"]
