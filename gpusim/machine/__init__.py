"""Parts of a GPU: their parameters, counters and layout on the chip.

In: a GPU's description (``configs/<gpu>.toml``). Out: a :class:`~gpusim.machine.config.GpuSpec`, from which the engine
takes its constants. Knows no kernels.
"""
