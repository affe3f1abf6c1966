"""Parameters and counters of an SM's parts besides its memory.

In: a GPU's description. Out: Specs, occupancy, and counters that the engine fills. Knows no kernels.
"""
