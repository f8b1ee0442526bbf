"""Holders of partitions, against small tables."""

from typing import Final

import numpy as np
import pytest

from kactl.decide.state.holds import VANISHED_BEFORE, HoldColumns, Holds, past_life
from kactl.model import EPOCH_DURING_DELETE, NO_BROKER, NO_EPOCH, NO_LEADER, Broker

ALL: Final = np.arange(3)


def columns(*leaders: int) -> HoldColumns:
    count = len(leaders)
    return HoldColumns(
        np.array(leaders, np.int32),
        np.full(count, 4, np.int32),
        np.arange(10, 10 + count, dtype=np.int32),
        np.full(count, NO_BROKER, np.int32),
        *(np.full(count, NO_EPOCH, np.int32) for _ in range(5)),
    )


class Table:
    """Three partitions that are led by 1, 2 and 3; brokers 1 to 3 are participants, 4 is one of Kafka's brokers."""

    def __init__(self, *leaders: int) -> None:
        self.columns = columns(*(leaders or (1, 2, 3)))
        self.holds = Holds()
        self.holds.brokers_changed([Broker(id_, 1, incarnation=b"x" * 16 if id_ < 4 else b"") for id_ in range(1, 5)])

    def elect(self, *leaders: int) -> None:
        leader = np.array(leaders, np.int32)
        epoch = np.where(leader == self.columns.leader, self.columns.leader_epoch, self.columns.leader_epoch + 1)
        self.holds.leaders_changed(self.columns, ALL, leader, epoch)
        self.columns.leader[:] = leader
        self.columns.leader_epoch[:] = epoch

    @property
    def holders(self) -> list[int]:
        holders: list[int] = self.columns.holder.tolist()
        return holders

    def held(self) -> list[bool]:
        held = self.holds.held(self.columns, ALL, self.columns.leader)
        flags: list[bool] = [False] * len(ALL) if held is None else held.tolist()
        return flags

    def ended(self, row: int, broker: int, epoch: int) -> None:
        self.holds.ended(self.columns, np.array([row]), np.array([epoch], np.int32), broker)

    def waits(self, row: int, broker: int, epoch: int) -> None:
        self.holds.waits(self.columns, np.array([row]), np.array([epoch], np.int32), broker)

    def released(self) -> list[int]:
        rows: list[int] = self.holds.pop_released(self.columns).tolist()
        return rows


def test_previous_leader_holds() -> None:
    table = Table()
    table.elect(2, 2, 1)
    assert table.holders == [1, NO_BROKER, 3]
    assert table.held() == [True, False, True]


def test_first_holder_stays_until_it_has_ended() -> None:
    table = Table()
    table.elect(2, 2, 3)
    table.elect(3, 2, 3)
    table.elect(NO_LEADER, 2, 3)
    table.elect(3, 2, 3)
    assert table.holders[0] == 1


def test_report_about_high_epochs_does_not_count_for_the_next_leader() -> None:
    """A participant may report the end of a stuck call of an earlier topic of the name, which had higher epochs."""
    table = Table()
    table.ended(0, broker=1, epoch=9)
    table.elect(2, 2, 3)
    assert table.holders[0] == NO_BROKER
    table.elect(3, 2, 3)
    assert table.holders[0] == 2


def test_holder_that_leads_again_does_not_wait_for_itself() -> None:
    table = Table()
    table.elect(2, 2, 3)
    table.elect(1, 2, 3)
    assert table.holders[0] == NO_BROKER


def test_brokers_of_kafka_never_hold() -> None:
    table = Table(4, 4, 4)
    table.elect(1, 2, 3)
    assert table.held() == [False, False, False]


@pytest.mark.parametrize(("epoch", "released"), [(4, False), (5, True), (6, True)])
def test_end_of_the_leadership_itself_releases(epoch: int, released: bool) -> None:
    table = Table()
    table.elect(2, 2, 3)  # epoch 5 of the first partition
    table.ended(0, 1, epoch)
    assert (table.holders[0] == NO_BROKER) is released


def test_end_that_was_reported_for_an_earlier_leadership_does_not_count() -> None:
    table = Table()
    table.elect(2, 2, 3)
    table.elect(1, 2, 3)
    table.ended(0, 1, 5)  # the answer to the first election; since then broker 1 leads again, under epoch 6
    table.elect(2, 2, 3)
    assert table.holders[0] == 1


