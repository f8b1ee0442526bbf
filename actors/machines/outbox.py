"""Interfaces through which machines and handlers send requests to brokers; implemented by `actors.channels`."""

from collections.abc import Iterable
from typing import Protocol

from kactl.model import Broker
from kactl.outbound.batch import Addressed


class Outbox(Protocol):
    """Queues requests in the order in which they are to be sent; never waits."""

    def send(self, requests: Iterable[Addressed]) -> None:
        """Queue requests. One to a broker without a channel is logged and dropped."""


class BrokerChannels(Outbox, Protocol):
    """The channels to all brokers, as the controller manages them."""

    def add(self, broker: Broker) -> None:
        """Open a channel to a registration. An earlier one of the same id has to be removed first."""

    def resume(self, broker: int) -> None:
        """Queue requests again for a broker whose queue was dropped: the next ones contain the complete state."""

    def remove(self, broker: int) -> None:
        """Close the channel to a broker; waiting requests are dropped."""

    def close(self) -> None:
        """Close all channels at once, before anything else can be sent."""
