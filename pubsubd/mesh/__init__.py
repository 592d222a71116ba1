"""The mesh: daemons that carry each message once, and only to where somebody subscribes it.

================  ==================================================================
dial              the tasks with I/O: connect, retry, discover, export edge lists
report            answers about the mesh: peers, edges
core              one daemon's part in the mesh
advertising       adverts sent and received
forwarding        batches of messages: where they go, and duplicates
handshakes        new connections, until they are links or legacy peers
legacy            peers that know no hello
remote_interests  interests of other daemons, subscribed in the router
link              one connection to another daemon
linkstate         the table of adverts, the graph and the trees that follow from it
adverts, hello    two wire formats
sim               many daemons in one process
================  ==================================================================

``dial`` alone uses sockets and tasks.
"""
