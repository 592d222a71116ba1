"""How many examples Hypothesis tries: all with ``scripts/test --thorough``, fewer otherwise."""

from __future__ import annotations

from hypothesis import settings

_STANDARD = 100  # examples of a property that asks for no number, without a profile


def examples(count: int) -> int:
    """Return ``count`` as the profile scales it, so that ``fast`` is fast here too."""
    return max(1, count * settings.default.max_examples // _STANDARD)
