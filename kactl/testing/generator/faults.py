"""Faults of a run: a swarm of kinds, each with a rate, and each occurrence a pattern with drawn parameters.

The kinds are drawn per run, because rare combinations need runs in which other kinds do not interfere: each kind with
probability 0.5; in a tenth of the runs a single kind at a high rate; in a twentieth none.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kactl.testing.points import EVENTS, POINTS
from kactl.testing.script import Action, WorldSpec

from .stores import KINDS as STORE_KINDS
from .stores import StorePatterns

# Mean time between two occurrences.
_INTERVALS_MS: Final[Mapping[str, float]] = {"rare": 120_000.0, "medium": 40_000.0, "high": 10_000.0}

_STORE_FAULTS: Final = (
    "lost_requests", "lost_answers", "refusals", "late_events", "doubled_events", "coalesced_events",
)  # fmt: skip

# Kinds whose first action may happen while a controller is at a point.
_AT_POINT: Final = ("kill", "bounce", "bounce", "stop", "pause", "cut", "cut store", "hold", "expire", "sleepwalk")


class _Draw:
    """Patterns of faults; each returns actions that begin at a time."""

    def __init__(self, rng: random.Random, world: WorldSpec) -> None:
        self._rng = rng
        self._brokers = world.brokers.count
        self._controllers = world.controllers
        self._session_ms = float(world.settings.get("session_timeout_ms", 6_000))

    def _broker(self) -> str:
        return f"any broker #{self._rng.randrange(100)}"

    def _controller(self) -> str:
        choices = ("active controller", "active controller", "deposed controller", "any controller #")
        chosen = self._rng.choice(choices)
        return f"{chosen}{self._rng.randrange(6)}" if chosen.endswith("#") else chosen

    def member(self) -> str:
        return self._broker() if self._rng.random() < 0.6 else self._controller()

    def around_session_ms(self) -> float:
        """Returns a time from far under to far over the session timeout."""
        return self._session_ms * self._rng.choice((0.02, 0.2, 0.8, 1.1, 1.5, 3.0)) * self._rng.uniform(0.8, 1.2)

    def pattern(self, kind: str) -> Callable[[float], list[Action]]:
        """Returns the method that draws a kind of fault."""
        found: Callable[[float], list[Action]] = getattr(self, kind.replace(" ", "_"))
        return found

    # -- single faults -------------------------------------------------------------------------------------------------

    def kill(self, at_ms: float) -> list[Action]:
        args = {"node": self.member(), "restart_after_ms": self.around_session_ms()}
        return [Action("kill", at_ms=at_ms, args=args)]

    def lossy_kill(self, at_ms: float) -> list[Action]:
        args = {"node": self._broker(), "restart_after_ms": self.around_session_ms(), "lossy": self._rng.random()}
        return [Action("kill", at_ms=at_ms, args=args)]

    def kill_all(self, at_ms: float) -> list[Action]:
        times = [self._rng.uniform(0, 2 * self._session_ms) for _ in range(self._brokers + self._controllers)]
        return [Action("kill all", at_ms=at_ms, args={"restart_after_ms": times})]

    def stop(self, at_ms: float) -> list[Action]:
        args = {"node": self.member(), "restart_after_ms": self.around_session_ms()}
        return [Action("stop", at_ms=at_ms, args=args)]

    def pause(self, at_ms: float) -> list[Action]:
        return [Action("pause", at_ms=at_ms, args={"node": self.member(), "for_ms": self.around_session_ms()})]

    def slow(self, at_ms: float) -> list[Action]:
        delay_ms = self._rng.choice((1.0, 10.0, 100.0))
        args = {"node": self.member(), "delay_ms": delay_ms, "for_ms": self._rng.uniform(1_000, 20_000)}
        return [Action("slow", at_ms=at_ms, args=args)]

    def clock(self, at_ms: float) -> list[Action]:
        args = {
            "node": self.member(),
            "offset_ms": self._rng.choice((-3_600_000.0, -1_000.0, 1_000.0, 3_600_000.0)),
            "rate": self._rng.choice((0.9, 1.0, 1.1)),
            "for_ms": self._rng.uniform(1_000, 60_000),
        }
        return [Action("clock", at_ms=at_ms, args=args)]

    def cut(self, at_ms: float) -> list[Action]:
        args = {
            "node": self.member(),
            "for_ms": self.around_session_ms(),
            "direction": self._rng.choice(("both", "in", "out")),
            "deliver": self._rng.random() < 0.5,
        }
        if self._rng.random() < 0.5:
            args["to"] = self.member()
        return [Action("cut", at_ms=at_ms, args=args)]

    def hold(self, at_ms: float) -> list[Action]:
        args = {
            "node": self.member(),
            "for_ms": self._session_ms * self._rng.uniform(0.5, 5),
            "direction": self._rng.choice(("both", "in", "out")),
        }
        return [Action("hold", at_ms=at_ms, args=args)]

    def lose(self, at_ms: float) -> list[Action]:
        args = {"rate": self._rng.choice((0.05, 0.3)), "for_ms": self._rng.uniform(1_000, 20_000)}
        return [Action("lose", at_ms=at_ms, args=args)]

    def start_twice(self, at_ms: float) -> list[Action]:
        """A broker's id is started twice, and then perhaps the first one loses its registration."""
        node, for_ms = self._broker(), self._session_ms * self._rng.uniform(0.5, 6)
        twice = Action("start twice", at_ms=at_ms, args={"broker": node, "for_ms": for_ms})
        pause = {"node": node, "for_ms": self._session_ms * self._rng.uniform(1.1, 3)}
        then: list[list[Action]] = [
            [],
            [Action("expire", at_ms=at_ms + 1_000, args={"node": node})],
            [Action("pause", at_ms=at_ms + 1_000, args=pause)],
        ]
        return [twice, *self._rng.choice(then)]

    def expire(self, at_ms: float) -> list[Action]:
        return [Action("expire", at_ms=at_ms, args={"node": self.member()})]

    def stop_store(self, at_ms: float) -> list[Action]:
        return [Action("stop store", at_ms=at_ms, args={"for_ms": self.around_session_ms()})]

    def cut_store(self, at_ms: float) -> list[Action]:
        args = {
            "node": self.member(),
            "for_ms": self.around_session_ms(),
            "direction": self._rng.choice(("both", "in", "out")),
            "deliver": self._rng.random() < 0.5,
        }
        return [Action("cut store", at_ms=at_ms, args=args)]

    def fail_store(self, at_ms: float) -> list[Action]:
        """Operations fail, and events are late, doubled or coalesced."""
        rate = self._rng.choice((0.03, 0.1, 0.25))
        rates = {name: rate for name in _STORE_FAULTS if self._rng.random() < 0.5}
        if "late_events" in rates:
            rates["late_ms"] = self._rng.choice((20.0, 1_000.0, 2 * self._session_ms))
        return [Action("fail store", at_ms=at_ms, args={"rates": rates, "for_ms": self._rng.uniform(1_000, 30_000)})]

    # -- schedules -----------------------------------------------------------------------------------------------------

    def zombie(self, at_ms: float) -> list[Action]:
        """The active controller is paused past its session while requests wait for it."""
        for_ms = self._session_ms * self._rng.uniform(1.05, 2.5)
        request = {"kind": "preferred", "to": "active controller"}
        pause = {"node": "active controller", "for_ms": for_ms}
        return [
            Action("elect", at_ms=at_ms, args=request),
            Action("pause", at_ms=at_ms + self._rng.uniform(0, 10), args=pause),
        ]

    def sleepwalk(self, at_ms: float) -> list[Action]:
        """A session ends at the server, and its client learns of it late."""
        notify_ms = self._rng.choice((10.0, 100.0, 1_000.0, 3 * self._session_ms)) * self._rng.uniform(0.5, 1)
        node = self._controller() if self._rng.random() < 0.7 else self._broker()
        return [Action("expire", at_ms=at_ms, args={"node": node, "notify_after_ms": notify_ms})]

    def store_island(self, at_ms: float) -> list[Action]:
        """The active controller is cut from the store but not from the brokers, or the reverse."""
        for_ms = self._session_ms * self._rng.uniform(0.8, 4)
        node = {"node": "active controller", "for_ms": for_ms, "deliver": self._rng.random() < 0.5}
        return [Action(self._rng.choice(("cut store", "cut")), at_ms=at_ms, args=node)]

    def bounce(self, at_ms: float) -> list[Action]:
        """A broker restarts within one detection interval, once or several times; perhaps another one just after it,
        so that the controller processes the one restart during the other. Often the controller is paused meanwhile,
        and learns of both ends of a restart at once."""
        rng, ends_session = self._rng, self._rng.random() < 0.7
        interval_ms = rng.choice((400, 1_500, 4_000))
        actions = []
        if rng.random() < 0.6:
            pause = {"node": "active controller", "for_ms": rng.choice((100.0, 1_000.0, 0.8 * self._session_ms))}
            actions.append(Action("pause", at_ms=at_ms, args=pause))
        for node in [self._broker() for _ in range(rng.choice((1, 2)))]:
            for number in range(rng.randint(1, 5)):
                args = {"node": node, "restart_after_ms": rng.uniform(0, rng.choice((5, 300)))}
                kill_ms = at_ms + interval_ms * number + rng.uniform(0, 50)
                actions.append(Action("kill", at_ms=kill_ms, args=args | {"ends_session": ends_session}))
        return actions

    def swizzle(self, at_ms: float) -> list[Action]:
        """The links of some members stop one after another, and are restored in another order."""
        members = [self.member() for _ in range(self._rng.randint(2, 4))]
        return [
            Action(
                "cut",
                at_ms=at_ms + 500 * number,
                args={"node": node, "for_ms": self._rng.uniform(2_000, 4 * self._session_ms), "deliver": True},
            )
            for number, node in enumerate(members)
        ]

    def election_storm(self, at_ms: float) -> list[Action]:
        """Controllers resign or lose their sessions several times within one session timeout."""
        step_ms = self._session_ms / 5
        return [
            Action("resign", at_ms=at_ms + step_ms * number, args={"to": "active controller"})
            if self._rng.random() < 0.5
            else Action("expire", at_ms=at_ms + step_ms * number, args={"node": "active controller"})
            for number in range(self._rng.randint(3, 5))
        ]

    def rolling_restart(self, at_ms: float) -> list[Action]:
        """All brokers restart in turn."""
        verb = self._rng.choice(("stop", "kill"))
        pause_ms = self._rng.uniform(500, 2 * self._session_ms)
        return [
            Action(
                verb,
                at_ms=at_ms + pause_ms * (broker - 1),
                args={"node": f"broker {broker}", "restart_after_ms": self._rng.uniform(100, pause_ms)},
            )
            for broker in range(1, self._brokers + 1)
        ]

    def replace(self, at_ms: float) -> list[Action]:
        """A broker is lost, perhaps for good; operators create topics meanwhile, and move its partitions away."""
        rng, node = self._rng, f"broker {self._rng.randint(1, self._brokers)}"
        lost_ms = self._session_ms * rng.uniform(2, 15)
        kill = Action("kill", at_ms=at_ms, args={"node": node, "restart_after_ms": lost_ms})
        return [kill, *self._replacement(node, at_ms, at_ms + 1.1 * lost_ms)]

    def lost(self, node: str, duration_ms: float) -> list[Action]:
        """A broker fails for good before the other faults end. It is replaced at any time, often at the very end."""
        at_ms = self._rng.uniform(0.2, 0.95) * duration_ms
        kill = Action("kill", at_ms=at_ms, args={"node": node, "restart_after_ms": 10 * duration_ms})
        latest_ms = duration_ms - min(self._rng.expovariate(1 / 3_000.0), duration_ms - at_ms)
        return [kill, *self._replacement(node, at_ms, latest_ms)]

    def _replacement(self, node: str, begin_ms: float, end_ms: float) -> list[Action]:
        """Operators create topics on a broker that is down, and then move its partitions away."""
        rng, actions = self._rng, []
        for _ in range(rng.randint(0, 2)):
            replicas = [[int(node.split()[1])], rng.sample(range(1, self._brokers + 1), 2)]
            args = {"topic": f"t{rng.randint(1, 8)}", "replicas": replicas[: rng.randint(1, 2)]}
            actions.append(Action("create", at_ms=rng.uniform(begin_ms, end_ms), args=args))
        evacuate = {"broker": node, "turn": rng.randrange(10), "to": "active controller"}
        share = rng.choice((rng.random(), 1.0))
        return [*actions, Action("evacuate", at_ms=begin_ms + share * (end_ms - begin_ms), args=evacuate)]

    def twin_kill(self, at_ms: float) -> list[Action]:
        """The controller fails while a broker that has restarted returns to its ISRs, and the broker restarts again
        before or after the next controller has taken over."""
        rng, broker = self._rng, {"node": self._broker(), "ends_session": True}
        restart_ms = rng.uniform(0, 300)
        controller_ms = at_ms + restart_ms + rng.uniform(0, 1_500)
        again_ms = controller_ms + rng.choice((1_000.0, self._session_ms, 2 * self._session_ms)) * rng.random()
        controller = {"node": "active controller", "restart_after_ms": 2 * self._session_ms}
        return [
            Action("kill", at_ms=at_ms, args=broker | {"restart_after_ms": restart_ms}),
            Action("kill", at_ms=controller_ms, args=controller),
            Action("kill", at_ms=again_ms, args=broker | {"restart_after_ms": rng.uniform(0, 500)}),
        ]

    def pair_kill(self, at_ms: float) -> list[Action]:
        """The controller and a follower die together, some time after a reassignment has begun."""
        partition = f"any partition #{self._rng.randrange(100)}"
        target = self._rng.sample(range(1, self._brokers + 1), 2)
        delay_ms = self._rng.choice((1.0, 5.0, 20.0, 100.0, 1_000.0)) * self._rng.random()
        restart = {"restart_after_ms": self.around_session_ms()}
        return [
            Action("reassign", at_ms=at_ms, args={"targets": {partition: target}, "to": "active controller"}),
            Action("kill", at_ms=at_ms + delay_ms, args={"node": "active controller"} | restart),
            Action("kill", at_ms=at_ms + delay_ms, args={"node": f"broker {target[0]}"} | restart),
        ]

    def handler_fault(self, at_ms: float) -> list[Action]:
        """A controller is killed, paused, loses its session or fails at a point of its code; or another fault happens
        while it is there."""
        rng = self._rng
        point, hit = rng.choice(POINTS), rng.choice((1, 1, 2, 3, 5))
        if rng.random() < 0.3:
            point = f"{rng.choice(EVENTS)}: {point}"
        if rng.random() < 0.5:
            other = self.pattern(rng.choice(_AT_POINT))(at_ms)[-1]
            return [Action(other.do, at_ms=at_ms, at_point=point, hit=hit, args=other.args)]
        verb = rng.choice(("kill", "pause", "expire", "fail"))
        args: dict[str, Any] = {} if verb == "fail" else {"node": "node at point"}
        if verb == "kill":
            args["restart_after_ms"] = self.around_session_ms()
        elif verb == "pause":
            args["for_ms"] = self.around_session_ms()
        elif verb == "expire":
            args["notify_after_ms"] = rng.choice((0.0, 10.0, self._session_ms))
        return [Action(verb, at_ms=at_ms, at_point=point, hit=hit, args=args)]


