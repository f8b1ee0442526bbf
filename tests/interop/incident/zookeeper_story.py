"""Three brokers with ZooKeeper, one of them the controller, and three deaths.

1. The controller is killed, which leads partitions, too; others take over.
2. A follower is held; the leader takes records that nobody copies, and is killed; the follower goes on, is in sync as
   far as anybody knows, and leads. Who wrote with acks=1 has lost records.
3. The follower is stopped in an orderly way. The leader, alone in sync, takes records of both writers, and is killed.
   The follower comes back. `payments` allows it to lead, although it was not in sync, and loses committed records;
   `audit` waits for the old leader, and loses nothing.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.zookeeper_server import ZooKeeperServer

from ..acceptance.bench import until
from ..brokers import Cluster
from ..eyes import Eyes
from ..tools import Tools
from . import disk, logging
from .bench import MARGIN_S, Notes
from .facts import Facts

BROKERS: Final = (1, 2, 3)
CHROOT: Final = "/incident"
# Between a death and its detection: as short as a busy machine allows without deaths of its own making.
SESSION_S: Final = 4.0
# So many records of each writer are in each partition, of which nobody else has a copy, before a leader is killed.
ALONE: Final = 25
OVERRIDES: Final = {
    # Leaders move when the story says so.
    "auto.leader.rebalance.enable": "false",
    # What a leader knows to be committed it notes for the time after its death; by default every five seconds.
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "replica.lag.time.max.ms": "10000",
}


class _Stage:
    """Who is on it."""

    def __init__(self, cluster: Cluster, eyes: Eyes, tools: Tools, notes: Notes) -> None:
        self.cluster = cluster
        self.eyes = eyes
        self.tools = tools
        self.notes = notes

    def controller(self) -> int:
        until(lambda: self.eyes.holder()[0] is not None, "a controller", MARGIN_S)
        found = self.eyes.holder()[0]
        assert found is not None
        return found

    def whole(self) -> None:
        """Wait until every partition is led with all its replicas in sync."""
        until(self._is_whole, "all replicas in sync", MARGIN_S)
        self.notes.flowing()

    def written_alone(self, partitions: list[str]) -> None:
        """Wait until the first writer, acks=1, has so many more records acknowledged in each partition."""
        acknowledged = self.notes.writers[0].acknowledged
        since = time.time()

        def enough() -> bool:
            taken = [each.partition for each in list(acknowledged.values()) if each.sent > since]
            return all(taken.count(each) >= ALONE for each in partitions)

        until(enough, f"records in {', '.join(partitions)}", MARGIN_S)

    def _is_whole(self) -> bool:
        states = self.eyes.states()
        return all(
            name in states and states[name].leader != -1 and set(states[name].isr) == set(replicas)
            for name, replicas in self.eyes.assignments().items()
        )


def run(folder: Path, *, state_change: str, zone: str) -> Facts:
    """Tell it once.

    Args:
        folder: for everything; the logs end up in `folder/logs`.
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
        eyes = stack.enter_context(Eyes(zookeeper.connect(), CHROOT))
        notes = stack.enter_context(Notes({each.id: each for each in cluster.brokers}, tools))
        return _tell(_Stage(cluster, eyes, tools, notes), logs, zone)


def _tell(stage: _Stage, logs: Path, zone: str) -> Facts:
    notes, cluster = stage.notes, stage.cluster
    notes.create("orders", "1:2:3,2:3:1,3:1:2")

    # 1. The controller.
    follower = stage.controller()
    notes.kill(follower)
    notes.flowing()
    cluster[follower].start()
    stage.whole()

    # 2. From now on this one leads nothing, so that it can be held without anybody missing it.
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
    notes.flowing(each for each in notes.partitions if each.startswith("orders"))
    cluster[follower].start()
    notes.flowing([*shared[:2], "orders-0"])
    cluster[leader].start()
    stage.whole()
    notes.finish()
    return notes.facts(logs, zone, unclean=dict.fromkeys(shared[:2], follower), committed=committed)
