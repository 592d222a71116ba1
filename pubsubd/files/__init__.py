"""Files that are written whole, and removed by the process that has made them alone."""
