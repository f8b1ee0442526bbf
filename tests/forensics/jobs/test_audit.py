"""Audit of a long correct history, and of one violation of each rule, with a partition for each."""

import collections
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.decide.machines import partition, replica
from kactl.forensics.event_types import Kind
from kactl.forensics.jobs import skew
from kactl.forensics.jobs.audit import COLUMNS, RULES, audit
from kactl.forensics.jobs.audit.transitions import PARTITIONS, REPLICAS
from kactl.forensics.jobs.timed import timed
from kactl.forensics.tables import FILE_COLUMNS
from kactl.forensics.text.json_parser import PARTITION_STATES, REPLICA_STATES
from kactl.model import PartitionState, ReplicaState
from tests.support.tree import ROOT

from .chain import kept
from .said import (
    ABSENT,
    NEW,
    OFFLINE,
    ONLINE,
    Ids,
    cut,
    elected,
    follows,
    isr_updated,
    leads,
    moved,
    new,
    online,
    received,
    sent,
    state,
)
from .tables import as_timed, events, line, moment, rows, table

Found = list[dict[str, Any]]
Logs = dict[tuple[int, Kind], list[str]]
LIVING, NEW_REPLICA, DEAD = "OnlineReplica", "NewReplica", "OfflineReplica"
STARTED, SUCCESSFUL, INELIGIBLE = "ReplicaDeletionStarted", "ReplicaDeletionSuccessful", "ReplicaDeletionIneligible"
NOWHERE = "NonExistentReplica"
HOUR: Final = 3600


def went(seconds: float, tp: str, broker: int, *states: str, by: int = 9, under: int = 5) -> list[str]:
    """Returns a replica's transitions through the states, all within one millisecond."""
    return [
        line(
            seconds,
            f"[Controller id={by} epoch={under}] Changed state of replica {broker} for partition {tp} "
            f"from {before} to {after}",
            level="TRACE",
        )
        for before, after in itertools.pairwise(states)
    ]


def begun(
    seconds: float, broker: int, tp: str, correlation: int, *, role: str = "leader", of: int = 9, under: int = 5
) -> str:
    message = (
        f"[Broker id={broker}] Handling LeaderAndIsr request correlationId {correlation} from controller {of} "
        f"epoch {under} starting the become-{role} transition for partition {tp}"
    )
    return line(seconds, message, level="TRACE")


def obeyed(seconds: float, broker: int, *, of: int, under: int) -> str:
    message = (
        f"[Broker id={broker}] Add 12 partitions and deleted 0 partitions from metadata cache in response to "
        f"UpdateMetadata request sent by controller {of} epoch {under} with correlation id 7"
    )
    return line(seconds, message)


def active(seconds: float, by: int, under: int) -> str:
    """Returns the line in which a KRaft controller becomes active."""
    message = f"[QuorumController id={by}] Becoming the active controller at epoch {under}, next write offset 12."
    return line(seconds, message, logger="org.apache.kafka.controller.QuorumController")


def refused(seconds: float, broker: int, tp: str, epoch: int, *, of: int = 9, under: int = 5) -> str:
    message = (
        f"[Broker id={broker}] Ignoring LeaderAndIsr request from controller {of} with correlation id 9 epoch {under} "
        f"for partition {tp} since its associated leader epoch {epoch} is not higher than the current leader epoch 9"
    )
    return line(seconds, message)


def told(
    seconds: float,
    tp: str,
    leader: int,
    epoch: int,
    isr: Ids,
    version: int,
    replicas: Ids,
    number: int,
    *,
    of: int = 9,
    under: int = 5,
) -> tuple[list[str], dict[int, list[str]]]:
    """Returns the lines that the controller and all replicas write at TRACE when a state is sent."""
    held = state(leader, epoch, isr, version, replicas)
    out = [sent(seconds, tp, held, to, as_leader=to == leader, by=of, under=under) for to in replicas]
    back = {
        to: [
            received(seconds + 0.01, to, tp, held, number, of=of, under=under),
            begun(seconds + 0.02, to, tp, number, role="leader" if to == leader else "follower", of=of, under=under),
        ]
        for to in replicas
    }
    return out, back


