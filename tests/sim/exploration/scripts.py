"""Counterexamples as scripts of the simulator.

The faults and requests of a trace become actions, in their order. What follows from them (elections, commits,
deliveries, proposals) is left to the run: a script tries the same situation, and other seeds of its schedule try the
interleavings around it.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.sim.engine.script import Action, BrokersSpec, LatencySpec, LivenessSpec, Script, WorldSpec

from .components import members
from .explorer import Trace
from .model import Model

PARTITION: Final = "t-0"
# Brokers of the model count from 0, those of the simulator from 1.
FIRST_BROKER: Final = 1
# The first action happens when the cluster is at rest.
BEGIN_MS: Final = 10_000.0
SPACING_MS: Final = 20.0


def script_of(model: Model, trace: Trace, *, name: str) -> Script:
    """Returns a script with the faults and requests of a trace."""
    store, _, _ = model.components(trace.states[0])
    assignment = model.assignments.all[store.assignment]
    origin = [broker + FIRST_BROKER for broker in assignment.origin]
    actions = [Action("create", args={"topic": "t", "replicas": [origin]})]
    at_ms = BEGIN_MS
    if assignment.is_being_reassigned:
        target = [broker + FIRST_BROKER for broker in assignment.target]
        actions.append(Action("reassign", at_ms=at_ms, args=_asked({"targets": {PARTITION: target}})))
    for broker in members(model.assignments.masks[store.assignment].replicas & ~store.isr):
        node = f"broker {broker + FIRST_BROKER}"
        actions.append(Action("pause", at_ms=at_ms, args={"node": node, "for_ms": 2_000.0}))
    for label in trace.labels:
        at_ms += SPACING_MS
        actions += [Action(do, at_ms=at_ms, args=args) for do, args in _actions(label)]
    return Script(
        name=name,
        world=WorldSpec(brokers=BrokersSpec(kind="model", count=3), controllers=2),
        latency=LatencySpec(store_ms=(1.0, 8.0), network_ms=(1.0, 8.0)),
        duration_ms=at_ms + 30_000.0,
        actions=actions,
        liveness=LivenessSpec(),
        expect=f"{trace.found.invariant}",
    )


def _asked(args: dict[str, Any]) -> dict[str, Any]:
    return {**args, "to": "active controller"}


def _node(number: str) -> str:
    return f"broker {int(number) + FIRST_BROKER}"


_PATTERNS: Final[tuple[tuple[str, Callable[[re.Match[str]], tuple[str, dict[str, Any]]]], ...]] = (
    (r"^(\d) crashes", lambda m: ("kill", {"node": _node(m[1]), "restart_after_ms": 3_000.0})),
    (r"^the session of (\d) ends", lambda m: ("expire", {"node": _node(m[1]), "notify_after_ms": 100.0})),
    (r"^loses its session", lambda m: ("expire", {"node": "active controller", "notify_after_ms": 200.0})),
    (r"is asked to shut down (\d)", lambda m: ("leave", _asked({"broker": _node(m[1])}))),
    (
        r"is asked to reassign to \((.*?),?\)",
        lambda m: (
            "reassign",
            _asked({"targets": {PARTITION: [int(broker) + FIRST_BROKER for broker in m[1].split(",")]}}),
        ),
    ),
    (r"is asked to cancel", lambda m: ("cancel", _asked({"partition": 0}))),
    (
        r"is asked for an? (\w+) election",
        lambda m: ("elect", _asked({"kind": m[1], "partitions": [PARTITION]})),
    ),
    (r"no response", lambda m: ("cut store", {"node": "active controller", "direction": "in", "for_ms": 300.0})),
    (r"doubled", lambda m: ("cut", {"node": "active controller", "direction": "in", "for_ms": 300.0})),
)


def _actions(label: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for pattern, action in _PATTERNS:
        match = re.search(pattern, label)
        if match is not None:
            yield action(match)
