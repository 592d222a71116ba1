"""Sockets, TLS and the tasks around the protocols."""
