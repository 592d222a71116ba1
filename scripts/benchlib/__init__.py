"""The parts of ``scripts/bench``, one idea a file; nothing but the standard library.

``protocols``
    the bytes each server's clients send and receive
``websocket``
    WebSocket frames, as clients send them and as servers' are counted
``hubwires``
    the same as ``protocols`` over WebSocket, and in JSON
``minimal``
    a server of its own: the least that pub/sub over WebSocket takes
``servers``
    starting and ending the measured servers
``links``
    blocking connections: handshake, subscribing, pings
``traffic``
    the load generator's hot loop
``meshservers``
    several servers linked with one another, and when they are ready
``meter``
    who used the processor meanwhile
``floors``, ``relay.c``, ``relay.py``
    the least that one process can do
``certificate``
    what servers with TLS need
``probe``
    one message at a time
``runners``, ``latency``, ``handshakes``
    how each kind of case is measured on one server
``hubrunners``
    the same for the hub port
``cases``
    what is measured on the line port, and what is asked of it
``hubcases``
    the same for the hub port, and all cases in their groups
``meshcases``
    what is measured over links between servers, and how
``report``
    medians, ratios, the table and the JSON
``readme``
    the tables of README
``profiles``
    what perf and py-spy have seen, for ``scripts/profile``
"""
