"""Faults that only one kind of store has."""

import random
from collections.abc import Callable
from typing import Final

from tests.sim.engine.script import Action

from .worlds import Store

# Kinds of faults by kind of store.
KINDS: Final[dict[Store, tuple[str, ...]]] = {
    "memory": (),
    "sqlite": ("disk", "fail statement", "fail commits", "die in transaction", "restart machine", "slow jobs"),
    "zookeeper": ("crash server", "lose quorum", "elect server", "cut server", "lag server", "reset"),
}


class StorePatterns:
    """Patterns of faults; each returns actions that begin at a time.

    Args:
        member: draws the selector of a member.
        around_session_ms: draws a time from far under to far over the session timeout.
        members: number of members.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        member: Callable[[], str],
        around_session_ms: Callable[[], float],
        members: int,
    ) -> None:
        self._rng = rng
        self._member = member
        self._around_session_ms = around_session_ms
        self._members = members

    def pattern(self, kind: str) -> Callable[[float], list[Action]]:
        """Returns the function that draws one occurrence of a kind."""
        drawn: Callable[[float], list[Action]] = getattr(self, kind.replace(" ", "_"))
        return drawn

    def disk(self, at_ms: float) -> list[Action]:
        args = {"state": self._rng.choice(("full", "read-only")), "for_ms": self._around_session_ms()}
        return [Action("disk", at_ms=at_ms, args=args)]

    def fail_statement(self, at_ms: float) -> list[Action]:
        """Some statements fail, one after another."""
        return [
            Action(
                "fail statement",
                at_ms=at_ms + 500.0 * number,
                args={"node": self._member(), "after": self._rng.randrange(40)},
            )
            for number in range(self._rng.choice((1, 1, 5)))
        ]

    def fail_commits(self, at_ms: float) -> list[Action]:
        args = {"node": self._member(), "count": self._rng.choice((1, 2, 10)), "done": self._rng.random() < 0.5}
        return [Action("fail commits", at_ms=at_ms, args=args)]

    def die_in_transaction(self, at_ms: float) -> list[Action]:
        restart_after_ms = self._around_session_ms()
        args = {
            "node": self._member(),
            "statements": self._rng.randrange(8),
            "restart_after_ms": restart_after_ms,
        }
        return [Action("die in transaction", at_ms=at_ms, args=args)]

    def restart_machine(self, at_ms: float) -> list[Action]:
        times = [self._rng.uniform(0, 20_000) for _ in range(self._members)]
        return [Action("restart machine", at_ms=at_ms, args={"restart_after_ms": times})]

    def slow_jobs(self, at_ms: float) -> list[Action]:
        args = {
            "node": self._member(),
            "job_ms": self._rng.choice((50.0, 500.0, 2_000.0)),
            "for_ms": self._rng.uniform(1_000, 20_000),
        }
        return [Action("slow jobs", at_ms=at_ms, args=args)]

    def crash_server(self, at_ms: float) -> list[Action]:
        args = {"server": self._rng.choice((0, 1, 2, 3)), "for_ms": self._around_session_ms()}
        return [Action("crash server", at_ms=at_ms, args=args)]

    def lose_quorum(self, at_ms: float) -> list[Action]:
        return [Action("lose quorum", at_ms=at_ms, args={"for_ms": self._around_session_ms()})]

    def elect_server(self, at_ms: float) -> list[Action]:
        return [Action("elect server", at_ms=at_ms)]

    def cut_server(self, at_ms: float) -> list[Action]:
        args = {"server": self._rng.choice((0, 1, 2, 3)), "for_ms": self._around_session_ms()}
        return [Action("cut server", at_ms=at_ms, args=args)]

    def lag_server(self, at_ms: float) -> list[Action]:
        args = {"server": self._rng.choice((1, 2, 3)), "lag_ms": self._around_session_ms()}
        return [Action("lag server", at_ms=at_ms, args=args)]

    def reset(self, at_ms: float) -> list[Action]:
        return [Action("reset", at_ms=at_ms, args={"node": self._member()})]
