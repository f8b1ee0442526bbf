"""A cluster of controllers and participants on simulated nodes, over a simulated store and network."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry.metrics import NoOpMeterProvider

from kactl.actors.system import Controller
from kactl.model.errors import KactlError
from kactl.participant import Listener, Participant
from kactl.participant.registrar import RETRY_MS

from ..clock import LoopClock
from ..history import History
from ..links import ANY, Links
from ..network import KIND, Network
from ..node_network import NodeNetwork
from ..nodes import Node
from ..worlds.memory import MemoryWorld

if TYPE_CHECKING:
    from ..loop import SimLoop

T = TypeVar("T")

CONTROLLER_IDS_FROM: Final = 100
SESSION_TIMEOUT_MS: Final = 6_000
STORE_MS: Final = (0.5, 4.0)
NETWORK_MS: Final = (0.5, 2.0)
# Time in which a healed cluster has to come to rest: several session timeouts, and the retries of everything.
SETTLE_S: Final = 120.0
# Time between two attempts of a client.
CLIENT_RETRY_S: Final = 0.25


class ClusterNode:
    """One process of the application, from a start to the next one.

    Attributes:
        id: broker id of its participant.
        incarnation: number of its starts so far, from 1.
        loop: for tasks and times; `asyncio` works as usual.
    """

    def __init__(self, cluster: "SimCluster", number: int, incarnation: int) -> None:
        self.cluster = cluster
        self.id = number
        self.incarnation = incarnation
        self.loop = cluster.loop

    def record(self, kind: str, **fields: Any) -> None:
        """Record an event of the application in the history."""
        self.cluster.history.record(kind, **fields)


# Makes the callbacks of one process of the application.
Application = Callable[[ClusterNode], Listener]


class SimCluster:
    """Controllers 100, 101 ... and participants 1, 2 ..., each on a node that can be paused, cut off and killed.

    Nodes are named `controller 100` and `node 1`.

    Args:
        application: called at each start of a participant's process. Its callbacks run on that node.
        settings: of the controllers; see `kactl.ControllerSettings`.
    """

    def __init__(
        self,
        loop: "SimLoop",
        history: History,
        *,
        controllers: int = 2,
        nodes: int = 3,
        application: Application = lambda node: Listener(),
        **settings: Any,
    ) -> None:
        self.loop = loop
        self.history = history
        self.links = Links(loop, {"store": STORE_MS, KIND: NETWORK_MS})
        self.world = MemoryWorld(loop, self.links, session_timeout_ms=SESSION_TIMEOUT_MS)
        self.network = Network(loop, self.links)
        self.controllers: dict[int, Controller] = {}
        self._application = application
        self._settings = settings
        self._nodes: dict[str, Node] = {}
        self._starts: dict[str, int] = {}
        self._random = loop.streams["client"]
        self._messages = itertools.count(1)
        controller_ids = range(CONTROLLER_IDS_FROM, CONTROLLER_IDS_FROM + controllers)
        self._numbers = {f"controller {number}": number for number in controller_ids}
        self._numbers |= {f"node {number}": number for number in range(1, nodes + 1)}
        for name in self._numbers:
            self.restart(name)

    @property
    def names(self) -> list[str]:
        """Names of all nodes."""
        return list(self._numbers)

    def view(self, node: Node) -> NodeNetwork:
        """Returns the network as a node uses it."""
        controllers = [name for name in self._numbers if name.startswith("controller")]
        return NodeNetwork(
            self.network, node, self.history, broker_name="node", controllers=controllers, numbers=self._messages
        )

    # -- use -----------------------------------------------------------------------------------------------------------

    async def ask(self, call: Callable[[Controller], Awaitable[T]], *, timeout_s: float = SETTLE_S) -> T:
        """Call a method of the active controller, and again on the next one while it fails with an error that may pass.

            await cluster.ask(lambda controller: controller.create_topic("jobs", partitions=4, replication_factor=3))

        A call that failed may have had its effect.

        Raises:
            KactlError: the last failure, after the time limit.
            TimeoutError: there was no active controller in that time.
        """
        until_s = self.loop.now_s + timeout_s
        while True:
            name = self.resolve("active controller")
            failure: Exception = TimeoutError(f"no controller was active within {timeout_s:g} s")
            if name is not None:
                controller = self.controllers[self._numbers[name]]
                task = self.loop.start(self._nodes[name], _as_coroutine(call(controller)))
                done, _ = await asyncio.wait([task], timeout=10)
                if done and not task.cancelled():
                    error = task.exception()
                    if error is None:
                        return task.result()
                    if not isinstance(error, KactlError):
                        raise error
                    failure = error
            if self.loop.now_s >= until_s:
                raise failure
            await asyncio.sleep(CLIENT_RETRY_S)

    async def create_topic(self, topic: str, *, partitions: int = 1, replication_factor: int = 1) -> None:
        """Create a topic, unless it exists, once enough nodes are registered."""
        arguments = {"partitions": partitions, "replication_factor": replication_factor, "timeout_ms": 0}
        while topic not in self.world.state.topics:
            try:
                await self.ask(lambda controller: controller.create_topic(topic, **arguments), timeout_s=0)  # type: ignore[arg-type]
            except (KactlError, TimeoutError):
                await asyncio.sleep(CLIENT_RETRY_S)

    async def settled(self, *, timeout_s: float = SETTLE_S) -> None:
        """Wait until there is one active controller, and each partition has a live leader and a full ISR.

        Raises:
            TimeoutError: the cluster has not come to rest within the time limit. The text names the missing conditions.
        """
        until_s = self.loop.now_s + timeout_s
        while (missing := self._unsettled()) is not None:
            if self.loop.now_s >= until_s:
                raise TimeoutError(f"the cluster has not settled within {timeout_s:g} s: {missing}")
            await asyncio.sleep(0.5)
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000)  # the last requests reach their nodes

    def _unsettled(self) -> str | None:
        active = [controller for controller in self.controllers.values() if controller.is_active]
        if len(active) != 1:
            return f"{len(active)} controllers are active"
        live = set(self.world.state.brokers)
        for name in sorted(self.world.state.topics):
            for partition in active[0].partitions_of(name):
                state = partition.leadership
                if state is None or state.leader not in live:
                    return f"partition {partition.name} has no live leader; live nodes: {sorted(live)}"
                if set(state.isr) != set(partition.replicas) & live:
                    return f"partition {partition.name} has the ISR {sorted(state.isr)} of {list(partition.replicas)}"
        return None if live else "no node is registered"

    # -- faults --------------------------------------------------------------------------------------------------------

    def resolve(self, selector: str) -> str | None:
        """Returns the name of a node: of a selector such as `active controller`, or the name itself."""
        if selector != "active controller":
            return selector if selector in self._numbers else None
        for number, controller in self.controllers.items():
            name = f"controller {number}"
            if self._nodes[name].state == "running" and controller.is_active:
                return name
        return None

    def kill(self, name: str) -> None:
        """End a process as `kill -9` does."""
        self.controllers.pop(self._numbers[name], None)
        self.loop.kill(self._nodes[name])

    def restart(self, name: str) -> None:
        """Start a process that does not run, or was killed."""
        node = self._nodes.get(name)
        if node is not None and node.state != "killed":
            return
        node = self._nodes[name] = self.loop.node(name)
        self._starts[name] = self._starts.get(name, 0) + 1
        number = self._numbers[name]
        main = self._run_controller if name.startswith("controller") else self._run_participant
        self.loop.start(node, main(number, node))

    def pause(self, name: str) -> None:
        self.loop.pause(self._nodes[name])

    def resume(self, name: str) -> None:
        self.loop.resume(self._nodes[name])

    def slow(self, name: str, delay_ms_max: float) -> None:
        self.loop.slow(self._nodes[name], delay_ms_max)

    def cut(self, name: str, what: str = "both") -> None:
        """Cut a node off: from the `store`, from all other nodes (`network`), or from `both`."""
        if what in ("store", "both"):
            self.world.cut(name)
        if what in ("network", "both"):
            self.links.cut(name, ANY, kind=KIND)

    def heal(self, name: str) -> None:
        """End all cuts of a node."""
        self.world.heal(name)
        self.links.heal(name, ANY, kind=KIND)

    def heal_all(self) -> None:
        """End all faults: every process runs again, at full speed and with all its links."""
        self.world.lost_answers = 0.0
        for name in self._numbers:
            self.heal(name)
            self.resume(name)
            self.slow(name, 0.0)
            self.restart(name)

    # -- processes, each on its node -----------------------------------------------------------------------------------

    async def _run_controller(self, number: int, node: Node) -> None:
        while True:
            controller = Controller(
                number,
                store=self.world.client(node),
                network=self.view(node),
                clock=LoopClock(),
                rng=self.loop.streams[f"ids:{node.name}"],
                meter_provider=NoOpMeterProvider(),
                **self._settings,
            )
            try:
                async with controller:
                    self.controllers[number] = controller
                    await asyncio.Event().wait()
            except KactlError:  # the store cannot be reached: a supervisor starts the process again
                self.controllers.pop(number, None)
                await asyncio.sleep(RETRY_MS / 1000)

    async def _run_participant(self, number: int, node: Node) -> None:
        listener = self._application(ClusterNode(self, number, self._starts[node.name]))
        while True:
            store = self.world.client(node)
            participant = Participant(
                number,
                store=store,
                network=self.view(node),
                clock=LoopClock(),
                listener=listener,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rng=self.loop.streams[f"ids:{node.name}"],
            )
            try:
                async with store, participant:
                    await asyncio.Event().wait()
            except KactlError:
                await asyncio.sleep(RETRY_MS / 1000)


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable
