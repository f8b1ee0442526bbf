"""Outages without the metadata log: broker lines contain the leaders, and few of the ISRs.

A leader logs its ISR change only if the response to its request arrives before the metadata with the same change. Both
orders are equally likely. The version of the stored state increases in both cases.
"""

from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.outages import outages

from .chain import chain
from .said import Ids, ids, leads_3
from .tables import line, rows

_QUORUM: Final = "[QuorumController id=2] "
_TOPIC_ID: Final = "AbC-dEf_GhIjKlMnOpQrSt"


def quorum(seconds: float, message: str) -> str:
    return line(seconds, _QUORUM + message, logger="org.apache.kafka.controller.ReplicationControlManager")


def created(seconds: float, tp: str, replicas: Ids) -> str:
    return quorum(
        seconds,
        f"Replayed PartitionRecord for new partition {tp} with topic ID {_TOPIC_ID} and PartitionRegistration("
        f"replicas=[{ids(replicas, ', ')}], directories=[zWn1ruoqbLghizMWU5Oafw, AGg8v7U4NHnZRoHfmO1MAg], "
        f"isr=[{ids(replicas, ', ')}], removingReplicas=[], addingReplicas=[], elr=[], lastKnownElr=[], "
        f"leader={replicas[0]}, leaderRecoveryState=RECOVERED, leaderEpoch=0, partitionEpoch=0).",
    )


def follows_3(seconds: float, broker: int, tp: str, epoch: int, version: int, leader: int) -> str:
    message = (
        f"Follower {tp} with topic id Some({_TOPIC_ID}) starts at leader epoch {epoch} from offset 2115 with partition "
        f"epoch {version} and high watermark 2114. Current leader is {leader}. Previous leader Some({leader}) and "
        f"previous leader epoch was {epoch}."
    )
    return line(seconds, f"[Broker id={broker}] {message}")


def _led_by(leader: int, epoch: int = 1) -> str:
    return f"Some({leader}) and previous leader epoch was {epoch}"


