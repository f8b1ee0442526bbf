"""Faults of a run: a swarm of kinds, each with a rate, and each occurrence a pattern with drawn parameters.

The kinds are drawn per run, because rare combinations need runs in which other kinds do not interfere: each kind with
probability 0.5; in a tenth of the runs a single kind at a high rate; in a twentieth none.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Final

from tests.sim.engine.script import Action, WorldSpec

from .pace import Pace
from .schedules import Schedules
from .stores import KINDS as STORE_KINDS
from .stores import StorePatterns

# Mean time between two occurrences.
_INTERVALS_MS: Final[Mapping[str, float]] = {"rare": 120_000.0, "medium": 40_000.0, "high": 10_000.0}

# Kinds with their weights among the runs that have a single kind.
KINDS: Final = (
    "kill", "lossy kill", "kill all", "start twice", "stop", "pause", "slow", "clock", "cut", "hold", "lose", "expire",
    "stop store", "cut store", "fail store", "zombie", "sleepwalk", "store island", "bounce", "swizzle",
    "election storm", "rolling restart", "pair kill", "twin kill", "one-way cut", "stale message", "replace",
    "handler fault", "leader island",
)  # fmt: skip


_FAILURES: Final = frozenset(("kill", "bounce", "replace", "rolling restart"))


def failing_calls(rng: random.Random, duration_ms: float, *, calm: bool = False) -> list[Action]:
    """Returns failing calls of applications, in half of the runs with participants; rare ones in calm runs."""
    rate = rng.choice(("rare", "medium", "high"))
    interval_ms = _INTERVALS_MS["rare" if calm else rate]
    actions: list[Action] = []
    if rng.random() < 0.5:
        at_ms = 5_000 + rng.expovariate(1 / interval_ms)
        while at_ms < duration_ms:
            broker = f"any broker #{rng.randrange(100)}"
            args = {
                "broker": broker,
                "count": rng.choice((1, 1, 2, 5)),
                "stays": rng.random() < 0.3,
            }
            actions.append(Action("fail calls", at_ms=at_ms, args=args))
            if rng.random() < 0.4:
                actions += _unanswered(rng, broker, at_ms)
            at_ms += rng.expovariate(1 / interval_ms)
    return actions


def _unanswered(rng: random.Random, broker: str, at_ms: float) -> list[Action]:
    """Returns the loss of the broker's responses meanwhile, and a change that needs such a response."""
    cut = {
        "node": broker,
        "to": "active controller",
        "for_ms": rng.choice((100.0, 500.0, 2_000.0)) * rng.uniform(0.5, 2),
        "direction": "out",
        "deliver": False,
    }
    other = {"node": f"any broker #{rng.randrange(100)}", "restart_after_ms": rng.uniform(0, 500), "ends_session": True}
    return [Action("cut", at_ms=at_ms, args=cut), Action("kill", at_ms=at_ms + rng.uniform(0, 50), args=other)]


def faults(rng: random.Random, world: WorldSpec, duration_ms: float, pace: Pace) -> tuple[dict[str, str], list[Action]]:
    """Returns the rates of the chosen kinds, and all faults."""
    draw = Schedules(rng, world)
    own = STORE_KINDS[world.store]
    of_store = StorePatterns(
        rng,
        member=draw.member,
        around_session_ms=draw.around_session_ms,
        members=world.brokers.count + world.controllers,
    )
    swarm = _swarm(rng, (*KINDS, *own))
    patterns = {kind: of_store.pattern(kind) if kind in own else draw.pattern(kind) for kind in swarm}
    # Not `sum`, which rounds differently from Python 3.12 on.
    all_per_ms = math.fsum(1 / _INTERVALS_MS[rate] for rate in swarm.values())
    actions: list[Action] = []
    for kind, rate in swarm.items():
        interval_ms = pace.stretched(_INTERVALS_MS[rate], all_per_ms)
        at_ms = 5_000 + rng.expovariate(1 / interval_ms)
        while at_ms < duration_ms:
            actions += patterns[kind](at_ms)
            at_ms += rng.expovariate(1 / interval_ms)
    if swarm and rng.random() < 0.5:
        # No later fault hides what this one leaves behind.
        last_ms = duration_ms - min(5_000.0, rng.expovariate(1 / 1_000.0))
        actions += patterns[rng.choice(list(swarm))](last_ms)
    return swarm, [action for action in actions if action.at_ms < duration_ms]


def loss(rng: random.Random, world: WorldSpec, node: str, duration_ms: float) -> list[Action]:
    """Returns the actions around a broker that fails for good."""
    return Schedules(rng, world).lost(node, duration_ms)


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
