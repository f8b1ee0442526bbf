"""Simulated ZooKeeper: a model of an ensemble that speaks the wire protocol, and the clients of kactl over it.

    store ── Client ── NativeConnection ── SocketConnection ══ Pipe ══ ServerEnd ── Server ── Ensemble
    └──────────────────── kactl's own code ─────────────┘     bytes    └──────── model ────────────┘

From the bottom of the model: `codes` and `wire` are the protocol; `tree`, `watches` and `access` the state of one
server; `preparation` decides about writes, `reads` answers the rest; `sessions` ends those that are silent; `server`
keeps the order of each connection, `ensemble` the order of all transactions; `pipes` and `world` connect clients.

The model is compared with a real server by random scripts (`tests/sim/zookeeper`).
"""

from .codes import Op
from .ensemble import Ensemble
from .server import Server
from .world import ZooKeeperWorld

__all__ = ["Ensemble", "Op", "Server", "ZooKeeperWorld"]
