"""Clusters of processes over tcp, whose controllers and participants are killed, stopped and cut off."""

import itertools
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tests.support.leaderships import Led, overlaps
from tests.support.processes import Process, free_port

from .cluster_program import PARTITIONS, TOPIC, now_ms

PROGRAM: Final = Path(__file__).with_name("cluster_program.py")
PATIENCE_S: Final = 60.0
NAMES: Final = [f"{TOPIC}-{number}" for number in range(PARTITIONS)]
CONTROLLERS: Final = (100, 101)


class Lost(NamedTuple):
    """A call of `lease_lost`."""

    broker: int
    name: str
    token: str
    at_ms: float


class Run:
    """One run of a program with a participant, and what it has printed.

    Attributes:
        led: times for which it led partitions, as they ended.
        lost: calls of `lease_lost`.
        ended_ms: after which it has not led, because it was killed; or stopped, and killed then.
    """

    def __init__(self, broker: int, process: Process) -> None:
        self.broker = broker
        self.process = process
        self.led: list[Led] = []
        self.lost: list[Lost] = []
        self.ended_ms = math.inf
        self._open: dict[tuple[str, str], float] = {}
        self._read = 0
        self._is_complete = False

    def all_led(self) -> list[Led]:
        """Returns all times for which it led, those that last included."""
        self._read_on()
        ended_ms = self.ended_ms
        return self.led + [
            Led(self.broker, name, token, began_ms, ended_ms, ended_ms)
            for (name, token), began_ms in self._open.items()
        ]

    def all_lost(self) -> list[Lost]:
        self._read_on()
        return self.lost

    def _read_on(self) -> None:
        """Read the lines that were printed since the last call."""
        if self._is_complete:
            return
        self._is_complete = not self.process.alive
        with self.process.output.open("rb") as source:
            source.seek(self._read)
            text = source.read()
        complete = text.rfind(b"\n") + 1
        self._read += complete
        for line in text[:complete].decode().splitlines():
            match line.split():
                case ["leads", name, token, began]:
                    self._open[name, token] = float(began)
                case ["led", name, token, began, last, returned]:
                    del self._open[name, token]
                    self.led.append(Led(self.broker, name, token, float(began), float(last), float(returned)))
                case ["lost", name, token, at]:
                    self.lost.append(Lost(self.broker, name, token, float(at)))


