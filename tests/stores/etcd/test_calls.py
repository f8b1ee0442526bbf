"""Calls of members of etcd: of those that stop, take over, or are silent, and of servers that send something else."""

import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kactl.model.errors import StoreUnavailable
from kactl.stores.etcd import calls as calls_module
from kactl.stores.etcd import http2
from kactl.stores.etcd.calls import RANGE, TXN, WATCH, Calls, EtcdError

from .member import Member, Served

pytestmark = pytest.mark.anyio

# A hang; nothing lasts so long.
LIMIT_MS = 60_000
# Their acknowledgements exceed what the sockets hold.
PINGS = 60_000
# Of calls that wait for it.
SHORT_MS = 300
LOOPS = [("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Their transports differ."""
    return request.param


@pytest.fixture
async def members() -> AsyncIterator[tuple[Member, Member]]:
    """Two members. The calls of the fixture below begin with the first one."""
    async with Member() as first, Member() as second:
        yield first, second


@pytest.fixture
async def calls(members: tuple[Member, Member]) -> AsyncIterator[Calls]:
    urls = [member.url for member in members]
    async with Calls(urls, limit_ms=LIMIT_MS, rng=random.Random(0)) as calls:
        calls._endpoints = urls
        yield calls


@pytest.fixture
def member(members: tuple[Member, Member], calls: Calls) -> Member:
    """The only member."""
    calls._endpoints = [members[0].url]
    return members[0]


# As seen while a member stops, while its leader hands over to another one, and in general.
UNDECIDED = [
    (1, "grpc: the client connection is closing"),
    (2, "raft proposal dropped"),
    (4, "context deadline exceeded"),
    (10, "etcdserver: aborted"),
    (13, "stream terminated by RST_STREAM"),
    (14, "etcdserver: leader changed"),
]


@pytest.mark.parametrize(("code", "error"), UNDECIDED)
async def test_read_that_a_member_gives_up_is_repeated_at_another(
    calls: Calls, members: tuple[Member, Member], code: int, error: str
) -> None:
    first, second = members
    first.fail(code, error)

    assert await calls.read(RANGE, b"x") == b""

    assert (first.requests, second.requests) == ([RANGE], [RANGE])


@pytest.mark.parametrize(("code", "error"), UNDECIDED)
async def test_outcome_of_a_write_that_a_member_gives_up_is_unknown(
    calls: Calls, members: tuple[Member, Member], code: int, error: str
) -> None:
    first, second = members
    first.fail(code, error)

    with pytest.raises(StoreUnavailable, match=error.removeprefix("etcdserver: ")):
        await calls.write(TXN, b"x")

    assert (first.requests, second.requests) == ([TXN], [])


async def watched(calls: Calls) -> list[bytes]:
    return [response async for response in calls.responses(WATCH, b"x")]


@pytest.mark.parametrize(("code", "error"), UNDECIDED)
async def test_watch_that_a_member_gives_up_is_opened_at_another(
    calls: Calls, members: tuple[Member, Member], code: int, error: str
) -> None:
    first, second = members
    first.fail(code, error)

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await watched(calls)

    assert (first.requests, second.requests) == ([WATCH], [WATCH])
    # The member ends the watch if it is cut off from the others.
    assert second.headers[0]["hasleader"] == "true"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (3, "etcdserver: request is too large"),
        (5, "etcdserver: requested lease not found"),
        (7, "etcdserver: permission denied"),
        (8, "etcdserver: mvcc: database space exceeded"),
        (11, "etcdserver: mvcc: required revision has been compacted"),
    ],
)
async def test_rejection_is_no_outage(calls: Calls, members: tuple[Member, Member], code: int, error: str) -> None:
    first, second = members
    first.fail(code, error)

    for call in (calls.read, calls.write):
        with pytest.raises(EtcdError) as raised:
            await call(TXN, b"x")
        assert raised.value.grpc_code == code

    assert (first.requests, second.requests) == ([TXN, TXN], [])


