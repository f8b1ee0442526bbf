"""Topics over real brokers: the answer, and what every broker knows, beside Kafka's own controller.

    python -m bench.answers [--runs 30] [--partitions 6] [--output FILE]

Two clusters of three brokers with one ZooKeeper: one has kactl as its controller, in the other a broker is the
controller. Topics are created in both by turns, so that both have the same machine.

* `answer`: from the request of CreateTopics until its response.
* `orders`: the longest LeaderAndIsr of a broker for the topic, by its own log: it creates the replicas.
* `complete`: from the request until each broker's metadata has a leader for each partition.
* `behind`: brokers that do not know the topic in a look right after the response.
* `grown/...`: the same of a CreatePartitions, which adds half as many partitions.
* `codec/written`, `codec/read`: processor time of a topic with one partition in a Metadata response, in microseconds.
* `answer/ratio`, `complete/ratio`, `grown/answer/ratio`: of kactl to Kafka, run by run.
"""

import argparse
import re
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from bench.figures import Found
from bench.run import main, module, say
from bench.tables import number, plain
from kactl.model import ZERO_ID
from kactl.transports.kafka.listener.discovery_apis import METADATA_API
from tests.interop.brokers import Cluster
from tests.interop.kactl_process import KactlController
from tests.interop.metadata import MetadataClient
from tests.support.processes import HarnessError
from tests.support.zookeeper_server import ZooKeeperServer

NAME: Final = "answers"
KACTL: Final = 900_001
LEVEL: Final = "3.9"
# Runs before those that count: caches of the brokers, connections of the clients.
WARM_UP: Final = 5
LIMIT_S: Final = 60.0
CODEC_TOPICS: Final = 2_000
FIGURES: Final = ("answer", "orders", "complete", "behind", "grown/answer", "grown/complete", "grown/behind")
RATIOS: Final = ("answer", "complete", "grown/answer")
_ORDERS: Final = re.compile(r"Finished LeaderAndIsr request in (\d+)ms")


