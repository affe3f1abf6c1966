"""Plots of predictions, layouts and measurements. No other folder imports matplotlib.

In: results and layouts. Out: SVG or PNG files.
"""
