"""Named points of the code, at which actions of a script happen.

    at_point "commit before", hit 2               the second call of Committer.commit on any controller
    at_point "BrokerChange: store.topics after" the first answer of `topics` while BrokerChange is being handled

A point is the boundary of a function that runs on a controller's node. The functions are wrapped for the time of a run;
product code has no hooks. A test resolves every entry, so that a renamed function breaks the test and not the coverage.

An action at the boundary of an asynchronous function takes effect at the boundary: the node that reaches it is the
selector `node at point`, and a node that is killed or paused there does not go on.
"""

import asyncio
import contextlib
import functools
import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kactl.decide.messages.events import Event
from kactl.model.errors import StoreUnavailable
from kactl.testing.nodes import NODE, Node
from tests.sim.engine.script import Action

_HANDLER: Final = "handler"

# Functions by name of the point, as MODULE:QUALIFIED NAME. Each has a point before and one after it.
FUNCTIONS: Final = {
    # Around each event, and around the takeover.
    _HANDLER: "kactl.actors.controller:ControllerLoop._handle",
    "takeover": "kactl.actors.handlers.failover:Failover.take_over",
    "load": "kactl.actors.handlers.failover:Failover.load",
    "give up": "kactl.actors.handlers.controllership:Controllership.give_up",
    # Around a move of the state machines, between its commit, its application and the queue of its requests.
    "move partitions": "kactl.actors.machines.partitions:Partitions.receive",
    "move replicas": "kactl.actors.machines.replicas:Replicas.receive",
    "commit": "kactl.actors.machines.commit:Committer.commit",
    "read back": "kactl.actors.machines.commit:Committer._read_back",
    "reload": "kactl.actors.machines.commit:Committer.reload",
    # Between two requests to one broker, and between a request and the event of its response.
    "deliver": "kactl.actors.channel:Channel._deliver",
    "answered": "kactl.actors.channel:Channel._answered",
    # Steps of a broker's start and failure.
    "broker startup": "kactl.actors.handlers.brokers:BrokerEvents.on_broker_startup",
    "broker failure": "kactl.actors.handlers.brokers:BrokerEvents._brokers_failed",
    "full state": "kactl.actors.handlers.brokers:BrokerEvents._tell_of_all_partitions",
    "replicas offline": "kactl.actors.handlers.offline:Offline.replicas_offline",
    # Steps of topics: creation, growth and deletion.
    "create topics": "kactl.actors.handlers.topics:TopicEvents.create",
    "start deletion": "kactl.actors.handlers.deletion:Deletion._start",
    "complete deletion": "kactl.actors.handlers.deletion:Deletion._complete",
    # Steps of a reassignment.
    "begin reassignment": "kactl.actors.handlers.reassignment_steps:ReassignmentSteps.begin",
    "advance reassignment": "kactl.actors.handlers.reassignment_steps:ReassignmentSteps.advance",
    "copy": "kactl.actors.handlers.reassignment_steps:ReassignmentSteps._copy",
    "complete reassignment": "kactl.actors.handlers.reassignment_steps:ReassignmentSteps._complete",
    "stop replicas": "kactl.actors.handlers.reassignment_steps:ReassignmentSteps._stop",
    "store assignment": "kactl.actors.handlers.reassignment_steps:ReassignmentSteps._store",
    # The copy of a standby.
    "refresh standby": "kactl.actors.handlers.standby:Copy.refresh",
}
# Calls of a controller to its store. Each has a point before and one after it, `store.NAME before`.
STORE_CALLS: Final = (
    "controller", "contest", "resign", "brokers", "broker", "topics", "assignments", "create_topic", "write_assignment",
    "topic_configs", "default_config", "deletions", "mark_deletion", "unmark_deletions", "delete_topics", "check",
    "partitions_begun", "reassignment_request", "set_reassignment_request", "preferred_election_request",
    "delete_preferred_election_request", "features", "write_features", "producer_ids", "write_producer_ids",
    "leaderships", "commit", "changes", "watch_leaderships", "isr_notifications", "log_dir_notifications",
    "delete_notifications",
)  # fmt: skip

# Events that are handled for longer than one step, by handlers that may be interrupted.
EVENTS: Final = (
    "BrokerChange", "TopicChange", "PartitionModifications", "TopicDeletion", "ApiPartitionReassignment",
    "ReplicaLeaderElection", "AlterPartitionReceived", "ControlledShutdown", "TopicDeletionStopReplicaResponseReceived",
    "LeaderAndIsrResponseReceived", "LogDirEventNotification", "ZkPartitionReassignment", "ZkReplicaLeaderElection",
    "IsrChangeNotification",
)  # fmt: skip

