"""Random faults: servers are killed, stopped, paused, partitioned, and restarted.

A round is one to three concurrent faults, held for some time, and healed. At most one broker is absent at a time, and
no broker fails before the previous one is in sync again, so that an eligible leader always exists.
"""

import time
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from .acceptance.bench import BROKERS, SESSION_S, Bench
from .kactl_process import KactlController

# Durations of pauses: clearly shorter, and clearly longer, than a session.
SHORT_S: Final = (0.5, 3.0)
LONG_S: Final = (8.0, 11.0)
BROKER_FAULTS: Final = ("kill", "stop", "pause", "long pause")
KACTL_FAULTS: Final = ("kill", "stop", "pause", "long pause", "kill the standby", "resign")
ZOOKEEPER_FAULTS: Final = ("kill", "cut", "long cut", "pause")
# Weights, and the servers that fail together.
PATTERNS: Final = (
    (4, ("broker",)),
    (3, ("kactl",)),
    (2, ("zookeeper",)),
    (3, ("broker", "kactl")),
    (2, ("kactl", "zookeeper")),
    (1, ("broker", "zookeeper")),
    (1, ("broker", "kactl", "zookeeper")),
)


class Fault(NamedTuple):
    """A fault of a round.

    Attributes:
        what: description, such as "broker 2: kill".
        strike: starts the fault.
        heal: ends it; this may take a session timeout and the start of a server.
        hold_s: its least duration.
    """

    what: str
    strike: Callable[[], None]
    heal: Callable[[], None]
    hold_s: float

    @property
    def whose(self) -> str:
        """Return the kind of server: broker, kactl or ZooKeeper."""
        return self.what.split(":")[0].split(" ")[0]


class Faults:
    """Random generator of faults.

    Args:
        random: seeded; the same seed generates the same faults.
    """

    def __init__(self, bench: Bench, random: Random) -> None:
        self._bench = bench
        self._random = random

    def draw(self) -> list[Fault]:
        """Return the faults of one round, in the order in which they strike. The one to be healed last is the last."""
        weights = [weight for weight, _ in PATTERNS]
        ((_, struck),) = self._random.choices(PATTERNS, weights)
        make = {"broker": self._broker, "kactl": self._kactl, "zookeeper": self._zookeeper}
        return [make[server]() for server in struck]

    def _broker(self) -> Fault:
        number = self._random.choice(BROKERS)
        kind = self._random.choice(BROKER_FAULTS)
        hold_s = self._hold_s(kind)
        broker = self._bench.cluster[number]
        description = f"broker {number}: {kind}"
        match kind:
            case "kill":
                return Fault(description, broker.kill, broker.start, hold_s)
            case "stop":
                return Fault(description, broker.stop, broker.start, hold_s)
            case _:
                return Fault(description, broker.pause, broker.resume, hold_s)

    def _kactl(self) -> Fault:
        kind = self._random.choice(KACTL_FAULTS)
        hold_s = self._hold_s(kind)
        active, standby = self._bench.kactl, self._bench.other
        match kind:
            case "kill":
                return Fault("kactl: kill", active.kill, lambda: started(active), hold_s)
            case "stop":
                return Fault("kactl: stop", active.stop, lambda: started(active), hold_s)
            case "kill the standby":
                return Fault("kactl: kill the standby", standby.kill, lambda: started(standby), hold_s)
            case "resign":
                return Fault("kactl: resign", lambda: resign(active), lambda: None, hold_s)
            case _:
                process = active.process
                assert process is not None
                return Fault(f"kactl: {kind}", process.pause, process.resume, hold_s)

    def _zookeeper(self) -> Fault:
        kind = self._random.choice(ZOOKEEPER_FAULTS)
        hold_s = self._hold_s(kind)
        zookeeper, link = self._bench.zookeeper, self._bench.link
        match kind:
            case "kill":
                return Fault("ZooKeeper: kill", zookeeper.kill, zookeeper.start, hold_s)
            case "pause":
                return Fault("ZooKeeper: pause", zookeeper.pause, zookeeper.resume, hold_s)
            case _:
                return Fault(f"ZooKeeper: {kind}", link.cut, link.mend, hold_s)

    def _hold_s(self, kind: str) -> float:
        least, most = LONG_S if kind.startswith("long") else SHORT_S
        if kind in ("kill", "stop"):
            most = SESSION_S * 1.5
        return self._random.uniform(least, most)


def started(instance: KactlController) -> None:
    """Start the instance without waiting for it to become the controller."""
    instance.start(active=False)


def resign(instance: KactlController) -> None:
    """Resign over the API, if this instance is the controller."""
    epoch = instance.get("/v1/controller")["epoch"]
    instance.post("/v1/controller/resign", expected_epoch=epoch, reason="a test")


def hold(faults: list[Fault], *, since: float) -> None:
    """Wait until every fault has lasted for its duration."""
    time.sleep(max(0.0, since + max(fault.hold_s for fault in faults) - time.monotonic()))
