"""Events of a controller: recorded by functions that are wrapped around its own, without its knowledge.

`Observer.attach` replaces attributes of one instance; product code has no hook. WRAPPED names everything that is
replaced or read, and a test resolves each name, so that a renamed function breaks the test and not the record.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final

from kactl.actors.system import Controller
from kactl.decide.messages.broker import AlterPartitionReceived, IsrProposal, IsrResult
from kactl.decide.messages.log import (
    PARTITION_STATE_NAMES,
    REPLICA_STATE_NAMES,
    AnyEvent,
    BrokerEvent,
    ControllerEvent,
    PartitionEvent,
    ReplicaEvent,
    TopicEvent,
)
from kactl.model import NO_EPOCH, PartitionView
from kactl.model.errors import ErrorCode, KactlError
from kactl.testing.history import History

from . import observe_sessions
from .memory import Memory, PartitionMemory
from .observe_channels import ChannelRecorder, replace
from .observe_sessions import SessionRecorder

# Paths from a controller to what is wrapped or read.
WRAPPED: Final = (
    *observe_sessions.WRAPPED,
    "history._append",
    "loop.controllership.terms.elected",
    "loop.controllership.terms.resigned",
    "loop.controllership.ready",
    "loop.events.in_progress",
    "loop._handlers",
    "cluster.add_brokers",
    "cluster.remove_brokers",
    "cluster.mark_shutting_down",
    "cluster.set_maintenance",
    "cluster.fence",
    "cluster.table.view",
    "cluster.offline_count",
    "cluster.imbalance_count",
    "channels.gate.pause",
    "channels.gate.open",
    "channels.add",
    "channels.remove",
    "channels._channels",
)


class Observer:
    """Records the events of the controllers of one run."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._channels = itertools.count(1)
        self._requests = itertools.count(1)
        self._controllers: dict[str, Controller] = {}

    def attach(self, controller: Controller, *, node: str, incarnation: int) -> None:
        """Record the events of a controller from now on.

        Args:
            node: name of its node.
            incarnation: number of the process on that node, from 1.
        """
        self._controllers[node] = controller
        _Recorder(self._history, controller, node, incarnation)
        self._watch_channels(controller, node)

    def detach(self, node: str) -> None:
        """Forget the instance of a node, which was killed."""
        self._controllers.pop(node, None)

    def memories(self) -> list[Memory]:
        """Returns the memory of each instance that is the controller by its own state and has taken over."""
        return [
            memory_of(controller, node)
            for node, controller in self._controllers.items()
            if controller.loop.is_active and controller.loop.controllership.ready
        ]

    # -- channels ------------------------------------------------------------------------------------------------------

    def _watch_channels(self, controller: Controller, node: str) -> None:
        channels = controller.channels
        add, remove = channels.add, channels.remove
        numbers: dict[int, int] = {}

        def adding(broker: Any, **options: Any) -> None:
            is_new = broker.id not in channels
            add(broker, **options)
            if is_new:
                numbers[broker.id] = next(self._channels)
                ChannelRecorder(self._history, channels[broker.id], node, numbers[broker.id], self._requests)

        def removing(broker: int) -> None:
            if broker in numbers:
                self._history.record("req.drop", node=node, channel=numbers.pop(broker))
            remove(broker)

        replace(channels, add=adding, remove=removing)


