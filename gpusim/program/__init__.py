"""Programs as records: what the roles of a launch do, written down before anything is timed.

In: a Launch, whose roles are generators of ops. Out: flat records, one list of them for each class of CTAs.
Knows no time and no machine.
"""