async def test_text_of_a_rejection_is_decoded(calls: Calls, member: Member) -> None:
    member.fail(3, "etcdserver: %C3%A9t%C3%A9%0A%zz%FF")

    with pytest.raises(EtcdError, match=r"^etcd: \u00e9t\u00e9\n%zz\ufffd$"):
        await calls.write(TXN, b"x")


# -- writes that were not executed


async def test_write_that_a_member_turned_away_is_sent_to_another(calls: Calls, members: tuple[Member, Member]) -> None:
    first, second = members
    first.respond = Served.refuse

    assert await calls.write(TXN, b"x") == b""

    assert (first.requests, second.requests) == ([TXN], [TXN])


async def test_write_after_the_last_one_of_a_stopping_member_is_sent_to_another(
    calls: Calls, members: tuple[Member, Member]
) -> None:
    first, second = members
    first.respond = lambda served, number: served.go_away(number - 1)

    assert await calls.write(TXN, b"x") == b""

    assert (first.requests, second.requests) == ([TXN], [TXN])


async def test_outcome_of_the_last_write_of_a_stopping_member_is_unknown(
    calls: Calls, members: tuple[Member, Member]
) -> None:
    first, second = members
    first.respond = Served.go_away

    with pytest.raises(StoreUnavailable, match="the server ended the connection"):
        await calls.write(TXN, b"x")

    assert (first.requests, second.requests) == ([TXN], [])


async def test_outcome_of_a_write_over_a_broken_connection_is_unknown(
    calls: Calls, members: tuple[Member, Member]
) -> None:
    first, second = members
    first.respond = lambda served, number: served.transport.abort()

    with pytest.raises(StoreUnavailable):
        await calls.write(TXN, b"x")

    assert (first.requests, second.requests) == ([TXN], [])
    assert await calls.write(TXN, b"x") == b""


# -- connections


async def test_calls_share_a_connection_and_wait_for_a_free_stream(calls: Calls, member: Member) -> None:
    member.streams_max = 2
    assert await calls.read(RANGE, b"x") == b""  # the limit is known from here on
    held: list[tuple[Served, int]] = []
    member.respond = lambda *call: held.append(call)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(calls.read, RANGE, b"x")
        answered = 0
        while answered < 5:
            await anyio.wait_all_tasks_blocked()
            assert len(held) - answered <= 2
            for served, number in held[answered:]:
                served.send(number, b"")
                answered += 1

    assert len(member.connections) == 1


@pytest.mark.parametrize("size", [0, 1, 70_000, 20_000_000])
async def test_messages_of_any_size_pass_both_ways(calls: Calls, member: Member, size: int) -> None:
    message = random.Random(size).randbytes(size)
    member.respond = lambda served, number: served.send(number, bytes(served.requests[number][5:]))

    for _ in range(4):  # windows are made up for
        assert await calls.read(RANGE, message) == message


async def test_stream_of_responses_is_passed_on_and_cancelled(calls: Calls, member: Member) -> None:
    parts = [bytes([number]) * 1_000_000 for number in range(20)]
    member.respond = lambda served, number: served.send(number, *parts)

    responses = calls.responses(WATCH, b"x")
    read = [await anext(responses) for _ in range(3)]
    await responses.aclose()
    assert await calls.read(RANGE, b"x") == parts[0]

    assert read == parts[:3]
    assert member.connections[0].cancelled == 1
    with pytest.raises(StoreUnavailable, match="the server ended the response"):
        await watched(calls)


async def test_unread_responses_do_not_exhaust_the_connection(calls: Calls, member: Member) -> None:
    """What was sent for cancelled calls does not count for ever."""

    def respond(served: Served, number: int) -> None:
        served.send(number, b"", *([bytes(4 << 20)] if served.paths[number] == WATCH else []))

    member.respond = respond

    for _ in range(30):
        responses = calls.responses(WATCH, b"x")
        await anext(responses)
        await calls.read(RANGE, b"x")  # arrives behind what is unread
        await responses.aclose()

    assert len(member.connections) == 1


