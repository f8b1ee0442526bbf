"""One simulated run of a user's test: the loop, the history, the cluster, and the faults while the test runs."""

import asyncio
import dataclasses
import re
from collections.abc import Collection, Coroutine
from typing import Any, Final

from ..history import History
from ..loop import SimLoop
from ..schedule import Schedule
from ..script import Action, ScheduleSpec, Script
from ..streams import Streams
from . import nemesis
from .simulated import Application, SimCluster


@dataclasses.dataclass(frozen=True)
class Plan:
    """Options of a test's marker.

    Attributes:
        faults: kinds of faults; see `nemesis.FAULTS`.
        duration_ms: time in which faults begin.
    """

    faults: tuple[str, ...] = ()
    duration_ms: float = 60_000.0


class Simulation:
    """The fixture `sim` of a test.

    Attributes:
        seed: determines the run.
        schedule: order of the steps, drawn from the seed unless there is a script.
        script: schedule and faults of the run. Without one the faults are drawn when the cluster is made.
        now_ms, event_count: virtual time and length of the history when the test function ended.
    """

    def __init__(self, seed: int, plan: Plan, *, script: Script | None = None) -> None:
        self.seed = seed
        self.plan = plan
        self.script = script
        self.schedule = _drawn(seed) if script is None else script.schedule
        self.history: History = History(lambda: 0.0)
        self.now_ms = 0.0
        self.event_count = 0
        self._cluster: SimCluster | None = None
        self._nemesis: nemesis.Nemesis | None = None

    @property
    def loop(self) -> SimLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop), "a test with the fixture `sim` needs the marker `sim`"
        return loop

    def begin(self) -> None:
        """Begin the run; called on the simulated loop."""
        loop = self.loop
        self.history = History(lambda: loop.now_s * 1000)

    def end(self) -> None:
        """Note the end of the test function; only its tasks end after that."""
        self.now_ms, self.event_count = self.loop.now_s * 1000, len(self.history.events)

    async def cluster(
        self, *, controllers: int = 2, nodes: int = 3, application: Application | None = None, **settings: Any
    ) -> SimCluster:
        """Start a cluster, and the faults. Returns when a controller is active and all nodes are registered.

        Args:
            controllers, nodes, application, settings: see `SimCluster`.

        Raises:
            TimeoutError: faults kept the cluster from starting.
        """
        optional: dict[str, Any] = {} if application is None else {"application": application}
        cluster = SimCluster(
            self.loop,
            self.history,
            controllers=controllers,
            nodes=nodes,
            **optional,
            **settings,
        )
        self._cluster = cluster
        for _ in range(600):
            if len(cluster.world.state.brokers) == nodes and cluster.resolve("active controller"):
                break
            await asyncio.sleep(0.1)
        else:
            raise TimeoutError("the cluster has not started within 60 s of virtual time")
        self._nemesis = nemesis.Nemesis(cluster, self._actions(cluster))
        return cluster

    def _actions(self, cluster: SimCluster) -> list[Action]:
        if self.script is None:
            # A stream of its own: the faults depend on nothing that the program does.
            rng = Streams(self.seed)["script"]
            actions = nemesis.draw(rng, self.plan.faults, cluster.names, self.plan.duration_ms)
            self.script = Script(schedule=self.schedule, duration_ms=self.plan.duration_ms, actions=actions)
        return self.script.actions

    async def run_out(self) -> None:
        """Wait for the end of the time in which faults begin."""
        await asyncio.sleep(max(0.0, self.plan.duration_ms / 1000 - self.loop.now_s))

    async def heal(self) -> None:
        """End all faults, and begin no more."""
        if self._nemesis is not None and self._cluster is not None:
            self._nemesis.end()
            self._cluster.heal_all()
        await asyncio.sleep(0)

    def start(self, main: Coroutine[Any, Any, Any], *, name: str = "client") -> "asyncio.Task[Any]":
        """Run a coroutine on a node of its own, as a client does."""
        return self.loop.start(self.loop.node(name), main)


def _drawn(seed: int) -> ScheduleSpec:
    drawn = Schedule.drawn(Streams(seed)["schedule"])
    return ScheduleSpec(drawn.strategy, drawn.hold_back, drawn.changes, drawn.grid_ms, seed)  # type: ignore[arg-type]


_UNITS_MS: Final = {"ms": 1.0, "s": 1_000.0, "min": 60_000.0, "h": 3_600_000.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|min|h)")


def plan_of(*, faults: Collection[str] = (), duration: str | float = 60.0) -> Plan:
    """Returns the plan of a marker.

    Args:
        duration: in s, or a text such as `90s` or `10min`.

    Raises:
        ValueError: a fault or the duration is not known.
    """
    if unknown := sorted(set(faults) - nemesis.FAULTS.keys()):
        raise ValueError(f"unknown faults {unknown}: choose from {sorted(nemesis.FAULTS)}")
    return Plan(tuple(faults), _ms(duration))


def _ms(duration: str | float) -> float:
    if not isinstance(duration, str):
        return float(duration) * 1000
    matched = _DURATION.fullmatch(duration)
    if matched is None:
        raise ValueError(f"{duration!r} is not a duration: write 90s, 10min or 1h")
    return float(matched[1]) * _UNITS_MS[matched[2]]
