"""Who gets a message: substrings, wildcards, names."""
