"""Audit trail of the admin API: the changes that requests made, with reason and outcome.

A log line and an event are written after the outcome is known, never before: if the store rejects a change, there must
be no trace of a change that did not happen. A rejected request leaves only a log line. It changed nothing, and with an
event any client could push the cluster's own events out of the event log.

The lines are written at every log level of the server; see `kactl.cli.setup`.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, Literal

from kactl.errors import ActionTimedOut, KactlError, Remedy
from kactl.messages.log import RequestEvent
from kactl.model import TopicPartition
from kactl.runtime.escaping import escaped
from kactl.runtime.logs import logger

from .service import Service

AUDIT_LOGGER: Final = __name__
log = logger(AUDIT_LOGGER)

# done: completely. partly: some of several partitions. failed: nothing was changed. unfinished: begun and still
# running. unknown: the store did not respond, or an error ended the request.
Outcome = Literal["done", "partly", "failed", "unfinished", "unknown"]


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
        if isinstance(error, ActionTimedOut):
            self.outcome = "unfinished"
        elif isinstance(error, KactlError) and error.remedy in (Remedy.REPORT, Remedy.RETRY):
            self.outcome = "partly" if self._has_begun else "failed"
        else:
            self.outcome = "unknown"

    def of_results(self, errors: Sequence[str], *, total: int) -> None:
        """Derive the outcome of a request with one result for each of `total` partitions, some of which are errors."""
        if errors:
            self.outcome = "partly" if len(errors) < total else "failed"
            self.detail = f"{len(errors)} of {total} partitions failed, the first: {errors[0]}"


@contextlib.asynccontextmanager
async def audited(
    service: Service, action: str, target: object, *, reason: str, dry_run: bool = False
) -> AsyncIterator[Audit]:
    """Record the outcome of the block when it ends. A dry run is not recorded.

    Args:
        action: verb and object type, such as "delete topic".
        target: the object of the action. Sent by the client; truncated and escaped here.
        reason: sent by the client; may be empty.
    """
    audit = Audit()
    if dry_run:
        yield audit
        return
    epoch = service.controller.cluster.fence.epoch
    try:
        yield audit
    except BaseException as error:
        audit.ended_by(error)
        raise
    finally:
        _record(service, action, escaped(str(target)), reason, audit, epoch)


def listed(names: Collection[TopicPartition]) -> str:
    """Returns partitions as the target of a request: the first name, and the number of the others."""
    first = next(iter(names), None)
    if first is None:
        return "no partition"
    return f"{first}" if len(names) == 1 else f"{first} and {len(names) - 1} more partitions"


def _record(service: Service, action: str, target: str, reason: str, audit: Audit, epoch: int) -> None:
    detail = escaped(audit.detail)
    log.log(
        logging.INFO if audit.outcome == "done" else logging.WARNING,
        "%s %s: %s%s; requested over the API, reason: %s",
        action, target, audit.outcome, f" ({detail})" if detail else "", reason or "none given",
    )  # fmt: skip
    if audit.outcome != "failed":
        service.controller.history.add(
            RequestEvent(
                action=action,
                target=target,
                outcome=audit.outcome,
                detail=detail,
                reason=reason,
                controller_epoch=epoch,
            )
        )
