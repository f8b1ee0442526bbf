"""The budget of work: one account for each principal, which all servers charge before the work.

`charge` takes the price of a request before its work, or returns an Excess, with the unit and the time to wait.
`settle` takes afterwards what the work has used beyond its price.

An account is a token bucket. As in Kafka's quotas a charge is accepted while anything is left, and may overdraw, so
that one request larger than the balance is possible after a pause. A peer whose principal is not known has an account
for its address, or IPv6 network. Administrators and brokers are charged like all others, and are never turned away.
"""

import enum
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from .addresses import group_of

if TYPE_CHECKING:
    from kactl.security.access import Principal

T = TypeVar("T")

# Balances that are remembered; the one that was charged least recently is forgotten, and begins anew as a full one.
BALANCES_MAX: Final = 10_000


class Unit(enum.Enum):
    """What a principal can use up. The value completes the sentence "too many … come from User:alice"."""

    READS = "reads"
    CHANGES = "changes"
    REQUESTS = "requests"
    PARTITIONS = "partitions that are created and deleted"
    WORK = "milliseconds of work"
    STRANGE = "requests without a valid credential"
    FAILURES = "failed logins"
    PASSWORDS = "checks of passwords"
    CONNECTIONS = "new connections"


class Rate(NamedTuple):
    """What may be used in a second on average, and at once after a pause."""

    per_s: float
    burst: float


# Of units that a server sets no rate for. Work is in milliseconds: one principal may use a quarter of the event loop.
RATES: Final[Mapping[Unit, Rate]] = {
    Unit.REQUESTS: Rate(200, 400),
    Unit.PARTITIONS: Rate(100, 10_000),
    Unit.WORK: Rate(250, 5_000),
    Unit.STRANGE: Rate(20, 100),
    Unit.FAILURES: Rate(10 / 60, 10),
    Unit.PASSWORDS: Rate(5, 10),
    Unit.CONNECTIONS: Rate(50, 200),
}


class Excess(NamedTuple):
    """A charge that was not accepted; nothing was taken.

    Attributes:
        wait_s: the time after which it can be repeated; positive.
    """

    unit: Unit
    wait_s: float


class Budget:
    """The accounts of one process.

    Args:
        now_s: a monotonic clock.
        thread_s: the processor time of the calling thread.
    """

    def __init__(self, now_s: Callable[[], float], thread_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._thread_s = thread_s
        self._rates = dict(RATES)
        # The balance, and the time at which it was counted; the one that was charged most recently is last.
        self._left: OrderedDict[tuple[str, Unit], tuple[float, float]] = OrderedDict()

    def limit(self, unit: Unit, rate: Rate) -> None:
        """Set a rate. A unit without a rate, or with one of 0, is not limited."""
        self._rates[unit] = rate

    def charge(self, account: str, amounts: Mapping[Unit, float], *, is_free: bool = False) -> Excess | None:
        """Take the price of a request before its work. Returns None, or why nothing was taken.

        Args:
            is_free: the account is charged, and not turned away.
        """
        return self.charge_each(account, [*amounts], [(*amounts.values(),)], is_free=is_free)[0]

    def charge_each(
        self, account: str, units: Sequence[Unit], prices: Sequence[Sequence[float]], *, is_free: bool = False
    ) -> list[Excess | None]:
        """Take the prices of the parts of a request, in this order. Returns for each what `charge` would return.

        Args:
            prices: of each part, one amount for each of the units.
        """
        left = [self._balance(account, unit) for unit in units]
        before, excesses = tuple(left), list[Excess | None]()
        for price in prices:
            if not is_free and any(balance < 1 for balance in left):
                excesses.append(self._excess(units, left))
                continue
            excesses.append(None)
            for position, amount in enumerate(price):
                left[position] -= amount
        for unit, balance, rest in zip(units, before, left, strict=True):
            if rest != balance:
                self.settle(account, unit, balance - rest)
        return excesses

    def _excess(self, units: Sequence[Unit], left: Sequence[float]) -> Excess:
        used_up = [
            Excess(unit, (1 - balance) / self._rates[unit].per_s)
            for unit, balance in zip(units, left, strict=True)
            if balance < 1
        ]
        return max(used_up, key=lambda excess: excess.wait_s)

    def overdraft_s(self, account: str, unit: Unit) -> float:
        """Returns the time until an account is not overdrawn any more; 0 if it is not."""
        balance = self._balance(account, unit)
        return -balance / self._rates[unit].per_s if balance < 0 else 0.0

    def settle(self, account: str, unit: Unit, amount: float) -> None:
        """Take an amount, whatever is left. A negative one is given back."""
        if not self._is_limited(unit):
            return
        self._left[account, unit] = (self._balance(account, unit) - amount, self._now_s())
        self._left.move_to_end((account, unit))
        if len(self._left) > BALANCES_MAX:
            self._left.popitem(last=False)

    async def metered(self, account: str, work: Awaitable[T], *, paid_ms: float) -> T:
        """Carry out work, and settle the processor time of its steps beyond what was charged before, after each."""

        def settle(used_s: float) -> None:
            nonlocal paid_ms
            paid_ms -= used_s * 1_000
            if paid_ms < 0:
                self.settle(account, Unit.WORK, -paid_ms)
                paid_ms = 0.0

        return await Metered(work, self._thread_s, settle)

    def _is_limited(self, unit: Unit) -> bool:
        return unit in self._rates and self._rates[unit].per_s > 0

    def _balance(self, account: str, unit: Unit) -> float:
        if not self._is_limited(unit):
            return math.inf
        rate, now_s = self._rates[unit], self._now_s()
        left, then_s = self._left.get((account, unit), (rate.burst, now_s))
        return min(rate.burst, left + (now_s - then_s) * rate.per_s)


def account_of(principal: "Principal") -> str:
    """Returns the account of a principal: its label, or the address or IPv6 network of a peer without identity."""
    return principal.label if principal.is_authenticated else group_of(principal.peer)


class Metered(Generic[T]):
    """An awaitable that measures the processor time of its steps, and not what runs between them.

    Args:
        used: called after each step, with its time in s.
    """

    def __init__(self, work: Awaitable[T], thread_s: Callable[[], float], used: Callable[[float], None]) -> None:
        self._work = work
        self._thread_s = thread_s
        self._used = used

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step: Callable[[Any], Any] = steps.send
        sent: Any = None
        while True:
            begun_s = self._thread_s()
            try:
                awaited = step(sent)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._used(self._thread_s() - begun_s)
            try:
                sent = yield awaited
                step = steps.send
            except BaseException as error:  # also the end of the task, which the work has to see
                step, sent = steps.throw, error
