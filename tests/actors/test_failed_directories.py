"""Directories that fail and serve again, and ISRs that leaders write, with an error in the handling of the event."""

import numpy as np
import pytest

from kactl.actors.controller import RETRY_LATER_MS
from kactl.actors.handlers.broker_responses import BrokerAnswers
from kactl.actors.handlers.deletion import Deletion
from kactl.actors.handlers.offline import Offline
from kactl.actors.handlers.reassignments import Reassignments
from kactl.actors.handlers.serving_replicas import PAUSES_MS, ServingReplicas
from kactl.decide.messages.broker import PartitionReport, ReportPartitions
from kactl.decide.messages.control import StopReplica
from kactl.model import Assignment, ReplicaState, ReplicaStatus, TopicPartition
from kactl.model.errors import ErrorCode, StoreUnavailable
from tests.support.clocks import settle
from tests.support.controller_harness import World, world

from .directory_responses import directory_response
from .failing_steps import fail_once
from .metadata import metadata_at
from .reassignment_helpers import reassign, stored_assignment

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


async def serve_again(w: World, broker: int, *names: str) -> None:
    await respond(w, broker, dict.fromkeys(names, ErrorCode.NONE))


async def report(w: World, broker: int, status: ReplicaStatus) -> None:
    """Report the status of t-0, as the participant does until there is no error."""
    reports = (PartitionReport(TopicPartition("t", 0), 0, status, recovered=status is ReplicaStatus.READY),)
    await w.controller.ask(ReportPartitions(broker, w.epoch(broker), reports))
    await settle()


# -- failures ----------------------------------------------------------------------------------------------------------


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


