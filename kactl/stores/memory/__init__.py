"""In-memory store for tests, simulations, benchmarks, and clusters that need not survive a restart.

    store  ──ask──▶  link  ──▶  operations  ──▶  state
    store  ◀─────events─────  sessions, watches

The left side is the client: one `MemoryStore` per process. The right side is the server: one `MemoryState` with a
`ServerConnection` for each client. The link between them is a direct call; a simulation passes one with delays and
failures.
"""

from .operations import ServerConnection
from .state import MemoryState
from .store import DirectLink, Link, MemoryStore

__all__ = ["DirectLink", "Link", "MemoryState", "MemoryStore", "ServerConnection"]
