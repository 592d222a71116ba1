"""What a graph loses with one of its nodes or links, and which links to add, in plain Python.

A running daemon asks this of its own mesh, so everything is made in steps and needs no numpy. The
analysis of edge lists finds blocks its own way, for graphs of millions, and shares what chooses the
links to add.
"""
