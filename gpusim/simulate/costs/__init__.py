"""What each op costs: one function an op, ``cost(role, op)``, which moves the role's cursor and the machine's pipes.

In: a role and an op. Out: what the role has to wait for, if anything. ``simulate/warp.py`` is their table.
"""
