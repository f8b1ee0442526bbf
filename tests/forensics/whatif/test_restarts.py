"""Rolling restarts: every live broker once, harmless in groups, and with the fewest moves of the tried orders."""

from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.whatif.assumptions import Assumptions
from kactl.decide.whatif.engine import InSequence, Simultaneous
from kactl.decide.whatif.failure_model import LOSSY, MOVED, OFFLINE, UNDER_MIN
from kactl.decide.whatif.restarts import plan_restarts

from .snapshots import Drawn, P, clusters, here


@given(clusters(), st.integers(1, 3))
def test_plan_restarts_every_live_broker_once(drawn: Drawn, together: int) -> None:
    engine = here(drawn.partitions, Assumptions(away=drawn.away)).engine
    topology = engine.topology

    plan = plan_restarts(engine, together=together)

    assert sorted(broker for step in plan.steps for broker in step.brokers) == list(topology.alive)
    assert all(len(step.brokers) <= together for step in plan.steps)
    before = engine.sums(Simultaneous(((),))).counts[0]
    for step in plan.steps:
        (after,) = engine.sums(Simultaneous((topology.positions(step.brokers),))).counts
        harmless = not after[LOSSY] and after[OFFLINE] <= before[OFFLINE] and after[UNDER_MIN] <= before[UNDER_MIN]
        # Leaders stay where they moved, so what an unclean election loses depends on the steps before.
        if not after[LOSSY] and not step.lossy:
            assert (step.harmless, step.offline_more) == (harmless, after[OFFLINE] - before[OFFLINE])
        assert step.harmless or len(step.brokers) == 1 or step.lossy
    assert plan.harmful == sum(not step.harmless for step in plan.steps)


@given(clusters())
def test_plan_moves_no_more_leaders_than_the_order_of_ids(drawn: Drawn) -> None:
    engine = here(drawn.partitions, Assumptions(away=drawn.away)).engine
    one_by_one = tuple((position,) for position in engine.topology.positions(engine.topology.alive))

    moves = plan_restarts(engine).moves

    assert moves <= engine.sums(InSequence(one_by_one)).counts[-1, MOVED]


RACKS = {1: "a", 2: "a", 3: "b", 5: "b", 8: "c"}
SPREAD = [P(f"t-{n}", replicas, replicas, min_isr=2) for n, replicas in enumerate([(1, 3, 8), (2, 5, 8), (2, 3, 8)])]


def test_brokers_of_a_rack_restart_together() -> None:
    plan = plan_restarts(here(SPREAD, Assumptions(racks=RACKS)).engine, together=2)

    assert {step.brokers for step in plan.steps} == {(1, 2), (3, 5), (8,)}
    assert {step.racks for step in plan.steps} == {("a",), ("b",), ("c",)}
    assert plan.harmful == 0


def test_only_replica_makes_a_step_harmful() -> None:
    plan = plan_restarts(here([*SPREAD, P("single-0", (3,), (3,))], Assumptions(racks=RACKS)).engine, together=3)

    (harmful,) = [step for step in plan.steps if not step.harmless]
    assert (harmful.brokers, harmful.offline_more, plan.harmful) == ((3,), 1, 1)


def test_cluster_without_live_brokers_has_an_empty_plan() -> None:
    plan = plan_restarts(here([P("t-0", (1,), (1,))], Assumptions(away=frozenset({1}))).engine, together=2)

    assert (plan.steps, plan.moves, plan.harmful) == ((), 0, 0)
