"""Controllers and participants in processes of their own, which are killed, stopped and cut off."""

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.marks import kept_and_long
from tests.support.processes import Process, free_port

from .cluster_program import PARTITIONS, SESSION_MS, TOPIC, now_ms

PROGRAM = Path(__file__).with_name("cluster_program.py")
PATIENCE_S = 60.0
NAMES = [f"{TOPIC}-{number}" for number in range(PARTITIONS)]

pytestmark = pytest.mark.slow


class Led(NamedTuple):
    """A time for which a participant led a partition; without an end, if it still does."""

    broker: int
    name: str
    token: str
    began_ms: float
    ended_ms: float


class Cluster:
    """Two controllers over one SQLite file, and three participants. The third one is behind a proxy."""

    def __init__(self, folder: Path, sessions: str) -> None:
        self.sessions = sessions
        self.folder = folder
        self.ended_ms: dict[int, float] = {}  # of killed participants
        self.controllers: dict[int, Process] = {}
        self.addresses = {node: f"127.0.0.1:{free_port()}" for node in (100, 101)}
        for node in self.addresses:
            self.start_controller(node)
        self.proxies = [self._proxy(address) for address in self.addresses.values()]
        direct = ",".join(self.addresses.values())
        behind = ",".join(proxy.address for proxy in self.proxies)
        self.participants = {broker: self._run("participant", broker, direct) for broker in (1, 2)}
        self.participants[3] = self._run("participant", 3, behind)

    def start_controller(self, node: int) -> None:
        self.controllers[node] = self._run("controller", node, self.addresses[node])
        self.controllers[node].wait_for_line("listens", PATIENCE_S)

    def _run(self, role: str, number: int, address: str) -> Process:
        command = [
            sys.executable,
            str(PROGRAM),
            str(self.folder / "kactl.db"),
            role,
            str(number),
            address,
            self.sessions,
        ]
        return Process(command, output=self.folder / f"{role}-{number}")

    def _proxy(self, address: str) -> "Proxy":
        return Proxy(address, self.folder)

    def close(self) -> None:
        for process in (*self.participants.values(), *self.controllers.values()):
            process.kill()
            print(process.output.name, process.output.read_text(), sep="\n")  # shown if the test has failed
        for proxy in self.proxies:
            proxy.close()

    # -- what has happened ---------------------------------------------------------------------------------------------

    def led(self) -> list[Led]:
        """Returns all times for which partitions were led."""
        found = []
        for broker, process in self.participants.items():
            open_ = {}
            for line in process.output.read_text().splitlines():
                match line.split():
                    case ["leads", name, token, began]:
                        open_[name, token] = float(began)
                    case ["led", name, token, began, last]:
                        del open_[name, token]
                        found.append(Led(broker, name, token, float(began), float(last)))
            ended_ms = self.ended_ms.get(broker, math.inf)
            found += [Led(broker, name, token, began, ended_ms) for (name, token), began in open_.items()]
        return found

    def leaders(self) -> dict[str, int]:
        """Returns the participant that leads each partition now."""
        last: dict[str, Led] = {}
        for led in sorted(self.led(), key=lambda led: led.began_ms):
            last[led.name] = led
        return {name: led.broker for name, led in last.items() if led.ended_ms == math.inf}

    def check_disjoint(self) -> None:
        """Check that no partition was led by two participants at a time."""
        for name in NAMES:
            times = sorted((led for led in self.led() if led.name == name), key=lambda led: led.began_ms)
            for earlier, later in itertools.pairwise(times):
                if earlier.broker != later.broker:
                    assert earlier.ended_ms < later.began_ms, (earlier, later)

    def active(self) -> int:
        """Returns the controller that has become active last."""
        epochs = {}
        for node, process in self.controllers.items():
            lines = [line.split() for line in process.text.splitlines() if line.startswith(("active", "standby"))]
            if lines and lines[-1][0] == "active" and process.alive:
                epochs[node] = int(lines[-1][1])
        return max(epochs, key=lambda node: epochs[node], default=-1)

    def in_sync(self) -> str:
        """Returns the members of all ISRs, as the active controller knows them."""
        return self._last("in-sync")

    def linked(self) -> str:
        """Returns the participants with a link to the active controller."""
        return self._last("linked")

    def _last(self, kind: str) -> str:
        """Returns the last line of a kind that the active controller has printed."""
        active = self.active()
        lines = self.controllers[active].text.splitlines() if active in self.controllers else []
        found = [line.removeprefix(kind).strip() for line in lines if line.startswith(kind)]
        return found[-1] if found else ""


