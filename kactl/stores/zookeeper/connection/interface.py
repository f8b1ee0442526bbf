"""Interface of a connection, and of the listener that receives its events.

A request is any object with `type`, `serialize()` and `deserialize(frame, offset)`. A request that arms a watch carries
the connection's `watcher` as its `watcher`, and sets the watch flag in its serialized form. Three kinds of request are
recognized by their type, for their effect on watches: `WatchTree`, `Unwatch` and `SetWatches`. `frame` is the whole of
one response and nothing else, as bytes; the body begins at `offset`.
"""

import enum
from typing import Any, Final, Protocol

# The first and the longest delay before an unavailable server is tried again.
RECONNECT_S_MIN: Final = 0.05
RECONNECT_S_MAX: Final = 1.0
# The longest wait for the end of a session; without the client the server ends it after its timeout.
CLOSE_S_MAX: Final = 5.0
# Each call of `open` waits for so long: the caller decides how often, and logs why.
OPEN_STEP_S: Final = 0.5


class State(enum.Enum):
    """State of connection and session. CONNECTED after LOST means a new session."""

    CONNECTED = enum.auto()
    # There is no connection. The next one shows whether the session still exists.
    SUSPENDED = enum.auto()
    # The server has ended the session, and everything that depended on it. A new session will be opened.
    LOST = enum.auto()


class PendingCall(Protocol):
    """A request in flight, as the client represents it."""

    @property
    def request(self) -> Any: ...


class ConnectionListener(Protocol):
    """Receives events in the loop and in the order of the wire: an event that precedes a response is delivered
    first.
    """

    def answered(self, call: Any, result: Any) -> None:
        """Deliver the deserialized response to a call, or an error as an object."""

    def lost(self, call: Any) -> None:
        """Report that the connection was lost before the response; the request may have been executed. It can be
        retried.
        """

    def watch_fired(self, kind: str, path: str) -> None:
        """Report the event of a single node, by kazoo's name of its kind; the watch is disarmed. Paths are absolute."""

    def tree_changed(self, root: str, kind: str, path: str) -> None:
        """Report an event at or below `root`, which is watched as a whole and stays watched."""

    def state_changed(self, state: State) -> None:
        """Report a new state, before the calls that were lost with a connection."""

    def settled(self) -> None:
        """Report that all received data was delivered, and more requests may be sent."""


class Connection(Protocol):
    """A session over successive connections to the servers of an ensemble.

    Attributes:
        watcher: the `watcher` of a request that arms a watch.
        trouble: the reason of the last disconnection; empty at first.
        is_rejected: whether each server rejects the credentials, or has a certificate that is not accepted.
        granted_ms: the session timeout that the server has granted; the requested one before that, or if it is not
            known.
    """

    watcher: Any
    trouble: str
    is_rejected: bool
    granted_ms: int

    @property
    def session(self) -> tuple[int, bytes] | None:
        """The id of the session and its password; None while there is no connection."""

    async def open(self) -> bool:
        """Connect. Returns False if no server has accepted the session yet; a further call waits again.

        The connection has to be closed in any case.
        """

    async def close(self) -> None:
        """End the session, if a server can be reached. Calls in flight are reported as lost or not at all."""

    def send(self, call: Any) -> None:
        """Send a call, while connected. Calls are sent in order, those of one turn of the loop together."""
