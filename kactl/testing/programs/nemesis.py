"""Faults of a simulated cluster: drawn from the seed as a list of actions, and carried out while the program runs.

Actions name their targets by selectors, `controller 100`, `node 2` or `active controller`, so that each subset of the
list can be carried out as well.
"""

import random
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..script import Action

if TYPE_CHECKING:
    from .simulated import SimCluster

# The kinds of faults, and the effect of each.
FAULTS: Final = {
    "kill": "a process ends as by kill -9, and is started again after some time",
    "pause": "a process stands still for some time, as in a long garbage collection",
    "slow": "each step of a process is delayed for some time",
    "partition": "a process is cut off from the store, from all others, or from both",
    "controller-move": "the session of the active controller ends, and it learns of that later",
    "lost-answers": "answers of the store are lost for some time",
}

# Mean time between two faults.
INTERVAL_MS: Final = 15_000.0
# Session timeouts are 6 s: faults are shorter and longer than that.
LENGTH_MS: Final = (200.0, 20_000.0)


def draw(rng: random.Random, faults: Collection[str], targets: Sequence[str], duration_ms: float) -> list[Action]:
    """Returns random faults in the order of their times.

    Args:
        faults: kinds; none makes an empty list.
        targets: names of the nodes.

    Raises:
        ValueError: a kind is unknown.
    """
    if unknown := sorted(set(faults) - FAULTS.keys()):
        raise ValueError(f"unknown faults {unknown}: choose from {sorted(FAULTS)}")
    actions: list[Action] = []
    at_ms = rng.expovariate(1 / INTERVAL_MS)
    while faults and at_ms < duration_ms:
        actions.append(_action(rng, rng.choice(sorted(set(faults))), targets, round(at_ms)))
        at_ms += rng.expovariate(1 / INTERVAL_MS)
    return actions


def _action(rng: random.Random, kind: str, targets: Sequence[str], at_ms: float) -> Action:
    # As many short faults as long ones, by their order of magnitude.
    low, high = LENGTH_MS
    args: dict[str, Any] = {"for_ms": round(low * (high / low) ** rng.random())}
    match kind:
        case "controller-move":
            args["node"] = "active controller"
        case "partition":
            args["node"] = rng.choice([*targets, "active controller"])
            args["from"] = rng.choice(("store", "network", "both"))
        case _:
            args["node"] = rng.choice([*targets, "active controller"])
    return Action(kind, at_ms=at_ms, args=args)


class Nemesis:
    """Carries out the actions of a script on a cluster.

    Attributes:
        skipped: actions whose target did not exist.
    """

    def __init__(self, cluster: "SimCluster", actions: Sequence[Action]) -> None:
        self._cluster = cluster
        self._is_over = False
        self.skipped = 0
        for action in actions:
            cluster.links.call_at(action.at_ms / 1000, lambda action=action: self._do(action), on=None)  # type: ignore[misc]

    def end(self) -> None:
        """Begin no more faults."""
        self._is_over = True

    def _do(self, action: Action) -> None:
        if self._is_over:
            return
        cluster, args = self._cluster, action.args
        name = cluster.resolve(str(args.get("node", "")))
        if name is None:
            self.skipped += 1
            return
        length_ms = float(args.get("for_ms", 0.0))
        cluster.history.record("fault.begin", node="", fault=action.do, target=name)
        end_s = cluster.loop.now_s + length_ms / 1000
        match action.do:
            case "kill":
                cluster.kill(name)
                self._later(end_s, lambda: cluster.restart(name))
            case "pause":
                cluster.pause(name)
                self._later(end_s, lambda: cluster.resume(name))
            case "slow":
                cluster.slow(name, 50.0)
                self._later(end_s, lambda: cluster.slow(name, 0.0))
            case "partition":
                cluster.cut(name, str(args.get("from", "both")))
                self._later(end_s, lambda: cluster.heal(name))
            case "controller-move":
                cluster.world.expire_session(name, notify_after_ms=length_ms)
            case "lost-answers":
                cluster.world.lost_answers = 0.1
                self._later(end_s, lambda: setattr(cluster.world, "lost_answers", 0.0))

    def _later(self, when_s: float, end: Any) -> None:
        self._cluster.links.call_at(when_s, end, on=None)
