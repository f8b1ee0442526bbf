"""Starts of brokers with an error at the end of their handling, which is repeated later."""

import pytest

from kactl.actors.controller import RETRY_LATER_MS
from kactl.actors.handlers.brokers import BrokerEvents
from kactl.decide.messages.control import LeaderAndIsr, StopReplica
from kactl.decide.messages.log import BrokerEvent
from tests.actors.metadata import alive, block_loop
from tests.support.clocks import settle
from tests.support.controller_harness import World, partitions_of, world

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def failures(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The errors of the next starts, each raised after everything has been sent."""
    handle = BrokerEvents.on_broker_startup
    failures: list[Exception] = []

    async def fails(self: BrokerEvents, brokers: list[int], kind: str) -> None:
        await handle(self, brokers, kind)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(BrokerEvents, "on_broker_startup", fails)
    return failures


async def test_requests_to_delete_replicas_are_sent_again(failures: list[Exception]) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(2)
        await w.delete("t")
        w.brokers.silent.add(2)
        failures.append(ZeroDivisionError("a bug"))
        await w.start(2)
        assert not failures
        assert "t" in await w.store.topics()

        # The channel with the requests is removed.
        w.brokers.silent.discard(2)
        await w.wait(RETRY_LATER_MS)

        request = w.brokers.of(2, StopReplica)[-1]
        assert isinstance(request, StopReplica)
        assert (partitions_of(request), request.delete.tolist()) == (["t-0"], [True])
        assert "t" not in await w.store.topics()
        await w.check()


async def test_broker_that_fails_before_the_retry_loses_its_leaderships(failures: list[Exception]) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2]])
        await w.stop(2)
        failures.append(ZeroDivisionError("a bug"))
        await w.start(2)
        assert not failures
        assert await w.stored("t-0") == (2, 2, (2,))
        assert alive(w.brokers, 1) == [1, 2]

        await w.stop(2)

        assert await w.stored("t-0") == (-1, 3, (2,))
        assert w.controller.snapshot().offline_partitions == 1
        assert alive(w.brokers, 1) == [1]
        await w.wait(RETRY_LATER_MS)
        assert starts_and_failures(w, 2)[-2:] == ["started", "failed"]
        await w.check()


async def test_broker_that_registers_again_before_the_retry_counts_as_bounced(failures: list[Exception]) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2]])
        await w.stop(2)
        failures.append(ZeroDivisionError("a bug"))
        await w.start(2)
        assert await w.stored("t-0") == (2, 2, (2,))

        gate = await block_loop(w)
        await w.start(2)
        gate.set()
        await settle()

        assert starts_and_failures(w, 2)[-3:] == ["started", "failed", "bounced"]
        assert await w.stored("t-0") == (2, 4, (2,))
        request = w.brokers.of(2, LeaderAndIsr)[-1]
        assert isinstance(request, LeaderAndIsr)
        assert request.states.leader_epoch.tolist() == [4]
        await w.wait(RETRY_LATER_MS)
        assert starts_and_failures(w, 2)[-1] == "bounced"
        await w.check()


async def test_repeated_start_changes_nothing(failures: list[Exception]) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.stop(2)
        failures.append(ZeroDivisionError("a bug"))
        await w.start(2)
        stored = await w.stored("t-0")

        await w.wait(RETRY_LATER_MS)

        assert starts_and_failures(w, 2)[-2:] == ["started", "started"]
        assert await w.stored("t-0") == stored
        assert sorted(w.controller.cluster.brokers) == [1, 2]
        assert not w.controller.cluster.start_failed
        await w.stop(2)
        assert starts_and_failures(w, 2)[-1] == "failed"
        await w.check()


def starts_and_failures(w: World, broker: int) -> list[str]:
    return [event.what for event in w.events("broker") if isinstance(event, BrokerEvent) and event.broker == broker]
