"""Topic deletion under store failures, lost responses and manual changes of the store."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from kactl.actors.handlers import deletion as handler
from kactl.decide.machines.partition import TRANSITIONS
from kactl.decide.messages.events import TopicDeletion
from kactl.decide.messages.log import TopicEvent
from kactl.model import Assignment, Fence, PartitionState, TopicRef
from kactl.model.errors import ControllerMoved, KactlError, SessionExpired, StoreError, StoreUnavailable
from kactl.stores.base import Changed
from tests.actors.deletion_bench import BROKERS, TOPICS, open_deletion_bench
from tests.support.clocks import settle
from tests.support.controller_harness import World, open_standby, world
from tests.support.scripted_store import Real, Step, fails, fails_after, really

pytestmark = pytest.mark.anyio


def topic_event_names(w: World) -> list[str]:
    return [event.what for event in w.events("topic") if isinstance(event, TopicEvent)]


def let(w: World, method: str, *steps: Exception | None, after: bool = False) -> None:
    """Let the next calls of a method of the controller's store fail, except for steps that are None.

    Args:
        after: fail after the call has taken effect.
    """
    real: Callable[..., Awaitable[Any]] = getattr(w.controller.store, method)
    left = list(steps)

    async def call(*arguments: Any, **named: Any) -> Any:
        error = left.pop(0) if left else None
        if error is None or after:
            answer = await real(*arguments, **named)
        if error is not None:
            raise error
        return answer

    setattr(w.controller.store, method, call)


def is_in_the_way(*topics: str) -> Step:
    """Let part of some topics be undeletable; the others are deleted."""

    async def step(real: Real, asked: Mapping[str, Any], fence: Fence) -> Any:
        failed = {topic: StoreError(f"{topic} is still there") for topic in topics if topic in asked}
        assert len(failed) == len(topics)
        return failed | await real({topic: asked[topic] for topic in asked.keys() - failed.keys()}, fence)

    return step


async def passes(w: World, delay_ms: float) -> None:
    """Advance the clock and keep the brokers' sessions alive."""
    while delay_ms > 0:
        for session in w.sessions.values():
            await session.keep_alive()
        await w.clock.advance(min(delay_ms, 1_000))
        delay_ms -= 1_000


# -- the store ---------------------------------------------------------------------------------------------------------


async def test_failed_deletion_in_the_store_is_retried() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        let(w, "delete_topics", StoreUnavailable("away"), StoreError("no"))

        await w.delete("t")

        assert await w.store.topics() == ["t"]
        assert w.controller.deletions()[0].replicas_left == 0
        await passes(w, 10_000)
        assert await w.store.topics() == ["t"]
        await passes(w, 10_000)
        assert await w.store.topics() == await w.store.deletions() == []
        assert topic_event_names(w) == ["created", "deletion started", "deleted"]


async def test_lost_response_does_not_delete_a_recreated_topic() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        let(w, "delete_topics", StoreUnavailable("the answer was lost"), after=True)
        await w.store.mark_deletion("t")
        await settle()
        assert await w.store.topics() == []

        await w.create("t", [[2]])
        await passes(w, 20_000)

        assert await w.store.topics() == ["t"]
        assert await w.stored("t-0") == (2, 0, (2,))
        assert w.known("t-0").replicas == (2,)
        assert w.controller.deletions() == []


async def test_undeletable_topic_does_not_delay_others() -> None:
    async with open_deletion_bench("foo", "bar") as b:
        await b.delete("foo", "bar")
        b.store.next("delete_topics", is_in_the_way("bar"))

        await b.deletion.complete_replica_deletion(b.rows("foo", "bar"), frozenset(BROKERS))

        assert b.queued == {"bar"}
        assert await b.store.real.topics() == await b.store.real.deletions() == ["bar"]
        assert b.stories[-1] == ("foo", "deleted")
        assert b.enqueued == []
        await b.clock.advance(10_000)
        assert b.enqueued == [TopicDeletion()]
        await b.events.on_topic_deletion(TopicDeletion())
        assert b.queued == set()


async def test_deletion_waits_until_its_topic_id_is_read() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        let(w, "check", StoreUnavailable("away"))
        w.brokers.forget()

        await w.delete("t")

        assert w.brokers.sent == []
        assert w.known("t-0").leader == 1
        await passes(w, 10_000)
        assert await w.store.topics() == await w.store.deletions() == []


async def test_deposed_controller_deletes_no_replica() -> None:
    async with open_deletion_bench("foo") as b:
        await b.store.real.contest(6, take_over=True)

        with pytest.raises(ControllerMoved):
            await b.delete("foo")

        assert [flush for flush in b.outbox.flushes if flush.requests] == []
        assert b.partitions("foo") == {"ONLINE"}


