"""Recorder of a run: all events of all nodes in one order."""

import hashlib
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import msgspec

from .nodes import NODE


class Event(NamedTuple):
    """Something that happened on a node.

    Attributes:
        seq: position in the history, from 0.
        time_ms: virtual time.
        node: name of the node; empty outside all nodes.
        kind: for example `store.commit` or `req.accept`.
        fields: details of the kind. Values that msgspec can encode, so that a history has a digest and can be written.
    """

    seq: int
    time_ms: float
    node: str
    kind: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        details = ", ".join(f"{name} {value}" for name, value in self.fields.items())
        return f"{self.time_ms / 1000:10.3f} s  {self.node or '-':<16} {self.kind}  {details}"


Listener = Callable[[Event], None]


class History:
    """Ordered events of one run.

    Listeners are called inside the step that records the event. They must not raise: the error would end up in the
    program under test.

    Args:
        now_ms: returns the virtual time.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._listeners: dict[str, list[Listener]] = {}
        self.events: list[Event] = []

    def subscribe(self, kinds: Collection[str], listener: Listener) -> None:
        """Call a listener for each later event of these kinds, after the listeners that subscribed before it."""
        for kind in kinds:
            self._listeners.setdefault(kind, []).append(listener)

    def record(self, kind: str, *, node: str | None = None, **fields: Any) -> Event:
        """Record an event of the current node, or of the named one, and call the listeners of its kind."""
        if node is None:
            current = NODE.get()
            node = "" if current is None else current.name
        event = Event(len(self.events), self._now_ms(), node, kind, fields)
        self.events.append(event)
        for listener in self._listeners.get(kind, ()):
            listener(event)
        return event

    def digest(self) -> str:
        """Returns the SHA-256 of all events, in hex: equal for equal runs."""
        digest = hashlib.sha256()
        encode = msgspec.json.Encoder(order="deterministic").encode
        for event in self.events:
            digest.update(encode(msgspec.to_builtins(event, str_keys=True)))  # only such keys have an order
            digest.update(b"\n")
        return digest.hexdigest()
