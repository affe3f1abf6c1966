"""Accesses to global memory: sectors, lines, and what copies fetch.

In: addresses of warps. Out: requests, sectors, access patterns.
"""
