"""Leftovers in a cluster at rest: timers, waiting events, marks, notifications, deleted topics."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kactl.actors.system import Controller
from kactl.decide.messages.events import (
    AutoPlacement,
    AutoPreferredReplicaLeaderElection,
    ControlledShutdownTimeout,
    Event,
    Priority,
    StandbyUpdate,
)
from kactl.decide.messages.leases import HolderSilence
from kactl.testing.nodes import on
from tests.sim.engine.cluster import SimulatedCluster

# An event that waits longer in an inbox at rest is not handled.
_WAIT_MS: Final = 1_000.0
# Tasks of which a node runs one of each name at most.
_ONE_OF_A_NAME: Final = ("timer: AutoPreferredReplicaLeaderElection", "timer: StandbyUpdate", "channel to broker ")


class Leftovers:
    """One moment of the cluster.

    Args:
        controller: the active one.
    """

    def __init__(self, cluster: SimulatedCluster, controller: Controller) -> None:
        self._cluster = cluster
        self._controller = controller
        self._has_participants = cluster.spec.brokers.kind == "participant"

    def retries(self) -> Iterator[str]:
        """No instance has work to do, or a timer for something that does not exist."""
        memory = self._controller.cluster
        if memory.has_retries:
            yield "the controller has partitions to write again"
        if memory.deletion_unsure:
            yield f"the outcome of the deletion of {sorted(memory.deletion_unsure)} is unknown"
        for member in self._cluster.controllers.values():
            if not member.is_running or member.controller is None:
                continue
            loop, is_active = member.controller.loop, member.controller is self._controller
            assert member.node is not None, "it runs"
            with on(member.node):  # ages are those of its clock
                waits = any(loop.inbox.oldest_ms_in(lane) >= _WAIT_MS for lane in Priority)
            if waits:
                yield f"{len(loop.inbox)} events wait in the inbox of {member.name}"
            for event in loop.controllership._timers._running:
                if not isinstance(event, HolderSilence) and not self._is_due(event, is_active=is_active):
                    yield f"{member.name} has a timer for {event.label}"
            if not is_active and (channels := member.controller.channels.all()):
                yield f"{member.name} is a standby with channels to brokers {[each.broker.id for each in channels]}"
        for (node, task), count in sorted(self._tasks().items()):
            # That of participants' balance is another one of that name.
            if count > 1 + (self._has_participants and task == "timer: AutoPreferredReplicaLeaderElection"):
                yield f"{node} runs {task!r} {count} times"

    def silences(self) -> Iterator[str]:
        """The controller waits for the report of no participant: each hand-over, which may begin late, has ended."""
        for member in self._cluster.controllers.values():
            if member.is_running and member.controller is not None:
                for event in member.controller.loop.controllership._timers._running:
                    if isinstance(event, HolderSilence):
                        yield f"{member.name} has a timer for {event.label}"

    def _is_due(self, event: Event, *, is_active: bool) -> bool:
        """Returns whether a timer may be set at rest. That of a shutdown ends with the mark, or the registration."""
        if isinstance(event, ControlledShutdownTimeout):
            memory = self._controller.cluster
            registered = memory.brokers.get(event.broker)
            is_meant = registered is not None and registered.epoch == event.broker_epoch
            return is_active and is_meant and event.broker in memory.shutting_down
        if isinstance(event, AutoPlacement) and not self._controller.cluster.handovers:
            return is_active  # it waits for the next step of a restart of all participants
        return isinstance(event, AutoPreferredReplicaLeaderElection if is_active else StandbyUpdate)

    def _tasks(self) -> Counter[tuple[str, str]]:
        """Returns how often each task runs that must be the only one of its name."""
        nodes = [member.node for member in self._cluster.controllers.values() if member.is_running]
        return Counter(
            (node.name, task.get_name())
            for node in nodes
            if node is not None
            for task in node.tasks
            if not task.done() and task.get_name().startswith(_ONE_OF_A_NAME)
        )

    def shutdowns(self, *, wait: bool) -> Iterator[str]:
        """A broker that requested its shutdown, and did not stop, is live again after a limit.

        Args:
            wait: wait until it is, and not only for the timer that has this effect.
        """
        memory, timers = self._controller.cluster, self._controller.loop.controllership._timers
        for broker in sorted(memory.shutting_down - memory.drained):
            registered = memory.brokers.get(broker)
            if registered is None:
                yield f"broker {broker} shuts down, and is not registered"
            elif wait or not timers.is_set(ControlledShutdownTimeout(broker, registered.epoch)):
                yield f"broker {broker} is registered, and counts as shutting down"

    def deleted_topics(self) -> Iterator[str]:
        """Nothing waits in the store, and running brokers have nothing of a topic that is deleted.

        As in Kafka, brokers keep the logs of replicas that were reassigned away while they were down. They keep those
        of topics that were removed by hand, those whose deletion another process with their id has answered, and those
        that a request has started again which the controller had given up. The next controller does not know deleted
        topics, so the unsent requests of its predecessor about them stay unsent.
        """
        stored = self._cluster.stored
        if count := stored.notifications():
            yield f"{count} notifications wait in the store"
        topics = stored.topics()
        unknown = self._cluster.removed_by_hand.keys() | self._cluster.reassigned
        for broker in self._cluster.fleet.running():
            if broker.id in self._cluster.fleet.doubled:
                continue
            for name, topic_id in sorted(broker.logs().items()):
                if name.topic not in topics and name.topic not in unknown:
                    yield f"broker {broker.id} has a log of {name}, id {topic_id.hex()}, which is deleted"
            if stored.controller_epoch != 1 or not broker.has_process:
                continue
            gone = broker.known_topics() - topics.keys() - unknown
            if gone:
                yield f"broker {broker.id} knows the topics {sorted(gone)}, which are deleted"
