"""Deterministic simulation of programs of many nodes, for tests.

Product code never imports this package.
"""

from .clock import LoopClock
from .failures import Deadlock, Livelock, NonDeterministic, RealWorld, SimFailure, StepLimit, WaitingTask
from .loop import SimLoop
from .nodes import NODE, Node, NodeClock, on
from .schedule import Schedule
from .streams import Streams

__all__ = [
    "NODE",
    "Deadlock",
    "Livelock",
    "LoopClock",
    "Node",
    "NodeClock",
    "NonDeterministic",
    "RealWorld",
    "Schedule",
    "SimFailure",
    "SimLoop",
    "StepLimit",
    "Streams",
    "WaitingTask",
    "on",
]
