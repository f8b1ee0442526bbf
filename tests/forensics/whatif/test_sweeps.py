"""Queries of a small cluster, compared with results by hand: outcomes, ranks, racks, rolling restarts, and texts.

orders-0   1 2 3   in sync 1 2 3      min.insync.replicas 2
orders-1   2 3 4   in sync 2 3        4 is behind
audit-0    3 4     in sync 3 4
lone-0     4       in sync 4
"""

from typing import Any

import pytest

from kactl.decide.whatif import Answer, Kind, Outcome, Sweep
from kactl.decide.whatif.analysis import answer
from kactl.decide.whatif.assumptions import Assumptions, TopicFacts
from kactl.decide.whatif.topology import UnknownBroker, UnknownRack
from kactl.forensics.whatif.tables import BadSnapshot

from .snapshots import P, here

RACKS = {1: "a", 2: "a", 3: "b", 4: "c"}
ORDERS = (P("orders-0", (1, 2, 3), (1, 2, 3), min_isr=2), P("orders-1", (2, 3, 4), (2, 3), min_isr=2))
CLUSTER = (*ORDERS, P("audit-0", (3, 4), (3, 4)), P("lone-0", (4,), (4,)))


def asked(*kinds: Kind, kill: str = "", top: int = 10, **assumed: Any) -> Answer:
    ready = here(CLUSTER, Assumptions(racks=RACKS, **assumed))
    return answer(ready, [ready.engine.topology.parse(kill)] if kill else [], kinds, top=top)


def swept(kind: Kind, **assumed: Any) -> Sweep:
    (sweep,) = asked(kind, **assumed).sweeps
    return sweep


def killed(text: str, **assumed: Any) -> Outcome:
    (outcome,) = asked(kill=text, **assumed).killed
    return outcome


def by_name(sweep: Sweep) -> dict[str, Outcome]:
    return {each.scenario.name: each for each in sweep.worst}


def test_state_before_any_failure() -> None:
    now = asked().now

    assert (now.partitions, now.topics, now.brokers, now.away) == (4, 3, (1, 2, 3, 4), ())
    assert now.racks == {"a": (1, 2), "b": (3,), "c": (4,)}
    # Only its leader has a replica of lone-0.
    assert (now.outcome.offline, now.outcome.under_min, now.outcome.lone) == (0, 0, 1)
    assert now.outcome.explained == (
        "Every partition has a leader and as many in-sync replicas as min.insync.replicas requires."
    )


def test_failure_of_one_broker() -> None:
    outcome = killed("3")

    # orders-0 keeps 1 and 2, orders-1 keeps 2, and audit-0 keeps 4, which becomes its leader.
    assert (outcome.offline, outcome.moved, outcome.under_min, outcome.lone) == (0, 1, 1, 3)
    assert (outcome.busiest, outcome.busiest_leads, outcome.busiest_led) == (4, 2, 1)
    assert outcome.explained == (
        "If 3 fails, every partition keeps a leader. 1 partition can be read but refuses acks=all: fewer replicas are "
        "in sync than min.insync.replicas. 3 partitions would be one failure from loss (1 now). Broker 4 would lead "
        "the most partitions: 2 (1 now)."
    )


def test_failure_of_two_brokers() -> None:
    outcome = killed("2,3")

    assert (outcome.offline, outcome.recoverable, outcome.lossy) == (1, 1, 0)
    assert [(each.topic, each.partitions) for each in outcome.worst_topics] == [("orders", 1)]
    assert outcome.explained.startswith(
        "If 2 and 3 fail, 1 partition of 1 topic has no leader: all in-sync replicas are down. An unclean election "
        "would lose the records that the remaining replicas lack. 1 partition can be read but refuses acks=all"
    )


def test_failure_of_two_brokers_with_unclean_elections() -> None:
    outcome = killed("2,3", unclean=True)

    assert (outcome.offline, outcome.recoverable, outcome.lossy) == (0, 0, 1)
    assert outcome.explained.startswith(
        "If 2 and 3 fail, 1 partition of 1 topic is led by a replica that was not in sync, because unclean elections "
        "are allowed: records that it lacks are lost."
    )


