"""The event stream: start and resumption, filters, limits, and clients that do not read."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec
import pytest

from kactl.admin import event_stream as stream
from kactl.admin import server as server_module
from kactl.admin.limits import Capacity
from kactl.admin.schema import AnyEvent
from kactl.decide.messages import log as history_events
from kactl.decide.messages.log import BrokerEvent
from tests.admin.conftest import Served, served
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


class Blocks:
    """Blocks of a stream, in order."""

    def __init__(self, response: Any) -> None:
        self.response = response

    async def next(self) -> dict[str, str]:
        """Returns the fields of one block; a comment has the empty name."""
        block: dict[str, str] = {}
        with anyio.fail_after(PATIENCE_S):
            while (line := (await self.response.content.readline()).decode()) not in ("\n", ""):
                name, _, value = line.rstrip("\n").partition(": ")
                block[name] = value
        return block

    async def event(self) -> AnyEvent:
        block = await self.next()
        event: AnyEvent = msgspec.json.decode(block["data"], type=AnyEvent)
        assert block["event"] == event.__struct_config__.tag
        assert block["id"] == str(event.seq)
        return event


@contextlib.asynccontextmanager
async def open_stream(server: Served, query: str = "", **headers: str) -> AsyncIterator[Blocks]:
    async with server.http.get(f"{server.url}/v1/events/stream{query}", headers=headers) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        yield Blocks(response)


async def test_new_stream_starts_with_new_events(server: Served) -> None:
    seq = server.controller.history.seq
    async with open_stream(server) as blocks:
        assert await blocks.next() == {"retry": "2000", "id": str(seq)}

        await server.controller.create_topic("new")

        event = await blocks.event()
        assert (event.seq, event.__struct_config__.tag) == (seq + 1, "topic")


async def test_streams_at_the_same_position_share_one_frame(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    frame = stream._frame

    def noted(event: history_events.AnyEvent) -> bytes:
        encoded.append(event.seq)
        return frame(event)

    monkeypatch.setattr(stream, "_frame", noted)
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(open_stream(server)) for _ in range(5)]
        for blocks in streams:
            await blocks.next()
        seq = server.controller.history.seq
        for _ in range(3):
            server.controller.history.add(BrokerEvent(what="failed", broker=1, broker_epoch=1))

        for blocks in streams:
            assert [(await blocks.event()).seq for _ in range(3)] == [seq + 1, seq + 2, seq + 3]

    assert encoded == [seq + 1, seq + 2, seq + 3]


async def test_stream_resumes_after_the_last_event_id(server: Served) -> None:
    first = server.controller.history.oldest
    async with open_stream(server, **{"Last-Event-ID": str(first + 1)}) as blocks:
        assert (await blocks.next())["id"] == str(first + 1)
        assert [(await blocks.event()).seq for _ in range(3)] == [first + 2, first + 3, first + 4]


async def test_last_event_id_takes_precedence_over_after(server: Served) -> None:
    first = server.controller.history.oldest
    async with open_stream(server, f"?after={first}", **{"Last-Event-ID": str(first + 3)}) as blocks:
        await blocks.next()
        assert (await blocks.event()).seq == first + 4


async def test_stream_can_start_after_any_event(server: Served) -> None:
    async with open_stream(server, "?after=0") as blocks:
        await blocks.next()
        history = server.controller.history
        numbers = list(range(history.oldest, history.seq + 1))
        seen = [await blocks.event() for _ in numbers]

    assert [event.seq for event in seen] == numbers
    assert seen[0].__struct_config__.tag == "controller"


async def test_stream_is_filtered_by_kind(server: Served) -> None:
    async with open_stream(server, "?after=0&kinds=topic&kinds=controller") as blocks:
        await blocks.next()
        assert [(await blocks.event()).__struct_config__.tag for _ in range(2)] == ["controller", "topic"]

        await server.controller.create_topic("new")

        assert (await blocks.event()).__struct_config__.tag == "topic"


async def test_late_reader_receives_a_reset(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    history = server.controller.history
    monkeypatch.setattr(history, "_limit", 2)
    await server.controller.create_topic("new")

    async with open_stream(server, **{"Last-Event-ID": "1"}) as blocks:
        await blocks.next()
        reset = await blocks.event()

        assert (reset.__struct_config__.tag, reset.seq) == ("reset", history.oldest - 1)
        assert (await blocks.event()).seq == history.oldest


async def test_number_of_another_process_is_a_reset(server: Served) -> None:
    async with open_stream(server, **{"Last-Event-ID": str(server.controller.history.seq + 1000)}) as blocks:
        await blocks.next()
        reset = await blocks.event()

        assert (reset.__struct_config__.tag, reset.seq) == ("reset", server.controller.history.seq)


@pytest.mark.parametrize("id_", ["x", "-1", "1.5", "9" * 30])
async def test_invalid_last_event_id_is_rejected(server: Served, id_: str) -> None:
    answer = await server.get("/v1/events/stream", headers={"Last-Event-ID": id_})

    assert answer.status == 400
    assert answer.json()["errors"][0]["header"] == "Last-Event-ID"


async def test_idle_stream_receives_pings(server: Served) -> None:
    async with open_stream(server) as blocks:
        await blocks.next()
        for _ in range(2):
            await server.clock.advance(stream.PING_MS)

            assert await blocks.next() == {"": "ping"}


async def test_closed_idle_stream_leaves_no_task(server: Served) -> None:
    async with open_stream(server) as blocks:
        await blocks.next()
        await settle()
        waiting, tasks = len(server.controller.history._waiting), len(asyncio.all_tasks())

        for _ in range(5):
            await server.clock.advance(stream.PING_MS)
            await blocks.next()
        await settle()

        assert len(server.controller.history._waiting) == waiting
        assert len(asyncio.all_tasks()) == tasks


async def test_stream_waits_without_polling(server: Served) -> None:
    async with open_stream(server) as blocks:
        await blocks.next()
        await server.controller.create_topic("new")
        await blocks.event()

        await settle()  # fails if a task never waits


async def test_number_of_streams_is_limited() -> None:
    async with served(capacity=Capacity(streams=1)) as server, open_stream(server) as blocks:
        await blocks.next()

        refused = await server.get("/v1/events/stream")

        assert refused.status == 503
        assert refused.json()["title"] == "Too many streams"
        assert refused.json()["retriable"]


async def test_disconnected_client_frees_its_stream() -> None:
    async with served(capacity=Capacity(streams=1)) as server:
        async with open_stream(server) as blocks:
            await blocks.next()
            blocks.response.close()

        with anyio.fail_after(PATIENCE_S):
            while True:
                await server.clock.advance(stream.PING_MS)
                async with server.http.get(f"{server.url}/v1/events/stream") as again:
                    if again.status == 200:
                        break
                    assert again.status == 503


async def test_stream_client_that_does_not_read_is_cut(server: Served) -> None:
    url = urlsplit(server.url)
    sockets = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
    before = len(sockets)
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1024)
    writer.write(f"GET /v1/events/stream HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())
    await reader.readuntil(b"retry: ")
    for _ in range(16_000):  # more than the buffers of both ends and of the kernel can hold
        server.controller.history.add(BrokerEvent(what="x" * 1_000, broker=1, broker_epoch=1))
    received = 0
    for _ in range(5):
        await server.clock.advance(stream.STALLED_MS)

    # The server has closed the connection although there is more to send. The client does not read: its end is open.
    assert len(sockets) == before
    with anyio.fail_after(PATIENCE_S), contextlib.suppress(ConnectionError):
        while content := await reader.read(1 << 20):
            received += len(content)

    assert 0 < received < 16_000 * 1_000
    writer.close()


async def test_stream_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SHUTDOWN_TIMEOUT_S", 3600)
    async with aiohttp.ClientSession() as http:
        with anyio.fail_after(PATIENCE_S):
            async with served() as server:
                response = await http.get(f"{server.url}/v1/events/stream")
                await Blocks(response).next()

            assert await response.content.read() == b""