def cut_by_59(seconds: float, tp: str, *state: Any) -> str:
    """Returns a line under controller epoch 55, which it contains twice."""
    return (
        cut(seconds, tp, *state, by=59)
        .replace("epoch=5]", "epoch=55]")
        .replace("ControllerEpoch:5)", "ControllerEpoch:55)")
    )


def clean_at_trace() -> Logs:
    """Returns logs of version 2.2 that follow one topic from creation to deletion, and again after its re-creation.

    A broker fails and the controller changes in between. Controllers are 49, with epoch 45, and then 48; brokers are 41
    to 44.
    """
    logs: Logs = collections.defaultdict(list)
    old, young, tp = logs[49, Kind.STATE_CHANGE], logs[48, Kind.STATE_CHANGE], "long-0"

    def tell(seconds: float, *held: Any, of: int = 49, under: int = 45) -> None:
        out, back = told(seconds, tp, *held, of=of, under=under)
        (old if of == 49 else young).extend(out)
        for broker, lines in back.items():
            logs[broker, Kind.STATE_CHANGE] += lines

    # Creation.
    old.append(new(0, tp, by=49, under=45))
    for broker in (41, 42, 43):
        old += went(0.001, tp, broker, NOWHERE, NEW_REPLICA, by=49, under=45)
    old.append(online(0.1, tp, 41, 0, (41, 42, 43), 0, before=NEW, by=49, under=45))
    for broker in (41, 42, 43):
        old += went(0.2, tp, broker, NEW_REPLICA, LIVING, by=49, under=45)
    tell(0.3, 41, 0, (41, 42, 43), 0, (41, 42, 43), 1)
    # The leader fails and returns. This version does not log the removal from the ISR.
    old.append(moved(10, tp, ONLINE, OFFLINE, by=49, under=45))
    old.append(online(10.001, tp, 42, 2, (42, 43), 2, before=OFFLINE, by=49, under=45))
    old += went(10.001, tp, 41, LIVING, DEAD, by=49, under=45)
    tell(10.1, 42, 2, (42, 43), 2, (42, 43), 2)
    old += went(20, tp, 41, DEAD, LIVING, by=49, under=45)
    logs[42, Kind.SERVER].append(isr_updated(21, 42, tp, (42, 43, 41), 3))
    # The preferred leader is elected again.
    old.append(online(30, tp, 41, 3, (42, 43, 41), 4, by=49, under=45))
    tell(30.1, 41, 3, (42, 43, 41), 4, (41, 42, 43), 3)
    # Reassignment from 41 to 44: 41 stays in the ISR for a while, although it is no longer assigned.
    tell(40, 41, 4, (42, 43, 41), 5, (44, 42, 43, 41), 4)
    old += went(40.1, tp, 44, NOWHERE, NEW_REPLICA, by=49, under=45)
    old += went(41, tp, 44, NEW_REPLICA, LIVING, by=49, under=45)
    old.append(online(41.001, tp, 42, 5, (42, 43, 41, 44), 7, by=49, under=45))
    tell(41.1, 42, 5, (42, 43, 41, 44), 7, (44, 42, 43), 5)
    old += went(41.2, tp, 41, LIVING, DEAD, STARTED, SUCCESSFUL, NOWHERE, by=49, under=45)
    tell(41.3, 42, 6, (42, 43, 44), 8, (44, 42, 43), 6)
    # Another controller takes over; a late request of the old one is rejected.
    logs[48, Kind.CONTROLLER].append(elected(50, 48, 46))
    for broker in (44, 42, 43):
        young += went(50.1, tp, broker, LIVING, LIVING, by=48, under=46)
    tell(50.2, 42, 6, (42, 43, 44), 8, (44, 42, 43), 1, of=48, under=46)
    logs[43, Kind.STATE_CHANGE] += [
        received(50.5, 43, tp, state(42, 5, (42, 43, 41, 44), 7, (44, 42, 43)), 99, of=49, under=45),
        refused(50.5, 43, tp, 5, of=49, under=45),
    ]
    # Deletion. One broker fails to delete its replica at the first attempt.
    young += [moved(60, tp, ONLINE, OFFLINE, by=48, under=46), moved(60, tp, OFFLINE, ABSENT, by=48, under=46)]
    for broker in (42, 43):
        young += went(60.1, tp, broker, LIVING, DEAD, STARTED, SUCCESSFUL, by=48, under=46)
    young += went(60.1, tp, 44, LIVING, DEAD, STARTED, INELIGIBLE, by=48, under=46)
    young += went(65, tp, 44, INELIGIBLE, DEAD, STARTED, SUCCESSFUL, by=48, under=46)
    for broker in (42, 43, 44):
        young += went(66, tp, broker, SUCCESSFUL, NOWHERE, by=48, under=46)
    # Re-creation.
    young.append(new(70, tp, by=48, under=46))
    for broker in (41, 42, 43):
        young += went(70.001, tp, broker, NOWHERE, NEW_REPLICA, by=48, under=46)
    young.append(online(70.1, tp, 41, 0, (41, 42, 43), 0, before=NEW, by=48, under=46))
    for broker in (41, 42, 43):
        young += went(70.2, tp, broker, NEW_REPLICA, LIVING, by=48, under=46)
    tell(70.3, 41, 0, (41, 42, 43), 0, (41, 42, 43), 20, of=48, under=46)
    young.append(online(80, tp, 42, 1, (42, 43), 1, by=48, under=46))
    tell(80.1, 42, 1, (42, 43), 1, (41, 42, 43), 21, of=48, under=46)
    return logs


