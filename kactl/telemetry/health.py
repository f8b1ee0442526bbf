"""Health checks: named values with a limit, computed from facts that the caller provides.

    pass     within the limit
    warn     outside it; the cluster works, with less reserve than it should have
    fail     outside it; partitions are unavailable, or something is stuck and needs an operator
    unknown  the value could not be determined; counts as a warning
    skip     the check does not apply to this instance

The same list serves `GET /v1/cluster`, `kactl status` and alerts, so that all agree.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

Result = Literal["pass", "warn", "fail", "unknown", "skip"]
Status = Literal["healthy", "degraded", "unhealthy"]
Unit = Literal["count", "ms", "percent"]

# A certificate that expires earlier is reported.
CERTIFICATE_DAYS: Final = 14
# Partitions and topics named in one check.
NAMED_MAX: Final = 10


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds. A value above its limit fails the check; see `[health]` of the configuration."""

    offline_partitions: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0
    unreachable_brokers: int = 0
    unreachable_after_ms: int = 10_000
    broker_request_backlog: int = 100
    event_queue_oldest_ms: int = 500
    event_queue_stuck_ms: int = 30_000
    reassignment_stuck_ms: int = 600_000
    deletion_stuck_ms: int = 300_000
    standby_lag_ms: int = 10_000
    preferred_imbalance_percent: int = 10


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check.

    Attributes:
        value, limit: in `unit`; None if there is no value.
        names: the first partitions, topics or brokers concerned.
        detail: the problem as text; empty if there is none.
        remedy: the action to take; empty if none is needed.
    """

    name: str
    result: Result
    value: float | None = None
    limit: float | None = None
    unit: Unit = "count"
    names: tuple[str, ...] = ()
    detail: str = ""
    remedy: str = ""


class Stuck(msgspec.Struct, frozen=True):
    """Reassignments or deletions without progress.

    Attributes:
        first: names and reasons of the first ones, with the remedy.
    """

    count: int
    running: int
    first: tuple[tuple[str, str], ...] = ()


class FailedHandler(msgspec.Struct, frozen=True):
    """A replica whose handler has failed.

    Attributes:
        reason: with what the handler has raised.
        remedy: empty if it is called again by itself.
        noun: of the broker: participant, for a shard.
    """

    partition: str
    broker: int
    reason: str
    remedy: str = ""
    noun: str = "broker"

    def __str__(self) -> str:
        return f"{self.partition} on {self.noun} {self.broker}"


class Shards(msgspec.Struct, frozen=True, kw_only=True):
    """The shards of ownership topics.

    Attributes:
        unowned, failing: number of shards without an owner, and of those whose owner's handler has failed, each with
            the first names.
        not_offered: topics of shards without an owner that no participant that can be used offers.
    """

    total: int
    unowned: tuple[int, tuple[str, ...]]
    failing: tuple[int, tuple[str, ...]]
    not_offered: tuple[str, ...] = ()


class Partitions(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the partitions of replicated topics, each with the first names.

    Attributes:
        not_preferred: partitions not led by their preferred replica; `returnable`: which an election returns.
        preferred_drained: the drained brokers among the preferred replicas of the others.
        lagging: (broker, replicas out of sync), the most first.
    """

    total: int
    offline: tuple[int, tuple[str, ...]]
    under_replicated: tuple[int, tuple[str, ...]]
    under_min_isr: tuple[int, tuple[str, ...]]
    min_isr_unknown: int
    not_preferred: int
    lagging: tuple[tuple[int, int], ...]
    returnable: int = 0
    preferred_drained: tuple[int, ...] = ()


