"""Invariants at every moment of a storm, and at rest."""

import asyncio
from collections import Counter
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kactl.actors.system import Controller
from kactl.machines import partition, replica
from kactl.messages.events import BalanceDue, StandbyDue
from kactl.messages.log import PartitionEvent, ReplicaEvent, TopicEvent
from kactl.model import NO_BROKER, NO_LEADER, NO_VERSION, PartitionState, PartitionView, ReplicaState, TopicPartition
from kactl.state.rows import RowNumbers
from kactl.stores.base import Names
from kactl.stores.entries import Entries, topic_numbers

from .base import BROKERS
from .fleet import Host
from .storm import Storm

# More than a topic of a storm ever has: three at first, and one more for each expansion.
PARTITIONS_MAX: Final = 64


class Writes:
    """Checks every leadership that is stored, by any writer."""

    def __init__(self, storm: Storm) -> None:
        self._state = storm.store.state
        self._last: dict[tuple[int, int], tuple[int, int, int, frozenset[int]]] = {}
        self.complaints: list[str] = []
        put = self._state.put

        def watched(entries: Entries, rows: RowNumbers) -> None:
            for at in range(len(entries)):
                self._look(entries, at)
            put(entries, rows)

        self._state.put = watched  # type: ignore[method-assign]

    def _look(self, made: Entries, at: int) -> None:
        key = (int(made.topic[at]), int(made.partition[at]))
        isr = [broker for broker in made.isr[:, at].tolist() if broker != NO_BROKER]
        leader, epoch, version = int(made.leader[at]), int(made.leader_epoch[at]), int(made.version[at])
        before = self._last.get(key, (NO_LEADER, -1, NO_VERSION, frozenset()))
        said = f"{key}: {(leader, epoch, version, isr)} after {before}"
        self._must(bool(isr) and len(set(isr)) == len(isr), f"the ISR is empty or names somebody twice: {said}")
        self._must(leader == NO_LEADER or leader in isr, f"the leader is not in sync: {said}")
        self._must(version == before[2] + 1, f"a version was passed over: {said}")
        self._must(epoch >= before[1], f"a leader epoch went back: {said}")
        self._must(leader == before[0] or epoch > before[1], f"another leader under the same epoch: {said}")
        clean = not before[3] or leader in (NO_LEADER, before[0]) or leader in before[3] or self._is_new(key, before[3])
        self._must(clean or isr == [leader], f"an unclean leader is not alone: {said}")
        self._last[key] = leader, epoch, version, frozenset(isr)

    def _is_new(self, key: tuple[int, int], isr: frozenset[int]) -> bool:
        """Whether an ISR was written for an earlier topic of this name, as none of its brokers is assigned now."""
        topic, partition = key
        (name,) = (name for name, number in self._state.topic_numbers.items() if number == topic)
        piece = self._state.topics[name].assignment
        return isr.isdisjoint(piece.replicas[:, piece.partition == partition].ravel().tolist())

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            self.complaints.append(what)


def at_every_moment(storm: Storm, writes: Writes) -> None:
    """Check the invariants that hold at every moment, without waiting."""
    assert not writes.complaints, writes.complaints
    assert not storm.fleet.complaints, storm.fleet.complaints
    epoch = storm.store.state.epoch
    for controller in storm.controllers:
        cluster = controller.cluster
        assert cluster.count_again() == (cluster.offline_count, cluster.imbalance_count), "counters"
        assert cluster.shutting_down <= cluster.brokers.keys(), "a mark outlived its registration"
        assert cluster.deletion_ineligible.keys() <= cluster.topics_to_delete
        assert cluster.deletion_started <= cluster.topics_to_delete
        if not controller.is_active:
            continue
        if cluster.fence.epoch == epoch:
            _never_ahead(storm, controller)
        else:
            busy = (
                len(controller.loop.inbox) or controller.loop.event_stats.view(controller.loop.inbox, limit=0).current
            )
            assert busy, f"{controller.node_id} believes that it is active, and nothing will tell it otherwise"


