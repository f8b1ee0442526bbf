"""Tables of the jobs for one night with incidents; comments give the expected results of rows.

At 10:00:00 broker 1 fails. Three partitions lose their leader; one elects a replica that was not in sync, and loses
records. At 10:05 a leader is moved on request, and at 10:20 one is moved without a stated reason. At 11:00 `orders-0`
becomes unavailable until the end of the logs.
"""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.columns import Column
from kactl.forensics.event_types import EventType
from kactl.forensics.events import COLUMNS as EVENT_COLUMNS
from kactl.forensics.jobs import (
    absences,
    audit,
    churn,
    controllers,
    deletions,
    flapping,
    leadership,
    losses,
    outages,
    reassignments,
    requests,
    skew,
    unclean,
)
from kactl.forensics.jobs import timed as timed_job
from kactl.forensics.tables import FILE_COLUMNS, LEVEL_COLUMNS, Manifest
from tests.forensics.jobs.tables import moment, table

# Not a valid topic name, but a log may contain it.
HOSTILE: Final = "<img src=x onerror=alert(1)>|`[a](b)*"
HOSTILE_REASON: Final = "</td><script>alert('x')</script>\x1b[31m\nsecond line"

MANIFEST: Final = Manifest(
    made_by="0.1.0",
    time_zone="Europe/Berlin",
    time_ms=0,
    sources=("logs",),
    files=2,
    lines=1000,
    events=900,
    unparsed=3,
)

_COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "events": EVENT_COLUMNS,
    "files": FILE_COLUMNS,
    "levels": LEVEL_COLUMNS,
    "timed": (*EVENT_COLUMNS, *timed_job.COLUMNS),
    "skew": skew.COLUMNS,
    "leadership": leadership.COLUMNS,
    "absences": absences.COLUMNS,
    "outages": outages.COLUMNS,
    "losses": losses.COLUMNS,
    "unclean": unclean.COLUMNS,
    "audit": audit.COLUMNS,
    "churn": churn.COLUMNS,
    "flapping": flapping.COLUMNS,
    "controllers": controllers.COLUMNS,
    "requests": requests.COLUMNS,
    "deletions": deletions.COLUMNS,
    "reassignments": reassignments.COLUMNS,
}

_ORDERS_0: Final = {"topic": "orders", "partition": 0, "life": 0}
_ORDERS_1: Final = {"topic": "orders", "partition": 1, "life": 0}
_HOSTILE_7: Final = {"topic": HOSTILE, "partition": 7, "life": 0}
_FORCED: Final = {"planned": False, "controller": 2, "controller_epoch": 6, "attempts_failed": 0}

