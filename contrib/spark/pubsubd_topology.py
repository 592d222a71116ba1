"""The analysis of meshes for plain spark-submit, beside ``pubsubd topology``.

    spark-submit --master URL contrib/spark/pubsubd_topology.py INPUT... --out DIR

The arguments are those of ``pubsubd topology``; where Spark runs, and with how much memory, are
spark-submit's, such as ``--driver-memory 2g --executor-memory 4g``. Its pyspark has to be the
version that pubsubd is installed with, and the workers' Python (``PYSPARK_PYTHON``) needs
``pip install 'pubsubd[topology]'`` as well. INPUT and DIR are read and written by the workers:
they have to be where all of them see the same, such as ``s3a://`` or a shared file system.
"""

import sys

from pubsubd.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["topology"]
    sys.exit(main([]))