POINTS: Final = tuple(
    f"{name} {side}"
    for name in (*FUNCTIONS, *(f"store.{call}" for call in STORE_CALLS))
    for side in ("before", "after")
)
"""All points, without the events that may stand before them."""


class InjectedError(RuntimeError):
    """Failure of a function at a point, injected by a script."""


class _Armed(NamedTuple):
    number: int
    action: Action
    event: str
    point: str
    seen: list[int]  # executions so far


class Points:
    """Points of one run.

    Args:
        now_ms: virtual time.
        do: carries out an action by its number.
        hold_ms: for which a node stays at a point after an action: longer than a message takes.

    Attributes:
        hits: executions of each point.
        node: the node at the point while an action happens there; None otherwise.
    """

    def __init__(self, now_ms: Callable[[], float], do: Callable[[int, Action], None], *, hold_ms: float = 0.0) -> None:
        self._now_ms = now_ms
        self._hold_ms = hold_ms
        self._do = do
        self._armed: dict[str, list[_Armed]] = {}
        self._events: dict[str, list[str]] = {}  # the events that each node handles, the innermost last
        self.hits: Counter[str] = Counter()
        self.node: Node | None = None

    def arm(self, number: int, action: Action) -> None:
        """Carry out an action at its point, once.

        Raises:
            ValueError: there is no such point.
        """
        event, colon, point = action.at_point.rpartition(": ")
        if point not in _ALL:
            raise ValueError(f"action {number}: there is no point {point!r}; see tests.sim.engine.points")
        armed = _Armed(number, action, event if colon else "", point, [0])
        self._armed.setdefault(point, []).append(armed)

    def disarm(self) -> None:
        """Carry out no further action."""
        self._armed.clear()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Wrap the functions of the table during the block."""
        with contextlib.ExitStack() as stack:
            for name, path in FUNCTIONS.items():
                owner, attribute = resolve(path)
                original = vars(owner)[attribute]
                setattr(owner, attribute, self._wrapped(name, original))
                stack.callback(setattr, owner, attribute, original)
            yield

    def watch_store(self, store: Any) -> None:
        """Wrap the calls of one client."""
        for call in STORE_CALLS:
            setattr(store, call, self._wrapped(f"store.{call}", getattr(store, call)))
        store.membership = self._wrapped("store.brokers", store.membership)  # it reads the brokers, too

    def _wrapped(self, name: str, original: Any) -> Any:
        before, after = f"{name} before", f"{name} after"
        hits, armed, is_handler = self.hits, self._armed, name == _HANDLER

        @functools.wraps(original)
        async def wrapped(*args: Any, **named: Any) -> Any:
            node = NODE.get()
            if node is None:
                return await original(*args, **named)
            events: list[str] = []
            if is_handler:
                events = self._events.setdefault(node.name, [])
                events.append(next(arg for arg in args if isinstance(arg, Event)).label)
            try:
                hits[before] += 1
                if before in armed:
                    await self._act(before, node)
                result = await original(*args, **named)
                hits[after] += 1
                if after in armed:
                    await self._act(after, node)
            finally:
                if events:
                    events.pop()
            return result

        return wrapped

    async def _act(self, point: str, node: Node) -> None:
        """Carry out what happens at a point.

        Raises:
            InjectedError: the script lets the function fail.
            StoreUnavailable: the same for a call of the store, which raises nothing else when its server fails.
        """
        waiting = self._armed[point]
        due = [armed for armed in waiting if self._is_due(armed, node)]
        for armed in due:
            waiting.remove(armed)
            if armed.action.do == "fail":
                text = f"{point}: injected by action {armed.number}"
                raise StoreUnavailable(text) if point.startswith("store.") else InjectedError(text)
            self.node = node
            token = NODE.set(None)
            try:
                self._do(armed.number, armed.action)
            finally:
                NODE.reset(token)
                self.node = None
        if due:
            # A killed or paused node stays here. Otherwise a request of the action reaches the inbox meanwhile.
            await asyncio.sleep(self._hold_ms / 1000)

    def _is_due(self, armed: _Armed, node: Node) -> bool:
        events = self._events.get(node.name, [])
        if self._now_ms() < armed.action.at_ms or (armed.event and armed.event not in events):
            return False
        armed.seen[0] += 1
        return armed.seen[0] >= armed.action.hit


_ALL: Final = frozenset(POINTS)


def resolve(path: str) -> tuple[Any, str]:
    """Returns the owner and the name of a function of the table.

    Raises:
        AttributeError: there is no such function, or it is not asynchronous.
    """
    module, _, name = path.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, attribute = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    if not inspect.iscoroutinefunction(vars(owner).get(attribute)):
        raise AttributeError(f"{path} is no asynchronous function of its own class: update tests.sim.engine.points")
    return owner, attribute
