"""Brokers of a simulated cluster: modelled after stock Kafka brokers, or kactl participants."""

from .base import SimulatedBroker
from .broker import ModelBroker
from .fleet import Fleet
from .participant import ParticipantBroker
from .process import BrokerSettings

__all__ = ["BrokerSettings", "Fleet", "ModelBroker", "ParticipantBroker", "SimulatedBroker"]
