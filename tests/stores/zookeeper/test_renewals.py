"""Renewals of a participant's session: transactions that check its registration."""

import pytest

from kactl.model.errors import SessionExpired
from kactl.stores.zookeeper import ZooKeeperStore, layout, request
from kactl.stores.zookeeper.session import ZooKeeperSession
from tests.support.store_clients import broker_info

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

SESSION_MS = 10_000
SESSION_MAX_MS = 10_000  # of the server of the tests, whose ticks take 500 ms


async def test_renewal_is_a_transaction_on_the_registration(store: ZooKeeperStore) -> None:
    """A server that follows answers reads and pings by itself, but no transaction."""
    session = await store.new_session(SESSION_MS)
    assert isinstance(session, ZooKeeperSession)
    await session.register(broker_info(1))
    sent = []
    ask = session._client.ask

    async def record(asked: object) -> object:
        sent.append(asked)
        return await ask(asked)

    session._client.ask = record  # type: ignore[method-assign, assignment]
    await session.renew(0)

    path = session._client.path(layout.broker(1))
    assert sent == [request.multi([request.check(path, 1)])]
    assert session.bound.kind == "witnessed"
    await session.close()


async def test_session_has_the_timeout_that_the_server_grants(store: ZooKeeperStore) -> None:
    """A server limits the timeout to twenty ticks. Leases are computed from the granted one."""
    session = await store.new_session(10 * SESSION_MAX_MS)

    assert session.timeout_ms == SESSION_MAX_MS
    await session.close()


@pytest.mark.parametrize("change", ["removed", "rewritten"])
async def test_renewal_fails_if_the_registration_was_changed(store: ZooKeeperStore, change: str) -> None:
    """The session still lives, but the participant is not registered as it believes."""
    session = await store.new_session(SESSION_MS)
    await session.register(broker_info(1))
    await session.renew(0)
    path = store._client.path(layout.broker(1))
    await store._client.ask(request.delete(path) if change == "removed" else request.put(path, b"{}"))

    with pytest.raises(SessionExpired, match="register again"):
        await session.renew(0)

    await session.close()