def clean_at_info() -> Logs:
    """Returns logs of version 2.8 at its default levels, without moves to OfflinePartition or of replicas.

    The controller is 59. Controllers 58, in KRaft, and 57, in kactl, follow it.
    """
    logs: Logs = collections.defaultdict(list)
    log, tp = logs[59, Kind.STATE_CHANGE], "brief-0"
    log += [
        new(0, tp, by=59, under=55),
        online(0.1, tp, 51, 0, (51, 52, 53), 0, before=NEW, by=59, under=55),
        cut_by_59(10, tp, -1, 1, (52, 53), 51, 1),
        online(10.1, tp, 52, 2, (52, 53), 2, before=OFFLINE, by=59, under=55),
        online(20, tp, 51, 3, (52, 53, 51), 4, by=59, under=55),
        cut_by_59(30, tp, 51, 4, (51, 53), 52),
        # The broker was already out of the ISR, and the same state is logged again.
        cut_by_59(40, tp, 51, 4, (51, 53), 52),
    ]
    logs[51, Kind.STATE_CHANGE] += [
        leads(0.2, 51, tp, 0, (51, 52, 53)),
        follows(15, 51, tp, 2, end=100, high=90),
        leads(20.1, 51, tp, 3, (52, 53, 51), end=150, high=150, before=2),
        leads(30.1, 51, tp, 4, (51, 53), end=160, high=150, before=3),
        obeyed(31, 51, of=59, under=55),
        leads(900, 51, tp, 0, (51, 52, 53)),  # the topic was re-created by a controller without a log
        leads(910, 51, tp, 1, (51,), end=5, high=5, before=0),
    ]
    logs[52, Kind.STATE_CHANGE] += [
        follows(0.2, 52, tp, 0),
        leads(10.2, 52, tp, 2, (52, 53), end=110, high=110, before=0),
        follows(20.2, 52, tp, 3, end=150, high=150, before=2),
        follows(900, 52, tp, 0),
        follows(910, 52, tp, 1, end=3, high=3, before=0),
    ]
    # The cluster migrates to KRaft, and then to kactl. Each numbers its epochs independently, and reaches an epoch that
    # another controller had.
    logs[58, Kind.CONTROLLER].append(active(1000, 58, 55))
    logs[57, Kind.KACTL].append(elected(2000, 57, 55))
    return logs


