"""Operations of the store, as the history names them, for the requests that they send.

A request on the wire does not show which method of the store sent it, and when the method was called. The store of a
simulated node marks the requests of its methods; the marks go beside the connection, and change nothing in it.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from kactl.model import Fence
from kactl.stores.base import Session
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.connection.native import NativeConnection

from .codes import Op


class Operation(NamedTuple):
    """A call of a method of `Store` or `Session` that may write.

    Attributes:
        sent: length of the history at the call.
        fence: controller epoch of the presented fence; None if there is none.
    """

    name: str
    sent: int
    fence: int | None


WRITES: Final = (
    "contest", "resign", "create_topic", "write_assignment", "set_topic_config", "set_default_config",
    "mark_deletion", "unmark_deletions", "delete_topics", "commit", "write_isr", "request_reassignment",
    "set_reassignment_request", "request_preferred_election", "delete_preferred_election_request", "write_features",
    "write_producer_ids", "write_maintenance", "notify_isr", "notify_log_dir", "delete_notifications",
)  # fmt: skip

_OPERATION: Final[ContextVar[Operation | None]] = ContextVar("operation", default=None)
_MARK: Final = "operation"
# Kinds of the requests that write.
_KINDS: Final = frozenset({Op.CREATE, Op.CREATE_2, Op.DELETE, Op.SET_DATA, Op.MULTI})


class MarkingStore(ZooKeeperStore):
    """The store of a simulated node.

    Args:
        position: returns the length of the history.
    """

    def __init__(self, *args: Any, position: Callable[[], int], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._position = position
        _mark_requests(self._client)

    async def new_session(self, timeout_ms: int) -> Session:
        session = await super().new_session(timeout_ms)
        _mark_requests(session._client)  # type: ignore[attr-defined]
        setattr(session, "register", self._marking("register", session.register))  # noqa: B010
        return session

    def _marking(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a method that marks its requests."""

        @functools.wraps(method)
        async def marking(*args: Any, **kwargs: Any) -> Any:
            fence = next((one for one in (*args, *kwargs.values()) if isinstance(one, Fence)), None)
            with _operating(Operation(name, self._position(), None if fence is None else fence.epoch)):
                return await method(*args, **kwargs)

        return marking


def _overridden(name: str) -> Callable[..., Any]:
    async def marking(self: MarkingStore, *args: Any, **kwargs: Any) -> Any:
        method = functools.partial(getattr(ZooKeeperStore, name), self)
        functools.update_wrapper(method, getattr(ZooKeeperStore, name))
        return await self._marking(name, method)(*args, **kwargs)

    return marking


for _name in WRITES:
    setattr(MarkingStore, _name, _overridden(_name))


@contextlib.contextmanager
def _operating(operation: Operation) -> Iterator[None]:
    before = _OPERATION.get()
    _OPERATION.set(operation)
    try:
        yield
    finally:
        # Not by a token: the coroutines of a killed node are closed in another context.
        _OPERATION.set(before)


def _mark_requests(client: Client) -> None:
    """Let the responses of a client carry the operation that waits for them."""
    submit = client.submit

    def marking(requests: Sequence[Any], finished: Callable[[Any], None]) -> Any:
        responses = submit(requests, finished)
        setattr(responses, _MARK, _OPERATION.get())
        return responses

    setattr(client, "submit", marking)  # noqa: B010


class MarkedConnection(NativeConnection):
    """Connection that passes the marks of requests to its transport, by the numbers of the requests."""

    def send(self, call: Any) -> None:
        assert self._connection is not None
        marks = getattr(self._connection._transport, "operations", None)
        # Without a mark `submit` has not returned yet, and runs in the context of the operation.
        operation = getattr(call.responses, _MARK) if hasattr(call.responses, _MARK) else _OPERATION.get()
        if marks is not None and operation is not None and call.request.type in _KINDS:
            marks[self._connection._xid] = operation
        super().send(call)
