"""Sessions of participants with the controller over tcp: failover of the controller, and an orderly end."""

import anyio
import pytest

import kactl
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.testing.contracts.link_support import until

pytestmark = pytest.mark.anyio

SECRET = b"sixteen bytes or more"
SESSION_MS = 6_000


def network(**arguments: object) -> kactl.TcpNetwork:
    return kactl.TcpNetwork(secret=SECRET, **arguments)  # type: ignore[arg-type]


async def test_participant_without_a_store_keeps_its_leadership_over_two_controllers() -> None:
    state = MemoryState()
    first, second = network(listen="127.0.0.1:0"), network(listen="127.0.0.1:0")
    with anyio.fail_after(60):
        async with (
            kactl.Controller(100, store=MemoryStore(state), network=first) as active,
            kactl.Controller(101, store=MemoryStore(state), network=second),
        ):
            await active.wait_active()
            controllers = [str(first.address), str(second.address)]
            async with kactl.Participant(
                1, controllers=controllers, network=network(), session_timeout_ms=SESSION_MS
            ) as one:
                epoch = await one.wait_linked()
                assert epoch == one.epoch
                await active.create_topic("orders", assignment={0: [1]})
                await until(lambda: one.leadership("orders-0") is not None)
                leader = one.leadership("orders-0")
                assert leader is not None
                ends_ms = leader.remaining_ms()

                await active.resign()
                await until(lambda: one.controller_epoch > leader.token.controller_epoch)
                await until(lambda: leader.remaining_ms() > ends_ms - SESSION_MS / 10)

                leader.check()
                assert one.epoch == epoch
                assert state.brokers[1][0].session == "controller"
            assert state.brokers == {}
