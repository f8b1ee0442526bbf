"""The native connection against a scripted server: malformed data, silence, and rejections.

Runs on both event loops that kactl supports.
"""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from kazoo.exceptions import NoNodeError, SystemZookeeperError
from kazoo.protocol.states import KazooState

from kactl.model.errors import BadConfig, SessionExpired, StoreUnavailable
from kactl.runtime.secret import Secret
from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.connection import Credentials
from kactl.stores.zookeeper.connection.native import NativeConnection
from tests.support.fake_mechanism import ROUNDS, FakeMechanism, FakeServer
from tests.support.processes import free_port
from tests.support.store_clients import WAIT_S

from .scripted import (
    PASSWORD,
    SESSION,
    STAT,
    ScriptedServer,
    ServerConnection,
    event,
    node_body,
    response_body,
    serve_reads,
    with_length,
)

pytestmark = pytest.mark.anyio

TIMEOUT_MS = 10_000
XID_MAX = 2**31 - 1


@pytest.fixture(scope="module", params=[pytest.param(False, id="asyncio"), pytest.param(True, id="uvloop")])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class RecordedClient:
    """A client, and all events that it received."""

    def __init__(self, connect: str, *, timeout_ms: int = TIMEOUT_MS, max_in_flight: int = 20) -> None:
        self.told: list[Any] = []
        self.client = Client(
            connect,
            session_timeout_ms=timeout_ms,
            max_in_flight=max_in_flight,
            on_state=self.told.append,
            on_watch=lambda kind, path: self.told.append((kind, path)),
            on_tree=lambda path: self.told.append(path),
        )

    @property
    def connection(self) -> NativeConnection:
        connection = self.client._connection
        assert isinstance(connection, NativeConnection)
        return connection

    async def read(self, path: str, *, watch: bool = False) -> bytes:
        data, stat = await self.client.ask(self.client.get(path, watch=watch))
        assert stat == STAT
        return bytes(data)


async def wait_for(condition: Callable[[], bool]) -> None:
    """Waits for a condition that depends on data over loopback."""
    with anyio.fail_after(WAIT_S):
        while not condition():  # noqa: ASYNC110 - no event signals it
            await anyio.sleep(0.01)


@asynccontextmanager
async def open_story(connect: str, **settings: Any) -> AsyncIterator[RecordedClient]:
    story = RecordedClient(connect, **settings)
    with anyio.fail_after(WAIT_S):
        await story.client.open()
        try:
            yield story
        finally:
            await story.client.close()


async def test_responses_can_arrive_byte_by_byte() -> None:
    async def slowly(line: ServerConnection) -> None:
        await line.hear_greeting()
        await line.say(with_length(struct.pack("!iiqi", 0, 10_000, SESSION, 16) + PASSWORD + b"\0"), piece=1)
        first, second = await line.asked(), await line.asked()
        await line.say(
            response_body(first.xid, node_body(b"one")) + response_body(second.xid, node_body(b"two")), piece=1
        )
        await line.asked()

    async with ScriptedServer(slowly) as server, open_story(server.connect) as story:
        found = await story.client.ask_all([story.client.get("/a"), story.client.get("/b")])

    assert [result[0] for result in found.results] == [b"one", b"two"]


async def test_response_of_ten_megabytes_is_read() -> None:
    data = bytes(range(256)) * 40_000

    async def much(line: ServerConnection) -> None:
        await line.greet()
        await line.say(response_body((await line.asked()).xid, node_body(data)))
        await line.asked()

    async with ScriptedServer(much) as server, open_story(server.connect) as story:
        assert await story.read("/a") == data


