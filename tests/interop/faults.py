"""Random faults: servers are killed, stopped, paused, partitioned, and restarted.

A round is one to three concurrent faults, held for a while, and healed. At most one broker is absent at a time, and no
broker fails before the previous one is in sync again, so that an eligible leader always exists.
"""

import time
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from .acceptance.bench import BROKERS, SESSION_S, Bench
from .kactl_process import KactlController

# Pauses: clearly shorter, and clearly longer, than a session.
SHORT_S: Final = (0.5, 3.0)
LONG_S: Final = (8.0, 11.0)
BROKER_FAULTS: Final = ("kill", "stop", "pause", "long pause")
KACTL_FAULTS: Final = ("kill", "stop", "pause", "long pause", "kill the standby", "resign")
ZOOKEEPER_FAULTS: Final = ("kill", "cut", "long cut", "pause")
# What is struck together, and how often.
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
    """One of them, as it was drawn.

    Attributes:
        what: "broker 2: kill".
        strike: does it.
        heal: undoes it; may take a session and the start of a server.
        hold_s: how long it lasts, at the least.
    """

    what: str
    strike: Callable[[], None]
    heal: Callable[[], None]
    hold_s: float

    @property
    def whose(self) -> str:
        """The first word: broker, kactl or ZooKeeper."""
        return self.what.split(":")[0].split(" ")[0]


class Faults:
    """Draws them.

    Args:
        random: seeded; the same seed draws the same faults.
    """

    def __init__(self, bench: Bench, random: Random) -> None:
        self._bench = bench
        self._random = random

    def draw(self) -> list[Fault]:
        """The faults of one round, in the order in which they strike. What is healed last stands last."""
        weights = [weight for weight, _ in PATTERNS]
        ((_, struck),) = self._random.choices(PATTERNS, weights)
        make = {"broker": self._broker, "kactl": self._kactl, "zookeeper": self._zookeeper}
        return [make[each]() for each in struck]

    def _broker(self) -> Fault:
        number = self._random.choice(BROKERS)
        kind = self._random.choice(BROKER_FAULTS)
        hold_s = self._hold_s(kind)
        broker = self._bench.cluster[number]
        what = f"broker {number}: {kind}"
        match kind:
            case "kill":
                return Fault(what, broker.kill, broker.start, hold_s)
            case "stop":
                return Fault(what, broker.stop, broker.start, hold_s)
            case _:
                return Fault(what, broker.pause, broker.resume, hold_s)

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
    """Start it; whether it becomes the controller is seen to later."""
    instance.start(active=False)


def resign(instance: KactlController) -> None:
    """Give the controllership up over the API, if it is there to be given up."""
    epoch = instance.get("/v1/controller")["epoch"]
    instance.post("/v1/controller/resign", expected_epoch=epoch)


def hold(faults: list[Fault], *, since: float) -> None:
    """Wait until every fault has lasted as long as it is to last."""
    time.sleep(max(0.0, since + max(fault.hold_s for fault in faults) - time.monotonic()))
