"""Control connection between the race and the stub brokers in their process: JSON lines over a socket.

The race listens on a socket in the run's folder, and the stubs connect to it when they are registered. Only the race
sends requests; each has one response."""

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Final, Self

import msgspec

from bench.clusters import Shape
from tests.support.processes import HarnessError, Process

from .expectations import Expectation, Progress, Traffic

# A hundred brokers register one after the other in a second or two.
START_S: Final = 60.0
# Evaluating a gigabyte of requests takes some seconds.
ANSWER_S: Final = 120.0
# Limit of the kernel.
_SOCKET_PATH_MAX: Final = 107


class Mark(msgspec.Struct, tag="mark", frozen=True):
    """Discard received requests except their leader epochs, and count requests for these expectations from now on."""

    expectations: dict[str, Expectation]


class Count(msgspec.Struct, tag="count", frozen=True):
    """Return the number of requests since the mark; cheap."""


class Sums(msgspec.Struct, tag="sums", frozen=True):
    """Evaluate received requests. Not during a timed phase."""


class Leave(msgspec.Struct, tag="leave", frozen=True):
    """End a broker's session and connections; the response contains the time of the request to ZooKeeper."""

    broker: int


class Return(msgspec.Struct, tag="return", frozen=True):
    """Register a broker again, with its old address; the response contains the time of the request to ZooKeeper."""

    broker: int


Asked = Mark | Count | Sums | Leave | Return


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Response to any request.

    Attributes:
        failed: error message; if set, nothing else is.
        at: monotonic seconds.
    """

    failed: str | None = None
    at: float = 0.0
    requests: int = 0
    expectations: dict[str, Progress] = {}
    traffic: Traffic = msgspec.field(default_factory=Traffic)


class Stubs:
    """The race's end of the connection."""

    def __init__(self, folder: Path, shape: Shape, *, zookeeper_port: int, session_timeout_ms: int) -> None:
        """Starts the stub brokers, and waits until all are registered.

        Raises:
            HarnessError: this took longer than START_S.
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
        """Sends a request and waits for the response.

        Raises:
            HarnessError: the stubs failed, or did not respond within ANSWER_S.
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
        """Stops the stubs; has no effect if they have ended."""
        with contextlib.suppress(OSError):
            self._answers.close()
            self._socket.close()
        self.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _accepted(listener: socket.socket, stubs: Process) -> socket.socket:
    """Returns the connection of the stubs; raises if they end before they connect."""
    listener.settimeout(0.2)
    for _ in range(int(START_S / 0.2)):
        with contextlib.suppress(TimeoutError):
            return listener.accept()[0]
        if not stubs.alive:
            raise stubs.error("ended at their start")
    raise HarnessError(f"the stub brokers were not registered within {START_S:g} s, see {stubs.output}")
