"""A request in the queue of a broker."""

import anyio

from kactl.messages.control import Request, Response


class PendingRequest:
    """A queued request. If `response` is None when `done` is set, no response will follow."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.response: Response | None = None
        self.done = anyio.Event()
