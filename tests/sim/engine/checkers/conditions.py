"""Liveness conditions of a simulated cluster at one moment; `quiet` has their limits."""

from collections.abc import Iterator
from typing import Final

from kactl.actors.system import Controller
from kactl.decide.messages.routes import Watch
from kactl.model import (
    NO_LEADER,
    Assignment,
    Leadership,
    PartitionState,
    ReplicaState,
    ReplicaStatus,
    TopicPartition,
)
from kactl.testing.nodes import on
from tests.sim.engine.brokers import SimulatedBroker
from tests.sim.engine.brokers.base import MetadataView, ReplicaView
from tests.sim.engine.cluster import SimulatedCluster

from .stored import is_ownership

# A call that is younger than this may be on its way through the inbox, and a request through its channel.
ANSWERED_S: Final = 1.0


class ConditionsNow:
    """The conditions at one moment of a cluster, as its store, its controller and its brokers have it.

    Each method yields the texts of one condition that does not hold.
    """

    def __init__(self, cluster: SimulatedCluster, controller: Controller) -> None:
        self._cluster = cluster
        self._controller = controller
        stored = cluster.stored
        self._leaderships = stored.leaderships()
        self._owned = {name for name, topic in stored.topics().items() if is_ownership(topic.id.hex())}
        self._assignments = {
            name: self._members(name) if name.topic in self._owned else held
            for name, held in stored.assignments().items()
        }
        self._registrations = stored.registrations()
        self._instances = {member.name for member in cluster.controllers.values()}
        self._leaving = controller.cluster.shutting_down
        self._running = {
            broker.id: broker
            for broker in cluster.fleet.running()
            if broker.has_process and broker.id in self._registrations
        }

    def _members(self, name: TopicPartition) -> Assignment:
        """Returns the owner and the standbys of a shard, which are not stored as its assignment: the ISR has them."""
        held = self._leaderships.get(name)
        owner = () if held is None or held.leader == NO_LEADER else (held.leader,)
        return Assignment() if held is None else Assignment(tuple(dict.fromkeys((*owner, *held.isr))))

    def _serves(self, broker: int, name: TopicPartition) -> bool:
        """Whether a broker is live and can have a replica of a partition."""
        member = self._running.get(broker)
        return member is not None and not member.has_failed(name)

    def _fails(self, broker: int, name: TopicPartition) -> bool:
        """Whether the handler of a shard has failed on a live participant: the controller remembers it."""
        member = self._running.get(broker)
        return member is not None and member.has_failed(name)

    def _may_lead(self, broker: int, name: TopicPartition) -> bool:
        return self._serves(broker, name) and broker not in self._leaving

    def _has_lost(self, broker: int, name: TopicPartition) -> bool:
        """Whether a broker cannot serve a replica, and the controller cannot know.

        A late StopReplica has stopped it; it starts again with the next LeaderAndIsr. Or a Kafka broker has ignored its
        leadership, or rejects it for a replica of an earlier topic id, see `SimulatedBroker.has_lost`. Or it has one of
        an earlier topic, which another process with the broker's id has deleted instead of it. Or one of an earlier
        topic without an id: its stop was lost with the controller that had queued it, or a late request has started it.
        """
        member = self._running.get(broker)
        if member is None:
            return False
        held, replica = self._leaderships.get(name), member.replicas().get(name)
        is_earlier = (
            self._cluster.spec.brokers.kind == "model"
            and held is not None
            and replica is not None
            and not any(replica.topic_id)
            and _is_of_another_topic(replica, held)
        )
        twins = self._cluster.fleet.doubled.get(broker, ())
        is_missed = any(member.has_missed_deletion(name, twin) for twin in twins)
        return member.has_lost(name) or is_earlier or is_missed

    def _deleted(self, name: TopicPartition) -> bool:
        return name.topic in self._cluster.stored.deletions()

    def _partitions(self) -> Iterator[tuple[TopicPartition, Assignment, Leadership | None]]:
        """Returns the partitions of topics that are not being deleted, without those led for an earlier topic."""
        for name, assignment in self._assignments.items():
            if not self._deleted(name) and not self._is_led_for_earlier_topic(name):
                yield name, assignment, self._leaderships.get(name)

    def _is_led_for_earlier_topic(self, name: TopicPartition) -> bool:
        """Whether a broker that has no replica of a partition has written itself as its leader.

        Where leaders write their ISRs themselves, topics have no ids. A late request for an earlier topic of the name
        has made the broker lead. It writes under its epoch and version, which the partition of the next topic has too.
        """
        held, assignment = self._leaderships.get(name), self._assignments.get(name)
        if held is None or assignment is None or self._cluster.level.alter_partition:
            return False
        return held.leader != NO_LEADER and held.leader not in assignment.replicas

    # -- conditions ----------------------------------------------------------------------------------------------------

    def without_leader(self) -> Iterator[str]:
        """Each partition with a live ISR member has a live leader."""
        for name, assignment, held in self._partitions():
            # A partition that never had a leader has none to copy from: as in Kafka it waits for one of its brokers of
            # before the reassignment, or for the next election of any kind.
            candidates = assignment.origin if held is None else held.isr
            able = [broker for broker in candidates if self._may_lead(broker, name) and broker in assignment.replicas]
            if name.topic in self._owned:
                able = [broker for broker in self._running if self._may_lead(broker, name)]
            if held is None and able:
                yield f"partition {name} has no leadership; replicas {able} are live"
            elif held is not None and able and not (held.leader != NO_LEADER and self._serves(held.leader, name)):
                yield f"partition {name}: leader {held.leader}; ISR {list(held.isr)}, of which {able} are live"

    def unregistered(self) -> Iterator[str]:
        """Each broker that runs is registered, and the controller knows its registration."""
        for broker in self._cluster.fleet.running():
            if broker.id not in self._registrations:
                yield f"broker {broker.id} runs and is not registered"
        known = {broker: registered.epoch for broker, registered in self._controller.cluster.brokers.items()}
        if known != self._registrations:
            yield f"the controller knows registrations {known}, and the store has {self._registrations}"

    def unfinished(self) -> Iterator[str]:
        """Each reassignment and deletion whose brokers are live is complete; so are requests in the store."""
        for name, assignment, held in self._partitions():
            # Without a leader nothing is copied, and only a live member of the ISR can lead.
            sources = assignment.origin if held is None else held.isr
            is_possible = any(self._may_lead(each, name) for each in sources)
            is_possible &= all(self._may_join(each, name, held) for each in assignment.target)
            if assignment.is_being_reassigned and is_possible:
                yield f"the reassignment of {name} to {list(assignment.target)} has not ended: {assignment}"
        for topic in self._cluster.stored.deletions():
            if self._waits_for_move(topic):
                continue
            if all(self._can_delete(broker, name) for name, broker in self._replicas(topic)):
                yield f"the deletion of {topic} has not ended"
        moving = any(assignment.is_being_reassigned for assignment in self._assignments.values())
        for kind in self._cluster.stored.requests():
            if kind == "reassignment" and moving:
                continue  # it shrinks with each reassignment that ends
            yield f"the {kind} request in the store waits"

    def undrained(self) -> Iterator[str]:
        """A drained broker leads only what no other live member of an ISR can lead."""
        for name, _, held in self._partitions():
            if held is not None and held.leader in self._controller.cluster.drained:
                able = [broker for broker in held.isr if self._may_lead(broker, name)]
                if able:
                    yield f"partition {name} is led by {held.leader}, which is drained, and {able} are in sync"

    def _waits_for_move(self, topic: str) -> bool:
        """Whether a deletion waits, as in Kafka, for a reassignment that cannot end: a broker of its target cannot join
        an ISR, for example because it is drained."""
        return any(
            not self._may_join(broker, name, self._leaderships.get(name))
            for name, assignment in self._assignments.items()
            if name.topic == topic and assignment.is_being_reassigned and self._is_led(name)
            for broker in assignment.target
        )

    def _may_join(self, broker: int, name: TopicPartition, held: Leadership | None) -> bool:
        """Whether a broker can come in sync: it and the leader have their replicas."""
        lost = self._has_lost(broker, name) or (held is not None and self._has_lost(held.leader, name))
        return self._may_lead(broker, name) and not lost

    def _is_led(self, name: TopicPartition) -> bool:
        held = self._leaderships.get(name)
        return held is not None and held.leader != NO_LEADER

    def _replicas(self, topic: str) -> list[tuple[TopicPartition, int]]:
        """Returns the replicas of a topic, as stored and as the controller knows them.

        The controller knows partitions that the store does not have any more: those without leadership, after a tool
        has added partitions to a topic that is being deleted.
        """
        known = {view.name: view.replica_states.keys() for view in self._controller.partitions_of(topic)}
        stored = {name: held.replicas for name, held in self._assignments.items() if name.topic == topic}
        return [(name, broker) for replicas in (stored, known) for name, each in replicas.items() for broker in each]

    def _can_delete(self, broker: int, name: TopicPartition) -> bool:
        member = self._running.get(broker)
        # As in Kafka, replicas on a broker that requested its shutdown count as offline and halt a deletion. A broker
        # that an operator drained goes on to delete.
        leaves = broker in self._leaving - self._controller.cluster.drained
        return member is not None and member.can_delete(name) and not leaves

    def disagreements(self) -> Iterator[str]:
        """Live replicas agree with the store on leader and leader epoch, and live brokers on metadata."""
        for broker in self._running.values():
            yield from self._metadata_differences(broker)
            replicas = broker.replicas()
            for name, assignment, held in self._partitions():
                if broker.id not in assignment.replicas or held is None or held.leader == NO_LEADER:
                    continue
                if not self._serves(broker.id, name) or broker.id in self._leaving:
                    continue
                replica = replicas.get(name)
                if self._has_lost(broker.id, name):
                    continue
                if replica is None:
                    yield f"broker {broker.id} has no replica of {name}"
                elif (replica.leader, replica.leader_epoch) != (held.leader, held.leader_epoch):
                    yield (
                        f"broker {broker.id} has leader {replica.leader} under epoch {replica.leader_epoch} of {name}, "
                        f"and stored is leader {held.leader} under epoch {held.leader_epoch}"
                    )

    def unknown_replicas(self) -> Iterator[str]:
        """Leaders know the replicas of their partitions, also while they shut down.

        A controller that ends between storing the cancellation of a reassignment and stopping the added replicas leaves
        them to the leader. The next controller learns of those that the leader proposes for the ISR. As in Kafka, the
        others stay until the next leader epoch: the store does not name them.
        """
        epoch = self._controller.cluster.fence.epoch
        for name, assignment, held in self._partitions():
            if held is None or not self._serves(held.leader, name) or self._has_lost(held.leader, name):
                continue
            replica = self._running[held.leader].replicas().get(name)
            if replica is None or not replica.replicas or replica.leader_epoch != held.leader_epoch:
                continue  # reported as a disagreement
            known, stored = set(replica.replicas), set(assignment.replicas)
            is_left = known > stored and held.controller_epoch < epoch
            is_left &= not any(self._follows(broker, name, held) for broker in known - stored)
            if known != stored and not is_left:
                yield (
                    f"leader {held.leader} of {name} knows replicas {list(replica.replicas)}, and stored are "
                    f"{list(assignment.replicas)}"
                )

    def unknown_failures(self) -> Iterator[str]:
        """The controller knows the handlers whose call does not end, and no others."""
        cluster = self._controller.cluster
        for broker in self._running.values():
            stuck = broker.stuck_handlers()
            for name, assignment, _ in self._partitions():
                if broker.id not in assignment.replicas:
                    continue
                report = cluster.replica_report(name, broker.id)
                is_known = report is not None and report.status is ReplicaStatus.STUCK
                if is_known != (name in stuck):
                    known = "nothing" if report is None else report.status.name
                    state = "is stuck" if name in stuck else "is not stuck"
                    yield f"the handler of {name} on broker {broker.id} {state}, and the controller knows {known}"

    def _follows(self, broker: int, name: TopicPartition, held: Leadership) -> bool:
        """Whether a broker can come in sync, and copies from the stored leader under its epoch."""
        if not self._may_join(broker, name, held):
            return False
        replica = self._running[broker].replicas().get(name)
        return replica is not None and (replica.leader, replica.leader_epoch) == (held.leader, held.leader_epoch)

    def _metadata_differences(self, broker: SimulatedBroker) -> Iterator[str]:
        """Kafka's brokers apply an abandoned UpdateMetadata that arrives late, and keep it until the next one."""
        live = broker.live()
        if live != self._registrations.keys() and not broker.has_overtaken_metadata():
            yield f"broker {broker.id} knows live brokers {sorted(live)}, not {sorted(self._registrations)}"
        for name, assignment, held in self._partitions():
            if held is None or broker.has_overtaken_metadata(name):
                continue
            known = broker.metadata(name)
            if known is None:
                yield f"broker {broker.id} has no metadata of {name}"
                continue
            stored = MetadataView(
                held.leader, held.leader_epoch, frozenset(held.isr), held.partition_epoch, assignment.replicas
            )  # fmt: skip
            if known._replace(offline=stored.offline) != stored:
                yield f"broker {broker.id} knows {tuple(known)[:-1]} of {name}, and stored is {tuple(stored)[:-1]}"
            live_again = sorted(each for each in known.offline if self._may_lead(each, name))
            if live_again:
                yield f"broker {broker.id} knows the live replicas {live_again} of {name} as offline"

    def out_of_sync(self) -> Iterator[str]:
        """Each live replica that can reach its leader is in the ISR."""
        for name, assignment, held in self._partitions():
            if held is None or held.leader == NO_LEADER or not self._serves(held.leader, name):
                continue
            missing = [
                broker
                for broker in assignment.replicas
                if broker not in held.isr and self._may_join(broker, name, held)
            ]
            if missing:
                yield f"partition {name}: {missing} are live and not in the ISR {list(held.isr)}; leader {held.leader}"

    def dead_members(self) -> Iterator[str]:
        """No member of an ISR is down, unless it is the last one."""
        for name, _, held in self._partitions():
            if held is None or len(held.isr) == 1:
                continue
            dead = [broker for broker in held.isr if broker not in self._running]
            if dead:
                yield f"partition {name}: {dead} are down and in the ISR {list(held.isr)}"

    def led_elsewhere(self, percentage: int) -> Iterator[str]:
        """Preferred replicas in the ISR lead, where none has resigned: of those of one broker all but a percentage."""
        resigned = self._controller.cluster.resigned
        preferring: dict[int, list[bool]] = {}
        for name, assignment, held in self._partitions():
            if name.topic in self._owned:
                continue
            preferred = assignment.replicas[0]
            is_led = held is None or held.leader == preferred or preferred not in held.isr
            is_late = not is_led and name not in resigned and self._may_lead(preferred, name)
            preferring.setdefault(preferred, []).append(is_late)
        for broker, late in preferring.items():
            if sum(late) * 100 > len(late) * percentage:
                yield f"broker {broker} does not lead {sum(late)} of the {len(late)} partitions that prefer it"

    def retries(self) -> Iterator[str]:
        """Nothing is retried for something that does not exist, and no request waits for a live broker."""
        for member in self._cluster.controllers.values():
            if not member.is_running or member.controller is None:
                continue
            later = [event.label for event in member.controller.loop.retries.events]
            if later:
                yield f"{member.name} will handle {later} again"
        active, channels = self._cluster.active, self._controller.channels.all()
        assert active is not None, "the view is that of the active controller"
        assert active.node is not None, "it runs"
        with on(active.node):  # ages are those of its clock
            late = {channel.broker.id for channel in channels if channel.oldest_ms > 1000 * ANSWERED_S}
        for channel in channels:
            broker = channel.broker.id
            if broker not in self._registrations:
                yield f"the controller has a channel to broker {broker}, which is not registered"
            elif broker in late and broker in self._running:
                yield f"{len(channel)} requests wait for broker {broker}"

    def memory_differences(self) -> Iterator[str]:
        """The controller's memory equals the store."""
        table = self._controller.cluster.table
        views = {view.name: view for view in map(table.view, table.all().tolist())}
        known = {name: view.assignment for name, view in views.items()}
        for name in sorted(known.keys() | self._assignments.keys()):
            view = views.get(name)
            is_led = view is not None and view.leadership is not None
            if self._is_led_for_earlier_topic(name):
                continue  # the leader counts as a replica that leaves
            if self._deleted(name) and view is not None and not is_led:
                # As in Kafka: only partitions with leadership are kept when a tool adds others meanwhile, and one that
                # the tool adds again is not new.
                continue
            if name.topic in self._owned and view is not None:
                stored = self._assignments.get(name)
                # A member that left before the deletion has to delete what it has. Nothing is placed any more.
                if _alike(view.assignment, stored) or (self._deleted(name) and _has_more(view.assignment, stored)):
                    continue
            if known.get(name) != self._assignments.get(name):
                yield f"{name}: {known.get(name)} in memory, {self._assignments.get(name)} stored"
        for name, held in self._leaderships.items():
            view = views.get(name)
            if self._deleted(name) and not self._cluster.level.alter_partition:
                continue  # a leader may write once more; nothing is decided for the partition any more
            is_first = held.leader_epoch == 0 and held.partition_epoch == 0
            if self._deleted(name) and is_first and view is not None and view.leadership is None:
                continue  # as in Kafka: the response to the first write was lost, and no leader is elected any more
            if view is not None and (view.leader, view.leader_epoch, view.partition_epoch, frozenset(view.isr)) != (
                held.leader, held.leader_epoch, held.partition_epoch, frozenset(held.isr)
            ):  # fmt: skip
                yield f"{name}: {view} in memory, {held} stored"

    def state_differences(self) -> Iterator[str]:
        """The states of the machines follow from the stored records and the live brokers."""
        cluster = self._controller.cluster
        moving = {name for name, held in self._assignments.items() if held.is_being_reassigned}
        known, moving = (
            {name for name in names if not (self._deleted(name) or self._is_led_for_earlier_topic(name))}
            for names in (cluster.reassigning, moving)
        )
        if known != moving:
            yield f"reassigned are {sorted(known)} in memory, and {sorted(moving)} in the store"
        for name, assignment, held in self._partitions():
            view = cluster.view(name)
            if view is None or held is None:
                continue
            # As in Kafka, a leader that shuts down may count as offline while others fail.
            is_led = held.leader != NO_LEADER and self._may_lead(held.leader, name)
            if is_led and view.state is not PartitionState.ONLINE:
                yield f"{name} has the live leader {held.leader}, and is {view.state.name}"
            failed = {
                broker for broker in view.replica_states if name.topic in self._owned and self._fails(broker, name)
            }
            if view.replica_states.keys() - failed != set(assignment.replicas) - failed:
                yield f"{name} has states of replicas {dict(view.replica_states)}, and replicas {assignment.replicas}"
            for broker, state in view.replica_states.items():
                is_copied = broker not in assignment.adding  # a new one is NEW until it is in sync
                if is_copied and self._may_lead(broker, name) and state is not ReplicaState.ONLINE:
                    yield f"the live replica {broker} of {name} is {state.name}"

    def strangers(self) -> Iterator[str]:
        """The ISR and the leader of a partition are replicas of it."""
        for name, assignment, held in self._partitions():
            if held is not None and not set(held.isr) <= set(assignment.replicas):
                yield f"partition {name}: ISR {list(held.isr)} of replicas {list(assignment.replicas)}"

    def unanswered(self) -> Iterator[str]:
        """Each call that a running instance has received is answered. One that has just arrived does not count."""
        until_s = self._cluster.loop.now_s - ANSWERED_S
        for call in self._cluster.network.unanswered():
            if isinstance(call.message, Watch):
                continue  # it waits for a change
            if call.node.name in self._instances and call.since_s <= until_s:
                what = type(call.message).__name__
                yield f"{call.node.name} has not answered {what}, which arrived at {call.since_s:.3f} s"

    def remains(self) -> Iterator[str]:
        """No memory of a deleted topic remains."""
        topics = self._cluster.stored.topics()
        for topic in self._controller.cluster.topics_to_delete:
            if topic not in self._cluster.stored.deletions():
                yield f"the controller still deletes {topic}, which is not marked for deletion"
        for ref in self._controller.topics():
            if topics.get(ref.name) != ref:
                yield f"the controller knows {ref}, and stored is {topics.get(ref.name)}"


def _alike(known: Assignment, stored: Assignment | None) -> bool:
    """Whether an owner and its standbys are those that are stored. The order of standbys means nothing."""
    replicas = () if stored is None else stored.replicas
    return known.replicas[:1] == replicas[:1] and {*known.replicas} == {*replicas}


def _has_more(known: Assignment, stored: Assignment | None) -> bool:
    return stored is not None and {*known.replicas} > {*stored.replicas}


def _is_of_another_topic(replica: ReplicaView, held: Leadership) -> bool:
    """Whether a broker has leadership that was never stored for the present topic.

    The stored leader epoch is never below one that was sent, and each epoch has one leader.
    """
    is_other_leader = replica.leader_epoch == held.leader_epoch and replica.leader != held.leader
    return replica.leader_epoch > held.leader_epoch or is_other_leader
