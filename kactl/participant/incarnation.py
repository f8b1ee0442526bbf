"""One life of a broker: what it knows and does under one registration.

It takes requests one at a time in the order in which they came, keeps its session alive, and keeps the ISRs of what it
leads. When the session is lost, all of it is void: the broker registers again and begins with nothing.
"""

import collections
from collections.abc import Awaitable
from typing import Final

import anyio
import numpy as np

from kactl.clock import Clock
from kactl.errors import BrokerUnreachable, ErrorCode, SessionExpired, StoreError
from kactl.messages.control import (
    LeaderAndIsr,
    PartitionStates,
    Request,
    Response,
    StopReplica,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.model import NO_EPOCH, TopicPartition
from kactl.runtime.logs import logger
from kactl.state.rows import Bools, Ints
from kactl.stores.base import Names, Session, Store

from . import checks
from .columns import one_list
from .controller_client import ToController
from .hosted_replicas import Hosted, Role
from .hub import Hub
from .isr import IsrKeeper
from .isr_proposer import IsrProposer
from .isr_update import InSync, Way
from .isr_writer import IsrWriter
from .listener import Listener, overrides, tell
from .metadata import MetadataCache
from .pause_gate import Pause
from .row_index import ABSENT

log = logger(__name__)

# A sender has one request under way and gives up after half a minute: more than these can only pile up in front of a
# broker that hangs for most of an hour.
INBOX_LIMIT: Final = 100
# A third of the timeout leaves time for two attempts that fail.
KEEP_ALIVES_PER_TIMEOUT: Final = 3


class _Pending:
    """A request that waits for its answer; None once done means that there will be none."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.response: Response | None = None
        self.done = anyio.Event()


class Incarnation:
    """See the module. `handle` may be called as soon as it is made; requests wait until it has its epoch.

    Attributes:
        epoch: the broker epoch; NO_EPOCH until it is registered.
        controller_epoch: the highest seen.
        controller: the way to whoever is the controller.
    """

    def __init__(
        self,
        broker: int,
        *,
        store: Store,
        hub: Hub,
        clock: Clock,
        pause: Pause,
        listener: Listener,
        in_sync: InSync | None,
        alter_partition: bool,
        lag_ms: float,
    ) -> None:
        self.broker = broker
        self.epoch = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self.hosted = Hosted()
        self.metadata = MetadataCache()
        self.controller = ToController(hub, controller_id=lambda: self.metadata.controller_id, clock=clock)
        self._hub = hub
        self._clock = clock
        self._pause = pause
        self._listener = listener
        self._inbox: collections.deque[_Pending] = collections.deque()
        self._wake = anyio.Event()
        self._working_on: _Pending | None = None
        self._ended = False
        way: Way = (
            IsrProposer(
                broker,
                self.hosted,
                self.metadata,
                epoch=lambda: self.epoch,
                epoch_of=self._epoch_of,
                controller=self.controller,
                pause=pause,
            )
            if alter_partition
            else IsrWriter(self.hosted, store=store, pause=pause)
        )
        self.isr = IsrKeeper(
            broker,
            self.hosted,
            way=way,
            clock=clock,
            pause=pause,
            live=lambda: self.metadata.live,
            offline=self.metadata.offline_replicas,
            follows=self._ask_follower,
            in_sync=in_sync,
            lag_ms=lag_ms,
        )

    # -- its life

    async def run(self, session: Session) -> None:
        """Serve until the session is lost."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._work)
            tasks.start_soon(self.isr.run)
            await self._keep_alive(session)
            tasks.cancel_scope.cancel()

    def end(self) -> None:
        """Answer nothing any more; whoever waits for an answer learns that there will be none."""
        self._ended = True
        self._hub.detach(self.broker, self)
        waiting = [*self._inbox] if self._working_on is None else [self._working_on, *self._inbox]
        self._inbox.clear()
        for pending in waiting:
            pending.done.set()

    async def let_go(self) -> None:
        """Tell the listener that nothing is served any more."""
        served = np.concatenate((self.hosted.in_role(Role.LEADER), self.hosted.in_role(Role.FOLLOWER)))
        if len(served) and overrides(self._listener, "stopped"):
            everything = np.ones(len(served), np.bool_)
            errors = np.zeros(len(served), np.int16)
            names = self.hosted.index.names(served)
            await tell(lambda name, _: self._listener.stopped(name, deleted=False), names, everything, errors)

    async def _keep_alive(self, session: Session) -> None:
        while True:
            await self._clock.sleep_ms(session.timeout_ms / KEEP_ALIVES_PER_TIMEOUT)
            await self._pause.over()
            try:
                await session.keep_alive()
            except SessionExpired:
                return
            except StoreError as error:
                log.warning("broker %d could not keep its session alive, and will try again: %s", self.broker, error)

    # -- requests

    async def handle(self, request: Request) -> Response:
        """See `Handler`."""
        if self._ended:
            raise BrokerUnreachable(self.broker, "it has ended")
        if len(self._inbox) >= INBOX_LIMIT:
            raise BrokerUnreachable(self.broker, f"it has left {INBOX_LIMIT} requests unread and takes no more")
        pending = _Pending(request)
        self._inbox.append(pending)
        self._wake.set()
        await pending.done.wait()
        if pending.response is None:
            raise BrokerUnreachable(self.broker, "it ended, or failed, before it answered")
        return pending.response

    async def _work(self) -> None:
        while True:
            self._working_on = pending = await self._take()
            try:
                pending.response = await self._answer(pending.request)
            except Exception:
                log.exception("broker %d failed over a request and leaves it unanswered", self.broker)
            self._working_on = None
            pending.done.set()

    async def _take(self) -> _Pending:
        while True:
            await self._pause.over()
            if self._inbox:
                return self._inbox.popleft()
            self._wake = anyio.Event()
            await self._wake.wait()

    async def _answer(self, request: Request) -> Response:
        refusal = checks.refusal(request, broker_epoch=self.epoch, controller_epoch=self.controller_epoch)
        if refusal is not ErrorCode.NONE:
            log.info("broker %d refuses a %s: %s", self.broker, type(request).__name__, refusal.name)
            return checks.refuse(request, refusal)
        self.controller_epoch = request.controller_epoch
        match request:
            case LeaderAndIsr(states=states):
                return await self._lead_and_follow(states)
            case UpdateMetadata():
                return self._update(request)
            case StopReplica():
                return await self._stop(request)

    async def _lead_and_follow(self, states: PartitionStates) -> Response:
        told = checks.instruct(states, self.hosted, self.broker)
        names = Names(states.topics, states.topic, states.partition)
        listener = self._listener

        def lead(name: TopicPartition, row: int) -> Awaitable[None] | None:
            isr = one_list(states.isr, row)
            return listener.became_leader(name, leader_epoch=int(states.leader_epoch[row]), isr=isr)

        def follow(name: TopicPartition, row: int) -> Awaitable[None] | None:
            leader, leader_epoch = int(states.leader[row]), int(states.leader_epoch[row])
            return listener.became_follower(name, leader=leader, leader_epoch=leader_epoch)

        if overrides(listener, "became_leader"):
            await tell(lead, names, told.lead, told.error)
        self.hosted.apply(states, told.lead, Role.LEADER)
        if overrides(listener, "became_follower"):
            await tell(follow, names, told.follow, told.error)
        self.hosted.apply(states, told.follow, Role.FOLLOWER)
        self.hosted.learn_ids(states, told.id_only)
        if told.lead.any():
            self.isr.look()
        self._announce(np.unique(states.leader[told.follow]).tolist())
        return checks.instructed(states, told.error)

    def _update(self, request: UpdateMetadata) -> Response:
        before = self.metadata.live_brokers
        self.metadata.update(request)
        self.isr.look()
        if before.keys() != self.metadata.live_brokers.keys():
            self.announce()
        return UpdateMetadataResponse(error=0)

    async def _stop(self, request: StopReplica) -> Response:
        told = checks.stop(request, self.hosted)
        names = Names(request.topics, request.topic, request.partition)
        if overrides(self._listener, "stopped"):
            await tell(
                lambda name, row: self._listener.stopped(name, deleted=bool(request.delete[row])),
                names,
                told.stop,
                told.error,
            )
        rows = self.hosted.index.find([topic.name for topic in request.topics], request.topic, request.partition)
        hosted = told.stop & (rows != ABSENT)
        self.hosted.stop(rows[hosted & ~request.delete])
        self.hosted.forget(rows[hosted & request.delete])
        return checks.stopped(request, told.error)

    # -- leaders and followers among themselves

    def announce(self) -> None:
        """Have the leaders look at what follows them here."""
        self._announce(np.unique(self.hosted.leader[self.hosted.in_role(Role.FOLLOWER)]).tolist())

    def _announce(self, leaders: list[int]) -> None:
        for leader in leaders:
            peer = self._hub.find(leader)
            if isinstance(peer, Incarnation) and peer is not self:
                peer.isr.look()

    def _ask_follower(self, broker: int, names: Names, leader_epoch: Ints) -> Bools:
        peer = self._hub.find(broker)
        if not isinstance(peer, Incarnation):
            return np.zeros(len(names), np.bool_)  # it is not of this process, or gone
        following: Bools = peer.follows(self.broker, names, leader_epoch)
        return following

    def _epoch_of(self, broker: int) -> int:
        """The registration of a broker of this process, or the one that the controller named last."""
        peer = self._hub.find(broker)
        if isinstance(peer, Incarnation):
            return peer.epoch
        known = self.metadata.live_brokers.get(broker)
        return NO_EPOCH if known is None else known.epoch

    def follows(self, leader: int, names: Names, leader_epoch: Ints) -> Bools:
        """bool[n]: which of some partitions this broker follows, from that leader under that leader epoch.

        None while it hangs, and none as long as it has not been told that the leader lives: it could not fetch.
        """
        if self._pause.paused or leader not in self.metadata.live:
            return np.zeros(len(names), np.bool_)
        hosted = self.hosted
        rows = hosted.index.find([topic.name for topic in names.topics], names.topic, names.partition)
        known = rows != ABSENT
        at = rows[known]
        following = np.zeros(len(names), np.bool_)
        following[known] = (
            (hosted.role[at] == Role.FOLLOWER)
            & ~hosted.failed[at]
            & (hosted.leader[at] == leader)
            & (hosted.leader_epoch[at] == leader_epoch[known])
        )
        return following
