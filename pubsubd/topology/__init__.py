"""The analysis of meshes: a Spark job that finds in edge lists where a mesh would break.

The daemon imports nothing of it, and it needs nothing of the daemon but the columns of its edge
lists (:mod:`pubsubd.mesh.edges`).
"""
