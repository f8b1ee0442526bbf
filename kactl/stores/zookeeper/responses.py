"""Requests in flight, and the responses to requests that were sent together."""

from collections.abc import Callable
from typing import Any

from kactl.model.errors import KactlError


class Responses:
    """The results of requests that were sent together.

    Attributes:
        results: in the order of the requests: ZooKeeper's response, or its error as an object.
        repeated: the indexes of requests that were lost with a connection and sent again.
    """

    def __init__(self, count: int, finished: Callable[["Responses"], None]) -> None:
        self.results: list[Any] = [None] * count
        self.repeated: set[int] = set()
        self.error: KactlError | None = None
        self.missing = count
        self.over = False  # complete, failed or abandoned: later results are ignored
        self._finished = finished

    def put(self, index: int, result: Any) -> None:
        self.results[index] = result
        self.missing -= 1
        if not self.missing:
            self.finish()

    def finish(self, error: KactlError | None = None) -> None:
        if not self.over:
            self.over, self.error = True, error
            self._finished(self)


class Call:
    """One request in flight."""

    __slots__ = ("index", "request", "responses")

    def __init__(self, request: Any, responses: Responses, index: int) -> None:
        self.request = request
        self.responses = responses
        self.index = index
