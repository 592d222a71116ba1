"""The analysis of meshes for plain spark-submit, beside ``pubsubd topology``.

    spark-submit --master URL contrib/spark/pubsubd_topology.py INPUT... --out DIR

The arguments are those of ``pubsubd topology``; where Spark runs, and with how much memory, are
spark-submit's, such as ``--driver-memory 2g --executor-memory 4g``. Its pyspark has to be the
version that pubsubd is installed with, and the workers' Python (``PYSPARK_PYTHON``) needs
``pip install '.[topology]'``, in a checkout, as well. The workers read INPUT, which may be
``s3a://`` or what else Spark knows, and write to DIR, which is a directory that they all share with
this machine, or a URL.
"""

import sys

from pubsubd.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["topology"]
    sys.exit(main([]))
