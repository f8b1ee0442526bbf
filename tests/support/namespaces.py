"""Two network namespaces with a cable between them, for programs that run in either.

    with Namespaces() as namespaces:
        Process([*namespaces.one, "program"], output=...)  # its address is Namespaces.ADDRESSES[0]
        namespaces.lose()                                  # all packets are lost, without an error on either side

They need root, or user namespaces.
"""

import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from .jars import REQUIRE

ADDRESSES: Final = ("10.77.0.1", "10.77.0.2")
_DEVICES: Final = ("kactl0", "kactl1")
# Of no device: packets to it are ignored.
_NO_DEVICE: Final = "02:00:00:00:00:77"
_MISSING: Final = "network namespaces need the programs ip, nsenter and unshare, and root or user namespaces"
_PATIENCE_S: Final = 60.0


def _unshare() -> list[str] | None:
    """Returns a command that runs another one in a new network namespace; None if there is none."""
    if all(map(shutil.which, ("ip", "nsenter", "unshare"))):
        for command in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
    return None


def require_namespaces() -> None:
    """Without them the test is skipped, or fails if KACTL_REQUIRE_INTEROP=1."""
    if _unshare() is None:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)


class Namespaces:
    """The namespaces, which exist in the block.

    Attributes:
        one, other: commands that run a program in each of them.
    """

    def __enter__(self) -> Self:
        unshare = _unshare()
        assert unshare is not None, _MISSING
        user = ["--user", "--preserve-credentials"] if "--map-root-user" in unshare else []
        with ExitStack() as stack:
            first = self._hold(stack, unshare)
            self.one = ("nsenter", "--target", str(first), *user, "--net", "--")
            second = self._hold(stack, [*self.one, "unshare", "--net"])
            self.other = ("nsenter", "--target", str(second), *user, "--net", "--")
            _ip(self.one, "link add", _DEVICES[0], "type veth peer name", _DEVICES[1])
            _ip(self.one, "link set", _DEVICES[1], "netns", str(second))
            for side, device, address in zip(self._sides, _DEVICES, ADDRESSES, strict=True):
                _ip(side, "link set lo up")
                _ip(side, "address add", f"{address}/24", "dev", device)
                _ip(side, "link set", device, "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def _sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.one, self.other

    @staticmethod
    def _hold(stack: ExitStack, command: list[str]) -> int:
        """Start a process that keeps a namespace. Returns its id."""
        before = os.readlink("/proc/self/ns/net")
        # It ends with its input, which ends with this process.
        holder = stack.enter_context(subprocess.Popen([*command, "cat"], stdin=subprocess.PIPE))
        assert holder.stdin is not None
        stack.callback(holder.stdin.close)
        deadline = time.monotonic() + _PATIENCE_S
        while Path(f"/proc/{holder.pid}/comm").read_text() != "cat\n" or before == _network_of(holder.pid):
            assert time.monotonic() < deadline, f"{command} has not begun"
            time.sleep(0.01)
        return holder.pid

    def down(self) -> None:
        """Switch off the device of the other namespace."""
        _ip(self.other, "link set", _DEVICES[1], "down")

    def up(self) -> None:
        """Switch it on again."""
        _ip(self.other, "link set", _DEVICES[1], "up")

    def lose(self) -> None:
        """Lose all packets between the namespaces: both send them to an address that no device has."""
        for side, device, address in zip(self._sides, _DEVICES, reversed(ADDRESSES), strict=True):
            _ip(side, "neighbour replace", address, "lladdr", _NO_DEVICE, "nud permanent dev", device)

    def find(self) -> None:
        """End `lose`."""
        for side, device, address in zip(self._sides, _DEVICES, reversed(ADDRESSES), strict=True):
            _ip(side, "neighbour delete", address, "dev", device)


def _network_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


def _ip(side: tuple[str, ...], *words: str) -> None:
    subprocess.run([*side, "ip", *" ".join(words).split()], check=True)
