"""Why a partition is led by whom it is led, or by nobody; and what would change that.

Read from what the controller knows, by the same rules by which it elects. Nothing is changed.
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
        broker_state: of the broker that holds it.
        directory_failed: its broker said so.
        may_lead: it would be chosen if nobody before it were.
        verdict: the same in words, with the reason.
    """

    broker: int
    broker_state: BrokerState
    in_sync: bool
    directory_failed: bool
    may_lead: bool
    verdict: str


class Explanation(msgspec.Struct, frozen=True):
    """Of one partition.

    Attributes:
        verdict: who leads and why, or why nobody does.
        remedies: what a person can do about it, the best first; empty where all is well.
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
        deletion: "none" if it was not asked for.
        waits_for: what has to happen before it goes on; empty if nothing has.
    """

    topic: str
    deletion: DeletionState
    waits_for: tuple[str, ...]


def explain_partition(cluster: Cluster, name: TopicPartition) -> Explanation | None:
    """Why `name` is led as it is; None if it is unknown."""
    row = cluster.table.row(name)
    if row == NO_ROW:
        return None
    view = cluster.table.view(row)
    candidates = tuple(_candidate(cluster, view, broker) for broker in view.replicas)
    verdict, remedies = _verdict(cluster, view, candidates)
    return Explanation(name.topic, name.partition, view.leader, verdict, remedies, candidates)


def explain_deletion(cluster: Cluster, topic: str) -> tuple[DeletionState, tuple[str, ...]]:
    """How a topic's deletion stands, and what it waits for."""
    if topic not in cluster.topics_to_delete:
        return "none", ()
    halts = cluster.deletion_ineligible.get(topic, ())
    if halts:
        stopping = cluster.shutting_down - cluster.drained
        return "halted", tuple(f"{each.text}: {each.remedy(stopping)}" for each in halts)
    known = cluster.table.topic(topic)
    if known is None:
        return "running", ("the store, which is to forget it",)
    rows = cluster.table.rows(cluster.table.rows_of(known))
    asked = np.unique(rows.replicas[rows.replica_state == ReplicaState.DELETION_STARTED]).tolist()
    return "running", tuple(f"broker {broker} was told to delete its replicas and has not answered" for broker in asked)


def broker_state(cluster: Cluster, broker: int) -> BrokerState:
    """Whether a broker can serve, in one word."""
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
        return f"topic {view.topic} is being deleted, and nobody is elected for it", ()
    if not candidates:
        return "no replica is assigned to it", (f"assign replicas: kactl reassign plan --topic {view.topic}",)
    leading = next((each for each in candidates if each.broker == view.leader), None)
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
    online = [each for each in candidates if each.broker_state == "live" and not each.directory_failed]
    if view.leadership is None:
        if view.state is PartitionState.NEW and not online:
            return (
                "it never had a leader: none of its replicas is online",
                _restore(candidates) or (f"start one of the brokers {_listed(each.broker for each in candidates)}",),
            )
        return "it never had a leader that the controller knows of: nothing readable is stored for it", ()
    stopping = [each for each in candidates if each.broker_state == "shutting_down"]
    known = [each.broker for each in (*online, *stopping)]
    lost = [broker for broker in view.isr if broker not in known]
    remedies = [*_restore(each for each in stopping if each.in_sync)]
    if lost:
        remedies.append(f"bring back broker {' or '.join(map(str, lost))}, which has all records")
    if online:
        remedies.append(
            f"or let broker {online[0].broker} lead, which loses the records that it does not have:"
            f" kactl elect unclean -p {view.name}"
        )
    elif len(stopping) < len(candidates):
        dead = _listed(each.broker for each in candidates if each not in stopping)
        remedies.append(f"none of its replicas is online: start brokers {dead}")
    return f"nobody leads: of those in sync ({_listed(view.isr)}) nobody is online", tuple(remedies)


def _restore(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """The remedy for replicas whose brokers run, and are drained or about to stop."""
    stopping = [each.broker for each in candidates if each.broker_state == "shutting_down"]
    undo = " and ".join(f"kactl broker drain --undo {broker}" for broker in stopping)
    return (f"let broker {' or '.join(map(str, stopping))} lead again: {undo}",) if stopping else ()


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
