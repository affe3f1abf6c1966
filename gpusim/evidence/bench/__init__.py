"""The bench: launch kernels on the GPU that is here, time them, read its counters.

In: cases. Out: rows. The only drawer that touches a GPU.
"""
