"""Unclean elections, compared with values worked out by hand, with a partition for each case in one table."""

import collections
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.unclean import COLUMNS

from . import dumps
from .chain import Chain, chain
from .said import (
    NEW,
    OFFLINE,
    ONLINE,
    Ids,
    changed,
    cut,
    ids,
    isr_updated,
    leads,
    moved,
    online,
    online_unnumbered,
    sent,
    state,
)
from .tables import controller_line, line, moment, rows

Found = dict[str, list[dict[str, Any]]]
LOGS: dict[tuple[int, Kind], list[str]] = collections.defaultdict(list)
S, L = LOGS[9, Kind.STATE_CHANGE], LOGS[9, Kind.CONTROLLER]
# A controller in KRaft, with controller.log only; and one from before 1.1.
K, OLD = LOGS[3000, Kind.CONTROLLER], LOGS[8, Kind.CONTROLLER]
B1 = LOGS[1, Kind.SERVER]
_ID = "AbC-dEf_GhIjKlMnOpQrSt"


def led(seconds: float, tp: str, leader: int, epoch: int, isr: Ids, version: int, before: str = ONLINE) -> str:
    return online(seconds, tp, leader, epoch, isr, version, before=before, by=9)


def without(
    seconds: float, tp: str, leader: int, epoch: int, isr: Ids, removed: int, version: int | None = None
) -> str:
    return cut(seconds, tp, leader, epoch, isr, removed, version, by=9)


def recovering(
    seconds: float, tp: str, leader: int, epoch: int, isr: Ids, version: int, before: str, state: str
) -> str:
    held = (
        f"LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({ids(isr, ', ')}), leaderRecoveryState={state}, "
        f"partitionEpoch={version})"
    )
    return line(
        seconds, f"[Controller id=9 epoch=5] Changed partition {tp} from {before} to {ONLINE} with state {held}"
    )


def cut_recovering(seconds: float, tp: str, epoch: int, isr: Ids, removed: int, version: int, state: str) -> str:
    held = (
        f"Leader:-1,ISR:{ids(isr)},LeaderRecoveryState:{state},LeaderEpoch:{epoch},ZkVersion:{version},"
        "ControllerEpoch:5"
    )
    return line(
        seconds,
        f"[Controller id=9 epoch=5] Partition {tp} state changed to ({held}) after removing replica {removed} from the "
        "ISR as part of transition to OfflineReplica",
    )


def asked(seconds: float, tps: str) -> str:
    message = f"Starting replica leader election (UNCLEAN) for partitions {tps} triggered by AdminClientTriggered"
    return controller_line(seconds, 9, message)


def warned(seconds: float, tp: str, leader: int) -> str:
    message = (
        f"No broker in ISR is alive for {tp}. Elect leader {leader} from live brokers {leader}. "
        "There's potential data loss."
    )
    return controller_line(seconds, 8, message, level="WARN")


def quorum(seconds: float, message: str) -> str:
    return line(seconds, f"[QuorumController id=3000] {message}", logger="org.apache.kafka.controller.QuorumController")