GARBAGE = {
    "a frame of -5 bytes": lambda xid: struct.pack("!i", -5),
    "a frame of 2147483647 bytes": lambda xid: struct.pack("!i", 2**31 - 1),
    "a response of 15 bytes": lambda xid: with_length(bytes(15)),
    "but 1 is the next": lambda xid: response_body(xid + 1, node_body(b"wrong")),
    "a response to request -7": lambda xid: response_body(-7),
    "a response to request 0": lambda xid: response_body(0),
    "a response to request 2, but no request is in flight": lambda xid: (
        response_body(xid, node_body(b"right")) + response_body(xid + 1)
    ),
    "an event with a path of 9 bytes": lambda xid: with_length(struct.pack("!iqiiii", -1, -1, 0, 1, 3, 9) + b"/a"),
    "an event with a path of -1 bytes": lambda xid: with_length(struct.pack("!iqiiii", -1, -1, 0, 1, 3, -1) + b"/a"),
    "an event that cannot be decoded": lambda xid: with_length(struct.pack("!iqiiii", -1, -1, 0, 1, 3, 1) + b"\xff"),
    "an event that cannot be decoded: unpack": lambda xid: with_length(struct.pack("!iqi", -1, -1, 0) + b"\0"),
    "the session has ended": lambda xid: response_body(xid, error=-112),
    "the session has moved to another server": lambda xid: response_body(xid, error=-118),
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_malformed_response_closes_the_connection_and_is_logged(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def garble(line: ServerConnection) -> None:
        await line.greet()
        await line.say(GARBAGE[what]((await line.asked()).xid))
        await line.gone()

    async with ScriptedServer(garble, serve_reads) as server, open_story(server.connect) as story:
        found = await story.client.ask_all([story.client.get("/a")])
        with caplog.at_level(logging.INFO):
            await wait_for(lambda: len(server.lines) == 2 and story.client.connected)

        assert found.results == [(b"right" if "no request is in flight" in what else b"/a", STAT)]
        assert found.repeated == (set() if "no request is in flight" in what else {0})
        assert story.told == [KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.CONNECTED]
        again = server.lines[1].greeting
        assert again is not None
        assert (again.session, again.password) == (SESSION, PASSWORD)
        assert await story.read("/b") == b"/b"
    assert what in caplog.text


async def test_connection_closed_within_a_response() -> None:
    async def half(line: ServerConnection) -> None:
        await line.greet()
        await line.say(response_body((await line.asked()).xid, node_body(b"half"))[:-7])

    async with ScriptedServer(half, half, serve_reads) as server, open_story(server.connect) as story:
        found = await story.client.ask_all([story.client.get("/a"), story.client.get("/b")])

        assert [result[0] for result in found.results] == [b"/a", b"/b"]
        assert found.repeated == {0, 1}


async def test_rejected_session_is_replaced_by_a_new_one() -> None:
    async def leave(line: ServerConnection) -> None:
        await line.greet()
        await line.asked()

    async def refuse(line: ServerConnection) -> None:
        await line.greet(session=0, timeout_ms=0, password=bytes(16))
        await line.gone()

    async with ScriptedServer(leave, refuse, serve_reads) as server, open_story(server.connect) as story:
        with pytest.raises(SessionExpired):
            await story.client.ask(story.client.get("/a"))
        await wait_for(lambda: story.client.connected)

        assert story.told == [KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED]
        greetings = [line.greeting for line in server.lines]
        assert [(each.session, each.password) for each in greetings if each] == [
            (0, bytes(16)), (SESSION, PASSWORD), (0, bytes(16)),
        ]  # fmt: skip
        assert await story.read("/a") == b"/a"


async def test_unexpected_session_id_is_a_new_session() -> None:
    async def leave(line: ServerConnection) -> None:
        await line.greet()
        await line.asked()

    async def other(line: ServerConnection) -> None:
        await line.greet(session=8)
        await line.gone()

    async with ScriptedServer(leave, other) as server, open_story(server.connect) as story:
        with pytest.raises(SessionExpired):
            await story.client.ask(story.client.get("/a"))
        await wait_for(lambda: story.client.connected)

        assert story.client.session_id == 8


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (with_length(b""), "0 bytes in response to the handshake"),
        (with_length(struct.pack("!iiqi", 0, 10_000, SESSION, 17) + PASSWORD), "a password of 17 bytes"),
        (with_length(struct.pack("!iiqi", 0, 10_000, SESSION, -2)), "a password of -2 bytes"),
        (struct.pack("!i", -1), "a frame of -1 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame of 1213486160 bytes"),
        (b"", "the server closed it before it granted a session"),
    ],
)
async def test_invalid_handshake_response_is_rejected(greeting: bytes, said: str) -> None:
    async def speak(line: ServerConnection) -> None:
        await line.hear_greeting()
        await line.say(greeting)

    async with ScriptedServer(speak) as server:
        story = RecordedClient(server.connect, timeout_ms=300)
        with pytest.raises(StoreUnavailable, match=f"answered within 0.3 s; last error.*{said}"):
            await story.client.open()


@pytest.mark.parametrize("greets", [False, True])
async def test_reconnection_to_a_closing_server_backs_off(greets: bool) -> None:
    async def hang_up(line: ServerConnection) -> None:
        if greets:
            await line.greet()
        else:
            await line.hear_greeting()

    async with ScriptedServer(hang_up) as server:
        story = RecordedClient(server.connect, timeout_ms=1_000)

        async def read() -> None:
            await story.client.open()
            await story.read("/a")

        with anyio.fail_after(WAIT_S), pytest.raises(StoreUnavailable):
            await read()  # fails after one session timeout, or two
        await story.client.close()

        # Each backoff is longer than the previous one, up to a second.
        assert 2 < len(server.lines) < 20