def _never_ahead(storm: Storm, controller: Controller) -> None:
    """Assert that the cluster state is never newer than the store, and equal at equal versions."""
    table, state = controller.cluster.table, storm.store.state
    for row in table.with_leadership().tolist():
        view = table.view(row)
        topic = table.topic(view.topic)
        if view.topic not in state.topics or topic is None or state.topics[view.topic].ref != topic.ref:
            continue
        if not any(topic.ref.id):
            continue  # it may be another topic of that name
        names = Names.of([view.name])
        held = state.entries.read(topic_numbers(names, state.topic_numbers), names.partition).one(0)
        assert held is not None, f"{view} is not stored"
        assert view.partition_epoch <= held.partition_epoch, f"{view} is ahead of {held}"
        if view.partition_epoch == held.partition_epoch:
            assert _said(view) == (held.leader, held.leader_epoch, frozenset(held.isr), held.recovering), (view, held)


def _said(view: PartitionView) -> tuple[Any, ...]:
    return view.leader, view.leader_epoch, frozenset(view.isr), view.recovering


async def at_rest(storm: Storm) -> None:
    """Check the invariants at rest: no failures for a while, all brokers running, and time has passed."""
    active = storm.active
    assert active is not None, "nobody is the controller"
    assert active.loop.controllership.ready
    (other,) = (each for each in storm.controllers if each is not active)
    assert not other.is_active
    assert all(asked.done() for asked in storm.asked), "somebody still waits for an answer"
    _nothing_waits(storm, active, other)
    _nothing_is_left(storm, active)
    partitions = await storm.partitions()
    table = active.cluster.table
    views = {view.name: view for view in map(table.view, table.all().tolist())}
    known = {name: view.assignment for name, view in views.items()}
    assert known == partitions, dict(known.items() ^ partitions.items())
    assert {topic.ref for topic in table.topics()} == set(storm.topics().values())
    for name, view in views.items():
        stored = (await storm.store.leaderships(Names.of([name]))).one(0)
        assert stored is not None, f"{view} is not stored"
        assert view.partition_epoch == stored.partition_epoch, f"{view} / {stored}"
        _is_served(storm, name, view)
    assert len(storm.store.state.entries) == len(views) + await _orphans(storm, views.keys())
    missing = {name for name in storm.ends if name.topic in storm.topics()} - views.keys()
    assert not {name for name in missing if storm.ends[name] is not None}, f"{missing} are lost"
    if storm.options["balance_percentage"] == 0:
        assert active.cluster.imbalance_count == 0
    for host in storm.fleet.hosts.values():
        _believes(storm, host, views)
    for controller in storm.controllers:
        moves_are_legal(controller)


async def _orphans(storm: Storm, known: AbstractSet[TopicPartition]) -> int:
    """Count leaderships of partitions that their topic does not have.

    A controller writes one if it elects a first leader for a topic that was removed from the store by hand, and created
    again with fewer partitions, before it reads the new one. Nothing reads it until the topic grows.
    """
    again = sorted(storm.vanished & storm.topics().keys())
    absent = {TopicPartition(topic, partition) for topic in again for partition in range(PARTITIONS_MAX)} - known
    return int((await storm.store.leaderships(Names.of(sorted(absent)))).found.sum())


def _nothing_waits(storm: Storm, active: Controller, other: Controller) -> None:
    for controller in storm.controllers:
        loop = controller.loop
        assert not loop._later, f"to be looked at again: {list(loop._later)}"
        assert not len(loop.inbox)
        assert not controller.cluster.has_retries
    running = active.loop.controllership._timers._running.keys()
    assert running == {BalanceDue()}, running
    running = other.loop.controllership._timers._running.keys()
    assert running == ({StandbyDue()} if storm.options["standby_interval_ms"] else set()), running
    assert not other.channels.all()
    assert {channel.broker.id: len(channel) for channel in active.channels.all()} == dict.fromkeys(BROKERS, 0)
    names = Counter(task.get_name() for task in asyncio.all_tasks() if not task.done())
    named = {name: count for name, count in names.items() if name.startswith(("timer", "channel", "look again"))}
    assert all(count == 1 for count in named.values()), named


