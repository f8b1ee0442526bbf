"""Independent reader of the cluster's state in ZooKeeper."""

import json
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

# Includes a restart of the server.
RETRY_S: Final = 60.0
CONNECT_S: Final = 15.0


class State(NamedTuple):
    """Stored state of one partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class ZooKeeperReader:
    """Read-only client. Nodes that are deleted between two reads are absent; this is not an error.

    Args:
        hosts: connect string without a chroot, so that the chroot need not exist.
        chroot: path of the cluster.
    """

    def __init__(self, hosts: str, chroot: str) -> None:
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, deadline=RETRY_S)
        self._client = KazooClient(hosts, command_retry=retry)
        self._chroot = chroot

    def data(self, path: str) -> bytes | None:
        """Return the data of a node; None if it does not exist."""
        try:
            content, _ = self._client.retry(self._client.get, self._chroot + path)
        except NoNodeError:
            return None
        return bytes(content)

    def json(self, path: str) -> Any:
        """Return the data of a node as JSON; None if it does not exist."""
        content = self.data(path)
        return None if content is None else json.loads(content)

    def children(self, path: str) -> list[str]:
        """Return the names of the children of a node; empty if it does not exist."""
        try:
            return sorted(self._client.retry(self._client.get_children, self._chroot + path))
        except NoNodeError:
            return []

    def registered(self) -> set[int]:
        """Return the ids of the brokers that have a session, without the entry of a controller."""
        nodes = {name: self.json(f"/brokers/ids/{name}") or {} for name in self.children("/brokers/ids")}
        return {int(name) for name, node in nodes.items() if "kactl" not in node}

    def holder(self) -> tuple[int | None, int]:
        """Return the id of the controller (None if there is none) and the latest controller epoch."""
        controller = self.json("/controller")
        return None if controller is None else int(controller["brokerid"]), int(self.data("/controller_epoch") or 0)

    def assignments(self) -> dict[str, tuple[int, ...]]:
        """Return the replicas of every assigned partition, by its name."""
        topics = {topic: self.json(f"/brokers/topics/{topic}") for topic in self.children("/brokers/topics")}
        return {
            f"{topic}-{partition}": tuple(replicas)
            for topic, node in topics.items()
            if node is not None
            for partition, replicas in node["partitions"].items()
        }

    def states(self) -> dict[str, State]:
        """Return the state of every partition that has had a leader, by its name."""
        return self._states(self.assignments())

    def states_of(self, topic: str) -> dict[str, State]:
        """Return the states of the partitions of one topic, by their names."""
        node = self.json(f"/brokers/topics/{topic}") or {"partitions": {}}
        return self._states([f"{topic}-{partition}" for partition in node["partitions"]])

    def _states(self, partitions: "dict[str, Any] | list[str]") -> dict[str, State]:
        """Read all states with one pipeline of requests: there may be thousands."""
        states = {}
        for name, answer in self._client.retry(self._ask, partitions).items():
            if answer is not None:
                state = json.loads(answer)
                states[name] = State(
                    state["leader"], state["leader_epoch"], tuple(state["isr"]), state["controller_epoch"]
                )
        return states

    def _ask(self, partitions: "dict[str, Any] | list[str]") -> dict[str, bytes | None]:
        requests = {name: self._client.get_async(self._chroot + path_of(name)) for name in partitions}
        return {name: _answer(request) for name, request in requests.items()}

    def __enter__(self) -> Self:
        self._client.start(timeout=CONNECT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop()
        self._client.close()


def path_of(partition: str) -> str:
    """Return the path of a partition's state node, without the chroot."""
    topic, _, number = partition.rpartition("-")
    return f"/brokers/topics/{topic}/partitions/{number}/state"


def _answer(request: Any) -> bytes | None:
    try:
        content, _ = request.get(timeout=RETRY_S)
    except NoNodeError:
        return None
    return bytes(content)
