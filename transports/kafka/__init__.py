"""Real Kafka brokers: the three requests of Kafka's control protocol, and the connection that delivers them."""

from .client import KafkaTransport
from .credentials import BrokerCredentials

__all__ = ["BrokerCredentials", "KafkaTransport"]
