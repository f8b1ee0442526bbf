"""Explanation of a partition's leadership or its absence, and of the actions that would change it.

Derived from the cluster state by the rules of election. Read-only.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec
import numpy as np

from kactl.model import NO_LEADER, PartitionState, PartitionView, ReplicaState, TopicPartition
from kactl.state.cluster import Cluster
from kactl.state.table import NO_ROW

DeletionState = Literal["none", "halted", "running"]
BrokerState = Literal["live", "shutting_down", "dead"]
_STATE_TEXT: Final = {"live": "is live", "shutting_down": "is shutting down", "dead": "is dead"}


class Candidate(msgspec.Struct, frozen=True):
    """One replica, in assignment order.

    Attributes:
        broker_state: state of the broker that holds it.
        directory_failed: the broker reported the directory as failed.
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


def explain_partition(cluster: Cluster, name: TopicPartition) -> Explanation | None:
    """Returns the explanation of a partition; None if it is unknown."""
    row = cluster.table.row(name)
    if row == NO_ROW:
        return None
    view = cluster.table.view(row)
    candidates = tuple(_candidate(cluster, view, broker) for broker in view.replicas)
    verdict, remedies = _verdict(cluster, view, candidates)
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
    return "running", tuple(
        f"broker {broker} has not responded to the request to delete its replicas" for broker in pending
    )


def broker_state(cluster: Cluster, broker: int) -> BrokerState:
    """Returns whether a broker can serve."""
    if broker not in cluster.brokers:
        return "dead"
    return "shutting_down" if broker in cluster.shutting_down else "live"


def _candidate(cluster: Cluster, view: PartitionView, broker: int) -> Candidate:
    state = broker_state(cluster, broker)
    failed = cluster.table.row(view.name) in cluster.table.dirs_offline(broker)
    in_sync = broker in view.isr
    reasons = []
    if state != "live":
        reasons.append(f"its broker {_STATE_TEXT[state]}")
    if failed:
        reasons.append("its directory has failed")
    if not in_sync and view.leadership is not None:
        reasons.append("it is not in sync")
    if broker == view.leader:
        verdict = "leads" + (f", although {' and '.join(reasons)}" if reasons else "")
    elif reasons:
        verdict = "cannot lead: " + " and ".join(reasons)
    else:
        verdict = "could lead"
    return Candidate(broker, state, in_sync, failed, not reasons, verdict)


def _verdict(cluster: Cluster, view: PartitionView, candidates: tuple[Candidate, ...]) -> tuple[str, tuple[str, ...]]:
    if view.topic in cluster.topics_to_delete:
        return f"topic {view.topic} is being deleted, so no leader is elected", ()
    if not candidates:
        return "no replica is assigned to it", (f"assign replicas: kactl reassign plan --topic {view.topic}",)
    leading = next((candidate for candidate in candidates if candidate.broker == view.leader), None)
    if leading is not None and leading.broker_state != "dead" and not leading.directory_failed:
        return _led(view, candidates)
    if leading is not None:
        return f"broker {view.leader} leads, but {leading.verdict.partition('although ')[2]}: an election is due", ()
    if view.leader != NO_LEADER:
        return f"broker {view.leader} leads, although it is not assigned", ()
    return _leaderless(view, candidates)


def _led(view: PartitionView, candidates: tuple[Candidate, ...]) -> tuple[str, tuple[str, ...]]:
    led = f"broker {view.leader} leads, elected under leader epoch {view.leader_epoch}"
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


def _leaderless(view: PartitionView, candidates: tuple[Candidate, ...]) -> tuple[str, tuple[str, ...]]:
    online = [
        candidate for candidate in candidates if candidate.broker_state == "live" and not candidate.directory_failed
    ]
    if view.leadership is None:
        if view.state is PartitionState.NEW and not online:
            return (
                "it never had a leader: none of its replicas is online",
                _restore(candidates)
                or (f"start one of the brokers {_listed(candidate.broker for candidate in candidates)}",),
            )
        return "it never had a leader that the controller knows of: nothing readable is stored for it", ()
    stopping = [candidate for candidate in candidates if candidate.broker_state == "shutting_down"]
    known = [candidate.broker for candidate in (*online, *stopping)]
    lost = [broker for broker in view.isr if broker not in known]
    remedies = [*_restore(candidate for candidate in stopping if candidate.in_sync)]
    if lost:
        remedies.append(f"bring back broker {' or '.join(map(str, lost))}, which has all records")
    if online:
        remedies.append(
            f"or let broker {online[0].broker} lead, which loses the records that it does not have:"
            f" kactl elect unclean -p {view.name}"
        )
    elif len(stopping) < len(candidates):
        dead = _listed(candidate.broker for candidate in candidates if candidate not in stopping)
        remedies.append(f"none of its replicas is online: start brokers {dead}")
    return f"no leader: none of the in-sync replicas ({_listed(view.isr)}) is online", tuple(remedies)


def _restore(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """Returns the remedy for replicas on brokers that run but are drained or about to stop."""
    stopping = [candidate.broker for candidate in candidates if candidate.broker_state == "shutting_down"]
    undo = " and ".join(f"kactl broker drain --undo {broker}" for broker in stopping)
    return (f"let broker {' or '.join(map(str, stopping))} lead again: {undo}",) if stopping else ()


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
