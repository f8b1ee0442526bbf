"""Headline, summary, limits and advice: no sentence without a fact, no advice without a cause."""

from typing import Any

import msgspec
import pytest

from kactl.forensics.report.advice import advise
from kactl.forensics.report.facts import Facts, LogDetail
from kactl.forensics.report.findings import Clock, Deletion, Flapping, Unclean
from kactl.forensics.report.limits import limits
from kactl.forensics.report.model import Band, Lost, Percentiles, Scope, Share
from kactl.forensics.report.summary import headline, summary
from kactl.forensics.wording import Moments, count, duration, listed, share
from tests.forensics.jobs.tables import moment

from .builders import QUIET, SOURCES, absence, controllership, incident, night, partition, sums

UTC = Moments("UTC")


def summary_of(facts: Facts) -> str:
    return " ".join(summary(facts, UTC))


def rules(facts: Facts) -> set[str]:
    return {advice.rule for advice in advise(facts)}


def with_sources(facts: Facts, **given: Any) -> Facts:
    return msgspec.structs.replace(facts, sources=msgspec.structs.replace(facts.sources, **given))


def test_empty_result_is_stated_with_its_limits() -> None:
    assert headline(QUIET) == "No outage and no loss of records was found in these logs."
    assert "contain 50 partitions of 5 topics" in summary_of(QUIET)
    assert not advise(QUIET)
    assert not limits(QUIET)


def test_logs_without_leaders_are_reported_as_limit() -> None:
    blind = with_sources(QUIET, partitions=0, topics=0, led=0, with_log_end=0)

    assert headline(blind) == "These logs cannot show whether anything was unavailable."
    assert "an empty report means nothing" in limits(blind)[0]


def test_incident_summary_sentences() -> None:
    text = summary_of(night())

    assert headline(night()) == "1 partition of 1 topic had no leader for 1 min."
    assert "from 10:00:00 to 10:01:00 on 1 May 2024 (1 min in all), 1 partition of 1 topic (of 50" in text
    assert "Added up over partitions that is 1 min." in text
    assert "a broker failed (100 % of the time)" in text
    assert "The leaders that were lost were on broker 1." in text
    assert "Nothing in these logs shows that records were lost." in text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"least_ms": 40_000, "most_ms": 65_000}, "for 1 min (no less than 40.0 s, no more than 1 min 5 s)."),
        ({"least_ms": 40_000, "most_ms": None}, "for 1 min (no less than 40.0 s)."),
        (
            {"outages": 2, "least_ms": 40_000, "most_ms": 65_000, "duration": Percentiles(known=2, max=50_000)},
            "for 1 min in all (no less than 40.0 s, no more than 1 min 5 s), one for 50.0 s.",
        ),
    ],
)
def test_headline_has_the_best_estimate_with_its_bounds(given: dict[str, Any], text: str) -> None:
    forced = msgspec.structs.replace(night().forced, total_ms=60_000, **given)

    assert headline(night(forced=forced)) == f"1 partition of 1 topic had no leader {text}"


def test_assumed_session_timeout_is_a_limit() -> None:
    away = msgspec.structs.replace(absence(1, planned=False), session_ms=18_000, session_by="default")

    text = " ".join(limits(night(absences=(away,))))

    assert "No log has the session timeout of broker 1: 18.0 s, Kafka's default, is assumed" in text
    known = msgspec.structs.replace(away, session_by="negotiated")
    assert "session timeout" not in " ".join(limits(night(absences=(known,))))


def test_uncertain_results_state_bounds() -> None:
    doubt = sums(outages=3, observed=1, inferred=1, bounded=1, open=1, total_ms=90_000, least_ms=60_000, most_ms=None)

    text = summary_of(night(forced=doubt))

    assert "that is 1 min 30 s; it was no less than 1 min." in text
    assert "1 was observed from beginning to end, 1 was inferred from other lines and 1 was only bounded" in text
    assert "1 outage had not ended where the logs end" in text


def test_committed_and_other_records_are_separate() -> None:
    lost = Lost(partitions=2, committed=20, tail=35, committed_sure=20, tail_sure=31)

    text = summary_of(night(lost=lost))

    assert "At least 20 records were lost that had been committed" in text
    assert "A further 15 records were removed that were not known to be committed (11 of them for certain)" in text
    assert headline(night(lost=lost)).endswith("and at least 20 committed records were lost.")


def test_truncations_of_unknown_size_are_stated() -> None:
    facts = night(lost=Lost(partitions=1, unsized=1))

    assert headline(facts).endswith("and records were lost, and no line states how many.")
    assert "1 time a replica's log was truncated, and no line states by how much" in summary_of(facts)
    assert "Nothing in these logs shows" not in summary_of(facts)


