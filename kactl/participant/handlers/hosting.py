"""The handlers of a participant: one actor for each hosted partition."""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec

from kactl.decide.messages.broker import PartitionReport
from kactl.decide.messages.control import LeaderAndIsr, PartitionStates, StopReplica
from kactl.decide.state.rows import Bools
from kactl.model import NO_BROKER, NO_EPOCH, ZERO_ID, Broker, TopicPartition, TopicRef
from kactl.model.errors import NotFound
from kactl.participant.growable import broker_list
from kactl.participant.hosted_replicas import HostedReplicas, Role
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.lease import ENDED, Lease
from kactl.participant.leases.token import FencingToken
from kactl.participant.leases.watchdog import Watchdog
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.stores.base import Names

from .actor import PartitionActor
from .environment import Hosted
from .handler import Follower, PartitionHandler
from .orders import Follow, HandlerState, Lead, Order, Stop
from .phase import StartTask
from .reporter import Reporter
from .results import Results
from .waiting import Slots

log = logger(__name__)

# Beyond this number, transitions wait for each other: preparing to lead usually means I/O.
HANDLERS_PARALLEL: Final = 64
TRANSITION_TIMEOUT_MS: Final = 30_000

MakeHandler = Callable[[TopicPartition], PartitionHandler]


class LeadershipEnds(Protocol):
    """Receives the ends of leaderships; see `kactl.participant.handover`."""

    def ended(self, name: TopicPartition, leader_epoch: int, *, forever: bool) -> None: ...

    def prepared(self) -> None:
        """A leadership that waits is prepared."""

    def settled(self) -> None:
        """Every leadership that an order has ended has ended."""


class Positions(Protocol):
    """Receives what followers report; see `kactl.participant.following`."""

    def report(self, name: TopicPartition, position: int, *, caught_up: bool, epoch: int | None = None) -> None: ...


class FollowerPositions(Protocol):
    """Receives what leaders report of their followers; see `kactl.participant.followers`."""

    def report(self, name: TopicPartition, leader_epoch: int, broker: int, position: int) -> bool: ...

    def leadership_ended(self, name: TopicPartition, leader_epoch: int) -> None: ...


