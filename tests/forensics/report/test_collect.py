"""Facts from the jobs' tables: sums, order, and that nothing is counted twice."""

import datetime

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.jobs import leadership, outages
from kactl.forensics.report.collect import collect
from kactl.forensics.report.facts import Facts
from kactl.forensics.report.model import Incident, Lost, Scope
from kactl.forensics.report.objectives import budget_scope, count_partitions
from kactl.forensics.report.sources import sources
from tests.forensics.jobs.tables import moment, table

from .night import HOSTILE, MANIFEST, NIGHT, tables


@pytest.fixture(scope="module")
def facts(spark: SparkSession) -> Facts:
    return collect(spark, MANIFEST, tables(spark, NIGHT), Scope())


@pytest.fixture(scope="module")
def first(facts: Facts) -> Incident:
    return facts.incidents[0]


def test_ten_quiet_minutes_separate_incidents(facts: Facts) -> None:
    assert facts.incidents_all == 2
    assert [(each.begin, each.end) for each in facts.incidents] == [
        (moment(0), moment(70)),
        (moment(3600), moment(4200)),  # where the logs end
    ]


def test_planned_changes_are_counted_separately(facts: Facts) -> None:
    assert (facts.forced.outages, facts.planned.outages) == (4, 1)
    assert facts.planned.total_ms == 200
    assert facts.forced.total_ms == 40_000 + 30_000 + 60_000 + 600_000


def test_unexplained_change_is_no_outage_and_not_planned(facts: Facts) -> None:
    assert (facts.unexplained.outages, facts.unexplained.total_ms) == (1, 300)
    assert [(each.name, each.total_ms) for each in facts.moved] == [("orders-2", 300)]
    assert not [each for each in facts.incidents if each.begin <= moment(1200) <= each.end]


def test_budgets_are_those_of_all_partitions_in_the_logs(facts: Facts) -> None:
    assert facts.objectives is not None
    all_, worst, other = facts.objectives.forced

    # Three of orders and a hostile one, in 30 days 43.2 minutes each at 99.9 %; 730 s were lost, 670 of them of orders.
    assert facts.objectives.partitions == all_.partitions == 4
    assert [each.minutes for each in all_.budgets] == [pytest.approx(each * 4 * 4.32) for each in (10, 5, 1)]
    assert [each.used for each in all_.budgets] == [pytest.approx(730 / 60 / 172.8 * each) for each in (1, 2, 10)]
    assert [each.partitions_over for each in all_.budgets] == [0, 0, 1]
    assert [(each.topic, each.partitions) for each in (worst, other)] == [("orders", 3), (HOSTILE, 1)]
    assert worst.budgets[0].used == pytest.approx(670 / 60 / (3 * 43.2))


def test_partitions_without_outages_have_a_share_of_the_budget(spark: SparkSession) -> None:
    def of(topic: str, partition: int, life: int = 0) -> dict[str, object]:
        return {"topic": topic, "partition": partition, "life": life}

    led = table(spark, leadership.COLUMNS, [of("a", 0), of("a", 1), of("a", 1, life=1), of("c", 0)])
    away = table(spark, outages.COLUMNS, [of("a", 0), of("a", 2), of("b", 0)])

    found = budget_scope(count_partitions(led, away))

    # The second life of a-1 is the same place in the cluster.
    assert {row["topic"]: row["partitions"] for row in found.topics.collect()} == {"a": 3, "b": 1, "c": 1}
    assert found.partitions == 5


def test_each_kind_has_its_own_budget_use(facts: Facts) -> None:
    assert facts.objectives is not None

    assert [each.lost_minutes for each in facts.objectives.planned] == [pytest.approx(0.2 / 60)] * 2
    assert [each.topic for each in facts.objectives.unexplained] == [None, "orders"]
    assert facts.objectives.unexplained[0].lost_minutes == pytest.approx(0.3 / 60)


def test_incident_budget_uses_its_own_outages(first: Incident) -> None:
    # The hostile topic lost one minute of one partition; orders lost more, but of three partitions.
    assert [each.topic for each in first.spent] == [None, HOSTILE, "orders"]
    assert [each.lost_minutes for each in first.spent] == [pytest.approx(each / 60) for each in (130, 60, 70)]


def test_partitions_are_counted_once_and_bounds_added_up(facts: Facts) -> None:
    sums = facts.forced

    assert (sums.partitions, sums.topics) == (3, 2)  # orders-0 twice
    assert sums.least_ms == 40_000 + 22_000 + 0 + 600_000
    assert sums.most_ms is None  # one is still open
    assert (sums.observed, sums.inferred, sums.bounded, sums.open) == (2, 1, 1, 1)
    assert (sums.unclean, sums.attempts_failed) == (1, 2)


def test_incident_has_its_own_sums(first: Incident) -> None:
    assert first.sums is not None
    assert first.sums.total_ms == 130_000
    assert first.sums.most_ms == 40_000 + 52_000 + 180_000
    assert (first.sums.duration.p50, first.sums.duration.max) == (40_000, 60_000)
    assert (first.sums.detection.known, first.sums.detection.max) == (2, 10_000)
    assert first.sums.apply.known == 1


def test_worst_are_listed_first(first: Incident) -> None:
    assert [each.name for each in first.partitions] == [f"{HOSTILE}-7", "orders-0", "orders-1"]
    assert [(each.name, each.total_ms) for each in first.topics] == [("orders", 70_000), (HOSTILE, 60_000)]
    assert [(each.name, each.partitions) for each in first.brokers] == [("1", 2), ("unknown", 1)]
    assert [(each.name, each.total_ms) for each in first.causes] == [("broker-failure", 70_000), ("unknown", 60_000)]


