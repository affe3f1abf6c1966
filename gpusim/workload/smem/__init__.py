"""Accesses to shared memory: addresses, banks, wavefronts, bank conflicts and their fixes.

In: layouts and instructions. Out: wavefronts and access patterns.
"""
