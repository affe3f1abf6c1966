"""Pictures of predictions, layouts and measurements. The only folder that imports matplotlib.

In: results and layouts. Out: SVG or PNG files.
"""
