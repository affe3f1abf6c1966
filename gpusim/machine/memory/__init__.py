"""The memory hierarchy, from HBM to registers.

In: the GPU's description, requests in bytes. Out: cycles, counters. Knows no kernels.
"""
