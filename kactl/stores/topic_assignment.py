"""The assignment of one topic as columns, and of many topics as one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from kactl.model import NO_BROKER, Assignment, TopicPartition, TopicRef
from kactl.state.rows import Bools, Ints

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
        columns = Assignments.of({TopicPartition("", partition): held for partition, held in assignment.items()})
        return cls(columns.partition, columns.replicas, columns.adding, columns.removing)


def split(assignments: Assignments) -> list[TopicAssignment]:
    """The piece of each of `assignments.topics`, in their order."""
    order = np.argsort(assignments.topic, kind="stable")
    bounds = np.searchsorted(assignments.topic[order], np.arange(len(assignments.topics) + 1))
    pieces = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[begin:end]
        pieces.append(
            TopicAssignment(
                assignments.partition[rows],
                assignments.replicas[:, rows],
                assignments.adding[:, rows],
                assignments.removing[:, rows],
            )
        )
    return pieces


def join(topics: Sequence[TopicRef], pieces: Sequence[TopicAssignment]) -> Assignments:
    """The assignments of some topics, piece by piece."""
    sizes = np.array([len(piece) for piece in pieces], np.int32)
    count = int(sizes.sum())
    width = max((len(piece.replicas) for piece in pieces if len(piece)), default=0)
    whole = Assignments(
        topics=tuple(topics),
        topic=np.repeat(np.arange(len(topics), dtype=np.int32), sizes),
        partition=np.empty(count, np.int32),
        replicas=np.full((width, count), NO_BROKER, np.int32),
        adding=np.zeros((width, count), np.bool_),
        removing=np.zeros((width, count), np.bool_),
    )
    begin = 0
    for piece in pieces:
        end = begin + len(piece)
        if end > begin:
            slots = len(piece.replicas)
            whole.partition[begin:end] = piece.partition
            whole.replicas[:slots, begin:end] = piece.replicas
            whole.adding[:slots, begin:end] = piece.adding
            whole.removing[:slots, begin:end] = piece.removing
        begin = end
    return whole
