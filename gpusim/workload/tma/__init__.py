"""TMA: boxes, tensor maps, and the partition of a shared-memory tile into boxes.

In: layouts and tensors. Out: boxes and descriptors.
"""
