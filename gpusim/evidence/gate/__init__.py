"""The gate: a profile of Nsight Compute held against predictions, or against an older profile.

In: profiles and models. Out: verdicts and an exit status.
"""