class _Recorder:
    """Records the elections, the state machines and the decisions of one instance."""

    def __init__(self, history: History, controller: Controller, node: str, incarnation: int) -> None:
        self._history = history
        self._controller = controller
        self._node = node
        self._same = {"controller": controller.node_id, "incarnation": incarnation}
        self._wrap_log()
        self._wrap_terms()
        self._wrap_gate()
        self._wrap_brokers()
        self._wrap_proposals()
        SessionRecorder(controller, self._record)

    def _record(self, kind: str, **fields: Any) -> None:
        self._history.record(kind, node=self._node, **fields)

    def _wrap_log(self) -> None:
        log = self._controller.history
        append: Callable[[Any], None] = log._append

        def appending(entry: Any) -> None:
            append(entry)
            for event in entry.expand(0):
                self._logged(event)

        replace(log, _append=appending)

    def _logged(self, event: AnyEvent) -> None:
        epoch = event.controller_epoch
        if isinstance(event, PartitionEvent):
            self._record(
                "fsm.partition",
                controller_epoch=epoch,
                topic=event.topic,
                partition=event.partition,
                from_state=PARTITION_STATE_NAMES[event.from_state],
                to_state=PARTITION_STATE_NAMES[event.to_state],
                leader=event.leader,
                leader_epoch=event.leader_epoch,
                isr=list(event.isr),
                partition_epoch=event.partition_epoch,
                refused=event.refused,
            )
        elif isinstance(event, ReplicaEvent) and not event.refused:
            self._record(
                "fsm.replica",
                controller_epoch=epoch,
                topic=event.topic,
                partition=event.partition,
                broker=event.broker,
                from_state=REPLICA_STATE_NAMES[event.from_state],
                to_state=REPLICA_STATE_NAMES[event.to_state],
            )
        elif isinstance(event, TopicEvent):
            self._record("fsm.topic", controller_epoch=epoch, topic=event.topic, what=event.what)
        elif isinstance(event, BrokerEvent):
            self._record("fsm.broker", controller_epoch=epoch, broker=event.broker, what=event.what)
        elif isinstance(event, ControllerEvent) and event.what == "elected":
            self._record("ctl.ready", controller_epoch=epoch, **self._same)

    def _wrap_terms(self) -> None:
        terms, events = self._controller.loop.controllership.terms, self._controller.loop.events
        elected, resigned = terms.elected, terms.resigned

        def electing(*, epoch: int, **fields: Any) -> None:
            elected(epoch=epoch, **fields)
            self._record("ctl.elected", controller_epoch=epoch, **self._same)

        def resigning(*, epoch: int, cause: str, **fields: Any) -> None:
            resigned(epoch=epoch, cause=cause, **fields)
            current = events.current()
            handler = "" if current is None else current.label
            self._record("ctl.resigned", controller_epoch=epoch, cause=cause, handler=handler, **self._same)

        replace(terms, elected=electing, resigned=resigning)

    def _wrap_gate(self) -> None:
        gate = self._controller.channels.gate
        paused, opened = gate.pause, gate.open
        is_open = True

        def then_record(change: Callable[..., None], becomes: bool) -> Callable[..., None]:
            def changing(*args: Any) -> None:
                nonlocal is_open
                change(*args)
                if is_open != becomes:
                    is_open = becomes
                    self._record("ctl.gate", open=becomes)

            return changing

        replace(gate, pause=then_record(paused, False), open=then_record(opened, True))

    def _wrap_brokers(self) -> None:
        cluster = self._controller.cluster

        def then_record(change: Callable[..., None]) -> Callable[..., None]:
            def changing(*args: Any, **options: Any) -> None:
                change(*args, **options)
                if cluster.fence.epoch:
                    self._record(
                        "ctl.brokers",
                        controller_epoch=cluster.fence.epoch,
                        brokers=[(broker.id, broker.epoch) for broker in cluster.brokers.values()],
                        shutting_down=sorted(cluster.shutting_down),
                    )
                    participants = [
                        (broker.id, broker.incarnation.hex())
                        for broker in cluster.brokers.values()
                        if broker.incarnation
                    ]
                    if participants:
                        self._record(
                            "ctl.participants", controller_epoch=cluster.fence.epoch, brokers=participants
                        )  # fmt: skip

            return changing

        names = ("add_brokers", "remove_brokers", "mark_shutting_down", "set_maintenance")
        replace(cluster, **{name: then_record(getattr(cluster, name)) for name in names})

    def _wrap_proposals(self) -> None:
        handlers = self._controller.loop._handlers
        handle = handlers[AlterPartitionReceived]

        async def handling(event: Any) -> Any:
            epoch = self._controller.cluster.fence.epoch
            names = [self._name_of(proposal) for proposal in event.proposals]
            try:
                results = await handle(event)
            except KactlError as error:
                self._decided(epoch, event, names, [type(error).__name__] * len(names))
                raise
            self._decided(epoch, event, names, results)
            return results

        handlers[AlterPartitionReceived] = handling

    def _name_of(self, proposal: IsrProposal) -> str:
        if proposal.topic.name:
            return proposal.topic.name
        topic = self._controller.cluster.table.topic_with_id(proposal.topic.id)
        return proposal.topic.id.hex() if topic is None else topic.name

    def _decided(
        self, epoch: int, event: AlterPartitionReceived, names: list[str], results: Iterable[IsrResult | str]
    ) -> None:
        last = {(name, each.partition): each for name, each in zip(names, event.proposals, strict=True)}
        for name, proposal, result in zip(names, event.proposals, results, strict=True):
            if last[name, proposal.partition] is not proposal:
                continue  # another one of the request counts
            error = result if isinstance(result, str) else ErrorCode(result.error).name
            found = None if isinstance(result, str) else result.leadership
            self._record(
                "isr.decide",
                controller_epoch=epoch,
                broker=event.broker,
                broker_epoch=event.broker_epoch,
                topic=name,
                partition=proposal.partition,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                isr=list(proposal.isr),
                member_epochs=list(proposal.broker_epochs),
                recovering=bool(proposal.recovering),
                error=error,
                leadership=None
                if found is None
                else (found.leader, found.leader_epoch, list(found.isr), found.partition_epoch, found.recovering),
            )


def memory_of(controller: Controller, node: str) -> Memory:
    """Returns a copy of the memory of a controller."""
    cluster, table = controller.cluster, controller.cluster.table
    ids = {topic.name: topic.ref.id.hex() for topic in table.topics()}
    views = [table.view(row) for row in table.all().tolist()]
    return Memory(
        node=node,
        controller_epoch=cluster.fence.epoch,
        settled=not controller.loop.events.in_progress,
        partitions=[_partition_memory(view, ids[view.topic]) for view in views],
        brokers={broker.id: broker.epoch for broker in cluster.brokers.values()},
        deleting=frozenset(cluster.deletion_started),
        queued=frozenset(cluster.topics_to_delete),
        blocked=frozenset(cluster.deletion_ineligible),
        shutting_down=cluster.shutting_down,
        offline=cluster.offline_count,
        imbalanced=cluster.imbalance_count,
        live=len(cluster.brokers),
    )


def _partition_memory(view: PartitionView, topic_id: str) -> PartitionMemory:
    return PartitionMemory(
        topic=view.topic,
        topic_id=topic_id,
        partition=view.partition,
        state=PARTITION_STATE_NAMES[view.state],
        leader=view.leader,
        leader_epoch=view.leader_epoch,
        isr=tuple(view.isr),
        partition_epoch=view.partition_epoch if view.leader_epoch != NO_EPOCH else -1,
        recovering=view.recovering,
        replicas=tuple(view.replicas),
        adding=tuple(view.adding),
        removing=tuple(view.removing),
        replica_states={broker: REPLICA_STATE_NAMES[state] for broker, state in view.replica_states.items()},
    )
