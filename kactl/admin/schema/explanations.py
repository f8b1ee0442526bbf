"""Why things are as they are."""

from typing import Literal

from .words import Answer, AsOf, BrokerStateName


class CandidateInfo(Answer, frozen=True):
    """One replica, in assignment order. `verdict`: whether it leads, could, or cannot, and why."""

    broker: int
    broker_state: BrokerStateName
    in_sync: bool
    directory_failed: bool
    may_lead: bool
    verdict: str


class PartitionExplanation(Answer, frozen=True):
    """Why a partition is led by whom it is led.

    Attributes:
        remedies: what a person can do about it; empty where all is well.
        reassignment: what a move that is going on waits for; null if none is.
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
    """How a topic's deletion stands.

    Attributes:
        deletion: none is asked for; it waits; or replicas are being deleted.
        waits_for: what it waits for, and what would unblock it.
    """

    topic: str
    deletion: Literal["none", "halted", "running"]
    waits_for: tuple[str, ...]
    as_of: AsOf