class HandlerHosting:
    """The actors of one participant, in all its registrations, and what they share; see `Environment`.

    An actor whose call has not ended outlives the registration, so that no other one serves its partition meanwhile.

    Args:
        make: returns the handler of a partition.
    """

    def __init__(
        self,
        make: MakeHandler,
        *,
        clock: Clock,
        handlers_parallel: int = HANDLERS_PARALLEL,
        transition_timeout_ms: float = TRANSITION_TIMEOUT_MS,
        watchdog: Watchdog | None = None,
    ) -> None:
        self.clock = clock
        self.lease: Lease = ENDED
        self.slots = Slots(handlers_parallel)
        self._handlers_parallel = handlers_parallel
        self.transition_timeout_ms = transition_timeout_ms
        self.margin_ms = 0.0
        self.watchdog = watchdog or Watchdog()
        self.failure_log = FailureLog(log)
        self._make = make
        self._start: StartTask | None = None
        self._reporter: Reporter | None = None
        self._ends: LeadershipEnds | None = None
        self._following: Positions | None = None
        self._followers: FollowerPositions | None = None
        self._caught_up: Callable[[], None] | None = None
        self._unbegun = 0  # orders that wait for the end of a call
        self._actors: dict[TopicPartition, PartitionActor] = {}

    # -- the participant's life

    def open(self, start: StartTask) -> None:
        """Run all tasks by `start` from now on. Those of an earlier block have ended: it waits for their calls.

        What could not be done before its end is forgotten, as when a process ends.
        """
        self._start = start
        self._actors.clear()
        self._unbegun = 0
        self.slots = Slots(self._handlers_parallel)

    def begin_life(
        self,
        *,
        margin_ms: float,
        reporter: Reporter,
        ends: LeadershipEnds | None = None,
        following: Positions | None = None,
        followers: FollowerPositions | None = None,
        caught_up: Callable[[], None] | None = None,
    ) -> None:
        """Begin to serve under a new registration.

        Args:
            caught_up: called when a follower has caught up, according to its leader.
        """
        self.margin_ms = margin_ms
        self._followers, self._caught_up = followers, caught_up
        self._following = following
        self._reporter = reporter
        self._ends = ends
        for actor in self._actors.values():
            actor.begin_life()

    async def end_life(self, *, silent: bool = False) -> None:
        """Stop all replicas, since the registration ends, and wait until their handlers have stopped.

        Args:
            silent: as if the process had been killed: calls are cancelled, and `stop` is not called.
        """
        self._reporter = self._ends = self._following = self._followers = None
        self.lease_ended()
        results = Results(self.clock)
        actors = list(self._actors.values())
        for actor in actors:
            self._unbegun += 1
            actor.submit(Stop(results.ticket(0), NO_EPOCH, silent=silent, ends_life=True))
        await results.wait(self.margin_ms if silent else self.transition_timeout_ms + 2 * self.margin_ms)
        for actor in actors:
            if actor.is_over:
                self._actors.pop(actor.name, None)

    # -- leases

    def lease_began(self, lease: Lease) -> None:
        self.lease = lease
        for actor in self._actors.values():
            actor.lease_began()

    def lease_ended(self) -> None:
        self.lease = ENDED
        # A handler's lease_lost may call into this object.
        for actor in tuple(self._actors.values()):
            actor.lease_ended()

    def leadership(self, name: TopicPartition) -> Leader | None:
        """Returns the leadership of a partition; None if there is none whose `lead` has been called."""
        actor = self._actors.get(name)
        leader = None if actor is None else actor.leader
        return leader if leader is not None and leader.is_valid else None

    # -- orders

    def lead(
        self,
        request: LeaderAndIsr,
        chosen: Bools,
        results: Results,
        hosted: HostedReplicas,
        *,
        held: Bools,
        continued: Bools,
    ) -> None:
        """Order to lead the chosen rows of a LeaderAndIsr.

        Args:
            held: bool[n], rows that are led after their release.
            continued: bool[n], rows for which a leadership in progress goes on.
        """
        states = request.states
        for row, name in _rows(Names(states.topics, states.topic, states.partition), chosen):
            reason = request.reason_of(row)
            if reason.previous is None:
                reason = msgspec.structs.replace(reason, previous=_followed(hosted, name))
            topic_id = states.topics[states.topic[row]].id
            if topic_id == ZERO_ID:
                topic_id = hosted.topic_id_of(name)  # its id was lost; guards compare tokens of one id
            self._submit(
                name,
                Lead(
                    results.ticket(row),
                    FencingToken(int(states.controller_epoch[row]), int(states.leader_epoch[row]), topic_id),
                    isr=broker_list(states.isr, row),
                    reason=reason,
                    held=bool(held[row]),
                    continues=bool(continued[row]),
                    raises=states.unbroken is not None and states.unbroken[row] < 0,
                ),
            )

    def follow(self, states: PartitionStates, chosen: Bools, results: Results, leaders: Iterable[Broker] = ()) -> None:
        """Order to follow the leaders of the chosen rows of a LeaderAndIsr, whose registrations are `leaders`."""
        endpoints = {broker.id: broker.peer for broker in leaders}
        for row, name in _rows(Names(states.topics, states.topic, states.partition), chosen):
            leader = int(states.leader[row])
            epoch, awaited = int(states.leader_epoch[row]), states.hold is not None and bool(states.hold[row])
            order = Follow(results.ticket(row), leader if leader >= 0 else None, epoch, awaited, endpoints.get(leader))
            self._submit(name, order)

    def stop(self, request: StopReplica, chosen: Bools, results: Results) -> None:
        """Order to stop the chosen rows of a StopReplica."""
        for row, name in _rows(Names(request.topics, request.topic, request.partition), chosen):
            epoch, deleted = int(request.leader_epoch[row]), bool(request.delete[row])
            self._submit(name, Stop(results.ticket(row), epoch, deleted=deleted))

    def stop_failed(self, name: TopicPartition, leader_epoch: int) -> None:
        """Stop a replica with a failed directory, and end its leadership, unless it is being stopped.

        Args:
            leader_epoch: of the last order that was carried out; a later one may be in progress.
        """
        actor = self._actors.get(name)
        if actor is not None and not actor.orders.is_stopping:
            epoch = max(leader_epoch, actor.orders.leader_epoch)
            self._submit(name, Stop(Results(self.clock).ticket(0), epoch))

    def isr_changed(self, name: TopicPartition, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """See `PartitionActor.isr_changed`."""
        actor = self._actors.get(name)
        if actor is not None:
            actor.isr_changed(leader_epoch, isr)

    def release(self, name: TopicPartition, leader_epoch: int) -> None:
        """Begin a leadership that waits for its release."""
        actor = self._actors.get(name)
        if actor is not None:
            actor.release(leader_epoch)

    @property
    def is_settled(self) -> bool:
        """Whether the leaderships that orders have ended have all ended."""
        return not self._unbegun

    def reset(self, name: TopicPartition) -> None:
        """See `PartitionActor.reset`. Raises NotFound if the partition has no handler."""
        actor = self._actors.get(name)
        if actor is None:
            raise NotFound("replica of this participant", name)
        actor.reset()

    def repeat_reports(self) -> None:
        """Report the failures that last again, because there is a new controller."""
        for actor in self._actors.values():
            actor.repeat_report()

    def state(self, name: TopicPartition) -> HandlerState | None:
        """Returns the state of the handler of a partition; None if it has none."""
        actor = self._actors.get(name)
        return None if actor is None else actor.state

    def _submit(self, name: TopicPartition, order: Order) -> None:
        actor = self._actors.get(name)
        if actor is None:
            actor = self._actors[name] = PartitionActor(name, self)
        self._unbegun += 1
        actor.submit(order)

    # -- for the actors

    def start(self, main: Callable[[], Coroutine[Any, Any, None]], /) -> None:
        assert self._start is not None
        self._start(main)

    def make(self, name: TopicPartition, /) -> PartitionHandler:
        return self._make(name)

    def report(self, report: PartitionReport) -> None:
        if self._reporter is not None:
            self._reporter.add(report)

    def leads(self, leader: Leader, leads: bool, /) -> None:
        if self._reporter is not None:
            self._reporter.leaders.report(leader.partition, leader.leader_epoch, leads)
        if self._followers is not None and not leads:
            self._followers.leadership_ended(leader.partition, leader.token.leader_epoch)

    def follower_at(self, leader: Leader, follower: int, position: int, /) -> None:
        if self._followers is None or self._caught_up is None:
            return
        if self._followers.report(leader.partition, leader.token.leader_epoch, follower, position):
            self._caught_up()

    def follows(self, follower: Follower, position: int, caught_up: bool, /) -> None:
        if self._following is not None:
            self._following.report(follower.partition, position, caught_up=caught_up, epoch=follower.leader_epoch)

    def began(self, name: TopicPartition, order: Order) -> None:
        if isinstance(order, Follow) and order.awaited:
            self._ended(name, order.leader_epoch, forever=False)
        elif isinstance(order, Stop) and order.leader_epoch >= 0:
            self._ended(name, order.leader_epoch + 1, forever=True)
        self.replaced(order)

    def prepared(self, order: Lead) -> None:
        if TopicRef("", order.token.topic_id).is_ownership and self._ends is not None:
            self._ends.prepared()

    def is_prepared(self, name: TopicPartition) -> bool:
        """Returns whether a leadership that waits needs nothing but its release."""
        return self.state(name) in (HandlerState.WAITING, HandlerState.LEADING)

    def replaced(self, order: Order) -> None:
        self._unbegun -= 1
        if not self._unbegun and self._ends is not None:
            self._ends.settled()

    def failed(self, name: TopicPartition, order: Order, *, had_begun: bool) -> None:
        if order.leader_epoch >= 0:
            self._ended(name, order.leader_epoch + 1, forever=True)
        if not had_begun:
            self.replaced(order)

    def _ended(self, name: TopicPartition, leader_epoch: int, *, forever: bool) -> None:
        if self._ends is not None:
            self._ends.ended(name, leader_epoch, forever=forever)

    def is_idle(self, actor: Hosted) -> None:
        if actor.is_new and self._actors.get(actor.name) is actor:
            del self._actors[actor.name]


def _followed(hosted: HostedReplicas, name: TopicPartition) -> int | None:
    """Returns the leader that this participant follows; None if it follows none."""
    view = hosted.view(name)
    return None if view is None or view.role is not Role.FOLLOWER or view.leader == NO_BROKER else view.leader


def _rows(names: Names, chosen: Bools) -> Iterator[tuple[int, TopicPartition]]:
    """Returns the chosen rows, with their names."""
    return zip(chosen.nonzero()[0].tolist(), names.take(chosen), strict=True)
