"""Events of a participant: recorded by functions that are wrapped around its own, without its knowledge.

The roles of replicas are those that the application received through its listener, not those that the participant
believes to have given. WRAPPED names what is replaced, and a test resolves each name.
"""

from collections.abc import Iterable
from typing import Any, Final

from kactl.errors import ErrorCode, KactlError
from kactl.messages.broker import AlterPartitionRequested
from kactl.messages.control import LeaderAndIsr, PartitionErrors, Request, StopReplica
from kactl.model import NO_EPOCH, ZERO_ID, TopicPartition
from kactl.participant import Listener
from kactl.participant.incarnation import Incarnation
from kactl.testing.history import History

from .base import ReplicaView
from .entries import StopEntry, led_rows, state_entries, stop_entries, stopped_rows

# Attributes of an incarnation that are wrapped.
WRAPPED: Final = ("_carry_out", "_ask")
_REASONS: Final = {
    ErrorCode.STALE_BROKER_EPOCH: "broker epoch",
    ErrorCode.STALE_CONTROLLER_EPOCH: "controller epoch",
}
_OUTCOMES: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: "storage",
    ErrorCode.INCONSISTENT_TOPIC_ID: "topic id",
    ErrorCode.FENCED_LEADER_EPOCH: "leader epoch",
}


class HandlerFault(KactlError):
    """The application fails on purpose: a run does not end at the log record of it, as at those of bugs."""


class Application(Listener):
    """Application of one process: it remembers the role of each replica, and fails when it is told to.

    A partition for which a call has failed stays failed, as on a directory that has failed.

    Attributes:
        roles: leader and leader epoch of each replica that is served.
        calls: partitions for which a call of the present request has succeeded.
        failures: number of calls that will fail.
        broken: partitions for which every call fails.
        undeletable: partitions whose deletion fails.
    """

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.roles: dict[TopicPartition, tuple[int, int]] = {}
        self.calls: set[TopicPartition] = set()
        self.failures = 0
        self.broken: set[TopicPartition] = set()
        self.undeletable: set[TopicPartition] = set()

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        self._begin(name)
        self.roles[name] = (self.broker, leader_epoch)

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> None:
        self._begin(name)
        self.roles[name] = (leader, leader_epoch)

    def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
        if deleted and name in self.undeletable:
            raise HandlerFault(f"{name} cannot be deleted")
        self._begin(name)
        self.roles.pop(name, None)

    def _begin(self, name: TopicPartition) -> None:
        if self.failures:
            self.failures -= 1
            self.broken.add(name)
        if name in self.broken:
            raise HandlerFault(f"the calls for {name} fail")
        self.calls.add(name)


