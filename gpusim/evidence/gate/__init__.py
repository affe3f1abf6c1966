"""The gate: compares an Nsight Compute profile with predictions, or with an older profile.

In: profiles and models. Out: verdicts and an exit status.
"""
