"""Where a bench keeps a cluster while controllers come and go: a store of one kind, filled, its brokers registered."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kactl.actors.system import Controller
from kactl.errors import SessionExpired
from kactl.messages.events import ControllerState
from kactl.model import Fence
from kactl.stores.base import Session, Store
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.stores.sqlite import SqliteStore
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.telemetry.gc import Collector
from tests.interop.zookeeper import ZooKeeperServer

from .clusters import Shape, fill

CHROOT: Final = "/bench"
KINDS: Final = ("memory", "sqlite", "zookeeper")
# Sessions outlive whatever the machine does meanwhile.
SESSION_MS: Final = 60_000
_TOPICS_AT_ONCE: Final = 200
# Of the ZooKeeper server: 100,000 partitions are some 300,000 nodes.
_HEAP_MB: Final = 1536
# How often it is looked at whether a controller has nothing more to do.
_POLL_S: Final = 0.002

# Another client of the store.
Opener = Callable[[], Store]


@contextlib.asynccontextmanager
async def backing(kind: str) -> AsyncIterator[Opener]:
    """A place where clients of one kind of store meet; a ZooKeeper server is started as the tests do it."""
    with tempfile.TemporaryDirectory(prefix="kactl-bench-") as folder:
        if kind == "memory":
            state = MemoryState()
            yield lambda: MemoryStore(state)
        elif kind == "sqlite":
            yield lambda: SqliteStore(Path(folder) / "kactl.db", session_timeout_ms=SESSION_MS)
        else:
            with zookeeper() as server:
                yield lambda: ZooKeeperStore(server.connect(CHROOT), session_timeout_ms=SESSION_MS)


@contextlib.contextmanager
def zookeeper() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server of our own, with room for a large cluster."""
    with (
        tempfile.TemporaryDirectory(prefix="kactl-bench-") as folder,
        ZooKeeperServer(Path(folder), tick_ms=SESSION_MS // 10, heap_mb=_HEAP_MB) as server,
    ):
        yield server


async def load(store: Store, shape: Shape, fence: Fence) -> None:
    """Put a cluster into a store, with first leaders."""
    if isinstance(store, SqliteStore | MemoryStore):
        await fill(store, shape, fence)
        return
    assignments = shape.assignments()
    for begin in range(0, shape.topics, _TOPICS_AT_ONCE):
        numbers = range(begin, min(begin + _TOPICS_AT_ONCE, shape.topics))
        held = {
            number: {name.partition: one for name, one in assignments.take(assignments.topic == number).items()}
            for number in numbers
        }
        await asyncio.gather(*(store.create_topic(assignments.topics[at], held[at], {}) for at in numbers))
    for write in shape.writes(assignments):
        assert (await store.commit(write, fence)).kept.all()


@contextlib.asynccontextmanager
async def registered(store: Store, shape: Shape) -> AsyncIterator[list[Session]]:
    """All brokers of a cluster, kept alive; by id less one."""
    sessions = []
    for broker in shape.registered():
        session = await store.new_session(SESSION_MS)
        await session.register(broker)
        sessions.append(session)
    tending = asyncio.create_task(_keep_alive(sessions))
    try:
        yield sessions
    finally:
        tending.cancel()
        await asyncio.gather(tending, return_exceptions=True)
        for session in sessions:
            await session.close()


async def _keep_alive(sessions: Sequence[Session]) -> None:
    while True:
        await asyncio.sleep(SESSION_MS / 4000)
        for session in sessions:
            # One that a bench has ended, so that its broker fails; the others have to go on.
            with contextlib.suppress(SessionExpired):
                await session.keep_alive()


@contextlib.asynccontextmanager
async def collecting(controller: Controller) -> AsyncIterator[None]:
    """Garbage is collected as in kactl's own processes: between events, and what a takeover has loaded put aside."""
    collector = Collector(
        controller.clock,
        busy=lambda: is_busy(controller),
        epoch=lambda: controller.cluster.fence.epoch,
    )
    running = asyncio.create_task(collector.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def is_busy(controller: Controller) -> bool:
    """Whether an event is in hand, or waits."""
    loop = controller.loop
    return loop.state is not ControllerState.IDLE or len(loop.inbox) > 0


async def quiet(controller: Controller, *, limit_s: float) -> None:
    """Wait until no event is left to be handled, and no broker to be told.

    Raises:
        TimeoutError: not within `limit_s`.
    """
    await until(
        lambda: not is_busy(controller) and not any(len(channel) for channel in controller.channels.all()),
        limit_s=limit_s,
    )


async def until(reached: Callable[[], bool], *, limit_s: float) -> None:
    """Look again and again; nothing says so.

    Raises:
        TimeoutError: not within `limit_s`.
    """
    async with asyncio.timeout(limit_s):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
