"""Reassignments: asked for, planned, listed."""

from typing import Annotated, Literal

from msgspec import Meta

from .words import Answer, AsOf, Int32, Question, Reason

# What one request may name; a body of that many targets fits the server's limit for bodies.
REASSIGNED_MAX = 20_000
REPLICAS_MAX = 1000

Replicas = Annotated[list[Int32], Meta(max_length=REPLICAS_MAX)]


class ReassignmentTarget(Question, frozen=True):
    """The replicas that a partition is to have, the preferred leader first; null cancels the move that is going on."""

    topic: str
    partition: Int32
    replicas: Replicas | None = None


class ReassignmentRequest(Question, frozen=True):
    """Move partitions to other replicas, or cancel such moves."""

    partitions: Annotated[list[ReassignmentTarget], Meta(min_length=1, max_length=REASSIGNED_MAX)]
    dry_run: bool = False
    reason: Reason = ""


class ReassignmentResult(Answer, frozen=True):
    """What became of one partition. `ok` says that it was accepted, not that it has moved.

    Attributes:
        error_code, error_name: Kafka's; 0 and NONE if ok.
        replicas, adding, removing: with which the move begins, or would begin; empty if it failed.
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
    """One result for each partition, in the order asked."""

    dry_run: bool
    results: tuple[ReassignmentResult, ...]
    as_of: AsOf


class ReassignmentInfo(Answer, frozen=True):
    """One move that is going on. `waits_for`: what it waits for, and what would unblock it."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    waits_for: str


class CompletedReassignment(Answer, frozen=True):
    """One move that is complete."""

    topic: str
    partition: int
    completed_ms: int


class ReassignmentList(Answer, frozen=True):
    """All moves that are going on, by name.

    Attributes:
        completed: how many have been completed since this instance became the controller.
        last_completed: the last 100 of these, the latest first.
    """

    items: tuple[ReassignmentInfo, ...]
    completed: int
    last_completed: tuple[CompletedReassignment, ...]
    as_of: AsOf


class ReassignmentPath(Question, frozen=True):
    """Which partition."""

    topic: str
    partition: Int32


class ReassignmentCancellation(Question, frozen=True):
    """How to cancel."""

    dry_run: bool = False
    reason: Reason = ""


class PlanRequest(Question, frozen=True):
    """Where replicas should go; nothing is moved. Moved is as little as can be.

    Attributes:
        topics: of these; null for all that are not being deleted.
        brokers: onto these; null for all that are live.
        without: not onto these; for brokers that are to go.
        replication_factor: null keeps what each partition has.
        balance: even out replicas and preferred leaders, too.
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
    """What one broker holds, and how often it is the preferred leader: of all partitions, now and by the plan."""

    broker: int
    replicas: int
    replicas_planned: int
    preferred: int
    preferred_planned: int


class PlanAnswer(Answer, frozen=True):
    """What would change, by name.

    Attributes:
        unchanged: how many partitions were looked at and would stay as they are.
        moved: how many replicas would have to be copied.
        loads: of every broker that the plan may use or that holds a replica, by id.
    """

    items: tuple[PlannedMove, ...]
    loads: tuple[PlannedLoad, ...]
    unchanged: int
    moved: int
    as_of: AsOf
