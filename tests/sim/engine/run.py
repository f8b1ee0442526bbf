"""Runs of scripts: `run_script(script) -> Outcome`, and the entry `python -m tests.sim.engine.run SEED ...`.

first phase: actions of the script, checkers on ──▶ all faults end ──▶ second phase: wait until all is well
"""

import asyncio
import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from kactl.testing import sim
from kactl.testing.failures import SimFailure
from kactl.testing.history import History
from kactl.testing.loop import SimLoop
from kactl.testing.schedule import Schedule
from kactl.testing.violations import Checker, Violation
from tests.sim.engine.script import Action, Script
from tests.sim.engine.watching import Cost, watch

from . import selectors
from .actions import VERBS
from .brokers.leases import HANDOVER_SHARE
from .checkers import Observer, Probes, Rules
from .checkers import checkers as all_checkers
from .checkers.quiet import Quiet
from .cluster import SimulatedCluster
from .generator import script_of_seed
from .points import Points
from .selectors import Skipped

PASS: Final = "pass"
_ENGINE: Final = "tests.sim.engine"
# How often the conditions of the second phase are evaluated, and how often they must hold in a row.
QUIET_INTERVAL_S: Final = 1.0
QUIET_COUNT: Final = 3


class Outcome(msgspec.Struct, kw_only=True):
    """Result of a run.

    Attributes:
        signature: `pass`, or what makes two failures the same.
        violation: the violated invariant; None also for a run that a failure of the simulation ended.
        error: text of the failure; empty if there is none.
        digest: SHA-256 of the history: equal for equal runs.
        steps, virtual_ms, cpu_s: length of the run in steps, virtual time and processor time.
        hold_backs: number of times that the schedule held a step back.
        probes: counters of rare moments.
        skipped: actions whose target did not exist, with the reason, by their number.
    """

    script: Script
    signature: str
    violation: Violation | None = None
    error: str = ""
    digest: str = ""
    steps: int = 0
    hold_backs: int = 0
    virtual_ms: float = 0.0
    cpu_s: float = 0.0
    probes: dict[str, int] = {}
    skipped: dict[int, str] = {}
    history: History

    @property
    def passed(self) -> bool:
        return self.signature == PASS


def run_script(
    script: Script,
    *,
    checkers: Iterable[Checker] | None = None,
    costs: dict[str, Cost] | None = None,
    second_ms: float = math.inf,
) -> Outcome:
    """Run a script. Returns its outcome; a violation is a result, not an error.

    Args:
        checkers: new ones, for this run only; by default those of all invariants.
        costs: where the cost of each checker is added up, by name.
        second_ms: virtual time of the second phase after which the run ends, and has passed; none by default.
    """
    started_s = time.process_time()
    run = _Run(script, checkers, costs, second_ms)
    schedule = Schedule(
        script.schedule.strategy,
        hold_back=script.schedule.hold_back,
        changes=script.schedule.changes,
        grid_ms=script.schedule.grid_ms,
        only=None if script.schedule.only is None else frozenset(script.schedule.only),
    )
    signature, violation, error = PASS, None, ""
    try:
        sim.run(run.main, seed=script.schedule.seed, schedule=schedule, guarded=(_ENGINE,))
    except Violation as found:
        signature, violation, error = found.signature, found, str(found)
    except SimFailure as failure:
        signature, error = failure.signature, str(failure)
    return Outcome(
        script=script,
        signature=signature,
        violation=violation,
        error=error,
        digest=run.history.digest(),
        steps=run.loop.steps,
        hold_backs=run.loop.hold_backs,
        virtual_ms=run.loop.now_s * 1000,
        cpu_s=time.process_time() - started_s,
        probes=run.hits(),
        skipped=run.skipped,
        history=run.history,
    )