async def test_undeletable_topics_among_many_are_retried_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_deletion_bench("foo", "bar", "baz") as b:
        await b.delete("foo", "bar", "baz")
        b.store.next("delete_topics", is_in_the_way("bar", "foo"), is_in_the_way("foo"))
        with caplog.at_level(logging.INFO):
            await b.deletion.complete_replica_deletion(b.rows("foo", "bar", "baz"), frozenset(BROKERS))

        assert b.queued == b.cluster.deletion_unsure == {"bar", "foo"}
        assert [said for said in caplog.messages if "could not be deleted" in said] == [
            f"topic {name} could not be deleted from the store, retrying: {name} is still there"
            for name in ("bar", "foo")
        ]
        assert "1 topics are deleted: baz" in caplog.messages
        for gone in ({"foo"}, set()):
            await b.clock.advance(10_000)
            assert b.enqueued.pop() == TopicDeletion()
            await b.events.on_topic_deletion(TopicDeletion())
            assert b.queued == gone
        assert [topic for topic, what in b.stories if what == "deleted"] == ["baz", "bar", "foo"]
        assert await b.store.real.topics() == await b.store.real.deletions() == []


async def test_lost_response_for_many_topics_deletes_only_the_old_ones() -> None:
    async def dies_in_the_middle(real: Real, asked: Mapping[str, Any], fence: Fence) -> Any:
        await real({name: asked[name] for name in ("bar", "baz")}, fence)
        raise StoreUnavailable("the answer was lost")

    async with open_deletion_bench("foo", "bar", "baz") as b:
        await b.delete("foo", "bar", "baz")
        b.store.next("delete_topics", dies_in_the_middle)
        await b.deletion.complete_replica_deletion(b.rows("foo", "bar", "baz"), frozenset(BROKERS))
        assert b.queued == {"foo", "bar", "baz"}
        assert await b.store.real.topics() == await b.store.real.deletions() == ["foo"]
        await b.store.real.create_topic(TopicRef("bar"), {0: Assignment((2,))}, {})
        b.forget()

        await b.events.on_topic_deletion(TopicDeletion())

        assert [list(call.arguments[0]) for call in b.store.calls if call.kind == "delete_topics"] == [["foo"]]
        assert b.queued == b.cluster.deletion_unsure == set()
        assert await b.store.real.topics() == ["bar"]
        assert await b.store.real.deletions() == []
        assert [event.label for event in b.enqueued] == ["TopicChange"]


async def test_large_deletion_is_committed_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler, "PARTITIONS_AT_ONCE", 4)
    async with open_deletion_bench("foo", "bar", "baz") as b:
        await b.delete("foo", "bar", "baz")
        b.forget()
        b.store.next("delete_topics", really, fails(SessionExpired("over")))

        with pytest.raises(SessionExpired):
            await b.deletion.complete_replica_deletion(b.rows("foo", "bar", "baz"), frozenset(BROKERS))

        parts = [call.arguments[0] for call in b.store.calls if call.kind == "delete_topics"]
        assert [list(part) for part in parts] == [["bar", "baz"], ["foo"]]
        # A topic that is assumed to be stored is not read.
        assert {name: told.tolist() for part in parts for name, told in part.items()} == {
            name: [0, 1] for name in TOPICS
        }
        assert b.queued == {"foo"}
        assert await b.store.real.topics() == await b.store.real.deletions() == ["foo"]


async def test_controller_deposed_between_two_parts_stops_deleting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "PARTITIONS_AT_ONCE", 1)
    async with world(1, 2) as w:
        for name in ("t0", "t1"):
            await w.create(name, [[1, 2]])
        w.brokers.silent |= {1, 2}
        await w.delete("t0", "t1")
        real = w.controller.store.delete_topics
        heir, orders = open_standby(w, 101)
        async with heir:

            async def and_is_deposed(topics: Mapping[str, Any], fence: Fence) -> Any:
                failed = await real(topics, fence)
                w.controller.store.delete_topics = real  # type: ignore[method-assign]
                await w.store.contest(102, take_over=True)
                return failed

            w.controller.store.delete_topics = and_is_deposed  # type: ignore[method-assign]
            w.brokers.silent.clear()
            await passes(w, 1_000)

            assert not w.controller.is_active
            assert await w.store.topics() == await w.store.deletions() == ["t1"]
            assert orders.sent == []


