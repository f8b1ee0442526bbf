"""Filled stores with registered brokers, for benchmarks that start and stop controllers."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kactl.actors.system import Controller
from kactl.decide.messages.events import ControllerState
from kactl.model import Fence
from kactl.model.errors import SessionExpired
from kactl.stores.base import Session, Store
from kactl.stores.etcd import EtcdStore
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.stores.sqlite import SqliteStore
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.telemetry.gc import Collector
from tests.support.etcd_server import EtcdServer
from tests.support.zookeeper_server import ZooKeeperServer

from .clusters import Shape, fill

CHROOT: Final = "/bench"
KINDS: Final = ("memory", "sqlite", "zookeeper", "etcd")
# Long enough that no session expires on a busy machine.
SESSION_MS: Final = 60_000
_TOPICS_AT_ONCE: Final = 200
# Heap of the ZooKeeper server: 100,000 partitions are some 300,000 nodes.
_HEAP_MB: Final = 1536
# Interval of the checks whether a controller is idle.
_POLL_S: Final = 0.002

# Creates another client of the store.
Opener = Callable[[], Store]


@contextlib.asynccontextmanager
async def backing(kind: str) -> AsyncIterator[Opener]:
    """Starts the backend of one kind of store; a server of ZooKeeper or etcd is started as in the tests."""
    with tempfile.TemporaryDirectory(prefix="kactl-bench-") as folder:
        if kind == "memory":
            state = MemoryState()
            yield lambda: MemoryStore(state)
        elif kind == "sqlite":
            yield lambda: SqliteStore(Path(folder) / "kactl.db", session_timeout_ms=SESSION_MS)
        elif kind == "etcd":
            with EtcdServer(Path(folder)) as etcd:
                yield lambda: EtcdStore([etcd.url], session_timeout_ms=SESSION_MS)
        else:
            with zookeeper() as server:
                yield lambda: ZooKeeperStore(server.connect(CHROOT), session_timeout_ms=SESSION_MS)


@contextlib.contextmanager
def zookeeper() -> Iterator[ZooKeeperServer]:
    """Starts a ZooKeeper server with enough memory for a large cluster."""
    with (
        tempfile.TemporaryDirectory(prefix="kactl-bench-") as folder,
        ZooKeeperServer(Path(folder), tick_ms=SESSION_MS // 10, heap_mb=_HEAP_MB) as server,
    ):
        yield server


async def load(store: Store, shape: Shape, fence: Fence) -> None:
    """Writes a cluster with first leaders to a store."""
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
        assert (await store.commit(write, fence)).committed.all()


@contextlib.asynccontextmanager
async def registered(store: Store, shape: Shape) -> AsyncIterator[list[Session]]:
    """Registers all brokers of a cluster and keeps their sessions alive; index is id - 1."""
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
            # The benchmark closed this one to fail its broker; the others continue.
            with contextlib.suppress(SessionExpired):
                await session.keep_alive()


@contextlib.asynccontextmanager
async def collecting(controller: Controller) -> AsyncIterator[None]:
    """Collects garbage as in kactl's own processes: between events, with objects loaded by a takeover frozen."""
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
    """Returns whether an event is being handled or queued."""
    loop = controller.loop
    return loop.state is not ControllerState.IDLE or len(loop.inbox) > 0


async def quiet(controller: Controller, *, limit_s: float) -> None:
    """Waits until no event and no request to a broker is left.

    Raises:
        TimeoutError: this took longer than `limit_s`.
    """
    await until(
        lambda: not is_busy(controller) and not any(len(channel) for channel in controller.channels.all()),
        limit_s=limit_s,
    )


async def until(reached: Callable[[], bool], *, limit_s: float) -> None:
    """Polls until the condition holds, because no notification exists.

    Raises:
        TimeoutError: this took longer than `limit_s`.
    """
    async with asyncio.timeout(limit_s):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
