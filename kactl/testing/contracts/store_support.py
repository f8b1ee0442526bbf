"""Clients, ends of sessions, an event recorder and small values, for the contract suite of stores."""

import dataclasses
from collections.abc import Sequence
from typing import Final, Protocol

import anyio
import numpy as np

from kactl.model import (
    NO_BROKER,
    NO_VERSION,
    Assignment,
    Broker,
    Endpoint,
    Fence,
    Leadership,
    TopicPartition,
    TopicRef,
)
from kactl.stores.base import Changed, Names, Session, Store, StoreEvent, Write

# Events may come through a server, a thread or a poll. Only a lost event takes this long.
WAIT_S: Final = 20.0
# Session timeout of brokers: long enough for a busy machine, and within the limits of a ZooKeeper server.
SESSION_MS: Final = 10_000

ORDERS = TopicRef("orders", bytes(range(16)))
ORDERS_0, ORDERS_1, ORDERS_2 = (TopicPartition("orders", partition) for partition in range(3))
ALL = [ORDERS_0, ORDERS_1, ORDERS_2]
THREE_PARTITIONS = {partition: Assignment((1, 2, 3)) for partition in range(3)}


class Stores(Protocol):
    """Several clients of one stored state, like several processes."""

    def open_client(self) -> Store:
        """Returns a client with its own session; the caller enters and exits it."""

    async def expire(self, client: Store) -> None:
        """End the client's own session as after its timeout, without notifying the client."""

    async def expire_session(self, session: Session) -> None:
        """End a broker's session as after its timeout."""


class EventRecorder:
    """Records the events of one client; a test can wait for them."""

    def __init__(self, store: Store) -> None:
        self.events: list[StoreEvent] = []
        self._more = anyio.Event()
        store.subscribe(self._record)

    def _record(self, event: StoreEvent) -> None:
        self.events.append(event)
        self._more.set()
        self._more = anyio.Event()

    async def wait_for(self, what: Changed, name: str = "") -> None:
        """Wait for an event, and drop all events up to it."""
        wanted = StoreEvent(what, name)
        with anyio.move_on_after(WAIT_S):
            while wanted not in self.events:
                await self._more.wait()
        assert wanted in self.events, f"waited for {wanted}, received {self.events}"
        del self.events[: self.events.index(wanted) + 1]

    async def wait_for_one_of(self, *kinds: Changed) -> Changed:
        """Wait for an event of one of some kinds, and drop all events up to it. Returns its kind."""
        with anyio.move_on_after(WAIT_S):
            while not any(event.what in kinds for event in self.events):
                await self._more.wait()
        index = next((at for at, event in enumerate(self.events) if event.what in kinds), None)
        assert index is not None, f"waited for one of {kinds}, received {self.events}"
        what = self.events[index].what
        del self.events[: index + 1]
        return what

    async def wait_for_all(self, *wanted: StoreEvent) -> None:
        """Wait for events in any order, each once, and drop them."""
        with anyio.move_on_after(WAIT_S):
            while not set(wanted) <= set(self.events):
                await self._more.wait()
        assert set(wanted) <= set(self.events), f"waited for {wanted}, received {self.events}"
        for event in wanted:
            self.events.remove(event)


def broker_info(number: int, *, epoch: int = 0, rack: str | None = "r1") -> Broker:
    return Broker(number, epoch, (Endpoint("PLAINTEXT", f"host{number}", 9092),), rack)


def new_write(
    names: Sequence[TopicPartition],
    *,
    leader: int | Sequence[int] = 1,
    leader_epoch: int | Sequence[int] = 0,
    isr: Sequence[int | Sequence[int]] = (1, 2, 3),
    recovering: bool | Sequence[bool] = False,
    expected: int | Sequence[int] = NO_VERSION,
) -> Write:
    """Returns new leadership of some partitions. A single value applies to all; `isr` is one, or one for each."""
    count = len(names)
    each = [member for member in isr if not isinstance(member, int)]
    rows = each or [[member for member in isr if isinstance(member, int)]] * count
    columns = np.full((max(map(len, rows), default=0), count), NO_BROKER, np.int32)
    for at, row in enumerate(rows):
        columns[: len(row), at] = row
    return Write(
        names=Names.of(names),
        leader=np.broadcast_to(np.asarray(leader, np.int32), count).copy(),
        leader_epoch=np.broadcast_to(np.asarray(leader_epoch, np.int32), count).copy(),
        isr=columns,
        recovering=np.broadcast_to(np.asarray(recovering, np.bool_), count).copy(),
        expected=np.broadcast_to(np.asarray(expected, np.int32), count).copy(),
    )


def write_of(topic: TopicRef, write: Write) -> Write:
    """Returns a write that names its only topic with this id."""
    return dataclasses.replace(write, names=dataclasses.replace(write.names, topics=(topic,)))


async def stored_leadership(store: Store, name: TopicPartition) -> Leadership | None:
    return (await store.leaderships(Names.of([name]))).one(0)


async def delete_topic(store: Store, topic: str, fence: Fence, partitions: Sequence[int] = ()) -> None:
    """Deletes one topic. The caller assumes that these partitions of it have leadership.

    Raises:
        StoreError: a part of the topic remains.
    """
    for error in (await store.delete_topics({topic: np.array(partitions, np.int32)}, fence)).values():
        raise error


async def create_and_lead(store: Store, *, controller: int = 100) -> Fence:
    """Create a topic of three partitions, each with a first leader. Returns the fence of the write."""
    await store.create_topic(ORDERS, THREE_PARTITIONS, {})
    fence = await store.contest(controller)
    committed = await store.commit(new_write(ALL), fence)
    assert committed.committed.all()
    return fence
