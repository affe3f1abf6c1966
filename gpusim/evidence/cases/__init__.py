"""Cases of measuring kernels: their configs, launches, models and measured rows.

In: folders of ``kernels/``, tables under ``validation/measured``. Out: cases and rows. Needs no GPU.
"""
