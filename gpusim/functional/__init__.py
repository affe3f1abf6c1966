"""Functional mode: launches run on real bytes, without time.

In: a launch whose ops say which elements they access, and arrays. Out: arrays, or the first wrong element.
"""
