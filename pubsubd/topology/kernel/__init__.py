"""Figures of one window's graph, computed with numpy, scipy and networkit, without Spark.

Everything takes a :class:`~pubsubd.topology.kernel.graph.Graph` and returns plain numbers and
arrays, the same ones for the same graph and seed. Nothing recurses and nothing goes round a level
or a daemon at a time in Python, so a path of 100,000 daemons is as good as a mesh.
"""

import sys

# What networkit would draw and convert with takes twice as long to import as networkit does. It
# goes without any that is not installed.
_hidden = {
    name: None
    for name in ("matplotlib.pyplot", "networkx", "seaborn", "tabulate")
    if name not in sys.modules
}
sys.modules.update(_hidden)  # type: ignore[arg-type]
try:
    import networkit  # noqa: F401
finally:
    for _name in _hidden:
        del sys.modules[_name]
