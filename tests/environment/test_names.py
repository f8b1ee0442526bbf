"""Names of servers as in /etc/hosts or DNS: with several addresses, of which some are dead, and which change."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .places import Place, require_places
from .service import running

pytestmark = pytest.mark.slow

NAME = "controllers.kactl.test"
DEAD, FIRST, SECOND = "127.77.0.2", "127.77.0.3", "127.77.0.4"


class Hosts:
    """The file that is mounted over /etc/hosts."""

    def __init__(self, folder: Path, *addresses: str) -> None:
        self.path = folder / "hosts"
        self.resolve(*addresses)
        self.place = Place(files={"/etc/hosts": self.path})

    def resolve(self, *addresses: str) -> None:
        """Let the name have these addresses."""
        self.path.write_text("".join(f"{address} {NAME}\n" for address in addresses) + "127.0.0.1 localhost\n")


@contextlib.contextmanager
def dead_address(address: str, port: int) -> Iterator[None]:
    """Let nothing answer at an address, as at one of a host without power: its backlog is full, packets are dropped."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listening(address, port))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield


def _listening(address: str, port: int) -> socket.socket:
    """Listen where a process that was just killed has listened."""
    while True:
        with contextlib.suppress(OSError):
            return socket.create_server((address, port), backlog=0)


def test_participants_find_the_live_address_of_several(tmp_path: Path) -> None:
    require_places()
    hosts = Hosts(tmp_path, DEAD, FIRST)
    with running(tmp_path, hosts.place) as service:
        service.listen(FIRST)
        with dead_address(DEAD, service.port):
            service.start_server()
            for broker in (1, 2):
                service.start_worker(broker, controllers=f"{NAME}:{service.port}")

            service.until_registered(2)
            service.create("jobs", partitions=4)
            service.until_led("jobs", 4, by={1, 2})


def test_participants_follow_a_name_to_its_next_address(tmp_path: Path) -> None:
    """A server comes back at another address, as a pod does; the earlier one is dead."""
    require_places()
    hosts = Hosts(tmp_path, FIRST)
    with running(tmp_path, hosts.place) as service:
        service.listen(FIRST)
        service.start_server()
        service.start_worker(1, controllers=f"{NAME}:{service.port}")
        service.until_registered(1)
        service.create("jobs", partitions=2)
        service.until_led("jobs", 2, by={1})

        service.server.kill()
        service.listen(SECOND)
        hosts.resolve(SECOND)
        with dead_address(FIRST, service.port):
            service.start_server()
            service.create("more", partitions=2)

            service.until_led("more", 2, by={1})
