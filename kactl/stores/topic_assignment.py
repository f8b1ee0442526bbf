"""Assignment of a single topic as columns; conversion from and to the assignments of many topics."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from kactl.decide.state.rows import Bools, Ints
from kactl.model import NO_BROKER, Assignment, TopicPartition, TopicRef

from .base import Assignments


@dataclasses.dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The m partitions of one topic; shapes as in `Assignments`."""

    partition: Ints
    replicas: Ints
    adding: Bools
    removing: Bools

    def __len__(self) -> int:
        return len(self.partition)

    @classmethod
    def of(cls, assignment: Mapping[int, Assignment]) -> Self:
        columns = Assignments.of(
            {TopicPartition("", partition): replicas for partition, replicas in assignment.items()}
        )
        return cls(columns.partition, columns.replicas, columns.adding, columns.removing)


def split(assignments: Assignments) -> list[TopicAssignment]:
    """Returns the assignment of each of `assignments.topics`, in their order."""
    order = np.argsort(assignments.topic, kind="stable")
    bounds = np.searchsorted(assignments.topic[order], np.arange(len(assignments.topics) + 1))
    parts = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[begin:end]
        parts.append(
            TopicAssignment(
                assignments.partition[rows],
                assignments.replicas[:, rows],
                assignments.adding[:, rows],
                assignments.removing[:, rows],
            )
        )
    return parts


def join(topics: Sequence[TopicRef], parts: Sequence[TopicAssignment]) -> Assignments:
    """Returns the assignments of several topics as one set of columns."""
    sizes = np.array([len(part) for part in parts], np.int32)
    count = int(sizes.sum())
    width = max((len(part.replicas) for part in parts if len(part)), default=0)
    whole = Assignments(
        topics=tuple(topics),
        topic=np.repeat(np.arange(len(topics), dtype=np.int32), sizes),
        partition=np.empty(count, np.int32),
        replicas=np.full((width, count), NO_BROKER, np.int32),
        adding=np.zeros((width, count), np.bool_),
        removing=np.zeros((width, count), np.bool_),
    )
    begin = 0
    for part in parts:
        end = begin + len(part)
        if end > begin:
            slots = len(part.replicas)
            whole.partition[begin:end] = part.partition
            whole.replicas[:slots, begin:end] = part.replicas
            whole.adding[:slots, begin:end] = part.adding
            whole.removing[:slots, begin:end] = part.removing
        begin = end
    return whole
