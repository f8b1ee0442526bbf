"""One cluster that Kafka's own tools and their stand-ins are asked about, and what of their answers is compared."""

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
# What everybody may take, on a machine that is busy with something else, too.
MARGIN_S: Final = 60.0


class Bench:
    """A cluster, Kafka's tools, and ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zookeeper = ZooKeeperServer(folder / "zookeeper", tick_ms=300)
        connect = self.zookeeper.connect("/compat")
        self.kactl = KactlController(KACTL, folder=folder / "kactl", zookeeper=connect, ibp="3.9", takeover=True)
        self.cluster = Cluster(folder, zookeeper=connect, ibp="3.9")
        self.tools = Tools(folder, bootstrap=",".join(f"127.0.0.1:{b.internal_port}" for b in self.cluster.brokers))

    def kafkas(self, tool: str, *arguments: str) -> Ran:
        """What Kafka's tool answers."""
        return self.tools.run(tool, "--bootstrap-server", self.tools.bootstrap, *arguments)

    def kactls(self, tool: str, *arguments: str) -> Ran:
        """What the stand-in answers."""
        command = ["compat", STANDS[tool], "--bootstrap-server", f"127.0.0.1:{self.kactl.port}", *arguments]
        ended = CliRunner().invoke(kactl, command)
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exc_info
        return Ran(ended.exit_code, ended.output, ended.stdout)

    def same(self, tool: str, *arguments: str, seen: Callable[[str], Any] = str) -> Ran:
        """Ask both. Where there is a `%` in the arguments it stands for the one who is asked, and in answers, too.

        Args:
            seen: what is compared of an output.

        Returns:
            The answer of Kafka's tool.
        """
        apart = any("%" in argument for argument in arguments)
        answers = []
        for name, ask in zip(SIDES, (self.kafkas, self.kactls), strict=True):
            ran = ask(tool, *(argument.replace("%", name) for argument in arguments))
            texts = (text.replace(name, "%") if apart else text for text in (ran.text, ran.out))
            answers.append(Ran(ran.code, *texts))
        theirs, ours = answers
        assert (ours.code, seen(ours.out)) == (theirs.code, seen(theirs.out)), ours.text
        return theirs

    def create(self, topic: str, assignment: str, *options: str) -> None:
        """Create one topic for each side, and wait until brokers know both."""
        for name in SIDES:
            self.tools.topics(
                "--create", "--topic", topic.replace("%", name), "--replica-assignment", assignment, *options
            ).well()
        self.rest()

    def file(self, name: str, content: object) -> str:
        """A JSON file for each side, of the content with `%` replaced; the path that stands for both."""
        for side in SIDES:
            (self.folder / f"{side}-{name}.json").write_text(json.dumps(content).replace("%", side))
        return str(self.folder / f"%-{name}.json")

    def moves(self, name: str, **replicas: list[int]) -> str:
        """A file that moves partitions: `p0=[1, 2]` for partition 0 of a topic of this name."""
        partitions = [
            {"topic": f"%-{name}", "partition": int(partition[1:]), "replicas": wanted}
            for partition, wanted in replicas.items()
        ]
        return self.file("".join([name, *replicas]), {"version": 1, "partitions": partitions})

    def rest(self) -> None:
        """Wait until every partition has a leader and all its replicas in sync, and every broker knows it."""
        self.kactl.until(lambda: all(map(_is_whole, self.kactl.partitions().values())), "all in sync", MARGIN_S)
        self.heard()

    def heard(self) -> None:
        """Wait until every broker names the leaders that there are, and has answered all that it was told."""
        self.kactl.until(self._have_heard, "all brokers to know all leaders", MARGIN_S)

    def _have_heard(self) -> bool:
        leaders = {name: each["leader"] for name, each in self.kactl.partitions().items()}
        for broker in self.cluster.brokers:
            if broker.process is not None and broker.process.alive:
                with MetadataClient(broker.internal_port) as client:
                    if client.look().leaders != leaders:
                        return False
        return all(
            each["queue_size"] == 0 or each["state"] == "dead" for each in self.kactl.get("/v1/brokers")["items"]
        )


def _is_whole(partition: dict[str, Any]) -> bool:
    return partition["leader"] >= 0 and {*partition["isr"]} == {*partition["replicas"]} and not partition["adding"]


# -- what of an answer is compared -----------------------------------------------------------------------------------


def lines(out: str) -> list[str]:
    """The lines, in any order; so, too, the partitions that one line names."""
    return sorted(re.sub(r"(?<=for partitions ).*", lambda names: ", ".join(sorted(names[0].split(", "))), line)
                  for line in out.splitlines())  # fmt: skip


def any_overrides(out: str) -> str:
    """The same, with the overrides of a topic in order."""
    return re.sub(r"(?<=Configs: ).*", lambda found: ",".join(sorted(found[0].split(","))), out)


def until_error(out: str) -> str:
    """Everything up to the line that says what is wrong."""
    return re.sub(r"(?sm)(^Error: [^\n]*\n).*", r"\1", out)


def form(out: str) -> object:
    """The lines of a plan, and the current assignment; of the proposal, only which partitions it names."""
    said = out.splitlines()
    proposal = json.loads(said.pop())
    named = [(each["topic"], each["partition"], each.keys(), len(each["replicas"]), each["log_dirs"])
             for each in proposal.pop("partitions")]  # fmt: skip
    return said, proposal, named


def current(out: str) -> list[str]:
    """A plan without its proposal: while replicas are added, Kafka's tool counts them as replicas to be had."""
    return out.splitlines()[:-1]


def refused(bench: Bench, tool: str, *arguments: str) -> str:
    """What both say of a command line before they say how to use it."""
    theirs, ours = bench.kafkas(tool, *arguments), bench.kactls(tool, *arguments)
    assert (theirs.code, theirs.out, ours.code, ours.out) == (1, "", 1, "")
    assert theirs.lines[0] == ours.lines[0]
    return ours.lines[0]
