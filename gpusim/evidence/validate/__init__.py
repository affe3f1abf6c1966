"""Predictions held against measured and published rows; parameters calibrated from microbenchmarks.

In: rows and GPUs. Out: errors by family, expected errors, fitted parameters.
"""
