"""ZooKeeper server of the race, on loopback and configured for load, and its work counters."""

import re
import socket
import time
from pathlib import Path
from typing import Final, Self

import msgspec

from tests.support.jars import LOG_CONFIG, class_path, java_program
from tests.support.processes import POLL_S, Process, free_port

START_S: Final = 60.0
_WORD_S: Final = 5.0
# A transaction with a thousand nodes, or a response with as many states, exceeds the default of 1 MiB.
_FRAME_MAX: Final = 8 * 1024 * 1024


class Work(msgspec.Struct, frozen=True):
    """Work of the server since its start.

    Attributes:
        transactions: the last transaction number.
    """

    requests: float
    received_mb: float
    transactions: int


class Server:
    """Standalone server. Its data is deleted with the run."""

    def __init__(self, folder: Path, *, heap_mb: int) -> None:
        """Starts the server and waits until it serves.

        Raises:
            HarnessError: this took longer than START_S.
        """
        folder.mkdir(parents=True)
        self.port = free_port()
        self.process = Process(
            [
                java_program() or "java",
                f"-Xms{heap_mb}m",
                f"-Xmx{heap_mb}m",
                "-XX:+UseG1GC",
                f"-Djute.maxbuffer={_FRAME_MAX}",
                f"-Dlog4j.configuration={LOG_CONFIG.as_uri()}",
                *("-cp", class_path(), "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
                str(self._settings(folder)),
            ],
            output=folder / "zookeeper.log",
        )
        try:
            self._wait_serving()
        except BaseException:
            self.process.kill()
            raise

    @property
    def connect(self) -> str:
        """Returns the connect string."""
        return f"127.0.0.1:{self.port}"

    def work(self) -> Work:
        """Returns the work so far; this query counts as a few requests."""
        counters = dict(line.split("\t", 1) for line in self._word(b"mntr").splitlines() if "\t" in line)
        last = re.search(r"^Zxid: 0x([0-9a-f]+)", self._word(b"srvr"), re.MULTILINE)
        if last is None:
            raise self.process.error("does not say how many transactions it has done")
        return Work(
            float(counters["zk_packets_received"]),
            float(counters.get("zk_bytes_received_count", 0)) / 1e6,
            int(last[1], 16),
        )

    def _settings(self, folder: Path) -> Path:
        # Data is synced as by default. No snapshot is written within a run, because it would affect only one contender.
        settings = {
            "tickTime": 2000,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "snapCount": 1_000_000,
            "4lw.commands.whitelist": "mntr,srvr",
        }
        path = folder / "zoo.cfg"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _wait_serving(self) -> None:
        deadline = time.monotonic() + START_S
        while "Mode: standalone" not in self._word(b"srvr"):
            if not self.process.alive:
                raise self.process.error("ended at its start")
            if time.monotonic() > deadline:
                raise self.process.error(f"did not serve within {START_S:g} s")
            time.sleep(POLL_S)

    def _word(self, word: bytes) -> str:
        """Returns the response to a four-letter command; empty if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_WORD_S) as connection:
                connection.sendall(word)
                with connection.makefile("rb") as answer:
                    return answer.read().decode(errors="replace")
        except OSError:
            return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
