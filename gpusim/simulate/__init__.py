"""The engine: the only room that knows both what a kernel does and what a machine costs.

In: a Launch and a GpuSpec. Out: a Result. Knows no kernel models, no reports, no measurements.
"""