def clean_from_the_middle() -> Logs:
    """Returns logs that begin late: one controller is set to TRACE late, and the first lines of another are missing.

    Each controller has a line without its epoch, as in 1.0.
    """
    logs: Logs = collections.defaultdict(list)
    logs[69, Kind.STATE_CHANGE] += [
        online(0, "half-0", 1, 7, (1, 2), 7, by=69, under=65),
        *went(100, "other-0", 3, LIVING, DEAD, by=69, under=65),
        online(110, "half-0", 2, 9, (2,), 9, before=OFFLINE, by=69, under=65),
        moved(120, "half-0", ONLINE, OFFLINE, by=69, under=65),
    ]
    logs[68, Kind.STATE_CHANGE] += [
        online(500, "half-0", 1, 2, (1, 2), 2, by=68, under=66),
        *went(510, "half-0", 1, INELIGIBLE, LIVING, by=68, under=66),
    ]
    for by, tp in ((69, "old-0"), (68, "old-1")):
        logs[by, Kind.STATE_CHANGE].append(moved(by * 10, tp, OFFLINE, ABSENT, by=by).replace(" epoch=5]", "]"))
    return logs


def wrong() -> Logs:
    """Returns logs with one violation of each rule."""
    logs: Logs = collections.defaultdict(list)
    log = logs[9, Kind.STATE_CHANGE]
    log.append(moved(1, "gone-0", ONLINE, ABSENT, by=9))
    log += went(2, "killed-0", 3, LIVING, STARTED)
    log += went(3, "hasty-0", 3, DEAD, INELIGIBLE)
    log += [
        moved(10, "chain-0", ONLINE, OFFLINE, by=9),
        moved(11, "chain-0", ONLINE, OFFLINE, by=9),
        moved(11 + HOUR, "chain-0", ONLINE, OFFLINE, by=9),
    ]
    log += went(10, "links-0", 2, LIVING, DEAD) + went(11, "links-0", 2, LIVING, DEAD)
    # Epochs of one controller, and of two consecutive ones.
    log += [
        online(10, "back-0", 1, 5, (1, 2), 9, by=9),
        online(20, "back-0", 2, 4, (2,), 10, by=9),
        online(10, "shrunk-0", 1, 5, (1, 2), 9, by=9),
        cut(20, "shrunk-0", 1, 4, (1,), 2, 10, by=9),
        online(10, "same-0", 1, 5, (1, 2), 9, by=9),
        moved(15, "same-0", ONLINE, OFFLINE, by=9),
        online(20, "same-0", 1, 5, (1,), 10, before=OFFLINE, by=9),
        online(10, "version-0", 1, 5, (1, 2), 9, by=9),
        online(20, "version-0", 2, 6, (2,), 9, by=9),
        online(10, "next-0", 1, 5, (1, 2), 9, by=9),
    ]
    logs[8, Kind.CONTROLLER].append(elected(50, 8, 6))
    logs[8, Kind.STATE_CHANGE].append(online(60, "next-0", 2, 3, (2,), 10, by=8, under=6))
    # Two leaders in one epoch.
    logs[1, Kind.STATE_CHANGE].append(leads(10, 1, "two-0", 5, (1,), end=10))
    logs[2, Kind.STATE_CHANGE].append(leads(12, 2, "two-0", 5, (2,), end=10))
    logs[1, Kind.STATE_CHANGE].append(leads(10, 1, "apart-0", 5, (1,), end=10))
    logs[2, Kind.STATE_CHANGE].append(leads(611, 2, "apart-0", 5, (2,), end=10))
    # ISRs.
    log.append(online(10, "out-0", 1, 5, (2, 3), 9, by=9))
    log += [sent(10.1, "out-0", state(1, 5, (2, 3), 9), to, by=9) for to in (1, 2, 3)]
    log += [sent(at, "stray-0", state(2, 5, (1, 2, 3), 9, (2, 3)), 2, by=9) for at in (10, 10 + 301)]
    log += [sent(at, "leaving-0", state(2, 5, (1, 2, 3), 9, (2, 3)), 2, by=9) for at in (10, 12)]
    # Requests that brokers obeyed.
    logs[3, Kind.STATE_CHANGE] += [
        follows(10, 3, "order-0", 5, end=100, high=90),
        refused(11, 3, "order-0", 3),
        leads(12, 3, "order-0", 4, (3,), end=120, high=100, before=3),
        received(10, 3, "traced-0", state(3, 8, (3,), 9), 1, of=9),
        begun(10.1, 3, "traced-0", 1),
        received(20, 3, "traced-0", state(1, 7, (1, 3), 8), 2, of=9),
        begun(20.1, 3, "traced-0", 2, role="follower"),
        obeyed(30, 3, of=9, under=5),
        obeyed(70, 3, of=8, under=6),
        obeyed(80, 3, of=9, under=5),
    ]
    # Controllers.
    logs[7, Kind.STATE_CHANGE].append(online(90, "twin-0", 1, 5, (1,), 1, by=7, under=6))
    return logs


