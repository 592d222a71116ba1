"""The error that ends an analysis."""

from pubsubd.protocol.errors import PubsubdError


class TopologyError(PubsubdError):
    """The analysis cannot go on; the message is one line for the user."""
