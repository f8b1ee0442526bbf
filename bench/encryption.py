"""Takeovers and broker failures over encrypted connections to brokers, against plain ones.

    python -m bench.encryption [--sizes 10000] [--brokers 30] [--store sqlite|memory|zookeeper|etcd] [--runs 5] [--full]

A complete controller instance sends its requests through sockets to stub brokers in another process, which respond
immediately. Each broker has three listeners: `PLAINTEXT`, `SSL`, and `SASL_SSL` with a login by SCRAM-SHA-512. The
protocols take turns in one cluster, in another order each time, so that other load affects all of them. Each turn is a
new instance, which opens all of its connections:

* `takeover`: without a copy, from the resignation of the predecessor to the last response of a broker.
* `failure`: of one broker, from its event to the last response, over the open connections.
* `takeover processor`, `failure processor`: the processor time of this process meanwhile, which has the store.

The stub brokers decrypt on another core if there is one."""

import argparse
import dataclasses
import ssl
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from bench import goals
from bench.clusters import Shape
from bench.failover import BROKERS, HOLDER, PARTITIONS_OF_A_TOPIC, STANDBY
from bench.figures import Found
from bench.hosting import KINDS, SESSION_MS, Opener, backing, collecting, load, quiet, registered, until
from bench.run import main, module, numbers, say
from bench.sinks import PASSWORD, PROTOCOLS, USER, protected_sinks
from bench.spread import ratio
from bench.stores import failure_ms
from bench.tables import number, plain, times
from kactl.actors.system import Controller
from kactl.config.protocol_level import LATEST
from kactl.decide.messages.control import Request, Response
from kactl.model import Broker, Endpoint, Fence
from kactl.stores.base import Names, Session, Store, Write
from kactl.transports.base import Connection
from kactl.transports.kafka import BrokerCredentials, KafkaTransport
from tests.support.certificates import Authority

NAME: Final = "encryption"
SIZES: Final = (10_000,)
FULL_SIZES: Final = (10_000, 100_000)
FIGURES: Final = ("takeover", "failure", "takeover processor", "failure processor")
# With a multiple of the number of protocols, each of them is the first one equally often.
RUNS: Final = 6
# Time limit of each wait.
LIMIT_S = 600


@dataclasses.dataclass(frozen=True, slots=True)
class Reachable(Shape):
    """Cluster whose brokers have one listener for each protocol, named after it.

    Attributes:
        ports: by protocol; index is the id of the broker - 1.
    """

    ports: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def registered(self) -> list[Broker]:
        return [
            Broker(
                broker.id,
                broker.epoch,
                tuple(
                    Endpoint(protocol, "127.0.0.1", ports[broker.id - 1], protocol)
                    for protocol, ports in self.ports.items()
                ),
            )
            for broker in Shape.registered(self)
        ]


class Timed:
    """Transport that records when the last response arrived, by `time.perf_counter`."""

    def __init__(self, transport: KafkaTransport) -> None:
        self._transport = transport
        self.last_response = 0.0

    def connect(self, broker: Broker) -> "TimedConnection":
        return TimedConnection(self, self._transport.connect(broker))


class TimedConnection:
    """Connection to one broker."""

    def __init__(self, timed: Timed, connection: Connection) -> None:
        self._timed = timed
        self._connection = connection

    async def deliver(self, request: Request) -> Response:
        response = await self._connection.deliver(request)
        self._timed.last_response = time.perf_counter()
        return response

    async def close(self) -> None:
        await self._connection.close()


class Filled(NamedTuple):
    """A store with a cluster. `holder` has the controllership between the measurements."""

    opened: Opener
    holder: Store
    sessions: list[Session]
    shape: Reachable
    authority: Path


def transport_of(protocol: str, authority: Path) -> Timed:
    tls = ssl.create_default_context(cafile=str(authority)) if protocol.endswith("SSL") else None
    credentials = BrokerCredentials(tls=tls)
    if protocol.startswith("SASL"):
        credentials = BrokerCredentials(tls=tls, mechanism="SCRAM-SHA-512", username=USER, password=PASSWORD)
    return Timed(KafkaTransport(controller_id=STANDBY, level=LATEST, listener_name=protocol, credentials=credentials))


async def restore(store: Store, shape: Shape, fence: Fence) -> None:
    """Returns all brokers to their ISRs and leaderships, so that every turn begins with an equal cluster."""
    assignments = shape.assignments()
    names = Names(assignments.topics, assignments.topic, assignments.partition)
    stored = await store.leaderships(names)
    write = Write(
        names,
        assignments.replicas[0],
        stored.leader_epoch + np.int32(1),
        assignments.replicas,
        stored.recovering,
        stored.partition_epoch,
    )
    assert (await store.commit(write, fence)).committed.all()


