"""Simulated cluster: controller instances, brokers, operators and a store, each on nodes of one loop."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Any, Final

from opentelemetry.metrics import NoOpMeterProvider

from kactl.actors.system import Controller
from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.admin import ControllerRequest
from kactl.model import ReplicaState, TopicPartition
from kactl.stores.base import Store
from kactl.testing.clock import LoopClock
from kactl.testing.history import History
from kactl.testing.links import Links
from kactl.testing.loop import SimLoop
from kactl.testing.network import Network
from kactl.testing.nodes import Node, on
from kactl.testing.transport import SimulatedTransport
from tests.sim.engine.linked_network import LinkedNetwork
from tests.sim.engine.script import LatencySpec, WorldSpec

from .brokers import BrokerSettings, Fleet, ModelBroker, ParticipantBroker
from .brokers.handlers import HandlerFailure
from .brokers.leases import LeaseClocks
from .brokers.process import Surroundings
from .checkers.observe import Observer
from .member import Member
from .points import Points
from .spectators import SpectatorMember
from .worlds.kinds import STORES
from .worlds.sqlite import SqliteWorld
from .worlds.zookeeper.ensemble import PEERS

FIRST_CONTROLLER: Final = 100
# Participants dial the controllers this often in a session timeout.
DIALS_PER_TIMEOUT: Final = 12
# Latency between the servers of a store when all faults have ended: at most that of the slowest other links. A
# takeover writes several times, one after the other, and its limits are those of fast stores.
PEERS_CALM_MS: Final = 40.0
# How many session timeouts a controller that has just been elected waits for the heartbeats of sessions with it.
GRACE: Final = 1.5
# Settings of a world that are not those of the controllers, with their defaults.
WORLD_SETTINGS: Final = {
    "session_timeout_ms": 6_000,
    "request_timeout_ms": 5_000.0,
    "lag_ms": 10_000.0,
    "append_rate": 2.0,
}
# Settings of a world that only its store reads, and which it draws if they are left out.
STORE_SETTINGS: Final = ("poll_ms",)
# Kinds of brokers.
KINDS: Final[dict[str, type[ModelBroker] | type[ParticipantBroker]]] = {
    "model": ModelBroker,
    "participant": ParticipantBroker,
}


class ControllerMember(Member):
    """A controller instance.

    Args:
    Attributes:
        controller: of the present process, or of the last one; None before the first start.
    """

    def __init__(
        self,
        controller_id: int,
        loop: SimLoop,
        history: History,
        *,
        transport: SimulatedTransport,
        store: Callable[[Node], Store],
        settings: dict[str, Any],
        observer: Observer,
        points: Points,
        dial_ms: float | None = None,
    ) -> None:
        super().__init__(loop, history, f"controller {controller_id}", self._run)
        self.id = controller_id
        self.controller: Controller | None = None
        self._transport = transport
        self._dial_ms = dial_ms
        self._store = store
        self._settings = settings
        self._observer = observer
        self._points = points

    @property
    def is_active(self) -> bool:
        """Whether a running process believes to be the controller."""
        return self.is_up and self.controller is not None and self.controller.is_active

    def kill(self) -> None:
        super().kill()
        self._observer.detach(self.name)

    async def _run(self, node: Node) -> None:
        store = self._store(node)
        self._points.watch_store(store)
        controller = Controller(
            self.id,
            store=store,
            clock=LoopClock(self._loop),
            rng=self._loop.streams[f"ids:{self.name}"],
            # Without a provider OpenTelemetry keeps all instruments, and with them each controller, forever.
            meter_provider=NoOpMeterProvider(),
            **self._reached_by(node),
            **self._settings,
        )
        self._observer.attach(controller, node=self.name, incarnation=self.incarnation)
        self.controller = controller

        async def ask(request: ControllerRequest) -> Any:
            with self._transport.network.internal_errors(request):
                return await controller.ask(request)

        try:
            async with controller:
                if self._dial_ms is None:
                    self._transport.network.listen(node, ask)
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        finally:
            self._observer.detach(self.name)
            self._transport.network.close(node)

    def _reached_by(self, node: Node) -> dict[str, Any]:
        """Returns the transport, or the network if participants have links to this instance."""
        transport = self._transport
        if self._dial_ms is None:
            return {"transport": transport}
        network = LinkedNetwork(
            transport.network,
            node,
            transport.history,
            numbers=transport.numbers,
            timeout_ms=transport.timeout_ms,
            dial_ms=self._dial_ms,
        )
        return {"network": network}


class SimulatedCluster:
    """All members of a cluster.

    Args:
        observer: records the events of the controllers.
        points: at which actions of the script happen.

    Attributes:
        operators: node of all admin clients; it never fails.
        own_settings: those of the controllers.
        removed_by_hand: ids, by name, of topics that were removed from the store by hand. A broker may not know an id.
        creations: number of requested creations by topic that the store may carry out later: those without an answer,
            or with an unknown outcome.
        reassigned: topics with a partition of which a reassignment was requested.
        growing: topics to which a tool adds a partition in the store now.
        growing_by_request: number of requests to controllers to add a partition, by topic, which have no answer yet.
    """

    def __init__(
        self,
        loop: SimLoop,
        history: History,
        spec: WorldSpec,
        latency: LatencySpec,
        *,
        observer: Observer,
        points: Points,
    ) -> None:
        settings = WORLD_SETTINGS | _only(spec.settings, WORLD_SETTINGS)
        self.loop = loop
        self.history = history
        self.spec = spec
        self.settings: dict[str, Any] = settings
        self.level = ProtocolLevel.parse(spec.brokers.level)
        self._store_ms = latency.store_ms
        self.links = Links(loop, {"network": latency.network_ms, "store": latency.store_ms})
        self.network = Network(loop, self.links)
        self.world, self.stored = STORES[spec.store](
            loop, history, self.links, settings | _only(spec.settings, STORE_SETTINGS)
        )
        if isinstance(self.world, SqliteWorld):
            self.world.kill = self._kill_node
        self.points = points
        self.operators = loop.node("operators")
        self.operator_store = self.world.client(self.operators)
        self.is_healed = False
        self.call_numbers = itertools.count(1)
        self.removed_by_hand: dict[str, set[bytes]] = {}
        self.creations: Counter[str] = Counter()
        self.reassigned: set[str] = set()
        self.growing: set[str] = set()
        self.poisoned: dict[TopicPartition, HandlerFailure] = {}
        self.growing_by_request: Counter[str] = Counter()
        kind, racks = KINDS[spec.brokers.kind], spec.brokers.racks
        around = Surroundings(
            self.network,
            history,
            self.now_ms,
            self._older_replicas,
            self.removed_by_hand,
            LeaseClocks(),
            self.poisoned,
        )

        ids = range(FIRST_CONTROLLER, FIRST_CONTROLLER + spec.controllers)
        dial_ms = settings["session_timeout_ms"] / DIALS_PER_TIMEOUT if spec.brokers.links else None

        def broker(number: int, name: str) -> ModelBroker | ParticipantBroker:
            return kind(
                number,
                loop,
                name=name,
                rack=None if racks < 2 else f"rack {(number - 1) % racks}",
                store=self.world.client,
                settings=BrokerSettings(
                    self.level,
                    controllers=tuple(f"controller {controller_id}" for controller_id in ids),
                    dial_ms=dial_ms,
                    sessions=spec.brokers.sessions,
                    handlers=spec.brokers.handlers,
                    **settings,
                ),
                around=around,
            )

        self.fleet = Fleet(spec.brokers.count, broker)
        messages = itertools.count(1)
        own = {name: value for name, value in spec.settings.items() if name not in {*WORLD_SETTINGS, *STORE_SETTINGS}}
        self.own_settings: dict[str, Any] = {"level": self.level, "participant_balance_ms": 0} | own
        self.controllers = {
            controller_id: ControllerMember(
                controller_id,
                loop,
                history,
                transport=SimulatedTransport(
                    self.network, history, numbers=messages, timeout_ms=settings["request_timeout_ms"]
                ),
                store=self.world.client,
                settings=self.own_settings,
                observer=observer,
                points=points,
                dial_ms=dial_ms,
            )
            for controller_id in ids
        }

        self.spectators = [
            SpectatorMember(
                f"spectator {number}",
                loop,
                history,
                self.network,
                controllers=[f"controller {controller_id}" for controller_id in ids],
            )
            for number in range(1, spec.spectators + 1)
        ]

    def now_ms(self) -> float:
        return self.loop.now_s * 1000

    @property
    def store_round_trip_ms(self) -> float:
        """Returns the longest time between a write of the store and its response, without faults.

        A server of ZooKeeper sends the write to the leader, and responds when it has received the decision.
        """
        _, peers_ms = self.links.latency_ms.get(PEERS, (0.0, 0.0))
        return 2 * (self._store_ms[1] + min(peers_ms, PEERS_CALM_MS))

    @property
    def session_end_ms(self) -> float:
        """The longest time from the last message of a client to the end of its session, whatever has just started."""
        end_ms = self.world.session_end_ms
        if self.spec.brokers.sessions != "store":
            # The controller and a participant may be lost together.
            end_ms += GRACE * float(self.settings["session_timeout_ms"])
        return end_ms

    def members(self) -> list[Member]:
        """Returns all members, controllers first, by id."""
        return [*self.controllers.values(), *self.fleet.brokers.values()]

    def member(self, name: str) -> Member | None:
        return next((member for member in self.members() if member.name == name), None)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Start all members; kill them at the end of the block."""
        with on(self.operators):
            await self.operator_store.__aenter__()
        for member in (*self.members(), *self.spectators):
            member.start()
        try:
            yield
        finally:
            for member in (*self.members(), *self.spectators):
                member.kill()
            self.fleet.end_twins()
            self.loop.kill(self.operators)
            self.world.close()

    def heal(self, core_down: Iterable[Member]) -> None:
        """End all faults: processes run at full speed, links deliver, and members that are down start.

        Links between the servers of a store are no slower than other links from then on.

        Args:
            core_down: members that are killed and stay down.
        """
        down = list(core_down)
        self.is_healed = True
        self.world.start()
        self.world.set_faults({})
        self.links.heal(deliver=True)
        self.links.limit_latency(PEERS, PEERS_CALM_MS)
        for channel in self.links.select():
            channel.release()
            channel.end_delay()
            channel.loss = channel.duplication = 0.0
        self.network.lose(0.0)
        self.fleet.end_twins()
        self.poisoned.clear()
        for member in self.members():
            self.world.heal(member.name)
            if member in down:
                self.kill(member)
                continue
            member.resume()
            if isinstance(member, ParticipantBroker):
                member.end_failures()
            if member.node is not None:
                self.loop.slow(member.node, 0)
                member.node.clock.set_rate(1.0, self.loop.now_s)
        self.restart(down)

    def restart(self, down: Collection[Member]) -> None:
        """Start the members that are not up, except some."""
        for member in self.members():
            if member not in down:
                member.start()

    def kill(self, member: Member) -> None:
        """Kill a member. Its sessions end at the store after their timeout."""
        member.kill()

    def _kill_node(self, node: Node) -> None:
        """Kill the member of a node."""
        member = self.member(node.name)
        if member is None:
            self.loop.kill(node)
        else:
            member.kill()

    @property
    def active(self) -> ControllerMember | None:
        """Returns the controller of the stored epoch if it has taken over, or None."""
        epoch = self.stored.controller_epoch
        for member in self.controllers.values():
            controller = member.controller
            if member.is_active and controller is not None and controller.cluster.fence.epoch == epoch:
                return member
        return None

    def _older_replicas(self, broker: int) -> dict[TopicPartition, bytes]:
        """Returns the partitions with a replica on a broker, except those being added, whose stored leadership the
        controller knows, with the ids of their topics.

        Without replicas whose deletion the broker has confirmed: their topic waits for the deletion of others, and the
        next topic of the name may have no id either.
        """
        led, topics = self.stored.leaderships(), self.stored.topics()
        here = {
            name: topics[name.topic].id
            for name, held in self.stored.assignments().items()
            if name in led and broker in held.replicas and broker not in held.adding
        }
        active = self.active
        if active is None or active.controller is None:
            return here
        known = {name: active.controller.cluster.view(name) for name in here}
        return {
            name: id_
            for name, id_ in here.items()
            if (view := known[name]) is not None
            and view.leadership
            and view.replica_states.get(broker) is not ReplicaState.DELETION_SUCCESSFUL
        }


def _only(settings: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}
