"""Lost records, compared with values worked out by hand, with a partition for each case in one table."""

import collections
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.log_segments import log_segments
from kactl.forensics.jobs.losses import COLUMNS, losses
from kactl.forensics.jobs.losses.sums import by_partition, sums

from .chain import Chain, chain, kept
from .said import NEW, OFFLINE, Ids, cut, follows, ids, isr_updated, leads, online
from .tables import line, moment, rows, table

Losses = list[dict[str, Any]]
LOGS: dict[tuple[int, Kind], list[str]] = collections.defaultdict(list)
C = LOGS[9, Kind.STATE_CHANGE]
B = {broker: LOGS[broker, Kind.SERVER] for broker in (1, 2, 3)}


def shrunk(seconds: float, broker: int, tp: str, before: Ids, after: Ids, *, high: int, end: int) -> str:
    message = (
        f"[Partition {tp} broker={broker}] Shrinking ISR from {ids(before)} to {ids(after)}. Leader: (highWatermark: "
        f"{high}, endOffset: {end}). Out of sync replicas: (brokerId: 2, endOffset: 3)."
    )
    return line(seconds, message, logger="kafka.cluster.Partition")


def truncating(seconds: float, tp: str, to: int) -> str:
    message = f"[Log partition={tp}, dir=/data] Truncating to offset {to}"
    return line(seconds, message, logger="kafka.log.Log")


def truncating_of_old(seconds: float, tp: str, to: int) -> str:
    return line(seconds, f"Truncating log {tp} to offset {to}.", logger="kafka.log.Log")


def elected(seconds: float, tp: str, leader: int, epoch: int, isr: Ids, version: int) -> str:
    return online(seconds, tp, leader, epoch, isr, version, before=OFFLINE, by=9)


# tail-0: a planned change of leader while the old leader has records that no follower has fetched.
C += [
    online(0, "tail-0", 1, 0, (1, 2), 0, before=NEW, by=9),
    online(10, "tail-0", 2, 1, (1, 2), 1, by=9),
]
B[1] += [
    leads(0.1, 1, "tail-0", 0, (1, 2)),
    follows(10.2, 1, "tail-0", 1, end=1005, high=990, before=0),
]
B[2] += [
    follows(0.1, 2, "tail-0", 0),
    leads(10.1, 2, "tail-0", 1, (1, 2), end=1000, high=990, before=0),
]

# newer-0: the same in 3.9, where followers log the new epoch as the previous one.
C += [
    online(0, "newer-0", 1, 0, (1, 2), 0, before=NEW, by=9),
    online(10, "newer-0", 2, 1, (1, 2), 1, by=9),
]
B[1] += [
    leads(0.1, 1, "newer-0", 0, (1, 2)),
    follows(10.2, 1, "newer-0", 1, end=1005, high=990, before=1),
]
B[2] += [
    follows(0.1, 2, "newer-0", 0, before=0),
    leads(10.1, 2, "newer-0", 1, (1, 2), end=1000, high=990, before=0),
]

# restart-0: a follower fetches in an epoch, and restarts in the same epoch.
B[1].append(leads(1, 1, "restart-0", 3, (1,), end=100, high=100, before=2))
B[2] += [
    follows(1, 2, "restart-0", 3, end=100, high=100, before=2),
    follows(600, 2, "restart-0", 3, end=500, high=480),
]
# blind-0: the same, but the logs begin later.
B[1].append(leads(1, 1, "blind-0", 3, (1,), end=100, high=100, before=2))
B[2].append(follows(600, 2, "blind-0", 3, end=500, high=480))
# there-0: restarted in the epoch that it logs as its previous one.
B[1].append(leads(1, 1, "there-0", 3, (1,), end=100, high=100, before=2))
B[2].append(follows(600, 2, "there-0", 3, end=500, high=480, before=3))

