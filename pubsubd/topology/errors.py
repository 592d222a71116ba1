"""What the analysis cannot go on with, in one line."""

from pubsubd.protocol.errors import PubsubdError


class TopologyError(PubsubdError):
    """An analysis that cannot go on, told in one line to who asked for it."""
