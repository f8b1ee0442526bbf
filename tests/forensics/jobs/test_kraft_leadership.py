"""Causes of elections from the metadata log, which contains every change but no reason."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.jobs.absences import absences
from kactl.forensics.jobs.leadership import leadership
from kactl.forensics.jobs.outages import outages
from kactl.forensics.jobs.states import states

from . import dumps
from .chain import kept
from .tables import as_timed, rows

Found = dict[int, list[dict[str, Any]]]

# Each of three brokers is restarted in turn, and preferred leaders are elected again. At the end, 3 dies.
DUMP = [
    dumps.topic(0),
    dumps.partition(0, 0, [1, 2, 3]),
    dumps.partition(0, 1, [3, 1, 2]),
    # Broker 2 leads no partition.
    dumps.broker(10, 2, inControlledShutdown=1),
    dumps.change(10, 0, isr=[1, 3]),
    dumps.change(10, 1, isr=[3, 1]),
    dumps.broker(11, 2, fenced=1),
    dumps.broker(14, 2, fenced=-1),
    dumps.change(16, 0, isr=[1, 3, 2]),
    dumps.change(16, 1, isr=[3, 1, 2]),
    dumps.broker(20, 1, inControlledShutdown=1),
    dumps.change(20, 0, isr=[3, 2], leader=2),
    dumps.change(20, 1, isr=[3, 2]),
    dumps.broker(21, 1, fenced=1),
    dumps.broker(24, 1, fenced=-1),
    dumps.change(26, 0, isr=[3, 2, 1]),
    dumps.change(26, 1, isr=[3, 2, 1]),
    dumps.broker(30, 3, inControlledShutdown=1),
    dumps.change(30, 0, isr=[2, 1]),
    dumps.change(30, 1, isr=[2, 1], leader=1),
    dumps.broker(31, 3, fenced=1),
    dumps.broker(34, 3, fenced=-1),
    dumps.change(36, 0, isr=[2, 1, 3]),
    dumps.change(36, 1, isr=[2, 1, 3]),
    dumps.change(40, 0, leader=1),
    dumps.change(40, 1, leader=3),
    dumps.broker(50, 3, fenced=1),
    dumps.change(50, 0, isr=[2, 1]),
    dumps.change(50, 1, isr=[2, 1], leader=1),
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> tuple[Found, Found]:
    """Returns leaderships and outages by partition number."""
    told = kept(as_timed(dumps.events(spark, DUMP)))
    led = kept(leadership(told, states(told)))
    tables = rows(led, "leader_epoch"), rows(outages(told, led, absences(told)), "leader_epoch")
    of_epochs, of_outages = (
        {number: [row for row in of if row["partition"] == number] for number in (0, 1)} for of in tables
    )
    return of_epochs, of_outages


def test_preferred_election_after_unrelated_restart(found: tuple[Found, Found]) -> None:
    assert [(row["leader"], row["how"], row["planned"]) for row in found[0][0]] == [
        (1, "initial", None),
        (2, "controlled-shutdown", True),
        (1, "preferred", True),
    ]
    assert [(row["leader"], row["how"], row["planned"]) for row in found[0][1]] == [
        (3, "initial", None),
        (1, "controlled-shutdown", True),
        (3, "preferred", True),
        (1, "offline", False),
    ]


def test_planned_move_has_no_loss(found: tuple[Found, Found]) -> None:
    assert [(row["cause"], row["planned"]) for row in found[1][0]] == [
        ("controlled-shutdown", True),
        ("preferred", True),
    ]
    assert [(row["cause"], row["planned"]) for row in found[1][1]] == [
        ("controlled-shutdown", True),
        ("preferred", True),
        ("broker-failure", False),
    ]
