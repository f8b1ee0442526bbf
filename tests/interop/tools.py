"""Kafka's own command line tools, from the jars, run one after the other in one JVM.

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
# Includes compilation of one small file.
START_S: Final = 60.0
# Longer than the response timeout of the tools, which is a minute.
RUN_S: Final = 90.0
HEAP_MB: Final = 128

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
_CONFIGS: Final = "kafka.admin.ConfigCommand"
LEADERS: Final = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"


class Ran(NamedTuple):
    """Result of a tool: its exit code, its output, and the part of it on stdout."""

    code: int
    text: str
    out: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def well(self) -> "Ran":
        """Return the result itself. Raises AssertionError with the output if the tool reports a failure."""
        assert self.code == 0, self.text
        return self


class Tools:
    """The tools. Each takes the arguments of its shell script, without those for the cluster's address."""

    def __init__(
        self, folder: Path, *, bootstrap: str, jars: str | None = None, client_config: Path | None = None
    ) -> None:
        """Prepare the tools; nothing runs before `launch`. `jars` is as in `java_command`.

        Args:
            client_config: the file with the settings of the tools' connections; None for clear text.
        """
        self.bootstrap = bootstrap
        self._client_config = client_config
        self._jars = jars
        self._folder = folder
        self._process: Process | None = None
        self._connection: socket.socket | None = None

    def launch(self) -> None:
        """Start the JVM, and return at once; the first run waits for it."""
        listener = socket.create_server(("127.0.0.1", 0))
        command = java_command(str(SOURCE), [str(listener.getsockname()[1])], heap_mb=HEAP_MB, jars=self._jars)
        self._process = Process(command, output=self._folder / "tools.log")
        self._listener = listener

    def topics(self, *arguments: str) -> Ran:
        """Run kafka-topics."""
        return self.run(TOPICS, *self._cluster("--command-config"), *arguments)

    def configs(self, *arguments: str) -> Ran:
        """Run kafka-configs."""
        return self.run(_CONFIGS, *self._cluster("--command-config"), *arguments)

    def elect(self, *arguments: str) -> Ran:
        """Run kafka-leader-election."""
        return self.run(LEADERS, *self._cluster("--admin.config"), *arguments)

    def reassign(self, *arguments: str) -> Ran:
        """Run kafka-reassign-partitions."""
        return self.run(REASSIGN, *self._cluster("--command-config"), *arguments)

    def features(self, *arguments: str) -> Ran:
        """Run kafka-features."""
        return self.run(_FEATURES, *self._cluster("--command-config"), *arguments)

    def _cluster(self, option: str) -> tuple[str, ...]:
        """Returns the arguments that name the cluster."""
        config = () if self._client_config is None else (option, str(self._client_config))
        return ("--bootstrap-server", self.bootstrap, *config)

    def run(self, main: str, *arguments: str) -> Ran:
        """Run a main class to its end.

        Raises:
            HarnessError: it did not end within RUN_S, or ended the JVM.
        """
        connection = self._connected()
        command = (main, *arguments)
        connection.sendall(struct.pack(">i", len(command)) + b"".join(map(_text, command)))
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

    def _error(self, problem: str) -> HarnessError:
        assert self._process is not None
        return self._process.error(problem)

    def __enter__(self) -> Self:
        self.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded
