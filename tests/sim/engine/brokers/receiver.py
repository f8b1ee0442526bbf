"""Application of the controller's requests by a modelled broker, with the checks of Kafka's brokers.

    request ── broker epoch ── controller epoch ── per partition ──▶ response
                  │ 77              │ 11            │ 56, 103, 3, 11, 74

A request that no controller may send is recorded as `broker.complaint` with the number of the invariant.

Source: ReplicaManager.becomeLeaderOrFollower, stopReplicas and maybeUpdateMetadataCache.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    LeaseRelease,
    PartitionErrors,
    ReplicaReset,
    Request,
    Response,
    StateSent,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.model import LEADER_DURING_DELETE, NO_EPOCH, ZERO_ID, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode
from kactl.testing.history import History
from kactl.testing.transport import ControlMessage, address_of

from .entries import StateEntry, StopEntry, led_rows, state_entries, stop_entries, stopped_rows
from .late_stops import LateStops
from .replica import Disk, Replica, StoredLog
from .replica_log import ReplicaLog

_REASONS: Final[Mapping[int, str]] = {
    ErrorCode.STALE_BROKER_EPOCH: "broker epoch",
    ErrorCode.STALE_CONTROLLER_EPOCH: "controller epoch",
}


class Receiver:
    """State of one broker process from the controller's requests.

    Args:
        removed_by_hand: ids, by name, of topics that were removed from the store by hand: brokers keep replicas of
            them, and accept another topic of that name.
        now_ms: virtual time.

    Attributes:
        epoch: the broker epoch; NO_EPOCH before the registration.
        controller_id: of the last accepted request; None before it.
        older: partitions with a replica here and stored leadership when this registration was made, with the ids of
            their topics; without those that were deleted since.
        named: partitions in LeaderAndIsr requests of the present controller; None before its first one.
        greeted: whether the present controller has sent an UpdateMetadata.
        known: metadata of all partitions.
        live: brokers of the last UpdateMetadata.
        overtaken: partitions whose metadata is that of a request which arrived after a later one: a copy of a request
            that the controller has given up. Stock brokers apply it.
        live_is_overtaken: whether the same is true of the live brokers.
        late_stops: replicas that a StopReplica has stopped which arrived after a later LeaderAndIsr.
        blocked: partitions that the broker does not serve, because it has a replica of an earlier topic id that the
            controller cannot know.
        ignored: partitions whose last LeaderAndIsr the broker has not applied, because a late copy of an UpdateMetadata
            has removed the leader from the live brokers. Stock brokers do not apply it later.
        addresses: names of their nodes.
    """

    def __init__(
        self,
        broker: int,
        disk: Disk,
        history: History,
        *,
        removed_by_hand: Mapping[str, Collection[bytes]],
        now_ms: Callable[[], float],
    ) -> None:
        self.broker = broker
        self.disk = disk
        self._history = history
        self._removed_by_hand = removed_by_hand
        self._now_ms = now_ms
        self._message = 0  # number of the request that is being applied
        self.epoch = NO_EPOCH
        self.controller_epoch = 0
        self.controller_id: int | None = None
        self.greeted = False
        self.older: dict[TopicPartition, bytes] = {}
        self._older_next: Mapping[TopicPartition, bytes] = {}
        self._incarnation = NO_EPOCH  # the highest broker epoch, of the registration or of a request
        self.named: set[TopicPartition] | None = None
        self.replicas: dict[TopicPartition, Replica] = {}
        self.known: dict[TopicPartition, StateEntry] = {}
        self.live: frozenset[int] = frozenset()
        self.overtaken: set[TopicPartition] = set()
        self.live_is_overtaken = False
        self.late_stops = LateStops()
        self.blocked: set[TopicPartition] = set()
        self.ignored: set[TopicPartition] = set()
        self._latest_live: frozenset[int] = frozenset()  # of the latest UpdateMetadata, late copies left out
        self._named_by: dict[TopicPartition, int] = {}  # epoch of the last controller that has named each replica
        self._learned = 0  # number of the latest UpdateMetadata
        self._deleted: dict[TopicPartition, int] = {}  # number of the latest request to delete each replica
        self.addresses: dict[int, str] = {}

    def registering(self, older: Mapping[TopicPartition, bytes]) -> None:
        """Prepare for a registration: requests for it may arrive before its epoch is known.

        Args:
            older: see the attribute; it applies from the next broker epoch on.
        """
        self._older_next = older

    def registered(self, epoch: int) -> None:
        """Complete a registration. Replicas of the process keep their roles."""
        self.epoch = epoch
        self._see(epoch)

    def _see(self, epoch: int) -> None:
        if epoch > self._incarnation:
            self._incarnation, self.older = epoch, dict(self._older_next)
            self.greeted, self.named = False, None

    def answer(self, message: ControlMessage) -> Response:
        """Apply a request. Returns its response."""
        request = message.request
        self._message = message.number
        error = self._rejection(request)
        match request:
            case UpdateMetadata():
                entries = state_entries(request.states)
                self._record(request, error)
                if not error:
                    self._learn(request, entries)
                return UpdateMetadataResponse(error)
            case LeaderAndIsr():
                entries = state_entries(request.states)
                self._record(request, error, states=entries)
                if error:
                    return LeaderAndIsrResponse(error, _errors(entries, [error] * len(entries)))
                self._check_complete(entries)
                return LeaderAndIsrResponse(error, _errors(entries, [self._serve(entry) for entry in entries]))
            case LeaseRelease() | StateSent() | ReplicaReset():
                raise TypeError(f"{type(request).__name__} is only for participants")
            case StopReplica():
                stops = stop_entries(request)
                self._record(request, error, stops=stops)
                if error:
                    return StopReplicaResponse(error, PartitionErrors.none())
                return StopReplicaResponse(error, _errors(stops, [self._stop(stop) for stop in stops]))

    def has_missed_deletion(self, name: TopicPartition, twin: "Receiver") -> bool:
        """Whether another process with the broker's id has deleted a replica that this one has started before."""
        return name in self.replicas and twin._deleted.get(name, 0) > self.late_stops.last_start(name)

    def _rejection(self, request: Request) -> int:
        """Returns the error of the whole request. A higher broker epoch is accepted: the controller may know of a
        registration first."""
        if request.broker_epoch not in (NO_EPOCH, self.epoch) and request.broker_epoch < self.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._see(request.broker_epoch)
        if request.controller_epoch > self.controller_epoch:
            self.controller_epoch, self.greeted, self.named = request.controller_epoch, False, None
        self.controller_id = request.controller_id
        if isinstance(request, UpdateMetadata):
            self.greeted = True
        elif not self.greeted and isinstance(request, LeaderAndIsr):
            self.complain("INV-49", "LeaderAndIsr was accepted before any UpdateMetadata of this controller")
        return ErrorCode.NONE

    def _record(
        self, request: Request, error: int, *, states: Sequence[StateEntry] = (), stops: Sequence[StopEntry] = ()
    ) -> None:
        fields: dict[str, Any] = {
            "message": self._message, "broker": self.broker, "broker_epoch": self.epoch,
            "asked_epoch": request.broker_epoch, "what": type(request).__name__, "controller": request.controller_id,
            "controller_epoch": request.controller_epoch,
        }  # fmt: skip
        if error:
            self._history.record("req.reject", **fields, reason=_REASONS[error])
        else:
            self._history.record("req.accept", **fields, led=led_rows(states), stopped=stopped_rows(stops))

    def _record_role(self, entry: StateEntry, outcome: str) -> None:
        self._history.record(
            "role.apply", message=self._message, broker=self.broker, broker_epoch=self.epoch, topic=entry.name.topic,
            topic_id=entry.topic_id.hex(), partition=entry.name.partition,
            role="leader" if entry.leader == self.broker else "follower", leader=entry.leader,
            leader_epoch=entry.leader_epoch, partition_epoch=entry.partition_epoch, isr=list(entry.isr),
            outcome=outcome,
        )  # fmt: skip

    def _record_stop(self, entry: StopEntry, outcome: str) -> None:
        self._history.record(
            "role.stop", message=self._message, broker=self.broker, broker_epoch=self.epoch, topic=entry.name.topic,
            topic_id=entry.topic_id.hex(), partition=entry.name.partition, leader_epoch=entry.leader_epoch,
            delete=entry.delete, outcome=outcome,
        )  # fmt: skip

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _learn(self, request: UpdateMetadata, entries: list[StateEntry]) -> None:
        self.addresses = {broker.id: address_of(broker) for broker in request.live_brokers}
        self.live = frozenset(self.addresses)
        self.live_is_overtaken = self._message < self._learned
        self._learned = max(self._learned, self._message)
        if not self.live_is_overtaken:
            self._latest_live = self.live
        for entry in entries:
            if self.live_is_overtaken:
                self.overtaken.add(entry.name)
            else:
                self.overtaken.discard(entry.name)
            if entry.leader == LEADER_DURING_DELETE:
                self.known.pop(entry.name, None)
            else:
                self.known[entry.name] = entry

    # -- roles ---------------------------------------------------------------------------------------------------------

    def _check_complete(self, entries: list[StateEntry]) -> None:
        """The first LeaderAndIsr of a controller names all that a broker hosts, so that later ones add nothing old.

        A reassignment that adds this broker again may find the log of its earlier replica: its stop was lost. As in
        Kafka, a request without `is_new` may precede the one that creates the replica.
        """
        if self.named is not None:
            for entry in entries:
                is_old = self.older.get(entry.name) == entry.topic_id and not entry.is_new
                if is_old and self.broker not in entry.adding and entry.name not in self.named:
                    self.complain(
                        "INV-49", f"{entry.name} was hosted from the start, and is not in the first LeaderAndIsr"
                    )
        self.named = {entry.name for entry in entries} | (self.named or set())

    def _serve(self, entry: StateEntry) -> int:
        """Apply one row of a LeaderAndIsr. Returns its error."""
        name = entry.name
        if name in self.disk.failed:
            self.disk.reported = True
            self.replicas.pop(name, None)
            self._record_role(entry, "storage")
            return ErrorCode.KAFKA_STORAGE_ERROR
        held = self.replicas.get(name)
        if held is not None and held.topic.id != entry.topic_id and self._is_removed(held.topic):
            self._remove_by_hand(name, held)
            held = None
        if held is not None:
            refused = self._refused(held, entry)
            if refused is not None:
                outcome, error = refused
                self._record_role(entry, outcome)
                if error == ErrorCode.INCONSISTENT_TOPIC_ID and self._is_unknown(name):
                    self.blocked.add(name)
                elif held.topic.id == entry.topic_id:
                    self._named_by[name] = self.controller_epoch
                return error
        if self.broker not in entry.replicas:
            self.complain("INV-49", f"{name}: broker {self.broker} is to host it, and is none of {entry.replicas}")
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self._log(entry)
        self.blocked.discard(name)
        self._named_by[name] = self.controller_epoch
        is_live = entry.leader == self.broker or entry.leader in self.live
        if held is None or is_live:
            self.late_stops.started(name, self._message)
        if not is_live and entry.leader in self._latest_live:
            self.ignored.add(name)
        else:
            self.ignored.discard(name)
        if is_live:
            replica = self.replicas[name] = Replica(entry.topic, log)
            replica.assume(entry, now_ms=self._now_ms())
            self._record_role(entry, "applied")
        elif held is None:
            # The leader is not in the metadata: a log is created, and nothing is fetched.
            self.replicas[name] = Replica(entry.topic, log)
        return ErrorCode.NONE

    def _is_unknown(self, name: TopicPartition) -> bool:
        """Whether a replica is one that the controller cannot know.

        A request has started it that the controller had given up, and that arrived after the replica's deletion. Or its
        stop was lost with an earlier controller.
        """
        log = self.disk.logs.get(name)
        return (log is not None and log.is_overtaken) or self._named_by[name] < self.controller_epoch

    def _is_removed(self, topic: TopicRef) -> bool:
        """Whether a topic was removed from the store by hand."""
        return topic.id in self._removed_by_hand.get(topic.name, ())

    def _remove_by_hand(self, name: TopicPartition, held: Replica) -> None:
        """Delete a replica of a topic that was removed by hand, as the operator has to on each broker."""
        del self.replicas[name]
        self.disk.logs.pop(name, None)
        self._record_stop(StopEntry(name, held.topic.id, held.leader_epoch, True), "applied")

    def _refused(self, held: Replica, entry: StateEntry) -> tuple[str, int] | None:
        """Returns the outcome and the error of a row that does not apply to the replica; None if it does."""
        if held.topic.id == ZERO_ID:
            held.topic = entry.topic
        if held.topic.id != entry.topic_id and entry.topic_id != ZERO_ID:
            return "topic id", ErrorCode.INCONSISTENT_TOPIC_ID
        if entry.leader_epoch < held.leader_epoch:
            return "leader epoch", ErrorCode.STALE_CONTROLLER_EPOCH
        if entry.leader_epoch == held.leader_epoch:
            return "same", ErrorCode.STALE_CONTROLLER_EPOCH
        if entry.partition_epoch < held.partition_epoch:
            return "same", ErrorCode.NONE
        return None

    def _log(self, entry: StateEntry) -> ReplicaLog:
        """Returns the log of a replica; a log of an earlier topic of that name is set aside."""
        stored = self.disk.logs.get(entry.name)
        if stored is None or (stored.topic_id != entry.topic_id and ZERO_ID not in (stored.topic_id, entry.topic_id)):
            stored = self.disk.logs[entry.name] = StoredLog(entry.topic_id, ReplicaLog())
        stored.topic_id = entry.topic_id
        stored.is_overtaken = self._message < self._deleted.get(entry.name, 0)
        return stored.log

    def _stop(self, entry: StopEntry) -> int:
        """Apply one row of a StopReplica. Returns its error."""
        name = entry.name
        if name in self.disk.failed or (entry.delete and name in self.disk.undeletable):
            self.disk.reported = True
            self._record_stop(entry, "storage")
            return ErrorCode.KAFKA_STORAGE_ERROR
        held = self.replicas.get(name)
        by_hand = name.topic in self._removed_by_hand
        if held is not None and by_hand and held.topic.id not in (entry.topic_id, ZERO_ID):
            # Stock brokers compare no ids here; the operator has to wait until no request for the old topic is left.
            self._record_stop(entry, "topic id")
            return ErrorCode.NONE
        if held is not None and 0 <= entry.leader_epoch < held.leader_epoch and held.topic.id != ZERO_ID:
            self._record_stop(entry, "leader epoch")
            return ErrorCode.FENCED_LEADER_EPOCH
        self.replicas.pop(name, None)
        self.blocked.discard(name)
        self.ignored.discard(name)
        self.late_stops.stopped(name, self._message)
        if entry.delete:
            self.disk.logs.pop(name, None)
            self.older.pop(name, None)
            self._deleted[name] = max(self._message, self._deleted.get(name, 0))
        self._record_stop(entry, "same" if held is None else "applied")
        return ErrorCode.NONE

    def complain(self, invariant: str, text: str) -> None:
        """Record a request that no controller may send."""
        self._history.record(
            "broker.complaint", invariant=invariant, broker=self.broker, broker_epoch=self.epoch,
            controller_epoch=self.controller_epoch, text=text,
        )  # fmt: skip


def _errors(entries: list[StateEntry] | list[StopEntry], errors: list[int]) -> PartitionErrors:
    """Returns the errors of rows with adjacent topics."""
    topics = list(dict.fromkeys(entry.name.topic for entry in entries))
    number = {topic: index for index, topic in enumerate(topics)}
    return PartitionErrors(
        tuple(topics),
        np.array([number[entry.name.topic] for entry in entries], np.int32),
        np.array([entry.name.partition for entry in entries], np.int32),
        np.array(errors, np.int16),
    )
