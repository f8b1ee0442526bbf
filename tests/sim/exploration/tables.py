"""Decision tables: kactl's own decision functions, each evaluated once for all inputs of the scope.

Every table is filled by one columnar call. Parameters that the functions take once for all rows (live brokers, the
sender of a proposal) become values of the rows by renaming brokers: in each row a broker has a number that says whether
it is live, only registered, or gone.
"""

import copy
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.decide.machines import partition, reassignment, replica
from kactl.decide.machines.alter_partition import Proposed, is_ahead, judge
from kactl.decide.machines.election import Election
from kactl.decide.messages.control import PartitionStates, StopReplica
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.rows import Bools, BrokerSet, Ints, LiveBrokers, Rows
from kactl.model import NO_BROKER, NO_LEADER, PartitionState, ReplicaState, TopicRef
from kactl.model.errors import ErrorCode
from kactl.participant import checks
from kactl.participant.hosted_replicas import HostedReplicas, Role

from .assignments import Assignments
from .components import ABSENT_ROLE, BROKERS, DELETED, FOLLOWER, LEADER, NONE, STOPPED, members

# Added to the number of a broker that is shutting down; twice this of one that is gone.
_SHUTTING = 10
# Of each broker: 0 live, 1 shutting down, 2 gone.
Status = tuple[int, int, int]
LIVE = BrokerSet(BROKERS)
REGISTERED = BrokerSet([*BROKERS, *(broker + _SHUTTING for broker in BROKERS)])
CLUSTER = LiveBrokers(LIVE, REGISTERED)
EPOCH = 5  # leader epoch and version of a row, so that others can be lower
_SENDER = 7


class Decision(NamedTuple):
    """Decision of a function about one row.

    Attributes:
        refused: nothing changes.
        writes: leadership is written.
        bumps: by how much the leader epoch rises.
        notify: mask of the brokers that receive LeaderAndIsr.
    """

    refused: bool
    writes: bool
    leader: int
    bumps: int
    isr: int
    recovering: bool
    notify: int
    unclean: bool


class Row(NamedTuple):
    """One input.

    Attributes:
        status: of each broker: 0 live, 1 shutting down, 2 gone.
        stopped: mask of the replicas without a state.
        target: number of the next assignment.
    """

    assignment: int
    leader: int
    isr: int
    recovering: bool = False
    status: Status = (0, 0, 0)
    stopped: int = 0
    target: int = 0


STATUSES: Final[tuple[Status, ...]] = tuple((a, b, c) for a, b, c in itertools.product((0, 1, 2), repeat=3))
_ISRS = range(1, 8)
_SIGNS = (-1, 0, 1)
_ROLES = (ABSENT_ROLE, LEADER, FOLLOWER, STOPPED, DELETED)
# (leader, ISR, recovering): the leader is in the ISR, and the only member while it recovers.
_LEADERSHIPS = tuple(
    (leader, isr, recovering)
    for isr in _ISRS
    for leader in (NONE, *members(isr))
    for recovering in (False, True)
    if not recovering or isr in (1, 2, 4)
)


