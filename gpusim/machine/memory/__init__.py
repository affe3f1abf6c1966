"""Parameters and counters of the memory hierarchy, from HBM to registers.

In: a GPU's description. Out: Specs, and counters that the engine fills. Knows no kernels.
"""