VERSIONS: Final = {9: "mixed", 8: "2.6+"}


def files(
    spark: SparkSession, logs: Mapping[tuple[int, Kind], Iterable[str]], versions: Mapping[int, str]
) -> DataFrame:
    """Returns the table of files, with a version for each broker."""
    listed = [
        {
            "file_id": number,
            "broker": broker,
            "begin": moment(0),
            "end": moment(HOUR),
            "version": versions.get(broker),
        }
        for number, (broker, _) in enumerate(logs)
    ]
    return table(spark, FILE_COLUMNS, listed)


def in_order(*logs: Logs) -> Logs:
    """Returns all lines, in the order of time within each file. Other orders occur only if a clock is set back."""
    return {key: sorted(lines, key=lambda line: line[:25]) for each in logs for key, lines in each.items()}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    """Returns the violations in all logs. Each file occurs twice."""
    logs = in_order(wrong(), clean_in_one_life(), clean_at_info(), clean_from_the_middle())
    once = as_timed(events(spark, logs))
    copies = once.selectExpr("cast(file_id + 100 as int) file_id", *once.columns[1:])
    return rows(audit(once.union(copies), files(spark, logs, VERSIONS)), "rule", "topic", "at")


def clean_in_one_life() -> Logs:
    """Returns the first half of `clean_at_trace`."""
    return {key: [line for line in lines if line < "[2024-05-01 10:01:00"] for key, lines in clean_at_trace().items()}


def test_correct_history_breaks_no_rule(spark: SparkSession) -> None:
    logs = in_order(clean_at_trace(), clean_at_info(), clean_from_the_middle())
    told_apart = kept(timed(events(spark, logs), table(spark, skew.COLUMNS, [])))

    assert rows(audit(told_apart, files(spark, logs, {}))) == []


def test_columns_are_the_declared_ones(found: Found) -> None:
    assert list(found[0]) == [each.name for each in COLUMNS]


def test_every_rule_reports_exactly_its_violations(found: Found) -> None:
    broken = {(row["rule"], row["topic"]) for row in found}

    assert broken == {
        ("partition-move", "gone"),
        ("replica-move", "killed"),
        ("partition-chain", "chain"),
        ("replica-chain", "links"),
        ("leader-epoch", "back"),
        ("leader-epoch", "same"),
        ("leader-epoch", "shrunk"),
        ("leader-epoch", "next"),
        ("partition-epoch", "version"),
        ("one-leader", "two"),
        ("leader-in-isr", "out"),
        ("isr-assigned", "stray"),
        ("request-order", "order"),
        ("request-order", "traced"),
        ("controller-epoch", None),
        ("one-controller", None),
    }
    assert {rule for rule, _ in broken} == set(RULES)
    assert len(found) == len(broken)  # each violation once


def of(found: Found, topic: str | None, rule: str | None = None) -> dict[str, Any]:
    [row] = [row for row in found if row["topic"] == topic and rule in (None, row["rule"])]
    return row


def test_illegal_transition_lists_allowed_source_states(found: Found) -> None:
    row = of(found, "killed")

    assert row["expected"] == f"{STARTED} from {DEAD}"
    assert row["found"] == f"{STARTED} from {LIVING}"
    assert (row["partition"], row["life"], row["broker"]) == (0, 0, 3)
    assert (row["controller"], row["controller_epoch"]) == (9, 5)
    assert row["at"] == moment(2)
    assert row["file_id"] == 0
    assert row["offset"] > 0


