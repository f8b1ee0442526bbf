"""The proxy that can be cut, in front of a test server."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.link import Link
from tests.support.processes import free_port


@pytest.fixture
def echo() -> Iterator[int]:
    """Port of a server that returns all bytes it receives."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield port
        listener.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    with connection:
        while content := connection.recv(1024):
            connection.sendall(content)


def test_data_passes_in_both_directions(echo: int) -> None:
    with Link(echo) as link, socket.create_connection(("127.0.0.1", link.port), 5) as client:
        client.sendall(b"hello")

        assert client.recv(5) == b"hello"


def test_data_is_held_while_cut_and_delivered_afterwards(echo: int) -> None:
    with Link(echo) as link, socket.create_connection(("127.0.0.1", link.port), 5) as client:
        client.sendall(b"before")
        assert client.recv(6) == b"before"

        link.cut()
        client.sendall(b"during")
        with socket.create_connection(("127.0.0.1", link.port), 5) as late:
            late.sendall(b"late")
            for socket_ in (client, late):
                socket_.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    socket_.recv(1)
                socket_.settimeout(5)
            link.mend()

            assert (client.recv(6), late.recv(4)) == (b"during", b"late")


def test_closing_one_side_closes_the_other(echo: int) -> None:
    with Link(echo) as link:
        client = socket.create_connection(("127.0.0.1", link.port), 5)
        with client:
            client.sendall(b"hello")
            assert client.recv(5) == b"hello"
            client.shutdown(socket.SHUT_WR)

            assert client.recv(1) == b""


def test_missing_server_closes_the_connection() -> None:
    with Link(free_port()) as link, socket.create_connection(("127.0.0.1", link.port), 5) as client:
        assert client.recv(1) == b""
