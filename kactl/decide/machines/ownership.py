"""Placement of the partitions of ownership topics, here called shards, on the participants that offer them.

    no owner ──place──▶ owned ──even, by a planned hand-over──▶ owned by another member
       ▲                  │
       └──the owner left──┘

Placement is sticky and even. When a member leaves, only its own shards move. A member that joins receives just as many
shards as make the shares even. In each topic every member owns its share by weight, rounded up or down; where several
members may have the extra shard, the one with the least of all topics gets it, and among equal ones the one that came
last.

While members are restarted one after the other, as by a deploy, all shards move anyway. `restart` finds that out. As
long as members are still to be restarted, shares may differ as far as no member owns more than one shard
above its share: what the next one leaves goes to the ones that came last. After that, members that have been restarted
may own one shard less than their share. So each shard moves once, and a few of them twice.

There is no replica list and no in-sync set: any member may own any shard, except where it has reported that it cannot.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kactl.model import NO_BROKER

# Shares are quotients of small numbers; two of them that differ by less are equal.
_EPSILON: Final = 1e-9


class Shard(NamedTuple):
    """One partition.

    Attributes:
        owner: NO_BROKER, or a broker that is no member, if the shard needs an owner.
        standbys: the brokers that follow it.
        barred: members that cannot own it now, since their handlers have failed or have resigned.
        epoch: the leader epoch: how often it has moved, about. Those that have moved least move first.
        resigned: members whose handlers have failed or have resigned before that, the latest first. They own it again
            when all others have tried.
        fails: its handler has failed a short time ago, or does so now.
        has_failed: it did so some minutes ago.
    """

    owner: int
    standbys: tuple[int, ...] = ()
    barred: frozenset[int] = frozenset()
    epoch: int = 0
    resigned: tuple[int, ...] = ()
    fails: bool = False
    has_failed: bool = False

    def turn(self, member: int) -> int:
        """Sorts members: first those that have not resigned it, last the one that did so last."""
        return len(self.resigned) - self.resigned.index(member) if member in self.resigned else 0


class Shards(NamedTuple):
    """The shards of one topic.

    Attributes:
        weights: the members, by id: the participants that offer the topic and can be reached.
        standby: how many members follow each shard.
        joined: numbers that grow in the order in which the members came, by id.
        restarted: the members that take part in a restart, or took part in the last one.
        is_restarting: whether some of them are still to be restarted.
        unreached: other participants that offer the topic, as many do after a takeover: they stay standbys.
    """

    weights: Mapping[int, int]
    standby: int
    shards: tuple[Shard, ...]
    joined: Mapping[int, int] = {}
    restarted: frozenset[int] = frozenset()
    is_restarting: bool = False
    unreached: frozenset[int] = frozenset()


class Place(NamedTuple):
    """Where a shard is to be."""

    owner: int
    standbys: tuple[int, ...] = ()

    @property
    def replicas(self) -> tuple[int, ...]:
        return (self.owner, *self.standbys)


class Handover(NamedTuple):
    """A shard that moves so that the shares become even. `topic` and `shard` are positions."""

    topic: int
    shard: int
    owner: int


class _Shares:
    """How many shards of one topic each member owns, compared with its share.

    Attributes:
        left: how many shards have no owner.
    """

    def __init__(self, topic: Shards, owners: Iterable[int]) -> None:
        self.counts = dict.fromkeys(sorted(topic.weights), 0)
        self.left = 0
        for owner in owners:
            if owner in self.counts:
                self.counts[owner] += 1
            else:
                self.left += 1
        whole = sum(topic.weights.values())
        self._quotas = {id_: len(topic.shards) * weight / whole for id_, weight in topic.weights.items()}

    def excess(self, member: int) -> float:
        """By how many shards a member has more than its share; negative if it has fewer."""
        return self.counts[member] - self._quotas[member]

    def has_room(self, member: int) -> bool:
        """Whether a member may get another of the shards that are left, so that the rest suffices for all others."""
        lacks = {id_: math.floor(quota + _EPSILON) - self.counts[id_] for id_, quota in self._quotas.items()}
        fits = self.counts[member] < math.ceil(self._quotas[member] - _EPSILON)
        return lacks[member] > 0 or (fits and self.left > sum(max(0, lack) for lack in lacks.values()))


class _Layout:
    """The owners of the shards of several topics, while they are planned."""

    def __init__(self, topics: Sequence[Shards], owners: list[list[int]]) -> None:
        self.topics = topics
        self.owners = owners
        self.shares = [_Shares(topic, owned) for topic, owned in zip(topics, owners, strict=True)]
        self.excess: dict[int, float] = {}  # by member, of all topics together
        for shares in self.shares:
            for member in shares.counts:
                self.excess[member] = self.excess.get(member, 0.0) + shares.excess(member)

    def move(self, number: int, shard: int, owner: int) -> None:
        """Give a shard to a member."""
        shares, before = self.shares[number], self.owners[number][shard]
        if before in shares.counts:
            shares.counts[before] -= 1
            self.excess[before] -= 1
        else:
            shares.left -= 1
        shares.counts[owner] += 1
        self.excess[owner] += 1
        self.owners[number][shard] = owner

    def hand_over(self, number: int, burden: Callable[[int], float]) -> int | None:
        """Move a shard of a topic from a member with a large burden to one with a small one, if they differ by more
        than one shard, and the topic stays even. Returns the position of the shard."""
        topic, shares = self.topics[number], self.shares[number]
        order = sorted(shares.counts, key=lambda member: self.preference(number, member, burden(member)))
        for after in order:
            if burden(order[-1]) - burden(after) <= 1 + _EPSILON:
                break
            for before in self._givers(number, after, order, burden):
                if burden(before) - burden(after) <= 1 + _EPSILON:
                    continue
                if shares.excess(before) - shares.excess(after) < 1 - _EPSILON:
                    continue
                able = [
                    index
                    for index, shard in enumerate(topic.shards)
                    if self.owners[number][index] == before and not shard.fails and after not in shard.barred
                ]
                if able:
                    # One that has failed is to be the only one that pays for it.
                    index = min(able, key=lambda index: (not topic.shards[index].has_failed, topic.shards[index].epoch))
                    self.move(number, index, after)
                    return index
        return None

    def preference(self, number: int, member: int, burden: float) -> tuple[float, ...]:
        """Sorts members: first the one that is to get a shard, last the one that is to give one."""
        # The longer a member has been there, the sooner it is replaced, and all that it owns moves anyway.
        return burden, self.excess[member], -self.topics[number].joined.get(member, 0), member

    def need(self, number: int, member: int) -> tuple[float, ...]:
        """Sorts members by how much they need a shard that has no owner."""
        preference = self.preference(number, member, self.shares[number].excess(member))
        if self.topics[number].is_restarting and self.shares[number].excess(member) <= _EPSILON:
            # Those that came last are not restarted again, so that the shard need not move once more.
            return -math.inf, preference[2], *preference
        return preference

    def _givers(self, number: int, after: int, order: list[int], burden: Callable[[int], float]) -> list[int]:
        """Returns the members that may give a shard to another one, the best first."""
        topic, givers = self.topics[number], order[::-1]
        if after not in topic.restarted:
            return givers
        above = list(itertools.takewhile(lambda member: burden(member) > 1 + _EPSILON, givers))
        is_idle = not self.shares[number].counts.get(after)
        lacks = burden(after) < -1 - _EPSILON
        if topic.is_restarting or not (is_idle or lacks):
            return above
        # Those that have been there longest are restarted next. They give first, but keep one less than their share.
        spare = [member for member in givers if -_EPSILON < burden(member) <= 1 + _EPSILON]
        return above + sorted(spare, key=lambda member: topic.joined.get(member, 0)) + givers


def place(topics: Sequence[Shards]) -> list[list[Place]]:
    """Returns the place of each shard, by topic: owners that are members stay, and so do standbys.

    A shard without an owner goes to one of its standbys if that leaves the shares even, and otherwise to the member
    that lacks most. So does one whose owner is barred; members that have failed or resigned before get it last. If
    there is no member that is not barred, the owner stays.
    """
    layout = _Layout(topics, [[_kept(topic, shard) for shard in topic.shards] for topic in topics])
    for number, topic in enumerate(topics):
        shares, owners = layout.shares[number], layout.owners[number]
        warm = {
            index: [member for member in shard.standbys if member in topic.weights and member not in shard.barred]
            for index, shard in enumerate(topic.shards)
            if owners[index] == NO_BROKER
        }
        # First those that a standby can take.
        for index in sorted(warm, key=lambda index: (not warm[index], -topic.shards[index].epoch)):
            shard = topic.shards[index]
            able = [member for member in shares.counts if member not in shard.barred]
            ready = [member for member in warm[index] if shares.has_room(member) and not shard.turn(member)]
            if able:
                owner = min(ready or able, key=lambda member: (shard.turn(member), *layout.need(number, member)))
                layout.move(number, index, owner)
            else:
                owners[index] = topic.shards[index].owner
    return [
        [Place(owner, standbys) for owner, standbys in zip(owners, _standbys(topic, owners, layout), strict=True)]
        for topic, owners in zip(topics, layout.owners, strict=True)
    ]


def _kept(topic: Shards, shard: Shard) -> int:
    """Returns the owner of a shard if it stays, and otherwise NO_BROKER."""
    stays = shard.owner in topic.weights and (shard.owner not in shard.barred or topic.weights.keys() <= shard.barred)
    return shard.owner if stays else NO_BROKER


def _standbys(topic: Shards, owners: Sequence[int], layout: _Layout) -> list[tuple[int, ...]]:
    """The standbys of each shard: those that it has, its former owner, and then members with little to follow."""
    kept: list[list[int]] = []
    for shard, owner in zip(topic.shards, owners, strict=True):
        able = [
            member
            for member in dict.fromkeys((*shard.standbys, shard.owner))
            if member in topic.weights.keys() | topic.unreached and member != owner and member not in shard.barred
        ]
        kept.append(able[: topic.standby])
    counts, pairs = Counter[int](), Counter[tuple[int, int]]()
    for owner, members in zip(owners, kept, strict=True):
        for member in members:
            counts[member] += 1
            pairs[owner, member] += 1

    def burden(owner: int, member: int) -> tuple[float, ...]:
        # The shards of one owner are spread over many standbys, which take over together when it ends.
        return pairs[owner, member], counts[member] / topic.weights[member], layout.excess[member], member

    for members, shard, owner in zip(kept, topic.shards, owners, strict=True):
        while len(members) < topic.standby:
            able = [member for member in topic.weights if member not in (owner, *members, *shard.barred)]
            if not able:
                break
            member = min(able, key=functools.partial(burden, owner))
            members.append(member)
            counts[member] += 1
            pairs[owner, member] += 1
    return [tuple(members) for members in kept]


def even(topics: Sequence[Shards], *, limit: int) -> list[Handover]:
    """Returns up to `limit` hand-overs between members that even out the shares: the least that do.

    First each topic by itself, and if that is done the sum of all topics, as far as the topics stay even: a member does
    not give and get at once. Shards whose owners are no members stay.

    A shard that fails everywhere goes from member to member. It counts where the shares need it, whatever its owner is:
    no other shard moves because of it.
    """
    owners = [[NO_BROKER if shard.fails else shard.owner for shard in topic.shards] for topic in topics]
    layout = _Layout(topics, owners)
    for number, topic in enumerate(topics):
        for position, shard in enumerate(topic.shards):
            if shard.fails and topic.weights:
                excess = layout.shares[number].excess
                order = sorted(topic.weights, key=lambda member: layout.preference(number, member, excess(member)))
                stays = shard.owner in topic.weights and all(
                    spare(shard.owner) - spare(order[0]) < _EPSILON for spare in (excess, layout.excess.__getitem__)
                )
                layout.move(number, position, shard.owner if stays else order[0])
    moved: dict[tuple[int, int], None] = {}
    for of_all in (False, True):
        if of_all and moved:
            break
        for number, shares in enumerate(layout.shares):
            burden = layout.excess.__getitem__ if of_all else shares.excess
            while len(moved) < limit and (index := layout.hand_over(number, burden)) is not None:
                moved[number, index] = None
    places = [Handover(number, index, layout.owners[number][index]) for number, index in moved]
    return [move for move in places if move.owner != topics[move.topic].shards[move.shard].owner]
