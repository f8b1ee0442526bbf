"""Test cluster of brokers of earlier versions, at their own protocol level, with the tools of their version."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.jars import class_path, class_path_of

from ..acceptance.bench import KACTL, MARGIN_S, OTHER, Bench, until
from ..brokers import Cluster, KafkaBroker
from ..kactl_process import KactlController
from ..metadata import MetadataClient
from ..tools import Ran, Tools

LATEST: Final = "3.9.1"
VERSIONS: Final = ("2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.4.1", "3.6.2", "3.7.2", "3.8.1", LATEST)
CREATE_S: Final = 60.0
_MOVED: Final = {
    "topics": ("kafka.admin.TopicCommand", "org.apache.kafka.tools.TopicCommand"),
    "elect": ("kafka.admin.LeaderElectionCommand", "org.apache.kafka.tools.LeaderElectionCommand"),
    "reassign": (
        "kafka.admin.ReassignPartitionsCommand",
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    ),
}


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def level_of(version: str) -> str:
    return ".".join(version.split(".")[:2])


def jars_of(version: str) -> str:
    return class_path() if version == LATEST else class_path_of(version)


class OldBench(Bench):
    """Brokers 1 to 3 of the given versions, and two instances of kactl that keep the controllership from them."""

    def __init__(self, folder: Path, level: str, versions: Sequence[str]) -> None:
        self.versions = dict(enumerate(versions, start=1))
        super().__init__(folder, level)

    def _brokers(self) -> Cluster:
        cluster = super()._brokers()
        for broker in cluster.brokers:
            broker.jars = jars_of(self.versions[broker.id])
        return cluster

    def _instance(self, node_id: int) -> KactlController:
        instance = super()._instance(node_id)
        instance.configure(takeover=node_id == KACTL, sticky=True)
        return instance

    def _tools(self, bootstrap: str) -> Tools:
        return Tools(self.folder, bootstrap=bootstrap, jars=jars_of(self.versions[1]))

    @property
    def active(self) -> KactlController:
        return self.kactl if self.kactl.active else self.other

    @property
    def internal(self) -> str:
        return ",".join(f"127.0.0.1:{broker.internal_port}" for broker in self.cluster.brokers if broker.runs)

    def tool(self, name: str, *arguments: str) -> Ran:
        """Run a command-line tool of the version of broker 1."""
        main = _MOVED[name][number(self.versions[1]) >= (3, 7)]
        ran = self.tools.run(main, "--bootstrap-server", self.internal, *arguments)
        assert "xception" not in ran.text, ran.text
        return ran

    def client(self) -> AdminClient:
        """Return a new client: one that was there before does not look for another controller."""
        return AdminClient({"bootstrap.servers": self.internal})

    def create_topic(self, topic: str, partitions: int, *, replicas: int = 3) -> None:
        client = self.client()
        client.create_topics([NewTopic(topic, partitions, replicas)], operation_timeout=CREATE_S)[topic].result(
            CREATE_S
        )
        self.settle()

    def add_partitions(self, topic: str, total: int) -> None:
        client = self.client()
        client.create_partitions([NewPartitions(topic, total)], operation_timeout=CREATE_S)[topic].result(CREATE_S)
        self.settle()

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until its node and all folders are gone."""
        client = self.client()
        client.delete_topics([topic], operation_timeout=CREATE_S)[topic].result(CREATE_S)
        until(lambda: not self._left_of(topic), f"the end of {topic}", MARGIN_S)

    def _left_of(self, topic: str) -> bool:
        folders = [folder for broker in self.cluster.brokers for folder in (broker.folder / "logs").glob(f"{topic}-*")]
        return bool(folders) or topic in self.reader.children("/brokers/topics")

    def plan(self, topic: str, *replicas: Sequence[int]) -> str:
        """Write a plan for the partitions 0 to n - 1. Returns its path."""
        path = self.folder / "plan.json"
        partitions = [{"topic": topic, "partition": index, "replicas": list(ids)} for index, ids in enumerate(replicas)]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(path)

    # -- waits ---------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until all replicas are in sync, and all brokers know all leaders."""
        until(self.whole, "a leader and all replicas in sync for each partition", MARGIN_S)
        until(self.agree, "all brokers to know all leaders", MARGIN_S)

    def agree(self) -> bool:
        """Return whether the metadata of each running broker have the leaders that are stored."""
        stored = {name: state.leader for name, state in self.reader.states().items()}
        for broker in self.cluster.brokers:
            if broker.runs:
                with MetadataClient(broker.internal_port) as client:
                    if client.look().leaders != stored:
                        return False
        return True

    def fail(self, broker: KafkaBroker) -> None:
        """Kill a broker, and wait until its partitions have leaders."""
        broker.kill()
        until(lambda: broker.id not in self.reader.registered(), "the end of its session", MARGIN_S)
        until(lambda: self.led(without=[broker.id]) and self.shrunk(without=broker.id), "new leaders", MARGIN_S)
        until(self.agree, "all brokers to know all leaders", MARGIN_S)

    def stop(self, broker: KafkaBroker) -> None:
        """Stop a broker by SIGTERM: it leads nothing when it ends."""
        broker.stop()
        succeeded = ("Controlled shutdown request returned successfully", "Controlled shutdown succeeded")
        assert any(line in broker.log for line in succeeded), broker.log[-2000:]
        until(lambda: self.led(without=[broker.id]), "new leaders", MARGIN_S)

    def change_instance(self) -> None:
        """Kill the active instance, wait until the other one is the controller, and start it again."""
        before, after = (self.kactl, self.other) if self.kactl.active else (self.other, self.kactl)
        before.kill()
        until(lambda: after.active, "the other instance to act", MARGIN_S)
        before.configure(takeover=False, sticky=True)
        before.start(active=False)
        self.settle()

    def start_other(self) -> None:
        """Start the second instance, and keep the first one from taking over at its next start."""
        self.other.start(active=False)
        self.kactl.configure(takeover=False, sticky=True)


__all__ = ["KACTL", "LATEST", "MARGIN_S", "OTHER", "VERSIONS", "OldBench", "level_of", "until"]
