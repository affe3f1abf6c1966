"""Predictions held against what was published or measured.

In: kernel models, GPUs, tables under ``validation/``. Out: tables. Nothing flows back into the model.
"""
