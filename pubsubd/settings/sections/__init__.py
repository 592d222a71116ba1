"""The settings, by sections of the manual page."""
