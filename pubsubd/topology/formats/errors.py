"""Errors of files that are not what they look like."""


class FormatError(Exception):
    """A file cannot be read as its format; the message is part of a line, without the file."""


class UnevenError(FormatError):
    """A list has a few rows of another width than the others."""
