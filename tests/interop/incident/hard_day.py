"""Three faults of real brokers that are harder to reconstruct from logs than the death of one leader.

1. A broker is paused for longer than its session. Others take over the partitions of which they have replicas; `single`
   has no other replica, and the paused broker leads it again from the moment it is resumed.
2. A leader and the controller are killed together, so that the next controller detects the other failure.
3. Both replicas of `pair` are killed, one after the other, and the last of them returns later.

The same story runs with Kafka 3.9 and ZooKeeper and with Kafka 4 without it. Session timeouts are the defaults, as far
as the test's time allows: the detection time of a failure is the main fact to read from the logs.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from tests.support.zookeeper_server import ZooKeeperServer

from ..acceptance.bench import until
from ..brokers import Cluster
from ..tools import Tools
from ..zookeeper_reader import ZooKeeperReader
from . import kraft_story, logging
from .bench import MARGIN_S, Notes
from .facts import Facts
from .kraft_story import KRaftNode

# 10 s is the longest session that a ZooKeeper with ticks of half a second allows. 9 s is KRaft's default.
SESSION_S: Final = 9.0
# Length of a pause and of the time without replicas after all other partitions have recovered.
HOLD_S: Final = 10.0
CHROOT: Final = "/hard-day"
OVERRIDES: Final = {"auto.leader.rebalance.enable": "false", "replica.lag.time.max.ms": "10000"}
# The fourth node is a broker only: it can die with the active controller, and two of three voters are left.
NODES_4: Final = (1, 2, 3, 4)
VOTERS_4: Final = (1, 2, 3)


class _Stage(Protocol):
    """A cluster as the story uses it."""

    notes: Notes
    tools: Tools

    def controller(self) -> int: ...
    def others(self, controller: int) -> tuple[int, int]:
        """Two brokers that can be lost while the controller lives; the second can be lost together with it."""

    def whole(self) -> None:
        """Wait until every partition has a leader and all its replicas are in sync."""


def with_zookeeper(folder: Path, *, state_change: str, zone: str) -> Facts:
    """Run the story with Kafka 3.9; the logs are written to `folder/logs`. For the other arguments see
    `logging.java_options`."""
    logs = folder / "logs"
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(folder / "zookeeper"))
        cluster = Cluster(
            folder,
            zookeeper=zookeeper.connect(CHROOT),
            ibp="3.9",
            session_timeout_ms=round(SESSION_S * 1000),
            overrides=OVERRIDES,
        )
        for broker in cluster.brokers:
            broker.java_options = logging.java_options(
                logs / f"broker-{broker.id}", state_change=state_change, zone=zone
            )
        tools = stack.enter_context(Tools(folder, bootstrap=cluster.bootstrap))
        stack.enter_context(cluster)
        reader = stack.enter_context(ZooKeeperReader(zookeeper.connect(), CHROOT))
        notes = stack.enter_context(Notes({broker.id: broker for broker in cluster.brokers}, tools))
        _tell(_WithZooKeeper(notes, tools, reader), "1:2:3,2:3:1,3:1:2")
        return notes.facts(logs, zone, unclean={}, committed={})


def without_zookeeper(folder: Path, *, jars: str, state_change: str, zone: str) -> Facts:
    """Run the story with Kafka 4, whose class path is `jars`. For the other arguments see `with_zookeeper`."""
    logs = folder / "logs"
    nodes = {
        node_id: KRaftNode(
            node_id,
            folder=folder / f"node-{node_id}",
            java_options=logging.java_options_4(logs / f"node-{node_id}", state_change=state_change, zone=zone),
            jars=jars,
            overrides=OVERRIDES
            | {"broker.session.timeout.ms": str(round(SESSION_S * 1000)), "broker.heartbeat.interval.ms": "2000"}
            | ({} if node_id in VOTERS_4 else {"process.roles": "broker"}),
        )
        for node_id in NODES_4
    }
    with ExitStack() as stack:
        tools = kraft_story.started(stack, nodes, folder, voters=VOTERS_4, jars=jars)
        notes = stack.enter_context(Notes(nodes, tools))
        _tell(_WithoutZooKeeper(notes, tools, logs), "1:2:3,2:3:4,3:4:1,4:1:2")
        return notes.facts(logs, zone, unclean={}, committed={})


def _tell(stage: _Stage, assignment: str) -> None:
    notes = stage.notes
    paused, _ = stage.others(stage.controller())
    notes.create("orders", assignment)
    notes.create("single", str(paused))
    orders = [partition for partition in notes.partitions if partition.startswith("orders")]

    # 1. The paused broker.
    notes.paused(paused, lambda: _hold(notes, orders))
    stage.whole()
    _preferred(stage)

    # 2. The leader and the controller.
    controller = stage.controller()
    _, leader = stage.others(controller)
    notes.kill_together(leader, controller)
    notes.flowing(orders)
    for broker in (leader, controller):
        notes.brokers[broker].start()
    stage.whole()
    _preferred(stage)

    # 3. All replicas.
    first, last = stage.others(stage.controller())
    notes.create("pair", f"{first}:{last}")
    stage.whole()
    notes.kill(first)
    notes.flowing(["pair-0"])
    notes.kill(last)
    _hold(notes, [])
    notes.brokers[last].start()
    notes.flowing(["pair-0"])
    notes.brokers[first].start()
    stage.whole()
    notes.finish()


def _hold(notes: Notes, partitions: list[str]) -> None:
    """Wait until the partitions work, and HOLD_S more, but at least two session timeouts in total."""
    since = time.time()
    notes.flowing(partitions)
    _pass_by(max(time.time() + HOLD_S, since + 2 * SESSION_S))


def _pass_by(time_s: float) -> None:
    until(lambda: time.time() >= time_s, "time to pass", MARGIN_S)


def _preferred(stage: _Stage) -> None:
    def elect() -> object:
        return stage.tools.elect("--election-type", "PREFERRED", "--all-topic-partitions").well()

    stage.notes.plan("preferred", elect)


class _WithZooKeeper:
    def __init__(self, notes: Notes, tools: Tools, reader: ZooKeeperReader) -> None:
        self.notes = notes
        self.tools = tools
        self._reader = reader

    def controller(self) -> int:
        return _found(lambda: self._reader.holder()[0])

    def others(self, controller: int) -> tuple[int, int]:
        first, second = sorted(set(self.notes.brokers) - {controller})
        return first, second

    def whole(self) -> None:
        until(self._is_whole, "all replicas in sync", MARGIN_S)
        self.notes.flowing()

    def _is_whole(self) -> bool:
        states = self._reader.states()
        return all(
            name in states and states[name].leader != -1 and set(states[name].isr) == set(replicas)
            for name, replicas in self._reader.assignments().items()
        )


class _WithoutZooKeeper:
    def __init__(self, notes: Notes, tools: Tools, logs: Path) -> None:
        self.notes = notes
        self.tools = tools
        self._logs = logs

    def controller(self) -> int:
        return kraft_story.active(self._logs)

    def others(self, controller: int) -> tuple[int, int]:
        first = min(set(VOTERS_4) - {controller})
        return first, max(NODES_4)

    def whole(self) -> None:
        until(lambda: kraft_story.whole(self.tools), "all replicas in sync", MARGIN_S)
        self.notes.flowing()


def _found(look: Callable[[], int | None]) -> int:
    epochs: list[int] = []

    def is_there() -> bool:
        holder = look()
        if holder is not None:
            epochs.append(holder)
        return holder is not None

    until(is_there, "a controller", MARGIN_S)
    return epochs[-1]
