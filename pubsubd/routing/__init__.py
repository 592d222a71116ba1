"""Routing: which peers get a message, by substrings, wildcards and names."""
