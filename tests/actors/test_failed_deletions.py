"""Responses to requests to delete replicas, with an unexpected error in their handling."""

import pytest

from kactl.actors.handlers.deletion import Deletion
from kactl.decide.state.deletion_blockers import BlockerReason
from kactl.model.errors import ErrorCode
from tests.support.controller_harness import world

from .failing_steps import fail_once

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["complete_replica_deletion", "_complete"])
async def test_topic_is_deleted_although_a_response_was_not_handled(
    monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [2, 1]])
        left = fail_once(monkeypatch, Deletion, step, after=after)

        await w.delete("t")

        assert not left
        assert "t" not in await w.store.topics()
        assert not w.controller.cluster.deletion_unanswered
        await w.check()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_failed_deletion_is_found_although_its_response_was_not_handled(
    monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.undeletable = {1: {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}}
        left = fail_once(monkeypatch, Deletion, "fail_replica_deletion", after=after)

        await w.delete("t")

        assert not left
        (blocker,) = w.controller.cluster.deletion_ineligible["t"]
        assert (blocker.reason, blocker.brokers) == (BlockerReason.REPLICA_FAILED, (1,))
        await w.check()
