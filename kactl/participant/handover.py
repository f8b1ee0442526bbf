"""Handover of leaderships from one participant to the next, as a participant takes part in it.

    earlier leader   an order ends its leadership, the calls of the application end, it reports `ended`
    next leader      is ordered to lead with `hold`, waits, reports `waiting`, and begins after its LeaseRelease

A leadership that is valid now is never held: while it has not ended, nobody else was released. This also holds for an
order of a later controller, which does not know that the leadership is valid.

A participant that has reported an end below an epoch begins no leadership below it without a release.
"""

from collections.abc import Iterable

import numpy as np

from kactl.decide.messages.control import LeaderAndIsr, LeaseRelease, PartitionStates, StateSent, StopReplica
from kactl.decide.state.rows import Bools, Ints
from kactl.model import EPOCH_DURING_DELETE, NO_EPOCH, TopicPartition
from kactl.stores.base import Names

from .handlers.hosting import HandlerHosting
from .hosted_replicas import HostedReplicas, Role, names_of
from .leadership_reports import LeadershipReporter, one
from .row_index import ABSENT


class Handover:
    """The reports of a participant under one registration, and its leaderships that wait.

    Args:
        hosted: has the leaderships that wait.
        hosting: of the handlers; None if a listener is called, whose calls have ended when a request is carried out.
    """

    def __init__(self, hosted: HostedReplicas, reporter: LeadershipReporter, hosting: HandlerHosting | None) -> None:
        self._hosted = hosted
        self._reporter = reporter
        self._hosting = hosting
        self._sent_by = NO_EPOCH  # controller epoch of the last StateSent

    # -- requests

    def held(self, states: PartitionStates, lead: Bools) -> Bools:
        """Returns bool[n]: the rows to lead that have to wait for a release."""
        return self._hosted.must_wait(states, lead)

    def carried_out(self, states: PartitionStates, followed: Bools, failed: Bools, controller_epoch: int) -> None:
        """Report the leaderships that wait, and those that a LeaderAndIsr has ended."""
        self._hosted.sent_by(states, controller_epoch)
        names = Names(states.topics, states.topic, states.partition)
        if self._hosting is None:
            if states.hold is not None:
                which = followed & states.hold
                self._reporter.ended(names.take(which), states.leader_epoch[which])
            self._ended(names.take(failed), states.leader_epoch[failed] + np.int32(1))
        if self._hosted.waits:
            self._reporter.waiting()

    def stopped(self, request: StopReplica, stopped: Bools) -> None:
        """Report which leaderships a StopReplica has ended."""
        if self._hosting is None:
            which = stopped & (request.leader_epoch >= 0)
            names = Names(request.topics, request.topic, request.partition).take(which)
            self._ended(names, request.leader_epoch[which] + np.int32(1))

    def release(self, request: LeaseRelease) -> bool:
        """Begin leaderships that wait. Returns whether there were any."""
        hosted, epochs = self._hosted, request.leader_epoch
        rows = hosted.index.find(names_of(request.topics), request.topic, request.partition)
        known = (rows != ABSENT) & ~hosted.differs(request, rows)
        waits = np.zeros(len(rows), np.bool_)
        of_known = rows[known]
        is_leader = hosted.role[of_known] == Role.LEADER
        waits[known] = hosted.held[of_known] & is_leader & (hosted.leader_epoch[of_known] == epochs[known])
        hosted.held[rows[waits]] = False
        if self._hosting is not None:
            names = Names(request.topics, request.topic, request.partition).take(waits)
            for name, epoch in zip(names, epochs[waits].tolist(), strict=True):
                self._hosting.release(name, epoch)
        return bool(waits.any())

    def unnamed(self, request: StateSent) -> StopReplica:
        """Returns the request to stop what is led here and was not named by the controller that has sent its state.

        The controller may name a partition later, under the same leader epoch. It then begins again.
        """
        hosted = self._hosted
        rows = hosted.in_role(Role.LEADER)
        rows = rows[hosted.sender_epoch[rows] < request.controller_epoch]
        names = hosted.names_with_ids(rows)
        return StopReplica(
            request.controller_id,
            request.controller_epoch - 1,
            request.broker_epoch,
            topics=names.topics,
            topic=names.topic,
            partition=names.partition,
            leader_epoch=hosted.leader_epoch[rows],
            delete=np.zeros(len(rows), np.bool_),
        )

    def replaced(self, request: LeaderAndIsr, *, is_late: bool) -> StopReplica:
        """Returns the request to stop the replicas of other topics of the names in a request.

        Partitions of ownership topics have no data: those of the other topics give way to every request that is not
        late. The controller stops members that do not own or follow a partition any more, and keeps no list of them, so
        that a deletion does not reach them.

        Other replicas do if they were named by earlier controllers only: of two topics that one controller has named,
        the request may be about the earlier one, and late. Topics without ids are compared by their leaderships, see
        `HostedReplicas.contradicts`.

        The data of a replica stays until its deletion is ordered: a lost id, or a store that was restored, looks like a
        topic that was created again. Only a deletion that was ordered before and has failed is made again.
        """
        hosted, states = self._hosted, request.states
        rows = hosted.index.find(names_of(states.topics), states.topic, states.partition)
        is_other = hosted.differs(states, rows)
        replaced = is_other | hosted.contradicts(states, rows)
        rows, is_other = rows[replaced], is_other[replaced]
        named_by = np.maximum(hosted.sender_epoch[rows], hosted.controller_epoch[rows])
        is_served = (hosted.role[rows] == Role.LEADER) | (hosted.role[rows] == Role.FOLLOWER)
        # One that is set aside and still served could not be stopped before.
        is_left = np.where(hosted.set_aside[rows], is_served, named_by < request.controller_epoch)
        is_left = np.where(is_other & hosted.are_owned(rows), not is_late, is_left)
        rows = rows[~hosted.failed[rows] & (is_left | hosted.undeleted[rows])]
        names = hosted.names_with_ids(rows)
        return StopReplica(
            request.controller_id,
            request.controller_epoch,
            request.broker_epoch,
            topics=names.topics,
            topic=names.topic,
            partition=names.partition,
            leader_epoch=np.full(len(rows), EPOCH_DURING_DELETE, np.int32),
            delete=hosted.undeleted[rows],
        )

    def state_sent(self, controller_epoch: int) -> None:
        """Report that the complete state is carried out, once the leaderships that it has ended have ended."""
        self._sent_by = controller_epoch
        if self._hosting is None or self._hosting.is_settled:
            self.settled()

    # -- handlers; see `LeadershipEnds`

    def ended(self, name: TopicPartition, leader_epoch: int, *, forever: bool) -> None:
        names = one(name, self._hosted.topic_id_of(name))
        epochs = np.array([leader_epoch], np.int32)
        if forever:
            self._ended(names, epochs)
        else:
            self._reporter.ended(names, epochs)

    def prepared(self) -> None:
        self._reporter.waiting()

    def settled(self) -> None:
        if self._sent_by != NO_EPOCH:
            self._reporter.complete(self._sent_by)
            self._sent_by = NO_EPOCH

    def failed(self, names: Iterable[TopicPartition]) -> None:
        """End the leaderships of replicas with a failed directory."""
        hosted = self._hosted
        for name in names:
            epoch = int(hosted.leader_epoch[hosted.index.find_one(name)])
            if self._hosting is not None:
                self._hosting.stop_failed(name, epoch)
            elif epoch != NO_EPOCH:
                self.ended(name, epoch + 1, forever=True)

    def _ended(self, names: Names, leader_epoch: Ints) -> None:
        """Report ends, and begin no leadership below these epochs without a release."""
        self._hosted.end_below(names, leader_epoch)
        self._reporter.ended(names, leader_epoch)
