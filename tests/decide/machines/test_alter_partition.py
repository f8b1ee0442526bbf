"""Validation of proposed ISRs: columns compared with the same rules for one object at a time."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines.alter_partition import Proposed, judge
from kactl.decide.messages.broker import IsrProposal
from kactl.decide.state.records import Assignments, Leaderships, Names
from kactl.decide.state.rows import BrokerSet, Rows
from kactl.decide.state.table import Table
from kactl.model import NO_BROKER, NO_EPOCH, Assignment, Leadership, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode, UnknownRecoveryState

REPLICAS = (1, 2, 3, 4)
LED = Leadership(leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=9, controller_epoch=1)


@dataclass(frozen=True)
class Case:
    """One partition and the proposal for it. The defaults are an accepted proposal; each case states its difference."""

    known: Leadership | None = LED
    isr: tuple[int, ...] = (1,)
    leader_epoch: int = 5
    partition_epoch: int = 9
    recovering: bool = False
    broker_epochs: tuple[int, ...] = ()


# Registered brokers and their epochs.
REGISTERED = {1: 11, 2: 12, 4: 14}


def rows_of(cases: list[Case]) -> Rows:
    table = Table()
    names = [TopicPartition("t", number) for number in range(len(cases))]
    table.put_assignments(Assignments.of(dict.fromkeys(names, Assignment(REPLICAS))))
    rows = table.rows_at(Names.of(names))
    table.put_leaderships(rows, Leaderships.of([case.known for case in cases]))
    return table.rows(rows)


def proposed_of(cases: list[Case]) -> Proposed:
    return Proposed.of(
        [
            IsrProposal(
                TopicRef("t"),
                number,
                case.leader_epoch,
                case.isr,
                case.partition_epoch,
                case.recovering,
                case.broker_epochs,
            )
            for number, case in enumerate(cases)
        ]
    )


def judged(
    *cases: Case,
    broker: int = 1,
    live: tuple[int, ...] = REPLICAS,
    leaving: tuple[int, ...] = (),
    version: int = 3,
) -> list[tuple[str, bool]]:
    """Return the error name of each case, and whether the proposal equals the current state.

    Args:
        leaving: brokers that are registered and shut down.
    """
    proposals = list(cases)
    answer = judge(
        rows_of(proposals),
        proposed_of(proposals),
        broker=broker,
        live=BrokerSet(live),
        registered=BrokerSet({*live, *leaving}),
        version=version,
        epochs=REGISTERED,
    )
    assert not (answer.taken & (answer.same | (answer.error != 0))).any()
    return [
        (ErrorCode(code).name, same) for code, same in zip(answer.error.tolist(), answer.same.tolist(), strict=True)
    ]


def oracle(
    case: Case, *, broker: int, live: tuple[int, ...], leaving: tuple[int, ...], version: int
) -> tuple[str, bool]:
    """Judge one proposal by sequential rules."""
    known, members = case.known, set(case.isr)
    if known is None:
        return "UNKNOWN_TOPIC_OR_PARTITION", False
    if case.partition_epoch > known.partition_epoch or case.leader_epoch > known.leader_epoch:
        return "NOT_CONTROLLER", False
    if case.leader_epoch < known.leader_epoch:
        return "FENCED_LEADER_EPOCH", False
    if (broker, members, case.recovering) == (known.leader, set(known.isr), known.recovering):
        return "NONE", True
    if case.partition_epoch < known.partition_epoch:
        return "INVALID_UPDATE_VERSION", False
    if broker != known.leader or broker not in members:
        return "INVALID_REQUEST", False
    if case.recovering and (len(members) > 1 or not known.recovering):
        return "INVALID_REQUEST", False
    joins, stays = set(live) & set(REPLICAS), {*live, *leaving} & set(known.isr)
    if not members <= joins | stays:
        return "INELIGIBLE_REPLICA" if version >= 2 else "OPERATION_NOT_ATTEMPTED", False
    return "NONE", False


def test_each_case_of_the_table_has_its_error() -> None:
    recovering = Leadership(leader=1, leader_epoch=5, isr=(1,), partition_epoch=9, controller_epoch=1, recovering=True)

    assert judged(
        Case(known=None),
        Case(partition_epoch=10),
        Case(leader_epoch=6),
        Case(leader_epoch=4),
        Case(isr=(2, 1), partition_epoch=8),  # equals the current state; the older version does not matter
        Case(partition_epoch=8),
        Case(isr=()),
        Case(isr=(2,)),
        Case(isr=(1, 2), recovering=True),
        Case(isr=(1,), recovering=True),
        Case(known=recovering, isr=(1, 2), recovering=True),
        Case(known=recovering, isr=(1,), recovering=True),
        Case(known=recovering, isr=(1,)),
        Case(isr=(1, 2, 3)),
        Case(isr=(1, NO_BROKER)),
        Case(isr=(1, 4)),
        Case(),
        live=(1, 2, 4),
    ) == [
        ("UNKNOWN_TOPIC_OR_PARTITION", False),
        ("NOT_CONTROLLER", False),
        ("NOT_CONTROLLER", False),
        ("FENCED_LEADER_EPOCH", False),
        ("NONE", True),
        ("INVALID_UPDATE_VERSION", False),
        ("INVALID_REQUEST", False),
        ("INVALID_REQUEST", False),
        ("INVALID_REQUEST", False),
        ("INVALID_REQUEST", False),
        ("INVALID_REQUEST", False),
        ("NONE", True),
        ("NONE", False),
        ("INELIGIBLE_REPLICA", False),
        ("INELIGIBLE_REPLICA", False),
        ("NONE", False),
        ("NONE", False),
    ]


def test_proposal_of_a_follower_is_invalid() -> None:
    assert judged(Case(), Case(isr=(1, 2)), Case(isr=(2,)), broker=2) == [("INVALID_REQUEST", False)] * 3


def test_member_with_another_broker_epoch_is_ineligible() -> None:
    assert judged(
        Case(isr=(4, 1), broker_epochs=(14, 11)),
        Case(isr=(4, 1), broker_epochs=(13, 11)),
        Case(isr=(4, 1), broker_epochs=(15, 11)),
        Case(isr=(4, 1), broker_epochs=(14, 10)),
        Case(isr=(4, 1), broker_epochs=(NO_EPOCH, NO_EPOCH)),
        Case(isr=(4, 1), broker_epochs=(NO_EPOCH, 11)),
        Case(isr=(4, 1, 4), broker_epochs=(14, 11, 14)),
        Case(isr=(4, 1, 4), broker_epochs=(13, 11, 14)),
        Case(isr=(4, 1, 4), broker_epochs=(14, 11, 13)),
        Case(isr=(4, 1), broker_epochs=(-2, 11)),
        Case(isr=(1, 3), broker_epochs=(11, 13)),  # not registered
        Case(isr=(1, 2), broker_epochs=(11, 1)),  # equals the current state, so not written
        Case(isr=(1,), broker_epochs=(11,)),
        live=(1, 2, 3, 4),
    ) == [
        ("NONE", False),
        ("INELIGIBLE_REPLICA", False),
        ("INELIGIBLE_REPLICA", False),
        ("INELIGIBLE_REPLICA", False),
        ("NONE", False),
        ("NONE", False),
        ("NONE", False),
        ("INELIGIBLE_REPLICA", False),
        ("INELIGIBLE_REPLICA", False),
        ("INELIGIBLE_REPLICA", False),
        ("INELIGIBLE_REPLICA", False),
        ("NONE", True),
        ("NONE", False),
    ]


@pytest.mark.parametrize(("version", "error"), [(0, "OPERATION_NOT_ATTEMPTED"), (2, "INELIGIBLE_REPLICA")])
def test_error_for_a_dead_member_depends_on_the_version(version: int, error: str) -> None:
    assert judged(Case(isr=(1, 3)), live=(1, 2), version=version) == [(error, False)]


def test_broker_that_is_not_assigned_is_ineligible_unless_it_is_in_sync_already() -> None:
    stray = Leadership(leader=1, leader_epoch=5, isr=(1, 5), partition_epoch=9, controller_epoch=1)

    assert judged(
        Case(isr=(1, 5)), Case(known=stray, isr=(1, 2, 5)), Case(known=stray, isr=(1, 2)), live=(1, 2, 5)
    ) == [("INELIGIBLE_REPLICA", False), ("NONE", False), ("NONE", False)]


def test_member_that_shuts_down_may_stay_and_not_join() -> None:
    alone = Leadership(leader=1, leader_epoch=5, isr=(1,), partition_epoch=9, controller_epoch=1)

    assert judged(
        Case(known=alone, isr=(1, 3)),  # the leader itself shuts down
        Case(isr=(1, 2, 3)),
        Case(known=alone, isr=(1, 2)),
        Case(known=alone, isr=(1, 2, 3)),
        live=(3, 4),
        leaving=(1, 2),
    ) == [("NONE", False), ("NONE", False), ("INELIGIBLE_REPLICA", False), ("INELIGIBLE_REPLICA", False)]


def test_member_that_is_not_registered_may_not_stay() -> None:
    assert judged(Case(isr=(1, 2, 3)), live=(1, 3)) == [("INELIGIBLE_REPLICA", False)]


def test_no_proposals_give_no_results() -> None:
    assert judged() == []


def test_unknown_recovery_state_is_rejected() -> None:
    with pytest.raises(UnknownRecoveryState):
        Proposed.of([IsrProposal(TopicRef("t"), 0, 5, (1,), 9, 25)])


ISRS = st.lists(st.integers(1, 5), max_size=4, unique=True).map(tuple)
EPOCHS = st.integers(4, 6)
KNOWN = st.builds(
    Leadership,
    leader=st.sampled_from([-1, 1, 2]),
    leader_epoch=EPOCHS,
    isr=ISRS,
    partition_epoch=EPOCHS,
    controller_epoch=st.just(1),
    recovering=st.booleans(),
)
CASES = st.builds(Case, st.none() | KNOWN, ISRS, EPOCHS, EPOCHS, st.booleans())


@given(st.lists(CASES, max_size=12), st.sampled_from([1, 2]), ISRS, ISRS, st.sampled_from([1, 2]))
def test_columns_agree_with_the_sequential_oracle(
    cases: list[Case], broker: int, live: tuple[int, ...], others: tuple[int, ...], version: int
) -> None:
    leaving = tuple(set(others) - set(live))
    expected = [oracle(case, broker=broker, live=live, leaving=leaving, version=version) for case in cases]

    assert judged(*cases, broker=broker, live=live, leaving=leaving, version=version) == expected


def test_proposals_are_converted_to_columns() -> None:
    proposed = proposed_of([Case(isr=(3, 1, 3)), Case(isr=())])

    assert proposed.isr.tolist() == [[3, NO_BROKER], [1, NO_BROKER]]
    assert len(proposed.take(np.array([True, False]))) == 1
