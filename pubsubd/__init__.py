"""pubsubd: a pub/sub daemon that a person can talk to with ``nc``."""

__version__ = "0.1.0"
