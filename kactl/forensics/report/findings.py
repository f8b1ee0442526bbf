"""Findings other than outages: rows of the jobs' tables, as far as a report shows them."""

import msgspec

from kactl.forensics.wording import Time


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Records that one partition lost at the beginning of one epoch; see the columns of job `losses`."""

    topic: str
    partition: int
    life: int
    leader_epoch: int | None
    leader: int | None
    at: Time | None
    log_end: int | None
    unclean: bool | None
    replicas: tuple[int, ...]
    committed: int | None
    tail: int | None
    evidence: tuple[str, ...]
    truncated: bool
    certain: bool


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that had been in sync: whether it was absent, and since when; null is from before the logs."""

    broker: int
    away: bool
    down_at: Time | None = None
    down_ms: int | None = None


class Unclean(msgspec.Struct, frozen=True, kw_only=True):
    """An unclean election; see the columns of job `unclean`."""

    topic: str
    partition: int
    life: int
    at: Time | None
    leader_epoch: int | None
    leader: int | None
    prev_leader: int | None
    prev_isr: tuple[int, ...]
    evidence: tuple[str, ...]
    certain: bool
    asked_by: str | None
    out_ms: int | None
    isr_down: tuple[Down, ...]


class Flapping(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that changed repeatedly; see the columns of job `flapping`."""

    topic: str
    partition: int
    life: int
    elections: int
    forced: int
    ping_pongs: int
    preferred_lost: int
    shrinks: int
    expands: int
    worst_follower: int | None
    worst_follower_falls: int | None
    lone_ms: int | None
    under_replicated_ms: int | None
    first_at: Time | None
    last_at: Time | None


class Churn(msgspec.Struct, frozen=True, kw_only=True):
    """An hour; see the columns of job `churn`."""

    hour: Time
    elections: int
    planned: int
    forced: int
    partitions: int
    shrinks: int
    expands: int
    most_in_a_minute: int
    storm: bool


class Controllership(msgspec.Struct, frozen=True, kw_only=True):
    """Term of a controller; see the columns of job `controllers`."""

    controller: int | None
    controller_epoch: int | None
    elected_at: Time | None
    started_at: Time | None
    last_act_at: Time | None
    resigned_at: Time | None
    failover_ms: int | None
    gap_ms: int | None
    overlap_ms: int | None
    refused: int | None
    partitions_moved: int | None
    slowest_event_ms: int | None
    source: str | None


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of a controller to a broker; see the columns of job `requests`."""

    controller: int | None
    broker: int | None
    request: str | None
    sent: int | None
    received: int | None
    applied: int | None
    unanswered: int | None
    ignored: int | None
    stale: int | None
    apply_p50_ms: float | None
    apply_p99_ms: float | None
    apply_max_ms: int | None
    wait_p99_ms: float | None
    wait_growth: float | None


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """Absence of a broker; see the columns of job `absences`."""

    broker: int
    detected_at: Time | None
    back_at: Time | None
    last_sign_at: Time | None
    first_sign_at: Time | None
    shutdown_at: Time | None
    planned: bool | None
    how: str | None
    silent_at: Time | None = None
    session_ms: int | None = None
    session_by: str | None = None


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """A topic deletion that did not finish; see the columns of job `deletions`."""

    topic: str
    asked_at: Time | None
    started_at: Time | None
    span_ms: int | None
    restarts: int | None
    halts: int | None
    reason: str | None
    blocked_by: tuple[int, ...]


class Reassignment(msgspec.Struct, frozen=True, kw_only=True):
    """A reassignment that did not finish; see the columns of job `reassignments`."""

    topic: str
    partition: int
    life: int
    started_at: Time | None
    span_ms: int | None
    target: tuple[int, ...]
    waiting_for: tuple[int, ...]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One violated rule: how often, and the first time."""

    rule: str
    count: int
    topic: str | None
    partition: int | None
    broker: int | None
    at: Time | None
    expected: str | None
    found: str | None
    path: str | None
    offset: int | None


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """A clock relative to the reference; see the columns of job `skew`. Some logs do not name their broker."""

    broker: int | None
    reference: int | None
    offset_us: int | None
    low_us: int | None
    high_us: int | None
    how: str
