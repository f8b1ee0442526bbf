"""Explanation of a partition's leadership or its absence, and of the actions that would change it.

Derived from the cluster state by the rules of election. Read-only.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

import msgspec
import numpy as np

from kactl.decide.state.cluster import Cluster
from kactl.decide.state.holds import VANISHED_BEFORE, past_life
from kactl.decide.state.replica_reports import ReplicaReport
from kactl.decide.state.rows import Rows
from kactl.decide.state.table import NO_ROW
from kactl.model import NO_BROKER, NO_LEADER, PartitionState, PartitionView, ReplicaState, ReplicaStatus, TopicPartition

DeletionState = Literal["none", "halted", "running"]
BrokerState = Literal["live", "fenced", "drained", "shutting_down", "dead"]
STATE_TEXT: Final = {
    "live": "is live",
    "fenced": "is registered, but has never linked to this controller",
    "drained": "is drained",
    "shutting_down": "is shutting down",
    "dead": "is dead",
}
STOPPING: Final = ("drained", "shutting_down")


# Characters of a handler's reason, which is escaped already; several of them are in one text.
DETAIL_SHOWN: Final = 300
# Replicas whose reason is part of a verdict.
_NAMED_MAX: Final = 3
_HANDLER_TEXT: Final = {
    ReplicaStatus.NOT_READY: "its handler is not ready",
    ReplicaStatus.FAILED: "its handler has failed",
    ReplicaStatus.STUCK: "a call of its handler does not end",
    ReplicaStatus.ERROR: "its data is of another topic",
    ReplicaStatus.BUSY: "its handler is busy",
    ReplicaStatus.RETRYING: "its handler has failed",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """What an explanation needs and the cluster state does not contain.

    Attributes:
        monotonic_ms: the present time; None if the caller has no clock, and the text then has no durations.
        links: by participant without a link to this controller: since when and why, as text.
    """

    monotonic_ms: float | None = None
    links: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def since(self, began_ms: float) -> str:
        """Returns " since 9 s" for a time in the past."""
        if self.monotonic_ms is None:
            return ""
        age_ms = max(self.monotonic_ms - began_ms, 0.0)
        return f" since {age_ms:.0f} ms" if age_ms < 1_000 else f" since {age_ms / 1_000:.0f} s"

    def until(self, ends_ms: float | None) -> str:
        """Returns ", in at most 3.2 s" for a time to come."""
        if self.monotonic_ms is None or ends_ms is None:
            return ""
        return f", in at most {max(ends_ms - self.monotonic_ms, 0.0) / 1_000:.1f} s"


_NO_MOMENT: Final = Moment()


class Candidate(msgspec.Struct, frozen=True):
    """One replica, in assignment order.

    Attributes:
        broker_state: state of the broker that holds it.
        directory_failed: the broker reported the directory as failed, or its handler cannot serve.
        may_lead: it would be elected if no replica before it could be.
        verdict: the same as text, with the reason.
    """

    broker: int
    broker_state: BrokerState
    in_sync: bool
    directory_failed: bool
    may_lead: bool
    verdict: str


class Explanation(msgspec.Struct, frozen=True):
    """Explanation of one partition.

    Attributes:
        verdict: the leader and the reason, or the reason for having none.
        remedies: actions that an operator can take, the best first; empty if none is needed.
    """

    topic: str
    partition: int
    leader: int
    verdict: str
    remedies: tuple[str, ...]
    candidates: tuple[Candidate, ...]


class DeletionExplanation(msgspec.Struct, frozen=True):
    """Deletion of one topic.

    Attributes:
        deletion: "none" if no deletion was requested.
        waits_for: the conditions for its progress; empty if it is not blocked.
    """

    topic: str
    deletion: DeletionState
    waits_for: tuple[str, ...]


def explain_partition(cluster: Cluster, name: TopicPartition, moment: Moment = _NO_MOMENT) -> Explanation | None:
    """Returns the explanation of a partition; None if it is unknown."""
    row = cluster.table.row(name)
    if row == NO_ROW:
        return None
    view = cluster.table.view(row)
    candidates = tuple(_candidate(cluster, view, broker, moment) for broker in view.replicas)
    verdict, remedies = _verdict(cluster, view, candidates, moment)
    remedies = _resets(cluster, view) + remedies
    return Explanation(name.topic, name.partition, view.leader, verdict, remedies, candidates)


def explain_deletion(cluster: Cluster, topic: str) -> tuple[DeletionState, tuple[str, ...]]:
    """Returns the state of a topic's deletion, and the conditions that it waits for."""
    if topic not in cluster.topics_to_delete:
        return "none", ()
    blockers = cluster.deletion_ineligible.get(topic, ())
    if blockers:
        stopping = cluster.shutting_down - cluster.drained
        return "halted", tuple(f"{blocker.text}: {blocker.remedy(stopping)}" for blocker in blockers)
    entry = cluster.table.topic(topic)
    if entry is None:
        return "running", ("the store, which must delete its entry",)
    rows = cluster.table.rows(cluster.table.rows_of(entry))
    pending = np.unique(rows.replicas[rows.replica_state == ReplicaState.DELETION_STARTED]).tolist()
    waits = [f"broker {broker} has not responded to the request to delete its replicas" for broker in pending]
    return "running", (*waits, *_leases_of(cluster, rows))


