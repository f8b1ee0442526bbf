"""Records of the tcp network for the audit trail.

Requests of participants are left out, except for those that a person decides about: who takes part, and which topics
are created. All requests that the sender may not send are recorded, and all connections that are refused.
"""

from collections.abc import Awaitable
from typing import Any, Final

from kactl.decide.messages.admin import ControllerRequest, EnsureTopic, TopicProgress
from kactl.decide.messages.sessions import (
    Goodbye,
    NotController,
    Refused,
    Register,
    Registered,
    SessionAnswer,
    SessionRequest,
)
from kactl.model.errors import BrokerIdTaken, EndpointUnreachable, NotAuthorized
from kactl.security.access import stranger
from kactl.telemetry.attempts import Attempt, Outcome, outcome_of_error
from kactl.telemetry.event_record import ORIGIN
from kactl.transports.base import ControllerPort
from kactl.transports.tcp.wire import Begin

from .link import Link

CHANGES: Final = (Register, Goodbye, EnsureTopic)
_DENIALS: Final = frozenset({BrokerIdTaken.__name__, EndpointUnreachable.__name__})


async def recorded(
    port: ControllerPort, link: Link, request: SessionRequest | ControllerRequest, work: Awaitable[Any]
) -> Any:
    """Returns the result of a request of a participant, and records its outcome if it is a change or a denial.

    The events that carry it out name the participant. To be called in a task of the request's own.
    """
    ORIGIN.set(ORIGIN.get()._replace(principal=link.principal))
    outcome: Outcome | None = "unknown"
    detail = ""
    try:
        answer = await work
        outcome, detail = _outcome_of(answer)
    except Exception as error:
        is_denied = isinstance(error, NotAuthorized | EndpointUnreachable)
        outcome, detail = "denied" if is_denied else outcome_of_error(error), str(error)
        raise
    finally:
        if outcome == "denied" or (outcome is not None and isinstance(request, CHANGES)):
            operation = type(request).__name__.removesuffix("Received")
            port.attempted(_attempt(link, operation, outcome, target=_target(request), detail=detail))
    return answer


def denied(port: ControllerPort, link: Link, request: Begin, reason: str) -> None:
    """Record a request of a type that the participant must not send, or that names another one."""
    operation = "" if request.kind is None else request.kind.__name__.removesuffix("Received")
    target = "" if request.broker is None else f"broker {request.broker}"
    port.attempted(_attempt(link, operation, "denied", target=target, detail=reason))


def violated(port: ControllerPort, link: Link, reason: str) -> None:
    """Record a message that the peer of a link must not send."""
    port.attempted(_attempt(link, "Message", "denied", detail=reason))


def refused(port: ControllerPort, host: str, link: Link | None, reason: str) -> None:
    """Record a connection that does not become a link."""
    principal = stranger(host) if link is None else link.principal
    port.attempted(Attempt(principal, "network Handshake", "denied", detail=reason))


def _attempt(link: Link, operation: str, outcome: Outcome, *, target: str = "", detail: str = "") -> Attempt:
    return Attempt(link.principal, f"network {operation}", outcome, target, detail)


def _outcome_of(answer: SessionAnswer | Any) -> tuple[Outcome | None, str]:
    """Returns the outcome; None if nothing was attempted, or another instance has to carry the request out."""
    match answer:
        case Refused():
            return "denied" if answer.error in _DENIALS else "failed", answer.reason
        case NotController():
            return None, ""
        case Registered():
            return "done", f"broker epoch {answer.broker_epoch}"
        case TopicProgress(created=False):
            return None, ""  # a question that is repeated until the leaders are ready
        case _:
            return "done", ""


def _target(request: SessionRequest | ControllerRequest) -> str:
    if isinstance(request, EnsureTopic):
        return request.topic
    broker = getattr(request, "broker", None)
    return "" if broker is None else f"broker {broker}"
