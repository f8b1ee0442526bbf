"""Where requests to brokers are left. Kept by the channels; machines know only this."""

from collections.abc import Iterable
from typing import Protocol

from kactl.batch import Addressed


class Outbox(Protocol):
    """Takes requests in the order in which they are to be sent; never waits."""

    def send(self, requests: Iterable[Addressed]) -> None:
        """Leave requests; one to a broker that has no channel is logged and dropped."""
