"""Reassignments: requests, plans and lists."""

from typing import Annotated, Literal

from msgspec import Meta

from .common import Answer, AsOf, Int32, Question, Reason

# Bound for one request; a body with this many targets fits the body limit.
REASSIGNED_MAX = 20_000
REPLICAS_MAX = 1000

Replicas = Annotated[list[Int32], Meta(max_length=REPLICAS_MAX)]


class ReassignmentTarget(Question, frozen=True):
    """The target replicas of a partition, the preferred leader first; null cancels its reassignment."""

    topic: str
    partition: Int32
    replicas: Replicas | None = None


class ReassignmentRequest(Question, frozen=True):
    """Move partitions to other replicas, or cancel such reassignments."""

    partitions: Annotated[list[ReassignmentTarget], Meta(min_length=1, max_length=REASSIGNED_MAX)]
    dry_run: bool = False
    reason: Reason = ""


class ReassignmentResult(Answer, frozen=True):
    """Result for one partition. `ok` means accepted, not completed.

    Attributes:
        error_code, error_name: Kafka's; 0 and NONE if ok.
        replicas, adding, removing: the state in which the reassignment begins, or would begin; empty if it failed.
    """

    topic: str
    partition: int
    outcome: Literal["ok", "failed"]
    error_code: int
    error_name: str
    message: str
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReassignmentAnswer(Answer, frozen=True):
    """One result for each partition, in the order of the request."""

    dry_run: bool
    results: tuple[ReassignmentResult, ...]
    as_of: AsOf


class ReassignmentInfo(Answer, frozen=True):
    """A reassignment in progress. `waits_for`: why it is not complete, and how to unblock it."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    waits_for: str


class CompletedReassignment(Answer, frozen=True):
    """A completed reassignment."""

    topic: str
    partition: int
    completed_ms: int


class ReassignmentList(Answer, frozen=True):
    """All reassignments in progress, sorted by name.

    Attributes:
        completed: number completed since this instance became the controller.
        last_completed: the last 100 of these, latest first.
    """

    items: tuple[ReassignmentInfo, ...]
    completed: int
    last_completed: tuple[CompletedReassignment, ...]
    as_of: AsOf


class ReassignmentPath(Question, frozen=True):
    """Selects a partition."""

    topic: str
    partition: Int32


class ReassignmentCancellation(Question, frozen=True):
    """Options of a cancellation."""

    dry_run: bool = False
    reason: Reason = ""


class PlanRequest(Question, frozen=True):
    """Compute an assignment with the fewest possible replica moves; nothing is moved.

    Attributes:
        topics: topics to plan; null for all that are not being deleted.
        brokers: target brokers; null for all live brokers.
        without: brokers to exclude, such as brokers to be decommissioned.
        replication_factor: null keeps that of each partition.
        balance: also balance replicas and preferred leaders.
    """

    topics: Annotated[list[str], Meta(max_length=10_000)] | None = None
    brokers: Annotated[list[Int32], Meta(min_length=1, max_length=1000)] | None = None
    without: Annotated[list[Int32], Meta(max_length=1000)] = []
    replication_factor: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] | None = None
    balance: bool = False


class PlannedMove(Answer, frozen=True):
    """One partition that would change."""

    topic: str
    partition: int
    current: tuple[int, ...]
    replicas: tuple[int, ...]


class PlannedLoad(Answer, frozen=True):
    """Replicas and preferred leaderships of one broker over all partitions, at present and after the plan."""

    broker: int
    replicas: int
    replicas_planned: int
    preferred: int
    preferred_planned: int


class PlanAnswer(Answer, frozen=True):
    """The planned changes, sorted by name.

    Attributes:
        unchanged: number of planned partitions that would not change.
        moved: number of replicas that would have to be copied.
        loads: by id, of every broker that the plan may use or that holds a replica.
    """

    items: tuple[PlannedMove, ...]
    loads: tuple[PlannedLoad, ...]
    unchanged: int
    moved: int
    as_of: AsOf
