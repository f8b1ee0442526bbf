"""Store over ZooKeeper in the layout of Apache Kafka, so that unmodified brokers can form the cluster."""

from .store import ZooKeeperStore

__all__ = ["ZooKeeperStore"]