def test_invisible_losses_are_not_denied() -> None:
    facts = with_sources(night(), with_log_end=0)

    assert "These logs cannot show whether records were lost" in summary_of(facts)
    assert "Nothing in these logs shows" not in summary_of(facts)
    assert any("brokers log it from 2.6 on" in each for each in limits(facts))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"levels": (LogDetail(speaker=2, kind="state-change", trace_hours=0, hours=3),)}, "of broker 2 is at INFO"),
        (
            {"levels": (LogDetail(speaker=2, kind="state-change", trace_hours=1, hours=3),)},
            "at TRACE in some hours only",
        ),
        ({"silent": (1, 3)}, "There is no log of brokers 1 and 3, of 3 known"),
        ({"kinds": ("state-change",)}, "No line shows when a controller noticed"),
        ({"unparsed": 10}, "10 lines of 1,000 (1 %) should have been parsed"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_missing_logs_are_listed_as_limits(given: dict[str, Any], words: str) -> None:
    assert any(words in each for each in limits(with_sources(QUIET, **given)))


@pytest.mark.parametrize(
    ("how", "low", "high", "words"),
    [
        ("unknown", None, None, "No line relates the clock of broker 3"),
        ("contradictory", 0, 0, "The clock of broker 3 drifted or jumped"),
        ("one-sided", None, 0, "bounded from one side only"),
        ("bounds", -50_000, 50_000, "Clocks are known to within 50 ms"),
    ],
)
def test_uncertain_clocks_are_limits(how: str, low: int | None, high: int | None, words: str) -> None:
    one = Clock(broker=2, reference=2, offset_us=0, low_us=0, high_us=0, how="reference")
    other = Clock(broker=3, reference=2, offset_us=0, low_us=low, high_us=high, how=how)

    assert any(words in each for each in limits(with_sources(QUIET, clocks=(one, other))))


def test_clock_without_broker_is_not_attributed_to_one() -> None:
    known = {"offset_us": 0, "low_us": -50_000, "high_us": 50_000}
    nameless = Clock(broker=None, reference=2, how="bounds", **known)
    jumped = tuple(Clock(broker=broker, reference=2, how="contradictory", **known) for broker in (3, 4, None))
    off = Clock(broker=None, reference=2, offset_us=9_000_000, low_us=9_000_000, high_us=None, how="one-sided")

    assert "each other (logs that name no broker least well)" in limits(with_sources(QUIET, clocks=(nameless,)))[0]
    assert "of brokers 3 and 4 and logs that name no broker dri" in limits(with_sources(QUIET, clocks=jumped))[0]
    (advice,) = advise(with_sources(QUIET, clocks=(off,)))
    assert advice.because.startswith("The clock of logs that name no broker was 9.0 s off")


def test_unexplained_changes_are_not_called_outages() -> None:
    short = Percentiles(known=2, p50=1, p90=2, p99=2, max=2)
    facts = msgspec.structs.replace(QUIET, unexplained=sums(outages=2, duration=short))

    assert headline(facts) == "No leader was lost according to these logs; 2 changes of leaders stay unexplained."
    assert "no line shows the loss of a leader." in summary_of(facts)
    assert "2 changes of leaders were unexplained" in summary_of(facts)
    assert "Such changes took 2 ms at the most; they are not counted above." in summary_of(facts)


def test_restricted_report_states_it() -> None:
    assert "This report is restricted" in limits(msgspec.structs.replace(QUIET, asked=Scope(topic="a")))[-1]


# -- advice ------------------------------------------------------------------------------------------------------------

LOST = Lost(partitions=1, committed=20, tail=35, committed_sure=20, tail_sure=35)
UNCLEAN = Unclean(
    topic="orders",
    partition=0,
    life=0,
    at=moment(0),
    leader_epoch=5,
    leader=3,
    prev_leader=1,
    prev_isr=(1,),
    evidence=("not-in-isr",),
    certain=True,
    asked_by=None,
    out_ms=None,
    isr_down=(),
)
FLAPS = Flapping(
    topic="orders",
    partition=1,
    life=0,
    elections=2,
    forced=1,
    ping_pongs=0,
    preferred_lost=0,
    shrinks=5,
    expands=5,
    worst_follower=3,
    worst_follower_falls=5,
    lone_ms=90_000,
    under_replicated_ms=90_000,
    first_at=None,
    last_at=None,
)
STUCK = Deletion(
    topic="old", asked_at=None, started_at=None, span_ms=1000, restarts=0, halts=0, reason=None, blocked_by=(1,)
)
NO_REPLICA = incident(
    partition(0), causes=(Share(name="no-live-replica", outages=1, partitions=1, total_ms=60_000, longest_ms=60_000),)
)
INFO_ONLY = msgspec.structs.replace(
    SOURCES, levels=(LogDetail(speaker=2, kind="state-change", trace_hours=0, hours=3),)
)
OFF = Clock(broker=3, reference=2, offset_us=-900_000, low_us=None, high_us=-900_000, how="one-sided")


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ("unclean-enabled", {"unclean_enabled": ("orders",)}),
        ("unclean-enabled", {"unclean": (UNCLEAN,)}),
        ("unclean-asked", {"unclean": (msgspec.structs.replace(UNCLEAN, asked_by="AdminClientTriggered"),)}),
        ("min-insync-replicas", {"lost": LOST, "lost_topics": (("orders", LOST),)}),
        ("acks", {"lost": LOST, "lost_topics": (("orders", LOST),)}),
        ("no-live-replica", {"incidents": (NO_REPLICA,)}),
        ("alone", {"flapping": (FLAPS,)}),
        ("follower-flaps", {"flapping": (FLAPS,)}),
        ("broker-flaps", {"absences": (absence(3),) * 3}),
        ("slow-failover", {"controllers": (controllership(controller=2, failover_ms=12_000),)}),
        ("two-controllers", {"controllers": (controllership(controller=2, overlap_ms=900),)}),
        ("deletion-stuck", {"deletions_all": 1, "deletions": (STUCK,)}),
        ("trace", {"sources": INFO_ONLY, "forced": sums(observed=0, bounded=1)}),
        ("missing-logs", {"sources": msgspec.structs.replace(SOURCES, silent=(3,))}),
        ("clocks", {"sources": msgspec.structs.replace(SOURCES, clocks=(OFF,))}),
    ],
)
def test_rule_advises_only_with_evidence(rule: str, given: dict[str, Any]) -> None:
    assert rule not in rules(night())
    assert rule in rules(night(**given))


