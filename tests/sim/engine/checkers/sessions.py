"""Sessions of participants with the controller: INV-59 and INV-65. All times are readings of one controller's clock."""

from typing import Any, Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

NS_PER_MS: Final = 1_000_000

# One controllership: node and controller epoch.
_Term = tuple[str, int]


class Sessions(Checker):
    """Only a controller that was in office a moment ago grants heartbeats, of sessions that it does not end. No session
    ends too early."""

    kinds = ("store.commit", "session.term", "session.confirmed", "session.heartbeat", "session.end")
    invariants = ("INV-59", "INV-65")

    def __init__(self) -> None:
        self._registered_by: dict[int, int | None] = {}  # controller epoch by broker epoch
        self._elected: dict[_Term, Event] = {}
        self._confirmed: dict[_Term, Event] = {}  # the check that was sent last
        self._granted: dict[tuple[_Term, int, int], Event] = {}  # the heartbeat that arrived last, by broker and life
        self._ends: dict[tuple[_Term, int, int], Event] = {}  # first decision

    def check(self, event: Event) -> Violation | None:
        if event.kind == "store.commit":
            for key, _, _, value in event.fields["ops"]:
                if key.startswith("brokers/") and value is not None:
                    self._registered_by.setdefault(value["epoch"], event.fields["fence"])
            return None
        fields, term = event.fields, (event.node, event.fields["controller_epoch"])
        match event.kind:
            case "session.term":
                self._elected[term] = event
            case "session.confirmed":
                last = self._confirmed.get(term)
                if last is None or last.fields["sent_ns"] < fields["sent_ns"]:
                    self._confirmed[term] = event
            case "session.heartbeat" if fields["verdict"] == "granted":
                return self._grants(event, fields, term)
            case "session.end":
                self._ends.setdefault((term, fields["broker"], fields["life"]), event)
                if fields["cause"] == "expired":
                    return self._expires(event, fields, term)
        return None

    def _grants(self, event: Event, fields: dict[str, Any], term: _Term) -> Violation | None:
        key = term, fields["broker"], fields["life"]
        last, confirmed = self._granted.get(key), self._confirmed.get(term)
        if last is None or last.fields["received_ns"] < fields["received_ns"]:
            self._granted[key] = event
        limit_ns = fields["timeout_ms"] * NS_PER_MS / 3
        if confirmed is None or fields["at_ns"] - confirmed.fields["sent_ns"] > limit_ns:
            text = f"{event.node} grants a heartbeat of broker {fields['broker']}, and was not confirmed in time before"
            return Violation("INV-59", text, event=event, contradicts=confirmed)
        if key in self._ends:
            text = f"{event.node} grants a heartbeat of broker {fields['broker']}, whose session it is about to end"
            return Violation("INV-65", text, event=event, contradicts=self._ends[key])
        return None

    def _expires(self, event: Event, fields: dict[str, Any], term: _Term) -> Violation | None:
        timeout_ns = fields["timeout_ms"] * NS_PER_MS
        last, elected = self._granted.get((term, fields["broker"], fields["life"])), self._elected.get(term)
        what = f"{event.node} ends the session of broker {fields['broker']} under epoch {fields['life']}"
        if last is not None and fields["at_ns"] < last.fields["received_ns"] + timeout_ns:
            text = f"{what} before its timeout has passed since its last heartbeat"
            return Violation("INV-65", text, event=event, contradicts=last)
        is_own = self._registered_by.get(fields["life"]) == fields["controller_epoch"]
        if elected is not None and not is_own and 2 * (fields["at_ns"] - elected.fields["at_ns"]) < 3 * timeout_ns:
            return Violation("INV-65", f"{what} before the grace is over", event=event, contradicts=elected)
        return None