def test_leader_that_has_failed_before_its_successor_is_elected_does_not_hold() -> None:
    table = Table()
    table.ended(0, 1, 5)
    table.elect(2, 2, 3)
    assert table.holders[0] == NO_BROKER


def test_leader_that_waits_after_a_failure_holds_again() -> None:
    table = Table()
    table.ended(0, 1, 5)
    table.waits(0, 1, 4)
    assert table.released() == [0]
    table.elect(2, 2, 3)
    assert table.holders[0] == 1


def test_leader_that_waits_is_released_once() -> None:
    table = Table()
    table.elect(2, 2, 3)
    table.waits(0, 2, 5)
    assert table.released() == []
    table.ended(0, 1, 5)
    assert table.released() == [0]
    assert table.released() == []


def test_leader_that_does_not_wait_is_not_released() -> None:
    table = Table()
    table.elect(2, 2, 3)
    table.waits(0, 2, 4)
    table.waits(0, 3, 5)
    table.ended(0, 1, 5)
    assert table.released() == []


def test_leader_that_was_replaced_while_it_waited_is_not_released() -> None:
    table = Table()
    table.elect(2, 2, 3)
    table.waits(0, 2, 5)
    table.elect(3, 2, 3)
    table.ended(0, 1, 5)
    assert table.released() == []


def test_past_life_holds_what_its_id_led_and_held() -> None:
    table = Table()
    table.elect(2, 2, 3)  # held by 1
    table.holds.end_life(table.columns, 1)
    table.holds.end_life(table.columns, 3)
    assert table.holders == [past_life(1), NO_BROKER, past_life(3)]
    table.elect(1, 2, 3)
    assert table.held() == [True, False, True]  # the next life of a broker waits for the one before
    table.holds.release(table.columns, past_life(1))
    table.holds.release(table.columns, past_life(3))
    assert table.held() == [False, False, False]


def test_unanswered_brokers_hold_all_leaders_but_themselves() -> None:
    table = Table()
    table.holds.unanswered = {1, 2}
    assert table.held() == [True, True, True]
    table.holds.unanswered.discard(2)
    assert table.held() == [False, True, True]
    table.holds.release(table.columns, 1)
    assert table.held() == [False, False, False]


def test_end_of_the_last_unanswered_broker_releases_what_waits() -> None:
    table = Table()
    table.holds.unanswered = {1, VANISHED_BEFORE}
    for row, broker in enumerate((1, 2, 3)):
        table.waits(row, broker, 4)
    table.holds.release(table.columns, VANISHED_BEFORE)
    assert table.released() == [0]
    table.holds.end_life(table.columns, 1)
    assert table.released() == []
    table.holds.release(table.columns, past_life(1))
    assert table.released() == [1, 2]


def test_clusters_without_participants_use_no_columns() -> None:
    holds = Holds()
    holds.brokers_changed([Broker(1, 1)])
    assert not holds.is_used
    assert holds.held(columns(1, 1, 1), ALL, columns(1, 1, 1).leader) is None


def test_topics_without_leases_never_hold() -> None:
    table = Table()
    table.holds.unanswered = {7}
    table.holds.set_leased({10: False, 11: True})
    table.elect(2, 3, 1)
    assert table.holders == [NO_BROKER, 2, 3]
    assert table.held() == [False, True, True]

    for row, leader in enumerate((2, 3, 1)):
        table.waits(row, leader, 5)
    assert table.released() == [0]


def test_leaders_of_topics_that_get_leases_hold() -> None:
    table = Table()
    table.holds.set_leased({10: False})
    table.elect(2, 2, 3)
    table.holds.set_leased({10: True})
    table.elect(3, 2, 3)
    assert table.holders[0] == 2  # it acts, so it is the holder and not 1
    assert table.held() == [True, False, False]


def test_settings_of_removed_topics_are_forgotten() -> None:
    table = Table()
    table.holds.set_leased({10: False, 11: True})
    assert table.holds.with_unknown_setting(np.array([12, 11, 12, 10], np.int32)) == [12]
    table.holds.forget_topics([10])
    assert table.holds.with_unknown_setting(np.array([11, 10], np.int32)) == [10]
    table.elect(2, 2, 3)
    assert table.holders[0] == 1


def test_deletion_waits_for_holders() -> None:
    table = Table()
    holds = table.holds
    table.elect(2, 3, 3)
    assert holds.have_holder(table.columns, ALL).tolist() == [True, True, False]
    holds.deletions = {10, 11}
    assert holds.pop_deletable(table.columns) == set()

    table.ended(0, 1, 5)
    assert holds.pop_deletable(table.columns) == {10}
    assert holds.pop_deletable(table.columns) == set()
    holds.set_leased({11: False})
    assert holds.pop_deletable(table.columns) == {11}


