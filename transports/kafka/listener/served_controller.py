"""Interface of the controller that a Kafka listener serves."""

from collections.abc import Mapping
from typing import Any, Protocol

from kactl.decide.messages.admin import ControllerRequest, ElectionResult
from kactl.decide.state.rows import Rows
from kactl.model import Broker, TopicRef
from kactl.model.errors import KactlError
from kactl.runtime.budget import Budget


class ServedController(Protocol):
    """A controller instance: it accepts requests, and provides the state that responses contain.

    Attributes:
        node_id: the id of this instance.
        active_id: the id of the active controller, as far as this instance knows.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def active_id(self) -> int | None: ...

    @property
    def is_active(self) -> bool: ...

    @property
    def budget(self) -> Budget:
        """The accounts of its clients."""

    async def ask(self, request: ControllerRequest) -> Any:
        """Send a request and wait. Returns its response; raises the KactlErrors that the request documents."""

    def brokers(self) -> list[Broker]:
        """Returns the registered brokers, by id; none while another instance is active."""

    def topics(self) -> list[TopicRef]:
        """Returns all topics, by name."""

    def rows(self, topic: str) -> Rows | None:
        """Returns a copy of a topic's rows, by partition; None if there is no such topic."""

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic; 0 if there is no such topic."""

    async def wait_complete(self, counts: Mapping[str, int], *, timeout_ms: float) -> dict[str, KactlError]:
        """Wait until topics have at least a number of partitions each, all with leaders that have acknowledged their
        orders, and every broker that can be reached knows that.

        Returns:
            The topics for which it did not happen in time, with ActionTimedOut, or with NotController.
        """

    async def wait_gone(self, topic: TopicRef, *, timeout_ms: float) -> None:
        """Wait until the topic with that id is deleted completely.

        Raises:
            ActionTimedOut: it did not happen in time.
            NotController: this instance is not active.
        """

    async def wait_delivered(self, *, timeout_ms: float) -> None:
        """Wait until every broker that can be reached has acknowledged what has changed so far.

        Raises:
            ActionTimedOut, NotController: as for `wait_gone`.
        """

    async def wait_elected(self, results: list[ElectionResult], *, timeout_ms: float) -> list[ElectionResult]:
        """Returns the results of an election once the brokers know the leaders, or at the end of the time.

        Elections that they have not acknowledged by then have REQUEST_TIMED_OUT.

        Raises:
            NotController: this instance is not active.
        """
