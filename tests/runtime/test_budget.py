"""The budget: accounts, what they are charged, and when a charge is accepted again."""

import asyncio
from collections.abc import Awaitable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.admin.routes.route_table import ROUTES
from kactl.decide.messages.routes import Watch
from kactl.decide.messages.sessions import Goodbye, Heartbeat, Identify, Register, VerifyEndpoint
from kactl.runtime.budget import BALANCES_MAX, Budget, Excess, Rate, Unit, account_of
from kactl.runtime.prices import ADMIN_PRICES, KAFKA_PRICES, PARTICIPANT_PRICES
from kactl.security.access import Principal
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.config_apis import CONFIG_APIS
from kactl.transports.kafka.listener.relayed_apis import RELAYED_APIS
from kactl.transports.tcp.rights import RIGHTS, Right

pytestmark = pytest.mark.anyio


class Time:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _budget(clock: Time, rate: Rate, processor: Time | None = None) -> Budget:
    budget = Budget(clock, processor or Time())
    for unit in Unit:
        budget.limit(unit, rate)
    return budget


def test_account_fills_at_its_rate() -> None:
    clock = Time()
    budget = _budget(clock, Rate(per_s=2, burst=3))
    once = {Unit.READS: 1}

    assert [budget.charge("a", once) for _ in range(4)] == [None, None, None, Excess(Unit.READS, 0.5)]
    assert budget.charge("b", once) is None
    clock.now_s = 0.5
    assert [budget.charge("a", once), budget.charge("a", once)] == [None, Excess(Unit.READS, 0.5)]
    clock.now_s = 100
    assert [budget.charge("a", once) is None for _ in range(4)] == [True, True, True, False]


def test_charge_may_overdraw_once_and_is_paid_back() -> None:
    clock = Time()
    budget = _budget(clock, Rate(per_s=10, burst=100))

    assert budget.charge("a", {Unit.WORK: 1_000}) is None
    assert budget.overdraft_s("a", Unit.WORK) == 90
    assert budget.charge("a", {Unit.WORK: 1}) == Excess(Unit.WORK, 90.1)
    clock.now_s = 90.2
    assert budget.charge("a", {Unit.WORK: 1}) is None


def test_charge_of_several_units_takes_all_or_nothing() -> None:
    budget = _budget(Time(), Rate(per_s=1, burst=10))
    budget.charge("a", {Unit.WORK: 50})

    refused = budget.charge("a", {Unit.READS: 5, Unit.WORK: 1})

    assert refused == Excess(Unit.WORK, 41)
    assert budget.charge("a", {Unit.READS: 10}) is None
    assert budget.overdraft_s("a", Unit.READS) == 0


def test_parts_are_charged_in_their_order_until_nothing_is_left() -> None:
    budget = _budget(Time(), Rate(per_s=1, burst=10))

    excesses = budget.charge_each("a", (Unit.WORK, Unit.READS), [(4, 1), (7, 1), (1, 1), (0, 1)])

    assert excesses == [None, None, Excess(Unit.WORK, 2), Excess(Unit.WORK, 2)]
    assert budget.overdraft_s("a", Unit.WORK) == 1
    assert budget.charge("a", {Unit.READS: 1}) is None, "parts that were turned away took nothing"
    assert budget.charge_each("a", (Unit.WORK,), [(5,), (5,)], is_free=True) == [None, None]
    assert budget.overdraft_s("a", Unit.WORK) == 11


def test_administrator_is_charged_and_not_turned_away() -> None:
    budget = _budget(Time(), Rate(per_s=1, burst=10))

    assert [budget.charge("a", {Unit.WORK: 100}, is_free=True) for _ in range(3)] == [None] * 3

    assert budget.overdraft_s("a", Unit.WORK) == 290


def test_unit_with_a_rate_of_zero_is_not_limited() -> None:
    budget = _budget(Time(), Rate(per_s=0, burst=5))

    assert [budget.charge("a", {Unit.PARTITIONS: 1_000}) for _ in range(3)] == [None] * 3
    assert budget.overdraft_s("a", Unit.PARTITIONS) == 0


