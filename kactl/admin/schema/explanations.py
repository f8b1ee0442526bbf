"""Explanations of the state of partitions and topics."""

from typing import Literal

from .common import Answer, AsOf, BrokerStateName
from .topics import ShardInfo


class CandidateInfo(Answer, frozen=True):
    """One replica, in assignment order. `verdict`: whether it leads, could lead or cannot lead, and why.

    Of a shard: one participant, the owner first and the standbys after it. `in_sync`: it is one of these.
    `name`: of one that has not chosen its id; empty for others.
    """

    broker: int
    broker_state: BrokerStateName
    in_sync: bool
    directory_failed: bool
    may_lead: bool
    verdict: str
    name: str = ""


class PartitionExplanation(Answer, frozen=True):
    """The reason for a partition's present leader, or for its absence.

    Attributes:
        remedies: possible actions; empty if none is needed.
        reassignment: what its reassignment waits for; null if none is in progress.
        shard: of a partition of an ownership topic; null otherwise.
        since_ms: since when a shard has its owner, or none, and `trigger`: the event that has changed it; null and
            empty if that is not known any more, and for other partitions.
    """

    topic: str
    partition: int
    leader: int
    verdict: str
    remedies: tuple[str, ...]
    candidates: tuple[CandidateInfo, ...]
    reassignment: str | None
    as_of: AsOf
    shard: ShardInfo | None = None
    since_ms: int | None = None
    trigger: str = ""


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
