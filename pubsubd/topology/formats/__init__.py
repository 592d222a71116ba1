"""Foreign formats of graphs: what a file is, by its first bytes, and its links.

Edge lists of daemons and plain lists of two columns are read by Spark where they are. All others
are converted here, before Spark starts, to Parquet files with the columns of
:data:`pubsubd.topology.formats.links.ARCS`, or refused by their names. No Spark is needed.

A link that its format calls undirected becomes two arcs.
"""
