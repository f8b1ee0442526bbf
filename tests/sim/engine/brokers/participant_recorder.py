"""Events of a participant: recorded by functions that are wrapped around its own, without its knowledge.

The roles of replicas are those that the application received through its listener, not those that the participant
believes to have given. WRAPPED names what is replaced, and a test resolves each name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kactl.decide.messages.broker import AlterPartitionReceived, PartitionReport
from kactl.decide.messages.control import LeaderAndIsr, PartitionErrors, Request, StopReplica
from kactl.model import NO_EPOCH, ZERO_ID, TopicPartition
from kactl.model.errors import ErrorCode
from kactl.participant.handlers.orders import HandlerState
from kactl.participant.hosted_replicas import Role
from kactl.participant.incarnation import Incarnation
from kactl.testing.history import History

from .application import Application
from .base import ReplicaView
from .entries import StopEntry, led_rows, state_entries, stop_entries, stopped_rows
from .handlers import HandlerApplication
from .late_stops import LateStops
from .leases import LeaseClocks, LeaseRecorder

# Attributes of an incarnation that are wrapped, besides the function by which its client asks the controller.
WRAPPED: Final = ("_carry_out",)
OUT_OF_USE: Final = frozenset({HandlerState.STUCK})
"""States in which a handler makes no call any more."""

_REASONS: Final = {
    ErrorCode.STALE_BROKER_EPOCH: "broker epoch",
    ErrorCode.STALE_CONTROLLER_EPOCH: "controller epoch",
    ErrorCode.INVALID_REQUEST: "late",
}
_OUTCOMES: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: "storage",
    ErrorCode.INCONSISTENT_TOPIC_ID: "topic id",
    ErrorCode.FENCED_LEADER_EPOCH: "leader epoch",
}


class ParticipantRecorder:
    """Records the requests of one process, over all of its registrations.

    Attributes:
        failed: replicas that the present registration cannot serve, and has reported as failed.
        directories: those of them in a failed directory.
        kept: replicas of which the last deletion failed.
        late_stops: replicas of topics without ids that a late StopReplica has stopped.
    """

    def __init__(
        self, history: History, application: Application | HandlerApplication, leases: LeaseClocks
    ) -> None:  # fmt: skip
        self._history = history
        self._clocks = leases
        self._application = application
        self._incarnation: Incarnation | None = None
        self._numbers: dict[int, int] = {}
        self._calls: set[TopicPartition] = set()  # partitions to which the present request was applied
        self._held: dict[TopicPartition, tuple[bytes, int]] = {}  # topic id and version of each request's row
        self.failed: set[TopicPartition] = set()
        self.directories: set[TopicPartition] = set()
        self.kept: set[TopicPartition] = set()
        self.late_stops = LateStops()

    def attach(self, incarnation: Incarnation) -> None:
        """Record a new registration from now on."""
        self._incarnation = incarnation
        self.failed, self.directories, self.kept = set(), set(), set()
        self.late_stops = LateStops()
        leases = LeaseRecorder(self._history, self._clocks, incarnation, self._application)
        self._watch_reports(incarnation)
        carry, ask = incarnation._carry_out, incarnation.controller._ask

        async def carrying(request: Request) -> Any:
            epoch, before = incarnation.epoch, self._before(incarnation, request)
            leases.carries(request)
            response = await carry(request)
            leases.carries(None)
            self._calls = self._applied(incarnation, before)
            if incarnation is self._incarnation:
                self._carried(request, response, epoch)
            return response

        async def asking(request: Any, *, controller: int) -> Any:
            if isinstance(request, AlterPartitionReceived):
                self._proposed(request)
            return await ask(request, controller=controller)

        incarnation._carry_out = carrying  # type: ignore[method-assign]
        incarnation.controller._ask = asking

    def _watch_reports(self, incarnation: Incarnation) -> None:
        """Record the states of replicas that the participant reports."""
        add = incarnation.reporter.add

        def adding(report: PartitionReport) -> None:
            add(report)
            name = report.partition
            if report.status.is_failure:
                self.failed.add(name)
            elif name in self.directories:
                return  # the handler is ready, and the replica is not: nothing is reported
            else:
                self.failed.discard(name)
            self._history.record(
                "handler.report", broker=incarnation.broker, topic=name.topic, partition=name.partition,
                status=report.status.name,
            )  # fmt: skip

        incarnation.reporter.add = adding  # type: ignore[method-assign]
        incarnation._listener_leases._report = adding  # it has the function from the beginning

    def _before(self, incarnation: Incarnation, request: Request) -> dict[TopicPartition, Any]:
        """Returns the replicas of a request before it is carried out, if they have handlers."""
        if isinstance(self._application, Application):
            self._application.calls = set()
            return {}
        if isinstance(request, LeaderAndIsr):
            names = [entry.name for entry in state_entries(request.states)]
        else:
            names = [stop.name for stop in stop_entries(request)] if isinstance(request, StopReplica) else []
        return {name: _role(incarnation, name) for name in names}

    def _applied(self, incarnation: Incarnation, before: Mapping[TopicPartition, Any]) -> set[TopicPartition]:
        """Returns the partitions to which a request was applied: a listener was called, or a handler has an order."""
        if isinstance(self._application, Application):
            return self._application.calls
        return {name for name, role in before.items() if role != _role(incarnation, name)}

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
            applied = name in self._calls
            if applied:
                self._held[name] = (entry.topic_id, entry.partition_epoch)
                self.late_stops.started(name, same["message"])
            if error == ErrorCode.KAFKA_STORAGE_ERROR:
                self.failed.add(name)
            elif (
                error != ErrorCode.INCONSISTENT_TOPIC_ID
                and not self._is_reported(name)
                and not (error and self._is_out_of_use(name))
            ):
                # Also an answer that the request is an old one: the replica is said to serve.
                self.failed.discard(name)
            self._history.record(
                "role.apply", **same, topic=name.topic, topic_id=entry.topic_id.hex(), partition=name.partition,
                role="leader" if entry.leader == self._application.broker else "follower", leader=entry.leader,
                leader_epoch=entry.leader_epoch, partition_epoch=entry.partition_epoch, isr=list(entry.isr),
                outcome="applied" if applied else _OUTCOMES.get(ErrorCode(error), "same"),
            )  # fmt: skip

    def _is_reported(self, name: TopicPartition) -> bool:
        """Whether a listener has reported a failure, and not yet that the replica is ready.

        An order that waits for a lease is answered without an error, which proves nothing.
        """
        return self._incarnation is not None and name in self._incarnation._listener_leases._failed

    def _is_out_of_use(self, name: TopicPartition) -> bool:
        """Whether a replica is not served although an order under its epoch is answered as an old one.

        A handler that makes no call any more may have failed after that order was answered, and has reported it. A
        replica that a StopReplica has stopped starts again under a higher epoch only.
        """
        if self._incarnation is None:
            return False
        hosting, held = self._incarnation._hosting, self._incarnation.hosted.view(name)
        if hosting is not None and hosting.state(name) in OUT_OF_USE:
            return True
        return held is not None and held.role == Role.STOPPED

    def _stopped(self, stops: Iterable[StopEntry], errors: dict[TopicPartition, int], same: dict[str, Any]) -> None:
        for stop in stops:
            applied = stop.name in self._calls
            if applied:
                self.late_stops.stopped(stop.name, same["message"])
            if stop.delete:
                (self.kept.add if errors[stop.name] else self.kept.discard)(stop.name)
            self._history.record(
                "role.stop", **same, topic=stop.name.topic, topic_id=stop.topic_id.hex(),
                partition=stop.name.partition, leader_epoch=stop.leader_epoch, delete=stop.delete,
                outcome="applied" if applied else _OUTCOMES.get(ErrorCode(errors[stop.name]), "same"),
            )  # fmt: skip

    def _proposed(self, request: AlterPartitionReceived) -> None:
        for proposal in request.proposals:
            self._history.record(
                "isr.propose", broker=request.broker, broker_epoch=request.broker_epoch, topic=proposal.topic.name,
                partition=proposal.partition, leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch, isr=list(proposal.isr),
                member_epochs=list(proposal.broker_epochs),
            )  # fmt: skip


def _role(incarnation: Incarnation, name: TopicPartition) -> Any:
    """Returns what an order changes of a replica. A failure of its directory, which may come meanwhile, is no order."""
    view = incarnation.hosted.view(name)
    return None if view is None else (view.role, view.leader, view.leader_epoch)


def _errors_of(errors: PartitionErrors) -> dict[TopicPartition, int]:
    rows = zip(errors.topic.tolist(), errors.partition.tolist(), errors.error.tolist(), strict=True)
    return {TopicPartition(errors.topics[topic], partition): error for topic, partition, error in rows}
