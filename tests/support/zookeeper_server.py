"""Real ZooKeeper servers on loopback, with data folders that outlive their processes: one, or an ensemble.

    with ZooKeeperServer(tmp_path) as server:
        client = KazooClient(server.connect("/test"))

Needs nothing beyond the standard library and the jars, so that any folder of tests may use it.
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from .jars import java_command
from .processes import POLL_S, HarnessError, Process, free_port

# One or two seconds are usual; a busy machine takes several times that.
START_S: Final = 300.0
STOP_S: Final = 60.0
# One request on loopback. A connection that is made during the start may never get a response, so a new one is tried
# soon: this limit is no measure of the machine.
REQUEST_S: Final = 5.0
HEAP_MB: Final = 128


class ZooKeeperServer:
    """A standalone server. `kill` or `stop` and then `start` keep its data, its port and its sessions."""

    def __init__(
        self,
        folder: Path,
        *,
        tick_ms: int = 500,
        heap_mb: int = HEAP_MB,
        java_options: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Prepare the server. It runs from `start` on.

        Args:
            folder: for configuration, data and output; made if absent.
            tick_ms: session timeouts are forced into 2 to 20 ticks, 1 to 10 s by default.
            heap_mb: some kilobytes for each partition of a cluster have to fit.
            java_options: additional options of Java.
            settings: additional lines of the server's file.
        """
        self.folder = folder
        self.tick_ms = tick_ms
        self.heap_mb = heap_mb
        self.java_options = java_options
        self.settings = settings or {}
        self.port = free_port()
        self.process: Process | None = None

    def connect(self, chroot: str = "") -> str:
        """Returns the connect string. `chroot` is empty or begins with a slash."""
        return f"127.0.0.1:{self.port}{chroot}"

    def start(self) -> None:
        """Start the server and wait for its first response.

        Raises:
            HarnessError: it ended, or did not respond within START_S and was killed.
        """
        self.launch()
        self.wait_until_serving()

    def launch(self) -> None:
        """Start the server without waiting for it."""
        assert self.process is None or not self.process.alive, "already running"
        self.process = Process(
            java_command(
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                [self._config()],
                heap_mb=self.heap_mb,
                options=self.java_options,
            ),
            output=self.folder / "zookeeper.log",
        )

    def wait_until_serving(self) -> None:
        """Wait until the server responds; see `start`."""
        process = self._started()
        deadline = time.monotonic() + START_S
        while not self.serving():
            if not process.alive:
                raise process.error("ended at its start")
            if time.monotonic() > deadline:
                process.kill()
                raise process.error(f"did not answer within {START_S:g} s")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Send SIGTERM and wait."""
        self._started().stop(STOP_S)

    def kill(self) -> None:
        """Send SIGKILL. No effect if it does not run."""
        if self.process is not None:
            self.process.kill()

    def restart(self) -> None:
        """Stop and start the server, which restarts the timeouts of all sessions."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Send SIGSTOP: clients stay connected without responses."""
        self._started().pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._started().resume()

    def serving(self) -> bool:
        """Returns whether it serves requests, by its own status command."""
        return bool(self.mode())

    def mode(self) -> str:
        """Returns `standalone`, `leader` or `follower`; empty if it serves no requests."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=REQUEST_S) as connection:
                connection.sendall(b"srvr")
                with connection.makefile("rb") as answer:
                    _, _, mode = answer.read().decode().partition("Mode: ")
                    return mode.partition("\n")[0]
        except OSError:
            return ""

    def _started(self) -> Process:
        if self.process is None:
            raise HarnessError(f"the ZooKeeper of {self.folder} was never started")
        return self.process

    def _config(self) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": self.tick_ms,
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",  # it needs a web server that the jars do not contain
            "maxClientCnxns": 0,
            **self.settings,
        }
        path = self.folder / "zoo.cfg"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class ZooKeeperEnsemble:
    """Three servers, of which the third one is a follower that reaches the others through addresses of the caller.

    Args:
        through: returns the address at which the third server connects to an address of another one.
        sync_ticks: for so long, the leader and a follower that hear nothing of each other go on.
    """

    def __init__(self, folder: Path, through: Callable[[str], str], *, sync_ticks: int) -> None:
        ports = {number: (free_port(), free_port()) for number in (1, 2, 3)}  # of followers, and of elections
        self.members: list[ZooKeeperServer] = []
        for number in ports:
            settings: dict[str, object] = {"initLimit": 40, "syncLimit": sync_ticks}
            for other, (quorum, election) in ports.items():
                address = f"127.0.0.1:{quorum}"
                if number == 3 and other != 3:
                    address = through(address)
                settings[f"server.{other}"] = f"{address}:{election}"
            member = ZooKeeperServer(folder / str(number), settings=settings)
            data = member.folder / "data"
            data.mkdir(parents=True)
            (data / "myid").write_text(str(number))
            self.members.append(member)

    def connect(self, chroot: str) -> str:
        """Returns the connect string of the first two servers."""
        return ",".join(member.connect() for member in self.members[:2]) + chroot

    def __enter__(self) -> Self:
        try:
            for member in self.members[:2]:
                member.launch()
            for member in self.members[:2]:
                member.wait_until_serving()
            self.members[2].start()  # one of the others leads
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()
