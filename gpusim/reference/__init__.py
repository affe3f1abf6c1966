"""Reference engine: the core of the GPU model in simpy, short enough to read in one sitting.

In: a Launch, and a GPU that has nothing beyond the core (``core``). Out: cycles and counters. It shares no code with the
native engine.

It is slow, and it is the reference: an engine is right where it gives the same cycles. Readers need CUDA and a little simpy.
Read the modules in this order:

* ``core``: mechanisms of a GPU in the core, and those left out.
* ``events``: waiting, with facts known in advance, and with pipes in order, with gaps, and shared.
* ``kernel``: dispatch of CTAs to SMs, their exit, and the end of the kernel.
* ``cta``: the process of a role, and the barriers and stages that roles of a CTA share.
* ``instructions``: time and resources of each op.
* ``sm``: the parts of an SM.
* ``memory``: crossbar ports, L2 and memory.
"""

from gpusim.reference.core import beyond_core, core_only
from gpusim.reference.kernel import Answer, simulate

__all__ = ["Answer", "beyond_core", "core_only", "simulate"]
