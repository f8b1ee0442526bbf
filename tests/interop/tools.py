"""Kafka's own command line tools, out of the jars, in one JVM that runs them one after the other.

with Tools(tmp_path, bootstrap="127.0.0.1:19091") as tools:
    assert "Created topic orders." in tools.topics("--create", "--topic", "orders").text
"""

import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.support.jars import java_command
from tests.support.processes import HarnessError, Process

SOURCE: Final = Path(__file__).with_name("Tools.java")
# It compiles one small file first.
START_S: Final = 60.0
# Longer than a tool itself is willing to wait for an answer, which is a minute.
RUN_S: Final = 90.0
HEAP_MB: Final = 128

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
_CONFIGS: Final = "kafka.admin.ConfigCommand"
LEADERS: Final = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"


class Ran(NamedTuple):
    """How a tool ended: its exit code, what it printed to either stream, and what of that went to stdout."""

    code: int
    text: str
    out: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def well(self) -> "Ran":
        """The same; raises AssertionError with the text where the tool says that it failed."""
        assert self.code == 0, self.text
        return self


class Tools:
    """The tools. Each takes the arguments of its shell script, without those that say where the cluster is."""

    def __init__(self, folder: Path, *, bootstrap: str, jars: str | None = None) -> None:
        """Prepare; nothing runs before `start`. `jars` is as in `java_command`."""
        self.bootstrap = bootstrap
        self._jars = jars
        self._folder = folder
        self._process: Process | None = None
        self._connection: socket.socket | None = None

    def launch(self) -> None:
        """Start the JVM, and return at once; whoever asks first waits."""
        listener = socket.create_server(("127.0.0.1", 0))
        command = java_command(str(SOURCE), [str(listener.getsockname()[1])], heap_mb=HEAP_MB, jars=self._jars)
        self._process = Process(command, output=self._folder / "tools.log")
        self._listener = listener

    def topics(self, *arguments: str) -> Ran:
        """kafka-topics."""
        return self.run(TOPICS, "--bootstrap-server", self.bootstrap, *arguments)

    def configs(self, *arguments: str) -> Ran:
        """kafka-configs."""
        return self.run(_CONFIGS, "--bootstrap-server", self.bootstrap, *arguments)

    def elect(self, *arguments: str) -> Ran:
        """kafka-leader-election."""
        return self.run(LEADERS, "--bootstrap-server", self.bootstrap, *arguments)

    def reassign(self, *arguments: str) -> Ran:
        """kafka-reassign-partitions."""
        return self.run(REASSIGN, "--bootstrap-server", self.bootstrap, *arguments)

    def features(self, *arguments: str) -> Ran:
        """kafka-features."""
        return self.run(_FEATURES, "--bootstrap-server", self.bootstrap, *arguments)

    def run(self, main: str, *arguments: str) -> Ran:
        """Run a main class to its end.

        Raises:
            HarnessError: it did not end within RUN_S, or took the JVM with it.
        """
        connection = self._connected()
        asked = (main, *arguments)
        connection.sendall(struct.pack(">i", len(asked)) + b"".join(map(_text, asked)))
        try:
            code, length = struct.unpack(">ii", self._receive(connection, 8))
            text = self._receive(connection, length)
            (length,) = struct.unpack(">i", self._receive(connection, 4))
            out = self._receive(connection, length)
            return Ran(code, text.decode(errors="replace"), out.decode(errors="replace"))
        except TimeoutError:
            raise self._error(f"{main} did not end within {RUN_S:g} s") from None

    def close(self) -> None:
        """End the JVM. Harmless when there is none."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._listener.close()
            self._process.kill()

    def _connected(self) -> socket.socket:
        if self._connection is None:
            assert self._process is not None, "not launched"
            self._listener.settimeout(START_S)
            try:
                self._connection, _ = self._listener.accept()
            except TimeoutError:
                raise self._error(f"did not connect within {START_S:g} s") from None
            self._connection.settimeout(RUN_S)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection

    def _receive(self, connection: socket.socket, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            piece = connection.recv(count - len(received))
            if not piece:
                raise self._error("ended")
            received += piece
        return bytes(received)

    def _error(self, what: str) -> HarnessError:
        assert self._process is not None
        return self._process.error(what)

    def __enter__(self) -> Self:
        self.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded
