"""Watches by revision, without a server: events before, during and after the reads that arm them."""

import pytest

from kactl.stores.base import Changed, StoreEvent
from kactl.stores.etcd.armed_watches import RevisionWatches
from kactl.stores.etcd.client import _note

TOPICS = StoreEvent(Changed.TOPICS)


@pytest.fixture
def heard() -> list[StoreEvent]:
    return []


@pytest.fixture
def watches(heard: list[StoreEvent]) -> RevisionWatches:
    watches = RevisionWatches()
    watches.subscribe(heard.append)
    return watches


def read(watches: RevisionWatches, revision: int) -> None:
    with watches.read(Changed.TOPICS, [""]):
        _note(revision)


def test_change_behind_the_read_is_reported_once(watches: RevisionWatches, heard: list[StoreEvent]) -> None:
    read(watches, 5)

    watches.fire_at(TOPICS, 6)
    watches.fire_at(TOPICS, 7)

    assert heard == [TOPICS]


def test_late_event_does_not_use_up_the_watch(watches: RevisionWatches, heard: list[StoreEvent]) -> None:
    read(watches, 5)

    watches.fire_at(TOPICS, 5)
    assert heard == []
    watches.fire_at(TOPICS, 6)

    assert heard == [TOPICS]


@pytest.mark.parametrize(("event", "reported"), [(5, []), (6, [TOPICS])])
def test_event_during_a_read_waits_for_its_revision(
    watches: RevisionWatches, heard: list[StoreEvent], event: int, reported: list[StoreEvent]
) -> None:
    with watches.read(Changed.TOPICS, [""]):
        _note(5)
        watches.fire_at(TOPICS, event)
        assert heard == []

    assert heard == reported


def test_event_for_an_earlier_read_is_reported_during_a_later_one(
    watches: RevisionWatches, heard: list[StoreEvent]
) -> None:
    read(watches, 5)

    with watches.read(Changed.TOPICS, [""]):
        watches.fire_at(TOPICS, 6)
        assert heard == [TOPICS]
        _note(7)

    watches.fire_at(TOPICS, 8)
    assert heard == [TOPICS, TOPICS]


def test_failed_read_arms_nothing(watches: RevisionWatches, heard: list[StoreEvent]) -> None:
    with pytest.raises(RuntimeError), watches.read(Changed.TOPICS, [""]):
        raise RuntimeError

    watches.fire_at(TOPICS, 6)

    assert heard == []


def test_lowest_revision_of_several_reads_counts(watches: RevisionWatches, heard: list[StoreEvent]) -> None:
    with watches.read(Changed.TOPICS, [""]):
        _note(9)
        _note(5)

    watches.fire_at(TOPICS, 7)

    assert heard == [TOPICS]


def test_end_of_a_controllership_fires_the_watch_of_the_controller(
    watches: RevisionWatches, heard: list[StoreEvent]
) -> None:
    with watches.read(Changed.CONTROLLER, [""]):
        _note(5)

    watches.fire_at(StoreEvent(Changed.CONTROLLER_GONE), 6)

    assert heard == [StoreEvent(Changed.CONTROLLER_GONE)]


def test_data_of_a_registration_is_always_watched(watches: RevisionWatches, heard: list[StoreEvent]) -> None:
    watches.fire_at(StoreEvent(Changed.BROKER, "1"), 6)

    assert heard == [StoreEvent(Changed.BROKER, "1")]


@pytest.mark.parametrize(("revision", "reported"), [(5, []), (6, [TOPICS])])
def test_revisions_that_are_discarded_during_a_read_are_reported(
    watches: RevisionWatches, heard: list[StoreEvent], revision: int, reported: list[StoreEvent]
) -> None:
    with watches.read(Changed.TOPICS, [""]):
        _note(5)
        watches.fire_all_at(revision)
        assert heard == []

    assert heard == reported
