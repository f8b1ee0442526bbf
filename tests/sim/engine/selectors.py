"""Selectors: names of targets in scripts, resolved when an action happens.

broker 4, any broker #7, any live broker #7, leader of t1-0, follower of t1-0
controller 100, any controller #3, active controller, deposed controller
t1-0, any partition #7, any imbalanced partition #7, any topic #2
any partition ~7, any topic ~2

`#7` is the one at that position of all. `~7` is one chosen by its own name: as long as it exists it stays the same one,
whatever else begins or ends to exist, so that several actions of a script have the same target.
"""

import hashlib
from typing import TypeVar

from kactl.model import TopicPartition

from .brokers import SimulatedBroker
from .cluster import ControllerMember, SimulatedCluster
from .member import Member

T = TypeVar("T")


class Skipped(Exception):
    """The target of an action does not exist now."""


def member(cluster: SimulatedCluster, text: str) -> Member:
    """Returns the selected member. Raises Skipped."""
    if text == "node at point":
        node = cluster.points.node
        found = None if node is None else cluster.member(node.name)
        if found is None:
            raise Skipped("no point is being executed")
        return found
    return controller(cluster, text) if "controller" in text else broker(cluster, text)


def broker(cluster: SimulatedCluster, text: str) -> SimulatedBroker:
    """Returns the selected broker. Raises Skipped."""
    brokers = cluster.fleet.brokers
    kind, _, rest = text.rpartition(" ")
    match kind:
        case "broker":
            found = brokers.get(int(rest))
        case "any broker":
            found = _nth(list(brokers.values()), rest)
        case "any live broker":
            found = _nth(cluster.fleet.running(), rest)
        case "leader of" | "follower of":
            name = partition(cluster, rest)
            held = cluster.stored.leaderships().get(name)
            leader = held.leader if held is not None else -1
            replicas = cluster.stored.assignments()[name].replicas
            others = [each for each in replicas if each != leader]
            found = brokers.get(leader) if kind == "leader of" else brokers.get(others[0]) if others else None
        case _:
            raise ValueError(f"{text!r} selects no broker")
    if found is None:
        raise Skipped(f"there is no {text} now")
    return found


def controller(cluster: SimulatedCluster, text: str) -> ControllerMember:
    """Returns the selected controller instance. Raises Skipped."""
    found: ControllerMember | None
    if text == "active controller":
        found = cluster.active
    elif text == "node at point":
        node = cluster.points.node
        found = next((each for each in cluster.controllers.values() if each.node is node), None)
    elif text == "deposed controller":
        active = cluster.active
        deposed = [each for each in cluster.controllers.values() if each.is_active and each is not active]
        found = deposed[0] if deposed else None
    elif text.startswith("any controller "):
        found = _nth(list(cluster.controllers.values()), text.removeprefix("any controller "))
    elif text.startswith("controller "):
        found = cluster.controllers.get(int(text.removeprefix("controller ")))
    else:
        raise ValueError(f"{text!r} selects no controller")
    if found is None:
        raise Skipped(f"there is no {text} now")
    return found


def partition(cluster: SimulatedCluster, text: str) -> TopicPartition:
    """Returns the selected partition, which exists. Raises Skipped."""
    present = sorted(cluster.stored.assignments())
    if text.startswith("any partition "):
        found = _nth(present, text.removeprefix("any partition "))
    elif text.startswith("any imbalanced partition "):
        found = _nth(_imbalanced(cluster), text.removeprefix("any imbalanced partition "))
    else:
        named = TopicPartition.parse(text)
        found = named if named in present else None
    if found is None:
        raise Skipped(f"there is no {text} now")
    return found


def _imbalanced(cluster: SimulatedCluster) -> list[TopicPartition]:
    """Returns the partitions that their preferred replica does not lead, though it is in sync."""
    led, found = cluster.stored.leaderships(), []
    for name, assignment in sorted(cluster.stored.assignments().items()):
        held, preferred = led.get(name), assignment.replicas[0] if assignment.replicas else -1
        if held is not None and held.leader != preferred and preferred in held.isr:
            found.append(name)
    return found


def topic(cluster: SimulatedCluster, text: str) -> str:
    """Returns the selected topic, which exists. Raises Skipped."""
    present = sorted(cluster.stored.topics())
    if text.startswith("any topic "):
        found = _nth(present, text.removeprefix("any topic "))
    else:
        found = text if text in present else None
    if found is None:
        raise Skipped(f"there is no {text} now")
    return found


def _nth(items: list[T], number: str) -> T | None:
    if number.startswith("~"):
        return max(items, key=lambda item: hashlib.blake2b(f"{number}/{item}".encode()).digest(), default=None)
    return items[int(number.removeprefix("#")) % len(items)] if items else None