# bump-0: the epoch increases under the same leader; its follower is behind.
B[1] += [
    leads(1, 1, "bump-0", 0, (1, 2)),
    leads(60, 1, "bump-0", 1, (1, 2), end=200, high=190, before=0),
]
B[2] += [
    follows(1, 2, "bump-0", 0),
    follows(60, 2, "bump-0", 1, end=195, high=190, before=0),
]

# unclean-0: 1 is the only ISR member and dies. 2 is elected with fewer records. The epoch increases once more, and 1
# returns.
C += [
    online(0, "unclean-0", 1, 4, (1,), 10, by=9),
    cut(60, "unclean-0", -1, 5, (1,), 1, 11, by=9),
    elected(90, "unclean-0", 2, 6, (2,), 12),
    cut(120, "unclean-0", 2, 7, (2,), 3, 13, by=9),
]
B[1] += [
    leads(0.1, 1, "unclean-0", 4, (1,), end=100, high=95, before=3),
    shrunk(30, 1, "unclean-0", (1, 2), (1,), high=108, end=110),
    follows(200, 1, "unclean-0", 7, end=115, high=108),
    truncating(200.5, "unclean-0", 90),
]
B[2] += [
    leads(90.1, 2, "unclean-0", 6, (2,), end=90, high=90, before=4),
    leads(120.1, 2, "unclean-0", 7, (2,), end=150, high=150, before=6),
]

# gone-0: the same, but 1 never returns. Its log end is in its last own line.
C += [
    online(0, "gone-0", 1, 4, (1,), 10, by=9),
    cut(60, "gone-0", -1, 5, (1,), 1, 11, by=9),
    elected(90, "gone-0", 2, 6, (2,), 12),
]
B[1] += [
    leads(0.1, 1, "gone-0", 4, (1,), end=100, high=95, before=3),
    shrunk(30, 1, "gone-0", (1, 2), (1,), high=108, end=110),
]
B[2].append(leads(90.1, 2, "gone-0", 6, (2,), end=90, high=90, before=4))

# behind-0: a follower was in sync, and restarts after the election of a leader that had fewer records.
B[1] += [
    leads(1, 1, "behind-0", 4, (1,), end=100, high=80, before=3),
    isr_updated(9, 1, "behind-0", (1, 2), 30),
]
B[2] += [
    follows(1, 2, "behind-0", 4, end=100, high=80, before=3),
    follows(300, 2, "behind-0", 5, end=110, high=80),
]
B[3].append(leads(200, 3, "behind-0", 5, (3,), end=105, high=80, before=4))

# unsure-0: a member of the ISR five epochs ago may have left it since.
B[1] += [
    leads(1, 1, "unsure-0", 4, (1, 2), end=100, high=80, before=3),
    follows(90.1, 1, "unsure-0", 9, end=110, high=85, before=4),
]
B[2].append(leads(90, 2, "unsure-0", 9, (2,), end=90, high=80, before=4))

# twice-0: the log is truncated twice while 1 is away; 1 returns after both.
B[1] += [
    leads(1, 1, "twice-0", 4, (1,), end=100, high=80, before=3),
    follows(300, 1, "twice-0", 7, end=110, high=85),
]
B[2] += [
    leads(90, 2, "twice-0", 6, (2,), end=100, high=80, before=4),
    follows(200, 2, "twice-0", 7, end=105, high=80, before=6),
]
B[3].append(leads(200, 3, "twice-0", 7, (3,), end=90, high=80, before=4))

# pending-0: the epoch increases once more before the old leader has truncated its surplus records.
B[1] += [
    leads(1, 1, "pending-0", 4, (1,), end=100, high=90, before=3),
    follows(90.1, 1, "pending-0", 6, end=110, high=90, before=4),
    follows(90.3, 1, "pending-0", 7, end=110, high=90, before=6),
    truncating(90.5, "pending-0", 90),
]
B[2] += [
    leads(90, 2, "pending-0", 6, (2,), end=90, high=90, before=4),
    leads(90.2, 2, "pending-0", 7, (2,), end=95, high=90, before=6),
]

