"""Partitions that changed repeatedly, with a topic for each scenario."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.jobs import flapping, leadership, states

from .tables import moment, rows, table, timed_table

MINUTE = 60
SECOND_MS = 1000


def led(topic: str, *reigns: tuple[float, int, str]) -> list[dict[str, Any]]:
    """Returns consecutive leaderships, each with its begin, leader and cause. The first previous leader is 1."""
    prev, made = 1, []
    for number, (seconds, leader, how) in enumerate(reigns):
        planned = {"offline": False, "preferred": True}.get(how)
        made.append(
            {
                "topic": topic,
                "partition": 0,
                "life": 0,
                "leader_epoch": number + 1,
                "leader": leader,
                "prev_leader": prev,
                "begin": moment(seconds),
                "how": how,
                "planned": planned,
            }
        )
        prev = leader
    return made


def in_sync(
    topic: str, *isrs: tuple[float, list[int]], replicas: list[int] | None, leader: int = 1, form: str = "P2b"
) -> list[dict[str, Any]]:
    """Returns consecutive states, each with its begin and ISR."""
    return [
        {
            "topic": topic,
            "partition": 0,
            "life": 0,
            "leader_epoch": 1,
            "partition_epoch": number,
            "leader": leader,
            "isr": isr,
            "replicas": replicas,
            "at": moment(seconds),
            "formats": [form],
        }
        for number, (seconds, isr) in enumerate(isrs)
    ]


LED = [
    *led(
        "ping-pong", (0, 1, "initial"), (60, 2, "offline"), (120, 1, "preferred"), (180, 2, "offline"),
        (1200, 1, "preferred"),
    ),
    *led("lonely-leader", (60, -1, "isr"), (90, 1, "offline"), (120, -1, "isr"), (150, 1, "offline")),
    *led("once", (60, 2, "offline")),
    *led("threes", (60, 2, "offline"), (120, 3, "offline"), (180, 1, "preferred")),
    *led("lost-to-nobody", (60, 2, "offline"), (120, 1, "preferred"), (130, -1, "isr"), (999, 2, "offline")),
]  # fmt: skip
TWICE = ((0, [1, 2]), (10, [1]), (20, [1, 2]), (30, [1]))
STATES = [
    *in_sync(
        "followers", (0, [1, 2, 3]), (60, [1, 2]), (120, [1, 2, 3]), (180, [1, 2]), (240, [1, 2, 3]),
        replicas=[1, 2, 3],
    ),
    *in_sync("lone", *TWICE, replicas=[1, 2]),
    *in_sync("silent", *TWICE, replicas=[9, 2], leader=9),
    *in_sync("doomed", *TWICE, replicas=[1, 2]),
    *in_sync("dumped", *TWICE, replicas=[1, 2], form="PARTITION_CHANGE_RECORD"),
    *in_sync("unassigned", *TWICE, replicas=None),
    *in_sync(
        "hours",
        (0, [1, 2]),
        *((minute * MINUTE, [1]) for minute in (1, 50, 61)),
        *((minute * MINUTE, [1, 2]) for minute in (2, 51, 62)),
        replicas=[1, 2],
    ),
    *in_sync("worst", (0, [1, 2, 3]), (1, [1, 3]), (2, [1, 2, 3]), (3, [1, 2]), (4, [1, 2, 3]), (5, [1, 3]),
             replicas=[1, 2, 3]),
    *in_sync("steady", (0, [1, 2]), (10, [1]), (20, [1, 2]), replicas=[1, 2]),
]  # fmt: skip
# Versions follow time.
STATES = [
    row | {"partition_epoch": sum(other["at"] < row["at"] for other in STATES if other["topic"] == row["topic"])}
    for row in STATES
]
TIMED = [
    {"kind": "server", "speaker": 1, "type": "other", "at": moment(50)},
    {"kind": "server", "speaker": 1, "type": "other", "at": moment(100)},
    {"kind": "state-change", "speaker": 9, "type": "other", "at": moment(100)},
    {"kind": "state-change", "type": "follows", "topic": "silent", "partition": 0, "life": 0, "at": moment(40)},
    {"kind": "controller", "type": "deletion-asked", "topic": "other,doomed", "life": 0, "at": moment(50)},
    {"kind": "controller", "type": "deletion-done", "topic": "doomed", "life": 0, "at": moment(55)},
    {"kind": "dump", "type": "topic-created", "topic": "x", "life": 0, "at": moment(500)},
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Mapping[str, dict[str, Any]]:
    made = flapping.flapping(
        table(spark, leadership.COLUMNS, LED), table(spark, states.COLUMNS, STATES), timed_table(spark, TIMED)
    )
    return {row["topic"]: row for row in rows(made)}


def says(found: Mapping[str, dict[str, Any]], topic: str, *names: str) -> tuple[Any, ...]:
    return tuple(found[topic][name] for name in names)


def test_quick_return_of_a_leader_is_a_ping_pong(found: Mapping[str, dict[str, Any]]) -> None:
    # 1, 2, 1 within a minute; 2, 1, 2 within a minute; the last return of 1 took seventeen minutes.
    assert says(found, "ping-pong", "elections", "forced", "ping_pongs") == (4, 2, 2)
    assert says(found, "ping-pong", "first_at", "last_at") == (moment(60), moment(1200))


def test_quickly_lost_preferred_leader_is_counted(found: Mapping[str, dict[str, Any]]) -> None:
    assert says(found, "ping-pong", "preferred_lost") == (1,)
    assert says(found, "lost-to-nobody", "preferred_lost") == (1,)


def test_return_after_no_leader_is_no_ping_pong(
    found: Mapping[str, dict[str, Any]],
) -> None:
    assert says(found, "lonely-leader", "elections", "forced", "ping_pongs") == (2, 2, 0)


def test_three_leaders_in_turn_are_no_ping_pong(found: Mapping[str, dict[str, Any]]) -> None:
    assert says(found, "threes", "elections", "ping_pongs") == (3, 0)


def test_single_change_is_not_flapping(found: Mapping[str, dict[str, Any]]) -> None:
    assert "once" not in found
    assert "steady" not in found


def test_shrink_and_return_is_a_cycle(found: Mapping[str, dict[str, Any]]) -> None:
    assert says(found, "followers", "shrinks", "expands", "cycles_per_hour") == (2, 2, 2.0)
    assert says(found, "followers", "worst_follower", "worst_follower_falls") == (3, 2)
    assert says(found, "followers", "elections", "lone_ms", "under_replicated_ms") == (0, 0, 120 * SECOND_MS)


def test_worst_hour_is_any_sixty_minutes(found: Mapping[str, dict[str, Any]]) -> None:
    # The cycles that began at minutes 50 and 61. The first cycle began 60 minutes before the last.
    assert says(found, "hours", "shrinks", "cycles_per_hour") == (3, 2.0)


def test_worst_follower_left_most_often(found: Mapping[str, dict[str, Any]]) -> None:
    assert says(found, "worst", "worst_follower", "worst_follower_falls", "cycles_per_hour") == (2, 2, 2.0)


@pytest.mark.parametrize(
    ("topic", "seconds"),
    [
        pytest.param("lone", 10 + 70, id="until the leader's own log ends"),
        pytest.param("silent", 10 + 10, id="until the last line about it, without the leader's server.log"),
        pytest.param("doomed", 10 + 20, id="until it is to be deleted"),
        pytest.param("dumped", 10 + 470, id="until the metadata log ends"),
    ],
)
def test_isr_stays_small_while_logs_would_show_a_change(
    found: Mapping[str, dict[str, Any]], topic: str, seconds: int
) -> None:
    assert says(found, topic, "lone_ms", "under_replicated_ms") == (seconds * SECOND_MS, seconds * SECOND_MS)
    # Lines of the same broker about other partitions at the same time do not count.
    assert says(found, topic, "cycles_per_hour") == (1.0,)


def test_under_replication_is_null_without_assignment(found: Mapping[str, dict[str, Any]]) -> None:
    assert says(found, "unassigned", "shrinks", "lone_ms", "under_replicated_ms") == (2, None, None)


def test_worst_follower_is_null_without_isr_changes(found: Mapping[str, dict[str, Any]]) -> None:
    assert says(found, "threes", "worst_follower", "worst_follower_falls", "cycles_per_hour") == (None, 0, 0.0)
