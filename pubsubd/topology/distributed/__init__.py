"""The graph of one window that has too many links for one worker.

What :mod:`pubsubd.topology.kernel` computes of such a graph in one place is computed here in rounds
over blocks of it, which the executors hold: see :mod:`pubsubd.topology.distributed.blocks`. The
figures are the same, but for what is left out (:mod:`pubsubd.topology.distributed.whole` tells).
"""
