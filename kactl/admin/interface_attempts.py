"""Attempts over the other interfaces of a controller, for the audit trail: Kafka listeners, and the network."""

from typing import Any

from kactl.runtime.escaping import escaped
from kactl.telemetry.attempts import Recorded

from .audit_trail import AuditTrail


def add_attempt(trail: AuditTrail, recorded: Recorded, *, node_id: int) -> None:
    """Add a record; denials of one kind are counted together."""
    attempt = recorded.attempt
    principal = attempt.principal
    fields: dict[str, Any] = {
        "time_ms": recorded.time_ms,
        "node_id": node_id,
        "controller_epoch": recorded.controller_epoch,
        "principal": escaped(principal.label),
        "kind": principal.kind,
        "method": principal.method,
        "role": "",
        "peer": principal.peer,
        "operation": attempt.operation,
        "target": escaped(attempt.target),
        "detail": escaped(attempt.detail),
    }
    if attempt.outcome == "denied":
        trail.deny(**fields)
    else:
        trail.add(**fields, action=attempt.operation, result=attempt.outcome)
