"""The bench: launches kernels on this GPU, times them, and reads Nsight Compute's counters.

In: cases. Out: rows. No other folder uses a GPU.
"""