# regrown-0: it truncates its log, fetches more records than it had before, and loses some of those, too.
B[1] += [
    leads(1, 1, "regrown-0", 4, (1,), end=100, high=90, before=3),
    follows(90.1, 1, "regrown-0", 6, end=110, high=90, before=4),
    truncating(90.5, "regrown-0", 90),
    follows(300.1, 1, "regrown-0", 7, end=120, high=90, before=6),
]
B[2].append(leads(90, 2, "regrown-0", 6, (2,), end=90, high=90, before=4))
B[3].append(leads(300, 3, "regrown-0", 7, (3, 1), end=110, high=90, before=4))

# other-0: a high watermark of a truncated branch does not prove that records of the next branch are committed.
B[1].append(leads(1, 1, "other-0", 3, (1,), end=1000, high=1000, before=2))
B[2] += [
    leads(60, 2, "other-0", 4, (2,), end=500, high=500, before=3),
    follows(120, 2, "other-0", 5, end=600, high=580, before=4),
]
B[3].append(leads(120, 3, "other-0", 5, (3,), end=590, high=580, before=4))
# unseen-0: nor if the leader's own line with its start offset is missing.
B[1].append(leads(1, 1, "unseen-0", 3, (1,), end=1000, high=1000, before=2))
B[2].append(follows(120, 2, "unseen-0", 5, end=600, high=580, before=4))
B[3].append(leads(120, 3, "unseen-0", 5, (3,), end=590, high=580, before=4))

# reborn-0: deleted and created again, without any controller log.
B[1] += [
    leads(1, 1, "reborn-0", 0, (1, 2)),
    leads(60, 1, "reborn-0", 1, (1, 2), end=2000, high=2000, before=0),
    leads(500, 1, "reborn-0", 0, (1, 2)),
    leads(600, 1, "reborn-0", 1, (1, 2), end=50, high=50, before=0),
]
B[2] += [
    follows(1, 2, "reborn-0", 0),
    follows(60, 2, "reborn-0", 1, end=1990, high=1900, before=0),
    follows(500, 2, "reborn-0", 0),
]

# alone-0: the only replica returns from a power failure with fewer records.
B[1] += [
    leads(1, 1, "alone-0", 1, (1,), end=1000, high=1000, before=0),
    leads(60, 1, "alone-0", 2, (1,), end=900, high=900),
]

# old-0: 2.2, where followers do not log their log end; the old leader's log contains the truncation.
C += [online(0, "old-0", 1, 3, (1,), 5, by=9), elected(60, "old-0", 2, 4, (2,), 6)]
B[1] += [
    line(
        0.1,
        "[Partition old-0 broker=1] old-0 starts at Leader Epoch 3 from offset 100. Previous Leader Epoch was: 2",
        logger="kafka.cluster.Partition",
    ),
    shrunk(30, 1, "old-0", (1, 2), (1,), high=120, end=130),
    truncating(90, "old-0", 120),
]
# cut-0: of a follower's log only the truncation is known.
C += [online(0, "cut-0", 1, 3, (1,), 5, by=9), elected(60, "cut-0", 2, 4, (2,), 6)]
B[3].append(truncating(90, "cut-0", 120))
# high-0: the same in a version that may truncate to the high watermark, and fetch the same records again.
C += [online(0, "high-0", 1, 3, (1,), 5, by=9), elected(60, "high-0", 2, 4, (2,), 6)]
B[3].append(truncating_of_old(90, "high-0", 120))
# told-0: a follower logs its log end and its truncation; the leader logs no line.
B[1] += [
    follows(90, 1, "told-0", 4, end=130, high=125, before=3),
    truncating(90.5, "told-0", 120),
]

# branch-0: no line contains the start offset of epoch 4, beyond which another replica knows of committed records.
C += [online(0, "branch-0", 1, 3, (1, 2, 3), 5, by=9), elected(60, "branch-0", 2, 4, (2, 3), 6)]
B[1] += [
    leads(0.1, 1, "branch-0", 3, (1, 2, 3), end=100, high=100, before=2),
    follows(300, 1, "branch-0", 5, end=110, high=104),
    truncating(300.5, "branch-0", 102),
]
B[3] += [
    follows(60.1, 3, "branch-0", 4, end=104, high=103, before=3),
    follows(120, 3, "branch-0", 5, end=400, high=390, before=4),
]