def test_partition_without_a_live_replica() -> None:
    outcome = killed("4")

    assert (outcome.offline, outcome.recoverable) == (1, 0)
    assert "1 partition of 1 topic has no leader: all in-sync replicas are down. No other replica of it is alive." in (
        outcome.explained
    )


def test_sweep_lists_the_worst_brokers_first() -> None:
    sweep = swept(Kind.BROKERS)

    assert (sweep.scenarios, sweep.harmless, sweep.writable) == (4, 3, 1)
    # 4 takes lone-0 offline; 2 and 3 leave orders-1 with one in-sync replica; 3 leaves one more lone than 2; 1 has no
    # effect.
    assert list(by_name(sweep)) == ["4", "3", "2", "1"]


def test_sweep_over_pairs() -> None:
    sweep = swept(Kind.PAIRS)

    found = by_name(sweep)
    assert sweep.scenarios == len(found) == 6
    assert {name: each.offline for name, each in found.items()} == {
        "1 and 2": 0,
        "1 and 3": 0,
        "1 and 4": 1,  # lone-0
        "2 and 3": 1,  # orders-1
        "2 and 4": 1,
        "3 and 4": 2,  # audit-0 and lone-0
    }
    assert next(iter(found)) == "3 and 4"
    assert found["3 and 4"].topics == 2
    assert sweep.harmless == 2


def test_number_of_outcomes_is_limited() -> None:
    (sweep,) = asked(Kind.PAIRS, top=2).sweeps

    assert (sweep.scenarios, len(sweep.worst)) == (6, 2)


def test_sweep_over_racks() -> None:
    found = by_name(swept(Kind.RACKS))

    assert {name: each.offline for name, each in found.items()} == {"rack a": 0, "rack b": 0, "rack c": 1}
    assert found["rack a"].scenario.brokers == (1, 2)
    assert found["rack a"].under_min == 2
    assert found["rack a"].explained.startswith("If rack a fails, every partition keeps a leader. 2 partitions can be")


def test_sweep_over_racks_and_one_more_broker() -> None:
    found = by_name(swept(Kind.RACK_AND_BROKER))

    assert {name: each.offline for name, each in found.items()} == {
        "rack a and 3": 2,  # all of orders; 4 is not in sync with orders-1
        "rack a and 4": 1,
        "rack b and 1": 0,
        "rack b and 2": 1,
        "rack b and 4": 2,
        "rack c and 1": 1,
        "rack c and 2": 1,
        "rack c and 3": 2,
    }
    assert found["rack a and 3"].scenario.brokers == (1, 2, 3)


def test_sweeps_agree_with_single_scenarios() -> None:
    for kind in (Kind.BROKERS, Kind.PAIRS, Kind.RACKS, Kind.RACK_AND_BROKER):
        for each in swept(kind).worst:
            words = ",".join(map(str, each.scenario.brokers))
            assert killed(words).offline == each.offline
            assert killed(words).moved == each.moved
            assert killed(words).busiest_leads == each.busiest_leads


def test_rolling_restarts() -> None:
    by_id, by_rack, whole = asked(Kind.ROLLING).rolling

    assert [each.order for each in (by_id, by_rack, whole)] == [
        "one broker at a time, by id",
        "one broker at a time, rack by rack",
        "a whole rack at a time",
    ]
    assert (by_id.steps, by_id.bad_steps, whole.steps) == (4, 1, 3)
    assert by_id.worst.scenario.name == "4"
    # Moves when 1 stops: orders-0 to 2. 2: orders-0 to 1, orders-1 to 3. 3: orders-1 to 2, audit-0 to 4. 4: audit-0 to
    # 3; lone-0 waits for 4, which leads it again.
    assert by_id.moves == 6
    assert (by_id.busiest, by_id.busiest_leads) == (1, 1)
    assert by_id.explained == (
        "Restarting one broker at a time, by id takes partitions offline in 1 of 4 steps, 1 partition at worst, while "
        "4 is down. Leaders move 6 times in all."
    )


