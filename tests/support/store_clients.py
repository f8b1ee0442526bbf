"""Test support of the store contract, and what only kactl's own tests need."""

from kactl.stores.base import Store
from kactl.stores.memory import DirectLink, MemoryStore
from kactl.stores.watch_registry import Watches
from kactl.testing.contracts.store_support import (
    ALL,
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    ORDERS_2,
    SESSION_MS,
    THREE_PARTITIONS,
    WAIT_S,
    EventRecorder,
    Stores,
    broker_info,
    create_and_lead,
    delete_topic,
    new_write,
    stored_leadership,
)

__all__ = [
    "ALL",
    "ORDERS",
    "ORDERS_0",
    "ORDERS_1",
    "ORDERS_2",
    "SESSION_MS",
    "THREE_PARTITIONS",
    "WAIT_S",
    "EventRecorder",
    "Stores",
    "broker_info",
    "create_and_lead",
    "delete_topic",
    "new_write",
    "stored_leadership",
    "watches_of",
]


def watches_of(store: Store) -> Watches:
    """Returns the watches that the server of an in-memory store keeps for one of its clients."""
    assert isinstance(store, MemoryStore)
    assert isinstance(store._link, DirectLink)
    assert store._link.connection is not None
    return store._link.connection.watches
