"""Simulated clusters that run users' own programs: controllers and participants, each on a node of its own."""

from .nemesis import FAULTS
from .simulated import ClusterNode, SimCluster
from .simulation import Simulation

__all__ = ["FAULTS", "ClusterNode", "SimCluster", "Simulation"]