# Brokers 3, 2 and 1 fail in this order, and 2 returns; 1 returns at the end.
L += [
    changed(10, (1, 2, 9), deleted=(3,), by=9),
    changed(20, (1, 9), deleted=(2,), by=9),
    changed(30, (9,), deleted=(1,), by=9),
    changed(40, (2, 9), added=(2,), by=9),
    changed(900, (1, 2, 9), added=(1,), by=9),
]
# dead-0: the ISR shrinks to 1, which dies, and 2 is elected.
S += [
    led(0, "dead-0", 1, 0, (1, 2, 3), 0, before=NEW),
    without(10.1, "dead-0", 1, 1, (1, 2), 3, 1),
    without(20.1, "dead-0", 1, 2, (1,), 2, 2),
    without(30.1, "dead-0", -1, 3, (1,), 1, 3),
    led(40.1, "dead-0", 2, 4, (2,), 4, before=OFFLINE),
    led(50, "dead-0", 2, 5, (2,), 5),
]
# clean-0: the elected leader was in the ISR.
S += [
    led(0, "clean-0", 1, 0, (1, 2), 0, before=NEW),
    without(30.1, "clean-0", -1, 1, (2,), 1, 1),
    led(40.1, "clean-0", 2, 2, (2,), 2, before=OFFLINE),
]
# numberless-0: 2.6 logs no version when a controller shrinks the ISR; the absence of a leader is sufficient.
S += [
    led(0, "numberless-0", 1, 0, (1,), 0),
    without(30.1, "numberless-0", -1, 1, (1,), 1),
    led(40.1, "numberless-0", 2, 2, (2,), 2, before=OFFLINE),
]
# grown-0: according to the versions, the leader wrote an ISR in between that is not logged.
S += [led(0, "grown-0", 1, 2, (1,), 2), led(40.1, "grown-0", 2, 4, (2,), 5, before=OFFLINE)]
# whole-0: according to the versions, it wrote no ISR, although the controller's ISR change is not in the logs.
S += [led(0, "whole-0", 1, 2, (1,), 2), led(40.1, "whole-0", 2, 4, (2,), 4, before=OFFLINE)]
# told-0: the leader's own log contains the ISR that it wrote.
S += [led(0, "told-0", 1, 2, (1,), 2), led(40.1, "told-0", 2, 4, (2,), 5, before=OFFLINE)]
B1.append(isr_updated(20, 1, "told-0", (1, 2), 3))
# many-0: an unclean leader is alone in the ISR.
S += [led(0, "many-0", 1, 2, (1,), 2), led(40.1, "many-0", 2, 3, (2, 3), 3, before=OFFLINE)]
# at-once-0: the ISR shrank and the next one was elected within one millisecond.
S += [
    led(0, "at-once-0", 1, 0, (1, 2), 0, before=NEW),
    without(30, "at-once-0", 1, 1, (1,), 2, 1),
    led(30, "at-once-0", 2, 2, (2,), 2, before=OFFLINE),
]
# first-0: the first leader of a partition.
S.append(led(0, "first-0", 2, 0, (2,), 0, before=NEW))
# stays-0: the same leader, once more.
S += [led(0, "stays-0", 1, 2, (1, 2), 2), led(30, "stays-0", 1, 3, (1,), 3)]
# recovers-0: from 3.3 on the state contains the recovery, for as long as it lasts.
S += [
    recovering(0, "recovers-0", 1, 0, (1,), 0, NEW, "RECOVERED"),
    cut_recovering(30.1, "recovers-0", 1, (1,), 1, 1, "RECOVERED"),
    recovering(40.1, "recovers-0", 2, 2, (2,), 2, OFFLINE, "RECOVERING"),
    cut_recovering(45, "recovers-0", 3, (2,), 2, 3, "RECOVERING"),
    recovering(50, "recovers-0", 2, 4, (2,), 4, OFFLINE, "RECOVERING"),
]
# fell-0: according to the versions, the ISR changed unlogged in between; the leader before was not recovering. fell-1:
# the leader changed too.
for number, (epoch, version) in enumerate(((1, 3), (3, 9))):
    S += [
        recovering(0, f"fell-{number}", 1, 0, (1, 2), 0, NEW, "RECOVERED"),
        recovering(40.1, f"fell-{number}", 2, epoch, (2,), version, OFFLINE, "RECOVERING"),
    ]
