"""Compiled kernels: nvcc, SASS, register banks, names of cuBLAS kernels.

In: cubins and names. Out: instructions, registers, tiles. Runs nothing on a GPU.
"""