class Side:
    """A cluster of three brokers, with a client that creates topics and one that looks at each broker."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._admin.list_topics(timeout=LIMIT_S)
        self._brokers = cluster.brokers
        self._looks = [stack.enter_context(MetadataClient(broker.client_port)) for broker in cluster.brokers]

    def create(self, topic: str, partitions: int) -> dict[str, float]:
        """Create a topic, and make it larger. Returns the figures of one run: ms, and the number of brokers behind.

        Raises:
            HarnessError: it is not known to each broker in time.
        """
        grown = partitions + partitions // 2
        created = self._timed(
            topic, partitions,
            lambda: self._admin.create_topics([NewTopic(topic, partitions, 3)], operation_timeout=LIMIT_S)[topic],
        )  # fmt: skip
        created["orders"] = max(int(_ORDERS.findall(broker.log)[-1]) for broker in self._brokers)
        larger = self._timed(
            topic, grown,
            lambda: self._admin.create_partitions([NewPartitions(topic, grown)], operation_timeout=LIMIT_S)[topic],
        )  # fmt: skip
        return created | {f"grown/{figure}": value for figure, value in larger.items()}

    def _timed(self, topic: str, partitions: int, request: Callable[[], "Future[None]"]) -> dict[str, float]:
        began = time.monotonic()
        request().result(LIMIT_S)
        answer = time.monotonic()
        behind = waiting = [look for look in self._looks if not _knows(look, topic, partitions)]
        while waiting:
            if time.monotonic() - began > LIMIT_S:
                raise HarnessError(f"{len(waiting)} brokers do not know topic {topic} after {LIMIT_S:g} s")
            waiting = [look for look in waiting if not _knows(look, topic, partitions)]
        complete = time.monotonic()
        return {"answer": (answer - began) * 1000, "complete": (complete - began) * 1000, "behind": len(behind)}


def _knows(look: MetadataClient, topic: str, partitions: int) -> bool:
    leaders = look.look().leaders
    return all(leaders.get(f"{topic}-{partition}", -1) >= 0 for partition in range(partitions))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=60, help="topics in each cluster")
    parser.add_argument("--full", action="store_true", help="the sizes of a published run, which are the default")
    parser.add_argument("--partitions", type=int, default=6, help="of each topic; three replicas")


def codec_us() -> dict[str, float]:
    """Returns the processor time of writing and of reading one topic of a Metadata response."""
    partition = {
        "error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 0,
        "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3], "offline_replicas": [],
    }  # fmt: skip
    topics = [
        {"error_code": 0, "name": f"topic-{number}", "topic_id": ZERO_ID, "partitions": [partition]}
        for number in range(CODEC_TOPICS)
    ]
    response, version = METADATA_API.response, METADATA_API.version_max
    began = time.process_time()
    content = response.write({"brokers": [], "topics": topics}, version)
    written = time.process_time()
    response.read(content, version)
    read = time.process_time()
    return {name: took / CODEC_TOPICS * 1e6 for name, took in (("written", written - began), ("read", read - written))}


async def measure(asked: argparse.Namespace, found: Found) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kactl-bench-")))
        zookeeper = stack.enter_context(ZooKeeperServer(folder / "zookeeper"))
        connects = {side: zookeeper.connect(f"/{side}") for side in ("kafka", "kactl")}
        kactl = KactlController(
            KACTL, folder=folder / "controller", zookeeper=connects["kactl"], ibp=LEVEL, takeover=True,
            visible_on=("INTERNAL", "CLIENT"),
        )  # fmt: skip
        stack.callback(kactl.kill)
        kactl.start()
        sides = {
            name: Side(stack.enter_context(Cluster(folder / name, zookeeper=connect, ibp=LEVEL)), stack)
            for name, connect in connects.items()
        }
        runs: dict[str, dict[str, float]] = {}
        for run in range(-WARM_UP, asked.runs):
            # Neither side is always the first.
            for name in sorted(sides, reverse=bool(run % 2)):
                runs[name] = sides[name].create(f"topic-{run + WARM_UP}", asked.partitions)
            codec = codec_us()
            if run < 0:
                continue
            for name, took in codec.items():
                found.add(f"codec/{name}", "us", took)
            for name, times in runs.items():
                for figure in FIGURES:
                    found.add(f"{name}/{figure}", "count" if figure.endswith("behind") else "ms", times[figure])
            for figure in RATIOS:
                found.add(f"{figure}/ratio", "ratio", runs["kactl"][figure] / runs["kafka"][figure])
    _report(asked, found)


def _report(asked: argparse.Namespace, found: Found) -> None:
    figures = found.figures()
    rows = []
    for name in ("kafka", "kactl"):
        spreads = [figures[f"{name}/{figure}"].spread for figure in FIGURES]
        rows.append([name, *(f"{number(each.median)} ({number(each.low)}-{number(each.high)})" for each in spreads)])
    say(f"\n{asked.partitions} partitions, 3 replicas, {asked.runs} topics by turns; ms, median and quartiles")
    say(plain(["", *FIGURES], rows))
    for figure in RATIOS:
        each = figures[f"{figure}/ratio"].spread
        say(f"{figure}: kactl takes {each.median:.2f} times Kafka's time ({each.low:.2f}-{each.high:.2f})")
    for name in ("written", "read"):
        spread = figures[f"codec/{name}"].spread
        say(f"Metadata, a topic {name}: {number(spread.median)} us ({number(spread.low)}-{number(spread.high)})")
    for name in ("kafka", "kactl"):
        for figure in ("behind", "grown/behind"):
            looks = figures[f"{name}/{figure}"].runs
            say(f"{name}, {figure}: {sum(looks):g} of {3 * len(looks)} looks")


if __name__ == "__main__":
    main(module(__name__))