# since-0: the recovery began before the logs do.
S.append(recovering(50, "since-0", 2, 4, (2,), 4, OFFLINE, "RECOVERING"))
# recovered-0: the state reports recovery of a leader that has all records; its absence from the ISR is less certain.
S += [
    recovering(0, "recovered-0", 1, 2, (1,), 2, ONLINE, "RECOVERED"),
    recovering(40.1, "recovered-0", 2, 4, (2,), 5, OFFLINE, "RECOVERED"),
]
# setting-0: the state reports recovery for every leader until all brokers support it.
S += [
    recovering(0, "setting-0", 1, 2, (1,), 2, ONLINE, "RECOVERED"),
    recovering(40.1, "setting-0", 2, 3, (2,), 3, OFFLINE, "RECOVERED"),
]
# asked-0, asked-1: an unclean election is requested; for one of them the ISR is known, and the election was clean.
# asked-2 follows too late to be that election.
L.append(asked(60, "asked-0,asked-1,asked-2"))
S += [
    led(120.1, "asked-2", 2, 7, (2,), 20, before=OFFLINE),
    led(60.1, "asked-0", 2, 7, (2,), 20, before=OFFLINE),
    without(30.1, "asked-1", -1, 6, (2,), 1, 19),
    led(60.1, "asked-1", 2, 7, (2,), 20, before=OFFLINE),
    led(75, "asked-0", 3, 8, (3, 2), 22),
]
# warned-0: 1.0 logs a warning without an epoch.
OLD += [warned(50, "warned-0", 2), warned(50, "lonely-0", 3)]
S += [
    sent(0, "warned-0", state(1, 3, (1,), 5), 1, by=9),
    moved(30, "warned-0", ONLINE, OFFLINE, by=9),
    online_unnumbered(50.1, "warned-0", 2, before=OFFLINE, by=9),
    online_unnumbered(55, "warned-0", 2, by=9),
]
# kraft-0 .. kraft-2: the controller logs it with the change, with the topic id only, or logs that it was clean.
K += [
    quorum(0, f"partition change for kraft-0 with topic ID {_ID}: isr: [1, 2] -> [1], partitionEpoch: 6 -> 7"),
    quorum(
        40,
        f"UNCLEAN partition change for kraft-0 with topic ID {_ID}: isr: [1] -> [2], leader: 1 -> 2, "
        "leaderEpoch: 3 -> 4, partitionEpoch: 7 -> 8",
    ),
    quorum(40, f"Setting new leader for topicId {_ID}, partition 0 to 2 using an unclean election"),
    quorum(
        0,
        f"partition change for kraft-1 with topic ID {_ID[::-1]}: isr: [1, 2] -> [1], leader: 2 -> 1, "
        "leaderEpoch: 2 -> 3, partitionEpoch: 6 -> 7",
    ),
    quorum(
        40,
        f"partition change for kraft-1 with topic ID {_ID[::-1]}: isr: [1] -> [2], leader: 1 -> 2, "
        "leaderEpoch: 3 -> 4, partitionEpoch: 7 -> 8",
    ),
]
# brokers-0: no controller's log, only the leaders' own lines.
B1.append(leads(0, 1, "brokers-0", 3, (1,), end=10, high=10, before=2))
LOGS[2, Kind.SERVER].append(leads(40, 2, "brokers-0", 5, (2,), end=5, high=5))
# kraft-7, kraft-8: in the metadata log the leader was not in the ISR: as an eligible leader replica, without recovery,
# or uncleanly.
DUMP = [
    dumps.topic(0),
    *(dumps.partition(0, number, (1, 2)) for number in (7, 8)),
    *(dumps.change(20, number, isr=(1,)) for number in (7, 8)),
    dumps.change(40, 7, isr=(2,), leader=2),
    dumps.change(40, 8, isr=(2,), leader=2, leaderRecoveryState=1),
]


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Chain:
    return chain(spark, LOGS, dumped=DUMP)


@pytest.fixture(scope="module")
def found(tables: Chain) -> Found:
    return by_topic(rows(tables.unclean, "topic", "leader_epoch"))


def by_topic(listed: list[dict[str, Any]]) -> Found:
    found = collections.defaultdict(list)
    for row in listed:
        found[row["topic"]].append(row)
    return found


def test_columns_are_the_declared_ones(tables: Chain) -> None:
    assert tables.unclean.columns == [each.name for each in COLUMNS]


def test_leader_outside_the_isr_is_unclean(found: Found) -> None:
    [row] = found["dead"]

    assert (row["leader_epoch"], row["leader"], row["prev_leader"]) == (4, 2, 1)
    assert row["at"] == moment(40.1)
    assert row["prev_isr"] == [1]
    assert row["evidence"] == ["not-in-isr"]
    assert row["certain"] is True
    assert row["asked_by"] is None
    assert (row["controller"], row["controller_epoch"]) == (9, 5)
    assert (row["out_at"], row["out_ms"]) == (moment(20.1), 20_000)


def test_members_of_the_last_isr_are_listed(found: Found) -> None:
    [row] = found["dead"]

    assert row["isr_down"] == [{"broker": 1, "away": True, "down_at": moment(30), "down_ms": 10_100}]


@pytest.mark.parametrize("topic", ["clean", "many", "first", "stays", "told"])
def test_clean_election_has_no_row(found: Found, topic: str) -> None:
    assert found[topic] == []