def test_weights_determine_the_leader_load() -> None:
    outcome = killed("3", topics={"audit": TopicFacts(weight=2.5), "orders": TopicFacts(weight=10)})

    # 2 leads orders-1 as before, 1 leads orders-0; lone has no weight.
    assert (outcome.busiest, outcome.busiest_leads) == (1, 10)
    assert "Broker 1 would have the highest leader load: 10 (10 now)." in outcome.explained
    assert killed("1", topics={"orders": TopicFacts(weight=10)}).busiest_leads == 20


def test_given_settings_override_the_snapshot() -> None:
    assert killed("1", topics={"orders": TopicFacts(min_isr=3)}).under_min == 2
    assert killed("1", min_isr=2).under_min == 1  # lone-0, which has no known value


def test_broker_that_is_away_cannot_fail() -> None:
    answered = asked(Kind.BROKERS, kill="4,1", away=frozenset({4}))

    assert answered.now.away == (4,)
    assert answered.now.outcome.offline == 1
    assert answered.now.outcome.explained == ("1 partition already has no leader.")
    assert answered.killed[0].scenario.brokers == (1,)
    assert answered.sweeps[0].scenarios == 3
    assert answered.sweeps[0].harmless == 2  # lone-0 is offline anyway; 3 alone is in sync with audit-0


def test_broker_in_no_isr_is_assumed_away() -> None:
    partitions = (P("a-0", (1, 2, 3), (1, 2)), P("b-0", (3,), (3,), leader=-1))

    answered = answer(here(partitions))
    corrected = answer(here(partitions, Assumptions(alive=frozenset({3}))))

    assert answered.now.away == (3,)
    assert "Assumed to be down, because they are in no ISR: 3. If they are alive: --alive 3." in answered.notes
    assert corrected.now.away == ()
    # b-0 has a live in-sync replica and no leader: the cause is not in the snapshot.
    assert corrected.now.stuck == 1
    assert corrected.now.outcome.offline == 1


def test_unknown_partitions_are_counted_and_left_out() -> None:
    answered = answer(here((*CLUSTER, P("x-0", (1, 2), None, leader=1), P("x-1", (), (), leader=-1))))

    assert (answered.now.partitions, answered.now.unknown) == (4, 2)
    assert "2 partitions are left out: leader, replicas or ISR are not known." in answered.notes


def test_default_min_isr_has_a_note() -> None:
    assert any(note.startswith("min.insync.replicas is assumed to be 1 for 2 partitions") for note in asked().notes)


def test_brokers_without_a_rack_have_a_note() -> None:
    ready = here(CLUSTER, Assumptions(racks={1: "a", 2: "b"}))

    assert "Without a known rack: 3,4." in answer(ready).notes
    assert [each.steps for each in answer(ready, (), [Kind.ROLLING]).rolling] == [4, 4, 4]


def test_snapshot_without_a_known_partition_is_rejected() -> None:
    with pytest.raises(BadSnapshot, match="no partition is known at that time"):
        here(())
    with pytest.raises(
        BadSnapshot, match="0 of 1 partition known: no line has the replicas and the ISR of a partition"
    ):
        here((P("a-0", (1,), None, leader=1),))


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("9", UnknownBroker, "there is no broker 9 in the snapshot; it has 1, 2, 3, 4"),
        ("a", UnknownBroker, "'a' is not a broker id: write 3,4, or rack=a for a rack"),
        (",", UnknownBroker, "names no broker"),
        ("rack=d", UnknownRack, "there is no rack 'd'; there are a, b, c"),
    ],
)
def test_unknown_brokers_and_racks_are_rejected(text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        here(CLUSTER, Assumptions(racks=RACKS)).engine.topology.parse(text)


def test_rack_without_known_racks_is_rejected() -> None:
    with pytest.raises(UnknownRack, match="are not known: set them with --racks"):
        here(CLUSTER).engine.topology.parse("rack=a")


def test_racks_and_brokers_fail_together() -> None:
    scenario = here(CLUSTER, Assumptions(racks=RACKS)).engine.topology.parse("rack=a, 4,1")

    assert (scenario.brokers, scenario.racks, scenario.alone) == ((1, 2, 4), ("a",), (4,))
    assert scenario.name == "rack a and 4"
