"""Requests on their way, and what came of those that were sent together."""

from collections.abc import Callable
from typing import Any

from kactl.errors import KactlError


class Responses:
    """What came of some requests that were sent together.

    Attributes:
        results: in the order of the requests, what ZooKeeper answered or its error as an object.
        repeated: the positions of requests that were lost with a connection and sent again.
    """

    def __init__(self, count: int, finished: Callable[["Responses"], None]) -> None:
        self.results: list[Any] = [None] * count
        self.repeated: set[int] = set()
        self.error: KactlError | None = None
        self.missing = count
        self.over = False  # answered, failed or given up: what still comes is of no interest
        self._finished = finished

    def put(self, at: int, result: Any) -> None:
        self.results[at] = result
        self.missing -= 1
        if not self.missing:
            self.finish()

    def finish(self, error: KactlError | None = None) -> None:
        if not self.over:
            self.over, self.error = True, error
            self._finished(self)


class Call:
    """One request on its way."""

    __slots__ = ("at", "request", "responses")

    def __init__(self, request: Any, responses: Responses, at: int) -> None:
        self.request = request
        self.responses = responses
        self.at = at
