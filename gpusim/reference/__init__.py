"""The core of the model in simpy's words, to be read in one sitting by who knows CUDA and a little simpy.

In: a Launch, and a GPU that has nothing beyond the core (``core``). Out: cycles and counters. It knows no engine.

It is slow, and it is the reference: an engine is right where it gives the same cycles. Read it in this order:

==================  ==============================================================================================
``core``            what it has of a GPU, and what it leaves out
``facts``           what processes wait for
``pipes``           in order, with gaps, shared
``kernel``          CTAs are dealt out, and exit
``cta``             what roles of a CTA share
``role``            the process that carries out a program
``synchronization`` the ops of barriers and fences
``arithmetic``      those that compute
``shared_memory``   those that touch shared memory
``global_memory``   those that touch global memory
``sm``              what they ask of an SM
``memory``          what lies below the SMs, with ``residency``
==================  ==============================================================================================
"""

from gpusim.reference.core import beyond_core, core_only
from gpusim.reference.kernel import Answer, simulate

__all__ = ["Answer", "beyond_core", "core_only", "simulate"]