class Channel(msgspec.Struct, frozen=True):
    """Queued requests for one registered broker."""

    broker: int
    waiting: int
    oldest_ms: float
    last_error: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """State of one instance. None: does not apply, or could not be determined (`unknown` states the reason).

    Attributes:
        active_id: the id of the controller, as far as this instance knows.
        is_active, ready: this instance is the controller, and has completed its takeover.
        dead: brokers that hold replicas and are not registered.
        drained: brokers that are drained, registered or not, or about to stop; `drains`: the drains as text.
        held: instances that leave the controllership to others, each with a text; None if that is not known.
        without_id: topics that have lost their ids; None if it is not known.
        shards: None from a standby.
        session: empty while the session with the store is certain and its last call succeeded; otherwise the cause.
        certificates: a text about each certificate that the process presents, and the days for which it is still valid;
            None without one.
        listener_mismatches: differences between the listeners of brokers and those of kactl; None without Kafka
            listeners.
        without_controller: listeners of brokers on which admin clients find no controller; None without Kafka brokers.
        without_rack: which brokers have no rack while others have one; None without Kafka brokers.
        failed_handlers: those that have reported a failure, STUCK and ERROR first.
        standby_lag_ms: time for which the copy of the cluster has been out of date; 0 if it is current.
    """

    active_id: int | None
    is_active: bool
    ready: bool
    partitions: Partitions | None = None
    shards: Shards | None = None
    unknown: str = ""
    dead: tuple[int, ...] | None = None
    drained: tuple[int, ...] = ()
    drains: Mapping[int, str] = {}
    held: Mapping[int, str] | None = None
    channels: tuple[Channel, ...] | None = None
    queue_depth: int = 0
    queue_oldest_ms: float = 0.0
    in_hand: str = ""
    in_hand_ms: float = 0.0
    reassignments: Stuck | None = None
    deletions: Stuck | None = None
    without_id: tuple[str, ...] | None = None
    session: str = ""
    certificates: tuple[tuple[str, float], ...] | None = None
    listener_mismatches: tuple[str, ...] | None = None
    without_controller: tuple[str, ...] | None = None
    without_rack: str | None = None
    failed_handlers: tuple[FailedHandler, ...] | None = None
    standby_lag_ms: float | None = None
    standby_detail: str = ""


def checks(facts: Facts, limits: Limits) -> tuple[Check, ...]:
    """Returns all checks, always the same and in the same order."""
    return tuple(check(facts, limits) for check in _CHECKS)


def status_of(checks_: Sequence[Check]) -> Status:
    """Returns the worst result as a status."""
    results = {check.result for check in checks_}
    if "fail" in results:
        return "unhealthy"
    return "degraded" if results & {"warn", "unknown"} else "healthy"


# -- the controllership ------------------------------------------------------------------------------------------------


def _one_active_controller(facts: Facts, limits: Limits) -> Check:
    name = "one-active-controller"
    if facts.active_id is None:
        return Check(
            name=name, result="fail", value=0, limit=1, detail="no instance is known to be the controller",
            remedy="start an instance, or wait for the election; see `kactl controller history`",
        )  # fmt: skip
    if facts.is_active and not facts.ready:
        return Check(
            name=name, result="warn", value=1, limit=1, detail=f"controller {facts.active_id} is taking over",
            remedy="wait until the cluster is loaded",
        )  # fmt: skip
    return Check(name=name, result="pass", value=1, limit=1)


def _store_session(facts: Facts, limits: Limits) -> Check:
    if not facts.session:
        return Check(name="store-session", result="pass")
    return Check(
        name="store-session", result="fail", detail=facts.session,
        remedy="check that this instance can reach the store; nothing is sent to brokers meanwhile",
    )  # fmt: skip


def _standby_lag(facts: Facts, limits: Limits) -> Check:
    name, lag_ms = "standby-lag", facts.standby_lag_ms
    if facts.is_active:
        return Check(name=name, result="skip", detail="this instance is the controller")
    if lag_ms is None:
        return Check(name=name, result="skip", detail=facts.standby_detail)
    late = lag_ms > limits.standby_lag_ms
    return Check(
        name=name, result="warn" if late else "pass", value=lag_ms, limit=limits.standby_lag_ms, unit="ms",
        detail=facts.standby_detail,
        remedy="a takeover by this instance would read more first; see its log for errors of the store" if late else "",
    )  # fmt: skip


# -- partitions --------------------------------------------------------------------------------------------------------


def _offline_partitions(facts: Facts, limits: Limits) -> Check:
    partitions = facts.partitions
    if partitions is None:
        return _unknown("offline-partitions", facts)
    count, names = partitions.offline
    first = names[0] if names else "T-P"
    return _counted(
        "offline-partitions", count, limits.offline_partitions, names, "fail",
        f"kactl explain {first} names what each waits for",
    )  # fmt: skip