class Tables:
    """The decisions, by their inputs. A mutant of the model may replace any of them."""

    def __init__(self, assignments: Assignments) -> None:
        self.assignments = assignments
        # An unclean election that an operator requests is the one of offline partitions, always allowed.
        self.elect = {kind: self._elect(kind) for kind in Election if kind is not Election.UNCLEAN}
        self.offline = self._offline()
        self.raise_epoch = self._raise_epoch()
        self.hand_over = self._hand_over()
        self.complete = self._complete()
        self.led_by_target = self._led_by_target()
        self.judge = self._judge()
        self.lead = self._lead()
        self.stop = self._stop()

    def copied(self) -> "Tables":
        """Returns a copy, for a mutant to edit."""
        other = copy.copy(self)
        for name, table in vars(self).items():
            if isinstance(table, dict):
                setattr(other, name, {**table})
        other.elect = {kind: {**table} for kind, table in self.elect.items()}
        return other

    # -- the controller's functions ------------------------------------------------------------------------------------

    def _elect(self, kind: Election) -> dict[tuple[int, int, int, bool, Status, bool], Decision]:
        """By assignment, leader, ISR, recovering, status of the brokers, whether an unclean election is allowed."""
        inputs = [
            Row(number, leader, isr, recovering, status)
            for number in range(len(self.assignments))
            for leader, isr, recovering in _LEADERSHIPS
            for status in STATUSES
        ]
        rows = rows_of(self.assignments, inputs)
        table = {}
        for allowed in (False, True) if kind is Election.OFFLINE else (False,):
            change = partition.elect(rows, kind, CLUSTER, unclean=np.full(len(inputs), allowed), controller_epoch=1)
            for row, decision in zip(inputs, decisions(change), strict=True):
                table[row.assignment, row.leader, row.isr, row.recovering, row.status, allowed] = decision
        return table

    def _offline(self) -> dict[tuple[int, int, int, bool, int, int], Decision]:
        """By assignment, leader, ISR, recovering, mask of the stopped replicas, and the broker that goes."""
        keys = [
            (number, leader, isr, recovering, stopped, broker)
            for number in range(len(self.assignments))
            for leader, isr, recovering in _LEADERSHIPS
            for stopped in range(8)
            for broker in BROKERS
        ]
        inputs = [
            Row(number, leader, isr, recovering, stopped=stopped)
            for number, leader, isr, recovering, stopped, _ in keys
        ]
        goes = np.array([key[-1] for key in keys], np.int32)
        rows = rows_of(self.assignments, inputs)
        renamed = rows.replace(
            replicas=np.where(rows.replicas == goes, np.int32(_SENDER), rows.replicas),
            leader=np.where(rows.leader == goes, np.int32(_SENDER), rows.leader),
        )
        change = replica.go_offline(renamed, _SENDER, controller_epoch=1)
        change = change.replace(rows=rows, leader=np.where(change.leader == _SENDER, goes, change.leader))
        return dict(zip(keys, decisions(change), strict=True))

    def _raise_epoch(self) -> dict[tuple[int, int, int, bool, int], Decision]:
        keys = [
            (number, leader, isr, recovering, stopped)
            for number in range(len(self.assignments))
            for leader, isr, recovering in _LEADERSHIPS
            for stopped in range(8)
        ]
        rows = rows_of(self.assignments, [Row(*key[:4], stopped=key[4]) for key in keys])
        change = reassignment.raise_epoch(rows, np.ones(len(keys), np.bool_), controller_epoch=1)
        change = change.replace(notify=rows.assigned)
        return dict(zip(keys, decisions(change), strict=True))

    def _hand_over(self) -> dict[tuple[int, int, int, bool, Status, int], Decision]:
        """By assignment, leader, ISR, recovering, status, and the next assignment."""
        inputs = [
            Row(number, leader, isr, recovering, status, target=target)
            for number in range(len(self.assignments))
            for target in sorted(self._next(number))
            for leader, isr, recovering in _LEADERSHIPS
            for status in STATUSES
        ]
        rows = rows_of(self.assignments, inputs)
        stays = np.full((3, len(inputs)), NO_BROKER, np.int32)
        for position, row in enumerate(inputs):
            for slot, broker in enumerate(self.assignments.all[row.target].replicas):
                stays[slot, position] = broker + _SHUTTING * row.status[broker]
        change = reassignment.hand_over(rows, stays, CLUSTER, controller_epoch=1)
        keys = ((row.assignment, row.leader, row.isr, row.recovering, row.status, row.target) for row in inputs)
        return dict(zip(keys, decisions(change), strict=True))

    def _next(self, number: int) -> set[int]:
        """Returns the assignments that a request may lead to."""
        return {self.assignments.move(number, wanted) for wanted in (None, *self.assignments.targets)}

    def _complete(self) -> dict[tuple[int, int], bool]:
        keys = [(number, isr) for number in range(len(self.assignments)) for isr in _ISRS]
        complete = reassignment.is_complete(rows_of(self.assignments, [Row(number, 0, isr) for number, isr in keys]))
        return dict(zip(keys, complete.tolist(), strict=True))

    def _led_by_target(self) -> dict[tuple[int, int, Status], bool]:
        inputs = [
            Row(number, leader, 7, status=status)
            for number in range(len(self.assignments))
            for leader in (NONE, *BROKERS)
            for status in STATUSES
        ]
        led = reassignment.led_by_target(rows_of(self.assignments, inputs), CLUSTER)
        return dict(zip(((row.assignment, row.leader, row.status) for row in inputs), led.tolist(), strict=True))

    def _judge(self) -> dict[tuple[int, int, bool, bool, int, int, int, int, bool], tuple[str, bool]]:
        """Decisions on proposals.

        By mask of the assigned brokers, ISR, recovering, whether the sender is the leader, the sender, the proposed
        ISR, the difference of the leader epoch and of the version (-1, 0, 1), and whether a member is not eligible.
        Values: the error, "same" for a repetition, or "taken" for a write; and whether the leader knows more than the
        controller.
        """
        assigned = {masks.replicas: number for number, masks in enumerate(self.assignments.masks)}
        keys = list(
            itertools.product(
                sorted(assigned), _ISRS, (False, True), (False, True), BROKERS, range(8), _SIGNS, _SIGNS, (False, True)
            )
        )
        rows = rows_of(self.assignments, [Row(assigned[key[0]], 0, key[1], key[2]) for key in keys])
        sender = np.array([key[4] for key in keys], np.int32)
        # The sender is broker 0 in every row.
        leads = np.array([key[3] for key in keys])
        rows = rows.replace(
            replicas=_swapped(rows.replicas, sender), leader=np.where(leads, 0, NO_LEADER).astype(np.int32)
        )
        masks = np.array([key[5] for key in keys])
        isr = np.array([np.where(masks >> broker & 1, broker, NO_BROKER) for broker in BROKERS], np.int32)
        stale = np.array([key[8] for key in keys])
        proposed = Proposed(
            np.array([EPOCH + key[6] for key in keys], np.int32),
            np.array([EPOCH + key[7] for key in keys], np.int32),
            _swapped(isr, sender),
            np.zeros(len(keys), np.bool_),
            np.broadcast_to(np.where(stale, 0, 1).astype(np.int64), (3, len(keys))),
        )
        epochs = dict.fromkeys(BROKERS, 1)
        judged = judge(rows, proposed, broker=0, live=LIVE, registered=LIVE, version=3, epochs=epochs)
        outcomes = (
            ErrorCode(error).name if error else "same" if same else "taken"
            for error, same in zip(judged.error.tolist(), judged.same.tolist(), strict=True)
        )
        return dict(zip(keys, zip(outcomes, is_ahead(rows, proposed).tolist(), strict=True), strict=True))

    # -- the participants' functions -----------------------------------------------------------------------------------

    def _lead(self) -> dict[tuple[int, int, int, bool, bool], str]:
        """Whether a LeaderAndIsr makes a replica "lead" or "follow"; empty if it is refused.

        By role, the difference of the leader epoch and of the version, whether the broker is to lead, and whether the
        controller is a later one than that of the last StopReplica.
        """
        table: dict[tuple[int, int, int, bool, bool], str] = {}
        for later in (False, True):
            keys = [
                (role, leader_epoch, version, leads, later)
                for role in _ROLES
                for leader_epoch in _SIGNS
                for version in _SIGNS
                for leads in (False, True)
            ]
            column = np.arange(len(keys), dtype=np.int32)
            asked = _states(
                column,
                leader=np.array([0 if key[3] else 1 for key in keys], np.int32),
                leader_epoch=EPOCH + np.array([key[1] for key in keys], np.int32),
                version=EPOCH + np.array([key[2] for key in keys], np.int32),
            )
            hosted = _hosted([key[0] for key in keys])
            plan = checks.plan_leader_and_isr(asked, hosted, 0, controller_epoch=EPOCH + later)
            table |= zip(keys, np.where(plan.lead, "lead", np.where(plan.follow, "follow", "")).tolist(), strict=True)
        return table

    def _stop(self) -> dict[tuple[int, int, bool], bool]:
        """Whether a StopReplica is carried out, by role, difference of the leader epoch, and whether it deletes."""
        keys = list(itertools.product(_ROLES, _SIGNS, (False, True)))
        column = np.arange(len(keys), dtype=np.int32)
        states = _states(column, leader=1, leader_epoch=EPOCH, version=EPOCH)
        request = StopReplica(
            controller_id=100,
            controller_epoch=EPOCH,
            broker_epoch=1,
            topics=states.topics,
            topic=states.topic,
            partition=column,
            leader_epoch=EPOCH + np.array([key[1] for key in keys], np.int32),
            delete=np.array([key[2] for key in keys]),
        )
        plan = checks.plan_stop_replica(request, _hosted([key[0] for key in keys]))
        return dict(zip(keys, plan.stop.tolist(), strict=True))


