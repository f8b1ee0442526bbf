"""Verbs of scripts: the effects of actions on a simulated cluster.

A verb is a function of the cluster and the action's arguments. It returns at once: what lasts longer runs in tasks of
its own. It raises `Skipped` if its target does not exist.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.sim.engine.cluster import SimulatedCluster

from . import brokers, faults, operators, stores, topics

Verb = Callable[[SimulatedCluster, Mapping[str, Any]], None]

VERBS: Final[Mapping[str, Verb]] = {
    **{name: verb for module in (faults, stores, topics, operators, brokers) for name, verb in module.VERBS.items()}
}
"""All verbs by name."""
