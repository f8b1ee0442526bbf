"""Events of simulated stores."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from tests.sim.engine.worlds.written import Op

from .fields import Fields


class StoreCommit(Fields, frozen=True, kw_only=True):
    """An operation that may write, at its position in the commit order.

    Attributes:
        txn: number of the operation, unique in the run.
        client: name of the node that sent it; empty if the server itself acts, as when a session expires.
        operation: method of `Store` or `Session`, or `expire` for the end of a session.
        sent: `len(history.events)` when the client sent the operation.
        fence: controller epoch of the presented fence; None if the operation has none.
        ops: entries that were written; empty unless the outcome is "ok".
        conflicts: keys that were not written because another version is stored.
        outcome: the effect on the server. A commit of many partitions is "ok" if at least one was written or there was
            no conflict, and "conflict" if all of them conflicted.
    """

    txn: int
    client: str
    operation: str
    sent: int
    fence: int | None
    ops: list[Op]
    conflicts: list[str] = msgspec.field(default_factory=list)
    outcome: Literal["ok", "conflict", "fenced", "error"]


class StoreUnknown(Fields, frozen=True, kw_only=True):
    """The client does not learn the outcome of a writing operation.

    Attributes:
        done: whether the server carries it out.
    """

    txn: int
    client: str
    done: bool


class StoreAnswered(Fields, frozen=True, kw_only=True):
    txn: int
    client: str


class StoreSession(Fields, frozen=True, kw_only=True):
    """A session at the server.

    Attributes:
        client: name of the node that it belongs to.
        broker: id of the broker; -1 for the session of a controller instance.
    """

    session: int
    client: str
    broker: int = -1
    what: Literal["opened", "expired", "closed"]


class StoreReopened(Fields, frozen=True, kw_only=True):
    """Content of a store's files after a crash, as another program reads it.

    Attributes:
        content: value by key, for the kinds of keys that the store's `store.commit` events have.
    """

    content: dict[str, dict[str, Any]]


FIELDS: Final[Mapping[str, type[Fields]]] = {
    "store.commit": StoreCommit,
    "store.unknown": StoreUnknown,
    "store.answered": StoreAnswered,
    "store.session": StoreSession,
    "store.reopened": StoreReopened,
}
