"""Figures of one window's graph, computed with numpy, scipy and networkit, without Spark.

Everything takes a :class:`~pubsubd.topology.kernel.graph.Graph` and returns plain numbers and
arrays, the same ones for the same graph and seed. Nothing recurses and nothing goes round a level
or a daemon at a time in Python, so a path of 100,000 daemons is as good as a mesh.
"""
