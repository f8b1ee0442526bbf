"""Kafka listener: serves the requests of brokers and Kafka's tools to a controller over Kafka's protocol."""

from .delegated import DelegatedAuthorizer, Question
from .served_controller import ServedController
from .server import BoundListener, KafkaListener, ListenerSecurity, ListenerSettings

__all__ = [
    "BoundListener",
    "DelegatedAuthorizer",
    "KafkaListener",
    "ListenerSecurity",
    "ListenerSettings",
    "Question",
    "ServedController",
]