async def test_read_only_server_is_skipped() -> None:
    async def alone(line: ServerConnection) -> None:
        greeting = await line.greet(read_only=True)
        assert not greeting.read_only
        await line.gone()

    async with ScriptedServer(alone) as minority, ScriptedServer(serve_reads) as majority:
        async with open_story(f"{minority.connect},{majority.connect}") as story:
            assert await story.read("/a") == b"/a"
        story = RecordedClient(minority.connect, timeout_ms=300)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await story.client.open()


async def test_one_reachable_server_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedServer(serve_reads) as server:
        gone = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        async with open_story(",".join([*gone, "name.invalid:2181", server.connect])) as story:
            assert await story.read("/a") == b"/a"


async def test_host_name_is_resolved() -> None:
    async with (
        ScriptedServer(serve_reads) as server,
        open_story(server.connect.replace("127.0.0.1", "localhost")) as story,
    ):
        assert await story.read("/a") == b"/a"


async def test_silent_server_is_pinged_and_then_disconnected() -> None:
    pings = []

    async def deaf(line: ServerConnection) -> None:
        await line.greet(timeout_ms=3_000)  # a busy machine pings in time, too
        try:
            await line.asked(answer_pings=False)
        finally:
            pings.append(line.pings)

    async def polite(line: ServerConnection) -> None:
        await line.greet(timeout_ms=300)
        await line.asked()

    async with ScriptedServer(deaf, polite) as server, open_story(server.connect) as story:
        await wait_for(lambda: len(server.lines) >= 2)
        assert "sent nothing for " in story.connection.trouble
        assert pings in ([1], [2])
        await wait_for(lambda: server.lines[1].pings >= 4)  # beyond the timeout, so the responses were received

        assert len(server.lines) == 2
        assert story.told == [KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.CONNECTED]


async def test_watch_event_precedes_a_later_response() -> None:
    async def fire(line: ServerConnection) -> None:
        await line.greet()
        await line.say(response_body((await line.asked()).xid, node_body(b"old")))
        second, third = await line.asked(), await line.asked()
        await line.say(
            response_body(second.xid, node_body(b"old"))
            + event(3, "/a")
            + event(3, "/unwatched")
            + event(99, "/a")
            + response_body(third.xid, node_body(b"new"))
        )
        await line.asked()

    async with ScriptedServer(fire) as server, open_story(server.connect) as story:
        assert await story.read("/a", watch=True) == b"old"
        done = asyncio.Event()

        def listener(responses: Any) -> None:
            story.told.append(responses.results[0][0])
            if responses.results[0][0] == b"new":
                done.set()

        story.client.submit([story.client.get("/a")], listener)
        story.client.submit([story.client.get("/a")], listener)
        await done.wait()

        assert story.told == [KazooState.CONNECTED, b"old", ("CHANGED", "/a"), b"new"]


async def test_request_numbers_wrap_around() -> None:
    numbers = []

    async def note(line: ServerConnection) -> None:
        await line.greet()
        while True:
            xid, kind, _ = await line.asked()
            numbers.append(xid)
            await line.say(response_body(xid, node_body(b"")))
            if kind == -11:
                return

    async with ScriptedServer(note) as server, open_story(server.connect) as story:
        assert story.connection._connection is not None
        story.connection._connection._xid = XID_MAX - 1
        await story.client.ask_all([story.client.get("/a") for _ in range(4)])

    assert numbers == [XID_MAX - 1, XID_MAX, 1, 2, 3]


async def test_server_with_older_state_is_named_as_such() -> None:
    """It closes the connection, as a server of the secure port does that is addressed in clear text."""

    async def serve(line: ServerConnection) -> None:
        await line.greet()
        await line.say(response_body((await line.asked()).xid, node_body(b""), zxid=2**40))

    async def hang_up(line: ServerConnection) -> None:
        await line.hear_greeting()

    async with ScriptedServer(serve, hang_up) as server, open_story(server.connect) as story:
        await story.read("/a")

        await wait_for(lambda: "granted a session" in story.client.trouble)

        assert "its state is older" in story.client.trouble
        assert "secure port" not in story.client.trouble