async def test_rejected_watches_leave_their_streams(calls: Calls, member: Member) -> None:
    member.streams_max = 2
    member.fail(14, "etcdserver: no leader")

    for _ in range(4):
        with pytest.raises(StoreUnavailable, match="no leader"):
            await watched(calls)
    member.respond = lambda served, number: served.send(number, b"")

    assert await calls.read(RANGE, b"x") == b""
    assert len(member.connections) == 1


async def test_rejection_of_an_incomplete_request_is_reported(calls: Calls, member: Member) -> None:
    """As of one that is too large: the rest of it need not be sent."""
    member.reads = False
    member.fail(8, "grpc: received message larger than max")
    member.responds_early = True

    with pytest.raises(EtcdError, match="larger than max"):
        await calls.write(TXN, bytes(1 << 20))


async def test_late_failure_leaves_no_other_member(calls: Calls, members: tuple[Member, Member]) -> None:
    first, second = members
    held: list[tuple[Served, int]] = []
    async with Member() as third, anyio.create_task_group() as tasks:
        calls._endpoints.append(third.url)
        calls._connecting.append(anyio.Lock())
        first.respond = lambda *call: held.append(call)
        tasks.start_soon(calls.read, RANGE, b"x")
        while not held:
            await anyio.wait_all_tasks_blocked()
        first.fail(14, "etcdserver: leader changed")
        second.fail(14, "etcdserver: leader changed")
        await calls.read(RANGE, b"x")

        first.respond(*held[0])
        held[0][0].flush()

    assert (len(first.requests), len(second.requests), len(third.requests)) == (2, 1, 2)


async def test_cancelled_call_leaves_its_connection(calls: Calls, member: Member) -> None:
    member.respond = lambda served, number: None

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(calls.write, TXN, b"x")
        while not (member.connections and member.connections[0].requests):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    member.respond = lambda served, number: served.send(number, b"")

    assert await calls.write(TXN, b"x") == b""
    assert [served.cancelled for served in member.connections] == [1]


async def test_silent_connection_is_given_up(calls: Calls, member: Member) -> None:
    """Another one may be answered: the first may be forgotten by a firewall between them."""
    calls.limit_s = SHORT_MS / 1000
    assert await calls.read(RANGE, b"x") == b""
    (silent,) = member.connections
    member.respond = lambda served, number: None if served is silent else served.send(number, b"")

    assert await calls.read(RANGE, b"x") == b""

    assert len(member.connections) == 2


async def test_slow_response_leaves_the_connection_if_others_arrive(calls: Calls, member: Member) -> None:
    calls.limit_s = SHORT_MS / 1000

    def respond(served: Served, number: int) -> None:
        if served.paths[number] == WATCH:
            served.frames.send_headers(number, [(":status", "200")])
        else:
            served.frames.ping(bytes(8))

    member.respond = respond
    responses = calls.responses(WATCH, b"x")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, responses)
        with pytest.raises(StoreUnavailable):
            await calls.read(RANGE, b"x")
        tasks.cancel_scope.cancel()

    assert len(member.connections) == 1


async def test_connection_that_cannot_be_opened_is_given_up(calls: Calls, members: tuple[Member, Member]) -> None:
    """As behind a firewall that discards packets. A watch has no time limit of its own."""
    calls.limit_s = SHORT_MS / 1000
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as stack:
        for _ in range(3):  # more than wait to be accepted
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        calls._endpoints[0] = f"http://127.0.0.1:{full.getsockname()[1]}"

        with anyio.fail_after(LIMIT_MS / 1000), pytest.raises(StoreUnavailable, match="no connection within"):
            await watched(calls)

        assert await calls.write(TXN, b"x") == b""  # at the other member


