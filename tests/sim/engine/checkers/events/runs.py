"""Events of clients and of the runner."""

from collections.abc import Mapping
from typing import Final

from .fields import Fields


class AdminCall(Fields, frozen=True, kw_only=True):
    """`admin.call`: a client calls a controller instance.

    Attributes:
        call: number of the call, unique in the run.
        controller: name of the node that is called.
        operation: the requested operation; elections are `elect preferred` and `elect unclean`.
        target: the names of partitions or topics, joined by ", "; empty for all.
        limit_ms: time within which it must be answered while the node runs; 0 for no limit.
    """

    call: int
    controller: str
    operation: str
    target: str = ""
    limit_ms: float = 0.0


class AdminReply(Fields, frozen=True, kw_only=True):
    """`admin.reply`: the result of a call, or its end.

    Attributes:
        outcome: `done`, the class of the error, or `killed` if the node of the instance or of the client ended.
    """

    call: int
    outcome: str


class ReassignmentAsked(Fields, frozen=True, kw_only=True):
    """`reassign.asked`: an administrator requests reassignments, or leaves the request in the store.

    Attributes:
        request: number of the request, unique in the run.
        targets: replicas by partition, such as t1-0; None cancels.
    """

    request: int
    targets: dict[str, list[int] | None]


class ReassignmentAnswered(Fields, frozen=True, kw_only=True):
    """`reassign.answered`: the controller has answered a request. One that is left in the store has no answer.

    Attributes:
        errors: name of the error code by partition, NONE if the controller has accepted the target.
    """

    request: int
    errors: dict[str, str]


class NodeStarted(Fields, frozen=True, kw_only=True):
    """`node.start`: recorded on the node itself."""

    incarnation: int


class NodeCrashed(Fields, frozen=True, kw_only=True):
    """`node.crash`: recorded on the node itself.

    Attributes:
        clean: it was stopped, not killed.
        lossy: unforced writes of its disk are lost.
    """

    incarnation: int
    clean: bool
    lossy: bool = False


class FaultBegan(Fields, frozen=True, kw_only=True):
    """`fault.begin`.

    Attributes:
        fault: verb of the script, such as `kill`.
        target: node, link or file.
    """

    fault: str
    target: str


class FaultEnded(Fields, frozen=True, kw_only=True):
    """`fault.end`."""

    fault: str
    target: str


class TaskFailed(Fields, frozen=True, kw_only=True):
    """`task.failed`: the loop's exception handler was called: a task of the node ended by an error that no code
    received."""

    task: str
    error: str


FIELDS: Final[Mapping[str, type[Fields]]] = {
    "admin.call": AdminCall,
    "admin.reply": AdminReply,
    "reassign.asked": ReassignmentAsked,
    "reassign.answered": ReassignmentAnswered,
    "node.start": NodeStarted,
    "node.crash": NodeCrashed,
    "fault.begin": FaultBegan,
    "fault.end": FaultEnded,
    "task.failed": TaskFailed,
}
