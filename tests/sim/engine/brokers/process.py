"""One process of a modelled broker: registration, session, replication and its requests to the controller."""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.broker import AllocateProducerIds, ControlledShutdown
from kactl.model import Broker, Endpoint, TopicPartition
from kactl.model.errors import BrokerIdTaken, KactlError, SessionExpired, StoreError
from kactl.stores.base import Session, Store
from kactl.testing.history import History
from kactl.testing.network import Network, Unreachable
from kactl.testing.transport import ControlMessage, host_of

from .handlers import HandlerFailure
from .isr_changes import IsrChanges
from .leases import LeaseClocks
from .receiver import Receiver
from .replica import Disk
from .replication import FETCH_MS, Fetch, Replication

# Pause of a broker that could not register, or could not reach the controller.
RETRY_MS: Final = 500.0
SHUTDOWN_ATTEMPTS: Final = 3


class BrokerSettings(NamedTuple):
    """Settings that all modelled brokers share.

    Attributes:
        append_rate: records per second that clients send to each partition.
        controllers: names of the nodes of controllers.
        dial_ms: how often participants dial them; None for no links.
        sessions, handlers: see `BrokersSpec`.
    """

    level: ProtocolLevel
    session_timeout_ms: int = 6_000
    request_timeout_ms: float = 5_000.0
    lag_ms: float = 10_000.0
    append_rate: float = 2.0
    controllers: tuple[str, ...] = ()
    dial_ms: float | None = None
    sessions: str = "store"
    handlers: bool = False

    def has_remote_session(self, broker: int) -> bool:
        """Whether a participant has its session with the controller."""
        return self.sessions == "controller" or (self.sessions == "mixed" and broker % 2 == 1)


class Surroundings(NamedTuple):
    """What a process sees of the cluster besides its store.

    Attributes:
        older: returns the partitions with a replica on a broker and stored leadership that the controller knows,
            with the ids of their topics.
        removed_by_hand: ids, by name, of topics that were removed from the store by hand.
        leases: of all participants.
        poisoned: partitions whose handlers fail at every participant, with the failure of each.
    """

    network: Network
    history: History
    now_ms: Callable[[], float]
    older: Callable[[int], Mapping[TopicPartition, bytes]]
    removed_by_hand: Mapping[str, Collection[bytes]]
    leases: LeaseClocks
    poisoned: Mapping[TopicPartition, HandlerFailure]


