"""Registrations whose session the store was made to end before its time.

The fault `expire` ends sessions that were renewed in time. A lease in such a session is too long: no participant can
know. Invariants of leases do not hold for it, but for all others at the same time.
"""

from typing import Any, Final

from kactl.testing.history import Event

KINDS: Final = ("store.commit", "fault.begin", "action", "action.skipped")
# Of the keys of registrations.
_REGISTRATION: Final = "brokers/"


class CutShort:
    """Follows the registrations of all brokers.

    Attributes:
        lives: broker id and broker epoch of each registration that ended before its time.
    """

    def __init__(self) -> None:
        self.lives: set[tuple[int, int]] = set()
        self._stored: dict[int, int] = {}
        self._is_forced = False

    def add(self, event: Event) -> None:
        """Take note of an event of KINDS."""
        if event.kind == "fault.begin":
            self._is_forced = event.fields["fault"] == "expire"
        elif event.kind != "store.commit":
            self._is_forced = False
        elif event.fields["outcome"] == "ok":
            for key, _, _, value in event.fields["ops"]:
                if key.startswith(_REGISTRATION):
                    self._changed(int(key.removeprefix(_REGISTRATION)), value)

    def _changed(self, broker: int, value: dict[str, Any] | None) -> None:
        if value is not None:
            self._stored[broker] = value["epoch"]
        elif broker in self._stored:
            epoch = self._stored.pop(broker)
            if self._is_forced:
                self.lives.add((broker, epoch))
