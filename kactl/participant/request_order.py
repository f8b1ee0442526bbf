"""Recognises control requests that the network delivers late.

A controller sends a request again until it is answered, and only then the next one. So a request that arrives after one
with a higher number is a copy. Requests of controllers that do not number them have the number 0, and are never copies.
"""

from kactl.decide.messages.control import LeaderAndIsr, StopReplica, UpdateMetadata
from kactl.model import NO_EPOCH


class RequestOrder:
    """The last request of some kinds."""

    def __init__(self) -> None:
        self._last = (NO_EPOCH, 0)  # its controller epoch and number

    def is_late(self, request: LeaderAndIsr | StopReplica | UpdateMetadata) -> bool:
        """Returns whether a later request was received before this one, and records this one if not."""
        if not request.number:
            return False
        number = (request.controller_epoch, request.number)
        if number < self._last:
            return True
        self._last = number
        return False
