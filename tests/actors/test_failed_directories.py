"""Directories that fail, with an error in the handling of the response or the report."""

import pytest

from kactl.actors.controller import RETRY_LATER_MS
from kactl.actors.handlers.offline import Offline
from kactl.errors import ErrorCode, StoreUnavailable
from kactl.messages.broker import PartitionReport, PartitionsReported
from kactl.model import ReplicaState, ReplicaStatus, TopicPartition
from tests.support.clocks import settle
from tests.support.controller_harness import World, world

from .directory_responses import directory_response
from .failing_steps import fail_once

pytestmark = pytest.mark.anyio

each_error = pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), StoreUnavailable("the store is away")], ids=["bug", "store"]
)
each_moment = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


async def respond(w: World, broker: int, errors: dict[str, int]) -> None:
    w.controller.loop.inbox.put(directory_response(w, broker, errors))
    await settle()


async def fail_directory(w: World, broker: int, *names: str) -> None:
    await respond(w, broker, dict.fromkeys(names, ErrorCode.KAFKA_STORAGE_ERROR))


async def report(w: World, broker: int, status: ReplicaStatus) -> None:
    """Report the status of t-0, as the participant does until there is no error."""
    reports = (PartitionReport(TopicPartition("t", 0), 0, status, recovered=status is ReplicaStatus.READY),)
    await w.controller.ask(PartitionsReported(broker, w.epoch(broker), reports))
    await settle()


@each_error
@each_moment
@pytest.mark.parametrize("parity", [False, True], ids=["", "parity"])
async def test_leader_in_a_failed_directory_is_replaced_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception, after: bool, parity: bool
) -> None:
    async with world(1, 2, parity=parity) as w:
        await w.create("t", [[1, 2], [2, 1]])
        w.brokers.failed_dirs[1] = {"t-0", "t-1"}
        left = fail_once(monkeypatch, Offline, "replicas_offline", error, after=after)
        await fail_directory(w, 1, "t-0", "t-1")
        assert not left

        await w.wait(RETRY_LATER_MS)

        assert await w.stored("t-0") == (2, 1, (2,))
        assert await w.stored("t-1") == (2, 1, (2,))
        for name in ("t-0", "t-1"):
            assert w.known(name).replica_states[1] is ReplicaState.OFFLINE
            assert w.brokers.told(2)[name][:3] == (2, 1, (2,))
        await w.check()


async def test_leader_is_replaced_at_once_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.failed_dirs[1] = {"t-0"}
        fail_once(monkeypatch, Offline, "replicas_offline", StoreUnavailable("the store is away"))

        await fail_directory(w, 1, "t-0")
        await w.wait(1_000)

        assert await w.stored("t-0") == (2, 1, (2,))


@each_moment
async def test_replica_whose_failure_had_no_effect_serves_again(monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    """It is ready before its participant repeats the report of the failure."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        fail_once(monkeypatch, Offline, "replicas_offline", after=after)
        with pytest.raises(ZeroDivisionError):
            await report(w, 1, ReplicaStatus.FAILED)

        await report(w, 1, ReplicaStatus.READY)
        stored = await w.stored("t-0")
        await w.wait(RETRY_LATER_MS)

        assert await w.stored("t-0") == stored
        assert w.known("t-0").replica_states == {1: ReplicaState.ONLINE, 2: ReplicaState.ONLINE}
        assert w.brokers.told(1)["t-0"][1] == stored[1]
        await w.check()
