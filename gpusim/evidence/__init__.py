"""Evidence for predictions: measurements, profiles and published numbers, and their comparison with the model.

In: kernel models, GPUs, tables under ``validation/``. Out: tables. The model depends on none of it.
"""
