"""The audit trail."""

from typing import Annotated, Literal

from msgspec import Meta

from .common import LIMIT_DEFAULT, Answer, Limit, Question


class AuditRecord(Answer, frozen=True):
    """An attempt to change something, or a request that was denied.

    Attributes:
        seq: without gaps, from 1 at each start of the server.
        principal: the client; empty if it is not known. `kind`, `method`: what it is, and how it was identified, as
            `token` or `SCRAM-SHA-512`. `role`: what it may do.
        peer: the address of the client, or `unix`.
        operation: method and path of the route. `action`, `target`: what would have been changed; empty for denials.
        request: the id of the request, as in the events that it led to.
        result: `attempt`: begun, before something that cannot be undone; `denied`; or the outcome as in request events.
        detail: the cause, if it was denied or is not done.
        count: the number of denials that the record stands for.
        duration_ms: null if the request has not been carried out.
    """

    seq: int
    time_ms: int
    node_id: int
    controller_epoch: int
    principal: str
    role: str
    peer: str
    operation: str
    result: Literal["attempt", "denied", "done", "partly", "failed", "unfinished", "unknown"]
    kind: str = ""
    method: str = ""
    action: str = ""
    target: str = ""
    reason: str = ""
    request: str = ""
    detail: str = ""
    count: int = 1
    duration_ms: int | None = None


class AuditPage(Answer, frozen=True):
    """Records of the audit trail, oldest first."""

    items: tuple[AuditRecord, ...]
    node_id: int


class AuditQuery(Question, frozen=True):
    """Selects records. Without `after`, from the oldest one that is kept."""

    after: Annotated[int, Meta(ge=0, description="only records after this number")] = 0
    limit: Limit = LIMIT_DEFAULT
