"""Three brokers with ZooKeeper, one of them the controller, and three deaths.

1. The controller, which also leads partitions, is killed; others take over.
2. A follower is paused; the leader accepts records without a copy, and is killed. The follower is resumed, is still in
   the ISR, and becomes leader. Writers with acks=1 have lost records.
3. The follower shuts down in a controlled way. The leader, alone in sync, accepts records of both writers, and is
   killed. The follower returns. `payments` allows it to lead although it is out of sync, and loses committed records;
   `audit` waits for the old leader, and loses nothing.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.zookeeper_server import ZooKeeperServer

from ..acceptance.bench import until
from ..brokers import Cluster
from ..tools import Tools
from ..zookeeper_reader import ZooKeeperReader
from . import disk, logging
from .bench import MARGIN_S, Notes
from .facts import Facts

BROKERS: Final = (1, 2, 3)
CHROOT: Final = "/incident"
# Session timeout: as short as a busy machine allows without unintended expiry.
SESSION_S: Final = 4.0
# Number of records of each writer, in each partition, that have no copy when a leader is killed.
ALONE: Final = 25
OVERRIDES: Final = {
    # Leaders move only as part of the story.
    "auto.leader.rebalance.enable": "false",
    # Interval of the high-watermark checkpoint; by default five seconds.
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "replica.lag.time.max.ms": "10000",
}


class _Stage:
    """The cluster and its brokers."""

    def __init__(self, cluster: Cluster, reader: ZooKeeperReader, tools: Tools, notes: Notes) -> None:
        self.cluster = cluster
        self.reader = reader
        self.tools = tools
        self.notes = notes

    def controller(self) -> int:
        until(lambda: self.reader.holder()[0] is not None, "a controller", MARGIN_S)
        controller_id = self.reader.holder()[0]
        assert controller_id is not None
        return controller_id

    def whole(self) -> None:
        """Wait until every partition has a leader and all its replicas are in sync."""
        until(self._is_whole, "all replicas in sync", MARGIN_S)
        self.notes.flowing()

    def written_alone(self, partitions: list[str]) -> None:
        """Wait until the first writer, with acks=1, has enough new records acknowledged in each partition."""
        acknowledged = self.notes.writers[0].acknowledged
        since = time.time()

        def enough() -> bool:
            taken = [record.partition for record in list(acknowledged.values()) if record.sent > since]
            return all(taken.count(partition) >= ALONE for partition in partitions)

        until(enough, f"records in {', '.join(partitions)}", MARGIN_S)

    def _is_whole(self) -> bool:
        states = self.reader.states()
        return all(
            name in states and states[name].leader != -1 and set(states[name].isr) == set(replicas)
            for name, replicas in self.reader.assignments().items()
        )


def run(folder: Path, *, state_change: str, zone: str) -> Facts:
    """Run the story once.

    Args:
        folder: for all output; the logs are written to `folder/logs`.
        state_change, zone: see `logging.java_options`.
    """
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
        return _tell(_Stage(cluster, reader, tools, notes), logs, zone)


def _tell(stage: _Stage, logs: Path, zone: str) -> Facts:
    notes, cluster = stage.notes, stage.cluster
    notes.create("orders", "1:2:3,2:3:1,3:1:2")

    # 1. The controller.
    follower = stage.controller()
    notes.kill(follower)
    notes.flowing()
    cluster[follower].start()
    stage.whole()

    # 2. From now on this broker leads nothing, so that it can be paused without effect.
    (leader,) = set(BROKERS) - {stage.controller(), follower}
    pair = f"{leader}:{follower}"
    notes.create("payments", f"{pair},{pair}", "--config", "unclean.leader.election.enable=true")
    notes.create("audit", pair)
    stage.whole()
    cluster[follower].pause()
    stage.written_alone(["payments-0", "payments-1", "audit-0"])
    notes.kill(leader)
    cluster[follower].resume()
    notes.flowing()
    cluster[leader].start()
    stage.whole()
    notes.plan("preferred", lambda: stage.tools.elect("--election-type", "PREFERRED", "--all-topic-partitions").well())

    # 3. The leader alone in sync.
    shared = ["payments-0", "payments-1", "audit-0"]
    notes.plan("controlled-shutdown", cluster[follower].stop)
    folders = {broker.id: broker.folder / "logs" for broker in cluster.brokers}
    ends = {name: disk.end(folders[follower], name).offset for name in shared}
    stage.written_alone(shared)
    until(
        lambda: all(disk.high_watermark(folders[leader], name) >= ends[name] + ALONE for name in shared),
        "the leader to note what is committed",
        MARGIN_S,
    )
    committed = {name: disk.high_watermark(folders[leader], name) - ends[name] for name in shared[:2]}
    notes.kill(leader)
    notes.flowing(partition for partition in notes.partitions if partition.startswith("orders"))
    cluster[follower].start()
    notes.flowing([*shared[:2], "orders-0"])
    cluster[leader].start()
    stage.whole()
    notes.finish()
    return notes.facts(logs, zone, unclean=dict.fromkeys(shared[:2], follower), committed=committed)
