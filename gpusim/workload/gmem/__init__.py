"""Accesses to global memory: sectors, lines, and the fetches of copies.

In: addresses of warps. Out: requests, sectors, access patterns.
"""
