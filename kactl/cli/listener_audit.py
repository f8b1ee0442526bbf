"""Records of the Kafka listeners in the audit trail of the admin API."""

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kactl.actors.system import Controller
from kactl.admin.audit_trail import AuditTrail
from kactl.runtime.escaping import escaped

if TYPE_CHECKING:
    from kactl.transports.kafka.listener.audit import Attempt

# Attempts before the trail is opened, which is a moment after the listeners are.
_EARLY_MAX: Final = 1000


class ListenerAudit:
    """Takes attempts from the listeners, and adds them to the trail once there is one."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._trail: AuditTrail | None = None
        self._early: deque[dict[str, Any]] = deque(maxlen=_EARLY_MAX)

    def attach(self, trail: AuditTrail) -> None:
        """Use a trail from now on."""
        self._trail = trail
        while self._early:
            self._add(self._early.popleft())

    def __call__(self, attempt: "Attempt") -> None:
        fields = {
            "time_ms": self._controller.clock.now_ms(),
            "node_id": self._controller.node_id,
            "controller_epoch": self._controller.cluster.fence.epoch,
            "principal": escaped(attempt.principal),
            "role": "",
            "peer": attempt.host,
            "operation": f"kafka {attempt.request}",
            "target": escaped(attempt.target),
            "detail": attempt.detail,
            "result": attempt.outcome,
        }
        if self._trail is None:
            self._early.append(fields)
        else:
            self._add(fields)

    def _add(self, fields: dict[str, Any]) -> None:
        assert self._trail is not None
        if fields["result"] != "denied":
            self._trail.add(**fields, action=fields["operation"])
            return
        self._trail.deny(**{name: value for name, value in fields.items() if name != "result"})
