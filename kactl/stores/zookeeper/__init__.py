"""A store over ZooKeeper, in the layout of Apache Kafka, so that real brokers can be the cluster."""

from .store import ZooKeeperStore

__all__ = ["ZooKeeperStore"]
