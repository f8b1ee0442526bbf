"""Leaderships computed from states and lines, with a partition for each case in one table."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.leadership import JOB, leadership
from kactl.forensics.jobs.states import states

from . import said
from .tables import as_timed, controller_line, events, line, moment, rows, timed_table

Led = dict[str, list[dict[str, Any]]]
LOGS: dict[tuple[int, Kind], list[str]] = {
    (1, Kind.STATE_CHANGE): [],
    (1, Kind.CONTROLLER): [],
    (1, Kind.SERVER): [],
    (2, Kind.SERVER): [],
    (3, Kind.SERVER): [],
}
S, L = LOGS[1, Kind.STATE_CHANGE], LOGS[1, Kind.CONTROLLER]
B1, B2, B3 = (LOGS[number, Kind.SERVER] for number in (1, 2, 3))


def begun(tp: str, leader: int = 1, epoch: int = 4, isr: tuple[int, ...] = (1, 2, 3), *, at: float = 1) -> None:
    """Adds a partition with these replicas, led since before the events of its scenario."""
    S.append(said.new(at - 1, tp))
    S.append(said.online(at, tp, leader, epoch, isr, 10))


# died-0: created, then the leader dies after ISR changes. The new leader logs its own lines.
S += [
    said.new(0, "died-0"),
    said.online(0.1, "died-0", 1, 0, (1, 2, 3), 0, before=said.NEW),
    said.online(600, "died-0", 2, 1, (2,), 2, before=said.OFFLINE),
]
B1 += [said.leads(0.3, 1, "died-0", 0, (1, 2, 3)), said.isr_updated(50, 1, "died-0", (1, 2), 1)]
B2 += [
    said.handling(600.1, 2, 70),
    said.leads(600.2, 2, "died-0", 1, (2,), end=55, high=50, before=0),
    said.handling(700, 2, 71),
    said.leads(700.1, 2, "died-0", 1, (2,), end=99, high=99),  # after a restart
]

# asked-0, asked-10: a preferred election of the first is requested by name; the other changes at the same time.
# asked-1 follows within two minutes, asked-2 later.
for tp, seconds in (("asked-0", 400.1), ("asked-10", 400.1), ("asked-1", 520), ("asked-2", 520.1)):
    begun(tp, 2)
    S.append(said.online(seconds, tp, 1, 5, (2, 3, 1), 11))
L.append(said.preferred_asked(400, "asked-0,asked-1,asked-2,else-1,early-0,early-1"))

# The request may be logged up to a tenth of a second after its effect, and no later. early-0 and early-1 are named in
# the request above. The leader of early-2 and early-3 shuts down below. The leader of early-4 and early-5 is removed by
# a reassignment.
for tp, seconds in (("early-0", 399.9), ("early-1", 399.899)):
    begun(tp, 2)
    S.append(said.online(seconds, tp, 1, 5, (2, 3, 1), 11))
for tp, seconds in (("early-2", 489.9), ("early-3", 489.899)):
    begun(tp, 3)
    S.append(said.online(seconds, tp, 1, 5, (1, 2), 11))
for tp, seconds in (("early-4", 299.9), ("early-5", 299.899)):
    begun(tp)
    L.append(controller_line(300, 1, f"Handling reassignment of partition {tp} to new replicas List(2, 3)"))
    S.append(said.online(seconds, tp, 2, 5, (2, 3), 11))

# stopped-0: the leader's broker shuts down. stopped-1 moves within five minutes, stopped-2 later.
for tp, seconds in (("stopped-0", 490.2), ("stopped-1", 790), ("stopped-2", 790.1)):
    begun(tp, 3)
    S.append(said.online(seconds, tp, 1, 5, (1, 2), 11))
L.append(controller_line(490, 1, "Shutting down broker 3"))

# again-0: the leader's broker shuts down, returns, and dies.
begun("again-0", 4)
L.append(controller_line(700, 1, "Shutting down broker 4"))
L.append(controller_line(710, 1, "Newly added brokers: , deleted brokers: 4, all live brokers: 1,2,3"))
L.append(controller_line(720, 1, "Newly added brokers: 4, deleted brokers: , all live brokers: 1,2,3,4"))
S.append(said.online(760, "again-0", 1, 5, (1, 2), 11))

# moved-0: the leader is not among the target replicas. moved-1: the new leader logs which replicas are being removed.
begun("moved-0")
begun("moved-1")
L.append(controller_line(300, 1, "Handling reassignment of partition moved-0 to new replicas List(2, 3)"))
S += [said.online(360, "moved-0", 2, 5, (2, 3), 11), said.online(360, "moved-1", 2, 5, (1, 2, 3), 11)]
B2.append(
    said.leads_3(360.1, 2, "moved-1", 5, 11, (1, 2, 3), removing=(1,), before="Some(1) and previous leader epoch was 4")
)

# cut-0: a follower is removed from the ISR, then the leader fails and none is left; later 1 is elected again.
begun("cut-0", 1, 4, (1, 3))
S += [
    said.cut(100, "cut-0", 1, 5, (1,), 3, 11),
    said.cut(200, "cut-0", -1, 6, (1,), 1, 12),
    said.online(260, "cut-0", 1, 7, (1,), 13, before=said.OFFLINE),
]

# heard-0: no controller line; the new leader logs the previous leader.
B3.append(said.leads_3(50, 3, "heard-0", 8, 20, (3, 2), before="Some(2) and previous leader epoch was 6"))

# traced-0: requests at TRACE, of a version without "Leader ... starts".
S.append(said.online(30, "traced-0", 2, 3, (2,), 6))
B2 += [
    said.received(30.1, 2, "traced-0", said.state(2, 3, (2,), 6), 900),
    said.completed(30.4, 2, "traced-0", 900),
    said.completed(10, 2, "traced-0", 899),
]

# counted-0: the broker restarted in between, so both requests have one correlation id. lost-0: the end of the second
# request is not logged, and a third one has the same id.
for tp, ended in (("counted-0", 70.4), ("lost-0", 170.4)):
    S += [said.online(30, tp, 2, 3, (2,), 6), said.online(70, tp, 2, 4, (2,), 7)]
    B2 += [
        said.received(30.1, 2, tp, said.state(2, 3, (2,), 6), 4),
        said.completed(30.4, 2, tp, 4),
        said.received(70.1, 2, tp, said.state(2, 4, (2,), 7), 4),
        said.completed(ended, 2, tp, 4),
    ]

# gone-0: deleted. named-0: lines of 1.0 without the requests.
begun("gone-0")
S += [said.moved(90, "gone-0", said.ONLINE, said.OFFLINE), said.moved(91, "gone-0", said.OFFLINE, said.ABSENT)]
S += [
    said.online_unnumbered(5, "named-0", 1, before=said.NEW),
    said.online_unnumbered(9, "named-0", 2, before=said.OFFLINE),
]

# many-0: the list of requested elections is so long that it is truncated.
begun("many-0", 2)
begun("many-1", 2)
MANY = ",".join(f"other-{number}" for number in range(900))
L.append(said.preferred_asked(800, MANY))
S += [said.online(801, "many-0", 1, 5, (2, 3, 1), 11), said.online(801, "many-1", 3, 5, (2, 3, 1), 11)]

# other-0: named in a truncated list, too, but of another kind of election.
begun("other-0", 2)
L.append(said.preferred_asked(1300, MANY).replace("PREFERRED", "UNCLEAN"))
S.append(said.online(1301, "other-0", 1, 5, (2, 3, 1), 11))

# missed-0, fenced-0: the controller logs only the loss of their leaders. late-0: its leader was lost long before.
# missed-0 is logged again with a larger ISR; missed-1 follows after a minute.
L += [
    said.changed(920, (1, 3), deleted=(2,)),
    controller_line(930, 1, "Fencing broker 3 because its session has timed out."),
]
B1 += [
    said.leads_3(921, 1, "missed-0", 5, 9, (1,), before="Some(2) and previous leader epoch was 4"),
    said.leads_3(980, 1, "missed-1", 5, 9, (1,), before="Some(2) and previous leader epoch was 4"),
    said.leads_3(931, 1, "fenced-0", 5, 9, (1,), before="Some(3) and previous leader epoch was 4"),
    said.leads_3(980.1, 1, "late-0", 5, 9, (1,), before="Some(2) and previous leader epoch was 4"),
    said.leads_3(999, 1, "missed-0", 5, 11, (1, 2), before="Some(2) and previous leader epoch was 4"),
]

# back-0: its leader was fenced, and unfenced for a while. short-0: its leader was unfenced before the line was written.
L += [
    controller_line(940, 1, "Fencing broker 5 because its session has timed out."),
    controller_line(940, 1, "Fencing broker 6 because its session has timed out."),
    controller_line(940.2, 1, "The request from broker 6 to unfence has been granted because it has caught up."),
    controller_line(950, 1, "The request from broker 5 to unfence has been granted because it has caught up."),
]
B1 += [
    said.leads_3(940.4, 1, "short-0", 5, 9, (1,), before="Some(6) and previous leader epoch was 4"),
    said.leads_3(970, 1, "back-0", 5, 9, (1,), before="Some(5) and previous leader epoch was 4"),
]

# kraft-0: KRaft's controller logs the leaders without a cause: 2, and then the first replica.
QUORUM, OF_ID = "org.apache.kafka.controller.QuorumController", "kraft-0 with topic ID AbC-dEf_GhIjKlMnOpQrSt"
L += [
    line(seconds, f"[QuorumController id=1] {message}", logger=QUORUM)
    for seconds, message in (
        (
            1400,
            f"Replayed PartitionRecord for new partition {OF_ID} and PartitionRegistration(replicas=[1, 2], "
            "isr=[1, 2], removingReplicas=[], addingReplicas=[], leader=1, leaderRecoveryState=RECOVERED, "
            "leaderEpoch=0, partitionEpoch=0).",
        ),
        (1410, f"partition change for {OF_ID}: leader: 1 -> 2, leaderEpoch: 0 -> 1, partitionEpoch: 0 -> 1"),
        (1420, f"partition change for {OF_ID}: leader: 2 -> 1, leaderEpoch: 1 -> 2, partitionEpoch: 1 -> 2"),
    )
]

# isr-0: only an ISR change is known.
B1.append(said.isr_updated(50, 1, "isr-0", (1,), 12))
S.append(said.online(70, "isr-0", 2, 6, (2,), 13, before=said.OFFLINE))


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Led:
    timed = as_timed(events(spark, LOGS | {(1, Kind.EMPTY): [*S, *L], (2, Kind.EMPTY): B2}))  # and copies of them
    listed: Led = {}
    for row in rows(leadership(timed, states(timed)), "topic", "partition", "leader_epoch", "begin"):
        listed.setdefault(f"{row['topic']}-{row['partition']}", []).append(row)
    return listed


def hows(of: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["leader_epoch"], row["leader"], row["how"], row["planned"]) for row in of]


def test_each_epoch_has_leader_and_cause(found: Led) -> None:
    assert hows(found["died-0"]) == [(0, 1, "initial", None), (1, 2, "offline", False)]


def test_epoch_ends_when_the_next_begins(found: Led) -> None:
    assert [(row["begin"], row["end"]) for row in found["died-0"]] == [(moment(0.1), moment(600)), (moment(600), None)]


def test_previous_leader_and_last_isr_are_known(found: Led) -> None:
    first, second = found["died-0"]

    assert (first["prev_leader"], first["prev_leader_epoch"], first["prev_isr"]) == (None, None, None)
    assert (second["prev_leader"], second["prev_leader_epoch"], second["prev_isr"]) == (1, 0, [1, 2])
    assert (second["isr"], second["partition_epoch"], second["replicas"]) == ([2], 2, [1, 2, 3])
    assert (second["controller"], second["controller_epoch"], second["from_state"]) == (1, 5, said.OFFLINE)


def test_first_lines_of_the_new_leader_count(found: Led) -> None:
    row = found["died-0"][1]

    assert (row["received_at"], row["led_at"], row["led_error_us"]) == (moment(600.1), moment(600.2), 0)
    assert (row["log_end"], row["high_watermark"]) == (55, 50)


def test_requested_preferred_leader_is_planned(found: Led) -> None:
    assert hows(found["asked-0"])[1] == hows(found["asked-1"])[1] == (5, 1, "preferred", True)
    assert hows(found["asked-2"])[1] == (5, 1, "unknown", None)


def test_cause_logged_slightly_later_still_explains(found: Led) -> None:
    assert [hows(found[f"early-{number}"])[1][2] for number in range(6)] == [
        "preferred",
        "unknown",
        "controlled-shutdown",
        "unknown",
        "reassign",
        "unknown",
    ]


def test_kraft_first_replica_is_preferred_leader(found: Led) -> None:
    assert hows(found["kraft-0"]) == [
        (0, 1, "initial", None),
        (1, 2, "unknown", None),
        (2, 1, "preferred", True),
    ]


def test_unlisted_partition_is_not_preferred(found: Led) -> None:
    assert hows(found["asked-10"])[1] == (5, 1, "unknown", None)


def test_truncated_list_may_name_any_partition(found: Led) -> None:
    assert hows(found["many-0"])[1] == (5, 1, "preferred", True)
    assert hows(found["many-1"])[1] == (5, 3, "unknown", None)
    assert hows(found["other-0"])[1] == (5, 1, "unknown", None)


def test_leader_on_stopping_broker_is_a_planned_change(found: Led) -> None:
    assert hows(found["stopped-0"])[1] == hows(found["stopped-1"])[1] == (5, 1, "controlled-shutdown", True)
    assert hows(found["stopped-2"])[1] == (5, 1, "unknown", None)


def test_shutdown_explains_nothing_after_return(found: Led) -> None:
    assert hows(found["again-0"])[1] == (5, 1, "unknown", None)


def test_reassigned_leader_is_replaced_as_planned(found: Led) -> None:
    assert hows(found["moved-0"])[1] == (5, 2, "reassign", True)
    assert hows(found["moved-1"])[1] == (5, 2, "reassign", True)


def test_epochs_of_the_same_leader_are_isr_changes(found: Led) -> None:
    assert hows(found["cut-0"])[1:] == [(5, 1, "isr", None), (6, -1, "isr", None), (7, 1, "offline", False)]
    assert [row["prev_leader"] for row in found["cut-0"]] == [None, 1, 1, -1]
    assert [row["prev_isr"] for row in found["cut-0"]] == [None, [1, 3], [1], [1]]


def test_fenced_or_missed_leader_was_lost(found: Led) -> None:
    assert hows(found["missed-0"]) == hows(found["missed-1"]) == hows(found["fenced-0"]) == [(5, 1, "offline", False)]
    assert hows(found["late-0"]) == [(5, 1, "unknown", None)]


def test_epoch_begins_with_its_first_line(found: Led) -> None:
    assert [(row["isr"], row["partition_epoch"]) for row in found["missed-0"]] == [([1], 9)]


def test_returned_broker_loses_leadership_for_another_cause(found: Led) -> None:
    assert hows(found["back-0"]) == [(5, 1, "unknown", None)]


def test_leader_that_returned_at_once_was_lost(found: Led) -> None:
    assert hows(found["short-0"]) == [(5, 1, "offline", False)]


def test_previous_leader_from_new_leader_line(found: Led) -> None:
    (row,) = found["heard-0"]

    assert (row["prev_leader"], row["prev_leader_epoch"], row["how"]) == (2, 6, "unknown")
    assert (row["begin"], row["led_at"], row["log_end"]) == (moment(50), moment(50), 7)


def test_completed_transition_dates_the_role(found: Led) -> None:
    (row,) = found["traced-0"]

    assert (row["received_at"], row["led_at"], row["log_end"]) == (moment(30.1), moment(30.4), None)


def test_reused_correlation_id_dates_each_role_separately(found: Led) -> None:
    assert [row["led_at"] for row in found["counted-0"]] == [moment(30.4), moment(70.4)]
    assert [row["led_at"] for row in found["lost-0"]] == [moment(30.4), None]


def test_deletion_ends_the_last_leadership(found: Led) -> None:
    assert [row["end"] for row in found["gone-0"]] == [moment(91)]


def test_leaders_without_epoch_are_ordered_by_time(found: Led) -> None:
    assert hows(found["named-0"]) == [(None, 1, "initial", None), (None, 2, "offline", False)]
    assert [(row["begin"], row["end"], row["prev_leader"]) for row in found["named-0"]] == [
        (moment(5), moment(9), None),
        (moment(9), None, 1),
    ]


def test_isr_change_does_not_show_the_first_isr(found: Led) -> None:
    assert [(row["leader"], row["isr"], row["partition_epoch"]) for row in found["isr-0"]] == [
        (1, None, None),
        (2, [2], 13),
    ]
    assert found["isr-0"][1]["prev_isr"] == [1]


def test_result_has_the_declared_columns(spark: SparkSession) -> None:
    nothing = timed_table(spark, [])

    assert leadership(nothing, states(nothing)).schema.fieldNames() == [each.name for each in JOB.columns]