async def test_failure_that_is_known_has_no_effect_while_a_retry_is_due() -> None:
    """Otherwise the requests that follow lead to the same response from the other broker, and so on."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.failed_dirs |= {1: {"t-0"}, 2: {"t-0"}}
        await fail_directory(w, 2, "t-0")
        await fail_directory(w, 1, "t-0")
        before = await w.stored("t-0")
        w.controller.cluster.mark_for_retry(w.controller.cluster.table.rows_named([TopicPartition("t", 0)]))

        await fail_directory(w, 1, "t-0")

        assert await w.stored("t-0") == before


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


# -- replicas that serve again -----------------------------------------------------------------------------------------


STEPS = [
    pytest.param(ServingReplicas, "move_many_replicas", False, id="start"),
    pytest.param(ServingReplicas, "move_many_replicas", True, id="started"),
    pytest.param(ServingReplicas, "elect_offline", False, id="election"),
    pytest.param(Reassignments, "resume_on", False, id="reassignments"),
    pytest.param(Deletion, "resume_on", False, id="deletion"),
]


@each_error
@pytest.mark.parametrize(("owner", "step", "after"), STEPS)
async def test_only_replica_leads_again_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception, owner: type, step: str, after: bool
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await w.create("moving", [[2]])
        await w.create("doomed", [[1]])
        w.brokers.failed_dirs[1] = {"t-0", "moving-0", "doomed-0"}
        await fail_directory(w, 1, "t-0", "doomed-0")
        await reassign(w, {"moving-0": [1]})
        await w.delete("doomed")
        assert (await w.stored("t-0"))[0] == -1
        assert "doomed" in await w.store.topics()
        w.brokers.failed_dirs.clear()
        left = fail_once(monkeypatch, owner, step, error, after=after)
        await serve_again(w, 1, "t-0", "moving-0", "doomed-0")
        assert not left

        await w.wait(RETRY_LATER_MS)

        leader, leader_epoch, isr = await w.stored("t-0")
        assert (leader, isr) == (1, (1,))
        assert w.brokers.told(1)["t-0"][:3] == (leader, leader_epoch, isr)
        assert w.known("t-0").replica_states[1] is ReplicaState.ONLINE
        assert "moving-0" in w.brokers.told(1)
        assert "doomed" not in await w.store.topics()
        await w.check()


@pytest.mark.parametrize(("owner", "step", "after"), STEPS[:3])
async def test_only_replica_leads_again_when_its_report_is_repeated(
    monkeypatch: pytest.MonkeyPatch, owner: type, step: str, after: bool
) -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        await report(w, 1, ReplicaStatus.FAILED)
        fail_once(monkeypatch, owner, step, after=after)
        with pytest.raises(ZeroDivisionError):
            await report(w, 1, ReplicaStatus.READY)

        await report(w, 1, ReplicaStatus.READY)

        assert (await w.stored("t-0"))[0] == 1
        assert w.known("t-0").replica_states[1] is ReplicaState.ONLINE
        before = w.controller.history.seq
        await report(w, 1, ReplicaStatus.READY)
        assert [event for event in w.events("partition", "replica") if event.seq > before] == []
        await w.check()


async def test_replica_serves_again_although_the_topic_of_another_is_gone() -> None:
    async with world(1) as w:
        await w.create("gone", [[1]])
        await w.create("t", [[1]])
        # The second start has to wait.
        for _ in range(2):
            await fail_directory(w, 1, "gone-0", "t-0")
            await serve_again(w, 1, "gone-0", "t-0")
        assert w.known("t-0").leader == -1
        await w.store.delete_topics({"gone": np.zeros(1, np.int32)}, w.controller.cluster.fence)
        await settle()
        assert w.controller.cluster.table.topic("gone") is None

        await w.wait(int(PAUSES_MS[0]))

        assert w.known("t-0").leader == 1
        await w.check()


# -- notifications -----------------------------------------------------------------------------------------------------


@each_error
async def test_failed_directory_is_found_later(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.create("moving", [[2]])
        await reassign(w, {"moving-0": [1]})
        w.brokers.failed_dirs[1] = {"t-0", "moving-0"}
        left = fail_once(monkeypatch, BrokerAnswers, "move_many_replicas", error)
        await w.store.notify_log_dir(1)
        await settle()
        assert not left

        await w.wait(RETRY_LATER_MS)

        assert await w.store.log_dir_notifications() == []
        assert await w.stored("t-0") == (2, 1, (2,))
        assert not w.controller.cluster.is_replica_online(1, TopicPartition("moving", 0))
        await w.check()


@each_error
@pytest.mark.parametrize(
    ("owner", "step"),
    [(BrokerAnswers, "_reload"), (Reassignments, "check_complete")],
    ids=["reload", "reassignments"],
)
async def test_written_isr_is_applied_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception, owner: type, step: str
) -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        await reassign(w, {"t-0": [1, 3]})
        left = fail_once(monkeypatch, owner, step, error)
        await w.write_isr("t-0", 1, 2, 3)
        assert not left

        await w.wait(RETRY_LATER_MS)

        assert await w.store.isr_notifications() == []
        assert await stored_assignment(w, "t-0") == Assignment((1, 3))
        assert metadata_at(w.brokers, 2)["t-0"].isr == (1, 3)
        await w.check()


@each_error
@pytest.mark.parametrize(
    ("owner", "step"),
    [(BrokerAnswers, "_reload"), (Reassignments, "check_complete")],
    ids=["reload", "reassignments"],
)
async def test_unassigned_replica_in_a_written_isr_is_stopped_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception, owner: type, step: str
) -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        left = fail_once(monkeypatch, owner, step, error)
        await w.write_isr("t-0", 1, 2, 3)
        assert not left

        await w.wait(RETRY_LATER_MS)

        assert (await w.stored("t-0"))[2] == (1, 2)
        assert len(w.brokers.of(3, StopReplica)) == 2  # the second one deletes it
        assert w.known("t-0").replica_states.keys() == {1, 2}
        assert not w.controller.cluster.reassigning
        await w.check()


async def test_drain_goes_on_after_an_error_in_the_handling_of_an_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.write_isr("t-0", 1)
        await w.controller.drain(1)
        await settle()
        fail_once(monkeypatch, BrokerAnswers, "_reload")
        await w.write_isr("t-0", 1, 2)
        assert (await w.stored("t-0"))[0] == 1

        await w.wait(RETRY_LATER_MS)

        assert (await w.stored("t-0"))[0] == 2
        await w.check()
