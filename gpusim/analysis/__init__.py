"""Questions that take several simulations: which change would help, which configuration is best.

In: launches, options, GPUs. Out: ranked answers.
"""
