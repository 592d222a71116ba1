"""The mesh: daemons that carry messages to each other, once each, and only where they are wanted.

``adverts`` is what they tell of themselves, ``linkstate`` the table of that and the trees it
leads to, ``window`` the guard against duplicates, ``interests`` what is asked for, ``hello`` how
two daemons come to trust each other; ``link`` is one connection between two, ``core`` the
daemon's own part in all of it. None of these does I/O; ``dial`` is the task that does.
"""
