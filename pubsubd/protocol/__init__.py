"""Grammar of the line protocol, errors and limits."""
