"""The synchronous core: peers, what they say, and what that leads to."""
