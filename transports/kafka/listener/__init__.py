"""The Kafka listener: what brokers and stock tools ask of a controller, answered over Kafka's own protocol."""

from .served_controller import Ruled
from .server import KafkaListener, ListenerSettings, bound

__all__ = ["KafkaListener", "ListenerSettings", "Ruled", "bound"]
