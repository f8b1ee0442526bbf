"""States of the partitions of ownership topics, here called shards, and the reason for each.

Derived from the cluster state. Read-only. The leader is the owner, and the other members of the ISR are the standbys.
"""

import enum
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, RowNumbers, Rows
from kactl.decide.state.table import NO_ROW
from kactl.model import NO_BROKER, PartitionState, PartitionView, ReplicaStatus, TopicPartition

from .explain import (
    STATE_TEXT,
    STOPPING,
    Candidate,
    Explanation,
    Moment,
    broker_state,
    explain_partition,
    handler_text,
    stuck_remedy,
    waits_for,
)

# Participants that an explanation lists. Those that own or follow the shard, or have failed, come first.
CANDIDATES_MAX: Final = 100
_NAMED_MAX: Final = 5
_NO_MOMENT: Final = Moment()


class ShardState(enum.IntEnum):
    """State of a shard. The name is also the one of the API and of metrics, in lower case."""

    UNOWNED = 0  # no participant that can be used owns it
    HANDOVER = 1  # its next owner prepares, and the former one owns it until then
    WAITING = 2  # its owner waits for the end of the former one's lease
    PREPARING = 3  # its owner prepares
    FAILING = 4  # the handler of its owner has failed, and is called again
    OWNED = 5  # its owner leads

    @property
    def label(self) -> str:
        return self.name.lower()


def serving(cluster: Cluster, rows: Rows) -> Bools:
    """Returns bool[n]: whether the leaders act: those of handlers report it, and the others act once they may lead."""
    table, holds = cluster.table, cluster.holds
    later = np.array([cluster.leads_later.get(leader, True) for leader in rows.leader.tolist()], np.bool_)
    since = table.led_since()[rows.index]
    acts = ~later | cluster.readiness.holds(rows.index, rows.topic, rows.partition, rows.leader_epoch, since)
    held = holds.held(table.hold_columns(), rows.index, rows.leader) if holds.is_used else None
    result: Bools = acts if held is None else acts & ~held
    failed = [int(rows.index[at]) in table.dirs_offline(leader) for at, leader in enumerate(rows.leader.tolist())]
    return result & ~np.array(failed, np.bool_)


def failing(cluster: Cluster, rows: Rows) -> Bools:
    """Returns bool[n]: whether the handlers of the leaders have failed, and are called again here or elsewhere."""
    row = cluster.table.row
    reported = {(row(name), broker) for name, broker, each in cluster.reported_replicas() if each.fails}
    leaders = zip(rows.index.tolist(), rows.leader.tolist(), strict=True)
    return np.array([leader in reported for leader in leaders], np.bool_)


def states_of(cluster: Cluster, rows: Rows) -> Any:
    """Returns uint8[n]: the ShardState of each row. All rows are of ownership topics."""
    table, holds = cluster.table, cluster.holds
    states = np.where(serving(cluster, rows), np.uint8(ShardState.OWNED), np.uint8(ShardState.PREPARING))
    held = holds.held(table.hold_columns(), rows.index, rows.leader) if holds.is_used else None
    if held is not None:
        states[held] = ShardState.WAITING
    handed = [row for name in cluster.handovers if (row := table.row(name)) != NO_ROW]
    states[np.isin(rows.index, handed)] = ShardState.HANDOVER
    states[failing(cluster, rows)] = ShardState.FAILING
    states[~cluster.live_brokers.registered[rows.leader] | (rows.state != PartitionState.ONLINE)] = ShardState.UNOWNED
    return states


def shard_rows(cluster: Cluster) -> RowNumbers:
    """Returns the shards of all topics that are not being deleted."""
    return cluster.table.not_queued(cluster.table.owned(cluster.table.all()))


def explain(cluster: Cluster, name: TopicPartition, moment: Moment = _NO_MOMENT) -> Explanation | None:
    """Returns the explanation of a partition of any kind; None if it is unknown."""
    row = cluster.table.row(name)
    if row == NO_ROW or not cluster.is_shard(name):
        return explain_partition(cluster, name, moment)
    view = cluster.table.view(row)
    candidates = tuple(_candidates(cluster, view, moment))
    verdict, remedies = _verdict(cluster, view, candidates, moment)
    return Explanation(name.topic, name.partition, view.leader, verdict, remedies, candidates[:CANDIDATES_MAX])


def _candidates(cluster: Cluster, view: PartitionView, moment: Moment) -> Iterator[Candidate]:
    """Yield the participants: those that own or follow the shard first, and then those that cannot."""
    others = (id_ for id_, broker in cluster.brokers.items() if broker.incarnation and id_ not in view.replicas)
    rest = [_candidate(cluster, view, id_, moment) for id_ in others]
    owner = () if view.leader == NO_BROKER else (view.leader,)
    for id_ in dict.fromkeys((*owner, *view.replicas)):
        yield _candidate(cluster, view, id_, moment)
    yield from sorted(rest, key=lambda each: (not each.directory_failed, not each.may_lead, each.broker))


