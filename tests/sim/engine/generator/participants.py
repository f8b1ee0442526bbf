"""Faults that concern participants: their leases, their handlers, and planned moves of what they lead."""

import random
from collections.abc import Callable
from typing import Any, Final

from tests.sim.engine.brokers.handlers import FAULTS, PHASES
from tests.sim.engine.script import Action, WorldSpec

from .schedules import Schedules

# How many faults of one kind a run has on average; runs are of very different lengths.
_COUNTS: Final = (1, 3, 8, 20)
_INTERVAL_MS_MIN: Final = 2_000.0
# Faults that a phase can have; any other one has the same effect as `slow`.
_OF_PHASE: Final = {
    "prepare": FAULTS,
    "lead": ("raise", "resign", "hang"),
    "follow": ("raise", "hang"),
    "stop": ("raise", "slow", "hang"),
}


def participant_faults(rng: random.Random, world: WorldSpec, duration_ms: float) -> list[Action]:
    """Returns the faults of a run: each kind in half of the runs, with a rate of its own."""
    draw = _Patterns(rng, world)
    kinds: list[Callable[[float], list[Action]]] = [
        draw.suspend,
        draw.silent_leader,
        draw.missed_leader,
        draw.cut_takeover,
    ]
    if world.brokers.handlers:
        kinds.append(draw.handler)
    if world.spectators:
        kinds.append(draw.late_routes)
    if world.store == "zookeeper" and world.brokers.sessions != "controller":
        kinds.append(draw.server_island)
    actions: list[Action] = []
    for kind in kinds:
        interval_ms = max(_INTERVAL_MS_MIN, duration_ms / rng.choice(_COUNTS))
        if rng.random() < 0.5:
            at_ms = 2_000 + rng.expovariate(1 / interval_ms)
            while at_ms < duration_ms:
                actions += kind(at_ms)
                at_ms += rng.expovariate(1 / interval_ms)
    return [action for action in actions if action.at_ms < duration_ms]


class _Patterns(Schedules):
    """Each method returns actions that begin at a time."""

    def suspend(self, at_ms: float) -> list[Action]:
        """The machine of a broker is suspended."""
        return [Action("suspend", at_ms=at_ms, args={"node": self.broker(), "for_ms": self.around_session_ms()})]

    def handler(self, at_ms: float) -> list[Action]:
        """The next call of a handler fails, of a phase that something brings about, perhaps. An operator resets one."""
        phase = self.rng.choice(PHASES)
        args: dict[str, Any] = {
            "broker": self.broker(),
            "phase": phase,
            "what": self.rng.choice(_OF_PHASE[phase]),
            "for_ms": self.around_session_ms(),
        }
        actions = [Action("fail handler", at_ms=at_ms, args=args)]
        if self.rng.random() < 0.5:
            reset_ms = at_ms + args["for_ms"] + self.rng.uniform(0, 2 * self.session_ms)
            reset = {"replica": self.rng.randrange(40), "to": "active controller"}
            actions.append(Action("reset replica", at_ms=reset_ms, args=reset))
        return actions

    def silent_leader(self, at_ms: float) -> list[Action]:
        """Leadership moves away from a broker that the controller does not reach: it holds what it led."""
        rng, broker = self.rng, f"broker {self.rng.randint(1, self.brokers)}"
        for_ms = self.session_ms * rng.choice((0.3, 1.5, 3.0)) * rng.uniform(0.8, 1.2)
        cut = {"node": broker, "for_ms": for_ms, "direction": rng.choice(("both", "in", "out")), "deliver": True}
        if rng.random() < 0.5:
            cut["to"] = "active controller"
        begin = [Action("cut", at_ms=at_ms, args=cut)]
        args = {"broker": broker, "to": "active controller"}
        move = Action("drain", at_ms=at_ms + rng.uniform(1, 0.2 * self.session_ms), args=args)
        undrain = Action("undrain", at_ms=at_ms + 2 * for_ms, args=args)
        return [*begin, move, undrain]

    def missed_leader(self, at_ms: float) -> list[Action]:
        """Leadership moves away from a broker and back while the controller does not reach it; its session lives."""
        rng, partition = self.rng, f"any partition ~{self.rng.randrange(100)}"
        broker, other = rng.sample(range(1, self.brokers + 1), 2)
        for_ms = self.session_ms * rng.uniform(0.3, 0.8)
        cut_ms, step_ms = at_ms + rng.uniform(1_000, 4_000), for_ms / 6
        cut = {"node": f"broker {broker}", "for_ms": for_ms, "direction": rng.choice(("both", "in")), "deliver": False}
        moves = [
            action
            for begin_ms, replicas in (
                (at_ms, [broker, other]),
                (cut_ms + step_ms, [other, broker]),
                (cut_ms + 3 * step_ms, [broker, other]),
            )
            for action in (
                Action("reassign", at_ms=begin_ms, args={"targets": {partition: replicas}, "to": "active controller"}),
                Action("elect", at_ms=begin_ms + step_ms, args={"kind": "preferred", "to": "active controller"}),
            )
        ]
        return [*moves, Action("cut", at_ms=cut_ms, args=cut | {"to": "active controller"})]

    def server_island(self, at_ms: float) -> list[Action]:
        """A server of ZooKeeper loses its leader, and serves its clients on until it gives up. Their sessions expire
        meanwhile, if they are short: new leaders are released while it still responds to reads of the old ones."""
        args = {"server": self.rng.choice((1, 2, 3)), "for_ms": self.session_ms * self.rng.uniform(1.5, 4)}
        return [Action("cut server", at_ms=at_ms, args=args)]

    def late_routes(self, at_ms: float) -> list[Action]:
        """The last messages of a controller arrive after the election of the next one."""
        rng = self.rng
        cut = {"node": "active controller", "direction": "out", "deliver": True}
        kill = {"node": "active controller", "restart_after_ms": 2 * self.session_ms}
        for_ms = rng.choice((1.0, 1.2, 1.5)) * self.session_ms
        return [
            Action("cut", at_ms=at_ms, args=cut | {"for_ms": for_ms}),
            Action("kill", at_ms=at_ms + rng.uniform(100, 1_500), args=kill),
        ]

    def cut_takeover(self, at_ms: float) -> list[Action]:
        """The controller fails while a broker cannot reach any, and leadership moves soon after."""
        rng, broker = self.rng, f"broker {self.rng.randint(1, self.brokers)}"
        for_ms = self.session_ms * rng.uniform(0.5, 4)
        kill = {"node": "active controller", "restart_after_ms": 2 * self.session_ms, "ends_session": True}
        move_ms = at_ms + rng.uniform(20, 0.5 * self.session_ms)
        return [
            Action("cut", at_ms=at_ms, args={"node": broker, "for_ms": for_ms, "deliver": rng.random() < 0.5}),
            Action("kill", at_ms=at_ms + rng.uniform(0, 100), args=kill),
            Action("drain", at_ms=move_ms, args={"broker": broker, "to": "active controller"}),
            Action("undrain", at_ms=at_ms + 2 * for_ms, args={"broker": broker, "to": "active controller"}),
        ]
