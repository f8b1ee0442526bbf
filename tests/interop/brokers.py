"""Real, unmodified Apache Kafka brokers in ZooKeeper mode, alone or three at a time.

    with Cluster(tmp_path, zookeeper=server.connect("/test")) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap})

A broker keeps its id, its ports and its log directory across restarts. It also stores the cluster id: use new folders
with a new chroot, otherwise it does not start.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from kazoo.client import KazooClient

from tests.support.jars import java_command
from tests.support.processes import POLL_S, HarnessError, Process, free_port

# Three at once on two idle cores take 5 to 6 s.
START_S: Final = 90.0
# A broker whose controller does not respond attempts its controlled shutdown three times before it exits.
STOP_S: Final = 60.0
HEAP_MB: Final = 256
# A session ends at the next tick after its timeout; the rest is for a busy machine.
REGISTRATION_MARGIN_S: Final = 10.0
CONNECT_S: Final = 15.0


class KafkaBroker:
    """One broker. INTERNAL is for brokers and the controller, CLIENT for all other clients; both are on loopback.

    Attributes:
        java_options: additional Java options of its next start.
        jars: the class path of its next start, as in `java_command`.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        folder: Path,
        zookeeper: str,
        ibp: str = "2.6",
        rack: str | None = None,
        session_timeout_ms: int = 6000,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the broker; nothing runs before `start`.

        Args:
            folder: for configuration, logs and output; created if absent.
            zookeeper: connect string with chroot; the broker creates a missing chroot.
            ibp: inter.broker.protocol.version, the same for the whole cluster.
            overrides: broker settings that override those of the harness.
        """
        self.id = broker_id
        self.folder = folder
        self.zookeeper = zookeeper
        self.ibp = ibp
        self.rack = rack
        self.session_timeout_ms = session_timeout_ms
        self.overrides = dict(overrides or {})
        self.java_options: Sequence[str] = ()
        self.jars: str | None = None
        self.internal_port = free_port()
        self.client_port = free_port()
        self.process: Process | None = None

    @property
    def bootstrap(self) -> str:
        """Return host:port of the CLIENT listener."""
        return f"127.0.0.1:{self.client_port}"

    @property
    def log(self) -> str:
        """Return the output of its current or last run."""
        return self._started().text

    @property
    def runs(self) -> bool:
        """Return whether there is a process that is not paused; it may still be starting."""
        return self.process is not None and self.process.alive and not self.process.paused

    def start(self) -> None:
        """Launch the broker, and wait until it serves.

        Raises:
            HarnessError: as in `launch` and `wait_started`.
        """
        self.launch()
        self.wait_started()

    def launch(self) -> None:
        """Start the process as soon as the registration of its previous run is gone, and return at once.

        A broker that finds its id registered exits. After SIGKILL the registration stays until ZooKeeper expires the
        session, so this may take the session timeout.

        Raises:
            HarnessError: the registration stays, so another broker has this id; or ZooKeeper is not available.
        """
        assert self.process is None or not self.process.alive, "already running"
        self._wait_unregistered()
        self.process = Process(
            java_command("kafka.Kafka", [self._config()], heap_mb=HEAP_MB, options=self.java_options, jars=self.jars),
            output=self.folder / "server.log",
        )

    def wait_started(self) -> None:
        """Wait until it is registered and its ports are open.

        It serves clients only once a controller has sent it the metadata of the cluster.

        Raises:
            HarnessError: it ended, or did not start within START_S and was killed.
        """
        process = self._started()
        try:
            process.wait_for_line(rf"\[KafkaServer id={self.id}\] started", START_S)
        except HarnessError:
            process.kill()
            raise

    def stop(self) -> None:
        """Send SIGTERM, which makes it request a controlled shutdown, and wait.

        Raises:
            HarnessError: it did not end within STOP_S, and was killed.
        """
        self._started().stop(STOP_S)

    def kill(self) -> None:
        """Send SIGKILL. Its registration stays until its session expires. Harmless when it does not run."""
        if self.process is not None:
            self.process.kill()

    def restart(self) -> None:
        """Start again, after a stop if it runs."""
        if self.process is not None and self.process.alive:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Send SIGSTOP: ports and connections stay open, but it does nothing, not even for its session."""
        self._started().pause()

    def resume(self) -> None:
        """Send SIGCONT."""
        self._started().resume()

    def _started(self) -> Process:
        if self.process is None:
            raise HarnessError(f"broker {self.id} was never started")
        return self.process

    def _wait_unregistered(self) -> None:
        limit = self.session_timeout_ms / 1000 + REGISTRATION_MARGIN_S
        hosts, slash, chroot = self.zookeeper.partition("/")  # a chroot that does not exist yet is not worth a warning
        client = KazooClient(hosts)
        try:
            client.start(timeout=CONNECT_S)
            deadline = time.monotonic() + limit
            while client.exists(f"{slash}{chroot}/brokers/ids/{self.id}") is not None:
                if time.monotonic() > deadline:
                    raise HarnessError(f"broker id {self.id} is still registered after {limit:g} s; who else has it?")
                time.sleep(POLL_S)
        except client.handler.timeout_exception:
            raise HarnessError(f"broker {self.id} cannot start: no ZooKeeper at {self.zookeeper}") from None
        finally:
            client.stop()
            client.close()

    def _config(self) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        listeners = f"INTERNAL://127.0.0.1:{self.internal_port},CLIENT://127.0.0.1:{self.client_port}"
        settings = {
            "broker.id": str(self.id),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "inter.broker.protocol.version": self.ibp,
            "log.dirs": str(self.folder / "logs"),
            **({} if self.rack is None else {"broker.rack": self.rack}),
            **SETTINGS,
            **self.overrides,
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Cluster:
    """Brokers 1 to n under one chroot, started concurrently."""

    def __init__(
        self,
        folder: Path,
        *,
        zookeeper: str,
        racks: Sequence[str | None] = (None, None, None),
        ibp: str = "2.6",
        session_timeout_ms: int = 6000,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the brokers, one per rack; nothing runs before `start`. The other arguments are those of a broker."""
        self.brokers = [
            KafkaBroker(
                broker_id,
                folder=folder / f"broker-{broker_id}",
                zookeeper=zookeeper,
                ibp=ibp,
                rack=rack,
                session_timeout_ms=session_timeout_ms,
                overrides=overrides,
            )
            for broker_id, rack in enumerate(racks, start=1)
        ]

    @property
    def bootstrap(self) -> str:
        """Return the CLIENT listeners of all brokers, as `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def __getitem__(self, broker_id: int) -> KafkaBroker:
        """Return the broker with this id; ids begin at 1."""
        return next(broker for broker in self.brokers if broker.id == broker_id)

    def start(self) -> None:
        """Launch all brokers, then wait for all.

        Raises:
            HarnessError: one of them did not start; all have been killed.
        """
        try:
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_started()
        except HarnessError:
            self.kill()
            raise

    def kill(self) -> None:
        """Send SIGKILL to all, for a fast end of a test."""
        for broker in self.brokers:
            broker.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


# Three brokers on two cores: few threads, small buffers, few partitions; every record has three replicas.
SETTINGS: Final = {
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",  # the default of 128 MiB does not fit the heap
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "num.partitions": "3",
    "replica.lag.time.max.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
