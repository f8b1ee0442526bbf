"""Records of the controller events that moved leadership, and the causes of what they changed."""

import pytest

from kactl.actors.channel import RETRY_BACKOFF_MS
from kactl.decide.messages.log import BrokerEvent, ElectionEvent, PartitionEvent, ReplicaEvent
from kactl.model import TopicPartition
from kactl.telemetry import event_records
from tests.support.clocks import settle
from tests.support.controller_harness import SESSION_TIMEOUT_MS, World, world

pytestmark = pytest.mark.anyio


def records(w: World) -> list[ElectionEvent]:
    """Returns the elections in the event log, oldest first."""
    events, _ = w.controller.history.read(0, limit=10_000, kinds=("election",))
    return [event for event in events if isinstance(event, ElectionEvent)]


async def test_failure_of_a_broker_leaves_one_record_with_its_course() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3], [1, 3, 2], [2, 3, 1]])
        before = len(records(w))

        await w.stop(1)

        (record,) = records(w)[before:]
        assert (record.because.trigger, record.because.strategy) == ("BrokerChange", "offline")
        assert record.complete
        assert not record.failed
        # Two partitions get another leader, then the broker leaves three ISRs.
        assert (record.moved, record.committed, record.rejected) == (2, 2 + 3 - 2, 0)
        assert record.controller_epoch == 1
        assert {broker.broker: (broker.requests > 0, broker.dropped) for broker in record.brokers} == {
            2: (True, 0),
            3: (True, 0),
        }
        assert record.stages.plan is not None
        assert record.stages.commit is not None
        assert record.outage is not None
        assert (record.outage.partitions, record.outage.planned) == (2, 0)
        assert w.controller.elections()[0] == record


async def test_record_is_complete_only_after_the_last_acknowledgement() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        before = len(records(w))
        w.brokers.silent.add(3)

        await w.stop(1)

        (trace,) = w.controller.loop.events.live()
        live = w.controller.elections()[0]
        assert len(records(w)) == before
        assert not live.complete
        assert live.because == trace.record().because
        assert {broker.broker: broker.acked_us is not None for broker in live.brokers} == {2: True, 3: False}

        w.brokers.silent.clear()
        await w.clock.advance(RETRY_BACKOFF_MS)

        (record,) = records(w)[before:]
        assert record.complete
        assert record.first_ack_us == 0
        assert record.last_ack_us == RETRY_BACKOFF_MS * 1000
        assert w.controller.loop.events.live() == []
        # Broker 2 leads the partition and has acknowledged at once.
        assert record.outage is not None
        assert record.outage.max_us == 0


async def test_time_without_a_leader_lasts_until_the_new_leader_has_acknowledged() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        w.brokers.silent.add(2)

        await w.stop(1)
        await w.clock.advance(RETRY_BACKOFF_MS // 2)
        w.brokers.silent.clear()
        await w.clock.advance(RETRY_BACKOFF_MS)

        outage = records(w)[-1].outage
        assert outage is not None
        assert outage.max_us == RETRY_BACKOFF_MS * 1000
        assert w.controller.history.outages.forced.counts.sum() == 1
        assert w.controller.history.outages.planned.counts.sum() == 0


async def test_outage_over_several_events_is_counted_from_the_first() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await w.stop(1)
        outages = w.controller.history.outages
        await w.wait(500)
        assert outages.oldest_ms(w.clock.monotonic_ms()) == 500

        await w.start(1)

        outage = records(w)[-1].outage
        assert outage is not None
        assert (outage.partitions, outage.max_us) == (1, 500_000)
        assert outages.oldest_ms(w.clock.monotonic_ms()) == 0


async def test_planned_election_is_no_forced_outage() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(1)
        await w.start(1)
        await w.write_isr("t-0", 2, 1)
        forced = w.controller.history.outages.forced.counts.sum()

        await w.controller.elect("preferred", [TopicPartition("t", 0)])
        await settle()

        record = records(w)[-1]
        assert (record.because.trigger, record.because.strategy) == ("ReplicaLeaderElection", "preferred")
        assert record.outage is not None
        assert (record.outage.partitions, record.outage.planned) == (1, 1)
        assert w.controller.history.outages.forced.counts.sum() == forced


async def test_requests_to_a_broker_that_fails_are_recorded_as_dropped() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        w.brokers.silent.add(2)
        await w.stop(1)

        await w.stop(2)

        first, second = records(w)[-2:]
        dropped = {broker.broker: broker.dropped > 0 for broker in first.brokers}
        assert dropped == {2: True, 3: False}
        assert first.complete
        assert first.outage is None
        assert second.moved == 1
        assert w.controller.loop.events.live() == []


async def test_election_of_a_controller_that_resigns_is_recorded() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        w.brokers.silent.update((2, 3))
        await w.stop(1)
        assert len(w.controller.loop.events.live()) == 1

        await w.controller.resign()
        await settle()

        assert w.controller.loop.events.live() == []
        assert any(record.because.trigger == "BrokerChange" and record.complete for record in records(w))


async def test_number_of_open_elections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_records, "OPEN_MAX", 2)
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        before = len(records(w))
        w.brokers.silent.add(2)
        for _ in range(2):
            await w.stop(1)
            await w.start(1)
            await w.write_isr("t-0", 2, 1)
            await w.controller.elect("preferred", [TopicPartition("t", 0)], timeout_ms=0)

        assert len(w.controller.loop.events.live()) == 2
        assert [record.complete for record in records(w)[before:]] == [False, False]

        w.brokers.silent.clear()
        await w.wait(SESSION_TIMEOUT_MS)

        assert [record.complete for record in records(w)[before:]] == [False, False, True, True]


async def test_everything_that_one_event_changes_names_it() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3], [2, 3, 1]])
        seq = w.controller.history.seq

        await w.stop(1)

        events, _ = w.controller.history.read(seq)
        causes = {
            event.because.event
            for event in events
            if isinstance(event, BrokerEvent | PartitionEvent | ReplicaEvent) and event.because is not None
        }
        (record,) = [event for event in events if isinstance(event, ElectionEvent)]
        assert causes == {record.because.event}
        assert all(event.because is not None for event in events if hasattr(event, "because"))
        strategies = {
            event.because.strategy
            for event in events
            if isinstance(event, PartitionEvent) and event.because is not None
        }
        assert strategies == {"", "offline"}


async def test_first_leaders_are_an_election_of_their_own() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])

        record = records(w)[-1]
        assert (record.because.trigger, record.because.strategy, record.moved) == ("TopicChange", "first", 1)
        assert record.outage is None


async def test_event_without_a_new_leader_leaves_no_record() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        before = records(w)

        await w.stop(2)

        assert records(w) == before
