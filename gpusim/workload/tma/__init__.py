"""TMA: boxes, tensor maps, and how a tile of shared memory becomes boxes.

In: layouts and tensors. Out: boxes and descriptors.
"""
