"""One cluster that everything is tried on: ZooKeeper behind a wire, kactl, three brokers, tools, and eyes to see it."""

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
from ..eyes import Eyes
from ..journal import Kind, Written, read
from ..kactl_process import KactlController
from ..metadata import MetadataClient
from ..tools import Tools

KACTL: Final = 900_001
OTHER: Final = 900_002
BROKERS: Final = (1, 2, 3)
CHROOT: Final = "/acceptance"
SESSION_S: Final = 6.0
# The longest session that a server with this tick allows is 6 s; and a session ends within a tick after its time.
TICK_MS: Final = 300
# What the controller may take once a session has ended.
FAILOVER_S: Final = 1.0
# What everybody may take where nothing is measured, on a machine that is busy with something else, too.
MARGIN_S: Final = 60.0
BALANCE_S: Final = 5.0
# So many partitions that a single one that others lead is no imbalance.
BALLAST: Final = "ballast"
BALLAST_PARTITIONS: Final = 36


class Bench:
    """Everything runs within its `with` block: kactl first, on an empty ZooKeeper, then the brokers."""

    def __init__(self, folder: Path, level: str) -> None:
        self.level = level
        self.folder = folder
        self.zookeeper = ZooKeeperServer(folder / "zookeeper", tick_ms=TICK_MS)
        self.link = Link(self.zookeeper.port)
        wired = f"127.0.0.1:{self.link.port}{CHROOT}"
        self.eyes = Eyes(self.zookeeper.connect(), CHROOT)
        self.cluster = Cluster(
            folder,
            zookeeper=wired,
            ibp=level,
            session_timeout_ms=int(SESSION_S * 1000),
            overrides=OVERRIDES,
        )
        self.kactl, self.other = (
            KactlController(
                node_id,
                folder=folder / f"kactl-{node_id}",
                zookeeper=wired,
                ibp=level,
                takeover=node_id == KACTL,
                others=[each for each in (KACTL, OTHER) if each != node_id],
                balance_s=BALANCE_S,
            )
            for node_id in (KACTL, OTHER)
        )
        self.tools = Tools(
            folder, bootstrap=",".join(f"127.0.0.1:{broker.internal_port}" for broker in self.cluster.brokers)
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            stack.enter_context(self.zookeeper)
            stack.enter_context(self.link)
            stack.enter_context(self.eyes)
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

    # -- what is so now ------------------------------------------------------------------------------------------------

    def led(self, *, without: Iterable[int] = ()) -> bool:
        """Whether every partition that is assigned has a leader, and none is led by those."""
        states = self.eyes.states()
        nobody = {-1, *without}
        return states.keys() == self.eyes.assignments().keys() and all(
            state.leader not in nobody for state in states.values()
        )

    def shrunk(self, *, without: int) -> bool:
        """Whether a broker is in no ISR."""
        return all(without not in state.isr for state in self.eyes.states().values())

    def whole(self) -> bool:
        """Whether every partition has a leader, and all its replicas in sync."""
        states = self.eyes.states()
        return all(
            name in states and states[name].leader != -1 and set(states[name].isr) == set(replicas)
            for name, replicas in self.eyes.assignments().items()
        )

    def preferred(self) -> bool:
        """Whether every partition is led by the first of its replicas."""
        states = self.eyes.states()
        return all(
            name in states and states[name].leader == replicas[0] for name, replicas in self.eyes.assignments().items()
        )

    def ruled(self) -> bool:
        """Whether kactl is the controller, knows all brokers, and all of them have answered everything."""
        try:
            seen = self.kactl.get("/v1/cluster")["brokers"]
            waiting = sum(each["queue_size"] for each in self.kactl.get("/v1/brokers")["items"])
        except HTTPError:
            return False  # it is not the controller, or takes over
        return seen == len(BROKERS) and waiting == 0 and self.eyes.holder()[0] == self.kactl.node_id

    def told(self, topic: str, partitions: int) -> bool:
        """Whether every broker has been told who leads each of so many partitions."""
        wanted = {f"{topic}-{number}" for number in range(partitions)}
        for broker in self.cluster.brokers:
            with MetadataClient(broker.internal_port) as client:
                told = client.look()
            if {name for name in told.leaders if name.rpartition("-")[0] == topic} - set(told.offline) != wanted:
                return False
        return True

    # -- what there is to wait for -------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Wait until the cluster is whole, and rules and is ruled as it should."""
        until(lambda: self.eyes.registered() == set(BROKERS), "all brokers", SESSION_S + MARGIN_S)
        until(self.ruled, "kactl as controller of all brokers", MARGIN_S)
        until(self.whole, "a leader and all replicas in sync for each partition", MARGIN_S)

    def create(self, topic: str, *arguments: str, partitions: int = 1) -> None:
        """Create a topic by kafka-topics, and wait until every broker knows it, which the tool does not."""
        created = self.tools.topics("--create", "--topic", topic, *arguments)
        assert created.well().lines == [f"Created topic {topic}."]
        until(lambda: self.told(topic, partitions), f"all brokers to know {topic}", MARGIN_S)

    def delete(self, topic: str) -> None:
        """Delete a topic by kafka-topics, and wait for its end."""
        self.tools.topics("--delete", "--topic", topic).well()
        until(lambda: self.eyes.data(f"/brokers/topics/{topic}") is None, f"the end of {topic}", MARGIN_S)

    def reinstate(self) -> None:
        """See that kactl is the controller, where somebody else was faster to be."""
        until(lambda: self.eyes.holder()[0] is not None, "a controller", SESSION_S + MARGIN_S)
        if self.eyes.holder()[0] != self.kactl.node_id or not self.kactl.active:
            self.kactl.stop()
            self.kactl.start()

    # -- what was so ---------------------------------------------------------------------------------------------------

    def journal(self) -> list[Written]:
        """Everything that was written in this cluster; paths without the chroot."""
        return [
            each._replace(path=each.path.removeprefix(CHROOT))
            for each in read(self.zookeeper.folder / "data")
            if each.path.startswith(f"{CHROOT}/") or each.kind is Kind.END_SESSION
        ]

    def sessions_of_brokers(self) -> dict[int, int]:
        """Which broker a session was; over all lives of all brokers."""
        return {
            each.session: int(each.path.rpartition("/")[2])
            for each in self.journal()
            if each.kind is Kind.CREATE and each.path.startswith("/brokers/ids/")
        }


def until(reached: Callable[[], bool], what: str, timeout_s: float) -> float:
    """Wait for something that real processes bring about; the seconds that it took.

    Raises:
        HarnessError: it was not so in time.
    """
    began = time.monotonic()
    while not reached():
        if time.monotonic() - began > timeout_s:
            raise HarnessError(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)
    return time.monotonic() - began


def topic_of(path: str) -> str | None:
    """The topic whose node this is the path of; None for any other path."""
    parts = path.split("/")
    return parts[3] if parts[1:3] == ["brokers", "topics"] and len(parts) == 4 else None


def partition_of(path: str) -> str | None:
    """The partition whose state node this is the path of; None for any other path."""
    parts = path.split("/")
    return f"{parts[3]}-{parts[5]}" if parts[1:3] == ["brokers", "topics"] and parts[6:] == ["state"] else None


def as_json(written: Written) -> Any:
    """What was written, read."""
    assert written.data is not None, written.path
    return json.loads(written.data)


OVERRIDES: Final = {
    # Deleted folders are renamed at once and removed later; by default a minute later.
    "log.segment.delete.delay.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    # A replica that is made anew takes a second or two to catch up with megabytes, by which time brokers have heard of
    # the throttle that a tool has set a moment before.
    "replica.fetch.max.bytes": "16384",
}