# doubt-0: the unclean leader has fewer records than the old leader, of which no earlier line exists.
C += [
    online(0, "doubt-0", 1, 4, (1,), 10, by=9),
    cut(60, "doubt-0", -1, 5, (1,), 1, 11, by=9),
    elected(90, "doubt-0", 2, 6, (2,), 12),
]
B[1].append(follows(200, 1, "doubt-0", 6, end=110, high=100))
B[2].append(leads(90.1, 2, "doubt-0", 6, (2,), end=90, high=90, before=4))

# missed-0: restarted, and in sync with a leader that its own log does not mention: part of that log may be missing.
C += [
    online(0, "missed-0", 1, 4, (1, 2), 10, by=9),
    online(60, "missed-0", 2, 5, (2, 1), 11, by=9),
    cut(120, "missed-0", 2, 6, (2,), 1, 12, by=9),
]
B[1] += [
    leads(0.1, 1, "missed-0", 4, (1, 2), end=50, high=50, before=3),
    follows(200, 1, "missed-0", 6, end=110, high=100),
]
B[2] += [
    leads(60.1, 2, "missed-0", 5, (2, 1), end=100, high=50, before=4),
    leads(120.1, 2, "missed-0", 6, (2,), end=140, high=140, before=5),
]
# present-0: restarted in an epoch in which it was in sync for long, but which its own log does not mention.
C += [
    online(0, "present-0", 1, 4, (1, 2), 10, by=9),
    online(60, "present-0", 2, 5, (2, 1), 11, by=9),
]
B[1] += [
    leads(0.1, 1, "present-0", 4, (1, 2), end=50, high=50, before=3),
    follows(200, 1, "present-0", 5, end=110, high=100),
]
B[2].append(leads(60.1, 2, "present-0", 5, (2, 1), end=100, high=50, before=4))
# ahead-0: restarted in an epoch in which it was not in sync, before one in which it was. Its clock is a minute ahead.
C += [
    online(0, "ahead-0", 1, 4, (1, 2), 10, by=9),
    online(60, "ahead-0", 2, 5, (2,), 11, by=9),
    online(150, "ahead-0", 2, 6, (2, 1), 13, by=9),
]
B[1] += [
    leads(0.1, 1, "ahead-0", 4, (1, 2), end=50, high=50, before=3),
    follows(200, 1, "ahead-0", 5, end=110, high=100),
]
B[2].append(leads(60.1, 2, "ahead-0", 5, (2,), end=100, high=50, before=4))


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Chain:
    return chain(spark, LOGS)


@pytest.fixture(scope="module")
def lost(tables: Chain) -> DataFrame:
    return kept(losses(tables.turns, tables.leadership, tables.unclean))


@pytest.fixture(scope="module")
def found(lost: DataFrame) -> Losses:
    return rows(lost, "topic", "leader_epoch", "replica")


def of(found: Losses, topic: str) -> list[tuple[Any, ...]]:
    """Returns leader_epoch, replica, its log end, tail and committed records, evidence, certain."""
    names = (
        "leader_epoch",
        "replica",
        "replica_log_end",
        "tail_records",
        "committed_records",
        "evidence",
        "certain",
    )
    return [tuple(row[name] for name in names) for row in found if row["topic"] == topic]


def the(found: Losses, topic: str) -> dict[str, Any]:
    [row] = [row for row in found if row["topic"] == topic]
    return row


def test_columns_are_the_declared_ones(found: Losses) -> None:
    assert list(found[0]) == [each.name for each in COLUMNS]


def test_leader_that_steps_down_loses_uncopied_records(found: Losses) -> None:
    row = the(found, "tail")

    assert of(found, "tail") == [(1, 1, 1005, 5, 0, "follower", True)]
    assert row["leader"] == 2
    assert row["at"] == moment(10.1)
    assert row["replica_at"] == moment(10.2)
    assert row["log_end"] == 1000
    assert row["high_watermark"] == 990
    assert row["unclean"] is False
    assert row["truncated_to"] is None


