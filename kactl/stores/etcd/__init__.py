"""etcd store, over etcd's JSON gateway.

store ── topics, leadership, elections, brokers, admin records ──▶ client ──▶ gateway ──▶ etcd
  ▲────────────────── watch, session ────────────────────────────────┘
"""

from .session import EtcdSession
from .store import EtcdStore

__all__ = ["EtcdSession", "EtcdStore"]
