"""Client of a SQLite world: the real store, with its writing calls recorded."""

import functools
from collections.abc import Callable
from typing import Any, Final

from kactl.model import Broker
from kactl.stores.base import Session, SessionBound
from kactl.stores.sqlite import SqliteSession, SqliteStore

from .recorder import CommitRecorder

# Methods of a store that may write. All others only read; a test compares both lists with `Store`.
WRITING: Final = (
    "commit",
    "contest",
    "create_topic",
    "create_topics",
    "delete_notifications",
    "delete_preferred_election_request",
    "delete_topics",
    "end_remote",
    "evict",
    "mark_deletion",
    "notify_isr",
    "notify_log_dir",
    "register_remote",
    "request_preferred_election",
    "request_reassignment",
    "resign",
    "set_default_config",
    "set_reassignment_request",
    "set_topic_config",
    "unmark_deletions",
    "write_assignment",
    "write_features",
    "write_isr",
    "write_maintenance",
    "write_producer_ids",
    "write_topic_ids",
)


class RecordedStore(SqliteStore):
    """A store of one simulated process. `SqliteWorld.client` makes it."""

    def __init__(self, *args: Any, recorder: CommitRecorder, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recorder = recorder

    async def new_session(self, timeout_ms: int) -> "RecordedSession":  # type: ignore[override]
        call = functools.partial(super().new_session, timeout_ms)
        return RecordedSession(await self._recorder.run("new_session", call), self._recorder)


def _recorded(name: str) -> Callable[..., Any]:
    method = getattr(SqliteStore, name)

    @functools.wraps(method)
    async def call(self: RecordedStore, *args: Any, **kwargs: Any) -> Any:
        arguments = (*args, *kwargs.values())
        return await self._recorder.run(name, functools.partial(method, self, *args, **kwargs), *arguments)

    return call


for _name in WRITING:
    setattr(RecordedStore, _name, _recorded(_name))


class RecordedSession(Session):
    """Session of a broker; `id` as in `SqliteSession`."""

    def __init__(self, session: SqliteSession, recorder: CommitRecorder) -> None:
        self._session = session
        self._recorder = recorder

    @property
    def id(self) -> int:
        return self._session.id

    @property
    def timeout_ms(self) -> int:
        return self._session.timeout_ms

    async def register(self, broker: Broker) -> int:
        return await self._recorder.run("register", functools.partial(self._session.register, broker))

    @property
    def bound(self) -> SessionBound:
        return self._session.bound

    async def renew(self, sent_ns: int) -> None:
        await self._session.renew(sent_ns)  # writes a lease only, which is no content

    async def keep_alive(self) -> None:
        await self._session.keep_alive()

    async def close(self) -> None:
        await self._recorder.run("close", self._session.close)
