"""Routes of spectators: INV-64."""

from typing import Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

# Clocks of nodes differ from that of the run by no more than a tenth, for ages of some seconds.
_SHARE: Final = 0.9


class Routes(Checker):
    """Versions at a spectator never fall, and its table is not older than it says."""

    kinds = ("store.commit", "routes.seen", "node.start")
    invariants = ("INV-64",)

    def __init__(self) -> None:
        self._last: dict[str, Event] = {}
        self._elected: dict[int, Event] = {}  # by controller epoch
        self._epoch = 0

    def check(self, event: Event) -> Violation | None:
        if event.kind == "store.commit":
            for key, _, _, value in event.fields["ops"]:
                if key == "epoch" and value is not None:
                    self._epoch = value["epoch"]
                    self._elected[self._epoch] = event
            return None
        last = self._last.pop(event.node, None)
        if event.kind == "node.start":
            return None
        self._last[event.node] = event
        if last is not None and _version(event) < _version(last):
            text = f"the routes of {event.node} go back from version {_version(last)} to {_version(event)}"
            return Violation("INV-64", text, event=event, contradicts=last)
        later = self._elected.get(event.fields["controller_epoch"] + 1)
        if later is not None and event.fields["age_ms"] < _SHARE * (event.time_ms - later.time_ms):
            text = (
                f"{event.node} says that its routes are {event.fields['age_ms']:.0f} ms old, and another controller "
                f"was elected {event.time_ms - later.time_ms:.0f} ms ago"
            )
            return Violation("INV-64", text, event=event, contradicts=later)
        return None


def _version(event: Event) -> tuple[int, int]:
    return event.fields["controller_epoch"], event.fields["seq_number"]
