"""The queue of a broker's requests: its limit, its end, and the response to each sender."""

import anyio
import pytest

from kactl.decide.messages.control import Request, Response, UpdateMetadataResponse
from kactl.model.errors import BrokerUnreachable
from kactl.participant.queues import REQUESTS_LIMIT, RequestQueue
from tests.support.clocks import settle
from tests.support.control_requests import update_metadata

pytestmark = pytest.mark.anyio


class Senders:
    """Requests that wait in a queue, with the responses and errors that they have received."""

    def __init__(self, queue: RequestQueue, tasks: anyio.abc.TaskGroup) -> None:
        self._queue = queue
        self._tasks = tasks
        self.responses: list[Response] = []
        self.errors: list[str] = []

    async def send(self, count: int) -> None:
        for _ in range(count):
            self._tasks.start_soon(self._put, update_metadata())
        await settle()

    async def _put(self, request: Request) -> None:
        try:
            self.responses.append(await self._queue.put(request))
        except BrokerUnreachable as error:
            self.errors.append(str(error))


async def test_request_beyond_the_limit_is_refused() -> None:
    queue = RequestQueue(1)
    async with anyio.create_task_group() as tasks:
        senders = Senders(queue, tasks)
        await senders.send(REQUESTS_LIMIT)
        assert senders.errors == []

        await senders.send(1)

        assert ["queue is full" in error for error in senders.errors] == [True]
        tasks.cancel_scope.cancel()


async def test_response_goes_to_the_sender_of_the_current_request() -> None:
    queue = RequestQueue(1)
    async with anyio.create_task_group() as tasks:
        senders = Senders(queue, tasks)
        await senders.send(2)
        current = queue.take()
        assert current is not None
        current.response = UpdateMetadataResponse(error=0)

        queue.finish(current)
        await settle()

        assert senders.responses == [UpdateMetadataResponse(error=0)]
        tasks.cancel_scope.cancel()


async def test_end_fails_the_current_request_and_all_others() -> None:
    queue = RequestQueue(1)
    async with anyio.create_task_group() as tasks:
        senders = Senders(queue, tasks)
        await senders.send(3)
        queue.take()

        queue.end()
        await senders.send(1)

        assert len(senders.errors) == 4
        assert queue.take() is None
        tasks.cancel_scope.cancel()
