"""What is inside an SM and is no memory.

In: the GPU's description, work in instructions. Out: cycles, counters. Knows no kernels.
"""