async def test_minority_of_servers_with_older_state_is_no_loss_of_data() -> None:
    """They may belong to another ensemble. The session is not replaced by one with them."""

    async def once(line: ServerConnection) -> None:
        await line.greet(timeout_ms=500)
        await line.say(response_body((await line.asked()).xid, node_body(b""), zxid=2**40))

    async def silent(line: ServerConnection) -> None:
        await line.ignore()

    async def hang_up(line: ServerConnection) -> None:
        await line.hear_greeting()

    async with ScriptedServer(once, silent) as own, ScriptedServer(hang_up) as other:
        async with open_story(f"{own.connect},{other.connect}") as story:
            await story.read("/a")
            before = len(other.lines)

            await wait_for(lambda: "1 of 2 servers" in story.client.trouble)

        greetings = [line.greeting for line in other.lines[before:] if line.greeting is not None]
        assert {greeting.zxid for greeting in greetings} == {2**40}


async def test_new_connection_sends_the_last_seen_zxid() -> None:
    async def once(line: ServerConnection) -> None:
        await line.greet()
        await line.say(response_body((await line.asked()).xid, node_body(b""), zxid=2**40))
        await line.say(response_body((await line.asked()).xid, node_body(b""), zxid=-1))

    async with ScriptedServer(once, serve_reads) as server, open_story(server.connect) as story:
        await story.read("/a")
        await story.read("/a")
        await wait_for(lambda: len(server.lines) == 2 and server.lines[1].greeting is not None)

        assert [line.greeting.zxid for line in server.lines if line.greeting] == [0, 2**40]


@pytest.mark.parametrize(("code", "said"), [(-115, "rejects this client"), (-124, "SASL")])
async def test_failed_authentication_is_reported(code: int, said: str) -> None:
    async def forbid(line: ServerConnection) -> None:
        await line.greet()
        await line.say(response_body((await line.asked()).xid, error=code))
        await line.gone()

    async with ScriptedServer(forbid) as server, open_story(server.connect) as story:
        with pytest.raises(StoreUnavailable, match=said):
            await story.read("/a")
        await wait_for(lambda: len(server.lines) >= 2)  # it is retried, for later requests
        assert said in story.connection.trouble


@pytest.mark.parametrize(("code", "kind"), [(-101, NoNodeError), (-9999, SystemZookeeperError)])
async def test_error_responses_fail_their_requests(code: int, kind: type[Exception]) -> None:
    async def fail(line: ServerConnection) -> None:
        await line.greet()
        await line.say(response_body((await line.asked()).xid, error=code))
        await line.asked()

    async with ScriptedServer(fail) as server, open_story(server.connect) as story:
        assert isinstance(await story.client.ask(story.client.get("/a")), kind)
        assert len(server.lines) == 1


async def test_undecodable_response_fails_only_its_request() -> None:
    async def fail(line: ServerConnection) -> None:
        await line.greet()
        await line.say(response_body((await line.asked()).xid, b"\0"))
        await line.say(response_body((await line.asked()).xid, node_body(b"fine")))
        await line.asked()

    async with ScriptedServer(fail) as server, open_story(server.connect) as story:
        with pytest.raises(StoreUnavailable, match="could not be processed"):
            await story.client.ask(story.client.get("/a"))
        assert await story.read("/a") == b"fine"
        assert len(server.lines) == 1


async def test_unacceptable_response_is_reported_with_the_reason() -> None:
    async def too_much(line: ServerConnection) -> None:
        await line.greet()
        await line.asked()
        await line.say(struct.pack("!i", 2**30))
        await line.gone()

    async with ScriptedServer(too_much) as server, open_story(server.connect, timeout_ms=300) as story:
        with pytest.raises(StoreUnavailable, match=r"not answered for 0.6 s; last error.*a frame of 1073741824 bytes"):
            await story.read("/a")