def test_clock_without_broker_is_listed_last(spark: SparkSession) -> None:
    # The clock of the metadata log, to which most others are related if that log exists.
    nameless = {"offset_us": 0, "low_us": 0, "high_us": 0, "links": 9, "how": "reference"}
    tied = {"broker": 2, "offset_us": 4000, "high_us": 4000, "links": 9, "how": "one-sided"}

    found = sources(MANIFEST, tables(spark, NIGHT | {"skew": [nameless, tied]}))

    assert [(each.broker, each.reference, each.how) for each in found.clocks] == [
        (2, None, "one-sided"),
        (None, None, "reference"),
    ]


def test_bar_has_its_bounds(first: Incident) -> None:
    (bar,) = first.partitions[2].bars

    assert (bar.begin_low, bar.begin, bar.begin_high) == (moment(-20), moment(2), moment(10))
    assert (bar.end, bar.unclean, bar.new_leader) == (moment(32), True, 3)


def test_series_counts_outages_that_overlap_each_slot(first: Incident) -> None:
    series = first.series
    assert series is not None

    def at(seconds: float) -> int:
        return int(seconds * 1000 / series.slot_ms)

    assert series.observed[at(0)] == 1
    assert series.guessed[at(1)] == 0
    assert (series.observed[at(20)], series.guessed[at(20)]) == (1, 2)
    assert (series.observed[at(45)], series.guessed[at(45)]) == (0, 1)
    assert series.peak == 3
    assert sum(series.elections) == 3
    assert (series.losses[at(32)], series.unclean[at(31)]) == (1, 1)


def test_bands_add_up_to_total_time(first: Incident) -> None:
    short, long = first.bands

    # The shorter half is 30 and 40 s: of 70 s 18 are detection, then 5, 5, 10, 10, and 22 are unknown.
    assert (short.outages, short.mean_ms) == (2, 35_000)
    assert (short.detection_ms, short.queue_ms, short.apply_ms, short.unknown_ms) == (9_000, 2_500, 5_000, 11_000)
    assert (long.outages, long.mean_ms, long.unknown_ms) == (1, 60_000, 60_000)


def test_largest_loss_of_the_same_records_counts(facts: Facts) -> None:
    assert facts.lost == Lost(partitions=2, committed=20, tail=35, committed_sure=20, tail_sure=31)
    assert facts.incidents[0].lost == facts.lost
    assert facts.incidents[1].lost == Lost()
    assert [(name, lost.tail) for name, lost in facts.lost_topics] == [("orders", 31), (HOSTILE, 4)]


def test_loss_lists_replicas_and_evidence(facts: Facts) -> None:
    worst, other = facts.losses

    assert (worst.topic, worst.replicas, worst.committed, worst.tail) == ("orders", (1, 2), 20, 31)
    assert (worst.evidence, worst.truncated, worst.certain) == (("follower",), True, True)
    assert (other.committed, other.tail, other.certain) == (None, 4, False)


def test_unclean_election_lists_state_of_isr_members(facts: Facts) -> None:
    (found,) = facts.unclean

    assert (facts.unclean_all, facts.unclean_sure) == (1, 1)
    assert found.at == moment(31)
    assert [(down.broker, down.down_at, down.down_ms) for down in found.isr_down] == [
        (1, moment(0), 31_000),
        (2, None, None),
    ]


def test_only_unfinished_operations_are_listed(facts: Facts) -> None:
    assert (facts.deletions_all, facts.reassignments_all) == (1, 1)
    assert facts.deletions[0].topic == "old"
    assert facts.reassignments[0].waiting_for == (3,)


def test_violated_rule_has_its_first_line(facts: Facts) -> None:
    (found,) = facts.audit

    assert (found.count, found.at, found.offset) == (2, moment(40), 4711)
    assert found.path == "logs/broker-2/state-change.log"


def test_sources_of_the_report(facts: Facts) -> None:
    sources = facts.sources

    assert (sources.begin, sources.end) == (moment(-3600), moment(4200))
    assert (sources.partitions, sources.topics) == (4, 2)
    assert (sources.led, sources.with_log_end) == (5, 4)
    assert (sources.brokers, sources.silent) == ((1, 2, 3), (1,))
    assert [(each.speaker, each.trace_hours, each.hours) for each in sources.levels] == [(3, 0, 1), (2, 0, 1)]
    assert facts.unclean_enabled == ("orders",)
    assert [each.broker for each in facts.requests] == [3, 2]  # the slowest first


@pytest.mark.parametrize(
    ("asked", "partitions", "budget_of"),
    [
        (Scope(topic="ord.*"), 2, 3),
        (Scope(topic="ord"), 0, None),  # the whole name
        (Scope(begin=moment(50)), 2, 4),  # in progress: the hostile one, and orders-0 an hour later
        (Scope(end=moment(5)), 2, 4),
        (Scope(begin=moment(75), end=moment(100)), 0, 4),
    ],
    ids=str,
)
def test_report_can_be_restricted(spark: SparkSession, asked: Scope, partitions: int, budget_of: int | None) -> None:
    found = collect(spark, MANIFEST, tables(spark, NIGHT), asked)

    assert found.forced.partitions == partitions
    assert (found.objectives and found.objectives.partitions) == budget_of  # of the topics, at any time


def test_empty_tables_have_no_findings(spark: SparkSession) -> None:
    found = collect(spark, MANIFEST, tables(spark, {}), Scope())

    assert (found.incidents_all, found.incidents, found.forced.outages) == (0, (), 0)
    assert found.lost == Lost()
    assert (found.objectives, found.moved) == (None, ())
    assert found.sources.begin is None
    assert not found.sources.brokers


def test_times_are_in_utc(facts: Facts) -> None:
    assert facts.incidents[0].begin.utcoffset() == datetime.timedelta()
