"""How the race talks to the stub brokers, which run in a process of their own: JSON, a line each way, over a socket.

The race listens on a socket in the run's folder and the stubs connect to it once they are registered. Only the race
asks; every question gets one answer.
"""

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Final, Self

import msgspec

from bench.clusters import Shape
from tests.interop.processes import HarnessError, Process

from .wishes import Fulfilled, Traffic, Wish

# A hundred brokers register one after the other in a second or two.
START_S: Final = 60.0
# Sums over a gigabyte of requests take some seconds.
ANSWER_S: Final = 120.0
# What the kernel takes.
_SOCKET_PATH_MAX: Final = 107


class Mark(msgspec.Struct, tag="mark", frozen=True):
    """Forget what came in so far, but for the leader epochs; look out for these from now on."""

    wishes: dict[str, Wish]


class Count(msgspec.Struct, tag="count", frozen=True):
    """How many requests have come in since the mark; costs next to nothing."""


class Sums(msgspec.Struct, tag="sums", frozen=True):
    """Go through what came in. Not while something is being timed."""


class Leave(msgspec.Struct, tag="leave", frozen=True):
    """A broker ends its session and its connections; the answer says when it asked ZooKeeper to."""

    broker: int


class Return(msgspec.Struct, tag="return", frozen=True):
    """A broker listens and registers again, as it did before; the answer says when it asked to."""

    broker: int


Asked = Mark | Count | Sums | Leave | Return


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To any of them.

    Attributes:
        failed: what went wrong, instead of everything else.
        at: monotonic seconds.
    """

    failed: str | None = None
    at: float = 0.0
    requests: int = 0
    wishes: dict[str, Fulfilled] = {}
    traffic: Traffic = msgspec.field(default_factory=Traffic)


class Stubs:
    """The race's end."""

    def __init__(self, folder: Path, shape: Shape, *, zookeeper_port: int, session_timeout_ms: int) -> None:
        """Run the stub brokers, and wait until all are registered.

        Raises:
            HarnessError: they were not within START_S.
        """
        path = folder / "control"
        if len(os.fsencode(path)) > _SOCKET_PATH_MAX:
            raise HarnessError(f"{path} is too long a name for a socket: keep the race's files in another folder")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            self.process = Process(
                [
                    *(sys.executable, "-m", "bench.race.stubs", "--control", str(path)),
                    *("--partitions", str(shape.partitions), "--topics", str(shape.topics)),
                    *("--brokers", str(shape.brokers), "--replication-factor", str(shape.replication_factor)),
                    *("--zookeeper-port", str(zookeeper_port), "--session-timeout-ms", str(session_timeout_ms)),
                ],
                output=folder / "stubs.log",
            )
            try:
                self._socket = _accepted(listener, self.process)
            except BaseException:
                self.process.kill()
                raise
        self._socket.settimeout(ANSWER_S)
        self._answers = self._socket.makefile("rb")

    def ask(self, asked: Asked) -> Answer:
        """Ask, and wait for the answer.

        Raises:
            HarnessError: the stubs failed, or did not answer within ANSWER_S.
        """
        try:
            self._socket.sendall(msgspec.json.encode(asked) + b"\n")
            line = self._answers.readline()
        except OSError as error:
            raise self.process.error(f"did not answer: {error}") from error
        if not line:
            raise self.process.error("gave up")
        answer = msgspec.json.decode(line, type=Answer)
        if answer.failed is not None:
            raise self.process.error(f"could not {type(asked).__name__.lower()}: {answer.failed}")
        return answer

    def close(self) -> None:
        """Stop them; harmless when they have ended."""
        with contextlib.suppress(OSError):
            self._answers.close()
            self._socket.close()
        self.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _accepted(listener: socket.socket, stubs: Process) -> socket.socket:
    """The connection of the stubs, unless they end before they make one."""
    listener.settimeout(0.2)
    for _ in range(int(START_S / 0.2)):
        with contextlib.suppress(TimeoutError):
            return listener.accept()[0]
        if not stubs.alive:
            raise stubs.error("ended at their start")
    raise HarnessError(f"the stub brokers were not registered within {START_S:g} s, see {stubs.output}")
