"""Where requests to brokers are left. Kept by the channels; machines know only this."""

from collections.abc import Iterable
from typing import Protocol

from kactl.model import Broker
from kactl.outbound.batch import Addressed


class Outbox(Protocol):
    """Takes requests in the order in which they are to be sent; never waits."""

    def send(self, requests: Iterable[Addressed]) -> None:
        """Leave requests; one to a broker that has no channel is logged and dropped."""


class BrokerChannels(Outbox, Protocol):
    """The channels to all brokers, as the controller rules them."""

    def add(self, broker: Broker) -> None:
        """Open a channel to a registration; one that stands for the same id has to be removed first."""

    def resume(self, broker: int) -> None:
        """Take requests again for a broker whose queue was dropped: the next ones contain everything it has to know."""

    def remove(self, broker: int) -> None:
        """Close the channel to a broker; what waits in it is dropped."""

    def close(self) -> None:
        """Close all channels at once, before anything else of ours can be sent."""
