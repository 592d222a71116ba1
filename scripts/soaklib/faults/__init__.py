"""What ``scripts/chaos faults`` is made of.

``injector``
    inside the daemon: which functions run, and one exception in one of them
``patching``
    how a function comes to raise once, and to be itself again
``victim``
    the daemon under test and its mesh, seen from outside
``doors``
    where it listens, and who may come in
``wire``
    connections of the load, in trio
``residents``
    publishers and subscribers that stay: numbered streams, in every dialect
``visitors``, ``hubvisitors``
    connections that come and go, on the line port and on the hub port
``reloads``
    settings that change, and links and users with them
``load``
    a worker: all of these, and what became of them
``judging``
    what may be seen after a fault, and what may not
"""
