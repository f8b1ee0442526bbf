"""Single faults of members, of the network and of the store, with drawn parameters."""

import random
from collections.abc import Callable
from typing import Final

from tests.sim.engine.script import Action, WorldSpec

_STORE_FAULTS: Final = (
    "lost_requests", "lost_answers", "refusals", "late_events", "doubled_events", "coalesced_events",
)  # fmt: skip


class SingleFaults:
    """Patterns of faults; each returns actions that begin at a time."""

    def __init__(self, rng: random.Random, world: WorldSpec) -> None:
        self.rng = rng
        self.brokers = world.brokers.count
        self.controllers = world.controllers
        self.session_ms = float(world.settings.get("session_timeout_ms", 6_000))
        # Leases are safe if the rates of any two clocks differ by no more than a tenth. A store's clock is exact.
        self.rates = (0.9, 1.0, 1.1) if world.brokers.sessions == "store" else (0.95, 1.0, 1.05)
        self.request_ms = float(world.settings.get("request_timeout_ms", 5_000))

    def broker(self) -> str:
        return f"any broker #{self.rng.randrange(100)}"

    def controller(self) -> str:
        choices = ("active controller", "active controller", "deposed controller", "any controller #")
        chosen = self.rng.choice(choices)
        return f"{chosen}{self.rng.randrange(6)}" if chosen.endswith("#") else chosen

    def member(self) -> str:
        return self.broker() if self.rng.random() < 0.6 else self.controller()

    def around_session_ms(self) -> float:
        """Returns a time from far under to far over the session timeout."""
        return self.session_ms * self.rng.choice((0.02, 0.2, 0.8, 1.1, 1.5, 3.0)) * self.rng.uniform(0.8, 1.2)

    def pattern(self, kind: str) -> Callable[[float], list[Action]]:
        """Returns the method that draws a kind of fault."""
        found: Callable[[float], list[Action]] = getattr(self, kind.replace(" ", "_").replace("-", "_"))
        return found

    def kill(self, at_ms: float) -> list[Action]:
        args = {"node": self.member(), "restart_after_ms": self.around_session_ms()}
        return [Action("kill", at_ms=at_ms, args=args)]

    def lossy_kill(self, at_ms: float) -> list[Action]:
        args = {"node": self.broker(), "restart_after_ms": self.around_session_ms(), "lossy": self.rng.random()}
        return [Action("kill", at_ms=at_ms, args=args)]

    def kill_all(self, at_ms: float) -> list[Action]:
        times = [self.rng.uniform(0, 2 * self.session_ms) for _ in range(self.brokers + self.controllers)]
        return [Action("kill all", at_ms=at_ms, args={"restart_after_ms": times})]

    def stop(self, at_ms: float) -> list[Action]:
        args = {"node": self.member(), "restart_after_ms": self.around_session_ms()}
        return [Action("stop", at_ms=at_ms, args=args)]

    def pause(self, at_ms: float) -> list[Action]:
        return [Action("pause", at_ms=at_ms, args={"node": self.member(), "for_ms": self.around_session_ms()})]

    def slow(self, at_ms: float) -> list[Action]:
        delay_ms = self.rng.choice((1.0, 10.0, 100.0))
        args = {"node": self.member(), "delay_ms": delay_ms, "for_ms": self.rng.uniform(1_000, 20_000)}
        return [Action("slow", at_ms=at_ms, args=args)]

    def clock(self, at_ms: float) -> list[Action]:
        args = {
            "node": self.member(),
            "offset_ms": self.rng.choice((-3_600_000.0, -1_000.0, 1_000.0, 3_600_000.0)),
            "rate": self.rng.choice(self.rates),
            "for_ms": self.rng.uniform(1_000, 60_000),
        }
        return [Action("clock", at_ms=at_ms, args=args)]

    def cut(self, at_ms: float) -> list[Action]:
        args = {
            "node": self.member(),
            "for_ms": self.around_session_ms(),
            "direction": self.rng.choice(("both", "in", "out")),
            "deliver": self.rng.random() < 0.5,
        }
        if self.rng.random() < 0.5:
            args["to"] = self.member()
        return [Action("cut", at_ms=at_ms, args=args)]

    def hold(self, at_ms: float) -> list[Action]:
        args = {
            "node": self.member(),
            "for_ms": self.session_ms * self.rng.uniform(0.5, 5),
            "direction": self.rng.choice(("both", "in", "out")),
        }
        return [Action("hold", at_ms=at_ms, args=args)]

    def lose(self, at_ms: float) -> list[Action]:
        args = {"rate": self.rng.choice((0.05, 0.3)), "for_ms": self.rng.uniform(1_000, 20_000)}
        return [Action("lose", at_ms=at_ms, args=args)]

    def start_twice(self, at_ms: float) -> list[Action]:
        """A broker's id is started twice, and then perhaps the first one loses its registration."""
        node, for_ms = self.broker(), self.session_ms * self.rng.uniform(0.5, 6)
        twice = Action("start twice", at_ms=at_ms, args={"broker": node, "for_ms": for_ms})
        pause = {"node": node, "for_ms": self.session_ms * self.rng.uniform(1.1, 3)}
        then: list[list[Action]] = [
            [],
            [Action("expire", at_ms=at_ms + 1_000, args={"node": node})],
            [Action("pause", at_ms=at_ms + 1_000, args=pause)],
        ]
        return [twice, *self.rng.choice(then)]

    def expire(self, at_ms: float) -> list[Action]:
        return [Action("expire", at_ms=at_ms, args={"node": self.member()})]

    def stop_store(self, at_ms: float) -> list[Action]:
        return [Action("stop store", at_ms=at_ms, args={"for_ms": self.around_session_ms()})]

    def cut_store(self, at_ms: float) -> list[Action]:
        args = {
            "node": self.member(),
            "for_ms": self.around_session_ms(),
            "direction": self.rng.choice(("both", "in", "out")),
            "deliver": self.rng.random() < 0.5,
        }
        return [Action("cut store", at_ms=at_ms, args=args)]

    def fail_store(self, at_ms: float) -> list[Action]:
        """Operations fail, and events are late, doubled or coalesced."""
        rate = self.rng.choice((0.03, 0.1, 0.25))
        rates = {name: rate for name in _STORE_FAULTS if self.rng.random() < 0.5}
        if "late_events" in rates:
            rates["late_ms"] = self.rng.choice((20.0, 1_000.0, 2 * self.session_ms))
        return [Action("fail store", at_ms=at_ms, args={"rates": rates, "for_ms": self.rng.uniform(1_000, 30_000)})]
