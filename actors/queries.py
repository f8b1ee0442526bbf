"""Queries of a controller instance, as methods. They do not wait and change nothing."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from kactl.decide.machines.deletion import Waiting, waiting
from kactl.decide.machines.explain import DeletionExplanation, Explanation, Moment, explain_deletion
from kactl.decide.machines.shards import explain
from kactl.decide.messages import arguments
from kactl.decide.messages.arguments import AnyPartition
from kactl.decide.messages.log import KINDS, AnyEvent, ControllerEvent, ElectionEvent
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.replica_reports import ReplicaReport
from kactl.model import Broker, PartitionView, TopicPartition, TopicRef
from kactl.model.errors import BadRequest, NotController, NotFound
from kactl.runtime.clock import Clock
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.event_records import RECORDS_MAX, Current, Kind, Summary
from kactl.telemetry.terms import ENDED_UNSEEN, Term

from .controller import ControllerLoop
from .links import Links
from .remote_sessions import RemoteSessions

# At most this many waiting events are listed.
NAMED_MAX: Final = 1000


class QueuedEvent(msgspec.Struct, frozen=True):
    """An event that waits, and whether a caller waits for its result."""

    label: str
    waited_ms: float
    asked: bool


class QueueView(msgspec.Struct, frozen=True):
    """The controller's inbox and its statistics, at one moment.

    Attributes:
        oldest_ms: how long the oldest event has waited; 0 if there is none.
        refused: number of events that were rejected because the inbox was full.
        next: the first waiting events, in order.
        kinds: by label; kinds without an event are left out.
        wait: of all kinds; empty if there was no event in the last five minutes.
    """

    depth: int
    oldest_ms: float
    refused: int
    current: Current | None
    next: list[QueuedEvent]
    kinds: list[Kind]
    wait: Summary


class Snapshot(msgspec.Struct, frozen=True):
    """The cluster in numbers, at one moment."""

    controller_id: int
    active_id: int | None
    epoch: int
    brokers: int
    topics: int
    partitions: int
    offline_partitions: int
    under_replicated_partitions: int
    preferred_imbalance: int
    seq: int


class Queries:
    """Queries that are answered from memory."""

    node_id: int
    loop: ControllerLoop
    cluster: Cluster
    history: EventLog
    links: Links
    sessions: RemoteSessions
    clock: Clock

    def snapshot(self) -> Snapshot:
        """The cluster in numbers; zeros while another instance is the controller."""
        cluster = self.cluster
        return Snapshot(
            controller_id=self.node_id,
            active_id=self.loop.active_id,
            epoch=cluster.fence.epoch,
            brokers=len(cluster.brokers),
            topics=cluster.table.topic_count(),
            partitions=len(cluster.table),
            offline_partitions=cluster.offline_count,
            under_replicated_partitions=len(cluster.table.under_replicated()),
            preferred_imbalance=cluster.imbalance_count,
            seq=self.history.seq,
        )

    def recall(
        self,
        events: Sequence[AnyEvent],
        terms: Iterable[Term],
        *,
        orderly: bool,
        elections: Iterable[ElectionEvent] = (),
    ) -> None:
        """Continue the history of earlier processes of this instance. To be called before the instance is entered.

        See `EventLog.restore`, `Controllerships.restore` and `EventRecords.restore`.
        """
        self.loop.events.restore(elections)
        self.history.restore(events, orderly=orderly)
        self.loop.controllership.terms.restore(map(self._ended, terms))

    def _ended(self, term: Term) -> Term:
        """Returns a term of an earlier process, ended. An end that was not logged is logged now, for all later ones."""
        if term.ended_ms is not None:
            return term
        event = self.history.add(
            ControllerEvent(
                what="ended",
                controller_id=term.controller_id,
                cause=ENDED_UNSEEN,
                controller_epoch=term.epoch,
                began_ms=term.began_ms,
            )
        )
        return msgspec.structs.replace(term, ended_ms=event.time_ms, cause=ENDED_UNSEEN)

    def controllerships(self) -> list[Term]:
        """Returns the controllerships that this instance has observed, the oldest first."""
        return self.loop.controllership.terms.all()

    def elections(self, *, limit: int = RECORDS_MAX) -> list[ElectionEvent]:
        """Returns the newest events that moved leadership, newest first; those in progress come first."""
        return self.loop.events.recent(limit=limit)

    def queue(self, *, limit: int = 20) -> QueueView:
        """Returns the waiting events, the first `limit` by name, the event in progress, and durations by kind."""
        events, inbox = self.loop.events, self.loop.inbox
        named = islice(inbox.waiting(), min(limit, NAMED_MAX))
        return QueueView(
            depth=len(inbox),
            oldest_ms=inbox.oldest_ms,
            refused=inbox.refused,
            current=events.current(),
            next=[QueuedEvent(event.label, waited_ms, asked) for event, waited_ms, asked in named],
            kinds=events.kinds(),
            wait=events.wait(),
        )

    def brokers(self) -> list[Broker]:
        """Returns the registered brokers, by id."""
        return list(self.cluster.brokers.values())

    def topics(self) -> list[TopicRef]:
        """Returns all topics, by name."""
        return sorted((topic.ref for topic in self.cluster.table.topics()), key=lambda ref: ref.name)

    def partition(self, name: AnyPartition) -> PartitionView | None:
        """Returns one partition; None if it is unknown. A string is read as `topic-0`.

        Raises:
            BadRequest: `name` cannot name a partition.
        """
        return self.cluster.view(arguments.partition(name, "name"))

    def partitions_of(self, topic: str | TopicRef) -> list[PartitionView]:
        """Returns the partitions of a topic, in order; none if it is unknown, or another one of the name.

        Raises:
            BadRequest: `topic` cannot name a topic.
        """
        asked = arguments.topic(topic)
        known = self.cluster.table.topic(asked.name)
        return (
            []
            if known is None or known.ref.is_other(asked.id)
            else [self.cluster.table.view(row) for row in self.cluster.table.rows_of(known)]
        )

    def deletions(self) -> list[Waiting]:
        """Returns the topics that wait for deletion, by name, with the progress and the blockers of each."""
        return waiting(self.cluster)

    def explain(self, name: AnyPartition) -> Explanation:
        """Returns why a partition has its leader, or has none, and the remedy.

            print(controller.explain("orders-0").verdict)

        Raises:
            BadRequest: `name` cannot name a partition.
            NotController: another instance is the controller; query that one.
            NotFound: there is no such partition.
        """
        asked = arguments.partition(name, "name")
        self._require_active()
        explanation = explain(self.cluster, asked, self._moment(asked))
        if explanation is None:
            raise NotFound("partition", asked)
        return explanation

    def replica_status(self, name: AnyPartition) -> dict[int, ReplicaReport]:
        """Returns the replicas of a partition that are not in their normal state, as their participants report it.

        Raises:
            BadRequest, NotController, NotFound: see `explain`.
        """
        asked = arguments.partition(name, "name")
        self._require_active()
        view = self.cluster.view(asked)
        if view is None:
            raise NotFound("partition", asked)
        reports = {broker: self.cluster.replica_report(asked, broker) for broker in self._involved(view)}
        return {broker: report for broker, report in reports.items() if report is not None}

    def _involved(self, view: PartitionView) -> dict[int, None]:
        """Returns the brokers with a replica of a partition, and all that may own it if it is a shard."""
        members = self.cluster.members(view.topic) if self.cluster.is_shard(view.name) else ()
        return dict.fromkeys((*view.replicas, *members))

    def _moment(self, name: TopicPartition) -> Moment:
        """Returns the time, and the participants without a link that an explanation of a partition may name."""
        view = self.cluster.view(name)
        named = () if view is None else {*self._involved(view), *self.cluster.holders_of(name)}
        now_ms, links = self.clock.now_ms(), {}
        for broker in named:
            registered = self.cluster.brokers.get(broker)
            link = None if registered is None else self.links.view(registered)
            if link is not None and not link.is_linked and link.since_ms is not None:
                lost = f"its link was lost {(now_ms - link.since_ms) / 1_000:.1f} s ago: {link.reason}"
                left_ms = self.sessions.left_ms(broker, registered.epoch) if registered is not None else None
                if left_ms is not None:
                    lost += f"; its session ends in {left_ms / 1_000:.1f} s unless it returns"
                links[broker] = lost
        return Moment(self.clock.monotonic_ms(), links)

    def explain_deletion(self, topic: str) -> DeletionExplanation:
        """Returns the progress of a topic's deletion, and its blockers.

        Raises:
            BadRequest, NotController, NotFound: see `explain`.
        """
        asked = arguments.text(topic, "topic")
        self._require_active()
        if self.cluster.table.topic(asked) is None and asked not in self.cluster.topics_to_delete:
            raise NotFound("topic", asked)
        return DeletionExplanation(asked, *explain_deletion(self.cluster, asked))

    def _require_active(self) -> None:
        if not self.loop.is_active:
            raise NotController(self.loop.active_id, self.loop.active_address)

    def events(self, *, after: int | None = None, kinds: Collection[str] = ()) -> AsyncIterator[AnyEvent]:
        """Yields the events from now on, or after event number `after`; see `kactl.decide.messages.log` for the kinds.

        Raises:
            BadRequest: there is no such kind of event.
        """
        unknown = sorted({kinds} if isinstance(kinds, str) else set(kinds).difference(KINDS))
        if unknown:
            raise BadRequest("kinds", f"{unknown} are no kinds of events: give a list of {', '.join(KINDS)}")
        return self.history.follow(after, kinds=kinds)
