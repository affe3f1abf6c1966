"""What each measuring kernel is to the bench and to the judge: its configs, its launch, its model, its measured rows.

In: folders of ``kernels/``, tables under ``validation/measured``. Out: cases and rows. Knows no GPU.
"""