# Kinds with their weights among the runs that have a single kind.
KINDS: Final = (
    "kill", "lossy kill", "kill all", "start twice", "stop", "pause", "slow", "clock", "cut", "hold", "lose", "expire",
    "stop store", "cut store", "fail store", "zombie", "sleepwalk", "store island", "bounce", "swizzle",
    "election storm", "rolling restart", "pair kill", "twin kill", "replace", "handler fault",
)  # fmt: skip


_FAILURES: Final = frozenset(("kill", "bounce", "replace", "rolling restart"))


def failing_calls(rng: random.Random, duration_ms: float) -> list[Action]:
    """Returns failing calls of applications, in half of the runs with participants."""
    interval_ms = _INTERVALS_MS[rng.choice(("rare", "medium", "high"))]
    actions: list[Action] = []
    if rng.random() < 0.5:
        at_ms = 5_000 + rng.expovariate(1 / interval_ms)
        while at_ms < duration_ms:
            args = {"broker": f"any broker #{rng.randrange(100)}", "count": rng.choice((1, 1, 2, 5))}
            actions.append(Action("fail calls", at_ms=at_ms, args=args))
            at_ms += rng.expovariate(1 / interval_ms)
    return actions


def faults(rng: random.Random, world: WorldSpec, duration_ms: float) -> tuple[dict[str, str], list[Action]]:
    """Returns the rates of the chosen kinds, and all faults."""
    draw = _Draw(rng, world)
    own = STORE_KINDS[world.store]
    of_store = StorePatterns(
        rng,
        member=draw.member,
        around_session_ms=draw.around_session_ms,
        members=world.brokers.count + world.controllers,
    )
    swarm = _swarm(rng, (*KINDS, *own))
    patterns = {kind: of_store.pattern(kind) if kind in own else draw.pattern(kind) for kind in swarm}
    actions: list[Action] = []
    for kind, rate in swarm.items():
        at_ms = 5_000 + rng.expovariate(1 / _INTERVALS_MS[rate])
        while at_ms < duration_ms:
            actions += patterns[kind](at_ms)
            at_ms += rng.expovariate(1 / _INTERVALS_MS[rate])
    if swarm and rng.random() < 0.5:
        # No later fault hides what this one leaves behind.
        last_ms = duration_ms - min(5_000.0, rng.expovariate(1 / 1_000.0))
        actions += patterns[rng.choice(list(swarm))](last_ms)
    return swarm, [action for action in actions if action.at_ms < duration_ms]


def loss(rng: random.Random, world: WorldSpec, node: str, duration_ms: float) -> list[Action]:
    """Returns the actions around a broker that fails for good."""
    return _Draw(rng, world).lost(node, duration_ms)


def _swarm(rng: random.Random, kinds: Sequence[str]) -> dict[str, str]:
    sort = rng.random()
    if sort < 0.05:
        return {}
    if sort < 0.15:
        return {rng.choice(kinds): "high"}
    swarm = {kind: rng.choice(("rare", "rare", "medium", "high")) for kind in kinds if rng.random() < 0.5}
    # Without failures of brokers partitions hardly change, and most other faults meet a cluster at rest.
    if not _FAILURES.intersection(swarm):
        swarm[rng.choice(sorted(_FAILURES))] = rng.choice(("medium", "high"))
    return swarm