class BrokerProcess:
    """One process of a broker. `run` is the main task of its node.

    Args:
        address: name of its nodes; in the registration its spaces are dashes.
    """

    def __init__(
        self,
        broker: int,
        disk: Disk,
        *,
        address: str,
        rack: str | None,
        store: Store,
        settings: BrokerSettings,
        around: Surroundings,
        rng: random.Random,
    ) -> None:
        self.id = broker
        self._address = address
        self._rack = rack
        self._store = store
        self._settings = settings
        self._around = around
        self._rng = rng
        self.receiver = Receiver(
            broker, disk, around.history, removed_by_hand=around.removed_by_hand, now_ms=around.now_ms
        )
        self.replication = Replication(
            self.receiver,
            now_ms=around.now_ms,
            append_rate=settings.append_rate,
            lag_ms=settings.lag_ms,
            propose=lambda name, replica, isr: self.isr_changes.propose(name, replica, isr),
        )
        self.isr_changes = IsrChanges(
            self.receiver,
            around.history,
            level=settings.level,
            store=store,
            ask=self.ask_controller,
            rng=rng,
        )
        self._is_registered = asyncio.Event()
        self._session: Session | None = None
        self._fetching: dict[int, asyncio.TimerHandle] = {}  # the time limit of the fetch from each leader

    async def run(self) -> None:
        """Live until cancelled."""
        async with self._store, asyncio.TaskGroup() as tasks:
            await self._register()
            tasks.create_task(self._keep_alive(), name="keep alive")
            tasks.create_task(self.isr_changes.run(), name="ISR changes")
            if not self._settings.level.alter_partition:
                tasks.create_task(self.isr_changes.notify(), name="ISR notifications")
            tasks.create_task(self._replicate(), name="replication")

    # -- registration --------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register in a new session, however long that takes."""
        broker = Broker(self.id, 0, (Endpoint("INTERNAL", host_of(self._address), 9092),), self._rack)
        while True:
            try:
                session = await self._store.new_session(self._settings.session_timeout_ms)
                self.receiver.registering(self._around.older(self.id))
                epoch = await session.register(broker)
            except (BrokerIdTaken, StoreError):
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            self._session = session
            self.receiver.registered(epoch)
            self._is_registered.set()
            return

    async def _keep_alive(self) -> None:
        """Keep the session alive; register again when it has ended."""
        while True:
            await asyncio.sleep(self._settings.session_timeout_ms / 3000)
            try:
                assert self._session is not None
                await self._session.keep_alive()
            except SessionExpired:
                await self._register()
            except StoreError:
                continue

    # -- requests of the controller and of followers -------------------------------------------------------------------

    async def handle(self, message: ControlMessage) -> Any:
        """Answer a request of the controller."""
        await self._is_registered.wait()
        return self.receiver.answer(message)

    def serve(self, fetch: Fetch) -> Any:
        """Answer a fetch. A process that is not registered yet leads nothing."""
        return self.replication.serve(fetch)

    # -- requests to the controller ------------------------------------------------------------------------------------

    async def ask_controller(self, request: Any) -> Any:
        """Send a request to the controller that the last accepted request named.

        Raises:
            Unreachable: there is none, or it did not answer.
            KactlError: its answer.
        """
        controller = self.receiver.controller_id
        if controller is None:
            raise Unreachable("no controller is known")
        return await self._around.network.call(
            f"controller {controller}", request, timeout_ms=self._settings.request_timeout_ms
        )

    async def allocate_producer_ids(self) -> None:
        """Reserve a block of producer ids; a failure has no consequence."""
        try:
            await self.ask_controller(AllocateProducerIds(self.id, self.receiver.epoch))
        except (Unreachable, KactlError) as failed:
            self._around.history.record(
                "broker.failed", broker=self.id, request="producer ids", reason=type(failed).__name__
            )

    async def shut_down(self, *, epoch_lag: int = 0) -> None:
        """Request the controlled shutdown until no partition is led here, at most three times; then end the session.

        Args:
            epoch_lag: how much older than the registration the epoch of the request is.
        """
        request = ControlledShutdown(self.id, self.receiver.epoch - epoch_lag)
        for _ in range(SHUTDOWN_ATTEMPTS):
            try:
                if not await self.ask_controller(request):
                    break
            except (Unreachable, KactlError):
                pass
            await asyncio.sleep(RETRY_MS / 1000)
        if self._session is not None:
            try:
                await self._session.close()
            except StoreError:
                return  # the session expires

    # -- replication ---------------------------------------------------------------------------------------------------

    async def _replicate(self) -> None:
        """Fetch from all leaders at an interval, and check the lag of followers."""
        await asyncio.sleep(self._rng.uniform(0, FETCH_MS) / 1000)
        checked_ms = self._around.now_ms()
        while True:
            for leader, fetch in self.replication.fetches().items():
                if leader not in self._fetching:
                    self._fetch(leader, fetch)
            if self._around.now_ms() - checked_ms >= self._settings.lag_ms / 2:
                checked_ms = self._around.now_ms()
                self.replication.check_lag()
            await asyncio.sleep(FETCH_MS / 1000)

    def _fetch(self, leader: int, fetch: Fetch) -> None:
        """Fetch from a leader. The next fetch from it begins after the answer, or after the time limit."""

        def answered(answer: Any, error: Exception | None) -> None:
            if self._fetching.get(leader) is not late:
                return  # it came after the time limit
            del self._fetching[leader]
            late.cancel()
            if error is None:
                self.replication.fetched(leader, fetch, answer)

        address = self.receiver.addresses.get(leader, f"broker {leader}")
        late = self._fetching[leader] = self._around.network.post(
            address, fetch, answered, timeout_ms=self._settings.request_timeout_ms
        )
