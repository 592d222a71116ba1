"""What ``scripts/chaos faults`` is made of.

``injector``
    inside the daemon: which functions run, and one exception in one of them
``patching``
    how a function comes to raise once, and to be itself again
``victim``
    the daemon under test, seen from outside
``wire``
    connections of the load, in trio
``residents``
    publishers and subscribers that stay: numbered streams, in every dialect
``visitors``
    connections that come and go on the line port; ``hubvisitors`` those of the hub port
``load``
    a worker: all of these, and what became of them
"""
