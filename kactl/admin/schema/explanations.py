"""Explanations of the state of partitions and topics."""

from typing import Literal

from .common import Answer, AsOf, BrokerStateName


class CandidateInfo(Answer, frozen=True):
    """One replica, in assignment order. `verdict`: whether it leads, could lead or cannot lead, and why."""

    broker: int
    broker_state: BrokerStateName
    in_sync: bool
    directory_failed: bool
    may_lead: bool
    verdict: str


class PartitionExplanation(Answer, frozen=True):
    """The reason for a partition's present leader, or for its absence.

    Attributes:
        remedies: possible actions; empty if none is needed.
        reassignment: what its reassignment waits for; null if none is in progress.
    """

    topic: str
    partition: int
    leader: int
    verdict: str
    remedies: tuple[str, ...]
    candidates: tuple[CandidateInfo, ...]
    reassignment: str | None
    as_of: AsOf


class TopicExplanation(Answer, frozen=True):
    """Progress of a topic's deletion.

    Attributes:
        deletion: not requested; halted; or replicas are being deleted.
        waits_for: what it waits for, and how to unblock it.
    """

    topic: str
    deletion: Literal["none", "halted", "running"]
    waits_for: tuple[str, ...]
    as_of: AsOf
