"""Validation of predictions on measured and published rows, and calibration of GPU parameters from microbenchmarks.

In: rows and GPUs. Out: errors by family, expected errors, fitted parameters.
"""
