"""Independent reader of the cluster's state in ZooKeeper."""

import json
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

# Over a restart of the server, too.
RETRY_S: Final = 60.0
CONNECT_S: Final = 15.0


class State(NamedTuple):
    """Stored state of one partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class Eyes:
    """Read-only client. Nodes that are deleted between two reads are absent; this is not an error.

    Args:
        hosts: without a chroot, so that it need not exist.
        chroot: where the cluster is.
    """

    def __init__(self, hosts: str, chroot: str) -> None:
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, deadline=RETRY_S)
        self._client = KazooClient(hosts, command_retry=retry)
        self._chroot = chroot

    def data(self, path: str) -> bytes | None:
        """What a node holds; None where it is not there."""
        try:
            found, _ = self._client.retry(self._client.get, self._chroot + path)
        except NoNodeError:
            return None
        return bytes(found)

    def json(self, path: str) -> Any:
        """The same, read."""
        found = self.data(path)
        return None if found is None else json.loads(found)

    def children(self, path: str) -> list[str]:
        """What stands below a node; nothing where it is not there."""
        try:
            return sorted(self._client.retry(self._client.get_children, self._chroot + path))
        except NoNodeError:
            return []

    def registered(self) -> set[int]:
        """The ids of the brokers that have a session."""
        return set(map(int, self.children("/brokers/ids")))

    def holder(self) -> tuple[int | None, int]:
        """Who has the controllership, and the latest epoch."""
        held = self.json("/controller")
        return None if held is None else int(held["brokerid"]), int(self.data("/controller_epoch") or 0)

    def assignments(self) -> dict[str, tuple[int, ...]]:
        """The replicas of every partition that has been assigned, by its name."""
        topics = {topic: self.json(f"/brokers/topics/{topic}") for topic in self.children("/brokers/topics")}
        return {
            f"{topic}-{partition}": tuple(replicas)
            for topic, node in topics.items()
            if node is not None
            for partition, replicas in node["partitions"].items()
        }

    def states(self) -> dict[str, State]:
        """What stands of every partition that has been led, by its name."""
        return self._states(self.assignments())

    def states_of(self, topic: str) -> dict[str, State]:
        """The same for the partitions of one topic."""
        node = self.json(f"/brokers/topics/{topic}") or {"partitions": {}}
        return self._states([f"{topic}-{partition}" for partition in node["partitions"]])

    def _states(self, partitions: "dict[str, Any] | list[str]") -> dict[str, State]:
        """All at once: there may be thousands."""
        found = {}
        for name, answer in self._client.retry(self._ask, partitions).items():
            if answer is not None:
                state = json.loads(answer)
                found[name] = State(
                    state["leader"], state["leader_epoch"], tuple(state["isr"]), state["controller_epoch"]
                )
        return found

    def _ask(self, partitions: "dict[str, Any] | list[str]") -> dict[str, bytes | None]:
        asked = {name: self._client.get_async(self._chroot + path_of(name)) for name in partitions}
        return {name: _answer(each) for name, each in asked.items()}

    def __enter__(self) -> Self:
        self._client.start(timeout=CONNECT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop()
        self._client.close()


def path_of(partition: str) -> str:
    """The state node of a partition, below the chroot."""
    topic, _, number = partition.rpartition("-")
    return f"/brokers/topics/{topic}/partitions/{number}/state"


def _answer(asked: Any) -> bytes | None:
    try:
        found, _ = asked.get(timeout=RETRY_S)
    except NoNodeError:
        return None
    return bytes(found)