async def one_turn(filled: Filled, protocol: str, *, broker: int) -> dict[str, float]:
    """Returns each figure in milliseconds. The broker registers again afterwards."""
    holder, shape, transport = filled.holder, filled.shape, transport_of(protocol, filled.authority)
    fence = await holder.contest(HOLDER, take_over=True)
    await restore(holder, shape, fence)
    instance = Controller(
        STANDBY, store=filled.opened(), transport=transport, auto_balance=False, standby_interval_ms=0
    )
    async with instance, collecting(instance):
        used, began = time.process_time(), time.perf_counter()
        await holder.resign(fence)
        await instance.wait_active(timeout_ms=LIMIT_S * 1000)
        await quiet(instance, limit_s=LIMIT_S)
        takeover = {"takeover": transport.last_response - began, "takeover processor": time.process_time() - used}
        assert len(instance.cluster.table) == shape.partitions

        used = time.process_time()
        await filled.sessions[broker - 1].close()
        await until(lambda: broker not in instance.cluster.brokers, limit_s=LIMIT_S)
        await quiet(instance, limit_s=LIMIT_S)
        failure = {"failure": failure_ms(instance) / 1000, "failure processor": time.process_time() - used}
        filled.sessions[broker - 1] = await holder.new_session(SESSION_MS)
        await filled.sessions[broker - 1].register(shape.registered()[broker - 1])
        await until(lambda: broker in instance.cluster.brokers, limit_s=LIMIT_S)
        await quiet(instance, limit_s=LIMIT_S)
        await holder.contest(HOLDER, take_over=True)
    return {name: seconds * 1000 for name, seconds in (takeover | failure).items()}


async def one_size(size: int, *, store: str, brokers: int, runs: int, found: Found) -> None:
    """Measures and prints one size over all protocols."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kactl-bench-")))
        authority = Authority(folder)
        signed = authority.sign("broker")
        ports = stack.enter_context(protected_sinks(brokers, certificate=signed.cert, key=signed.key))
        shape = Reachable(size, max(1, size // PARTITIONS_OF_A_TOPIC), brokers, ports=ports)
        opened = await stack.enter_async_context(backing(store))
        holder = await stack.enter_async_context(opened())
        await load(holder, shape, await holder.contest(HOLDER))
        sessions = await stack.enter_async_context(registered(holder, shape))
        filled = Filled(opened, holder, sessions, shape, authority.cert)
        for run in range(runs + 1):
            for turn in range(len(PROTOCOLS)):
                protocol = PROTOCOLS[(run + turn) % len(PROTOCOLS)]
                broker = 1 + (run * len(PROTOCOLS) + turn) % brokers
                row = await one_turn(filled, protocol, broker=broker)
                for name in FIGURES if run else ():  # the first round is a warm-up
                    found.add(f"{size}/{protocol}/{name}", "ms", row[name])
    say(f"\n{size:,} partitions of {shape.topics:,} topics on {brokers} brokers, over {store}; ms, and ÷ PLAINTEXT")
    say(plain(["", *(title for name in FIGURES for title in (name, "ratio"))], table(found, size)))


def table(found: Found, size: int) -> list[list[str]]:
    """Returns a row for each protocol: each figure, and its ratio to that of PLAINTEXT, with their spreads."""
    figures, rows = found.figures(), []
    for protocol in PROTOCOLS:
        row = [protocol]
        for name in FIGURES:
            figure, open_figure = figures[f"{size}/{protocol}/{name}"], figures[f"{size}/PLAINTEXT/{name}"]
            each = figure.spread
            row.append(f"{number(each.median)} ({number(each.least)}-{number(each.greatest)})")
            row.append("" if protocol == "PLAINTEXT" else times(ratio(figure.runs, open_figure.runs)))
        rows.append(row)
    return rows


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=numbers, help=f"partitions, by commas; {SIZES}, with --full {FULL_SIZES}")
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument("--store", choices=KINDS, default="sqlite")
    parser.add_argument("--runs", type=int, help=f"turns of each protocol; {len(PROTOCOLS)}, with --full {RUNS}")
    parser.add_argument("--full", action="store_true", help="the sizes of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    runs = asked.runs or (RUNS if asked.full else len(PROTOCOLS))
    for size in asked.sizes or (FULL_SIZES if asked.full else SIZES):
        await one_size(size, store=asked.store, brokers=asked.brokers, runs=runs, found=found)
    say(f"\n{goals.printed(found.figures(), NAME)}")


if __name__ == "__main__":
    main(module(__name__))
