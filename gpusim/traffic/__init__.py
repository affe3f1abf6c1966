"""What each tile reads and writes at L2 and memory, from the order of CTAs alone. Nothing is timed.

In: footprints of a launch, capacity of L2. Out: misses and write-backs by wave.
"""
