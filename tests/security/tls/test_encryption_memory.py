"""Memory of connections with TLS at the admin API and in the tcp network, whose servers are separate processes.

The Kafka listener, which shares the adapter, has its test in `tests/transports/kafka/listener/test_encryption.py`.
"""

import contextlib
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from kactl.transports.tcp.framing import Kind, Message, frames_of
from tests.support.certificates import Authority, Signed
from tests.support.fork_server import Program
from tests.support.processes import Process

pytestmark = pytest.mark.slow

IMPORTS: Final = ("kactl.runtime.logs", "tests.admin.conftest", "uvloop")
START_S: Final = 60.0
CONNECTIONS: Final = 200
# Of all connections together. The event loops' own TLS exceeds both.
IDLE_MAX: Final = 20 * 1024 * 1024
BUSY_MAX: Final = 28 * 1024 * 1024
REQUESTS: Final = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 10_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> Signed:
    return authority.sign("server", names="IP:127.0.0.1,DNS:localhost,URI:kactl://kactl/controller/1")


@contextlib.contextmanager
def served(kind: str, loop: str, authority: Authority, signed: Signed, log: Path) -> Iterator[tuple[int, int]]:
    """Run a server; yields its process id and port."""
    arguments = [kind, loop, str(authority.cert), str(signed.cert), str(signed.key)]
    with Process(Program("tests.security.tls.tls_server", arguments, IMPORTS), output=log) as process:
        yield process.pid, int(process.wait_for_line(r"^port (\d+)", START_S)[1])


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def opened(port: int, authority: Authority, signed: Signed) -> ssl.SSLSocket:
    """Returns a connection after its handshake, in which the server has verified the certificate if it wants one."""
    tls = ssl.create_default_context(cafile=str(authority.cert))
    tls.load_cert_chain(signed.cert, signed.key)
    connection = socket.create_connection(("127.0.0.1", port), START_S)
    return tls.wrap_socket(connection, server_hostname="127.0.0.1")


def pipelined(connection: ssl.SSLSocket) -> None:
    """Send requests until the server accepts no more, and read no response."""
    connection.settimeout(0)
    left = memoryview(REQUESTS)
    with contextlib.suppress(ssl.SSLWantWriteError, BlockingIOError):
        while left:
            left = left[connection.send(left[:16_384]) :]


def unfinished(connection: ssl.SSLSocket) -> None:
    """Send the largest first message without its end."""
    (frame,) = frames_of(Message(Kind.HANDSHAKE, 1, head=bytes(3_900)), 4_096)
    connection.sendall(frame[:-1])


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(("kind", "burst"), [("api", pipelined), ("network", unfinished)])
def test_idle_and_busy_connections_are_small(
    kind: str,
    burst: Callable[[ssl.SSLSocket], None],
    loop: str,
    authority: Authority,
    signed: Signed,
    tmp_path: Path,
) -> None:
    with served(kind, loop, authority, signed, tmp_path / "log") as (pid, port), contextlib.ExitStack() as stack:
        stack.enter_context(opened(port, authority, signed))  # what the first connection alone costs
        before = resident(pid)
        connections = [stack.enter_context(opened(port, authority, signed)) for _ in range(CONNECTIONS)]
        idle = resident(pid) - before
        for connection in connections:
            burst(connection)
        # A connection is served after the others have been.
        stack.enter_context(opened(port, authority, signed))
        busy = resident(pid) - before

    print(kind, loop, "idle", idle >> 10, "KiB, busy", busy >> 10, "KiB")
    assert idle < IDLE_MAX
    assert busy < BUSY_MAX
