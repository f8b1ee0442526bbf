"""What a link promises, and what its client has to hear.

A request is any object with `type`, `serialize()` and `deserialize(frame, offset)`. If its answer is to arm a watch, it
carries the link's `watcher` as its `watcher`, and has to say so in what it serializes. Three kinds of request are known
by their type, for what they do to watches: `WatchTree`, `Unwatch` and `SetWatches`.
`frame` is the whole of one answer and nothing else, as bytes, with its body from `offset` on.
"""

import enum
from typing import Any, Final, Protocol

# How soon a server that is away is asked again: at first, and at the latest.
RECONNECT_S_MIN: Final = 0.05
RECONNECT_S_MAX: Final = 1.0
# For how long the end of a session is waited for, at most; the server ends it by itself when it hears no more of it.
CLOSE_S_MAX: Final = 5.0


class State(enum.Enum):
    """Of connection and session. Which it was before tells the rest: CONNECTED after LOST is in a new session."""

    CONNECTED = enum.auto()
    # There is no connection. Whether the session stands will be known when there is one.
    SUSPENDED = enum.auto()
    # The server has ended the session, and all that lived by it. Another one will be opened.
    LOST = enum.auto()


class PendingCall(Protocol):
    """A request on its way, as the client knows it."""

    @property
    def request(self) -> Any: ...


class ConnectionListener(Protocol):
    """What a link tells, in the loop and in the order of the wire: an event that stood before an answer comes first."""

    def answered(self, call: Any, result: Any) -> None:
        """With what the request made of the answer, or with an error as an object."""

    def lost(self, call: Any) -> None:
        """The connection went before it was answered; it may have been done. It can be sent again."""

    def watch_fired(self, kind: str, path: str) -> None:
        """Of a single node, with kazoo's word for the kind of event; it is armed no more. Paths are whole."""

    def tree_changed(self, root: str, kind: str, path: str) -> None:
        """Something at or below `root`, which is watched as a whole and stays so."""

    def state_changed(self, state: State) -> None:
        """Before the calls that were lost with a connection."""

    def settled(self) -> None:
        """All that had arrived was told: the time to send more."""


class Connection(Protocol):
    """See the module.

    Attributes:
        watcher: what a request carries that is to arm a watch.
        trouble: why there was no connection the last time that there was none; empty at first.
    """

    watcher: Any
    trouble: str

    @property
    def session(self) -> tuple[int, bytes] | None:
        """The id of the session and its password; None while there is no connection."""

    async def open(self) -> bool:
        """Connect; False if no server took us in within the session timeout. To be closed in any case."""

    async def close(self) -> None:
        """End the session, as far as a server can be reached. What is on its way is told as lost or not at all."""

    def send(self, call: Any) -> None:
        """While connected. Calls are sent in the order of asking, those of one turn of the loop together."""
