"""The parts of ``scripts/soak`` and ``scripts/chaos``, one idea a file.

``wires``
    where to connect and how, and what is said there
``daemons``
    real daemons: starting, asking, killing and starting them again, alone and as a mesh
``workers``
    processes of the generator, and how they are told what to do
``streams``
    numbered messages, and the check that none is lost, doubled, out of order or changed
``traffic``
    a worker: publishers and healthy subscribers
``probes``
    a worker: how long a message takes while all else happens
``pings``
    a worker: how long a client waits for its own message, on each port
``crowd``
    a worker: connections that come and go, and those that do not behave
``verdict``
    what was seen, and whether that is as it should be
``churn``
    the soak
``scenarios``
    what ``scripts/chaos`` does, a file for each
``attacks``
    what is done to a daemon in the scenario ``hostile``, by what it is aimed at
"""