# -- columns -----------------------------------------------------------------------------------------------------------


def rows_of(assignments: Assignments, inputs: Sequence[Row]) -> Rows:
    """Returns the inputs as rows of three slots: the assigned replicas in their order, then the other brokers."""
    count = len(inputs)
    orders = [(*one.replicas, *(broker for broker in BROKERS if broker not in one.replicas)) for one in assignments.all]
    number = np.array([row.assignment for row in inputs])
    own = np.array(orders, np.int32)[number].T
    status = np.array([row.status for row in inputs], np.int32) * _SHUTTING
    at = np.arange(count)
    leader = np.array([row.leader for row in inputs], np.int32)

    def has(masks: Sequence[int]) -> Bools:
        chosen: Bools = (np.array(masks, np.int32) >> own & 1).astype(np.bool_)
        return chosen

    masks = np.array(assignments.masks)[number]
    zeros = np.zeros(count, np.int32)
    epochs = np.full(count, EPOCH, np.int32)
    return Rows(
        index=np.arange(count, dtype=np.intp),
        topic=zeros,
        partition=np.arange(count, dtype=np.int32),
        replicas=own + status[at, own],
        assigned=has(masks[:, 0]),
        in_sync=has([row.isr for row in inputs]),
        adding=has(masks[:, 1]),
        removing=has(masks[:, 2]),
        dir_offline=np.zeros((3, count), np.bool_),
        replica_state=np.where(
            has([row.stopped for row in inputs]), np.uint8(ReplicaState.ABSENT), np.uint8(ReplicaState.ONLINE)
        ),
        state=np.full(count, PartitionState.OFFLINE, np.uint8),
        leader=np.where(leader == NONE, np.int32(NO_LEADER), leader + status[at, leader]),
        leader_epoch=epochs,
        partition_epoch=epochs,
        controller_epoch=zeros,
        recovering=np.array([row.recovering for row in inputs], np.bool_),
        queued=np.zeros(count, np.bool_),
    )


