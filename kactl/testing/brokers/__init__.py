"""Modelled Kafka brokers: nodes of a simulated cluster that behave as stock Kafka brokers do towards the controller."""

from .broker import ModelBroker
from .fleet import Fleet
from .process import BrokerSettings

__all__ = ["BrokerSettings", "Fleet", "ModelBroker"]
