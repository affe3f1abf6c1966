"""Output for users: tables, counterfactuals, Perfetto traces, plots.

In: a Result or an Explanation. Out: text or a file. It uses the results of a simulation, not the simulator, and changes no
number.
"""