@pytest.mark.parametrize("error", [SessionExpired("over"), ControllerMoved(ours=50)])
async def test_end_of_the_controllership_is_not_delayed(error: KactlError) -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")
        b.store.next("delete_topics", fails(error))

        with pytest.raises(type(error)):
            await b.deleted("foo", *BROKERS)

        assert b.queued == {"foo"}
        await b.clock.advance(10_000)
        assert b.enqueued == []


async def test_topic_deleted_without_a_response_is_forgotten() -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")
        b.store.next("delete_topics", fails_after(StoreUnavailable("the answer was lost")))
        await b.deleted("foo", *BROKERS)
        assert b.queued == {"foo"}
        b.forget()

        await b.events.on_topic_deletion(TopicDeletion())

        assert "delete_topics" not in [call.kind for call in b.store.calls]
        assert b.queued == set()
        assert b.cluster.deletion_unsure == set()
        # A new topic of the same name may exist, which until now was taken for the deleted one.
        assert [event.label for event in b.enqueued] == ["TopicChange"]


async def test_rejected_leaderships_do_not_delay_a_deletion() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [2, 1]])
        let(w, "commit", *[StoreError("no")] * 10)

        await w.delete("t")

        # In Kafka each replica leaves the ISR first, and the deletion waits for these writes.
        assert await w.store.topics() == await w.store.deletions() == []


async def test_unreadable_marks_are_read_again() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        let(w, "deletions", *[StoreUnavailable("away")] * 5)

        await w.delete("t")
        await passes(w, 2_000)
        assert await w.store.topics() == ["t"]
        await passes(w, 10_200)

        assert await w.store.topics() == []


# -- manual changes ----------------------------------------------------------------------------------------------------


async def test_topic_that_vanishes_in_deletion_loses_its_mark() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]], {"retention.ms": "1"})
        w.brokers.silent.add(2)
        await w.delete("t")
        w.store.state.delete_topic("t")
        w.store.state.changed(Changed.TOPICS)
        await settle()

        assert w.controller.deletions() == []
        assert await w.store.deletions() == []
        assert await w.store.topic_configs(["t"]) == {"t": {}}
        assert topic_event_names(w) == ["created", "deletion started", "deleted"]
        # The broker's later response has no topic to refer to.
        w.brokers.silent.discard(2)
        await passes(w, 1_000)
        await w.create("t", [[2, 1]])
        assert w.known("t-0").leader == 2
        await w.check()


async def test_topic_that_vanished_unmarked_can_be_recreated() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [3]])
        assert w.controller.snapshot().offline_partitions == 0
        await w.stop(1, 2)
        assert w.controller.snapshot().offline_partitions == 1

        w.store.state.delete_topic("t")
        w.store.state.changed(Changed.TOPICS)
        await settle()

        # In Kafka its partition states stay: they count as offline forever, and a recreated topic is stuck, because no
        # code performs this move.
        assert (PartitionState.OFFLINE, PartitionState.NEW) not in TRANSITIONS
        assert w.controller.snapshot().offline_partitions == 0
        assert not len(w.controller.cluster.table)
        await w.start(1, 2)
        await w.create("t", [[2, 1]])
        assert w.known("t-0").state is PartitionState.ONLINE
        await w.check()


async def test_unreadable_topic_is_deleted() -> None:
    async with world(1) as w:
        w.controller.store.topics, real = w.store.topics, w.controller.store.topics  # type: ignore[method-assign]
        let(w, "assignments", *[StoreError("cannot be read")] * 4)
        await w.create("t", [[1]])
        await passes(w, 2_000)
        assert w.controller.topics() == []
        w.controller.store.topics = real  # type: ignore[method-assign]

        await w.delete("t")

        assert await w.store.topics() == await w.store.deletions() == []
        assert topic_event_names(w) == ["deleted"]


async def test_stale_blocker_would_block_a_recreated_topic() -> None:
    async with open_deletion_bench("foo", "bar") as b:
        for topic in ("foo", "bar"):
            await b.delete(topic)
            await b.deleted(topic, 2)
        await b.fail(2)
        left_behind = dict(b.cluster.deletion_ineligible)
        await b.deleted("foo", 1, 3)
        await b.deleted("bar", 1, 3)
        assert b.halted == {}
        for topic in ("foo", "bar"):
            await b.put(f"{topic}-0", [1, 3])

        # Kafka's behaviour: foo stays ineligible.
        b.cluster.deletion_ineligible["foo"] = left_behind["foo"]
        await b.delete("foo", "bar")

        assert b.replicas("foo") == {1: {"ONLINE"}, 3: {"ONLINE"}}
        assert b.replicas("bar") == {1: {"DELETION_STARTED"}, 3: {"DELETION_STARTED"}}