def _candidate(cluster: Cluster, view: PartitionView, id_: int, moment: Moment) -> Candidate:
    state, report = broker_state(cluster, id_), cluster.replica_report(view.name, id_)
    failed = cluster.table.row(view.name) in cluster.table.dirs_offline(id_)
    registered = cluster.brokers.get(id_)
    reasons = []
    if state != "live":
        drain = f" ({cluster.maintenance.drains[id_]})" if state == "drained" else ""
        reasons.append(f"it {STATE_TEXT[state]}{drain}")
    if registered is not None and registered.groups is not None and view.topic not in registered.groups:
        reasons.append("it offers other topics")
    if failed and report is None:
        resigned = cluster.resigned.get(view.name)
        reasons.append("it has resigned" if resigned is not None and resigned.broker == id_ else "its handler failed")
    if failed and report is not None:
        reasons.append(handler_text(report, moment))
    handover = cluster.handovers.get(view.name)
    if id_ == view.leader:
        verdict = "is its next owner" if handover is not None else "owns it"
        verdict += f", although {' and '.join(reasons)}" if reasons else ""
    elif handover is not None and handover.former == id_:
        verdict = "owns it until the next owner is prepared"
    elif reasons:
        verdict = "cannot own it: " + " and ".join(reasons)
    else:
        verdict = "standby: takes over first" if id_ in view.isr else "could own it"
    if report is not None and not (failed or report.status is ReplicaStatus.READY):
        verdict += f"; {handler_text(report, moment)}"
    if id_ in moment.links:
        verdict += f"; {moment.links[id_]}"
    return Candidate(id_, state, id_ in view.isr, failed, not reasons, verdict)


def _verdict(
    cluster: Cluster, view: PartitionView, candidates: tuple[Candidate, ...], moment: Moment
) -> tuple[str, tuple[str, ...]]:
    if view.topic in cluster.topics_to_delete:
        return f"topic {view.topic} is being deleted, so no owner is chosen", ()
    state = ShardState(
        int(states_of(cluster, cluster.table.rows(np.array([cluster.table.row(view.name)], np.intp)))[0])
    )
    owner, handover = named(cluster, view.leader), cluster.handovers.get(view.name)
    match state:
        case ShardState.UNOWNED:
            return _unowned(cluster, view, candidates)
        case ShardState.HANDOVER if handover is not None:
            former = f"{named(cluster, handover.former)} owns it until then"
            return f"{owner} is its next owner, and prepares; {former}", ()
        case ShardState.FAILING:
            return f"{owner} owns it, and cannot work: {_failure(cluster, view, moment)}", _remedies(cluster, view)
        case ShardState.WAITING:
            waited = waits_for(cluster, view, moment) or "the answers of all participants to this controller"
            return f"{owner} is its owner, and waits for {waited}", ()
        case ShardState.PREPARING:
            return f"{owner} is its owner, and its handler still prepares", ()
    return f"{owner} owns it under leader epoch {view.leader_epoch}: {_share(cluster, view)}", _remedies(cluster, view)


def named(cluster: Cluster, participant: int) -> str:
    """Returns a participant with its name, if it has not chosen its id."""
    registered = cluster.brokers.get(participant)
    name = "" if registered is None else registered.name
    return f"participant {participant} ({name})" if name else f"participant {participant}"


def _failure(cluster: Cluster, view: PartitionView, moment: Moment) -> str:
    report = cluster.replica_report(view.name, view.leader)
    return "its handler has failed" if report is None else handler_text(report, moment)


def _share(cluster: Cluster, view: PartitionView) -> str:
    """Returns how many shards of the topic the owner has, and how many an even share is."""
    topic = cluster.table.topic(view.topic)
    weights = cluster.members(view.topic)
    if topic is None or view.leader not in weights:
        return "it offers the topic no more, and another one is chosen"
    leaders = cluster.table.column("leader")[cluster.table.rows_of(topic)]
    quota = len(leaders) * weights[view.leader] / sum(weights.values())
    low, high = int(np.floor(quota + 1e-9)), int(np.ceil(quota - 1e-9))
    even = str(low) if low == high else f"{low} or {high}"
    owned = int(np.count_nonzero(leaders == view.leader))
    return f"it owns {owned} of the {len(leaders)} shards of {view.topic}, and {even} is its even share"


def _unowned(cluster: Cluster, view: PartitionView, candidates: tuple[Candidate, ...]) -> tuple[str, tuple[str, ...]]:
    members = cluster.members(view.topic)
    if members:
        reasons = [f"{named(cluster, each.broker)} {each.verdict}" for each in candidates if each.broker in members]
        more = f"; {len(reasons) - 1} more cannot either" if len(reasons) > 1 else ""
        again = "each is tried again" if more else "it is tried again"
        return f"no participant owns it: {reasons[0]}{more}; {again}", _remedies(cluster, view)
    stopped = [each for each in candidates if each.broker_state in STOPPING]
    undo = [f"let it be owned again: kactl broker drain --undo {each.broker}" for each in stopped[:1]]
    why = "none is registered"
    if candidates:
        more = f"; {len(candidates) - 1} more cannot either" if len(candidates) > 1 else ""
        why = f"{named(cluster, candidates[0].broker)} {candidates[0].verdict}{more}"
    return (
        f"no participant that can be used offers it: {why}; the first that does owns it",
        (*undo, f"start a participant that offers {view.topic}: without groups= it offers all topics"),
    )


def _remedies(cluster: Cluster, view: PartitionView) -> tuple[str, ...]:
    """Returns the remedies for participants whose handlers have failed: the first of each kind."""
    remedies: dict[str, None] = {}
    for id_ in cluster.brokers:
        report = cluster.replica_report(view.name, id_)
        if report is None or not report.fails:
            continue
        if remedy := stuck_remedy(id_, report):
            remedies[remedy] = None
        elif not remedies:
            correct = f"correct the handler: the log of the process of {named(cluster, id_)} has the traceback"
            remedies[f"{correct}; to try it again now: kactl replica reset {view.name} --broker {id_}"] = None
    return tuple(remedies)[:_NAMED_MAX]
