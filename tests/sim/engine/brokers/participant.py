"""A broker that runs a kactl participant with an application, over a view of the network and a store client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from typing import Any

from kactl.decide.messages.broker import AllocateProducerIds
from kactl.model import NO_EPOCH, Endpoint, TopicPartition
from kactl.model.errors import KactlError
from kactl.participant import Participant
from kactl.participant.handlers.orders import HandlerState
from kactl.participant.incarnation import Incarnation
from kactl.stores.base import Store
from kactl.testing.clock import LoopClock
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import Node, on
from kactl.testing.transport import ControlMessage, host_of
from kactl.transports.base import ControlLink, ParticipantPort
from tests.sim.engine.linked_network import LinkedNetwork

from .application import Application
from .base import MetadataView, ReplicaView, SimulatedBroker
from .handlers import HandlerApplication, HandlerFailure
from .participant_recorder import OUT_OF_USE, ParticipantRecorder
from .process import RETRY_MS, BrokerSettings, Surroundings


class RecordedNetwork(LinkedNetwork):
    """View of the network that records the requests to a participant."""

    recorder: ParticipantRecorder

    @asynccontextmanager
    async def participant_side(
        self, port: ParticipantPort, *, controllers: Sequence[str] = ()
    ) -> AsyncIterator[ControlLink]:
        assert isinstance(port, Incarnation)
        self.recorder.attach(port)
        async with super().participant_side(port, controllers=controllers) as link:
            yield link

    async def _handle(self, arrived: Any) -> Any:
        if not isinstance(arrived, ControlMessage):
            return await super()._handle(arrived)
        self.recorder.arrived(arrived.request, arrived.number)
        try:
            return await super()._handle(arrived)
        finally:
            self.recorder.done(arrived.request)


class ParticipantBroker(SimulatedBroker):
    """One participant over several processes. It has no disk: a process begins without any replica.

    Args:
        store: opens a client of the store for a new process.

    Attributes:
        participant, application, recorder: of the present process, or of the last one.
    """

    def __init__(
        self,
        broker: int,
        loop: SimLoop,
        *,
        name: str,
        rack: str | None,
        store: Callable[[Node], Store],
        settings: BrokerSettings,
        around: Surroundings,
    ) -> None:
        super().__init__(loop, around.history, name, self._run)
        self.id = broker
        self.participant: Participant | None = None
        self._rack = rack
        self._store = store
        self._settings = settings
        self._around = around
        self.application = self._new_application()
        self.recorder = ParticipantRecorder(around.history, self.application, around.leases)

    def _new_application(self) -> Application | HandlerApplication:
        if self._settings.handlers:
            rng = self._loop.streams[f"handlers:{self.name}"]
            return HandlerApplication(self.id, self._around.history, rng, self._around.poisoned)
        return Application(self.id)

    async def _run(self, node: Node) -> None:
        around, settings = self._around, self._settings
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                self.application = application = self._new_application()
                self.recorder = ParticipantRecorder(around.history, self.application, around.leases)
                network = RecordedNetwork(
                    around.network,
                    node,
                    around.history,
                    controllers=settings.controllers,
                    timeout_ms=settings.request_timeout_ms,
                    dial_ms=settings.dial_ms,
                )
                network.recorder = self.recorder
                store = None if settings.has_remote_session(self.id) else self._store(node)
                self.participant = Participant(
                    self.id,
                    store=store,
                    network=network,
                    clock=LoopClock(),
                    rack=self._rack,
                    endpoints=(Endpoint("INTERNAL", host_of(self.name), 9092),),
                    listener=application if isinstance(application, Application) else None,
                    handler=application.make if isinstance(application, HandlerApplication) else None,
                    transition_timeout_ms=settings.session_timeout_ms,
                    session_timeout_ms=settings.session_timeout_ms,
                    lag_ms=settings.lag_ms,
                    rng=self._loop.streams[f"ids:{self.name}"],
                )
                try:
                    async with contextlib.nullcontext() if store is None else store, self.participant:
                        await asyncio.Event().wait()
                except KactlError:
                    await asyncio.sleep(RETRY_MS / 1000)  # a supervisor starts the process again
        around.network.close(node)

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def has_process(self) -> bool:
        return self.participant is not None

    @property
    def epoch(self) -> int:
        return NO_EPOCH if self.participant is None else self.participant.epoch

    def replicas(self) -> Mapping[TopicPartition, ReplicaView]:
        return self.recorder.replicas()

    def metadata(self, name: TopicPartition) -> MetadataView | None:
        known = None if self.participant is None else self.participant.partition(name)
        if known is None:
            return None
        return MetadataView(
            known.leader,
            known.leader_epoch,
            frozenset(known.isr),
            known.partition_epoch,
            known.replicas,
            frozenset(known.offline_replicas),
        )

    def live(self) -> frozenset[int]:
        return frozenset() if self.participant is None else frozenset(self.participant.live_brokers)

    def logs(self) -> Mapping[TopicPartition, bytes]:
        return {}

    def known_topics(self) -> set[str]:
        incarnation = None if self.participant is None else self.participant._incarnation
        known = set() if incarnation is None else set(incarnation.metadata.topics)
        return known | {name.topic for name in self.recorder.replicas()}

    def failed_directories(self) -> set[TopicPartition]:
        return self.recorder.directories

    def has_lost(self, name: TopicPartition) -> bool:
        return name in self.recorder.late_stops.lost

    def has_failed(self, name: TopicPartition) -> bool:
        return name in self.recorder.failed

    def failed_handlers(self) -> set[TopicPartition]:
        return self._handlers_in(OUT_OF_USE | {HandlerState.BACKING_OFF})

    def stuck_handlers(self) -> set[TopicPartition]:
        return self._handlers_in(OUT_OF_USE)

    def _handlers_in(self, states: Set[HandlerState]) -> set[TopicPartition]:
        incarnation = None if self.participant is None else self.participant._incarnation
        hosting = None if incarnation is None else incarnation._hosting
        if hosting is None:
            return set()
        return {name for name in hosting._actors if hosting.state(name) in states}

    def can_delete(self, name: TopicPartition) -> bool:
        return name not in self.recorder.failed | self.recorder.kept | self.application.undeletable

    # -- faults and requests -------------------------------------------------------------------------------------------

    def fail_directory(self, name: TopicPartition) -> None:
        participant, node = self.participant, self.node
        if participant is not None and node is not None and participant.hosted(name) is not None:
            self.recorder.failed.add(name)
            self.recorder.directories.add(name)
            with on(node):
                self._loop.create_task(self._report_directory(participant, name), name="fail directory")

    async def _report_directory(self, participant: Participant, name: TopicPartition) -> None:
        epoch = participant.epoch
        while participant.epoch == epoch != NO_EPOCH:
            try:
                await participant.fail_directory([name])
            except KactlError:
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                return

    def make_undeletable(self, name: TopicPartition) -> None:
        self.application.undeletable.add(name)

    def fail_calls(self, count: int, *, stays: bool) -> None:
        """Make the next calls of the application fail, and perhaps all later ones for the same partitions."""
        application = self.application
        if isinstance(application, Application):
            application.failures += count
            application.stays = stays
        else:
            application.failures += [HandlerFailure("prepare", "raise", 0.0)] * count

    def fail_handler(self, failure: HandlerFailure) -> bool:
        """Make the next call of a phase fail. Returns whether the participant has handlers."""
        if isinstance(self.application, HandlerApplication):
            self.application.failures.append(failure)
            return True
        return False

    def end_failures(self) -> None:
        """Let the next calls of the application succeed. What is stuck stays so."""
        if isinstance(self.application, Application):
            self.application.failures = 0
        else:
            self.application.failures.clear()

    def lose_unforced(self, share: float) -> None:
        """Do nothing: participants have no log."""

    async def shut_down(self, *, epoch_lag: int = 0) -> None:
        await self.stop()

    async def allocate_producer_ids(self) -> None:
        participant, node = self.participant, self.node
        if participant is not None and node is not None and self.is_running and participant._incarnation is not None:
            with on(node):
                asking = self._loop.create_task(self._ask_producer_ids(participant._incarnation), name="producer ids")
            await asyncio.wait([asking], timeout=60)

    async def _ask_producer_ids(self, incarnation: Incarnation) -> None:
        try:
            await incarnation.controller.ask(AllocateProducerIds(self.id, incarnation.epoch))
        except KactlError as failed:
            self._around.history.record("broker.failed", broker=self.id, request="producer ids", reason=str(failed))
