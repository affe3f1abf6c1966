"""L2 and memory traffic of each tile, from the order of CTAs alone. Nothing is timed.

In: footprints of a launch, capacity of L2. Out: misses and write-backs by wave.
"""
