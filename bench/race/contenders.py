"""Contenders of the race: Kafka's controller, in a broker that holds no replica, and kactl, each in its own process.

Both have the same protocol level and session timeout, and hold no automatic preferred-leader elections. Otherwise
they use their defaults: Kafka the options of its own start script and the logging of its distribution, kactl uvloop
if it is installed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tests.support.jars import class_path, java_program
from tests.support.processes import Process, free_port

IBP: Final = "3.9"
SESSION_TIMEOUT_MS: Final = 18_000
# A second for kactl, several for Kafka; a busy machine needs several times that.
START_S: Final = 120.0
STOP_S: Final = 60.0
# Far above the stub brokers'.
_FIRST_ID: Final = 9001

# JVM options of Kafka's kafka-run-class and kafka-server-start, except remote monitoring.
_JVM_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# Maximum number of partitions -> sufficient heap in MB.
_HEAPS: Final = ((10_000, 1024), (50_000, 2048), (100_000, 3072))
_HEAP_MAX: Final = 4096


class Place(msgspec.Struct, frozen=True):
    """Location of an instance.

    Attributes:
        number: 0 for the first instance of a run, 1 for its standby.
        folder: for configuration, logs and output; created by the instance.
        partitions: size of the cluster, for contenders that need a memory setting.
    """

    number: int
    folder: Path
    zookeeper: str
    partitions: int

    @property
    def id(self) -> int:
        return _FIRST_ID + self.number


class Contender:
    """One instance, from the start of its process to its end."""

    def __init__(self, place: Place, command: list[str], *, ready: str) -> None:
        """Starts the instance.

        Args:
            ready: regular expression of the line that it prints when it has started.
        """
        self.id = place.id
        self._ready = ready
        self.process = Process(command, output=place.folder / "output.log")

    def wait_ready(self) -> None:
        """Waits until it prints that it has started.

        Raises:
            HarnessError: this took longer than START_S, or the process has ended.
        """
        self.process.wait_for_line(self._ready, START_S)

    def require_alive(self) -> None:
        """Raises HarnessError if the process has ended."""
        if not self.process.alive:
            raise self.process.error("has ended")

    def stop(self) -> None:
        """Sends SIGTERM and waits; the instance leaves nothing in ZooKeeper."""
        self.process.stop(STOP_S)

    def kill(self) -> None:
        """Sends SIGKILL; the session ends after its timeout."""
        self.process.kill()


def kactl(place: Place) -> Contender:
    """`kactl controller`."""
    place.folder.mkdir(parents=True)
    config = place.folder / "kactl.toml"
    config.write_text(
        f"""
node-id = {place.id}
[store]
kind = "zookeeper"
connect = "{place.zookeeper}"
session-timeout = "{SESSION_TIMEOUT_MS}ms"
[controller]
auto-leader-rebalance = false
[kafka]
ibp = "{IBP}"
listener-name = "PLAINTEXT"
[api]
listen = "127.0.0.1:{free_port()}"
"""
    )
    command = [sys.executable, "-m", "kactl.cli", "controller", "--config", str(config)]
    return Contender(place, command, ready="serves its API at")


def stock(place: Place) -> Contender:
    """Apache Kafka broker, with default settings except those needed to run it beside the stubs."""
    place.folder.mkdir(parents=True)
    settings = {
        "broker.id": place.id,
        "reserved.broker.max.id": _FIRST_ID + 1000,
        "zookeeper.connect": place.zookeeper,
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "log.dirs": place.folder / "data",
        "inter.broker.protocol.version": IBP,
        "auto.leader.rebalance.enable": "false",
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,  # 128 MiB by default, which a controller does not need
    }
    properties = place.folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    logging = place.folder / "log4j.properties"
    logging.write_text(_logging(place.folder))
    heap_mb = heap_for(place.partitions)
    command = [
        java_program() or "java",
        f"-Xms{heap_mb}m",
        f"-Xmx{heap_mb}m",
        *_JVM_OPTIONS,
        f"-Xlog:gc*:file={place.folder / 'gc.log'}:time,tags:filecount=10,filesize=100M",
        f"-Dlog4j.configuration={logging.as_uri()}",
        *("-cp", class_path(), "kafka.Kafka"),
        str(properties),
    ]
    return Contender(place, command, ready=rf"\[KafkaServer id={place.id}\] started")


def heap_for(partitions: int) -> int:
    """Returns the heap of a Kafka controller in MB: enough for this number of partitions, and not much more."""
    return next((heap for limit, heap in _HEAPS if partitions <= limit), _HEAP_MAX)


def _logging(folder: Path) -> str:
    """Writes the logging configuration of the distribution: the controller at TRACE, state changes at INFO."""
    lines = ["log4j.rootLogger=INFO, out, server"]
    loggers = {
        "kafka": "INFO",
        "org.apache.kafka": "INFO",
        "kafka.request.logger": "WARN, requests",
        "kafka.network.RequestChannel$": "WARN, requests",
        "kafka.controller": "TRACE, controller",
        "kafka.log.LogCleaner": "INFO, cleaner",
        "state.change.logger": "INFO, state-change",
        "kafka.authorizer.logger": "INFO, authorizer",
    }
    for name, level in loggers.items():
        lines.append(f"log4j.logger.{name}={level}")
        if "," in level:
            lines.append(f"log4j.additivity.{name}=false")
    lines += ["log4j.appender.out=org.apache.log4j.ConsoleAppender", *_pattern("out")]
    for name in ("server", "requests", "controller", "cleaner", "state-change", "authorizer"):
        lines += [
            f"log4j.appender.{name}=org.apache.log4j.DailyRollingFileAppender",
            f"log4j.appender.{name}.DatePattern='.'yyyy-MM-dd-HH",
            f"log4j.appender.{name}.File={folder / name}.log",
            *_pattern(name),
        ]
    return "\n".join(lines) + "\n"


def _pattern(appender: str) -> list[str]:
    return [
        f"log4j.appender.{appender}.layout=org.apache.log4j.PatternLayout",
        f"log4j.appender.{appender}.layout.ConversionPattern=[%d] %p %m (%c)%n",
    ]


CONTENDERS: Final[dict[str, Callable[[Place], Contender]]] = {"stock": stock, "kactl": kactl}
