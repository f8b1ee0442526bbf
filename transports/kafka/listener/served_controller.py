"""What the listener needs of the controller that it speaks for."""

from typing import Any, Protocol

from kactl.messages.admin import ControllerRequest
from kactl.model import Broker, TopicRef


class Ruled(Protocol):
    """A controller instance: what it can be asked, and the little that answers are made of.

    Attributes:
        node_id: ours.
        active_id: who is the controller, as far as we know.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def active_id(self) -> int | None: ...

    @property
    def is_active(self) -> bool: ...

    async def ask(self, request: ControllerRequest) -> Any:
        """Hand in a request and wait for its answer; raises the KactlErrors that the request says."""

    def brokers(self) -> list[Broker]:
        """The registered brokers, by id; none while another instance is the controller."""

    def topics(self) -> list[TopicRef]:
        """All topics, by name."""

    async def wait_led(self, topic: str, *, partitions: int, timeout_ms: float) -> None:
        """Wait until a topic has at least that many partitions and each of its partitions has a leader.

        Raises:
            ActionTimedOut, NotController.
        """

    async def wait_gone(self, topic: TopicRef, *, timeout_ms: float) -> None:
        """Wait until nothing is known any more of a topic, by its id.

        Raises:
            ActionTimedOut, NotController.
        """
