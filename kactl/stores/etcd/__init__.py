"""etcd store, over etcd's gRPC services.

store ── topics, leadership, elections, brokers, admin records ──▶ client ──▶ calls ──▶ http2 ──▶ etcd
  ▲────────────────── watch, session ────────────────────────────────┘
"""

from .session import EtcdSession
from .store import EtcdStore

__all__ = ["EtcdSession", "EtcdStore"]