def _shards_without_owner(facts: Facts, limits: Limits) -> Check:
    name, shards = "shards-without-owner", facts.shards
    if shards is None:
        skipped = "only the controller knows the states of shards"
        return _unknown(name, facts) if facts.unknown else Check(name=name, result="skip", detail=skipped)
    count, names = shards.unowned
    first = names[0] if names else "T-P"
    check = _counted(
        name, count, limits.offline_partitions, names, "fail", f"kactl explain {first} states what ends that"
    )  # fmt: skip
    if check.result == "pass" or not shards.not_offered:
        return check
    topics = _listed(shards.not_offered)
    return msgspec.structs.replace(
        check,
        detail=f"{check.detail}; no participant offers {topics}",
        remedy=f"start a participant that offers {shards.not_offered[0]}: without groups= it offers all topics",
    )


def _under_min_isr(facts: Facts, limits: Limits) -> Check:
    partitions = facts.partitions
    if partitions is None:
        return _unknown("under-min-isr", facts)
    count, names = partitions.under_min_isr
    check = _counted(
        "under-min-isr", count, limits.under_min_isr, names, "fail",
        "producers with acks=all are rejected: start the brokers that are not in sync, or undo their draining",
    )  # fmt: skip
    if not partitions.min_isr_unknown:
        return check
    detail = f"min.insync.replicas of {partitions.min_isr_unknown:,} partitions could not be read"
    return msgspec.structs.replace(
        check,
        result="unknown" if check.result == "pass" else check.result,
        detail="; ".join(filter(None, (check.detail, detail))),
    )


def _under_replicated(facts: Facts, limits: Limits) -> Check:
    partitions = facts.partitions
    if partitions is None:
        return _unknown("under-replicated", facts)
    count, names = partitions.under_replicated
    check = _counted(
        "under-replicated", count, limits.under_replicated, names, "warn",
        "start the brokers that are not in sync, undo their draining, or wait until they have caught up: "
        "kactl get partitions --urp",
    )  # fmt: skip
    lagging = ", ".join(f"{broker} ({replicas:,})" for broker, replicas in partitions.lagging[:NAMED_MAX])
    if check.result == "pass" or not lagging:
        return check
    return msgspec.structs.replace(check, detail=f"out of sync on brokers {lagging}")


def _held_instances(facts: Facts, limits: Limits) -> Check:
    """A forgotten hold delays every takeover for which no other instance is left."""
    if facts.held is None:
        return _unknown("held-instances", facts)
    instances = tuple(facts.held)
    release = f"kactl controller release {instances[0]}" if instances else ""
    check = _counted("held-instances", len(instances), 0, tuple(map(str, instances))[:NAMED_MAX], "warn", release)
    told = [f"instance {instance} {facts.held[instance]}" for instance in instances[:NAMED_MAX]]
    return msgspec.structs.replace(check, detail="; ".join(told)) if told else check


def _preferred_imbalance(facts: Facts, limits: Limits) -> Check:
    partitions = facts.partitions
    if partitions is None:
        return _unknown("preferred-imbalance", facts)
    percent = round(100 * partitions.not_preferred / partitions.total, 1) if partitions.total else 0.0
    above = percent > limits.preferred_imbalance_percent
    return Check(
        name="preferred-imbalance", result="warn" if above else "pass", value=percent,
        limit=limits.preferred_imbalance_percent, unit="percent",
        detail=f"{partitions.not_preferred:,} of {partitions.total:,} partitions" if above else "",
        remedy=_return_to_preferred(partitions) if above else "",
    )  # fmt: skip


def _return_to_preferred(partitions: Partitions) -> str:
    if partitions.returnable:
        return "kactl elect preferred --all"
    if partitions.preferred_drained:
        drained = partitions.preferred_drained[0]
        return f"broker {drained} is drained, and leads nothing until kactl broker drain --undo {drained}"
    return "start the preferred replicas, or wait until they are in sync: kactl get partitions --not-preferred"


# -- brokers -----------------------------------------------------------------------------------------------------------


