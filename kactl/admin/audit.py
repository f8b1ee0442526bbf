"""Audit trail of the admin API: the changes that requests made, with reason and outcome.

A log line and an event are written after the outcome is known, never before: if the store rejects a change, there must
be no trace of a change that did not happen. A rejected request leaves only a log line. It changed nothing, and with an
event any client could push the cluster's own events out of the event log.

The lines are written at every log level of the server; see `kactl.cli.setup`.
"""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from http import HTTPStatus
from typing import Final

from kactl.decide.messages.log import RequestEvent
from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode
from kactl.runtime.escaping import escaped
from kactl.runtime.logs import logger
from kactl.telemetry.attempts import Outcome, outcome_of_error
from kactl.telemetry.event_record import ORIGIN

from .client import CLIENT, PRINCIPAL, ClientInfo
from .problem import Refused
from .service import Service

AUDIT_LOGGER: Final = __name__
log = logger(AUDIT_LOGGER)


class Audit:
    """The outcome of one request, set by its handler where `audited` cannot derive it.

    Attributes:
        outcome: used if the handler returns.
        detail: details of the outcome; may be empty.
    """

    def __init__(self) -> None:
        self.outcome: Outcome = "done"
        self.detail = ""
        self._has_begun = False

    def has_begun(self) -> None:
        """Record that a part of the request has taken effect: it can no longer fail as a whole."""
        self._has_begun = True

    def ended_by(self, error: BaseException) -> None:
        """Derive the outcome from the exception of the handler."""
        self.detail = str(error) or type(error).__name__
        self.outcome = outcome_of_error(error)
        if self.outcome == "failed" and self._has_begun:
            self.outcome = "partly"

    def of_results(self, errors: Sequence[str], *, total: int) -> None:
        """Derive the outcome of a request with one result for each of `total` partitions, some of which are errors."""
        if errors:
            self.outcome = "partly" if len(errors) < total else "failed"
            self.detail = f"{len(errors)} of {total} partitions failed, the first: {errors[0]}"


@contextlib.asynccontextmanager
async def audited(
    service: Service, action: str, target: object, *, reason: str, dry_run: bool = False, is_final: bool = False
) -> AsyncIterator[Audit]:
    """Record the outcome of the block when it ends. A dry run is not recorded.

    Args:
        action: verb and object type, such as "delete topic".
        target: the object of the action. Sent by the client; truncated and escaped here.
        reason: sent by the client; may be empty.
        is_final: it cannot be undone, so that the trail has the attempt even if the process ends meanwhile.
    """
    audit = Audit()
    if dry_run:
        yield audit
        return
    epoch = service.controller.cluster.fence.epoch
    began_s = time.monotonic()
    if is_final or service.trail.required:
        _trail(service, action, escaped(str(target)), reason, epoch, result="attempt")
        if is_final:
            log.info("%s %s: begins", action, escaped(str(target)))
        if not await service.trail.flush() and service.trail.required:
            unwritable = _unwritable()
            _trail(service, action, escaped(str(target)), reason, epoch, result="failed", detail=str(unwritable))
            raise unwritable
    try:
        yield audit
    except BaseException as error:
        audit.ended_by(error)
        raise
    finally:
        _record(service, action, escaped(str(target)), reason, audit, epoch)
        took_ms = round((time.monotonic() - began_s) * 1000)
        _trail(
            service, action, escaped(str(target)), reason, epoch,
            result=audit.outcome, detail=escaped(audit.detail), duration_ms=took_ms,
        )  # fmt: skip


def _unwritable() -> Refused:
    return Refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "Audit trail unavailable",
        "nothing may be changed while the audit trail cannot be written (audit.required): see the server's log",
        code=ErrorCode.UNKNOWN_SERVER_ERROR,
        retriable=True,
    )


def _trail(service: Service, action: str, target: str, reason: str, epoch: int, **more: object) -> None:
    """Add a record to the audit trail."""
    service.trail.add(
        time_ms=service.controller.clock.now_ms(),
        node_id=service.controller.node_id,
        controller_epoch=epoch,
        action=action,
        target=target,
        reason=reason,
        request=ORIGIN.get().request,
        **(CLIENT.get() or ClientInfo())._asdict(),
        **more,
    )


def listed(names: Collection[TopicPartition]) -> str:
    """Returns partitions as the target of a request: the first name, and the number of the others."""
    first = next(iter(names), None)
    if first is None:
        return "no partition"
    return f"{first}" if len(names) == 1 else f"{first} and {len(names) - 1} more partitions"


def _record(service: Service, action: str, target: str, reason: str, audit: Audit, epoch: int) -> None:
    detail = escaped(audit.detail)
    client = PRINCIPAL.get()
    principal = "" if client is None else escaped(client.label)
    log.log(
        logging.INFO if audit.outcome == "done" else logging.WARNING,
        "%s %s: %s%s; requested over the API%s, reason: %s",
        action, target, audit.outcome, f" ({detail})" if detail else "", f" by {principal}" if principal else "",
        reason or "none given",
    )  # fmt: skip
    if audit.outcome != "failed":
        service.controller.history.add(
            RequestEvent(
                action=action,
                target=target,
                outcome=audit.outcome,
                detail=detail,
                reason=reason,
                principal=principal,
                request=ORIGIN.get().request or None,
                controller_epoch=epoch,
            )
        )