@pytest.mark.parametrize("topic", ["restart", "blind", "there"])
def test_follower_back_in_the_same_epoch_loses_nothing(found: Losses, topic: str) -> None:
    assert of(found, topic) == []


def test_unchanged_leader_truncates_no_follower(found: Losses) -> None:
    assert of(found, "bump") == []


def test_unclean_leader_loses_records_of_dead_leader(found: Losses) -> None:
    row = the(found, "unclean")

    assert of(found, "unclean") == [(6, 1, 115, 25, 18, "follower", True)]
    assert row["leader"] == 2
    assert row["log_end"] == 90
    assert row["at"] == moment(90.1)
    assert row["high_watermark"] == 108
    assert row["truncated_to"] == 90
    assert row["unclean"] is True


def test_loss_is_known_without_return_of_old_leader(found: Losses) -> None:
    row = the(found, "gone")

    assert of(found, "gone") == [(6, 1, 110, 20, 18, "leader", True)]
    assert row["replica_at"] == moment(30)
    assert row["unclean"] is True


def test_each_truncation_counts_remaining_records(found: Losses) -> None:
    assert of(found, "twice") == [
        (6, 1, 110, 10, 0, "follower", True),
        (7, 1, 100, 10, 0, "follower", True),
        (7, 2, 105, 15, 0, "follower", True),
    ]


def test_pending_truncation_is_not_counted_twice(found: Losses) -> None:
    assert of(found, "pending") == [(6, 1, 110, 20, 0, "follower", True)]
    assert the(found, "pending")["truncated_to"] == 90


def test_records_copied_after_a_truncation_can_be_lost(found: Losses) -> None:
    assert of(found, "regrown") == [
        (6, 1, 110, 20, 0, "follower", True),
        (7, 1, 120, 10, 0, "follower", True),
    ]


def test_watermark_applies_to_its_own_history_only(found: Losses) -> None:
    assert of(found, "other") == [
        (4, 1, 1000, 500, 500, "leader", True),
        (5, 2, 600, 10, 0, "follower", True),
    ]
    assert found[[row["topic"] for row in found].index("other") + 1]["high_watermark"] == 580


def test_previous_epoch_equal_to_current_is_ignored(found: Losses) -> None:
    assert of(found, "newer") == [(1, 1, 1005, 5, 0, "follower", True)]


def test_watermark_before_unknown_leader_is_not_used(found: Losses) -> None:
    assert of(found, "unseen") == [
        (5, 1, 1000, 410, 410, "leader", True),
        (5, 2, 600, 10, 0, "follower", True),
    ]


def test_indistinguishable_topics_are_not_compared(found: Losses) -> None:
    assert of(found, "reborn") == []


def test_restarted_follower_is_certain_by_earlier_lines(found: Losses) -> None:
    assert of(found, "behind") == [(5, 2, 110, 5, 0, "follower", True)]


def test_unclean_is_null_if_earlier_epochs_are_missing(found: Losses) -> None:
    assert of(found, "unsure") == [(9, 1, 110, 20, 0, "follower", True)]
    assert the(found, "unsure")["unclean"] is None


def test_leader_can_lose_its_own_records(found: Losses) -> None:
    assert of(found, "alone") == [(2, 1, 1000, 100, 100, "leader", True)]
    assert the(found, "alone")["leader"] == 1


def test_truncation_is_compared_with_earlier_leader_lines(found: Losses) -> None:
    row = the(found, "old")

    assert of(found, "old") == [(4, 1, 130, 10, 0, "truncated", False)]
    assert row["leader"] == 2
    assert row["truncated_to"] == 120
    assert row["log_end"] is None


def test_truncation_without_log_end_has_unknown_size(found: Losses) -> None:
    assert of(found, "cut") == [(4, 3, None, None, None, "truncated", False)]