def _leases_of(cluster: Cluster, rows: Rows) -> list[str]:
    if not cluster.holds.is_used:
        return []
    columns = cluster.table.hold_columns()
    holders = np.unique(columns.holder[rows.index[cluster.holds.have_holder(columns, rows.index)]]).tolist()
    return [
        f"broker {holder} has not reported that it leads no partition any more"
        if holder >= 0
        else f"the lease of the earlier process of broker {past_life(holder)} has not ended"
        for holder in holders
    ]


def broker_state(cluster: Cluster, broker: int) -> BrokerState:
    """Returns whether a broker can serve."""
    if broker not in cluster.brokers:
        return "dead"
    if broker in cluster.drained:
        return "drained"
    if broker in cluster.shutting_down:
        return "shutting_down"
    return "fenced" if broker in cluster.fenced else "live"


def _candidate(cluster: Cluster, view: PartitionView, broker: int, moment: Moment) -> Candidate:
    state = broker_state(cluster, broker)
    report = cluster.replica_report(view.name, broker)
    failed = cluster.table.row(view.name) in cluster.table.dirs_offline(broker)
    in_sync = broker in view.isr
    reasons = []
    if state != "live":
        drain = f" ({cluster.maintenance.drains[broker]})" if state == "drained" else ""
        reasons.append(f"its broker {STATE_TEXT[state]}{drain}")
    if failed:
        registered = cluster.brokers.get(broker)
        what = "application" if registered is not None and registered.incarnation else "directory"
        reasons.append(f"its {what} has failed" if report is None else handler_text(report, moment))
    if not in_sync and view.leadership is not None:
        reasons.append("it is not in sync")
    if broker == view.leader:
        verdict = "leads" + (f", although {' and '.join(reasons)}" if reasons else "")
    elif reasons:
        verdict = "cannot lead: " + " and ".join(reasons)
    else:
        verdict = "could lead"
    if report is not None and not report.status.is_failure:
        verdict += f"; {handler_text(report, moment)}"
    if broker in moment.links:
        verdict += f"; {moment.links[broker]}"
    return Candidate(broker, state, in_sync, failed, not reasons, verdict)


def handler_text(report: ReplicaReport, moment: Moment = _NO_MOMENT) -> str:
    """Returns what a participant has reported about a handler, and the handler's own reason."""
    detail = f" ({report.detail[:DETAIL_SHOWN]})" if report.detail else ""
    count = f" {report.failures} times in a row" if report.failures > 1 else ""
    again = "" if report.next_ms is None else f", and is called again{moment.until(report.next_ms) or ' after a pause'}"
    return f"{_HANDLER_TEXT[report.status]}{count}{moment.since(report.since_ms)}{again}{detail}"


def _resets(cluster: Cluster, view: PartitionView) -> tuple[str, ...]:
    remedies = []
    for broker in view.replicas:
        report = cluster.replica_report(view.name, broker)
        if report is None:
            continue
        if remedy := stuck_remedy(broker, report):
            remedies.append(remedy)
        elif report.status in (ReplicaStatus.FAILED, ReplicaStatus.RETRYING):
            remedies.append(
                f"correct the handler: the log of the process of broker {broker} has the traceback; "
                f"to try it again now: kactl replica reset {view.name} --broker {broker}"
            )
    return tuple(remedies)


def stuck_remedy(broker: int, report: ReplicaReport) -> str:
    """Returns the remedy for a replica that does not recover while its process goes on as it does; empty if it does."""
    if report.status is ReplicaStatus.STUCK:
        return f"restart the process of broker {broker}, or wait: the call in it ignores its cancellation"
    if report.status is ReplicaStatus.ERROR:
        return f"move the data of the replica on broker {broker} away, and restart its process"
    return ""


def waits_for(cluster: Cluster, view: PartitionView, moment: Moment = _NO_MOMENT) -> str:
    """Returns what a new leader waits for before it acts; empty if it does not wait."""
    if not cluster.holds.is_used or view.leader not in cluster.holds.participants:
        return ""
    row, columns = cluster.table.row(view.name), cluster.table.hold_columns()
    if cluster.holds.exempt(columns, np.array([row])).any():
        return ""
    holder, is_shard = int(columns.holder[row]), cluster.is_shard(view.name)
    noun = "participant" if is_shard else "broker"
    if holder >= 0:
        link = moment.links.get(holder, "it is linked")
        former = "owned it" if is_shard else "led"
        return f"the release of {noun} {holder}, which {former} before: {link}"
    if holder != NO_BROKER:
        evicted = ", which was evicted" if holder in cluster.holds.evicted else ""
        ends = moment.until(cluster.holds.until_ms.get(holder))
        return f"the end of the lease of the earlier process of {noun} {past_life(holder)}{evicted}{ends}"
    others = cluster.holds.unanswered - {view.leader}
    if others and int(columns.waiting_epoch[row]) == view.leader_epoch:
        silent = sorted({other if other >= 0 else past_life(other) for other in others if other > VANISHED_BEFORE})
        named = f"{noun}s {_listed(silent)}" if silent else "sessions that ended before this controller was elected"
        return f"the answers of {named} to this controller, which has just been elected"
    return ""


