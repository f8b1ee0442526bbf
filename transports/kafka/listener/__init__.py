"""Kafka listener: serves the requests of brokers and Kafka's tools to a controller over Kafka's protocol."""

from .delegated import DelegatedAuthorizer, Question
from .served_controller import ServedController
from .server import KafkaListener, ListenerSecurity, ListenerSettings, bound

__all__ = [
    "DelegatedAuthorizer",
    "KafkaListener",
    "ListenerSecurity",
    "ListenerSettings",
    "Question",
    "ServedController",
    "bound",
]
