"""Deterministic simulation of programs of many nodes, for tests.

Product code never imports this package.
"""

from .clock import LoopClock
from .failures import Deadlock, Livelock, NonDeterministic, RealWorld, SimFailure, StepLimit, WaitingTask
from .history import Event, History
from .loop import SimLoop
from .nodes import NODE, Node, NodeClock, on
from .schedule import Schedule
from .streams import Streams
from .violations import Checker, Violation, check

__all__ = [
    "NODE",
    "Checker",
    "Deadlock",
    "Event",
    "History",
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
    "Violation",
    "WaitingTask",
    "check",
    "on",
]
