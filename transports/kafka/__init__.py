"""Real Kafka brokers: the three requests of Kafka's control protocol, and a connection that carries them."""

from .client import KafkaTransport

__all__ = ["KafkaTransport"]
