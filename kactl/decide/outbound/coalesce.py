"""Coalescing of requests that are queued for a slow broker, without a difference in their effect.

A broker that accepts no requests for a while accumulates one LeaderAndIsr and one UpdateMetadata per change, most of
which later ones supersede. Queued requests are merged by the rules below; all others stay unchanged. The request in
flight is never touched: the broker may have acted on it.

**Two of a type are merged** if, for every partition that both name,

* UpdateMetadata: the later state counts. It must not restore a partition that the earlier one removes, because brokers
  drop everything about a partition when it is removed. The later list of live brokers counts.
* LeaderAndIsr: the higher leader epoch counts, and of equal ones the first, since brokers ignore an epoch that they
  have. The one that counts must therefore be one that the broker accepts: it names the broker as a replica, and as
  leader the broker itself or one that it knows to be alive. "Is new" stays set once it was set, and must not be set by
  the later one only.
* StopReplica: "delete" stays set once it was set. The one that counts must be obeyed wherever the other would have
  been. If both delete, they must be equal, or the first must be obeyed for certain, because both have responses.

**One moves past another** to be next to one of its type, if neither is affected:

* LeaderAndIsr and StopReplica, if they have no partition in common.
* LeaderAndIsr and UpdateMetadata, if the new list of live brokers adds, removes or changes no leader in it: a follower
  does not follow a broker that it does not know to be alive.
* StopReplica and UpdateMetadata always.

A request with a topic that occurs under two ids is neither merged nor moved past: that topic was deleted and created
again. Requests of different controllers, or to different registrations, are not changed. LeaseRelease and StateSent
stay where they are, and no other request moves past them.

Source: the handling of the three requests in brokers (ReplicaManager, MetadataCache).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.decide.messages.control import (
    UNKNOWN_REASON,
    KafkaRequest,
    LeaderAndIsr,
    OrderReason,
    PartitionStates,
    Request,
    StopReplica,
    UpdateMetadata,
)
from kactl.decide.state.topics import Topics
from kactl.model import NO_BROKER, Broker

from .merge import Alive, Leading, MergeCandidate, Metadata, PartitionIndex, Stopping, Winners
from .request_columns import OPTIONAL, padded

__all__ = ["Alive", "Coalesced", "coalesced"]

# How many others one request may move past; requests further back are not considered.
_PAST_MAX: Final = 6


class Coalesced(NamedTuple):
    """A request, and the position of the oldest request that it replaces."""

    request: Request
    since: int


def coalesced(requests: Sequence[Request], *, broker: int, alive: Alive | None) -> list[Coalesced]:
    """Returns an equivalent sequence of as many requests or fewer.

    Args:
        requests: the queue, in order; all to one registration.
        broker: the recipient.
        alive: the brokers that the recipient knows to be alive when it receives the first request; None if unknown.
    """
    result: list[Coalesced] = []
    part: list[KafkaRequest] = []
    for index, request in enumerate(requests):
        if isinstance(request, KafkaRequest):
            part.append(request)
            continue
        result += _between(part, index - len(part), broker=broker, alive=alive)
        alive = next((other.alive for other in reversed(part) if isinstance(other, UpdateMetadata)), alive)
        part = []
        result.append(Coalesced(request, index))
    return result + _between(part, len(requests) - len(part), broker=broker, alive=alive)


def _between(requests: Sequence[KafkaRequest], begin: int, *, broker: int, alive: Alive | None) -> list[Coalesced]:
    """Coalesce a part of the queue that begins at a position."""
    untouched = [Coalesced(request, begin + index) for index, request in enumerate(requests)]
    if len(requests) < 2 or len({(r.controller_id, r.controller_epoch, r.broker_epoch) for r in requests}) > 1:
        return untouched
    index_of = PartitionIndex(requests)
    groups: list[MergeCandidate] = []
    for index, request in enumerate(requests):
        candidate = _group(index, request, index_of, broker, alive)
        if isinstance(candidate, Metadata):
            alive = candidate.after
        _place(groups, candidate)
    for group in groups[-_PAST_MAX - 1 :]:
        group.settle()
    return [Coalesced(_merged(group, requests, index_of), begin + min(group.members)) for group in groups]


def _group(
    index: int, request: KafkaRequest, named: PartitionIndex, broker: int, alive: Alive | None
) -> MergeCandidate:
    match request:
        case LeaderAndIsr():
            return Leading(index, request, named, broker, alive)
        case UpdateMetadata():
            return Metadata(index, request, named, alive)
        case StopReplica():
            return Stopping(index, request, named)


def _place(groups: list[MergeCandidate], candidate: MergeCandidate) -> None:
    """Merge `made` with the last of its type, in the place of either one; or append it."""
    past: list[MergeCandidate] = []
    for index in range(len(groups) - 1, max(-1, len(groups) - 2 - _PAST_MAX), -1):
        group = groups[index]
        if candidate.conflicting or group.conflicting:
            break
        if type(group) is not type(candidate):
            past.append(group)
            continue
        if not group.fits(candidate):
            break
        if all(_may_pass(candidate, other) for other in past):
            group.take(candidate)
            return
        if all(_may_pass(group, other) for other in past):
            groups.pop(index)
            group.take(candidate)
            groups.append(group)
            return
        break
    groups.append(candidate)
    if len(groups) > _PAST_MAX + 1:
        groups[-_PAST_MAX - 2].settle()


def _may_pass(mover: MergeCandidate, other: MergeCandidate) -> bool:
    """Whether the two may change places."""
    if isinstance(mover, Metadata) and isinstance(other, Leading):
        return mover.before is not None and not other.names_leader_among(mover.changed())
    if isinstance(mover, Leading) and isinstance(other, Metadata):
        return other.before is not None and not mover.names_leader_among(other.changed())
    if isinstance(mover, Metadata) or isinstance(other, Metadata):
        return True
    return not (mover.has & other.has).any()


# -- the merged request ------------------------------------------------------------------------------------------------


def _merged(group: MergeCandidate, requests: Sequence[KafkaRequest], named: PartitionIndex) -> KafkaRequest:
    last = requests[group.members[-1]]
    if group.words is None:
        return last
    words = group.words
    members, reasons = _with_joined_reasons([requests[index] for index in group.members])
    numbers, topic = np.unique(named.topic[words.numbers], return_inverse=True)
    topics, position = Topics.of([named.topics[index] for index in numbers.tolist()]), topic.astype(np.int32)
    columns = _Columns(group.members, members, words)
    if isinstance(last, StopReplica):
        return dataclasses.replace(
            last,
            topics=topics,
            topic=position,
            partition=named.partition[words.numbers],
            leader_epoch=columns.of("leader_epoch"),
            delete=columns.of("delete"),
        )
    states = PartitionStates(
        topics=topics,
        topic=position,
        partition=named.partition[words.numbers],
        **{name: columns.of(name) for name in _STATES},
    )
    if isinstance(last, UpdateMetadata):
        return dataclasses.replace(last, states=states)
    states = dataclasses.replace(states, is_new=words.is_new)
    known: dict[int, Broker] = {}
    for member in members:
        assert isinstance(member, LeaderAndIsr)
        known |= {leader.id: leader for leader in member.live_leaders}
    leaders = np.unique(states.leader).tolist()
    if states.reason is not None:
        # Requests that have been merged before may have reasons that no row has any more.
        numbers, reason = np.unique(states.reason, return_inverse=True)
        reasons = tuple(reasons[number] for number in numbers.tolist())
        states = dataclasses.replace(states, reason=reason.astype(np.int32))
    return dataclasses.replace(
        last,
        states=states,
        live_leaders=tuple(known[id_] for id_ in leaders if id_ in known),
        reasons=reasons,
    )


def _with_joined_reasons(members: list[KafkaRequest]) -> tuple[list[KafkaRequest], tuple[OrderReason, ...]]:
    """Number the reasons of all requests together."""
    if not any(isinstance(member, LeaderAndIsr) and member.reasons for member in members):
        return members, ()
    reasons: list[OrderReason] = []
    numbered: list[KafkaRequest] = []
    for member in members:
        assert isinstance(member, LeaderAndIsr)
        own = np.zeros(len(member.states), np.int32) if member.states.reason is None else member.states.reason
        states = dataclasses.replace(member.states, reason=own + np.int32(len(reasons)))
        reasons += member.reasons or (UNKNOWN_REASON,)
        numbered.append(dataclasses.replace(member, states=states))
    return numbered, tuple(reasons)


_STATES: Final = tuple(
    field.name
    for field in dataclasses.fields(PartitionStates)
    if field.name not in ("topics", "topic", "partition", "is_new")
)


class _Columns:
    """Gathers columns of the deciding rows."""

    def __init__(self, positions: list[int], members: Sequence[KafkaRequest], words: Winners) -> None:
        self._parts = []
        for position, request in zip(positions, members, strict=True):
            which = np.flatnonzero(words.source == position)
            content: Any = request if isinstance(request, StopReplica) else request.states
            self._parts.append((which, content, words.row[which]))
        self._count = len(words.numbers)

    def of(self, name: str) -> Any:
        """Returns one column; None if it is None in all requests."""
        parts = [
            (which, column[..., rows])
            for which, content, rows in self._parts
            if (column := getattr(content, name)) is not None
        ]
        if not parts:
            return None
        first = parts[0][1]
        if first.ndim == 1:
            gathered = np.full(self._count, OPTIONAL.get(name, 0), first.dtype)
        else:
            width = max(len(column) for _, column in parts)
            gathered = np.full((width, self._count), NO_BROKER, np.int32)
            parts = [(which, padded(column, width, NO_BROKER)) for which, column in parts]
        for which, column in parts:
            gathered[..., which] = column
        return gathered