class Proxy:
    """A fault proxy in a process of its own, which takes commands from a pipe."""

    def __init__(self, to: str, folder: Path) -> None:
        import subprocess

        command = [sys.executable, "-m", "kactl.testing.fault_proxy", "--to", to]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# The simulator covers both kinds of sessions, and `tests/participant` the sessions in the store.
@pytest.mark.parametrize("cluster", kept_and_long(["store", "controller"], {"controller"}), indirect=True)
def test_processes_over_tcp(cluster: Cluster) -> None:
    """Participants and controllers are killed, stopped and cut off; every partition is led again, by one at a time."""
    until(lambda: cluster.leaders().keys() == set(NAMES), "all partitions are led")

    # The active controller is killed: no leadership changes, and the other one goes on.
    before, first = cluster.led(), cluster.active()
    second = 201 - first
    cluster.controllers[first].kill()
    until(lambda: cluster.active() == second, "the standby is active")
    cluster.start_controller(first)

    until(lambda: cluster.in_sync() == "1 2 3", "all participants are in sync under the new controller")

    # A participant is killed: its partitions are led elsewhere, which the new controller tells over new links.
    held = [(led.broker, led.name, led.token) for led in cluster.led()]
    assert held == [(led.broker, led.name, led.token) for led in before]
    cluster.participants[1].kill()
    cluster.ended_ms[1] = now_ms()
    until(lambda: set(cluster.leaders().values()) == {2, 3}, "2 and 3 lead")
    until(lambda: cluster.leaders().keys() == set(NAMES), "all partitions are led by 2 and 3")

    until(lambda: cluster.in_sync() == "2 3", "1 has left the ISRs")

    # A participant is stopped for longer than its session: the other one leads, and it does not when it continues.
    cluster.participants[2].pause()
    until(lambda: set(cluster.leaders().values()) == {3} and len(cluster.leaders()) == PARTITIONS, "3 leads alone")
    cluster.participants[2].resume()
    until(lambda: all(led.broker == 3 for led in cluster.led() if led.ended_ms == math.inf), "2 has stopped leading")
    cluster.check_disjoint()

    until(lambda: cluster.in_sync() == "2 3", "2 has followed 3, which needs messages between them")

    # The other one is cut off from the controllers.
    for proxy in cluster.proxies:
        proxy.tell("refuse")
    until(lambda: cluster.linked() == "2", "3 is cut off")
    if cluster.sessions == "store":
        # It leads on, and is reached again afterwards.
        time.sleep(2 * SESSION_MS[cluster.sessions] / 1000)
        assert set(cluster.leaders().values()) == {3}
        for proxy in cluster.proxies:
            proxy.tell("heal")
        until(lambda: cluster.linked() == "2 3", "3 is reached again")
        until(lambda: cluster.in_sync() == "2 3", "2 follows 3 still, or again")
        cluster.participants[3].kill()
        cluster.ended_ms[3] = now_ms()
    until(lambda: set(cluster.leaders().values()) == {2} and len(cluster.leaders()) == PARTITIONS, "2 leads alone")
    if cluster.sessions == "controller":
        for proxy in cluster.proxies:
            proxy.tell("heal")
        until(lambda: cluster.in_sync() == "2 3", "3 has registered again and follows")

    cluster.check_disjoint()
