"""Fusion boundaries by measurement: a traced graph comes in; which of its nodes one kernel computes together, and which
are left to Inductor, is decided by racing whole chains, proved and kept in the store.

``words`` reads nodes, ``templates`` and ``products`` find what our operators cover (``found``), ``plan`` lists
partitions and rewrites graphs, ``parts`` times what partitions are made of, ``forms`` and ``whole`` run a graph as its
program would, ``choice`` races the best partitions, ``story`` tells about it (``kept``: by
a record), ``page`` draws it.
"""

from .choice import backend
from .front import Fused, fuse
from .page import report_graphs
from .story import Decision, graphs

__all__ = ["Decision", "Fused", "backend", "fuse", "graphs", "report_graphs"]
