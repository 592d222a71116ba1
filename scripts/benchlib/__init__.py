"""The parts of ``scripts/bench``, one idea a file; nothing but the standard library.

``protocols``
    the bytes each server's clients send and receive
``servers``
    starting and ending the measured servers
``links``
    blocking connections: handshake, subscribing, pings
``traffic``
    the load generator's hot loop
``meter``
    who used the processor meanwhile
``runners``
    how each kind of case is measured on one server
``cases``
    what is measured, and what is asked of it
``report``
    medians, ratios, the table and the JSON
"""
