"""Requests that wait for a slow broker, put together without a difference to what becomes of the broker.

A broker that takes nothing for a while is left one LeaderAndIsr and one UpdateMetadata for every change meanwhile, most
of which the later ones make void. What waits may be put together under these rules; whatever they do not cover stays as
it is. The request in flight is never touched: the broker may have acted on it.

**Two of a kind become one** where, for every partition that both name,

* UpdateMetadata: the later word counts; it may not bring back a partition that the earlier one takes away, for brokers
  forget what belongs to a partition when they hear that it is gone. The later list of live brokers counts.
* LeaderAndIsr: the higher leader epoch counts, and of equal ones the first, since brokers pass over an epoch that they
  have. So the word that counts has to be one that the broker takes: it names the broker as a replica, and as leader the
  broker itself or one that it knows to be alive. "Is new" stays once it was said, and may not be said later only.
* StopReplica: "delete" stays once it was said; the word that counts must be obeyed wherever the other would have been.
  Where both delete they have to say the same, or the first be obeyed for certain, because both are answered.

**One moves past another** to stand next to its like where neither notices:

* LeaderAndIsr and StopReplica, where they name no partition in common.
* LeaderAndIsr and UpdateMetadata, where no leader that is named comes, goes or moves with the new list of live brokers:
  a follower does not follow whom it does not know to be alive.
* StopReplica and UpdateMetadata always.

Nothing is put together with, or moves past, what names a topic that is known under two ids here: that one was deleted
and made again. Of requests by different controllers, or to different registrations, none is touched.

Source: what brokers do with the three requests (ReplicaManager, MetadataCache).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.messages.control import LeaderAndIsr, PartitionStates, Request, StopReplica, UpdateMetadata
from kactl.model import NO_BROKER, Broker
from kactl.state.topics import Topics

from .merge import Alive, Leading, MergeCandidate, Metadata, PartitionIndex, Stopping, Winners, alive_in
from .request_columns import padded

__all__ = ["Alive", "Coalesced", "alive_in", "coalesced"]

# How many others one may move past; what lies further back is not looked at any more.
_PAST_MAX: Final = 6


class Coalesced(NamedTuple):
    """A request, and which of the requests that it stands for was the first to wait."""

    request: Request
    since: int


def coalesced(requests: Sequence[Request], *, broker: int, alive: Alive | None) -> list[Coalesced]:
    """Fewer requests, or as many, that have the same effect in their order.

    Args:
        requests: what waits, in its order; all of them to one registration.
        broker: who gets them.
        alive: whom the broker will know to be alive when the first of them arrives; None if that is not known.
    """
    untouched = [Coalesced(request, at) for at, request in enumerate(requests)]
    if len(requests) < 2 or len({(r.controller_id, r.controller_epoch, r.broker_epoch) for r in requests}) > 1:
        return untouched
    named = PartitionIndex(requests)
    groups: list[MergeCandidate] = []
    for at, request in enumerate(requests):
        made = _group(at, request, named, broker, alive)
        if isinstance(made, Metadata):
            alive = made.after
        _place(groups, made)
    for group in groups[-_PAST_MAX - 1 :]:
        group.settle()
    return [Coalesced(_merged(group, requests, named), min(group.members)) for group in groups]


def _group(at: int, request: Request, named: PartitionIndex, broker: int, alive: Alive | None) -> MergeCandidate:
    match request:
        case LeaderAndIsr():
            return Leading(at, request, named, broker, alive)
        case UpdateMetadata():
            return Metadata(at, request, named, alive)
        case StopReplica():
            return Stopping(at, request, named)


def _place(groups: list[MergeCandidate], made: MergeCandidate) -> None:
    """Put `made` together with the last of its kind, where that stands or at the end; or put it at the end."""
    past: list[MergeCandidate] = []
    for at in range(len(groups) - 1, max(-1, len(groups) - 2 - _PAST_MAX), -1):
        group = groups[at]
        if made.conflicting or group.conflicting:
            break
        if type(group) is not type(made):
            past.append(group)
            continue
        if not group.fits(made):
            break
        if all(_may_pass(made, other) for other in past):
            group.take(made)
            return
        if all(_may_pass(group, other) for other in past):
            groups.pop(at)
            group.take(made)
            groups.append(group)
            return
        break
    groups.append(made)
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


# -- one request of several --------------------------------------------------------------------------------------------


def _merged(group: MergeCandidate, requests: Sequence[Request], named: PartitionIndex) -> Request:
    last = requests[group.members[-1]]
    if group.words is None:
        return last
    words = group.words
    members = [requests[at] for at in group.members]
    numbers, topic = np.unique(named.topic[words.numbers], return_inverse=True)
    topics, place = Topics.of([named.topics[at] for at in numbers.tolist()]), topic.astype(np.int32)
    columns = _Columns(group.members, members, words)
    if isinstance(last, StopReplica):
        return dataclasses.replace(
            last,
            topics=topics,
            topic=place,
            partition=named.partition[words.numbers],
            leader_epoch=columns.of("leader_epoch"),
            delete=columns.of("delete"),
        )
    states = PartitionStates(
        topics=topics,
        topic=place,
        partition=named.partition[words.numbers],
        **{name: columns.of(name) for name in _STATES},
    )
    if isinstance(last, UpdateMetadata):
        return dataclasses.replace(last, states=states)
    states = dataclasses.replace(states, is_new=words.is_new)
    known: dict[int, Broker] = {}
    for each in members:
        assert isinstance(each, LeaderAndIsr)
        known |= {leader.id: leader for leader in each.live_leaders}
    leaders = np.unique(states.leader).tolist()
    return dataclasses.replace(last, states=states, live_leaders=tuple(known[id_] for id_ in leaders if id_ in known))


_STATES: Final = tuple(
    field.name
    for field in dataclasses.fields(PartitionStates)
    if field.name not in ("topics", "topic", "partition", "is_new")
)


class _Columns:
    """Gathers columns of those rows whose words count."""

    def __init__(self, places: list[int], members: Sequence[Request], words: Winners) -> None:
        self._parts = []
        for place, request in zip(places, members, strict=True):
            which = np.flatnonzero(words.source == place)
            held: Any = request if isinstance(request, StopReplica) else request.states
            self._parts.append((which, held, words.row[which]))
        self._count = len(words.numbers)

    def of(self, name: str) -> Any:
        """One column; None where it is None in all."""
        found = [
            (which, column[..., rows])
            for which, held, rows in self._parts
            if (column := getattr(held, name)) is not None
        ]
        if not found:
            return None
        first = found[0][1]
        if first.ndim == 1:
            gathered = np.zeros(self._count, first.dtype)
        else:
            width = max(len(column) for _, column in found)
            gathered = np.full((width, self._count), NO_BROKER, np.int32)
            found = [(which, padded(column, width, NO_BROKER)) for which, column in found]
        for which, column in found:
            gathered[..., which] = column
        return gathered
