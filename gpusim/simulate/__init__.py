"""Simulation of a launch on a GPU: L2 traffic plan, event simulation, SM clock.

In: a Launch and a GpuSpec. Out: a Result. Knows no kernel models, no reports, no measurements.
"""
