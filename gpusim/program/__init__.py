"""Traced programs: the ops of each role of a launch as flat records, before anything is timed.

In: a Launch, whose roles are generators of ops. Out: flat records, one list for each class of CTAs. Knows no time and no
machine.
"""