def test_accounts_are_bounded_and_the_longest_silent_one_is_forgotten() -> None:
    budget = _budget(Time(), Rate(per_s=1, burst=1))
    for number in range(BALANCES_MAX + 1):
        budget.charge(f"client-{number}", {Unit.READS: 1})

    assert budget.charge("client-1", {Unit.READS: 1}) is not None
    assert budget.charge("client-0", {Unit.READS: 1}) is None


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=50))
def test_account_never_gets_more_than_its_rate_and_burst(charges: list[tuple[float, float]]) -> None:
    clock = Time()
    rate = Rate(per_s=5, burst=20)
    budget = _budget(clock, rate)
    taken = 0.0

    for amount, pause_s in charges:
        clock.now_s += pause_s
        excess = budget.charge("a", {Unit.WORK: amount})
        if excess is not None:
            clock.now_s += excess.wait_s + 1e-6
            assert budget.charge("a", {Unit.WORK: amount}) is None, "the wait that was named suffices"
        taken += amount

        assert taken <= rate.burst + rate.per_s * clock.now_s + amount + 1e-6


def test_peer_without_identity_has_the_account_of_its_network() -> None:
    peers = [Principal("", "anonymous", peer=f"2001:db8:{net}::{host}") for net, host in ((1, 1), (1, 2), (2, 1))]

    assert account_of(peers[0]) == account_of(peers[1]) != account_of(peers[2])
    assert account_of(Principal("User:alice", "sasl", peer="10.0.0.1")) == "User:alice"


# -- processor time ----------------------------------------------------------------------------------------------------


async def _works(processor: Time, *steps_s: float, error: type[Exception] | None = None) -> str:
    for step_s in steps_s:
        processor.now_s += step_s
        await asyncio.sleep(0)
    if error is not None:
        raise error
    return "done"


async def test_processor_time_beyond_the_price_is_settled() -> None:
    processor = Time()
    budget = _budget(Time(), Rate(per_s=1, burst=1_000), processor)

    result = await budget.metered("a", _works(processor, 1.0, 0.5, 0.7), paid_ms=200)

    assert result == "done"
    assert budget.overdraft_s("a", Unit.WORK) == pytest.approx(1_000)


async def test_work_below_its_price_costs_its_price() -> None:
    processor = Time()
    budget = _budget(Time(), Rate(per_s=1, burst=100), processor)
    budget.charge("a", {Unit.WORK: 200})

    await budget.metered("a", _works(processor, 0.1), paid_ms=200)

    assert budget.overdraft_s("a", Unit.WORK) == 100


async def test_work_that_fails_or_is_cancelled_is_settled_too() -> None:
    processor = Time()
    budget = _budget(Time(), Rate(per_s=1, burst=100), processor)
    waiting = asyncio.Event()

    async def endless() -> None:
        processor.now_s += 1.0
        waiting.set()
        await asyncio.Event().wait()

    async def carried_out(work: Awaitable[object]) -> None:
        await budget.metered("a", work, paid_ms=0)

    with pytest.raises(LookupError):
        await carried_out(_works(processor, 1.0, error=LookupError))
    task = asyncio.create_task(carried_out(endless()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert budget.overdraft_s("a", Unit.WORK) == pytest.approx(1_900)


# -- prices ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_request_of_every_server_has_a_price() -> None:
    apis = [*APIS.values(), *CONFIG_APIS.values(), *RELAYED_APIS.values()]
    sessions = (Register, Heartbeat, Goodbye, VerifyEndpoint, Identify)
    asked = [request for request, right in RIGHTS.items() if right is not Right.NONE]

    assert ADMIN_PRICES.keys() == {f"{route.method} {route.path}" for route in ROUTES}
    assert KAFKA_PRICES.keys() == {api.name for api in apis}
    kinds: list[type] = [*sessions, *asked, Watch]
    assert PARTICIPANT_PRICES.keys() == {kind.__name__ for kind in kinds} | {"Peer"}


def test_what_a_lease_or_a_probe_depends_on_is_free() -> None:
    free = [ADMIN_PRICES["GET /livez"], ADMIN_PRICES["GET /readyz"], PARTICIPANT_PRICES["Heartbeat"]]

    assert [price.ms(size=1_000) for price in free] == [0.0] * 3