class _Run:
    """One run of a script."""

    loop: SimLoop
    history: History
    cluster: SimulatedCluster
    points: Points

    def __init__(
        self, script: Script, checkers: Iterable[Checker] | None, costs: dict[str, Cost] | None, second_ms: float
    ) -> None:
        self._script = script
        self._second_ms = second_ms
        self._costs = costs
        self._given = checkers
        self.probes = Probes()
        self.skipped: dict[int, str] = {}

    async def main(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        self.history = History(lambda: loop.now_s * 1000)
        loop.set_exception_handler(self._task_failed)
        observer = Observer(self.history)
        script = self._script
        slowest_ms = max(script.latency.network_ms[1], script.latency.store_ms[1])
        self.points = Points(lambda: loop.now_s * 1000, self._do, hold_ms=slowest_ms + 1.0)
        self.cluster = SimulatedCluster(
            loop, self.history, script.world, script.latency, observer=observer, points=self.points
        )
        self.probes = Probes(session_timeout_ms=self.cluster.settings["session_timeout_ms"])
        found = all_checkers(rules_of(self.cluster), observer.memories) if self._given is None else list(self._given)
        watch(self.history, [*found, self.probes], loop.halt, costs=self._costs)
        with self.points.installed():
            await self._phases(found)

    async def _phases(self, found: list[Checker]) -> None:
        async with self.cluster.opened():
            await self._first_phase()
            self.cluster.points.disarm()
            if not await self._second_phase():
                return
            for checker in found:
                if (violation := checker.at_end()) is not None:
                    raise violation

    def hits(self) -> dict[str, int]:
        """Returns the counters of rare moments and of points, by name."""
        points = {f"point {point}": count for point, count in self.points.hits.items()}
        return dict(sorted({**self.probes.hits, **points}.items()))

    def _task_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record that a task ended by an error that no code received."""
        error = context.get("exception")
        if error is None:
            return  # a task of a killed node was dropped
        task = context.get("task") or context.get("future")
        name = task.get_name() if isinstance(task, asyncio.Task) else "callback"
        self.history.record("task.failed", node=getattr(task, "node_name", None), task=name, error=repr(error))

    async def _first_phase(self) -> None:
        timed = []
        for number, action in enumerate(self._script.actions):
            if action.at_point:
                self.cluster.points.arm(number, action)
            else:
                timed.append((action.at_ms, number, action))
        timed.sort(key=lambda entry: entry[:2])
        for at_ms, number, action in timed:
            await self._until(at_ms)
            self._do(number, action)
        await self._until(self._script.duration_ms)

    async def _until(self, at_ms: float) -> None:
        await asyncio.sleep(max(0.0, at_ms / 1000 - self.loop.now_s))

    def _do(self, number: int, action: Action) -> None:
        try:
            VERBS[action.do](self.cluster, action.args)
        except Skipped as reason:
            self.skipped[number] = str(reason)
            self.history.record("action.skipped", number=number, do=action.do, reason=str(reason))
        else:
            self.history.record("action", number=number, do=action.do, args=action.args)

    async def _second_phase(self) -> bool:
        """End all faults, and wait until all is well. Returns whether it is, and not only the time is over.

        Raises:
            Violation: a condition is not met within its limit.
        """
        down = []
        for selector in self._script.liveness.core_down:
            with contextlib.suppress(Skipped):
                down.append(selectors.member(self.cluster, selector))
        self.cluster.heal(down)
        self.history.record("phase", what="all faults have ended")
        healed_s = self.loop.now_s
        quiet = Quiet(self.cluster)
        met = 0
        while met < QUIET_COUNT:
            await asyncio.sleep(QUIET_INTERVAL_S)
            self.cluster.restart(down)  # a stop that had begun before may end now
            began_s = time.process_time()
            unmet = quiet.unmet()
            if self._costs is not None:
                cost = self._costs.setdefault(Quiet.__name__, Cost())
                cost.events, cost.cpu_s = cost.events + 1, cost.cpu_s + time.process_time() - began_s
            met = 0 if unmet else met + 1
            since_ms = (self.loop.now_s - healed_s) * 1000
            violation = quiet.violation(unmet, since_ms=since_ms)
            if violation is not None:
                raise violation
            if since_ms >= self._second_ms:
                return False
        return True


def rules_of(cluster: SimulatedCluster) -> Rules:
    """Returns what the world of a cluster allows."""
    timeout_ms = cluster.settings["session_timeout_ms"]
    return Rules(
        recovery=cluster.level.recovery,
        unclean=bool(cluster.spec.settings.get("unclean_leader_election", False)),
        stock_brokers=cluster.spec.brokers.kind == "model",
        session_timeout_ms=timeout_ms,
        # Sessions with ZooKeeper only witness: the wait is the participants' own.
        eviction_ms=HANDOVER_SHARE * timeout_ms if cluster.spec.store == "zookeeper" else timeout_ms,
        links=cluster.spec.brokers.links,
    )


def main(seeds: Iterable[int], write: Callable[[str], object]) -> int:
    """Run seeds and write one line for each. Returns 1 if one failed."""
    failed = 0
    for seed in seeds:
        outcome = run_script(script_of_seed(seed))
        failed |= not outcome.passed
        write(
            f"seed {seed}: {outcome.signature}  {outcome.virtual_ms / 1000:.0f} s in {outcome.cpu_s:.2f} CPU-s, "
            f"{outcome.steps} steps, {len(outcome.script.actions)} actions, {outcome.digest[:12]}  "
            f"{outcome.error[:300]}\n"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main((int(argument) for argument in sys.argv[1:]), sys.stdout.write))