def _verdict(
    cluster: Cluster, view: PartitionView, candidates: tuple[Candidate, ...], moment: Moment
) -> tuple[str, tuple[str, ...]]:
    if view.topic in cluster.topics_to_delete:
        return f"topic {view.topic} is being deleted, so no leader is elected", ()
    if not candidates:
        return "no replica is assigned to it", (f"assign replicas: kactl reassign plan --topic {view.topic}",)
    leading = next((candidate for candidate in candidates if candidate.broker == view.leader), None)
    if leading is not None and leading.broker_state != "dead" and not leading.directory_failed:
        return _led(view, candidates, waits_for(cluster, view, moment))
    if leading is not None:
        return f"broker {view.leader} leads, but {leading.verdict.partition('although ')[2]}: an election is due", ()
    if view.leader != NO_LEADER:
        return f"broker {view.leader} leads, although it is not assigned", ()
    reported = {broker for broker in view.replicas if cluster.replica_report(view.name, broker) is not None}
    return _leaderless(view, candidates, reported)


def _led(view: PartitionView, candidates: tuple[Candidate, ...], waits_for: str) -> tuple[str, tuple[str, ...]]:
    led = f"broker {view.leader} leads, elected under leader epoch {view.leader_epoch}"
    if waits_for:
        led = f"broker {view.leader} was elected under leader epoch {view.leader_epoch}, and waits for {waits_for}"
    preferred = candidates[0]
    if preferred.broker == view.leader:
        return f"{led}; it is the preferred replica", ()
    if preferred.may_lead:
        return (
            f"{led}; broker {preferred.broker} is preferred and could lead",
            (f"give it back: kactl elect preferred -p {view.name}",),
        )
    reason = preferred.verdict.removeprefix("cannot lead: ")
    return f"{led}; the preferred replica {preferred.broker} cannot: {reason}", ()


def _leaderless(
    view: PartitionView, candidates: tuple[Candidate, ...], reported: Collection[int]
) -> tuple[str, tuple[str, ...]]:
    """Args: `reported`: participants that run, and whose handlers are not in their normal state."""
    online = [
        candidate for candidate in candidates if candidate.broker_state == "live" and not candidate.directory_failed
    ]
    if view.leadership is None:
        if view.state is PartitionState.NEW and not online:
            return (
                f"it never had a leader: none of its replicas is online{_failed(candidates)}",
                _link(candidates)
                or _restore(candidates)
                or (f"start one of the brokers {_listed(candidate.broker for candidate in candidates)}",),
            )
        return "it never had a leader that the controller knows of: nothing readable is stored for it", ()
    stopping = [candidate for candidate in candidates if candidate.broker_state in STOPPING]
    fenced = [candidate for candidate in candidates if candidate.broker_state == "fenced"]
    known = [candidate.broker for candidate in (*online, *stopping, *fenced)]
    lost = [broker for broker in view.isr if broker not in known and broker not in reported]
    remedies = [*_link(fenced), *_restore(candidate for candidate in stopping if candidate.in_sync)]
    if lost:
        remedies.append(f"bring back broker {' or '.join(map(str, lost))}, which has all records")
    if online:
        remedies.append(
            f"or let broker {online[0].broker} lead, which loses the records that it does not have:"
            f" kactl elect unclean -p {view.name}"
        )
    elif dead := [candidate.broker for candidate in candidates if candidate.broker_state == "dead"]:
        remedies.append(f"none of its replicas is online: start brokers {_listed(dead)}")
    verdict = f"no leader: none of the in-sync replicas ({_listed(view.isr)}) is online{_failed(candidates)}"
    return verdict, tuple(remedies)


def _failed(candidates: Iterable[Candidate]) -> str:
    """Returns the reasons of the first replicas whose handlers or directories have failed; empty if there are none."""
    failed = [candidate for candidate in candidates if candidate.directory_failed]
    return "".join(f"; broker {candidate.broker} {candidate.verdict}" for candidate in failed[:_NAMED_MAX])


def _link(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    fenced = [candidate.broker for candidate in candidates if candidate.broker_state == "fenced"]
    return (f"let broker {' and '.join(map(str, fenced))} reach this controller over its network",) if fenced else ()


def _restore(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """Returns the remedy for replicas on brokers that run but are drained or about to stop."""
    stopping = [candidate.broker for candidate in candidates if candidate.broker_state in STOPPING]
    undo = " and ".join(f"kactl broker drain --undo {broker}" for broker in stopping)
    return (f"let broker {' or '.join(map(str, stopping))} lead again: {undo}",) if stopping else ()


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