async def test_failing_handler_does_not_lose_other_responses(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedServer(serve_reads) as server, open_story(server.connect) as story:

        def fail(responses: Any) -> None:
            raise RuntimeError("over this")

        story.client.submit([story.client.get("/a")], fail)

        assert await story.read("/b") == b"/b"
        assert len(server.lines) == 1
        assert "over this" in caplog.text


async def test_close_request_is_sent_last() -> None:
    kinds = []

    async def note(line: ServerConnection) -> None:
        await line.greet()
        while True:
            kinds.append((await line.asked()).kind)
            if kinds[-1] == -11:
                return

    async with ScriptedServer(note) as server:
        story = RecordedClient(server.connect)
        await story.client.open()
        failed = []
        story.client.submit([story.client.get("/a")] * 3, lambda responses: failed.append(responses.error))
        await story.client.close()
        await story.client.close()

    assert kinds == [4, 4, 4, -11]
    assert [type(error) for error in failed] == [StoreUnavailable]
    assert story.told == [KazooState.CONNECTED]


async def deaf(line: ServerConnection) -> None:
    await line.greet()
    await line.ignore()


async def never_respond(line: ServerConnection) -> None:
    await line.ignore()


async def test_closed_client_leaves_no_tasks_or_sockets() -> None:
    before = asyncio.all_tasks()

    async with ScriptedServer(deaf) as server:
        story = RecordedClient(server.connect, timeout_ms=300)
        await story.client.open()
        with anyio.fail_after(WAIT_S):
            await story.client.close()  # without a response

    async with ScriptedServer(never_respond) as server:
        story = RecordedClient(server.connect)
        with anyio.move_on_after(0.1) as scope:
            await story.client.open()
        assert scope.cancelled_caught

        story = RecordedClient(server.connect, timeout_ms=300)
        with pytest.raises(StoreUnavailable, match=r"did not answer within 1 s|answered within 0.3 s"):
            await story.client.open()

    story = RecordedClient(f"127.0.0.1:{free_port()}")
    with anyio.move_on_after(0.1) as scope:
        await story.client.open()
    assert scope.cancelled_caught
    with pytest.raises(StoreUnavailable, match="has been closed"):
        await story.read("/a")

    left = asyncio.all_tasks() - before
    assert not [task for task in left if "ZooKeeper" in task.get_name()]


async def test_closing_without_a_connection_is_immediate() -> None:
    async with ScriptedServer(serve_reads) as server:
        story = RecordedClient(server.connect)
        await story.client.open()
    await wait_for(lambda: not story.client.connected)

    with anyio.fail_after(WAIT_S):
        await story.client.close()

    assert story.client.session is None


# -- logins of mechanisms that are no part of kactl -----------------------------------------------------------------


def sasl_body(xid: int, token: bytes) -> bytes:
    return response_body(xid, struct.pack("!i", len(token)) + token)


async def serve_logins(line: ServerConnection, *, rounds: int, ends_with_message: bool) -> None:
    """Log a client in, then answer its reads."""
    server = FakeServer(ends_with_message=ends_with_message)
    await line.greet()
    for _ in range(rounds):
        asked = await line.asked()
        assert asked.kind == 102, "a request before the end of the login"
        (length,) = struct.unpack_from("!i", asked.body)
        assert len(asked.body) == 4 + length
        await line.say(sasl_body(asked.xid, server.reply(asked.body[4:])))
    xid, _, body = await line.asked()
    await line.say(response_body(xid, node_body(body[4:-1])))
    await line.gone()


@pytest.mark.parametrize("ends_with_message", [False, True])
async def test_foreign_mechanism_with_four_rounds_logs_in_before_any_request(ends_with_message: bool) -> None:
    mechanism = FakeMechanism(ends_with_message=ends_with_message)

    async def script(line: ServerConnection) -> None:
        await serve_logins(line, rounds=ROUNDS, ends_with_message=ends_with_message)

    async with ScriptedServer(script) as server:
        credentials = Credentials(mechanism=mechanism)
        client = Client(server.connect, session_timeout_ms=TIMEOUT_MS, max_in_flight=20, credentials=credentials)
        await client.open()
        try:
            assert await client.ask(client.get("/a"))
        finally:
            await client.close()

    assert mechanism.hosts == ["127.0.0.1"]


async def test_foreign_mechanism_that_fails_is_reported_with_its_identity() -> None:
    async def script(line: ServerConnection) -> None:
        await line.greet()
        await line.ignore()

    async with ScriptedServer(script) as server:
        credentials = Credentials(mechanism=FakeMechanism(fails=True))
        client = Client(server.connect, session_timeout_ms=1000, max_in_flight=20, credentials=credentials)
        with pytest.raises(StoreUnavailable, match=r"does not accept sasl:kactl@EXAMPLE: FAKE: .*no ticket"):
            await client.open()
        await client.close()


def test_mechanism_takes_the_place_of_a_password() -> None:
    with pytest.raises(BadConfig, match="takes the place"):
        Credentials(mechanism=FakeMechanism(), username="a", password=Secret("b"))
    with pytest.raises(BadConfig, match="takes the place"):
        Credentials(mechanism=FakeMechanism(), scheme="digest")
    assert not Credentials(mechanism=FakeMechanism()).is_default