class ParticipantRecorder:
    """Records the requests of one process, over all of its registrations.

    Attributes:
        failed: replicas that the present registration cannot serve, and has reported as failed.
        directories: those of them whose directory has failed.
    """

    def __init__(self, history: History, application: Application) -> None:
        self._history = history
        self._application = application
        self._incarnation: Incarnation | None = None
        self._numbers: dict[int, int] = {}
        self._held: dict[TopicPartition, tuple[bytes, int]] = {}  # topic id and version of each request's row
        self.failed: set[TopicPartition] = set()
        self.directories: set[TopicPartition] = set()

    def attach(self, incarnation: Incarnation) -> None:
        """Record a new registration from now on."""
        self._incarnation = incarnation
        self.failed, self.directories = set(), set()
        carry, ask = incarnation._carry_out, incarnation._ask

        async def carrying(request: Request) -> Any:
            self._application.calls = set()
            epoch = incarnation.epoch
            response = await carry(request)
            if incarnation is self._incarnation:
                self._carried(request, response, epoch)
            return response

        async def asking(request: Any, *, controller: int) -> Any:
            if isinstance(request, AlterPartitionRequested):
                self._proposed(request)
            return await ask(request, controller=controller)

        incarnation._carry_out = carrying  # type: ignore[method-assign]
        incarnation._ask = asking  # type: ignore[method-assign]
        incarnation.controller._ask = asking

    def arrived(self, request: Request, number: int) -> None:
        """Remember the number of the message with which a request arrived."""
        self._numbers[id(request)] = number

    def done(self, request: Request) -> None:
        """Forget the number: the request has an answer."""
        self._numbers.pop(id(request), None)

    def replicas(self) -> dict[TopicPartition, ReplicaView]:
        """Returns the replicas that the application serves."""
        unknown = (ZERO_ID, NO_EPOCH)
        views = {}
        for name, (leader, leader_epoch) in self._application.roles.items():
            topic_id, version = self._held.get(name, unknown)
            views[name] = ReplicaView(topic_id, leader, leader_epoch, version)
        return views

    def _carried(self, request: Request, response: Any, epoch: int) -> None:
        same: dict[str, Any] = {
            "message": self._numbers.get(id(request), 0), "broker": self._application.broker, "broker_epoch": epoch,
        }  # fmt: skip
        fields = same | {
            "asked_epoch": request.broker_epoch, "what": type(request).__name__, "controller": request.controller_id,
            "controller_epoch": request.controller_epoch,
        }  # fmt: skip
        if response.error:
            self._history.record("req.reject", **fields, reason=_REASONS[ErrorCode(response.error)])
        elif isinstance(request, LeaderAndIsr):
            led = led_rows(state_entries(request.states))
            self._history.record("req.accept", **fields, led=led, stopped=[])
            self._served(request, _errors_of(response.partitions), same)
        elif isinstance(request, StopReplica):
            stops = stop_entries(request)
            self._history.record("req.accept", **fields, led=[], stopped=stopped_rows(stops))
            self._stopped(stops, _errors_of(response.partitions), same)
        else:
            self._history.record("req.accept", **fields, led=[], stopped=[])

    def _served(self, request: LeaderAndIsr, errors: dict[TopicPartition, int], same: dict[str, Any]) -> None:
        for entry in state_entries(request.states):
            error, name = errors[entry.name], entry.name
            applied = name in self._application.calls
            if applied:
                self._held[name] = (entry.topic_id, entry.partition_epoch)
            if error == ErrorCode.KAFKA_STORAGE_ERROR:
                self.failed.add(name)
            self._history.record(
                "role.apply", **same, topic=name.topic, topic_id=entry.topic_id.hex(), partition=name.partition,
                role="leader" if entry.leader == self._application.broker else "follower", leader=entry.leader,
                leader_epoch=entry.leader_epoch, partition_epoch=entry.partition_epoch, isr=list(entry.isr),
                outcome="applied" if applied else _OUTCOMES.get(ErrorCode(error), "same"),
            )  # fmt: skip

    def _stopped(self, stops: Iterable[StopEntry], errors: dict[TopicPartition, int], same: dict[str, Any]) -> None:
        for stop in stops:
            applied = stop.name in self._application.calls
            self._history.record(
                "role.stop", **same, topic=stop.name.topic, topic_id=stop.topic_id.hex(),
                partition=stop.name.partition, leader_epoch=stop.leader_epoch, delete=stop.delete,
                outcome="applied" if applied else _OUTCOMES.get(ErrorCode(errors[stop.name]), "same"),
            )  # fmt: skip

    def _proposed(self, request: AlterPartitionRequested) -> None:
        for proposal in request.proposals:
            self._history.record(
                "isr.propose", broker=request.broker, broker_epoch=request.broker_epoch, topic=proposal.topic.name,
                partition=proposal.partition, leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch, isr=list(proposal.isr),
                member_epochs=list(proposal.broker_epochs),
            )  # fmt: skip


def _errors_of(errors: PartitionErrors) -> dict[TopicPartition, int]:
    rows = zip(errors.topic.tolist(), errors.partition.tolist(), errors.error.tolist(), strict=True)
    return {TopicPartition(errors.topics[topic], partition): error for topic, partition, error in rows}
