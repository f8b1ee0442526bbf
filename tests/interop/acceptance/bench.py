"""Test cluster of the acceptance checklist: ZooKeeper behind a link that can be cut, kactl, three brokers, and
tools."""

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import HTTPError

from tests.support.link import Link
from tests.support.processes import POLL_S, HarnessError
from tests.support.zookeeper_server import ZooKeeperServer

from ..brokers import Cluster
from ..journal import Kind, Written, read
from ..kactl_process import KactlController
from ..metadata import MetadataClient
from ..tools import Tools
from ..zookeeper_reader import ZooKeeperReader

KACTL: Final = 900_001
OTHER: Final = 900_002
BROKERS: Final = (1, 2, 3)
# Of the brokers: those that create topics refuse a list of brokers in which only some have racks.
RACKS: Final = ("a", "b", "c")
CHROOT: Final = "/acceptance"
SESSION_S: Final = 6.0
# 6 s is the longest session that a server with this tick allows. A session ends within one tick after its timeout.
TICK_MS: Final = 300
# Time limit where nothing is measured, also on a busy machine.
MARGIN_S: Final = 60.0
BALANCE_S: Final = 5.0
# Share of the partitions that prefer a broker: Kafka's and kactl's default.
IMBALANCE_MAX: Final = 0.1
# Enough partitions that a single one led by another broker does not count as imbalance.
BALLAST: Final = "ballast"
BALLAST_PARTITIONS: Final = 36


class Bench:
    """The cluster runs within the `with` block: kactl starts first, on an empty ZooKeeper, then the brokers."""

    def __init__(self, folder: Path, level: str) -> None:
        self.level = level
        self.folder = folder
        self.zookeeper = self._zookeeper()
        self.link = Link(self._linked_port)
        self.reader = ZooKeeperReader(self.zookeeper.connect(), CHROOT)
        self.cluster = self._brokers()
        self.kactl, self.other = map(self._instance, (KACTL, OTHER))
        self.tools = self._tools(",".join(f"127.0.0.1:{broker.internal_port}" for broker in self.cluster.brokers))
        self._stack = ExitStack()

    # -- parts, which other profiles replace ---------------------------------------------------------------------------

    is_secure = False

    def _zookeeper(self) -> ZooKeeperServer:
        return ZooKeeperServer(self.folder / "zookeeper", tick_ms=TICK_MS)

    @property
    def _linked_port(self) -> int:
        return self.zookeeper.port

    def _prepare(self) -> None:
        """Called once ZooKeeper runs."""

    def _brokers(self) -> Cluster:
        return Cluster(
            self.folder,
            zookeeper=f"127.0.0.1:{self.link.port}{CHROOT}",
            racks=RACKS,
            ibp=self.level,
            session_timeout_ms=int(SESSION_S * 1000),
            overrides=OVERRIDES,
        )

    def _instance(self, node_id: int) -> KactlController:
        return KactlController(
            node_id,
            folder=self.folder / f"kactl-{node_id}",
            zookeeper=f"127.0.0.1:{self.link.port}{CHROOT}",
            ibp=self.level,
            takeover=node_id == KACTL,
            others=[id_ for id_ in (KACTL, OTHER) if id_ != node_id],
            balance_s=BALANCE_S,
        )

    def _tools(self, bootstrap: str) -> Tools:
        return Tools(self.folder, bootstrap=bootstrap)

    def __enter__(self) -> Self:
        with self._stack as stack:
            stack.enter_context(self.zookeeper)
            self._prepare()
            stack.enter_context(self.link)
            stack.enter_context(self.reader)
            for instance in (self.kactl, self.other):
                stack.callback(instance.kill)
            self.kactl.start()
            stack.enter_context(self.tools)
            stack.enter_context(self.cluster)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # -- current state -------------------------------------------------------------------------------------------------

    def led(self, *, without: Iterable[int] = ()) -> bool:
        """Return whether every assigned partition has a leader, and none of them is in `without`."""
        states = self.reader.states()
        nobody = {-1, *without}
        return states.keys() == self.reader.assignments().keys() and all(
            state.leader not in nobody for state in states.values()
        )

    def shrunk(self, *, without: int) -> bool:
        """Return whether the broker is in no ISR."""
        return all(without not in state.isr for state in self.reader.states().values())

    def whole(self) -> bool:
        """Return whether every partition has a leader and all its replicas are in sync."""
        states = self.reader.states()
        return all(
            name in states and states[name].leader != -1 and set(states[name].isr) == set(replicas)
            for name, replicas in self.reader.assignments().items()
        )

    def balanced(self) -> bool:
        """Return whether so many partitions are led by their first replicas that no controller moves a leader."""
        states = self.reader.states()
        elsewhere: dict[int, list[bool]] = {}
        for name, replicas in self.reader.assignments().items():
            is_elsewhere = name not in states or states[name].leader != replicas[0]
            elsewhere.setdefault(replicas[0], []).append(is_elsewhere)
        return all(sum(each) <= IMBALANCE_MAX * len(each) for each in elsewhere.values())

    def ruled(self) -> bool:
        """Return whether kactl is the controller, has all brokers registered, and has all responses from them."""
        try:
            seen = self.kactl.get("/v1/cluster")["brokers"]
            waiting = sum(broker["queue_size"] for broker in self.kactl.get("/v1/brokers")["items"])
        except HTTPError:
            return False  # not the controller, or still taking over
        return seen == len(BROKERS) and waiting == 0 and self.reader.holder()[0] == self.kactl.node_id

    def is_announced(self, topic: str, partitions: int) -> bool:
        """Return whether every broker has metadata with a leader for each partition of the topic."""
        expected = {f"{topic}-{number}" for number in range(partitions)}
        for broker in self.cluster.brokers:
            with MetadataClient(broker.client_port if self.is_secure else broker.internal_port) as client:
                metadata = client.look()
            named = {name for name in metadata.leaders if name.rpartition("-")[0] == topic}
            if named - set(metadata.offline) != expected:
                return False
        return True

    # -- actions and waits ---------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Wait until all replicas are in sync and kactl is the controller of all brokers."""
        until(lambda: self.reader.registered() == set(BROKERS), "all brokers", SESSION_S + MARGIN_S)
        until(self.ruled, "kactl as controller of all brokers", MARGIN_S)
        until(self.whole, "a leader and all replicas in sync for each partition", MARGIN_S)

    def create(self, topic: str, *arguments: str, partitions: int = 1) -> None:
        """Create a topic by kafka-topics, and wait until every broker has its metadata. The tool does not wait for
        that."""
        created = self.tools.topics("--create", "--topic", topic, *arguments)
        assert created.well().lines == [f"Created topic {topic}."]
        until(lambda: self.is_announced(topic, partitions), f"all brokers to know {topic}", MARGIN_S)

    def delete(self, topic: str) -> None:
        """Delete a topic by kafka-topics, and wait until it is gone."""
        self.tools.topics("--delete", "--topic", topic).well()
        until(lambda: self.reader.data(f"/brokers/topics/{topic}") is None, f"the end of {topic}", MARGIN_S)

    def reinstate(self) -> None:
        """Make kactl the controller if another instance or a broker became it first."""
        until(lambda: self.reader.holder()[0] is not None, "a controller", SESSION_S + MARGIN_S)
        if self.reader.holder()[0] != self.kactl.node_id or not self.kactl.active:
            self.kactl.stop()
            self.kactl.start()

    # -- history -------------------------------------------------------------------------------------------------------

    def journal(self) -> list[Written]:
        """Return all writes to this cluster, with paths without the chroot."""
        return [
            write._replace(path=write.path.removeprefix(CHROOT))
            for write in read(self.zookeeper.folder / "data")
            if write.path.startswith(f"{CHROOT}/") or write.kind is Kind.END_SESSION
        ]

    def sessions_of_brokers(self) -> dict[int, int]:
        """Return the broker of each session, over all runs of all brokers."""
        return {write.session: int(write.path.rpartition("/")[2]) for write in self.journal() if is_registration(write)}


