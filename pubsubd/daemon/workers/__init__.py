"""Several processes that are one daemon: a supervisor, and the workers that it starts."""
