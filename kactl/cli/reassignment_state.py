"""State of reassignments compared with their targets."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from kactl.admin.schema import PartitionInfo, ReassignmentTarget

from .api_client import Api


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
    for topic in dict.fromkeys(target.topic for target in wanted):
        known |= {(item.topic, item.partition): item for item in api.partitions({"topic": topic})[0]}
    return [_standing(target, known.get((target.topic, target.partition))) for target in wanted]


def _standing(target: ReassignmentTarget, info: PartitionInfo | None) -> Standing:
    wanted = tuple(target.replicas or ())
    if info is None:
        return Standing(target.topic, target.partition, wanted, (), "unknown")
    replicas = tuple(broker for broker in info.replicas if broker not in info.removing)
    state: Literal["complete", "moving", "elsewhere"] = "elsewhere"
    if info.adding or info.removing:
        state = "moving"
    elif replicas == wanted:
        state = "complete"
    return Standing(target.topic, target.partition, wanted, replicas, state)