def decisions(change: Change) -> Iterable[Decision]:
    """Returns the decision of each row, with the brokers' own numbers."""
    rows = change.rows
    own = rows.replicas % 10
    weight = (1 << own).astype(np.int64)
    isr = np.where(change.in_sync, weight, 0).sum(axis=0)
    notify = np.where(change.notify, weight, 0).sum(axis=0)
    leader = np.where(change.leader == NO_LEADER, NONE, change.leader % 10)
    return map(
        Decision,
        (change.refusal != Refusal.NONE).tolist(),
        change.writes.tolist(),
        leader.tolist(),
        (change.leader_epoch - rows.leader_epoch).tolist(),
        isr.tolist(),
        change.recovering.tolist(),
        notify.tolist(),
        change.unclean.tolist(),
    )


def _swapped(brokers: Ints, sender: Ints) -> Ints:
    """Returns int32[W, n] with the brokers `sender`, int32[n], and 0 exchanged."""
    swapped: Ints = np.where(brokers == sender, np.int32(0), np.where(brokers == 0, sender, brokers))
    return swapped


def _hosted(roles: Sequence[int]) -> HostedReplicas:
    """Returns the replicas of a broker: one partition for each role."""
    states = _states(np.arange(len(roles), dtype=np.int32), leader=1, leader_epoch=EPOCH, version=EPOCH)
    hosted = HostedReplicas()
    for role in Role:
        held = [DELETED, role] if role is Role.STOPPED else [role]
        hosted.apply(states, np.isin(roles, held) & (role is not Role.NONE), role)
    epochs = np.full(len(roles), EPOCH, np.int32)
    for number, done in ((STOPPED, hosted.stop), (DELETED, hosted.remove)):
        rows = hosted.index.find(["t"], states.topic, states.partition)[np.array(roles) == number]
        done(rows, epochs[: len(rows)], controller_epoch=EPOCH)
    return hosted


def _states(partitions: Ints, *, leader: Any, leader_epoch: Any, version: Any) -> PartitionStates:
    """Returns a LeaderAndIsr's states of some partitions with the replicas 0, 1, 2."""
    count = len(partitions)

    def column(value: Any) -> Ints:
        return np.broadcast_to(np.asarray(value, np.int32), (count,)).copy()

    brokers = np.broadcast_to(np.array(BROKERS, np.int32)[:, None], (3, count)).copy()
    return PartitionStates(
        topics=[TopicRef("t", bytes(15) + b"1")],
        topic=np.zeros(count, np.int32),
        partition=partitions,
        controller_epoch=column(1),
        leader=column(leader),
        leader_epoch=column(leader_epoch),
        isr=brokers,
        partition_epoch=column(version),
        replicas=brokers,
    )