def test_isr_cut_without_epoch_is_certain_if_no_leader_since(found: Found) -> None:
    [row] = found["numberless"]

    assert row["certain"] is True


def test_possibly_grown_isr_is_uncertain(found: Found) -> None:
    [doubtful], [sure] = found["grown"], found["whole"]

    assert (doubtful["evidence"], doubtful["certain"]) == (["not-in-isr"], False)
    assert (sure["evidence"], sure["certain"]) == (["not-in-isr"], True)
    assert sure["out_at"] is None  # it was in no known ISR


def test_recovering_leader_is_unclean_once(found: Found) -> None:
    [row] = found["recovers"]

    assert row["leader_epoch"] == 2
    assert row["evidence"] == ["not-in-isr", "recovering"]
    assert row["certain"] is True


def test_recovery_after_recovered_leader_is_certain(found: Found) -> None:
    sure, doubtful = found["fell"]

    assert (sure["leader_epoch"], sure["evidence"], sure["certain"]) == (1, ["recovering"], True)
    assert (doubtful["leader_epoch"], doubtful["evidence"], doubtful["certain"]) == (3, ["recovering"], False)


def test_leader_recovering_at_log_start_is_uncertain(found: Found) -> None:
    [row] = found["since"]

    assert (row["evidence"], row["certain"]) == (["recovering"], False)


def test_uncertain_election_is_dropped_if_recovered(found: Found) -> None:
    assert found["recovered"] == []


def test_zookeeper_recovery_state_is_no_proof(found: Found) -> None:
    [row] = found["setting"]

    assert (row["leader_epoch"], row["evidence"], row["certain"]) == (3, ["not-in-isr"], True)


def test_simultaneous_states_are_ordered_by_epoch(found: Found) -> None:
    [row] = found["at-once"]

    assert (row["leader_epoch"], row["prev_isr"]) == (2, [1])
    assert (row["evidence"], row["certain"]) == (["not-in-isr"], True)


def test_requested_unclean_election_is_uncertain(found: Found) -> None:
    [row] = found["asked"]

    assert (row["partition"], row["leader_epoch"]) == (0, 7)
    assert (row["evidence"], row["certain"]) == (["asked"], False)
    assert row["asked_by"] == "AdminClientTriggered"


def test_warning_is_certain_for_the_next_election(found: Found) -> None:
    [row] = found["warned"]

    assert (row["at"], row["leader"], row["leader_epoch"]) == (moment(50.1), 2, None)
    assert row["evidence"] == ["not-in-isr", "warned"]
    assert row["certain"] is True


def test_warning_alone_is_an_election(found: Found) -> None:
    [row] = found["lonely"]

    assert (row["at"], row["leader"], row["leader_epoch"]) == (moment(50), 3, None)
    assert (row["evidence"], row["certain"]) == (["warned"], True)
    assert (row["prev_isr"], row["isr_down"]) == (None, None)


def test_kraft_lines_mark_unclean_elections(found: Found) -> None:
    [row] = [row for row in found["kraft"] if row["partition"] < 7]

    assert (row["leader_epoch"], row["leader"]) == (4, 2)
    assert row["evidence"] == ["not-in-isr", "said"]
    assert row["certain"] is True


def test_metadata_log_marks_recovering_leaders(found: Found) -> None:
    [row] = [row for row in found["kraft"] if row["partition"] >= 7]

    assert (row["partition"], row["leader_epoch"], row["leader"]) == (8, 1, 2)
    assert (row["evidence"], row["certain"]) == (["not-in-isr", "recovering"], True)


def test_broker_lines_alone_give_uncertain_elections(found: Found) -> None:
    [row] = found["brokers"]

    assert (row["leader_epoch"], row["evidence"], row["certain"]) == (5, ["not-in-isr"], False)
    assert (row["prev_leader"], row["prev_isr"]) == (1, [1])


def test_copied_files_change_nothing(spark: SparkSession, found: Found) -> None:
    twice = chain(spark, LOGS, dumped=DUMP, copied=True)

    again = by_topic(rows(twice.unclean, "topic", "leader_epoch"))

    assert again == {topic: listed for topic, listed in found.items() if listed}
