"""Three combined KRaft nodes, and two deaths: a leader, and the active controller.

Source: the properties of KRaft's combined mode, and the tool that formats its folder.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.jars import java_command
from tests.support.processes import HarnessError, Process, free_port

from ..acceptance.bench import until
from ..brokers import HEAP_MB, SETTINGS, START_S
from ..metadata import MetadataClient
from ..tools import Tools
from . import logging
from .bench import MARGIN_S, Notes
from .facts import Facts

NODES: Final = (1, 2, 3)
# Any 16 bytes in base64 are a valid cluster id.
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
STORAGE_TOOL: Final = "kafka.tools.StorageTool"
DUMP_TOOL: Final = "kafka.tools.DumpLogSegments"
SESSION_MS: Final = 4000
_ACTIVE: Final = re.compile(r"\[QuorumController id=(\d+)\] Becoming the active controller at epoch (\d+)")
_NOT_WITHOUT_ZOOKEEPER: Final = {"controlled.shutdown.retry.backoff.ms"}


class KRaftNode:
    """One node. It keeps its ports and its folder across restarts."""

    def __init__(
        self,
        node_id: int,
        *,
        folder: Path,
        java_options: list[str],
        jars: str | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the node; nothing runs before `launch`.

        Args:
            jars: as in `java_command`.
            overrides: settings that override those of the story.
        """
        self.id = node_id
        self.folder = folder
        self.java_options = java_options
        self._jars = jars
        self._overrides = dict(overrides or {})
        self.client_port = free_port()
        self.internal_port = free_port()
        self.controller_port = free_port()
        self.process: Process | None = None

    @property
    def config(self) -> Path:
        return self.folder / "server.properties"

    def configure(self, voters: str) -> None:
        """Write its configuration; `voters` are all nodes with their controllers' ports."""
        self.folder.mkdir(parents=True, exist_ok=True)
        brokers = f"INTERNAL://127.0.0.1:{self.internal_port},CLIENT://127.0.0.1:{self.client_port}"
        settings = {
            **{name: value for name, value in SETTINGS.items() if name not in _NOT_WITHOUT_ZOOKEEPER},
            "process.roles": "broker,controller",
            "node.id": str(self.id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": brokers,
            "advertised.listeners": brokers,
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "logs"),
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": "500",
            "auto.leader.rebalance.enable": "false",
            **self._overrides,
        }
        if "controller" in settings["process.roles"]:
            settings["listeners"] += f",CONTROLLER://127.0.0.1:{self.controller_port}"
        self.config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def launch(self) -> None:
        """Start the process, and return at once."""
        self.process = Process(
            java_command(
                "kafka.Kafka", [str(self.config)], heap_mb=HEAP_MB, options=self.java_options, jars=self._jars
            ),
            output=self.folder / "server.log",
        )

    def wait_started(self) -> None:
        """Wait until it serves. Raises HarnessError if it does not."""
        assert self.process is not None
        try:
            self.process.wait_for_line(rf"\[KafkaRaftServer nodeId={self.id}\] Kafka Server started", START_S)
        except HarnessError:
            self.process.kill()
            raise

    def start(self) -> None:
        self.launch()
        self.wait_started()

    def kill(self) -> None:
        """Send SIGKILL. Harmless when it does not run."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """Send SIGSTOP."""
        assert self.process is not None
        self.process.pause()

    def resume(self) -> None:
        """Send SIGCONT."""
        assert self.process is not None
        self.process.resume()


def run(folder: Path) -> Facts:
    """Run the story once. Writes logs to `folder/logs`, and the metadata log to `folder/metadata.txt`."""
    logs = folder / "logs"
    nodes = {
        node_id: KRaftNode(
            node_id, folder=folder / f"node-{node_id}", java_options=logging.java_options(logs / f"node-{node_id}")
        )
        for node_id in NODES
    }
    with ExitStack() as stack:
        tools = started(stack, nodes, folder, voters=NODES)
        notes = stack.enter_context(Notes(nodes, tools))
        facts = _tell(nodes, notes, tools, logs)
        dumped = tools.run(DUMP_TOOL, "--cluster-metadata-decoder", "--files", str(_metadata_log(nodes[1]))).well()
        (folder / "metadata.txt").write_text(dumped.out)
        return facts


def started(
    stack: ExitStack, nodes: Mapping[int, KRaftNode], folder: Path, *, voters: Iterable[int], jars: str | None = None
) -> Tools:
    """Start nodes together, with new folders, and their tools; `stack` ends them."""
    quorum = ",".join(f"{node}@127.0.0.1:{nodes[node].controller_port}" for node in voters)
    bootstrap = ",".join(f"127.0.0.1:{node.client_port}" for node in nodes.values())
    tools = stack.enter_context(Tools(folder, bootstrap=bootstrap, jars=jars))
    for node in nodes.values():
        node.configure(quorum)
        tools.run(STORAGE_TOOL, "format", "--cluster-id", CLUSTER_ID, "--config", str(node.config)).well()
        stack.callback(node.kill)
    for node in nodes.values():
        node.launch()
    for node in nodes.values():
        node.wait_started()
    until(lambda: _serves(nodes), "all nodes to know each other", MARGIN_S)
    return tools


def _tell(nodes: dict[int, KRaftNode], notes: Notes, tools: Tools, logs: Path) -> Facts:
    notes.create("orders", "1:2:3,2:3:1,3:1:2")
    controller = active(logs)
    leader = next(node for node in nodes if node != controller)

    for victim in (leader, controller):
        notes.kill(victim)
        notes.flowing()
        nodes[victim].start()
        until(lambda: whole(tools), "all replicas in sync", MARGIN_S)
        notes.plan("preferred", lambda: tools.elect("--election-type", "PREFERRED", "--all-topic-partitions").well())

    notes.finish()
    return notes.facts(logs, "UTC", unclean={}, committed={})


def active(logs: Path) -> int:
    """Return the active controller, by the highest epoch in any log."""
    elections = [
        (int(epoch), int(node))
        for log in logs.glob("*/controller.log*")  # renamed every hour
        for node, epoch in _ACTIVE.findall(log.read_text())
    ]
    return max(elections)[1]


def _serves(nodes: Mapping[int, KRaftNode]) -> bool:
    for node in nodes.values():
        with MetadataClient(node.client_port) as client:
            if client.look().brokers.keys() != nodes.keys():
                return False
    return True


def whole(tools: Tools) -> bool:
    """Return whether every partition has all its replicas in sync."""
    return not tools.topics("--describe", "--under-replicated-partitions").well().out.strip()


def _metadata_log(node: KRaftNode) -> Path:
    return node.folder / "logs" / "__cluster_metadata-0" / "00000000000000000000.log"