def test_truncation_to_the_watermark_is_no_loss(found: Losses) -> None:
    assert of(found, "high") == []


def test_truncation_with_log_end_needs_no_leader(found: Losses) -> None:
    assert of(found, "told") == [(4, 1, 130, 10, 5, "truncated", True)]


def test_later_watermark_is_not_used_for_a_departed_replica(found: Losses) -> None:
    assert of(found, "branch") == [(5, 1, 110, 8, 2, "truncated", True)]
    assert the(found, "branch")["high_watermark"] == 104


def test_restarted_replica_without_history_is_uncertain(found: Losses) -> None:
    assert of(found, "doubt") == [(6, 1, 110, 20, 10, "follower", False)]
    assert of(found, "missed") == [(5, 1, 110, 10, 0, "follower", False)]
    assert of(found, "present") == [(5, 1, 110, 10, 0, "follower", False)]


def test_late_isr_membership_is_seen_by_epoch(found: Losses) -> None:
    assert of(found, "ahead") == [(5, 1, 110, 10, 0, "follower", True)]


def test_initial_or_shrunk_isr_does_not_prove_copying(tables: Chain) -> None:
    held = {row["topic"]: row["in_sync"] for row in rows(tables.turns.where("broker = 1 and turn = 1"))}

    assert (held["unclean"], held["behind"]) == ([], [1, 2])


def test_copied_files_change_nothing(tables: Chain) -> None:
    again = rows(log_segments(tables.timed.union(tables.timed)), "topic", "broker", "turn")

    assert again == rows(tables.turns, "topic", "broker", "turn")


def test_sums_count_records_of_replicas_once(lost: DataFrame) -> None:
    names = ("leader_epoch", "tail_records", "committed_records", "replicas", "sure_tail_records")

    partitions = collections.defaultdict(list)
    for row in rows(by_partition(lost), "leader_epoch"):
        partitions[row["topic"]].append(tuple(row[name] for name in names))
    topics = {row["topic"]: (row["tail_records"], row["unknown"]) for row in rows(sums(by_partition(lost), "topic"))}
    [total] = rows(sums(by_partition(lost)))

    assert partitions["twice"] == [(6, 10, 0, [1], 10), (7, 15, 0, [1, 2], 15)]
    assert partitions["cut"] == [(4, None, None, [3], 0)]
    assert partitions["doubt"] == [(6, 20, 10, [1], 0)]
    assert topics["twice"] == (25, 0)
    assert topics["cut"] == (0, 1)
    assert total["tail_records"] == sum(tail for tail, _ in topics.values())
    assert total["committed_records"] == 18 + 18 + 500 + 410 + 100 + 5 + 2 + 10
    assert total["sure_committed_records"] == total["committed_records"] - 10
    assert total["unknown"] == 1


def test_loss_lists_its_evidence(lost: DataFrame) -> None:
    names = ("evidence", "truncated", "certain")

    found = {row["topic"]: tuple(row[name] for name in names) for row in rows(by_partition(lost))}

    assert found["doubt"] == (["follower"], False, False)
    assert found["pending"] == (["follower"], True, True)
    assert found["cut"] == (["truncated"], True, False)


def test_loss_without_leader_line_is_dated_by_discovery(spark: SparkSession) -> None:
    row = {"topic": "t", "partition": 0, "life": 0, "leader_epoch": 1, "replica": 1, "certain": True}
    given = [row | {"replica_at": moment(7)}, row | {"replica": 2, "replica_at": moment(5)}]

    [found] = rows(by_partition(table(spark, COLUMNS, given)))
    [led] = rows(by_partition(table(spark, COLUMNS, [each | {"at": moment(3)} for each in given])))

    assert (found["at"], led["at"]) == (moment(5), moment(3))


def test_sums_without_losses_are_zero(lost: DataFrame) -> None:
    [total] = rows(sums(by_partition(lost.limit(0))))

    assert (total["tail_records"], total["committed_records"], total["partitions"]) == (0, 0, 0)
