"""Answers to calls, and tasks that end by an error: INV-50, INV-51.

INV-52, that no wait is endless, is checked by the loop: `Deadlock` and `Livelock` end a run.
"""

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation


class Calls(Checker):
    """Each call has one reply: within its limit, unless the node of its instance ended or was paused."""

    kinds = ("admin.call", "admin.reply", "node.crash", "fault.begin", "task.failed")
    invariants = ("INV-50", "INV-51")

    def __init__(self) -> None:
        self._open: dict[int, Event] = {}
        self._closed: dict[int, Event] = {}
        self._disturbed: dict[str, float] = {}  # when a fault of each node began last
        self._last_ms = 0.0

    def check(self, event: Event) -> Violation | None:
        self._last_ms = event.time_ms
        if event.kind == "task.failed":
            text = f"task {event.fields['task']} of {event.node} ended by {event.fields['error']}"
            return Violation("INV-51", text, event=event)
        if event.kind == "node.crash":
            self._open = {call: asked for call, asked in self._open.items() if asked.fields["controller"] != event.node}
        elif event.kind == "fault.begin":
            self._disturbed[event.fields["target"]] = event.time_ms
        elif event.kind == "admin.call":
            self._open[event.fields["call"]] = event
        else:
            return self._replied(event)
        return None

    def _replied(self, event: Event) -> Violation | None:
        call = event.fields["call"]
        earlier = self._closed.get(call)
        if earlier is not None:
            return Violation("INV-50", f"call {call} is answered twice", event=event, contradicts=earlier)
        self._closed[call] = event
        asked = self._open.pop(call, None)
        if asked is None or event.fields["outcome"] == "killed":
            return None
        return self._is_late(asked, event.time_ms, event)

    def at_end(self) -> Violation | None:
        for asked in self._open.values():
            violation = self._is_late(asked, self._last_ms, None)
            if violation is not None:
                return violation
        return None

    def _is_late(self, asked: Event, now_ms: float, reply: Event | None) -> Violation | None:
        limit_ms = asked.fields.get("limit_ms", 0.0)
        since_ms = max(asked.time_ms, self._disturbed.get(asked.fields["controller"], 0.0))
        if not limit_ms or now_ms - since_ms <= limit_ms:
            return None
        answered = "is not answered" if reply is None else "is answered late"
        text = f"{asked.fields['operation']} at {asked.fields['controller']} {answered}, limit {limit_ms:.0f} ms"
        return Violation("INV-50", text, event=reply, contradicts=asked)
