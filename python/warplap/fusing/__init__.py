"""Fusion boundaries by measurement: a traced graph comes in; which of its nodes one kernel computes together, and which
are left to Inductor, is decided by racing whole chains, proved and kept in the store.

``node_kinds`` reads nodes, ``patterns`` finds what our operators cover (``match``), ``plan`` lists partitions and
rewrites graphs, ``parts`` times what partitions are made of, ``forms`` and ``whole`` run a graph as its program would,
``choice`` races the best partitions, ``explain`` says what was decided (``recorded_times``: by a record), ``page``
draws it.
"""

from .api import Fused, fuse
from .explain import Decision, graphs
from .page import report_graphs
from .race.choice import backend

__all__ = ["Decision", "Fused", "backend", "fuse", "graphs", "report_graphs"]
