"""What hostile clients may make a daemon keep, in bytes, and others wait, in milliseconds.

By its documented limits, or where those who wait cause so much themselves.

Whatever no page gives a figure for is not here: it has to do with the 64 MiB that each attack has.
"""

from __future__ import annotations

from soaklib.wires import KIB, MIB

# pubsubd-operations(7), "Memory", and what stands there on sizing MemoryMax.
CONNECTION = 10 * KIB
HANDSHAKE = 58 * KIB
"""One of TLS that has come in part."""
DEEP_WILDCARD = 20 * KIB
"""One of 1,000 bytes and 32 levels."""
CACHES = 85 * MIB
"""Names and headers that are remembered."""
PAYLOAD = MIB + 10 * KIB
"""A message that has come in part."""
PENDING = 8 * MIB + 256 * KIB
"""What waits for a connection of the line port."""
HUB_PENDING = MIB + 256 * KIB
SUBSTRING = 240
"""One of 24 bytes."""
SUBSCRIPTIONS = 1_000_000 * 300
"""All there may be."""
LONG_SUBSTRING = 3 * KIB
"""One of 1,000 bytes."""

# pubsubd-hub(7), "LIMITS".
DETAILS = 128 * MIB
"""What all actors tell about themselves."""

# pubsubd-mesh(7).
DAEMON = 2 * KIB
"""Another daemon of the mesh."""
BATCH = 64 * MIB
HELD = 64 * MIB
"""Messages to actors that wait for earlier ones."""
ACTORS = 200_000 * KIB
"""All actors of other daemons, besides what they tell about themselves."""

# Milliseconds.
STALL = 250
"""``stall_timeout``: publishers wait so long for a consumer that takes nothing."""
SEND = 0.02
"""One message to one of many receivers."""
SEND_LARGE = 0.2
"""One message of 1 MiB to one of many receivers: the system copies it."""
TURN = 5
"""One of a connection, or of a worker's to another one, that has always something to say."""
END = 0.01
"""The loop is told that a connection has ended: of all that end at once before anything else."""

# Without a figure.
ACTOR = 0
"""Besides what it tells about itself."""
TOPIC = 0
WILDCARD = 0
SUBSCRIBER = 0
"""One of Synap's without a connection."""
