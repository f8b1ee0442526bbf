"""Kafka listener: serves the requests of brokers and Kafka's tools to a controller over Kafka's protocol."""

from .served_controller import ServedController
from .server import KafkaListener, ListenerSecurity, ListenerSettings, bound

__all__ = ["KafkaListener", "ListenerSecurity", "ListenerSettings", "ServedController", "bound"]
