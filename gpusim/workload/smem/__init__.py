"""Accesses to shared memory: addresses, banks, wavefronts, conflicts and what removes them.

In: layouts and instructions. Out: wavefronts and access patterns.
"""
