"""Brokers that count as live again after a shutdown request, with an error in the handling of the event."""

import pytest

from kactl.actors.handlers.brokers import BrokerEvents
from kactl.actors.handlers.deletion import Deletion
from kactl.actors.handlers.offline import StoppedReplicas
from kactl.model import ReplicaState
from kactl.model.errors import StoreUnavailable
from tests.support.clocks import settle
from tests.support.controller_harness import World, world

from .failing_steps import fail_once

pytestmark = pytest.mark.anyio

LIMIT_MS = 3_000

each_step = pytest.mark.parametrize(
    ("owner", "step"),
    [(StoppedReplicas, "raise_epochs"), (BrokerEvents, "introduce"), (Deletion, "resume_on")],
    ids=["epochs", "state", "deletion"],
)


async def check_serves(w: World) -> None:
    assert not w.controller.cluster.shutting_down
    assert w.known("t-0").replica_states[2] is ReplicaState.ONLINE
    assert w.brokers.told(2)["t-0"][:3] == await w.stored("t-0")
    assert "doomed" not in await w.store.topics()
    await w.check()


@each_step
@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), StoreUnavailable("the store is away")], ids=["bug", "store"]
)
async def test_broker_that_does_not_stop_is_used_later(
    monkeypatch: pytest.MonkeyPatch, owner: type, step: str, error: Exception
) -> None:
    async with world(1, 2, shutdown_limit_ms=LIMIT_MS) as w:
        await w.create("t", [[1, 2]])
        await w.create("doomed", [[2]])
        await w.shut_down(2)
        await w.delete("doomed")
        left = fail_once(monkeypatch, owner, step, error)
        await w.wait(LIMIT_MS)
        assert not left

        await w.wait(LIMIT_MS)

        await check_serves(w)


@each_step
async def test_request_to_restore_can_be_repeated(monkeypatch: pytest.MonkeyPatch, owner: type, step: str) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.create("doomed", [[2]])
        await w.controller.drain(2)
        await w.delete("doomed")
        fail_once(monkeypatch, owner, step)
        with pytest.raises(ZeroDivisionError):
            await w.controller.restore(2)
        assert w.controller.cluster.drained == {2}

        await w.controller.restore(2)
        await settle()

        await check_serves(w)


async def test_request_of_the_broker_expires_although_its_restore_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(1, 2, shutdown_limit_ms=LIMIT_MS) as w:
        await w.create("t", [[1, 2]])
        await w.shut_down(2)
        fail_once(monkeypatch, BrokerEvents, "introduce")
        with pytest.raises(ZeroDivisionError):
            await w.controller.restore(2)

        await w.wait(LIMIT_MS)

        await check_serves(w)
