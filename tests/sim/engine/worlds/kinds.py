"""Kinds of stores that a simulated cluster can have, each with its simulated server and a reader of its content."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from kactl.stores.base import Store
from kactl.testing.history import History
from kactl.testing.links import Links
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import JOB_MS, Node
from tests.sim.engine.stored import EntryStored, MemoryStored, Stored

from .recorded_memory import RecordedMemoryWorld
from .sqlite import SqliteWorld
from .zookeeper import world as zookeeper_world


class StoreWorld(Protocol):
    """Server of a store, with a client for each process. Nodes are named, and their successors keep the name.

    Attributes:
        session_end_ms: the longest time from the last message of a client to the end of its session, if the server
            has just started.
    """

    @property
    def session_end_ms(self) -> float: ...

    def client(self, node: Node) -> Store:
        """Returns a client for a new process, which is not entered yet."""

    def cut(self, node: str, *, to_server: bool = True, to_client: bool = True) -> None:
        """Cut a node from the server, in one direction or in both."""

    def heal(self, node: str, *, deliver: bool = True) -> None:
        """End the cuts of a node."""

    def expire_session(self, node: str, *, notify_after_ms: float = 0.0) -> None:
        """End the sessions of a node's clients at the server; the node learns of it later."""

    def expire_brokers(self, node: str) -> None:
        """End the sessions of the brokers on a node at the server."""

    def stop(self) -> None:
        """Stop the server; sessions do not end."""

    def start(self) -> None:
        """Start the server again."""

    def set_faults(self, rates: Mapping[str, float]) -> None:
        """Set the rates of random faults by name; those that are left out do not happen."""

    def remove_topic(self, topic: str) -> None:
        """Remove a topic by hand."""

    def close(self) -> None:
        """Remove the store's files and servers outside the process, at the end of the run."""


def open_memory(
    loop: SimLoop, history: History, links: Links, settings: Mapping[str, Any]
) -> tuple[StoreWorld, Stored]:
    """Returns the simulated in-memory store, and a reader of its content."""
    world = RecordedMemoryWorld(loop, history, links, session_timeout_ms=settings["session_timeout_ms"])
    return world, MemoryStored(world.state)


def open_sqlite(
    loop: SimLoop, history: History, links: Links, settings: Mapping[str, Any]
) -> tuple[StoreWorld, Stored]:
    """Returns a host with one SQLite file, and a reader of its content. Jobs take the store's latency."""
    world = SqliteWorld(
        loop,
        history,
        session_timeout_ms=settings["session_timeout_ms"],
        job_ms=links.latency_ms.get("store", JOB_MS),
        poll_ms=settings.get("poll_ms"),
    )
    return world, EntryStored(lambda: world.content)


def open_zookeeper(
    loop: SimLoop, history: History, links: Links, settings: Mapping[str, Any]
) -> tuple[StoreWorld, Stored]:
    """Returns a simulated ensemble of a drawn number of servers, and a reader of its content."""
    world = zookeeper_world.drawn(loop, history, links, session_timeout_ms=settings["session_timeout_ms"])
    return world, world.content


# Kinds of stores: each returns the server and a reader of its content.
STORES: Final[dict[str, Callable[[SimLoop, History, Links, Mapping[str, Any]], tuple[StoreWorld, Stored]]]] = {
    "memory": open_memory,
    "sqlite": open_sqlite,
    "zookeeper": open_zookeeper,
}