def until(reached: Callable[[], bool], expected: str, timeout_s: float) -> float:
    """Wait for a condition. Returns the seconds that it took.

    Raises:
        HarnessError: the condition was not reached in time.
    """
    began = time.monotonic()
    while not reached():
        if time.monotonic() - began > timeout_s:
            raise HarnessError(f"not within {timeout_s:g} s: {expected}")
        time.sleep(POLL_S)
    return time.monotonic() - began


def topic_of(path: str) -> str | None:
    """Return the topic of a topic node's path; None for any other path."""
    parts = path.split("/")
    return parts[3] if parts[1:3] == ["brokers", "topics"] and len(parts) == 4 else None


def partition_of(path: str) -> str | None:
    """Return the partition of a state node's path; None for any other path."""
    parts = path.split("/")
    return f"{parts[3]}-{parts[5]}" if parts[1:3] == ["brokers", "topics"] and parts[6:] == ["state"] else None


def is_registration(written: Written) -> bool:
    """Return whether a broker registers by this write; the entry of kactl is none."""
    is_entry = b'"kactl"' in (written.data or b"")
    return written.kind is Kind.CREATE and written.path.startswith("/brokers/ids/") and not is_entry


def as_json(written: Written) -> Any:
    """Return the written data as JSON."""
    assert written.data is not None, written.path
    return json.loads(written.data)


OVERRIDES: Final = {
    # Deleted folders are renamed at once and removed later, by default after a minute.
    "log.segment.delete.delay.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    # A new replica takes a second or two to copy megabytes; by then brokers apply the throttle that a tool has just
    # set.
    "replica.fetch.max.bytes": "16384",
}
