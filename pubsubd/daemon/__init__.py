"""The daemon as a process: task tree, signals, reload, metrics."""
