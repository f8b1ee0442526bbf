"""A service in real processes: a server of `kactl up`, workers with participants, and what must hold whatever happens.

    with running(folder, place) as service:
        service.start_server()
        service.start_worker(1, 3)
        service.create("jobs", partitions=6)
        service.until_led("jobs", 6, by={1, 2, 3})

At the end of the block the output is checked: no partition was led by two participants at a time, tokens rose,
every topic that was confirmed is there, and no process has printed a traceback.
"""

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support import tree
from tests.support.leaderships import Led, overlaps
from tests.support.processes import Process, free_port

from .places import HERE, Place
from .worker import now_ms

# A hang, and no measure of anything: a server starts in seconds, and a session lasts for some.
PATIENCE_S: Final = 240.0
POLL_S: Final = 0.1
SESSION_MS: Final = 6_000
# At most a third of the participants' sessions, so that leases outlast the restart of a server.
SERVER_SESSION: Final = "2s"


class Result(NamedTuple):
    """Exit code and output of a command."""

    code: int
    text: str


class Worker:
    """One process with participants.

    Attributes:
        killed_ms: after which it has not led.
    """

    def __init__(self, first: int, last: int, process: Process) -> None:
        self.participants = range(first, last + 1)
        self.process = process
        self.killed_ms = math.inf

    def all_events(self) -> list[dict[str, Any]]:
        """Returns its events so far, the earliest first."""
        # The last line may be incomplete.
        lines = self.process.text.split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith('{"event"')]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.all_events() if event["event"] == kind]

    def led(self) -> list[Led]:
        """Returns all times for which its participants led. A leadership that resumes keeps its token."""
        led, begun = [], {}
        for event in self.all_events():
            if event["event"] == "leads":
                begun[_key(event)] = event["at_ms"]
            elif event["event"] == "ended":
                led.append(Led(*_key(event), begun.pop(_key(event)), event["valid_ms"], event["at_ms"]))
        return led + [Led(*key, began_ms, self.killed_ms, self.killed_ms) for key, began_ms in begun.items()]

    def leading(self) -> list[Led]:
        """Returns what its participants lead now, as far as they have printed."""
        return [led for led in self.led() if led.ended_ms == math.inf]

    def kill(self) -> None:
        self.process.kill()
        self.killed_ms = now_ms()


def _key(event: dict[str, Any]) -> tuple[int, str, str]:
    return event["participant"], event["partition"], f"{event['token']:020}"


