"""Listening sockets, and servers on all addresses of both families."""

import contextlib
import errno
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kactl.runtime import listening
from kactl.runtime.listening import listening_sockets
from tests.support.host_names import Names
from tests.support.namespaces import require_namespaces

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")


@contextlib.contextmanager
def opened(host: str, port: int = 0) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(each) for each in listening_sockets(host, port, backlog=4)]


def accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("::", ["127.0.0.1", "::1"]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("::1", ["::1"]),
        ("::0", ["127.0.0.1", "::1"]),
    ],
)
def test_families_of_an_address_are_listened_on(host: str, reached: list[str]) -> None:
    with opened(host) as sockets:
        port = sockets[0].getsockname()[1]

        assert [address for address in ("127.0.0.1", "::1") if accepts(address, port)] == reached


@needs_ipv6
def test_name_with_several_addresses_has_one_port_at_all() -> None:
    with Names() as names:
        names.addresses["both.test"] = ["127.0.0.1", "::1", "127.0.0.5"]
        with opened("both.test") as sockets:
            (port,) = {each.getsockname()[1] for each in sockets}

            assert all(accepts(address, port) for address in ("127.0.0.1", "::1", "127.0.0.5"))


def test_address_of_a_name_that_this_host_lacks_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with Names() as names:
        names.addresses["both.test"] = ["192.0.2.1", "127.0.0.1"]
        with opened("both.test") as sockets:
            assert [each.getsockname()[0] for each in sockets] == ["127.0.0.1"]

        names.addresses["both.test"] = ["192.0.2.1"]
        with pytest.raises(OSError, match="Cannot assign") as failure, opened("both.test"):
            pass

    assert failure.value.errno == errno.EADDRNOTAVAIL
    assert "this host does not have 192.0.2.1" in caplog.text


def test_address_that_this_host_lacks_is_refused() -> None:
    with pytest.raises(OSError, match="Cannot assign"), opened("192.0.2.1"):
        pass


def test_free_port_that_another_family_uses_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.5", 0)) as taken, Names() as names:
        names.addresses["both.test"] = ["127.0.0.1", "127.0.0.5"]
        port, opens, tried = taken.getsockname()[1], listening._opened, []

        def first_the_taken_one(family: int, sockaddr: tuple[Any, ...], *args: Any, **kwargs: Any) -> socket.socket:
            tried.append(sockaddr)
            wanted = (sockaddr[0], port) if len(tried) == 1 else sockaddr
            return opens(family, wanted, *args, **kwargs)

        monkeypatch.setattr(listening, "_opened", first_the_taken_one)
        with opened("both.test") as sockets:
            (chosen,) = {each.getsockname()[1] for each in sockets}

    assert chosen != port
    assert len(tried) == 4


def test_port_in_use_is_refused() -> None:
    with (
        opened("127.0.0.1") as sockets,
        pytest.raises(OSError, match="in use") as failure,
        opened("127.0.0.1", sockets[0].getsockname()[1]),
    ):
        pass

    assert failure.value.errno == errno.EADDRINUSE


@needs_ipv6
def test_port_that_ipv4_uses_is_refused_to_both_families() -> None:
    with (
        opened("0.0.0.0") as sockets,
        pytest.raises(OSError, match="in use"),
        opened("::", sockets[0].getsockname()[1]),
    ):
        pass


def test_host_without_ipv6_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As with ipv6.disable=1 on the command line of the kernel."""
    make = socket.socket

    def without_ipv6(family: int, *args: Any, **kwargs: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return make(family, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", without_ipv6)
        sockets = listening_sockets("::", 0, backlog=4)
        with pytest.raises(OSError, match="not supported"):
            listening_sockets("::1", 0, backlog=4)

    with sockets[0]:
        assert sockets[0].getsockname()[0] == "0.0.0.0"
    assert "this host has no IPv6" in caplog.text


WITHOUT_IPV6 = """
import socket
from kactl.runtime.listening import listening_sockets
for host in ("localhost", "::"):
    for each in listening_sockets(host, 0, backlog=4):
        socket.create_connection(("127.0.0.1", each.getsockname()[1]), timeout=60).close()
        print(host)
"""


def test_localhost_is_listened_on_where_ipv6_is_switched_off() -> None:
    """As in many containers, whose /etc/hosts has ::1 nevertheless."""
    require_namespaces()
    switch = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.lo.disable_ipv6=1 || exit 99"
    command = f'ip link set lo up && {switch}; exec "$0" -c "$1"'

    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", command, sys.executable, WITHOUT_IPV6],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip("IPv6 cannot be switched off here")

    assert done.stdout.split() == ["localhost", "::"], done.stderr
