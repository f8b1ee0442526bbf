"""Churn, flapping and reassignments from lines: a broker that fails twice, and a partition that is reassigned."""

from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs import churn, flapping, leadership, reassignments, states

from . import said
from .tables import as_timed, events, line, moment, rows


def adding(seconds: float, tp: str, epoch: int, isr: str, comes: str, goes: str) -> str:
    message = f"Leader {tp} starts at leader epoch {epoch} from offset 9 with high watermark 9 ISR [{isr}]"
    changes = f"addingReplicas [{comes}] removingReplicas [{goes}]. Previous leader epoch was {epoch - 1}."
    return line(seconds, f"[Broker id=1] {message} {changes}")


CONTROLLER: Final = [
    said.changed(56, (2, 3), deleted=(1,), by=3),
    said.changed(100, (1, 2, 3), added=(1,), by=3),
    said.preferred_asked(120, "t-0", by=3),
    said.changed(156, (2, 3), deleted=(1,), by=3),
]
STATE_CHANGE: Final = [
    said.new(0, "t-0", by=3),
    said.online(0.1, "t-0", 1, 0, (1, 2, 3), 0, before=said.NEW, by=3),
    said.new(0, "m-0", (1, 2), by=3),
    said.online(0.1, "m-0", 1, 0, (1, 2), 0, before=said.NEW, by=3),
    said.online(56.1, "t-0", 2, 1, (2, 3), 5, before=said.OFFLINE, by=3),
    said.online(120.1, "t-0", 1, 2, (2, 3, 1), 7, by=3),
    said.online(156.1, "t-0", 2, 3, (2, 3), 8, before=said.OFFLINE, by=3),
]
FIRST: Final = [
    said.shrinking(10, 1, "t-0", (1, 2, 3), (1, 2)),
    said.isr_updated(10.01, 1, "t-0", (1, 2), 1),
    said.isr_updated(20, 1, "t-0", (1, 2, 3), 2),
    said.isr_updated(30, 1, "m-0", (1, 2, 3), 2),
    said.shrinking(30, 1, "t-0", (1, 2, 3), (1, 2)),
    said.isr_updated(30.01, 1, "t-0", (1, 2), 3),
    said.isr_updated(40, 1, "t-0", (1, 2, 3), 4),
]
LOGS: Final = {
    (3, Kind.CONTROLLER): CONTROLLER,
    (3, Kind.STATE_CHANGE): STATE_CHANGE,
    (1, Kind.SERVER): FIRST,
    (1, Kind.STATE_CHANGE): [
        adding(10, "m-0", 1, "1,2", "3", "2"),
        adding(40, "m-0", 2, "1,3", "", ""),
        said.leads(120.2, 1, "t-0", 2, (2, 3, 1), before=1),
    ],
    (2, Kind.SERVER): [said.isr_updated(110, 2, "t-0", (2, 3, 1), 6)],
    (2, Kind.STATE_CHANGE): [said.leads(56.2, 2, "t-0", 1, (2, 3), before=0)],
}
# Copies of the same files.
COPIED: Final = LOGS | {(50 + at, kind): lines for at, ((_, kind), lines) in enumerate(LOGS.items())}


@pytest.fixture(scope="module")
def chain(spark: SparkSession) -> tuple[DataFrame, DataFrame, DataFrame]:
    timed = as_timed(events(spark, COPIED)).cache()
    known = states.states(timed).cache()
    return leadership.leadership(timed, known).cache(), known, timed


def test_counts_of_one_hour(chain: tuple[DataFrame, DataFrame, DataFrame]) -> None:
    (hour,) = rows(churn.churn(*chain))

    assert (hour["elections"], hour["planned"], hour["forced"], hour["partitions"]) == (3, 1, 2, 1)
    # The third replica left t-0 twice, the first replica twice when it failed; m-0 gained one replica, and lost one.
    assert (hour["shrinks"], hour["expands"]) == (5, 4)
    assert (hour["most_in_a_minute"], hour["storm"]) == (2, False)


def test_the_partition_that_flapped(chain: tuple[DataFrame, DataFrame, DataFrame]) -> None:
    (row,) = rows(flapping.flapping(*chain))

    assert (row["topic"], row["elections"], row["forced"]) == ("t", 3, 2)
    assert (row["ping_pongs"], row["preferred_lost"]) == (2, 1)
    assert (row["shrinks"], row["expands"], row["cycles_per_hour"]) == (4, 3, 3.0)
    assert (row["worst_follower"], row["worst_follower_falls"]) == (1, 2)
    # 10 until 20, 30 until 40, 56.1 until 110; the lines about a shrink are 10 ms apart.
    assert row["under_replicated_ms"] == pytest.approx(73_890, abs=15)


def test_the_partition_that_was_moved(chain: tuple[DataFrame, DataFrame, DataFrame]) -> None:
    _, known, timed = chain

    (row,) = rows(reassignments.reassignments(timed, known))

    told: dict[str, Any] = {name: row[name] for name in ("topic", "origin", "target", "finished", "waiting_for")}
    assert told == {"topic": "m", "origin": [1, 2], "target": [1, 3], "finished": True, "waiting_for": []}
    assert (row["started_at"], row["caught_up_at"], row["done_at"]) == (moment(10), moment(30), moment(40))
