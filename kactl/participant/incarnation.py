"""State and tasks of a broker under one registration.

An incarnation carries out requests one at a time, in the order of their arrival, holds the lease of its leaderships,
keeps the ISRs of the partitions that the broker leads, and reports to the leaders that it follows. When the session is
lost, the incarnation ends with all of its state: the broker registers again and starts a new one.
"""

import contextlib
import logging
from collections.abc import Awaitable, Iterable, Sequence

import anyio
import numpy as np

from kactl.decide.messages.broker import PartitionReport
from kactl.decide.messages.control import (
    Acknowledged,
    LeaderAndIsr,
    LeaseRelease,
    ReplicaReset,
    Request,
    Response,
    StateSent,
    StopReplica,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.messages.following import FollowerReports, PeerMessage
from kactl.model import NO_BROKER, NO_EPOCH, ZERO_ID, ReplicaStatus, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode, KactlError, NotFound, StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.stores.base import Names, Store
from kactl.transports.base import ControlLink, LinkState, ParticipantNetwork

from . import checks
from .controller_client import ControllerClient
from .followers import REPORTS_PER_LAG, Followers
from .following import Following
from .growable import broker_list
from .handlers.hosting import HandlerHosting
from .handlers.listener_leases import ListenerLeases
from .handlers.reporter import Reporter
from .handlers.results import Results
from .handover import Handover
from .hosted_replicas import HostedReplicas, Role
from .isr import IsrKeeper
from .isr_proposer import IsrProposer
from .isr_update import InSync
from .leadership_reports import LeadershipReporter
from .leases.leader import Leader
from .leases.leaderships import Leaderships
from .leases.lease import ENDED, Lease
from .leases.pacemaker import Pacemaker
from .leases.token import FencingToken
from .listener import Listener, overrides
from .listener_calls import ListenerCalls
from .metadata import MetadataCache
from .own_link import OwnLink
from .pause_gate import PauseGate
from .queues import PeerMessages, PendingRequest, RequestQueue
from .request_order import RequestOrder
from .row_index import ABSENT

log = logger(__name__)

_NONE = Names.of([])


class Incarnation:
    """A broker under one registration.

    `handle` may be called before the registration; the requests are queued until `run` is called.

    Attributes:
        incarnation: the id of this registration.
        epoch: the broker epoch; NO_EPOCH until the broker is registered.
        controller_epoch: the highest controller epoch received.
        controller: client of the active controller.
    """

    def __init__(
        self,
        broker: int,
        *,
        store: Store | None,
        clock: Clock,
        pause: PauseGate,
        listener: Listener,
        calls: ListenerCalls,
        hosting: HandlerHosting | None,
        in_sync: InSync | None,
        lag_ms: float,
        incarnation: bytes = b"",
        claim: str = "",
    ) -> None:
        self.broker = broker
        self.claim = claim or str(broker)
        self.incarnation = incarnation
        self.epoch = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self._controller_id: int | None = None  # of the controller of that epoch
        self._order = RequestOrder()  # of LeaderAndIsr and StopReplica
        self.hosted = HostedReplicas()
        self.metadata = MetadataCache()
        self.link = OwnLink()
        self.controller = ControllerClient(
            self.link.ask, controller_id=lambda: self.metadata.controller_id, clock=clock
        )
        self._store = store
        self._clock = clock
        self._pause = pause
        self._listener = listener
        self._calls = calls
        self._hosting = hosting
        self._listened: Lease | None = None  # the lease under which the listener leads; None if it was stopped
        self.reporter = Reporter(broker, self.hosted, epoch=lambda: self.epoch, controller=self.controller, clock=clock)
        self._listener_leases = ListenerLeases(listener, calls, self.hosted, report=self.reporter.add)
        self._leadership_reporter = LeadershipReporter(
            broker,
            self.hosted,
            epoch=lambda: self.epoch,
            controller=self.controller,
            clock=clock,
            is_prepared=None if hosting is None else hosting.is_prepared,
        )
        self._handover = Handover(self.hosted, self._leadership_reporter, hosting)
        self._requests = RequestQueue(broker)
        self._ended = False
        self._deleting = _NONE  # replicas whose deletion is in progress and has no response
        self._lag_ms = lag_ms
        self._messages = PeerMessages()
        self.following = Following(
            broker, self.hosted, epoch=lambda: self.epoch, live=lambda: self.metadata.live, send=self.link.send
        )
        self.followers = Followers(
            broker, self.hosted, clock=clock, epoch_of=self.metadata.broker_epoch, send=self.link.send, lag_ms=lag_ms
        )
        self._lease = ENDED
        self.leaderships = Leaderships(self._leader)
        self.hosted.isr_changed = self._isr_changed
        self.isr = IsrKeeper(
            broker,
            self.hosted,
            updater=IsrProposer(
                broker,
                self.hosted,
                self.metadata,
                epoch=lambda: self.epoch,
                epoch_of=self.followers.epoch_of,
                controller=self.controller,
                pause=pause,
            ),
            clock=clock,
            pause=pause,
            live=lambda: self.metadata.live,
            offline=self.metadata.offline_replicas,
            followers=self.followers,
            in_sync=in_sync,
            lag_ms=lag_ms,
        )

    # -- lifecycle

    async def connect(self, network: ParticipantNetwork, controllers: Sequence[str] = ()) -> ControlLink:
        """Open the link to the network, before the registration; the same task has to call `disconnect`."""
        return await self.link.connect(network, self, controllers)

    async def disconnect(self) -> None:
        """Close the link to the network."""
        await self.link.disconnect()

    def link_changed(self, state: LinkState, reason: str = "") -> None:
        """See `ParticipantPort`."""
        self.link.changed()
        if not self._ended:
            log.info("the link of broker %d is %s: %s", self.broker, state.value, reason)

    async def why_foreign(self, controller: int, epoch: int) -> str:
        """See `ParticipantPort`. An answer that was read too early is not repeated: the search goes on."""
        if self._store is None:
            return ""
        try:
            record = await self._store.controller()
        except StoreError:
            return ""
        if record is not None and (record.id, record.epoch) == (controller, epoch):
            return ""
        found = "none is" if record is None else f"controller {record.id} is, under epoch {record.epoch}"
        return (
            f"controller {controller} is active under epoch {epoch}, but in the store of this participant {found}: "
            "they use different stores, such as a copy beside the original, or those of two clusters. Give both the "
            "same store, or take the address of that controller out of controllers="
        )

    def registered(self, epoch: int) -> None:
        """Begin to receive all requests to the broker id."""
        self.epoch = epoch
        self.link.registered(epoch)

    @property
    def is_announced(self) -> bool:
        """Whether a controller has told this participant of its own registration: that controller knows it."""
        return self.epoch != NO_EPOCH and self.metadata.broker_epoch(self.broker) == self.epoch

    async def run(self, pacemaker: Pacemaker) -> None:
        """Carry out requests until the session is lost.

        Args:
            pacemaker: of the session; this incarnation is its `holder`.
        """
        self._calls.margin_ms = pacemaker.margin_ms
        async with anyio.create_task_group() as tasks:
            if self._hosting is not None:
                self._hosting.begin_life(
                    margin_ms=pacemaker.margin_ms,
                    reporter=self.reporter,
                    ends=self._handover,
                    following=self.following,
                    followers=self.followers,
                    caught_up=self.isr.schedule,
                )
            tasks.start_soon(self.reporter.run)
            tasks.start_soon(self._leadership_reporter.run)
            tasks.start_soon(self._work, pacemaker)
            tasks.start_soon(self._handle_messages)
            tasks.start_soon(self._repeat_reports)
            tasks.start_soon(self.isr.run)
            await pacemaker.run()
            tasks.cancel_scope.cancel()

    def end(self) -> None:
        """Stop sending responses. Calls of `handle` that wait for a response raise BrokerUnreachable.

        The link stays open, for the last request of the session.
        """
        self._ended = True
        self.lease_ended()
        self._requests.end()

    async def leave(self) -> None:
        """Report that all leaderships have ended, so that their successors do not wait. The session is closed next."""
        if self._pause.paused or self.metadata.controller_id == NO_BROKER:
            return
        try:
            await self._leadership_reporter.leave()
        except KactlError as error:
            log.info("broker %d could not report that it leaves: %s", self.broker, error)

    async def notify_stopped(self) -> None:
        """Call the listener's `stopped`, or the handler's `stop`, for every replica that is served."""
        if self._hosting is not None:
            await self._hosting.end_life()
        await self._listener_leases.registration_ended()

    # -- leases

    def lease_began(self, lease: Lease) -> None:
        """See `LeaseHolder`."""
        if not self._ended:
            self._lease = lease
            self._requests.wake()
            if self._hosting is not None:
                self._hosting.lease_began(lease)

    def lease_ended(self) -> None:
        """See `LeaseHolder`."""
        self._lease = ENDED
        self._requests.wake()
        self.leaderships.end_all()
        self._calls.lease_ended()
        if self._hosting is not None:
            self._hosting.lease_ended()

    def _leader(self, name: TopicPartition) -> Leader | None:
        """Returns the leadership of a partition of this broker; None if there is none, or no lease."""
        if self._hosting is not None:
            return self._hosting.leadership(name)
        hosted = self.hosted.view(name)
        if self._lease is ENDED or hosted is None or hosted.role is not Role.LEADER or hosted.failed or hosted.held:
            return None
        return Leader(
            name,
            FencingToken(*hosted.token, self.hosted.topic_id_of(name)),
            isr=hosted.isr,
            leader_epoch=hosted.leader_epoch,
            lease=self._lease,
            now_ns=self._clock.lease_ns,
        )

    def _isr_changed(self, name: TopicPartition, leader_epoch: int, isr: tuple[int, ...]) -> None:
        if self._hosting is not None:
            self._hosting.isr_changed(name, leader_epoch, isr)
        else:
            self.leaderships.update(name, leader_epoch=leader_epoch, isr=isr)

    def fail(self, names: Sequence[TopicPartition]) -> None:
        """Stop serving replicas with a failed directory."""
        self.hosted.fail(names)
        self.leaderships.end(names)
        self._handover.failed(names)
        self.following.update()

    def report_failed(self, names: Iterable[TopicPartition]) -> None:
        """Report failed directories to the controller.

        The response to a deletion in progress contains its own result. A report would have the controller reject a
        response without an error, and wait for the deletion of data that has been deleted.
        """
        deleting = set(self._deleting)
        self.reporter.add_failed(name for name in names if name not in deleting)

    # -- requests

    async def handle(self, request: Request) -> Response:
        """See `Handler`."""
        return await self._requests.put(request)

    async def _work(self, pacemaker: Pacemaker) -> None:
        if self._listener_leases.is_needed:
            # Otherwise the first orders to lead would be answered before the listener was called.
            await pacemaker.attempted.wait()
        failures = FailureLog(log, self._clock.monotonic_ms)
        while True:
            pending = await self._take()
            try:
                pending.response = await self._carry_out(pending.request)
            except Exception as error:
                text = "broker %d could not carry out a request, and sends no response"
                failures.add(logging.ERROR, error, text, self.broker)
            self._requests.finish(pending)

    async def _take(self) -> PendingRequest:
        while True:
            await self._pause.wait_open()
            if self._listened is not None and self._listened is not self._lease:
                self._listened = None
                await self._listener_leases.lease_ended()
            elif self._listened is None and self.has_lease:
                self._listened = self._lease
                await self._listener_leases.lease_began()
            elif (pending := self._requests.take()) is not None:
                return pending
            else:
                await self._requests.wait()

    @property
    def has_lease(self) -> bool:
        return self._clock.lease_ns() < self._lease.ends_ns

    async def _carry_out(self, request: Request) -> Response:
        request_error = checks.request_error(
            request,
            broker_epoch=self.epoch,
            controller_epoch=self.controller_epoch,
            controller_id=self._controller_id,
        )
        if request_error is not ErrorCode.NONE:
            log.info(
                "broker %d rejects a %s of controller %d with epoch %d: %s",
                self.broker, type(request).__name__, request.controller_id, request.controller_epoch,
                request_error.name,
            )  # fmt: skip
            return checks.error_response(request, request_error)
        if request.controller_epoch > self.controller_epoch:
            self.reporter.leaders.repeat()
            if self._hosting is not None:
                self._hosting.repeat_reports()
        self.controller_epoch, self._controller_id = request.controller_epoch, request.controller_id
        is_late = isinstance(request, LeaderAndIsr | StopReplica) and self._order.is_late(request)
        if is_late and _is_without_ids(request):
            log.info("broker %d skips a %s, which arrived after a later request", self.broker, type(request).__name__)
            return checks.error_response(request, ErrorCode.INVALID_REQUEST)
        match request:
            case LeaderAndIsr():
                replaced = self._handover.replaced(request, is_late=is_late)
                if len(replaced):
                    await self._on_stop_replica(replaced)
                    self._set_aside(replaced, request)
                return await self._on_leader_and_isr(request, is_late=is_late)
            case UpdateMetadata():
                return self._on_update_metadata(request)
            case StopReplica():
                return await self._on_stop_replica(request)
            case LeaseRelease():
                return await self._on_lease_release(request)
            case StateSent():
                return await self._on_state_sent(request)
            case ReplicaReset():
                return self._on_replica_reset(request)

    def _set_aside(self, stopped: StopReplica, request: LeaderAndIsr) -> None:
        """Keep the data of stopped replicas until their deletion is ordered, and report that they block a topic.

        Partitions of ownership topics have no data, and block no topic.
        """
        ids = {topic.name: topic.id for topic in request.states.topics}
        for name in Names(stopped.topics, stopped.topic, stopped.partition).take(~stopped.delete):
            row = self.hosted.index.find_one(name)
            held, named = TopicRef(name.topic, self.hosted.topic_id_of(name)), ids[name.topic]
            if held.is_ownership and held.is_other(named):
                self.hosted.ended_below.pop((name.topic, name.partition), None)
                continue
            self.hosted.set_aside[row] = True
            detail = (
                f"set aside: its data is of topic id {held.id.hex()}, and the controller has named {named.hex()}. "
                "Restore the topic's id. If the data is of a deleted topic, move it away and restart the participant"
            )
            log.error("the replica of %s on broker %d is %s", name, self.broker, detail)
            epoch = int(self.hosted.leader_epoch[row])
            self.reporter.add(PartitionReport(name, epoch, ReplicaStatus.ERROR, detail, set_aside=held))

    async def _on_leader_and_isr(self, request: LeaderAndIsr, *, is_late: bool) -> Response:
        states, controller_epoch = request.states, request.controller_epoch
        plan = checks.plan_leader_and_isr(
            states, self.hosted, self.broker, controller_epoch=controller_epoch, is_late=is_late
        )
        names = Names(states.topics, states.topic, states.partition)
        continued = self.hosted.continued(states, plan.lead)
        if self._hosting is None and states.unbroken is not None:
            continued &= states.unbroken >= 0  # each leadership of a listener has one token
        self.leaderships.end(names.take((plan.lead & ~continued) | plan.follow))
        held = self._handover.held(states, plan.lead)
        listener, results = self._listener, Results(self._clock)
        if self._hosting is not None:
            self._hosting.lead(request, plan.lead, results, self.hosted, held=held, continued=continued)
            self._hosting.follow(states, plan.follow, results, request.live_leaders)
            await results.wait()
            results.put(plan.error, plan.lead, plan.follow)

        def lead(name: TopicPartition, row: int) -> Awaitable[None] | None:
            isr = broker_list(states.isr, row)
            return listener.became_leader(name, leader_epoch=int(states.leader_epoch[row]), isr=isr)

        def follow(name: TopicPartition, row: int) -> Awaitable[None] | None:
            leader, leader_epoch = int(states.leader[row]), int(states.leader_epoch[row])
            return listener.became_follower(name, leader=leader, leader_epoch=leader_epoch)

        self._listener_leases.forget(names, plan.follow)
        ordered = plan.lead | plan.follow
        if self._listened is None or not self.has_lease:
            self._listener_leases.wait(names.take(plan.lead))
        elif overrides(listener, "became_leader"):
            self._listener_leases.wait(names.take(held))
            free = plan.lead & ~held
            deferred = await self._calls.run(lead, names, free, plan.error, leads=True)
            self._listener_leases.wait(names.take(deferred))
            plan.lead[:] = free | held
        checks.reject_failed(states, self.hosted, plan)
        self.hosted.apply(states, plan.lead, Role.LEADER, held=held, continued=continued)
        if overrides(listener, "became_follower"):
            await self._calls.run(follow, names, plan.follow, plan.error)
            checks.reject_failed(states, self.hosted, plan)
        self.hosted.apply(states, plan.follow, Role.FOLLOWER)
        failed = ordered & ~plan.lead & ~plan.follow
        self.leaderships.end(names.take(failed))
        if self._hosting is None:
            goes_on = plan.lead & continued
            for name, row in zip(names.take(goes_on), goes_on.nonzero()[0].tolist(), strict=True):
                self._isr_changed(name, int(states.leader_epoch[row]), broker_list(states.isr, row))
        self._listener_leases.succeeded(names.take(plan.lead | plan.follow))
        self.hosted.update_topic_ids(states, plan.id_only)
        self._handover.carried_out(states, plan.follow, failed, controller_epoch)
        self.following.update()
        if plan.lead.any():
            self.followers.request(np.unique(states.replicas[:, plan.lead]).tolist())
            self.isr.schedule()
        return checks.leader_and_isr_response(states, plan.error, leads_later=self._hosting is not None)

    def _on_update_metadata(self, request: UpdateMetadata) -> Response:
        before = self.metadata.live_brokers
        if not self.metadata.update(request):
            log.info("broker %d skips UpdateMetadata %d, which arrived after a later one", self.broker, request.number)
        self.isr.schedule()
        if before.keys() != self.metadata.live_brokers.keys():
            self.following.update()
        return UpdateMetadataResponse(error=0)

    async def _on_stop_replica(self, request: StopReplica) -> Response:
        plan = checks.plan_stop_replica(request, self.hosted)
        names = Names(request.topics, request.topic, request.partition)
        self.leaderships.end(names.take(plan.stop))
        self._deleting = names.take(plan.stop & request.delete)
        if overrides(self._listener, "stopped"):
            await self._calls.run(
                lambda name, row: self._listener.stopped(name, deleted=bool(request.delete[row])),
                names,
                plan.stop,
                plan.error,
            )
        if self._hosting is not None:
            results = Results(self._clock)
            self._hosting.stop(request, plan.stop, results)
            await results.wait()
            results.put(plan.error, plan.stop)
        self._deleting = _NONE
        checks.reject_failed_stops(request, self.hosted, plan)
        self._handover.stopped(request, plan.stop)
        rows = self.hosted.index.find([topic.name for topic in request.topics], request.topic, request.partition)
        hosted, epoch = plan.stop & (rows != ABSENT), request.controller_epoch
        kept, deleted = hosted & ~request.delete, hosted & request.delete
        undeleted = (plan.error == ErrorCode.KAFKA_STORAGE_ERROR) & request.delete & (rows != ABSENT)
        self.hosted.undeleted[rows[undeleted]] = True
        self._listener_leases.succeeded(names.take(plan.stop & request.delete))
        self.following.forget(rows[hosted])
        self.hosted.stop(rows[kept], request.leader_epoch[kept], controller_epoch=epoch)
        unblocked = list(self.hosted.index.names(rows[deleted][self.hosted.set_aside[rows[deleted]]]))
        self.hosted.remove(rows[deleted], request.leader_epoch[deleted], controller_epoch=epoch)
        for name in unblocked:
            self.reporter.add(PartitionReport(name, NO_EPOCH, ReplicaStatus.READY, recovered=True))
        return checks.stop_replica_response(request, plan.error)

    async def _on_lease_release(self, request: LeaseRelease) -> Response:
        if self._handover.release(request) and self._listened is not None and self.has_lease:
            await self._listener_leases.lease_began()
        return Acknowledged(error=0)

    async def _on_state_sent(self, request: StateSent) -> Response:
        """End the leaderships that this controller has not named: they belong to other brokers by now."""
        unnamed = self._handover.unnamed(request)
        if len(unnamed):
            log.info("broker %d ends %d leaderships that the controller has not named", self.broker, len(unnamed))
            await self._on_stop_replica(unnamed)
        self._handover.state_sent(request.controller_epoch)
        return Acknowledged(error=0)

    def _on_replica_reset(self, request: ReplicaReset) -> Response:
        name = TopicPartition(request.topic.name, request.partition)
        log.warning("broker %d resets the handler of %s, as an operator has requested", self.broker, name)
        if self._hosting is not None:
            with contextlib.suppress(NotFound):  # the replica was deleted in the meantime
                self._hosting.reset(name)
        return Acknowledged(error=0)

    # -- between leaders and followers

    def receive(self, message: PeerMessage) -> None:
        """See `ParticipantPort`."""
        if not self._ended:
            self._messages.put(message)

    async def _handle_messages(self) -> None:
        while True:
            await self._messages.wait()
            await self._pause.wait_open()
            message = self._messages.take()
            if not isinstance(message, FollowerReports):
                self.following.requested(message)
            elif self.followers.receive(message):
                self.isr.schedule()

    async def _repeat_reports(self) -> None:
        while True:
            await self._clock.sleep_ms(self._lag_ms / REPORTS_PER_LAG)
            await self._pause.wait_open()
            self.following.repeat()


def _is_without_ids(request: Request) -> bool:
    """Whether the topics of a request have no ids. If it is late, they may be earlier ones of the names.

    Ids show that from protocol level 2.8 on, and leader epochs which request about the same topic is the later one.
    """
    match request:
        case LeaderAndIsr():
            topics = request.states.topics
        case StopReplica():
            topics = request.topics
        case _:
            return False
    return all(topic.id == ZERO_ID for topic in topics)
