"""One cluster for Kafka's own tools and kactl's compatible ones, and the comparison of their outputs."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from kactl.cli.root import kactl
from tests.support.zookeeper_server import ZooKeeperServer

from .brokers import Cluster
from .kactl_process import KactlController
from .metadata import MetadataClient
from .tools import LEADERS, REASSIGN, TOPICS, Ran, Tools

KACTL: Final = 900_001
SIDES: Final = ("kafkas", "kactls")
STANDS: Final = {TOPICS: "topics", LEADERS: "leader-election", REASSIGN: "reassign-partitions"}
# Time limit of every wait, also on a busy machine.
MARGIN_S: Final = 60.0


class Bench:
    """A cluster, Kafka's tools, and kactl's tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zookeeper = ZooKeeperServer(folder / "zookeeper", tick_ms=300)
        connect = self.zookeeper.connect("/compat")
        self.kactl = KactlController(KACTL, folder=folder / "kactl", zookeeper=connect, ibp="3.9", takeover=True)
        self.cluster = Cluster(folder, zookeeper=connect, ibp="3.9")
        self.tools = Tools(folder, bootstrap=",".join(f"127.0.0.1:{b.internal_port}" for b in self.cluster.brokers))

    def kafkas(self, tool: str, *arguments: str) -> Ran:
        """Return the output of Kafka's tool."""
        return self.tools.run(tool, "--bootstrap-server", self.tools.bootstrap, *arguments)

    def kactls(self, tool: str, *arguments: str) -> Ran:
        """Return the output of kactl's tool."""
        command = ["compat", STANDS[tool], "--bootstrap-server", f"127.0.0.1:{self.kactl.port}", *arguments]
        ended = CliRunner().invoke(kactl, command)
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exc_info
        return Ran(ended.exit_code, ended.output, ended.stdout)

    def same(self, tool: str, *arguments: str, seen: Callable[[str], Any] = str) -> Ran:
        """Run both tools, and check that their outputs are equal. `%` in arguments and outputs stands for the side.

        Args:
            seen: selects the compared part of an output.

        Returns:
            The output of Kafka's tool.
        """
        apart = any("%" in argument for argument in arguments)
        answers = []
        for name, ask in zip(SIDES, (self.kafkas, self.kactls), strict=True):
            ran = ask(tool, *(argument.replace("%", name) for argument in arguments))
            texts = (text.replace(name, "%") if apart else text for text in (ran.text, ran.out))
            answers.append(Ran(ran.code, *texts))
        theirs, ours = answers
        differs = f"kafka: {theirs.text}\nkactl: {ours.text}"
        assert (ours.code, seen(ours.out)) == (theirs.code, seen(theirs.out)), differs
        return theirs

    def create(self, topic: str, assignment: str, *options: str) -> None:
        """Create one topic for each side, and wait until all brokers have their metadata."""
        for name in SIDES:
            self.tools.topics(
                "--create", "--topic", topic.replace("%", name), "--replica-assignment", assignment, *options
            ).well()
        self.rest()

    def file(self, name: str, content: object) -> str:
        """Write a JSON file for each side, with `%` replaced. Returns the path that stands for both."""
        for side in SIDES:
            (self.folder / f"{side}-{name}.json").write_text(json.dumps(content).replace("%", side))
        return str(self.folder / f"%-{name}.json")

    def moves(self, name: str, **replicas: list[int]) -> str:
        """Write a file that moves partitions: `p0=[1, 2]` for partition 0 of this topic."""
        partitions = [
            {"topic": f"%-{name}", "partition": int(partition[1:]), "replicas": targets}
            for partition, targets in replicas.items()
        ]
        return self.file("".join([name, *replicas]), {"version": 1, "partitions": partitions})

    def rest(self) -> None:
        """Wait until every partition has a leader, all replicas are in sync, and every broker has the metadata."""
        self.kactl.until(lambda: all(map(_is_whole, self.kactl.partitions().values())), "all in sync", MARGIN_S)
        self.heard()

    def heard(self) -> None:
        """Wait until every broker returns the current leaders and has responded to all requests."""
        self.kactl.until(self._have_heard, "all brokers to know all leaders", MARGIN_S)

    def _have_heard(self) -> bool:
        leaders = {name: item["leader"] for name, item in self.kactl.partitions().items()}
        for broker in self.cluster.brokers:
            if broker.process is not None and broker.process.alive:
                with MetadataClient(broker.internal_port) as client:
                    if client.look().leaders != leaders:
                        return False
        return all(
            item["queue_size"] == 0 or item["state"] == "dead" for item in self.kactl.get("/v1/brokers")["items"]
        )


def _is_whole(partition: dict[str, Any]) -> bool:
    return partition["leader"] >= 0 and {*partition["isr"]} == {*partition["replicas"]} and not partition["adding"]


# -- compared parts of an output ---------------------------------------------------------------------------------------


def lines(out: str) -> list[str]:
    """Return the lines, and the partitions within a line, in any order."""
    return sorted(re.sub(r"(?<=for partitions ).*", lambda names: ", ".join(sorted(names[0].split(", "))), line)
                  for line in out.splitlines())  # fmt: skip


def any_overrides(out: str) -> str:
    """Return the lines in any order, with the overrides of a topic sorted."""
    return re.sub(r"(?<=Configs: ).*", lambda match: ",".join(sorted(match[0].split(","))), out)


def until_error(out: str) -> str:
    """Return everything up to the error line."""
    return re.sub(r"(?sm)(^Error: [^\n]*\n).*", r"\1", out)


def form(out: str) -> object:
    """Return the lines of a plan, the current assignment, and the partitions that the proposal names."""
    output = out.splitlines()
    proposal = json.loads(output.pop())
    named = [
        (move["topic"], move["partition"], move.keys(), len(move["replicas"]), move["log_dirs"])
        for move in proposal.pop("partitions")
    ]
    return output, proposal, named


def current(out: str) -> list[str]:
    """Return a plan without its proposal: Kafka's tool counts replicas being added as available."""
    return out.splitlines()[:-1]


def refused(bench: Bench, tool: str, *arguments: str) -> str:
    """Return the error of a command line, before the usage."""
    theirs, ours = bench.kafkas(tool, *arguments), bench.kactls(tool, *arguments)
    assert (theirs.code, theirs.out, ours.code, ours.out) == (1, "", 1, "")
    assert theirs.lines[0] == ours.lines[0]
    return ours.lines[0]