# -- servers that are not etcd


def compressed(served: Served, number: int) -> None:
    served.frames.send_headers(number, [(":status", "200")])
    served.frames.send_data(number, b"\1\0\0\0\1x")


def huge(served: Served, number: int) -> None:
    served.frames.send_headers(number, [(":status", "200")])
    served.frames.send_data(number, b"\0\xff\xff\xff\xffx")


def cut_short(served: Served, number: int) -> None:
    served.frames.send_headers(number, [(":status", "200")])
    served.frames.send_data(number, b"\0\0\0\0\5x")
    served.frames.send_headers(number, [("grpc-status", "0")], end_stream=True)


def responds(*headers: tuple[str, str]) -> Callable[[Served, int], None]:
    return lambda served, number: served.frames.send_headers(number, list(headers), end_stream=True)


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (compressed, "a compressed response, which is not etcd's"),
        (huge, "a response of 4294967295 bytes, which is not etcd's"),
        (cut_short, "the response ends within a message"),
        (responds((":status", "502")), "HTTP status 502, which is not etcd's"),
        (responds((":status", "404"), ("grpc-status", "0")), "HTTP status 404, which is not etcd's"),
        (responds((":status", "200")), "a response without a status, which is not etcd's"),
        (responds((":status", "200"), ("grpc-status", "-1")), "a response without a status, which is not etcd's"),
        (responds((":status", "200"), ("grpc-status", "0")), "a response without a message, which is not etcd's"),
    ],
)
async def test_other_responses_are_outages(
    calls: Calls, member: Member, respond: Callable[[Served, int], None], reason: str
) -> None:
    member.respond = respond

    with pytest.raises(StoreUnavailable, match=reason):
        await calls.write(TXN, b"x")
    member.respond = lambda served, number: served.send(number, b"")

    assert await calls.write(TXN, b"x") == b""
    assert len(member.connections) == 1


async def test_largest_response_is_read(calls: Calls, member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "RESPONSE_BYTES_MAX", 1_000)
    member.respond = lambda served, number: served.send(number, bytes(1_000 + (len(member.requests) > 1)))

    assert len(await calls.write(RANGE, b"x")) == 1_000
    with pytest.raises(StoreUnavailable, match="a response of 1001 bytes"):
        await calls.write(RANGE, b"x")


@pytest.mark.parametrize("raw", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46", bytes(100)])
async def test_server_without_http2_is_reported(calls: Calls, member: Member, raw: bytes) -> None:
    member.raw = raw

    with pytest.raises(StoreUnavailable, match="the server does not speak HTTP/2"):
        await calls.write(TXN, b"x")


async def test_broken_protocol_ends_the_connection(calls: Calls, member: Member) -> None:
    member.respond = lambda served, number: served.transport.write(bytes(9))  # data for no stream

    with pytest.raises(StoreUnavailable, match="the server does not speak HTTP/2 as etcd does"):
        await calls.write(TXN, b"x")


async def test_server_that_sends_but_does_not_read_is_given_up(
    calls: Calls, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "UNSENT_BYTES_MAX", 10_000)
    assert await calls.read(RANGE, b"x") == b""
    (connection,) = calls._opened().values()
    assert connection._transport is not None
    connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)

    def flood(served: Served, number: int) -> None:
        served.transport.pause_reading()
        for _ in range(PINGS):
            served.frames.ping(bytes(8))

    member.respond = flood

    with pytest.raises(StoreUnavailable, match="the server sends, but does not read"):
        await calls.write(TXN, b"x")


async def test_unread_request_waits(calls: Calls, member: Member) -> None:
    """A large request to a server that does not read occupies no more memory than the window that it gave."""
    member.reads = False
    calls.limit_s = SHORT_MS / 1000

    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await calls.write(TXN, bytes(1 << 20))

    assert [len(data) for served in member.connections for data in served.requests.values()] == [65_535]
