"""Absences computed from lines of controllers and of the brokers themselves."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.absences import JOB, absences

from . import said
from .tables import as_timed, controller_line, events, line, moment, rows, timed_table

CONTROLLER = [
    said.elected(0, 1, 5),
    said.changed(1, (1, 2, 3, 4, 5), added=(2, 3, 4, 5)),
    said.changed(100, (1, 3, 4, 5), deleted=(2,)),
    controller_line(100.1, 1, "Broker failure callback for 2"),
    said.changed(160, (1, 2, 3, 4, 5), added=(2,)),
    controller_line(200, 1, "Shutting down broker 3"),
    said.changed(205, (1, 2, 4, 5), deleted=(3,)),
    said.changed(300, (1, 2, 4, 5), bounced=(4,)),
    said.changed(400, (1, 4, 5), deleted=(2,)),
]
NEXT = [
    said.elected(500, 5, 6),
    controller_line(500.1, 5, "Currently active brokers in the cluster: Set(4, 5)"),
]
BROKER_2 = [
    said.leads(50, 2, "a-0", 1, (2,)),
    said.leads(90, 2, "a-1", 1, (2,)),
    # Ignored: a line of a process that starts before the old process is found dead.
    line(99, "starting (kafka.server.KafkaServer)", logger="kafka.server.KafkaServer"),
    said.follows(161, 2, "a-0", 2),
    said.follows(399, 2, "a-1", 3),
]
BROKER_4 = [said.leads(299, 4, "a-2", 1, (4,)), said.leads(301, 4, "a-2", 2, (4,))]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> list[dict[str, Any]]:
    logs = {
        (1, Kind.CONTROLLER): CONTROLLER,
        (1, Kind.EMPTY): CONTROLLER,  # a copy
        (5, Kind.CONTROLLER): NEXT,
        (2, Kind.SERVER): BROKER_2,
        (4, Kind.SERVER): BROKER_4,
    }
    return rows(absences(as_timed(events(spark, logs))), "broker", "detected_at")


def of(found: list[dict[str, Any]], broker: int, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in found if row["broker"] == broker]


def test_repeated_lines_give_one_absence(found: list[dict[str, Any]]) -> None:
    assert of(found, 2, "detected_at", "back_at", "how") == [
        (None, moment(1), "failed"),
        (moment(100), moment(160), "failed"),
        (moment(400), None, "failed"),
    ]


def test_own_lines_bound_death_and_return(found: list[dict[str, Any]]) -> None:
    assert of(found, 2, "last_sign_at", "first_sign_at") == [
        (None, moment(50)),
        (moment(90), moment(161)),
        (moment(399), None),
    ]
    assert of(found, 2, "error_us") == [(0,), (0,), (0,)]


def test_controlled_shutdown_is_planned(found: list[dict[str, Any]]) -> None:
    assert of(found, 3, "detected_at", "shutdown_at", "planned", "how", "last_sign_at")[1:] == [
        (moment(205), moment(200), True, "stopped", None)
    ]
    assert of(found, 2, "planned") == [(False,)] * 3


def test_bounced_broker_has_no_last_sign(found: list[dict[str, Any]]) -> None:
    assert of(found, 4, "detected_at", "back_at", "how", "last_sign_at", "first_sign_at")[1:] == [
        (moment(300), moment(300), "bounced", None, moment(301))
    ]


def test_absent_previous_controller_is_named(found: list[dict[str, Any]]) -> None:
    assert of(found, 1, "detected_at", "how", "controller") == [(moment(500.1), "controller", 5)]


def test_errors_of_both_clocks_add_up(spark: SparkSession) -> None:
    gone = {"type": "broker-failed", "controller": 1, "speaker": 1, "brokers_removed": [2], "at_error_us": 40}
    own = {"type": "leads", "speaker": 2, "at_error_us": 2}

    (row,) = rows(absences(timed_table(spark, [gone | {"at": moment(5)}, own | {"at": moment(4)}])))

    assert (row["error_us"], row["last_sign_at"]) == (42, moment(4))


def test_result_has_the_declared_columns(spark: SparkSession) -> None:
    assert absences(timed_table(spark, [])).schema.fieldNames() == [each.name for each in JOB.columns]
