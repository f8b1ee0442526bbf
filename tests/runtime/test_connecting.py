"""Connections to hosts with several addresses, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest

from kactl.runtime import connecting
from kactl.runtime.connecting import NoAddressAnswers, NotCompleted, connect
from kactl.runtime.resolver import Resolved
from tests.support.host_names import ALIVE, DEAD, NAME, Names, free_port, silent_address

pytestmark = pytest.mark.anyio

LIMIT_S = 60.0
OTHER = "127.0.0.4"


@pytest.fixture(scope="module", params=[pytest.param(False, id="asyncio"), pytest.param(True, id="uvloop")])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """Names whose addresses are tried in the given order."""
    monkeypatch.setattr(connecting, "_rng", InOrder())
    with Names() as names:
        yield names


class InOrder:
    def shuffle(self, addresses: list[Any]) -> None: ...


class Peer:
    """A server that greets, or does something else."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> None:
        self._serve = serve
        self.accepted = 0
        self.ended = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            await self._serve(reader, writer)
            with contextlib.suppress(ConnectionError):
                await reader.read()
        finally:
            self.ended += 1
            writer.close()


async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")


async def stays_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@contextlib.asynccontextmanager
async def listening(host: str, port: int, serve: Callable[..., Any] = greets) -> AsyncIterator[Peer]:
    peer = Peer(serve)
    async with await asyncio.start_server(peer, host, port):
        yield peer


async def greeted(opened: socket.socket) -> str:
    """Complete a connection by reading a greeting. Returns the address of the peer."""
    reader, writer = await asyncio.open_connection(sock=opened)
    try:
        await reader.readexactly(5)
        return str(writer.get_extra_info("peername")[0])
    finally:
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - depends on data over loopback
            await anyio.sleep(0.01)


async def test_silent_address_does_not_delay_the_next_one(names: Names) -> None:
    names.addresses[NAME] = [DEAD, ALIVE]
    port = free_port(DEAD, ALIVE)
    with silent_address(DEAD, port):
        async with listening(ALIVE, port):
            # The test fails by its time limit, as does a connection that waits for the first address.
            with anyio.fail_after(LIMIT_S):
                assert await connect(NAME, port, greeted, limit_s=10 * LIMIT_S) == ALIVE


async def test_several_silent_addresses_leave_time_for_the_last(names: Names) -> None:
    silent = [f"127.0.1.{number}" for number in range(1, connecting.ADDRESSES_MAX)]
    names.addresses[NAME] = [*silent, ALIVE]
    port = free_port(ALIVE, *silent)
    with contextlib.ExitStack() as stack:
        for host in silent:
            stack.enter_context(silent_address(host, port))
        async with listening(ALIVE, port):
            assert await connect(NAME, port, greeted, limit_s=8, complete_s=LIMIT_S) == ALIVE


async def test_refused_address_is_followed_at_once(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "STAGGER_S", 10 * LIMIT_S)
    names.addresses[NAME] = [DEAD, ALIVE]
    port = free_port(DEAD, ALIVE)
    async with listening(ALIVE, port):
        with anyio.fail_after(LIMIT_S):
            assert await connect(NAME, port, greeted, limit_s=100 * LIMIT_S) == ALIVE


@pytest.mark.parametrize("serve", [stays_silent, closes])
async def test_address_whose_program_does_not_greet_is_left(
    names: Names, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_COMPLETE_S_MIN", 0.05)
    names.addresses[NAME] = [DEAD, ALIVE]
    port = free_port(DEAD, ALIVE)
    failures = (OSError, asyncio.IncompleteReadError)
    async with listening(DEAD, port, serve) as bad, listening(ALIVE, port):
        found = await connect(NAME, port, greeted, limit_s=LIMIT_S, complete_s=1, failures=failures)

        assert found == ALIVE
        assert bad.accepted == 1
        await until(lambda: bad.ended == 1)


async def test_slower_of_two_connections_is_closed(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "STAGGER_S", 0.0)
    names.addresses[NAME] = [DEAD, ALIVE, OTHER]
    port = free_port(DEAD, ALIVE, OTHER)
    async with listening(DEAD, port) as one, listening(ALIVE, port) as two, listening(OTHER, port) as three:
        peers = [one, two, three]

        await connect(NAME, port, greeted, limit_s=LIMIT_S)

        await until(lambda: all(peer.accepted == peer.ended for peer in peers))


async def test_cancelled_caller_leaves_no_connection(names: Names) -> None:
    names.addresses[NAME] = [DEAD, ALIVE]
    port = free_port(DEAD, ALIVE)
    with silent_address(DEAD, port):
        async with listening(ALIVE, port, stays_silent) as peer:
            task = asyncio.create_task(connect(NAME, port, greeted, limit_s=LIMIT_S))
            await until(lambda: peer.accepted == 1)

            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            await until(lambda: peer.ended == 1)


async def test_error_lists_each_address_with_its_reason(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_COMPLETE_S_MIN", 0.01)
    names.addresses[NAME] = [DEAD, ALIVE, OTHER]
    port = free_port(DEAD, ALIVE, OTHER)
    with silent_address(DEAD, port):
        async with listening(ALIVE, port, stays_silent):
            with pytest.raises(NoAddressAnswers) as failure:
                await connect(NAME, port, greeted, limit_s=0.5)

    errors = failure.value.errors
    assert {address: type(error) for address, error in errors.items()} == {
        f"{DEAD}:{port}": TimeoutError,
        f"{ALIVE}:{port}": NotCompleted,
        f"{OTHER}:{port}": ConnectionRefusedError,
    }
    assert all(address in str(failure.value) for address in errors)


async def test_error_of_a_single_address_is_itself(names: Names) -> None:
    port = free_port(ALIVE)

    with pytest.raises(ConnectionRefusedError):
        await connect(ALIVE, port, greeted, limit_s=LIMIT_S)


async def test_name_is_resolved_anew_for_each_connection(names: Names) -> None:
    names.addresses[NAME] = [DEAD]
    port = free_port(DEAD, ALIVE)
    async with listening(ALIVE, port):
        with pytest.raises(ConnectionRefusedError):
            await connect(NAME, port, greeted, limit_s=LIMIT_S)

        names.addresses[NAME] = [ALIVE]  # the pod was replaced

        assert await connect(NAME, port, greeted, limit_s=LIMIT_S) == ALIVE


async def test_both_families_are_tried(names: Names) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this host has no IPv6")
    names.addresses[NAME] = ["::1", "127.0.0.1"]
    port = free_port("127.0.0.1")
    async with listening("127.0.0.1", port):
        assert await connect(NAME, port, greeted, limit_s=LIMIT_S) == "127.0.0.1"


def test_families_take_turns_in_a_random_order() -> None:
    four = [Resolved(socket.AF_INET, (f"10.0.0.{number}", 1)) for number in range(5)]
    six = [Resolved(socket.AF_INET6, (f"2001:db8::{number}", 1, 0, 0)) for number in range(5)]

    orders = [connecting._in_turn([*six, *four]) for _ in range(200)]

    assert {tuple(each.family for each in order) for order in orders} == {(socket.AF_INET6, socket.AF_INET) * 4}
    assert {order[0] for order in orders} == set(six)
    assert {each for order in orders for each in order} == {*four, *six}
