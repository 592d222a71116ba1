"""The daemon's settings: one table, of which flags, variables, the file and its page are made."""
