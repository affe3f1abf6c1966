"""Main loop of an MMA kernel: the shape of its tiles, the ring of stages, copies, fragments, and the epilogue.

Nothing here knows a GEMM. A kernel gives a :class:`~gpusim.kernel_models.mainloop.shape.MainloopShape`, and a
:class:`~gpusim.kernel_models.mainloop.shape.OperandGrid` that says which part of A and B a tile reads.
"""