NIGHT: Final[dict[str, list[dict[str, Any]]]] = {
    "outages": [
        # 40 s, all observed: 10 until detected, then 5, 5, 10 and 10.
        _ORDERS_0
        | _FORCED
        | {
            "begin": moment(0),
            "begin_low": moment(0),
            "begin_high": moment(0),
            "begin_kind": "observed",
            "end": moment(40),
            "end_low": moment(40),
            "end_high": moment(40),
            "end_kind": "observed",
            "duration_ms": 40_000,
            "duration_min_ms": 40_000,
            "duration_max_ms": 40_000,
            "cause": "broker-failure",
            "broker": 1,
            "new_leader": 2,
            "leader_epoch": 5,
            "unclean": False,
            "elected_at": moment(20),
            "led_at": moment(40),
            "detection_ms": 10_000,
            "queue_ms": 5_000,
            "election_ms": 5_000,
            "send_ms": 10_000,
            "apply_ms": 10_000,
        },
        # 30 s, from about 10:00:02 on: no earlier than 20 s before ten, no later than 10 s after; so 22 to 52 s.
        _ORDERS_1
        | _FORCED
        | {
            "begin": moment(2),
            "begin_low": moment(-20),
            "begin_high": moment(10),
            "begin_kind": "inferred",
            "end": moment(32),
            "end_low": moment(32),
            "end_high": moment(32),
            "end_kind": "observed",
            "duration_ms": 30_000,
            "duration_min_ms": 22_000,
            "duration_max_ms": 52_000,
            "cause": "broker-failure",
            "broker": 1,
            "new_leader": 3,
            "leader_epoch": 5,
            "unclean": True,
            "led_at": moment(32),
            "detection_ms": 8_000,
        },
        # A minute, bounded only by the lines around it.
        _HOSTILE_7
        | _FORCED
        | {
            "begin": moment(10),
            "begin_low": moment(-100),
            "begin_high": moment(60),
            "begin_kind": "bounded",
            "end": moment(70),
            "end_low": moment(60),
            "end_high": moment(80),
            "end_kind": "bounded",
            "duration_ms": 60_000,
            "duration_min_ms": 0,
            "duration_max_ms": 180_000,
            "cause": "unknown",
            "attempts_failed": 2,
            "reason": HOSTILE_REASON,
            "new_leader": 2,
            "led_at": moment(70),
        },
        # Requested.
        {
            "topic": "orders",
            "partition": 2,
            "life": 0,
            "planned": True,
            "begin": moment(300),
            "begin_kind": "observed",
            "end": moment(300.2),
            "end_kind": "observed",
            "duration_ms": 200,
            "duration_min_ms": 200,
            "duration_max_ms": 200,
            "cause": "preferred",
        },
        # Unexplained: the leader was alive, and was replaced.
        {
            "topic": "orders",
            "partition": 2,
            "life": 0,
            "begin": moment(1200),
            "begin_low": moment(1200),
            "begin_high": moment(1200),
            "begin_kind": "observed",
            "end": moment(1200.3),
            "end_low": moment(1200.3),
            "end_high": moment(1200.3),
            "end_kind": "observed",
            "duration_ms": 300,
            "duration_min_ms": 300,
            "duration_max_ms": 300,
            "cause": "unknown",
            "broker": 2,
            "new_leader": 3,
            "attempts_failed": 0,
            "unclean": False,
        },
        # An hour later, and to the end of the logs: ten minutes.
        _ORDERS_0
        | _FORCED
        | {
            "begin": moment(3600),
            "begin_low": moment(3600),
            "begin_high": moment(3600),
            "begin_kind": "observed",
            "end_kind": "open",
            "duration_ms": 600_000,
            "duration_min_ms": 600_000,
            "cause": "no-live-replica",
            "broker": 2,
        },
    ],
    # orders-1: 31 cut off, of them 20 committed, and broker 2 had 10 of the same. The other: 4, perhaps.
    "losses": [
        _ORDERS_1
        | {
            "leader_epoch": 5,
            "leader": 3,
            "at": moment(32),
            "log_end": 969,
            "unclean": True,
            "replica": 1,
            "replica_at": moment(66),
            "replica_log_end": 1000,
            "high_watermark": 989,
            "tail_records": 31,
            "committed_records": 20,
            "evidence": "follower",
            "truncated_to": 969,
            "certain": True,
        },
        _ORDERS_1
        | {
            "leader_epoch": 5,
            "leader": 3,
            "at": moment(32),
            "log_end": 969,
            "unclean": True,
            "replica": 2,
            "replica_at": moment(33),
            "replica_log_end": 979,
            "high_watermark": 989,
            "tail_records": 10,
            "committed_records": 10,
            "evidence": "follower",
            "certain": True,
        },
        _HOSTILE_7
        | {
            "leader_epoch": 9,
            "leader": 2,
            "at": moment(70),
            "log_end": 96,
            "replica": 1,
            "replica_at": moment(71),
            "replica_log_end": 100,
            "tail_records": 4,
            "evidence": "follower",
            "certain": False,
        },
    ],
    "unclean": [
        _ORDERS_1
        | {
            "at": moment(31),
            "leader_epoch": 5,
            "leader": 3,
            "prev_leader": 1,
            "prev_isr": [1, 2],
            "evidence": ["not-in-isr", "recovering"],
            "certain": True,
            "controller": 2,
            "controller_epoch": 6,
            "out_at": moment(-600),
            "out_ms": 631_000,
            "isr_down": [
                {"broker": 1, "away": True, "down_at": moment(0), "down_ms": 31_000},
                {"broker": 2, "away": False, "down_at": None, "down_ms": None},
            ],
        }
    ],
    "absences": [
        {
            "broker": 1,
            "last_sign_at": moment(0),
            "detected_at": moment(10),
            "back_at": moment(65),
            "first_sign_at": moment(64),
            "planned": False,
            "how": "failed",
            "controller": 2,
        }
    ],
    "controllers": [
        {
            "controller": 2,
            "controller_epoch": 6,
            "elected_at": moment(-3600),
            "started_at": moment(-3598),
            "last_act_at": moment(4200),
            "failover_ms": 2000,
            "overlap_ms": 0,
            "refused": 0,
            "partitions_moved": 9,
            "source": "zookeeper",
        }
    ],
    "requests": [
        {
            "controller": 2,
            "broker": broker,
            "request": "LEADER_AND_ISR",
            "sent": 9,
            "received": 9,
            "applied": 9,
            "unanswered": 0,
            "ignored": 0,
            "stale": 0,
            "apply_p50_ms": 5.0,
            "apply_p99_ms": slow,
            "apply_max_ms": 9000,
        }
        for broker, slow in ((2, 12.0), (3, 8000.0))
    ],
    "churn": [
        {
            "hour": moment(0),
            "elections": 3,
            "planned": 1,
            "forced": 2,
            "partitions": 3,
            "shrinks": 4,
            "expands": 2,
            "most_in_a_minute": 2,
            "storm": False,
        }
    ],
    "flapping": [
        _ORDERS_1
        | {
            "elections": 4,
            "forced": 2,
            "ping_pongs": 1,
            "preferred_lost": 0,
            "shrinks": 5,
            "expands": 5,
            "worst_follower": 3,
            "worst_follower_falls": 5,
            "lone_ms": 90_000,
            "under_replicated_ms": 95_000,
            "first_at": moment(-600),
            "last_at": moment(32),
        }
    ],
    "deletions": [
        {
            "topic": "old",
            "asked_at": moment(100),
            "started_at": moment(101),
            "span_ms": 4_100_000,
            "restarts": 2,
            "halts": 2,
            "reason": "replicas are dead",
            "blocked_by": [1],
            "finished": False,
        },
        {"topic": "older", "asked_at": moment(100), "done_at": moment(101), "span_ms": 1000, "finished": True},
    ],
    "reassignments": [
        _ORDERS_0
        | {
            "started_at": moment(50),
            "span_ms": 4_150_000,
            "target": [2, 3],
            "waiting_for": [3],
            "finished": False,
            "waits": 2,
        }
    ],
    "audit": [
        _ORDERS_1
        | {
            "rule": "leader-epoch-back",
            "at": moment(at),
            "broker": 3,
            "expected": "above 5",
            "found": f"{5 - number}",
            "file_id": 0,
            "offset": 4711 + number,
        }
        for number, at in enumerate((40, 50))
    ],
    "skew": [
        {"broker": 2, "reference": 2, "offset_us": 0, "low_us": 0, "high_us": 0, "links": 9, "how": "reference"},
        {"broker": 3, "reference": 2, "offset_us": -900_000, "low_us": -950_000, "high_us": -850_000, "how": "bounds"},
    ],
    "leadership": [
        {"topic": topic, "partition": partition, "life": 0, "leader_epoch": 4, "leader": 1, "begin": moment(-3000)}
        | {"replicas": [1, 2, 3], "log_end": 900, "prev_leader": 2}
        for topic, partition in (("orders", 0), ("orders", 1), ("orders", 2), (HOSTILE, 7))
    ]
    + [
        _ORDERS_1 | {"leader_epoch": 5, "leader": 3, "prev_leader": 1, "begin": moment(31), "replicas": [1, 2, 3]},
    ],
    "files": [
        {
            "file_id": 0,
            "path": "logs/broker-2/state-change.log",
            "kind": "state-change",
            "layout": "standard",
            "encoding": "utf-8",
            "bytes": 1,
            "broker": 2,
            "version": "3.5+",
            "levels": ["INFO", "ERROR"],
            "begin": moment(-3600),
            "end": moment(4200),
            "lines": 700,
            "events": 690,
            "other": 9,
            "unparsed": 1,
            "coverage": 0.99,
            "warnings": ["INFO only"],
        },
        {
            "file_id": 1,
            "path": "logs/broker-3/controller.log",
            "kind": "controller",
            "layout": "standard",
            "encoding": "utf-8",
            "bytes": 1,
            "broker": 3,
            "levels": ["INFO"],
            "begin": moment(-3000),
            "end": moment(4000),
            "lines": 300,
            "events": 200,
            "other": 98,
            "unparsed": 2,
            "coverage": 0.5,
        },
    ],
    "levels": [
        {"speaker": 2, "kind": "state-change", "role": "broker", "hour": moment(0), "level": "INFO", "lines": 700},
        {"speaker": 3, "kind": "controller", "role": "controller", "hour": moment(0), "level": "INFO", "lines": 300},
    ],
    "events": [{"type": str(EventType.UNCLEAN_ENABLED), "topic": "orders"}],
    "timed": [],
}


def tables(spark: SparkSession, rows: Mapping[str, list[dict[str, Any]]]) -> dict[str, DataFrame]:
    """All tables of a report; those without rows are empty."""
    return {name: table(spark, columns, rows.get(name, ())) for name, columns in _COLUMNS.items()}