def test_controlled_shutdowns_are_not_flapping() -> None:
    assert "broker-flaps" not in rules(night(absences=(absence(3, planned=True),) * 5))


def test_estimated_clock_offset_gives_no_advice() -> None:
    estimated = msgspec.structs.replace(OFF, offset_us=-1_000_000, low_us=-1_000_000, high_us=None)

    assert "clocks" not in rules(night(sources=msgspec.structs.replace(SOURCES, clocks=(estimated,))))


def test_logs_at_info_without_uncertain_outages_give_no_advice() -> None:
    assert "trace" not in rules(night(sources=INFO_ONLY))


def test_wait_for_a_replica_is_not_blamed_on_the_store() -> None:
    band = Band(
        name="all",
        outages=1,
        mean_ms=30_000,
        detection_ms=0,
        queue_ms=0,
        waiting_ms=30_000,
        election_ms=0,
        send_ms=0,
        apply_ms=0,
        unknown_ms=0,
    )
    slow = Percentiles(known=1, p50=30_000, p90=30_000, p99=30_000, max=30_000)
    lost = (Share(name="2", outages=1, partitions=1, total_ms=30_000, longest_ms=30_000),)
    waited = incident(partition(0), bands=(band,), causes=(), brokers=lost)

    advice = advise(night(incidents=(waited,), forced=sums(waiting=slow)))

    assert [each.rule for each in advice] == ["no-live-replica"]
    assert advice[0].because == (
        "For 100 % of the time without leaders no replica that may lead was alive after the loss of broker 2."
    )


def test_most_of_the_brokers_are_not_advised_out_of_service() -> None:
    failed = tuple(absence(broker) for broker in (1, 2, 3) * 3)

    assert "broker-flaps" in rules(night(absences=failed[::3]))
    assert {"broker-flaps", "cluster-flaps"} & set(rules(night(absences=failed))) == {"cluster-flaps"}


def test_part_that_took_most_of_the_time_is_advised_on() -> None:
    band = Band(
        name="all",
        outages=1,
        mean_ms=60_000,
        detection_ms=45_000,
        queue_ms=0,
        waiting_ms=0,
        election_ms=0,
        send_ms=0,
        apply_ms=1000,
        unknown_ms=14_000,
    )
    slow = Percentiles(known=1, p50=45_000, p90=45_000, p99=45_000, max=45_000)

    advice = advise(night(incidents=(incident(partition(0), bands=(band,)),), forced=sums(detection=slow)))

    assert [each.rule for each in advice] == ["slow-detection"]
    assert "75 % of the time" in advice[0].because
    assert "session.timeout" in advice[0].do


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.4, "under 1 ms"),
        (340, "340 ms"),
        (4_200, "4.2 s"),
        (59_960, "1 min"),
        (460_000, "7 min 40 s"),
        (3_599_700, "1 h"),
        (11_520_000, "3 h 12 min"),
        (86_399_999, "1 d"),
        (187_200_000, "2 d 4 h"),
    ],
)
def test_durations_are_formatted(ms: float | None, text: str) -> None:
    assert duration(ms) == text


def test_partial_shares_are_never_0_or_100_percent() -> None:
    assert [share(part, 1000) for part in (0, 1, 500, 999, 1000)] == ["0 %", "under 1 %", "50 %", "over 99 %", "100 %"]


def test_long_lists_are_truncated_with_a_count() -> None:
    assert listed([1]) == "1"
    assert listed([1, 2, 3]) == "1, 2 and 3"
    assert listed(range(9), most=2) == "0, 1 and 7 more"
    assert count(1204, "partition") == "1,204 partitions"


def test_interval_over_midnight_has_both_days() -> None:
    assert Moments("UTC").stretch(moment(0), moment(86_400)) == "from 10:00:00 on 1 May 2024 to 10:00:00 on 2 May 2024"
    assert Moments("Europe/Berlin").clock(moment(0)) == "12:00:00.000"