def _unreachable_brokers(facts: Facts, limits: Limits) -> Check:
    """Unregistered brokers that hold replicas, and registered ones that no request reaches."""
    name = "unreachable-brokers"
    if facts.dead is None:
        return _unknown(name, facts)
    silent = [
        channel
        for channel in facts.channels or ()
        if channel.waiting and channel.last_error and channel.oldest_ms > limits.unreachable_after_ms
    ]
    count = len(facts.dead) + len(silent)
    check = _counted(
        name, count, limits.unreachable_brokers,
        tuple(map(str, (*facts.dead, *(channel.broker for channel in silent))))[:NAMED_MAX], "fail",
        "start them, or move their replicas: kactl reassign plan",
    )  # fmt: skip
    if check.result == "pass":
        return check
    parts = [f"not registered: {_listed(facts.dead)}"] if facts.dead else []
    parts += [f"broker {channel.broker} does not answer: {channel.last_error}" for channel in silent[:3]]
    return msgspec.structs.replace(check, detail="; ".join(parts))


def _drained_brokers(facts: Facts, limits: Limits) -> Check:
    """A forgotten drain costs a replica of every partition on the broker."""
    brokers = facts.drained
    undo = f"kactl broker drain --undo {brokers[0]}" if brokers else ""
    check = _counted("drained-brokers", len(brokers), 0, tuple(map(str, brokers))[:NAMED_MAX], "warn", undo)
    told = [f"broker {broker} {facts.drains.get(broker, 'is shutting down')}" for broker in brokers[:NAMED_MAX]]
    return msgspec.structs.replace(check, detail="; ".join(told)) if told and facts.drains else check


def _failed_handlers(facts: Facts, limits: Limits) -> Check:
    """Handlers of participants that have raised, or whose call does not end."""
    name, failed = "failed-handlers", facts.failed_handlers
    if failed is None:
        return Check(name=name, result="skip", detail="only the controller receives their reports")
    final = [each.remedy for each in failed if each.remedy]
    check = _counted(
        name, len(failed), 0, tuple(map(str, failed[:NAMED_MAX])),
        "fail" if final else "warn",
        final[0] if final else "correct the handler: the logs of these brokers' processes have the tracebacks",
    )  # fmt: skip
    if not failed:
        return check
    reasons = [f"{each}: {each.reason}" for each in failed[:3]]
    more = f"; and {len(failed) - 3:,} more" if len(failed) > 3 else ""
    return msgspec.structs.replace(check, detail="; ".join(reasons) + more)


def _broker_request_backlog(facts: Facts, limits: Limits) -> Check:
    name = "broker-request-backlog"
    if facts.channels is None:
        return Check(name=name, result="skip", detail="only the controller sends requests")
    worst = max(facts.channels, key=lambda channel: channel.waiting, default=None)
    value = 0 if worst is None else worst.waiting
    if worst is None or value <= limits.broker_request_backlog:
        return Check(name=name, result="pass", value=value, limit=limits.broker_request_backlog)
    error = f": {worst.last_error}" if worst.last_error else ""
    return Check(
        name=name, result="warn", value=value, limit=limits.broker_request_backlog, names=(str(worst.broker),),
        detail=f"broker {worst.broker}{error}", remedy=f"see the log and the load of broker {worst.broker}",
    )  # fmt: skip


def _broker_listeners(facts: Facts, limits: Limits) -> Check:
    name, found = "broker-listeners", facts.listener_mismatches
    if found is None:
        return Check(name=name, result="skip", detail="this instance has no Kafka listener")
    if not found:
        return Check(name=name, result="pass", value=0, limit=0)
    return Check(
        name=name, result="warn", value=len(found), limit=0, detail="; ".join(found),
        remedy="give kactl's listeners the protocols of the brokers' listener.security.protocol.map",
    )  # fmt: skip


def _admin_clients(facts: Facts, limits: Limits) -> Check:
    """Pass in any case: a cluster whose clients do not see kactl is set up as recommended."""
    name, found = "admin-clients", facts.without_controller
    if found is None:
        return Check(name=name, result="skip", detail="no brokers of Kafka are controlled")
    return Check(name=name, result="pass", value=len(found), detail="; ".join(found))


def _racks(facts: Facts, limits: Limits) -> Check:
    name, found = "broker-racks", facts.without_rack
    if found is None:
        return Check(name=name, result="skip", detail="no brokers of Kafka are controlled")
    remedy = "set broker.rack on all brokers or on none" if found else ""
    return Check(name=name, result="warn" if found else "pass", detail=found, remedy=remedy)


