"""State of reassignments compared with their targets."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from kactl.admin.schema import PartitionInfo, ReassignmentTarget

from .client import Api


class Standing(msgspec.Struct, frozen=True):
    """State of one partition.

    Attributes:
        wanted: the target replicas.
        replicas: the present replicas; during a reassignment, its target.
        state: complete; moving; elsewhere (other replicas, and not moving); unknown (no such partition).
    """

    topic: str
    partition: int
    wanted: tuple[int, ...]
    replicas: tuple[int, ...]
    state: Literal["complete", "moving", "elsewhere", "unknown"]


def standings(api: Api, targets: Iterable[ReassignmentTarget]) -> list[Standing]:
    """Returns the state of each target, in the same order."""
    wanted = list(targets)
    known: dict[tuple[str, int], PartitionInfo] = {}
    for topic in dict.fromkeys(each.topic for each in wanted):
        known |= {(each.topic, each.partition): each for each in api.partitions({"topic": topic})[0]}
    return [_standing(each, known.get((each.topic, each.partition))) for each in wanted]


def _standing(asked: ReassignmentTarget, info: PartitionInfo | None) -> Standing:
    target = tuple(asked.replicas or ())
    if info is None:
        return Standing(asked.topic, asked.partition, target, (), "unknown")
    going = tuple(broker for broker in info.replicas if broker not in info.removing)
    state: Literal["complete", "moving", "elsewhere"] = "elsewhere"
    if info.adding or info.removing:
        state = "moving"
    elif going == target:
        state = "complete"
    return Standing(asked.topic, asked.partition, target, going, state)
