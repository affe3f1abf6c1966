"""Nsight Compute: its command line, and the profiles that it writes.

In: files and processes of ``ncu``. Out: metrics by launch.
"""