TOPICS: Final = ("moved", "handed-over", "let-in", "left-out")
# 1 dies at 8 and is found dead at 12. It returns at 18, but no line logs that it is in sync again; then 3 dies.
_OF_CONTROLLER: Final = [
    created(1, "moved-0", (1, 2)),
    created(1, "let-in-0", (1, 3)),
    created(1, "left-out-0", (1, 3)),
    quorum(12, "Fencing broker 1 because its session has timed out."),
    quorum(
        18,
        "The request from broker 1 to unfence has been granted because it has caught up with the offset of its "
        "register broker record 48.",
    ),
    created(1, "handed-over-0", (2, 1)),
    quorum(35, "Unfenced broker 2 has requested and been granted a controlled shutdown."),
    quorum(40, "Fencing broker 3 because its session has timed out."),
]
_OF_1: Final = [
    leads_3(1.5, 1, "moved-0", 0, 0, (1, 2)),
    leads_3(1.5, 1, "let-in-0", 0, 0, (1, 3)),
    leads_3(1.5, 1, "left-out-0", 0, 0, (1, 3)),
    # Rejoins the ISR with version 2, and is elected as preferred leader with version 3.
    leads_3(30.4, 1, "moved-0", 2, 3, (2, 1), before=_led_by(2)),
    leads_3(35.1, 1, "handed-over-0", 1, 1, (1,), before=_led_by(2, 0)),
    # Rejoins the ISR with version 2, and is alone in it with version 3.
    leads_3(40.1, 1, "let-in-0", 2, 3, (1,), before=_led_by(3)),
    # Elected immediately.
    leads_3(40.1, 1, "left-out-0", 2, 2, (1,), before=_led_by(3)),
]
_OF_2: Final = [
    leads_3(1.5, 2, "handed-over-0", 0, 0, (2, 1)),
    leads_3(12.1, 2, "moved-0", 1, 1, (2,), before=_led_by(1, 0)),
    follows_3(30, 2, "moved-0", 2, 3, 1),
    follows_3(35.2, 2, "handed-over-0", 1, 1, 1),
]
_OF_3: Final = [
    leads_3(12.1, 3, "let-in-0", 1, 1, (3,), before=_led_by(1, 0)),
    leads_3(12.1, 3, "left-out-0", 1, 1, (3,), before=_led_by(1, 0)),
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Returns the outages of each topic, in order."""
    of = {1: _OF_1, 2: _OF_2, 3: _OF_3}
    logs = {(broker, Kind.STATE_CHANGE): lines for broker, lines in of.items()}
    told = chain(spark, {(2, Kind.CONTROLLER): _OF_CONTROLLER} | logs)
    listed = rows(outages(told.timed, told.leadership, told.absences), "begin")
    return {topic: [row for row in listed if row["topic"] == topic] for topic in TOPICS}


def test_dead_leader_is_replaced_by_in_sync_replica(found: dict[str, list[dict[str, Any]]]) -> None:
    lost = found["moved"][0]

    assert (lost["broker"], lost["new_leader"]) == (1, 2)
    assert (lost["cause"], lost["planned"], lost["unclean"]) == ("broker-failure", False, False)


def test_moved_live_leader_without_reason_is_unexplained(found: dict[str, list[dict[str, Any]]]) -> None:
    moved = found["moved"][1]

    assert (moved["broker"], moved["new_leader"]) == (2, 1)
    assert (moved["cause"], moved["planned"]) == ("unknown", None)


def test_controlled_shutdown_moves_leaders_as_planned(found: dict[str, list[dict[str, Any]]]) -> None:
    (row,) = found["handed-over"]

    assert (row["broker"], row["new_leader"]) == (2, 1)
    assert (row["cause"], row["planned"], row["unclean"]) == ("controlled-shutdown", True, False)


def test_leader_with_other_isr_members_was_in_sync(
    found: dict[str, list[dict[str, Any]]],
) -> None:
    assert found["moved"][1]["unclean"] is False


def test_missing_isr_makes_cleanness_unknown(found: dict[str, list[dict[str, Any]]]) -> None:
    assert [row["unclean"] for row in found["let-in"]] == [False, None]


def test_leader_outside_complete_isr_is_unclean(found: dict[str, list[dict[str, Any]]]) -> None:
    assert [row["unclean"] for row in found["left-out"]] == [False, True]


# 1 is fenced at 12 and 2 at 20, and neither returns; 3 is fenced at 20 and returns at 30.
_OF_CONTROLLER_ONLY: Final = [
    created(1, "alone-0", (1,)),
    created(1, "both-0", (1, 2)),
    created(1, "returned-0", (3,)),
    created(1, "one-left-0", (1, 4)),
    quorum(12, "Fencing broker 1 because its session has timed out."),
    quorum(20, "Fencing broker 2 because its session has timed out."),
    quorum(20, "Fencing broker 3 because its session has timed out."),
    quorum(
        30,
        "The request from broker 3 to unfence has been granted because it has caught up with the offset of its "
        "register broker record 48.",
    ),
    quorum(60, "Replayed TopicRecord for topic later with topic ID zWn1ruoqbLghizMWU5Oafw."),
]
_OF_2_ONLY: Final = [leads_3(12.1, 2, "both-0", 1, 1, (2,), before=_led_by(1, 0))]


def test_partition_whose_replicas_are_all_fenced_has_no_leader(spark: SparkSession) -> None:
    logs = {(5, Kind.CONTROLLER): _OF_CONTROLLER_ONLY, (2, Kind.STATE_CHANGE): _OF_2_ONLY}
    told = chain(spark, logs, copied=True)

    listed = rows(outages(told.timed, told.leadership, told.absences), "begin")

    assert [(row["topic"], row["broker"], row["cause"]) for row in listed if row["end"] is None] == [
        ("alone", 1, "broker-failure"),
        ("both", 2, "broker-failure"),
    ]
    assert {(row["end_kind"], row["begin_kind"]) for row in listed if row["end"] is None} == {("open", "inferred")}