def test_chain_is_broken_by_the_inconsistent_line(found: Found) -> None:
    row = of(found, "chain")

    assert (row["at"], row["expected"], row["found"]) == (
        moment(11),
        f"from {OFFLINE}",
        f"from {ONLINE} to {OFFLINE}",
    )


def test_epoch_violation_states_the_expected_minimum(found: Found) -> None:
    assert (of(found, "back")["expected"], of(found, "back")["found"]) == ("above 5", "4")
    assert (of(found, "same")["expected"], of(found, "same")["found"]) == ("above 5", "5")
    assert (of(found, "next")["expected"], of(found, "next")["controller_epoch"]) == ("above 5", 6)
    assert (of(found, "version")["expected"], of(found, "version")["found"]) == ("above 9, with leader epoch 6", "9")


def test_state_in_many_lines_is_one_violation(found: Found) -> None:
    row = of(found, "out")

    assert (row["at"], row["expected"], row["found"]) == (
        moment(10),
        "leader 1 in the ISR of leader epoch 5",
        "ISR [2,3]",
    )


def test_broker_and_controller_violations_name_them(found: Found) -> None:
    order, traced = of(found, "order"), of(found, "traced")
    two, stray = of(found, "two"), of(found, "stray")
    disobedient, twin = of(found, None, "controller-epoch"), of(found, None, "one-controller")

    assert (order["broker"], order["expected"], order["found"]) == (3, "leader epoch 5 or above", "leader epoch 4")
    assert (traced["broker"], traced["at"], traced["found"]) == (3, moment(20.1), "leader epoch 7")
    assert (two["broker"], two["expected"], two["found"]) == (2, "leader 1 with leader epoch 5", "leader 2")
    assert (stray["broker"], stray["expected"], stray["found"]) == (1, "ISR within [2,3]", "ISR [1,2,3]")
    assert (disobedient["broker"], disobedient["at"], disobedient["controller"]) == (3, moment(80), 9)
    assert disobedient["expected"] == "controller epoch 6 or above"
    assert (twin["controller"], twin["expected"]) == (7, "controller 8 with epoch 6")


def test_transition_of_2_3_is_illegal_before(spark: SparkSession) -> None:
    logs = {(9, Kind.STATE_CHANGE): went(3, "hasty-0", 3, DEAD, INELIGIBLE), (9, Kind.CONTROLLER): []}
    found = as_timed(events(spark, logs))

    def audited(*versions: str | None) -> Found:
        listed = [
            {"file_id": number, "broker": 9, "begin": moment(0), "end": moment(9), "version": version}
            for number, version in enumerate(versions)
        ]
        return rows(audit(found, table(spark, FILE_COLUMNS, listed)))

    assert audited("1.1-2.5", None) == []
    assert [row["expected"] for row in audited("1.1-2.5", "1.0-2.0")] == [f"{INELIGIBLE} from {STARTED}, before 2.3"]


def test_every_rule_is_documented() -> None:
    page = (ROOT / "docs" / "forensics.md").read_text()

    assert [name for name, says in RULES.items() if f"* `{name}`: {says}\n" not in page] == []


def test_tables_agree_with_the_controller() -> None:
    moves = {
        (PARTITION_STATES[before.name.lower()], PARTITION_STATES[after.name.lower()])
        for before, after in partition.TRANSITIONS
    }
    replicas = {
        (REPLICA_STATES[before.name.lower()], REPLICA_STATES[after.name.lower()])
        for after, befores in replica.TRANSITIONS.items()
        for before in befores
    }

    assert {(before, after) for after, befores in PARTITIONS.items() for before in befores} == moves
    assert {(before, after) for after, befores in REPLICAS.items() for before in befores} == replicas
    assert set(PARTITIONS) == {PARTITION_STATES[each.name.lower()] for each in PartitionState}
    assert set(REPLICAS) == {REPLICA_STATES[each.name.lower()] for each in ReplicaState}
