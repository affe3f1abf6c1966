"""The vocabulary of kernels: dtypes, atoms, access patterns, ops, Launch.

In: shapes, layouts, addresses. Out: records and pure functions of them. Knows no time and no machine.
"""