class Service:
    """The processes of one service.

    Args:
        folder: of the server's state, and of all output.
        place: of processes that are started without another one.
        settings: of the server's configuration, as `kactl` reads them from the environment.
    """

    def __init__(self, folder: Path, place: Place = HERE, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.place = place
        self.api, self.port = f"127.0.0.1:{free_port()}", free_port()
        self.data = folder / "data"
        self.server: Process
        self.settings = {
            "PYTHONPATH": str(tree.ROOT),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "KACTL_STORE__SESSION_TIMEOUT": SERVER_SESSION,
            "KACTL_CONTROLLER__AUTO_LEADER_REBALANCE": "false",
            "KACTL_API__CHANGES_PER_SECOND": "1000",
            **(settings or {}),
        }
        self.listen("127.0.0.1")
        self.workers: list[Worker] = []
        self._started: list[Process] = []

    def listen(self, address: str) -> None:
        """Let the next server listen for participants at an address."""
        self.network = f"{address}:{self.port}"
        self.settings["KACTL_NETWORK__LISTEN"] = self.network

    def start_server(self, *options: str, place: Place | None = None, wait: bool = True) -> Process:
        """Start `kactl up`, without participants of its own, and wait until it is up."""
        arguments = ["up", "--data-dir", str(self.data), "--listen", self.api, "--participants", "0", *options]
        self.server = self._start("server", ["kactl.cli", *arguments], place)
        if wait:
            self.server.wait_for_line("kactl is up", PATIENCE_S)
        return self.server

    def start_worker(
        self, first: int, last: int | None = None, *options: str, place: Place | None = None, controllers: str = ""
    ) -> Worker:
        """Start a process with the participants `first` to `last`."""
        last = first if last is None else last
        arguments = [f"{first}-{last}", controllers or self.network, "--session-ms", str(SESSION_MS), *options]
        process = self._start(f"worker-{first}", ["tests.environment.worker", *arguments], place)
        self.workers.append(Worker(first, last, process))
        return self.workers[-1]

    def start_program(self, module: str, *arguments: str, place: Place | None = None) -> Worker:
        """Start a program that prints events, and has no participants."""
        self.workers.append(Worker(0, -1, self._start(module.rpartition(".")[2], [module, *arguments], place)))
        return self.workers[-1]

    def kactl(self, *arguments: str, place: Place | None = None) -> Result:
        """Run a command that uses the server, to its end."""
        process = self._start("command", ["kactl.cli", "--server", f"http://{self.api}", *arguments], place)
        return Result(process.wait(PATIENCE_S), process.text)

    def _start(self, name: str, module: list[str], place: Place | None) -> Process:
        place = place or self.place
        command = [*place.prefix(), sys.executable, "-W", "error", "-m", *module]
        output = self.folder / f"{len(self._started):03}-{name}"
        environment = {"HOME": str(self.folder), **self.settings}
        if place.environment is not None:
            environment = {**self.settings, **place.environment}
        self._started.append(Process(["env", "-i", *_words(environment), *command], output=output))
        return self._started[-1]

    # -- what has happened --------------------------------------------------------------------------------------------

    def create(self, topic: str, *, partitions: int, replicas: int = 1) -> None:
        """Create a topic; tries again while participants are not linked yet to a server that has just started."""
        size = ["--partitions", str(partitions), "--replication-factor", str(replicas)]
        self.until(lambda: self.kactl("topic", "create", topic, *size).code == 0, f"{topic} is created")

    def topics(self) -> set[str]:
        listed = self.kactl("get", "topics", "-o", "jsonl")
        assert listed.code == 0, listed.text
        return {json.loads(line)["name"] for line in listed.text.splitlines()}

    def led(self) -> list[Led]:
        return [led for worker in self.workers for led in worker.led()]

    def leaders(self, topic: str) -> dict[str, int]:
        """Returns the participant that leads each partition of a topic now."""
        leading = [led for led in self.led() if led.ended_ms == math.inf and led.name.rpartition("-")[0] == topic]
        # A process that is stopped has not printed yet that it leads no more.
        return {led.name: led.broker for led in sorted(leading, key=lambda led: led.began_ms)}

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Returns the events of a kind of all workers."""
        return [event for worker in self.workers for event in worker.events(kind)]

    def confirmed(self) -> set[str]:
        return {event["topic"] for event in self.events("confirmed")}

    def until_led(self, topic: str, partitions: int, *, by: set[int] | None = None) -> None:
        """Wait until all partitions of a topic are led; with `by`, by these participants, each of which leads one."""
        names = {f"{topic}-{number}" for number in range(partitions)}

        def are_led() -> bool:
            leaders = self.leaders(topic)
            return leaders.keys() == names and (by is None or set(leaders.values()) == by)

        self.until(are_led, f"{topic} is led by {by or 'any'}")

    def until_registered(self, count: int) -> None:
        self.until(lambda: len(self.events("registered")) >= count, f"{count} registrations")

    def until(self, reached: Callable[[], object], condition: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if time.monotonic() > deadline:
                raise AssertionError(f"did not happen within {PATIENCE_S:g} s: {condition}\n{self.output()}")
            time.sleep(POLL_S)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        led = self.led()
        assert overlaps(led) == []
        for name in {led.name for led in led}:
            tokens = [(led.token, led.began_ms) for led in led if led.name == name]
            assert [began for _, began in sorted(tokens)] == sorted(began for _, began in tokens), (name, tokens)
        for process in self._started:
            assert "Traceback" not in process.text, process.text
        if (confirmed := self.confirmed()) and hasattr(self, "server"):
            assert confirmed <= self.topics()

    def output(self) -> str:
        """Returns the end of what each process has printed."""
        return "\n".join(f"--- {process.output.name}\n{process.text[-5_000:]}" for process in self._started)

    def close(self) -> None:
        for process in reversed(self._started):
            process.kill()


def _words(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


@contextlib.contextmanager
def running(folder: Path, place: Place = HERE, settings: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Yield a service, whose processes are killed at the end. It is checked if the block succeeds."""
    service = Service(folder, place, settings)
    try:
        yield service
        service.check()
    except BaseException:
        print(service.output())
        raise
    finally:
        service.close()