def _nothing_is_left(storm: Storm, active: Controller) -> None:
    cluster, state = active.cluster, storm.store.state
    assert {id: each.epoch for id, each in cluster.brokers.items()} == {
        host.id: host.epoch for host in storm.fleet.hosts.values()
    }
    assert cluster.shutting_down == frozenset()
    assert cluster.topics_to_delete == set(), cluster.deletion_ineligible
    assert state.deletions == set()
    assert cluster.deletion_unsure == set()
    assert cluster.reassigning == set()
    assert state.configs.keys() <= state.topics.keys()
    assert state.reassignment_request is None
    assert state.preferred_election_request is None
    assert not state.notifications
    assert cluster.offline_count == 0


def _is_served(storm: Storm, name: TopicPartition, view: PartitionView) -> None:
    assert view.state is PartitionState.ONLINE, view
    assert view.leader in view.isr, view
    assert set(view.isr) == set(view.replicas), view
    assert set(view.replica_states) == set(view.replicas), view
    assert set(view.replica_states.values()) == {ReplicaState.ONLINE}, view
    assert not view.assignment.is_being_reassigned, view
    ends = storm.ends.get(name)
    assert ends is None or view.replicas in ends, f"{view} was to end as one of {ends}"


def _believes(storm: Storm, host: Host, views: dict[TopicPartition, PartitionView]) -> None:
    """Assert that a broker's last requests equal the controller's state."""
    assert host.live == frozenset(BROKERS), host.live
    topics = storm.topics().keys()
    known = {name: entry for name, entry in host.known.items() if name.topic in topics}
    # The removal of a topic by hand is not sent to brokers.
    strange = {name for name in known.keys() ^ views.keys() if name in views or name.topic not in storm.vanished}
    assert not strange, f"{host.id} knows {strange}, or should"
    # Queued requests are dropped with a controller; the next one does not know removed topics, as in Kafka.
    unbroken = storm.store.state.epoch == 1
    gone = {name.topic for name in host.known} - topics - storm.vanished if unbroken else set()
    assert not gone, f"{host.id} still knows {gone}"
    for name, view in views.items():
        told = known[name]
        assert (told["leader"], told["leader_epoch"], told["isr"], told["version"], tuple(told["replicas"])) == (
            view.leader, view.leader_epoch, frozenset(view.isr), view.partition_epoch, view.replicas
        ), f"{host.id} was told {told} of {view}"  # fmt: skip
        assert not told["offline_replicas"], f"{host.id} was told {told} of {view}"
        held = host.replicas.get(name)
        if host.id not in view.replicas:
            # A leadership of a topic of that name that was removed by hand may be left.
            assert held is None or name.topic in storm.vanished or not unbroken, f"{host.id} serves {held}, of {view}"
        else:
            assert held is not None, f"{host.id} does not serve {view}"
            assert (held.leader, held.leader_epoch) == (view.leader, view.leader_epoch), (host.id, held, view)
    logs = {name.topic for name in storm.fleet.disks[host.id]} & storm.unmoved
    assert logs <= topics, f"{host.id} has logs of {logs - topics}, which are deleted"


def moves_are_legal(controller: Controller) -> None:
    """Assert that all recorded moves are transitions of the tables from the recorded state."""
    events, _ = controller.history.read(0, limit=100_000, kinds=("partition", "replica", "topic"))
    stands: dict[tuple[Any, ...], Any] = {}
    for event in events:
        if isinstance(event, TopicEvent):
            if event.what in ("vanished", "deleted"):
                stands = {key: state for key, state in stands.items() if key[1] != event.topic}
            continue
        if isinstance(event, PartitionEvent):
            key: tuple[Any, ...] = (event.controller_epoch, event.topic, event.partition)
            legal = (event.from_state, event.to_state) in partition.TRANSITIONS
        else:
            assert isinstance(event, ReplicaEvent)
            key = (event.controller_epoch, event.topic, event.partition, event.broker)
            legal = event.from_state in replica.TRANSITIONS[event.to_state]
        refused = isinstance(event, PartitionEvent) and bool(event.refused)
        assert legal or refused or event.from_state == event.to_state, event
        if isinstance(event, PartitionEvent) and event.from_state == event.to_state == PartitionState.ABSENT:
            continue  # leadership normalised during a takeover, before states are assigned
        assert stands.get(key, event.from_state) == event.from_state, (event, stands[key])
        if not refused:
            stands[key] = event.to_state