def _certificates(facts: Facts, limits: Limits) -> Check:
    name = "certificates"
    if facts.certificates is None:
        return Check(name=name, result="skip", detail="this instance presents none")
    ending = [(text, days) for text, days in facts.certificates if days <= CERTIFICATE_DAYS]
    if not ending:
        return Check(name=name, result="pass", value=0, limit=0)
    return Check(
        name=name, result="fail" if any(days <= 0 for _, days in ending) else "warn", value=len(ending), limit=0,
        detail="; ".join(text for text, _ in ending), remedy="replace the files, which are then loaded again",
    )  # fmt: skip


# -- work --------------------------------------------------------------------------------------------------------------


def _event_queue_oldest(facts: Facts, limits: Limits) -> Check:
    oldest_ms = round(facts.queue_oldest_ms, 1)
    result: Result = "pass"
    if oldest_ms > limits.event_queue_oldest_ms:
        result = "warn"
    if max(oldest_ms, facts.in_hand_ms) > limits.event_queue_stuck_ms:
        result = "fail"
    in_hand = f", {facts.in_hand} handled for {facts.in_hand_ms:.0f} ms" if facts.in_hand else ""
    detail = f"depth {facts.queue_depth}{in_hand}"
    return Check(
        name="event-queue-oldest", result=result, value=oldest_ms, limit=limits.event_queue_oldest_ms, unit="ms",
        detail=detail, remedy="" if result == "pass" else "kactl controller queue shows what takes so long",
    )  # fmt: skip


def _stuck_reassignments(facts: Facts, limits: Limits) -> Check:
    return _stuck("stuck-reassignments", facts.reassignments, facts, "kactl reassign list shows what each waits for")


def _stuck_deletions(facts: Facts, limits: Limits) -> Check:
    stuck = facts.deletions
    topic = stuck.first[0][0] if stuck is not None and stuck.first else "T"
    return _stuck("stuck-deletions", stuck, facts, f"kactl explain {topic} shows what it waits for")


def _topic_ids(facts: Facts, limits: Limits) -> Check:
    """A tool has removed the id of a topic, and nothing knows it any more."""
    if facts.without_id is None:
        return Check(name="topic-ids", result="skip", detail="only the controller compares them")
    topics = facts.without_id
    return _counted(
        "topic-ids", len(topics), 0, topics[:NAMED_MAX], "warn",
        "write the old topic_id into the topic's entry in the store, from partition.metadata of a broker; "
        "if no replica has one, name the topic in new-topic-ids of [controller]",
    )  # fmt: skip


def _stuck(name: str, stuck: Stuck | None, facts: Facts, remedy: str) -> Check:
    if not facts.is_active:
        return Check(name=name, result="skip", detail="only the controller knows how they get on")
    if stuck is None:
        return _unknown(name, facts)
    if not stuck.count:
        detail = f"{stuck.running:,} in progress" if stuck.running else ""
        return Check(name=name, result="pass", value=0, limit=0, detail=detail)
    return Check(
        name=name, result="fail", value=stuck.count, limit=0, names=tuple(each for each, _ in stuck.first),
        detail="; ".join(f"{each}: {reason}" for each, reason in stuck.first[:3]), remedy=remedy,
    )  # fmt: skip


def _counted(name: str, count: int, limit: int, names: tuple[str, ...], result: Result, remedy: str) -> Check:
    if count <= limit:
        return Check(name=name, result="pass", value=count, limit=limit)
    more = f" and {count - len(names):,} more" if count > len(names) else ""
    return Check(
        name=name, result=result, value=count, limit=limit, names=names, detail=", ".join(names) + more, remedy=remedy
    )


def _unknown(name: str, facts: Facts) -> Check:
    return Check(name=name, result="unknown", detail=facts.unknown)


def _listed(names: Sequence[int | str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(map(str, names[:NAMED_MAX])) + more


_CHECKS: Final[tuple[Callable[[Facts, Limits], Check], ...]] = (
    _one_active_controller,
    _store_session,
    _offline_partitions,
    _under_min_isr,
    _shards_without_owner,
    _unreachable_brokers,
    _stuck_reassignments,
    _stuck_deletions,
    _topic_ids,
    _under_replicated,
    _failed_handlers,
    _drained_brokers,
    _held_instances,
    _preferred_imbalance,
    _event_queue_oldest,
    _broker_request_backlog,
    _broker_listeners,
    _admin_clients,
    _racks,
    _certificates,
    _standby_lag,
)
