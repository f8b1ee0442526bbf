"""Ownership topics of a run, and what moves their shards: participants that join, leave and are replaced in turn."""

import random
from collections.abc import Callable
from typing import Any, Final

from tests.sim.engine.script import Action, WorldSpec

from .schedules import Schedules

TOPICS: Final = ("o1", "o2", "o3")
_ACTIVE: Final = "active controller"
# How many changes of one kind a run has on average.
_COUNTS: Final = (1, 2, 4)
_INTERVAL_MS_MIN: Final = 4_000.0


def draw_owners(rng: random.Random, world: WorldSpec) -> None:
    """Draw the settings of a world with ownership topics. Their owners are handlers."""
    world.brokers.handlers = True
    world.settings["participant_balance_ms"] = rng.choice((500, 3_000))
    if world.brokers.level in ("2.6", "2.7"):
        world.brokers.level = "3.9"  # ownership topics need ids


def ownership(rng: random.Random, world: WorldSpec, duration_ms: float) -> list[Action]:
    """Returns the topics of a run, and each kind of change in half of the runs, with a rate of its own."""
    draw = _Patterns(rng, world)
    actions = [draw.topic(name, rng.uniform(0, 3_000)) for name in TOPICS[: rng.randint(1, 2)]]
    kinds: list[Callable[[float], list[Action]]] = [
        draw.joins, draw.deploy, draw.again, draw.halves, draw.grows, draw.poison,
    ]  # fmt: skip
    for kind in kinds:
        interval_ms = max(_INTERVAL_MS_MIN, duration_ms / rng.choice(_COUNTS))
        if rng.random() < 0.5:
            at_ms = 1_000 + rng.expovariate(1 / interval_ms)
            while at_ms < duration_ms:
                actions += kind(at_ms)
                at_ms += rng.expovariate(1 / interval_ms)
    return [action for action in actions if action.at_ms < duration_ms]


class _Patterns(Schedules):
    """Each method returns actions that begin at a time."""

    def topic(self, name: str, at_ms: float) -> Action:
        return Action("create", at_ms=at_ms, args=self._args(name))

    def _args(self, name: str) -> dict[str, Any]:
        shards, standby = self.rng.choice((1, 3, 6, 12)), self.rng.choice((0, 0, 1, 2))
        return {"topic": name, "partitions": shards, "standby": standby, "to": _ACTIVE}

    def joins(self, at_ms: float) -> list[Action]:
        """Some participants are down for a while, and start at almost the same time."""
        rng = self.rng
        down_ms = self.session_ms * rng.uniform(1.2, 3)
        some = rng.sample(range(1, self.brokers + 1), rng.randint(1, self.brokers - 1))
        return [
            Action(
                rng.choice(("kill", "stop")),
                at_ms=at_ms + rng.uniform(0, 100),
                args={"node": f"broker {broker}", "restart_after_ms": down_ms + rng.uniform(0, 500)},
            )
            for broker in some
        ]

    def deploy(self, at_ms: float) -> list[Action]:
        """All participants are replaced, one after the other, or in pairs; perhaps the controller, too."""
        rng, step_ms = self.rng, self.rng.choice((200.0, 1_000.0, 4_000.0))
        actions = [
            Action(
                "stop",
                at_ms=at_ms + step_ms * (number // rng.choice((1, 1, 2))),
                args={"node": f"broker {broker}", "restart_after_ms": rng.uniform(0, step_ms)},
            )
            for number, broker in enumerate(range(1, self.brokers + 1))
        ]
        if rng.random() < 0.4:
            verb = rng.choice(("resign", "kill"))
            target: dict[str, Any] = {"to": _ACTIVE}
            if verb == "kill":
                target = {"node": _ACTIVE, "restart_after_ms": 2 * self.session_ms, "ends_session": rng.random() < 0.5}
            actions.append(Action(verb, at_ms=at_ms + step_ms * self.brokers * rng.random(), args=target))
        return actions

    def again(self, at_ms: float) -> list[Action]:
        """A topic is deleted and created again, with other numbers, or a third one is created."""
        rng = self.rng
        if rng.random() < 0.3:
            return [self.topic(TOPICS[-1], at_ms)]
        args = self._args(rng.choice(TOPICS)) | {"removal": "delete", "after_ms": rng.choice((10.0, 500.0, 5_000.0))}
        return [Action("recreate", at_ms=at_ms, args=args)]

    def grows(self, at_ms: float) -> list[Action]:
        """A topic gets another shard."""
        return [Action("grow", at_ms=at_ms, args={"topic": self.rng.choice(TOPICS[:2]), "to": _ACTIVE})]

    def poison(self, at_ms: float) -> list[Action]:
        """A shard fails at every participant, which calls it again, until another one gets it."""
        rng = self.rng
        args = {
            "topic": rng.choice(TOPICS[:2]),
            "partition": rng.randrange(3),
            "phase": rng.choice(("lead", "lead", "prepare")),
            "what": rng.choice(("raise", "raise", "not ready")),
            "for_ms": rng.uniform(1_000, 40_000),
        }
        return [Action("poison", at_ms=at_ms, args=args)]

    def halves(self, at_ms: float) -> list[Action]:
        """Some participants lose their ways to the controllers for a while, and perhaps to the others."""
        rng, for_ms = self.rng, self.session_ms * self.rng.choice((0.3, 1.0, 2.5)) * self.rng.uniform(0.8, 1.2)
        some = rng.sample(range(1, self.brokers + 1), rng.randint(1, max(1, self.brokers // 2)))
        cut = {"for_ms": for_ms, "direction": rng.choice(("both", "both", "in", "out")), "deliver": rng.random() < 0.5}
        return [Action("cut", at_ms=at_ms, args=cut | {"node": f"broker {broker}"}) for broker in some]
