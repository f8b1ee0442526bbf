"""A cluster of participants whose messages take time, and a record of the intervals in which they lead.

Leaderships of one partition overlap exactly if one begins while another is valid, so that it is enough to look when
`lead` is called.
"""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from kactl.actors.system import Controller
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import Request, Response
from kactl.model import Broker, TopicPartition
from kactl.model.errors import BrokerUnreachable, ControllerUnreachable
from kactl.participant import Participant
from kactl.participant.handlers.handler import PartitionHandler
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.terms import LeaseConfig
from kactl.stores.base import SessionBound
from kactl.stores.memory import MemoryStore
from kactl.stores.memory.store import MemorySession
from kactl.transports.base import Connection, Transport
from kactl.transports.memory import MemoryHub
from tests.support.clocks import ManualClock, settle

T0: Final = TopicPartition("t", 0)
TIMEOUT_MS: Final = 6_000
# Time limit of a message that is lost.
LOST_MS: Final = 300.0


class WitnessingStore(MemoryStore):
    """A store whose renewals prove only that the session existed, as those of ZooKeeper."""

    async def new_session(self, timeout_ms: int) -> MemorySession:
        session = await super().new_session(timeout_ms)
        session._bound = SessionBound(kind="witnessed")
        return session

    def vanish(self, broker: int) -> None:
        """End the session of a broker at once, as if its renewals had not reached the leader of an ensemble."""
        _, session = self.state.brokers[broker]
        assert session is not None
        self.state.end_session(session)


class SlowHub(MemoryHub):
    """A hub whose messages between controllers and participants take a random time, or are lost.

    Attributes:
        cut: brokers without any connection to controllers.
        latency_ms: the longest time of one message.
    """

    def __init__(self, clock: ManualClock, rng: random.Random) -> None:
        super().__init__()
        self.clock = clock
        self.rng = rng
        self.cut: set[int] = set()
        self.latency_ms = 0.0

    async def travel(self) -> None:
        await self.clock.sleep_ms(self.rng.uniform(0, self.latency_ms))

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        await self.travel()
        if getattr(request, "broker", None) in self.cut:
            await self.clock.sleep_ms(LOST_MS)
            raise ControllerUnreachable("the link is cut")
        answer = await super().ask(request, controller=controller)
        await self.travel()
        return answer

    @asynccontextmanager
    async def controller_side(self, port: Any) -> AsyncIterator[Transport]:
        async with super().controller_side(port) as transport:
            yield SlowTransport(self, transport)


class SlowTransport:
    """Transport of a `SlowHub`."""

    def __init__(self, hub: SlowHub, transport: Transport) -> None:
        self._hub = hub
        self._transport = transport

    def connect(self, broker: Broker) -> "SlowConnection":
        return SlowConnection(self._hub, broker.id, self._transport.connect(broker))


class SlowConnection:
    """Connection of a `SlowHub`."""

    def __init__(self, hub: SlowHub, broker: int, connection: Connection) -> None:
        self._hub = hub
        self._broker = broker
        self._connection = connection

    async def deliver(self, request: Request) -> Response:
        await self._hub.travel()
        if self._broker in self._hub.cut:
            await self._hub.clock.sleep_ms(LOST_MS)
            raise BrokerUnreachable(self._broker, "the link is cut")
        response = await self._connection.deliver(request)
        await self._hub.travel()
        return response

    async def close(self) -> None:
        await self._connection.close()


class Leaders:
    """Controllers, participants, and who leads.

    Attributes:
        overlaps: what went wrong: an interval that began while another leadership was valid.
        began: (time, broker, partition, token) of each leadership, in order.
    """

    def __init__(self, store: MemoryStore, clock: ManualClock, hub: SlowHub) -> None:
        self.store = store
        self.clock = clock
        self.hub = hub
        self.controllers: list[Controller] = []
        self.brokers: dict[int, Participant] = {}
        self.leaders: dict[TopicPartition, list[tuple[int, Leader]]] = {}
        self.overlaps: list[str] = []
        self.began: list[tuple[float, int, TopicPartition, str]] = []

    @property
    def controller(self) -> Controller:
        return next((one for one in self.controllers if one.is_active), self.controllers[0])

    def begins(self, broker: int, leader: Leader) -> None:
        now_ms, others = self.clock.monotonic_ms(), self.leaders.setdefault(leader.partition, [])
        for other, known in others:
            if other != broker and known.is_valid:
                self.overlaps.append(f"{now_ms:.1f} ms: {broker} begins {leader} while {other} has {known}")
        others[:] = [(other, known) for other, known in others if known.is_valid and other != broker]
        others.append((broker, leader))
        self.began.append((now_ms, broker, leader.partition, str(leader.token)))

    def valid(self, name: TopicPartition = T0) -> list[int]:
        return [broker for broker, leader in self.leaders.get(name, []) if leader.is_valid]

    def leader(self, name: TopicPartition = T0) -> int:
        view = self.controller.partition(name)
        assert view is not None
        return view.leader

    def handler(self, broker: int) -> type[PartitionHandler]:
        """Returns the handler of a participant, which reports to this object."""
        leaders = self

        class Handler(PartitionHandler):
            async def lead(self, leader: Leader) -> None:
                leaders.begins(broker, leader)

        return Handler


@asynccontextmanager
async def open_leaders(
    seed: int = 0,
    *,
    count: int = 3,
    controllers: int = 1,
    witnessing: bool = False,
    lease: LeaseConfig | None = None,
) -> AsyncIterator[Leaders]:
    """Run controllers and participants with handlers."""
    clock, rng = ManualClock(), random.Random(seed)
    store = (WitnessingStore if witnessing else MemoryStore)(clock=clock)
    hub = SlowHub(clock, rng)
    leaders = Leaders(store, clock, hub)
    async with AsyncExitStack() as stack:
        for number in range(controllers):
            client = store if not number else store.another()
            one = Controller(100 + number, store=client, clock=clock, hub=hub, rng=random.Random(seed))
            leaders.controllers.append(await stack.enter_async_context(one))
        for broker in range(1, count + 1):
            leaders.brokers[broker] = participant = Participant(
                broker,
                store=store,
                hub=hub,
                clock=clock,
                shutdown_attempts=0,
                session_timeout_ms=TIMEOUT_MS,
                lease=lease,
                rng=rng,
                handler=leaders.handler(broker),
            )
            await stack.enter_async_context(participant)
        await settle()
        yield leaders
        hub.latency_ms = 0.0
        hub.cut.clear()
