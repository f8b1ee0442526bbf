"""Restart of the members of an ownership topic one after the other, as by a deploy.

    no restart ──a member stops in order──▶ in progress ──all others replaced, or none of them stopped for long──▶ over
                                                 ▲                                                                  │
                                                 └────one that has not been replaced stops──────────────────────────┘

The members that came before the first stop are still to be replaced. The members that came after it, as many as have
stopped, are the replacements. Ids do not matter: a replacement may have another one.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

# How long the next step may take, in delays of the placement: a minute by default. Programs start and are found healthy
# in less. Steps of a slower restart take about the same time each, so it is waited for twice the longest one so far.
PATIENCE_DELAYS: Final = 20
# A pause that is longer, also in delays, is no step of a restart.
PACE_DELAYS_MAX: Final = 50


class Restart(NamedTuple):
    """A restart, as far as it is known.

    Attributes:
        last_joined: of the member that had come last at the first stop; see `Shards.joined`.
        stopped: the members that have stopped in order since then: id and number.
        came: how many replacements there are.
        delay_ms: of the placement after a member has come.
        step_ms: when the last member stopped or came.
        pace_ms: longest time between two steps.
    """

    last_joined: int
    stopped: frozenset[tuple[int, int]]
    came: int
    delay_ms: float
    step_ms: float
    pace_ms: float = 0.0

    def replacements(self, joined: Mapping[int, int]) -> frozenset[int]:
        """Returns those of the members that have come in place of others."""
        new = sorted((order, member) for member, order in joined.items() if order > self.last_joined)
        return frozenset(member for _, member in new[: len(self.stopped)])

    def members(self, joined: Mapping[int, int]) -> frozenset[int]:
        """Returns the replacements and those that are still to be replaced."""
        old = frozenset(member for member, order in joined.items() if order <= self.last_joined)
        return old | self.replacements(joined)

    def has_old(self, joined: Mapping[int, int]) -> bool:
        """Whether members are still to be replaced."""
        return any(order <= self.last_joined for order in joined.values())

    def left_ms(self, joined: Mapping[int, int], now_ms: float) -> float:
        """How long the restart is in progress from now on, unless another step follows; 0 if it is over."""
        if not self.stopped or not self.has_old(joined):
            return 0.0
        return max(0.0, self.step_ms + max(PATIENCE_DELAYS * self.delay_ms, 2 * self.pace_ms) - now_ms)

    def seen(self, joined: Mapping[int, int], now_ms: float) -> "Restart":
        """Returns the restart after a look at the members."""
        # One that has stayed nevertheless has not stopped.
        stopped = frozenset((member, order) for member, order in self.stopped if joined.get(member) != order)
        found = self._replace(stopped=stopped)
        came = len(found.replacements(joined))
        return (found._step(now_ms) if came > self.came else found)._replace(came=came)

    def _step(self, now_ms: float) -> "Restart":
        since_ms = now_ms - self.step_ms
        pace_ms = max(self.pace_ms, since_ms) if since_ms <= PACE_DELAYS_MAX * self.delay_ms else self.pace_ms
        return self._replace(step_ms=now_ms, pace_ms=pace_ms)


def stopped(
    restart: Restart | None, member: int, joined: Mapping[int, int], *, now_ms: float, delay_ms: float
) -> Restart:
    """Returns the restart after a member has begun to stop in order. Another one begins if all of the last one are
    replaced.

    Args:
        joined: all members, also the one that stops.
    """
    others = {id_: order for id_, order in joined.items() if id_ != member}
    step = member, joined[member]
    if restart is None or not (restart.has_old(joined) and others):
        return Restart(max(joined.values()), frozenset([step]), 0, delay_ms, now_ms)
    if step in restart.stopped:
        return restart
    return restart._step(now_ms)._replace(stopped=restart.stopped | {step})
