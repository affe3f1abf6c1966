"""What people see: tables, counterfactuals, traces, pictures.

A Result or an Explanation comes in, text or a file goes out. Knows what a simulation answers and nothing of how it was
found; changes no number.
"""
