"""Requested elections."""

from typing import Annotated, Literal

from msgspec import Meta

from .common import ELECTION_PARTITIONS_MAX, Answer, AsOf, ElectionType, PartitionName, Question, Reason


class ElectionRequest(Question, frozen=True):
    """Elect leaders of the named partitions, or of `all` that need it. Exactly one of the two is given."""

    type: ElectionType
    partitions: Annotated[list[PartitionName], Meta(min_length=1, max_length=ELECTION_PARTITIONS_MAX)] | None = None
    all: bool = False
    dry_run: bool = False
    reason: Reason = ""


class ElectionResult(Answer, frozen=True):
    """Result for one partition; in a dry run, the expected result.

    Attributes:
        error_code, error_name: Kafka's; 0 and NONE if ok.
        leader: after the election; `previous`: the leader before it.
    """

    topic: str
    partition: int
    outcome: Literal["ok", "not_needed", "failed"]
    error_code: int
    error_name: str
    message: str
    leader: int
    previous: int


class ElectionAnswer(Answer, frozen=True):
    """One result for each requested partition; with `all`, partitions that need no election are omitted."""

    type: ElectionType
    dry_run: bool
    results: tuple[ElectionResult, ...]
    as_of: AsOf