class Cluster:
    """Processes with controllers and participants over one store.

    Args:
        store: as `cluster_program` takes it; None for a SQLite file in the folder.
        sessions: `store` or `controller`.
        host: where the controllers listen.
        inside: command that runs the processes in a network namespace.
    """

    def __init__(
        self,
        folder: Path,
        sessions: str,
        store: str | None = None,
        options: Sequence[str] = (),
        *,
        controllers: Sequence[int] = CONTROLLERS,
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
    ) -> None:
        self.sessions = sessions
        self.folder = folder
        self.store = store or f"sqlite:{folder / 'kactl.db'}"
        self.options = tuple(options)
        self.controllers: dict[int, Process] = {}
        self.participants: dict[int, Process] = {}
        self.spectators: list[Process] = []
        self.runs: list[Run] = []  # of participants, in the order of their starts
        self.proxies: list[Proxy] = []
        self._starts = 0
        self.inside = tuple(inside)
        self.addresses = {node: f"{host}:{free_port()}" for node in controllers}

    def start_controller(self, node: int, *options: str, store: str | None = None) -> None:
        self.controllers[node] = self._run("controller", node, self.addresses[node], *options, store=store)
        self.controllers[node].wait_for_line("listens", PATIENCE_S)

    def start_participant(
        self,
        broker: int,
        *options: str,
        behind: "Sequence[Reached]" = (),
        sessions: str | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        """Start a participant. Behind proxies, it knows the controllers by their addresses only.

        Args:
            sessions: of this participant, if they are not those of the others.
            inside: command that runs it in another network namespace than the others.
        """
        addresses = [proxy.address for proxy in behind] or list(self.addresses.values())
        process = self._run("participant", broker, ",".join(addresses), *options, sessions=sessions, inside=inside)
        self._participates(broker, process)

    def start_spectator(self, number: int, *, behind: "Sequence[Reached]") -> Process:
        """Start a spectator behind proxies. It ends with the cluster."""
        self.spectators.append(self._run("spectator", number, ",".join(proxy.address for proxy in behind)))
        return self.spectators[-1]

    def start_node(self, broker: int) -> None:
        """Start a controller and a participant in one process."""
        others = [address for node, address in self.addresses.items() if node != CONTROLLERS[broker - 1]]
        process = self._run("node", broker, ",".join([self.addresses[CONTROLLERS[broker - 1]], *others]))
        self.controllers[CONTROLLERS[broker - 1]] = process
        self._participates(broker, process)

    def _participates(self, broker: int, process: Process) -> None:
        self.participants[broker] = process
        self.runs.append(Run(broker, process))

    def proxy(self, address: str) -> "Proxy":
        self.proxies.append(Proxy(address))
        return self.proxies[-1]

    def kill(self, broker: int) -> None:
        """Kill a participant that is not stopped."""
        self.participants[broker].kill()
        self.run_of(broker).ended_ms = now_ms()

    def run_of(self, broker: int) -> Run:
        """Returns the last run of a participant."""
        return next(run for run in reversed(self.runs) if run.broker == broker)

    def _run(
        self,
        role: str,
        number: int,
        addresses: str,
        *options: str,
        store: str | None = None,
        sessions: str | None = None,
        inside: Sequence[str] = (),
    ) -> Process:
        arguments = [store or self.store, role, str(number), addresses, sessions or self.sessions]
        self._starts += 1
        output = self.folder / f"{self._starts:03}-{role}-{number}"
        command = [*(inside or self.inside), sys.executable, str(PROGRAM), *arguments, *self.options, *options]
        return Process(command, output=output)

    def kill_all(self) -> None:
        for process in {*self.participants.values(), *self.controllers.values(), *self.spectators}:
            process.kill()

    def close(self) -> None:
        self.kill_all()
        for path in sorted(self.folder.glob("[0-9][0-9][0-9]-*")):
            print(path.name, path.read_text(), sep="\n")  # shown if the test has failed
        for proxy in self.proxies:
            proxy.close()

    # -- what has happened ---------------------------------------------------------------------------------------------

    def led(self) -> list[Led]:
        """Returns all times for which partitions were led."""
        return [led for run in self.runs for led in run.all_led()]

    def lost(self, broker: int) -> list[Lost]:
        """Returns all calls of `lease_lost` of a participant."""
        return [lost for run in self.runs if run.broker == broker for lost in run.all_lost()]

    def leaders(self) -> dict[str, int]:
        """Returns the participant that leads each partition now."""
        last: dict[str, Led] = {}
        for led in sorted(self.led(), key=lambda led: led.began_ms):
            last[led.name] = led
        return {name: led.broker for name, led in last.items() if led.ended_ms == math.inf}

    def acting(self) -> set[int]:
        """Returns the participants of which a call of `lead` has not ended."""
        return {led.broker for led in self.led() if led.ended_ms == math.inf}

    def led_now(self, broker: int) -> dict[str, Led]:
        """Returns what a participant leads, by partition."""
        return {led.name: led for led in self.led() if led.broker == broker and led.ended_ms == math.inf}

    def check_stopped_first(self, broker: int, cut: dict[str, Led]) -> None:
        """Check that leaders that were cut off have ended, with a call of `lease_lost`, before the next ones began."""
        lost = {(call.name, call.token): call.at_ms for call in self.lost(broker)}
        followed = {pair[0][:3]: pair for pair in self.successions()}
        assert cut
        for name, led in cut.items():
            earlier, later = followed[broker, name, led.token]
            # On a busy machine the body of `lead` sees the end of the lease first, by its own check.
            assert lost.get((name, led.token), math.inf) < later.began_ms, (earlier, later)
            assert earlier.returned_ms < later.began_ms, (earlier, later)
            assert earlier.ended_ms < later.began_ms

    def check_disjoint(self) -> None:
        """Check that no partition was led by two participants at a time."""
        assert self.overlaps() == []

    def overlaps(self) -> list[tuple[Led, Led]]:
        return overlaps(self.led())

    def successions(self) -> list[tuple[Led, Led]]:
        """Returns each leadership with the next one of the partition, if that is another participant's."""
        found = []
        for name in NAMES:
            times = sorted((led for led in self.led() if led.name == name), key=lambda led: led.began_ms)
            found += [pair for pair in itertools.pairwise(times) if pair[0].broker != pair[1].broker]
        return found

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

    def until_led(self, *brokers: int) -> None:
        """Wait until all partitions are led by these participants, each of which leads one or more."""
        until(
            lambda: set(self.leaders().values()) == set(brokers) and len(self.leaders()) == PARTITIONS,
            f"all partitions are led by {brokers}",
        )

    def until_in_sync(self, *brokers: int) -> None:
        """Wait until the ISRs have these members, as the active controller knows them."""
        until(lambda: self.in_sync() == " ".join(map(str, brokers)), f"{brokers} are in sync")


class Reached(Protocol):
    """A proxy."""

    @property
    def address(self) -> str: ...


class Proxy:
    """A fault proxy in a process of its own, which takes commands from a pipe."""

    def __init__(self, to: str) -> None:
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


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def three_participants(
    folder: Path,
    sessions: str,
    store: str | None = None,
    options: Sequence[str] = (),
    *,
    load: bool = False,
    controllers: Sequence[int] = CONTROLLERS,
) -> Cluster:
    """Start controllers and three participants. The third one is behind a proxy to each controller."""
    cluster = Cluster(folder, sessions, store, options, controllers=controllers)
    try:
        for node in controllers:
            cluster.start_controller(node)
        behind = [cluster.proxy(address) for address in cluster.addresses.values()]
        for broker in (1, 2):
            cluster.start_participant(broker, *(["--load", "200"] if load and broker == 1 else []))
        cluster.start_participant(3, behind=behind)
    except BaseException:
        cluster.close()
        raise
    return cluster
