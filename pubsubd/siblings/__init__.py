"""Workers of one daemon: what is published at one reaches subscribers of all, without I/O.

Each worker has a link to each other one, which it shares nothing else with. All names are of
interest between them, and what has come from one is never sent on to another.
"""
