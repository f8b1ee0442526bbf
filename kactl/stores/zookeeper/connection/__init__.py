"""The line to ZooKeeper: one connection at a time, and the session that outlives it.

    Client ──send──▶ Link ──frames──▶ server
           ◀─answered, lost, watch_fired, tree_changed, state_changed, settled─

`promise` says what a link owes its client. Two keep it:

* `wire`, our own, an asyncio protocol. From the bottom: `frames` cuts what arrives into frames, `messages` knows those
  that are no requests of ours, `armed` what is watched, `connection` is one connection from its greeting to its end,
  and `wire` finds servers and keeps the session over all of its connections.
* `kazoo_link`, kazoo's client with its threads: what ours is compared with, and the way back.

Neither arms watches anew after a reconnection by itself. ZooKeeper's own way, `setWatches`, would fire whatever was
written since a transaction that the client names, one for all of them; kactl has to know of each watch what its reader
had seen, and so reads and compares (`kactl.stores.zookeeper.watches`). What happened in a tree that was watched as a
whole is unknown after a gap in any case: such a watch tells of writes, and the server keeps none of them.
"""

from typing import Final, Literal

from .interface import Connection, ConnectionListener, State

__all__ = ["KINDS", "Connection", "ConnectionListener", "Kind", "State", "make"]

Kind = Literal["kactl", "kazoo"]
KINDS: Final[tuple[Kind, ...]] = ("kactl", "kazoo")


def make(kind: Kind, hosts: str, *, session_timeout_ms: int, listener: ConnectionListener) -> Connection:
    """A link that is still to be opened.

    Args:
        hosts: `host:port[,host:port...]`; without a port it is 2181.

    Raises:
        BadConfig: `hosts` cannot be read.
    """
    # kazoo's client takes a while to import, and is needed by few.
    if kind == "kazoo":
        from .kazoo_connection import KazooConnection

        return KazooConnection(hosts, session_timeout_ms=session_timeout_ms, listener=listener)
    from .native import NativeConnection

    return NativeConnection(hosts, session_timeout_ms=session_timeout_ms, listener=listener)
