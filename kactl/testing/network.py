"""Simulated network between nodes: request and response over links with drawn delays and faults.

    call ── link ──▶ handler on the target's node ── link ──▶ answer
       └── lost, cut or held: no answer; the caller times out

Every direction between two nodes is a link of its own, so that requests may arrive while answers do not.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from kactl.runtime.error_id import internal_errors, log_error
from kactl.runtime.logs import logger

from .links import Channel, Links
from .loop import SimLoop
from .nodes import NODE, Node, on

log = logger(__name__)

Handler = Callable[[Any], Awaitable[Any]]
# Receives the result of a call, or its error.
Answered = Callable[[Any, Exception | None], object]
KIND: Final = "network"
# Behind the kind of a request: that of its answer.
ANSWER: Final = " answer"


class OpenCall(NamedTuple):
    """A call that a handler has received and not answered.

    Attributes:
        node: the process that received it.
        message: what was sent.
        since_s: virtual time of its arrival.
    """

    node: Node
    message: Any
    since_s: float


class Unreachable(Exception):
    """A call got no answer. The target may have carried it out."""


class _Nothing:
    """Type of no message."""


class _Listener(NamedTuple):
    node: Node
    handler: Handler
    inline: Callable[[Any], Any] | None
    inlined: type


class Network:
    """Calls between nodes, and the handlers of the nodes.

    Args:
        links: of the kind `network`.
    """

    def __init__(self, loop: SimLoop, links: Links) -> None:
        self._loop = loop
        self._links = links
        self._handlers: dict[str, _Listener] = {}
        self._loss = 0.0
        self._numbers = itertools.count(1)
        self._delivered: dict[tuple[str, str], int] = {}  # number of the last message without an answer
        self._open: dict[int, OpenCall] = {}
        self._error_numbers = itertools.count(1)

    def listen(
        self, node: Node, handler: Handler, *, inline: Callable[[Any], Any] | None = None, inlined: type = _Nothing
    ) -> None:
        """Accept calls to the name of a node; they run on it. A later node of that name replaces an earlier one.

        Args:
            inline: answers messages of the type `inlined` at once, without a task of its own.
        """
        self._handlers[node.name] = _Listener(node, handler, inline, inlined)

    def close(self, node: Node) -> None:
        """Refuse calls to a node."""
        listener = self._handlers.get(node.name)
        if listener is not None and listener.node is node:
            del self._handlers[node.name]

    def internal_errors(self, message: Any) -> AbstractContextManager[None]:
        """Answer a message to a controller as real networks do: with InternalError in place of a bug of the block, and
        with the id of the bug in the log."""
        return internal_errors(log, "a request could not be answered: %s", _kind(message), new_id=self._error_id)

    def log_error(self, error: Exception, message: Any) -> str:
        """Log an unexpected exception of a receiver. Returns its id, as `kactl.runtime.error_id.log_error`."""
        return log_error(log, error, "a message could not be handled: %s", _kind(message), new_id=self._error_id)

    def _error_id(self) -> str:
        return f"{next(self._error_numbers):012x}"

    async def call(self, target: str, message: Any, *, timeout_ms: float) -> Any:
        """Send a message from the current node and wait for the answer.

        Raises:
            Unreachable: no answer arrived within the time limit, or the target does not run.
            Exception: what the handler raised.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()

        def answered(result: Any, error: Exception | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)
                answer.exception()  # retrieved, also if the caller has gone

        late = self.post(target, message, answered, timeout_ms=timeout_ms)
        try:
            return await answer
        finally:
            late.cancel()

    def post(self, target: str, message: Any, then: Answered, *, timeout_ms: float) -> asyncio.TimerHandle:
        """Send a message from the current node, and call a function there with the answer.

        Args:
            then: called with `Unreachable` as the error, perhaps besides the answer, if there is none in time.

        Returns:
            The timer of the time limit. A caller that waits for one answer cancels it.
        """
        node = NODE.get()
        assert node is not None, "calls come from nodes"
        to_target = self.channel(node.name, target)
        to_target.send(lambda: self._arrive(node, target, message, then), to=None, kind=_kind(message))
        error = Unreachable(f"no answer of {target} within {timeout_ms:g} ms")
        return self._loop.call_later(timeout_ms / 1000, then, None, error)

    def send(self, target: str, message: Any) -> None:
        """Send a message from the current node without an answer.

        It is lost if a later one overtakes it, so that messages from one node to another arrive in order.
        """
        node, number = NODE.get(), next(self._numbers)
        assert node is not None, "messages come from nodes"
        self.channel(node.name, target).send(lambda: self._deliver(node, target, message, number), to=None)

    def channel(self, source: str, target: str) -> Channel:
        """Returns the link from one node to another, by their names.

        Messages of different connections overtake each other; a connection has one message in flight.
        """
        channel = self._links.channel(KIND, source, target, ordered=False)
        channel.loss = self._loss
        return channel

    def unanswered(self) -> list[OpenCall]:
        """Returns the calls that wait for an answer of a process that runs, also if their caller has given up."""
        self._open = {number: call for number, call in self._open.items() if call.node.state != "killed"}
        return [call for call in self._open.values() if call.node.state == "running"]

    def lose(self, rate: float) -> None:
        """Lose messages of all links with a probability."""
        self._loss = rate

    def _arrive(self, source: Node, target: str, message: Any, then: Answered) -> None:
        """Start the handler of a message on its node."""
        listener = self._handlers.get(target)
        if listener is None or listener.node.state == "killed":
            refused = Unreachable(f"{target} does not run")
            self.channel(target, source.name).send(lambda: then(None, refused), to=source)
        elif listener.inline is not None and isinstance(message, listener.inlined):
            answer = listener.inline

            def answer_now() -> None:
                result = answer(message)
                back = self.channel(target, source.name)
                back.send(lambda: then(result, None), to=source, kind=_kind(message) + ANSWER)

            self._links.call_at(self._loop.now_s, answer_now, on=listener.node)
        else:
            with on(listener.node):
                handling = self._handle(source, listener, message, then)
                self._loop.create_task(handling, name=f"call of {source.name}")

    def _deliver(self, source: Node, target: str, message: Any, number: int) -> None:
        listener = self._handlers.get(target)
        link = (source.name, target)
        if listener is None or listener.node.state == "killed" or number < self._delivered.get(link, 0):
            return
        self._delivered[link] = number

        async def handle() -> None:
            await listener.handler(message)

        with on(listener.node):
            self._loop.create_task(handle(), name=f"message of {source.name}")

    async def _handle(self, source: Node, listener: "_Listener", message: Any, then: Answered) -> None:
        result, error = None, None
        number = next(self._numbers)
        self._open[number] = OpenCall(listener.node, message, self._loop.now_s)
        try:
            result = await listener.handler(message)
        except Exception as failed:
            error = failed
        del self._open[number]
        back = self.channel(listener.node.name, source.name)
        back.send(lambda: then(result, error), to=source, kind=_kind(message) + ANSWER)


def _kind(message: Any) -> str:
    """Returns the kind of a message, for faults that concern one kind: the type of the request in it."""
    return type(getattr(message, "request", message)).__name__
