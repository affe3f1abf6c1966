"""Analyses over several simulations: counterfactuals (which fix helps) and sweeps (which configuration is best).

In: launches, options, GPUs. Out: ranked answers.
"""