@pytest.mark.parametrize(("epoch", "counts"), [(EPOCH_DURING_DELETE, True), (5, True), (4, True), (3, False)])
def test_deletion_does_not_wait_for_a_broker_that_has_deleted_its_replica(epoch: int, counts: bool) -> None:
    table = Table()
    holds = table.holds
    table.elect(2, 3, 3)
    holds.deletions = {10, 11}
    holds.deleted(table.columns, ALL, np.full(3, epoch, np.int32), 1)
    if not counts:
        assert holds.pop_deletable(table.columns) == set()
        return
    assert holds.have_holder(table.columns, ALL).tolist() == [False, True, False]
    assert holds.pop_deletable(table.columns) == {10}
    # Its calls may not have ended.
    assert table.held() == [True, True, False]
    holds.forget_topics([10, 11])
    assert holds.deletions == set()
    assert holds.have_holder(table.columns, ALL).tolist() == [True, True, False]


# -- since when a leader leads


def raise_epochs(table: Table, *epochs: int, leaders: tuple[int, ...] = (1, 2, 3), read: bool = False) -> None:
    """Write leaders under epochs; `read`: after rows with the epoch before were read again, which had these leaders."""
    leader, epoch = np.array(leaders, np.int32), np.array(epochs, np.int32)
    before = (leader, epoch - np.int32(1)) if read else None
    table.holds.leaders_changed(table.columns, ALL, leader, epoch, read=before)
    table.columns.leader[:], table.columns.leader_epoch[:] = leader, epoch


def unbroken(table: Table) -> list[int]:
    found = table.holds.unbroken(table.columns, ALL, table.columns.leader_epoch)
    return [0] * len(ALL) if found is None else found.tolist()


def test_epochs_of_the_same_leader_are_counted_from_the_stored_one_on() -> None:
    table = Table()
    assert unbroken(table) == [0, 0, 0]
    raise_epochs(table, 4, 4, 5)
    assert unbroken(table) == [0, 0, 1]
    raise_epochs(table, 4, 5, 6)
    assert unbroken(table) == [0, 1, 2]


@pytest.mark.parametrize("between", [2, NO_LEADER])
def test_another_leader_begins_the_count_again(between: int) -> None:
    table = Table()
    raise_epochs(table, 5, 5, 5)
    raise_epochs(table, 6, 6, 6, leaders=(between, 2, 3))
    assert unbroken(table) == [0, 2, 2]
    table.holds.release(table.columns, 1)
    raise_epochs(table, 7, 7, 7)
    assert unbroken(table) == [0, 3, 3]


def test_leader_is_back_after_one_that_was_not_released() -> None:
    table = Table()
    raise_epochs(table, 5, 5, 5, leaders=(2, 3, 3))
    raise_epochs(table, 6, 6, 6, leaders=(2, 1, 3))
    raise_epochs(table, 7, 7, 7, leaders=(1, 2, 3))
    assert unbroken(table) == [-2, 0, 3]
    raise_epochs(table, 8, 8, 8, leaders=(1, 2, 3))
    assert unbroken(table) == [1, 1, 4]


def test_epochs_that_were_not_seen_begin_the_count_again() -> None:
    table = Table()
    raise_epochs(table, 6, 5, 7)
    assert unbroken(table) == [0, 1, 0]


def test_rows_that_were_read_again_count_if_no_epoch_is_left_out() -> None:
    table = Table()
    raise_epochs(table, 6, 6, 7, read=True)
    assert unbroken(table) == [2, 2, 1]


def test_row_that_was_read_again_with_another_leader_begins_the_count_again() -> None:
    table = Table()
    others = np.array([2, 2, 3], np.int32), np.full(3, 5, np.int32)
    table.holds.leaders_changed(table.columns, ALL, np.array([1, 2, 3], np.int32), np.full(3, 6, np.int32), read=others)
    table.columns.leader_epoch[:] = 6
    assert unbroken(table) == [0, 2, 2]


def test_count_is_of_the_epoch_that_is_sent() -> None:
    table = Table()
    raise_epochs(table, 5, 5, 5)

    assert table.holds.unbroken(table.columns, ALL, np.full(3, 4, np.int32)) is None
