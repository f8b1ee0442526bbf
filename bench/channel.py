"""Costs from a decision to a broker's socket: gathering, encoding, sending, and decoding of responses.

    python -m bench.channel [--partitions 100000] [--brokers 30] [--runs 5] [--full]

* `encode`: nanoseconds per partition state of each request, in each supported version. No part is cached; `again` is
  the same request to another broker, whose body is cached.
* `flush`: cost of one chunk of a large change: gathering its rows for all brokers, and encoding every request.
* `send`: LeaderAndIsr for all replicas and UpdateMetadata of all partitions to all brokers, as in a failover, through
  sockets on loopback to a process that only receives, until the last response. `hold` is the longest time for which
  the event loop was blocked.
* `answer`: nanoseconds per partition of a response without errors.
* `slow broker`: one broker does not respond while others fail and return; the requests that it receives afterwards,
  with coalescing and without (`parity`)."""

import argparse
import asyncio
import dataclasses
import struct
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from bench.clusters import Racked, Shape, known
from bench.figures import Found
from bench.run import main, module, numbers, say, undisturbed
from bench.sinks import sinks
from bench.slow import slow_broker
from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.decide.messages.control import KafkaRequest, LeaderAndIsr, StopReplica, UpdateMetadata
from kactl.decide.outbound.batch import Addressed, RequestBatch
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import RowNumbers
from kactl.model import Broker, Endpoint, Fence
from kactl.transports.kafka import KafkaTransport
from kactl.transports.kafka.codec import Decoder, Encoder, Versions, versions_for

from .brokers import LISTENER

NAME: Final = "channel"
CONTROLLER: Final = 900
PARTITIONS_OF_A_TOPIC: Final = 20
CHUNKS = (100, 2_000, 4_096)
# The lowest level of each supported set of request versions.
LEVELS: Final = (ProtocolLevel(2, 6), ProtocolLevel(2, 8, 1), ProtocolLevel(3, 2), LATEST)
# Interval at which the event loop is sampled.
_TICK_S: Final = 0.001
LIMIT_S = 300


def gathered(cluster: Cluster, at: RowNumbers, *, stop: bool = False) -> list[Addressed]:
    """Returns the requests to all brokers for some partitions and all of their replicas."""
    batch = RequestBatch(cluster)
    rows = cluster.table.rows(at)
    batch.begin()
    if stop:
        batch.stop(rows, rows.assigned, delete=False)
    else:
        batch.lead_and_follow(rows, rows.assigned)
    return batch.flush()


def kafka_requests(addressed: list[Addressed]) -> list[KafkaRequest]:
    """Returns the requests without their recipients."""
    return [each.request for each in addressed if isinstance(each.request, KafkaRequest)]


def fresh(request: KafkaRequest) -> KafkaRequest:
    """Returns an equal request without cached bytes."""
    if isinstance(request, StopReplica):
        return dataclasses.replace(request)
    return dataclasses.replace(request, states=dataclasses.replace(request.states))


def rows_of(request: KafkaRequest) -> int:
    return len(request) if isinstance(request, StopReplica) else len(request.states)


def kinds(cluster: Cluster) -> list[KafkaRequest]:
    """Returns the largest request of each type to one broker."""
    told, stopped = gathered(cluster, cluster.table.all()), gathered(cluster, cluster.table.all(), stop=True)
    requests = kafka_requests([*told, *stopped])
    found: list[KafkaRequest] = []
    for kind in (LeaderAndIsr, UpdateMetadata, StopReplica):
        found.append(max((each for each in requests if isinstance(each, kind)), key=rows_of))
    return found


def name_of(request: KafkaRequest, versions: Versions) -> str:
    match request:
        case LeaderAndIsr():
            return f"LeaderAndIsr v{versions.leader_and_isr}"
        case UpdateMetadata():
            return f"UpdateMetadata v{versions.update_metadata}"
        case StopReplica():
            return f"StopReplica v{versions.stop_replica}"


def timed(work: Callable[[], object]) -> float:
    with undisturbed():
        began = time.perf_counter()
        work()
        return time.perf_counter() - began


def encode(cluster: Cluster, *, runs: int, found: Found) -> None:
    """Measures the encoding of each type of request, in each version."""
    done = set()
    for level in LEVELS:
        versions = versions_for(level)
        for request in kinds(cluster):
            name = name_of(request, versions)
            if name in done:
                continue
            done.add(name)
            rows, size = rows_of(request), 0
            for run in range(runs + 1):
                encoder = Encoder(versions, client_id=str(CONTROLLER), listener_name=LISTENER)
                # Topic names are encoded once per controller.
                encoder.frame(fresh(request), 0)
                another = fresh(request)
                first = timed(lambda: encoder.frame(another, 1))  # noqa: B023 - called at once
                again = timed(lambda: encoder.frame(dataclasses.replace(another, broker_epoch=7), 2))  # noqa: B023
                size = encoder.frame(another, 3).size
                if run:  # the first run uses memory that was never touched
                    found.add(f"encode/{name}/partition", "ns", first * 1e9 / rows)
                    if not isinstance(request, StopReplica):
                        found.add(f"encode/{name}/again", "us", again * 1e6)
            found.add(f"encode/{name}/size of a partition", "B", size / rows)


def flush(cluster: Cluster, *, runs: int, found: Found) -> None:
    """Measures one chunk of a large change to all brokers."""
    encoder = Encoder(versions_for(LATEST), client_id=str(CONTROLLER), listener_name=LISTENER)
    table = cluster.table.all()
    for chunk in CHUNKS:
        if chunk > len(table):
            continue
        for run in range(runs + 1):
            # Spread over all topics, like the partitions of one broker; different rows in each run.
            at = table[run :: max(1, len(table) // chunk)][:chunk]
            made: list[Addressed] = []
            gather = timed(lambda: made.extend(gathered(cluster, at)))  # noqa: B023 - called at once
            frames = timed(lambda: [encoder.frame(each, 0) for each in kafka_requests(made)])  # noqa: B023
            if run:
                found.add(f"flush/{chunk}/gather", "ms", gather * 1e3)
                found.add(f"flush/{chunk}/encode", "ms", frames * 1e3)
                found.add(f"flush/{chunk}/partition", "ns", (gather + frames) * 1e9 / chunk)


def answers(cluster: Cluster, *, runs: int, found: Found) -> None:
    """Measures the decoding of responses without errors into columns."""
    versions = versions_for(LATEST)
    decoder = Decoder(versions)
    for request in kinds(cluster):
        if isinstance(request, UpdateMetadata):
            continue  # its response contains no partition
        data = success_in_bytes(request)
        for run in range(runs + 1):
            took = timed(lambda: decoder.response(request, 0, data))  # noqa: B023 - called at once
            if run:
                found.add(f"answer/{name_of(request, versions)}/partition", "ns", took * 1e9 / rows_of(request))


def success_in_bytes(request: LeaderAndIsr | StopReplica) -> bytes:
    """Returns the response of a broker of the latest level without errors, without its length prefix."""
    head = struct.pack(">ibh", 0, 0, 0)
    if isinstance(request, StopReplica):
        names = [topic.name.encode() for topic in request.topics]
        pairs = zip(request.topic.tolist(), request.partition.tolist(), strict=True)
        parts = [
            _uvarint(len(names[at]) + 1) + names[at] + struct.pack(">ihb", partition, 0, 0) for at, partition in pairs
        ]
        return head + _uvarint(len(parts) + 1) + b"".join(parts) + b"\0"
    states, parts = request.states, []
    begins = np.searchsorted(states.topic, np.arange(len(states.topics) + 1)).tolist()
    for number, topic in enumerate(states.topics):
        begin, end = begins[number : number + 2]
        records = b"".join(struct.pack(">ihb", partition, 0, 0) for partition in states.partition[begin:end].tolist())
        parts.append(topic.id + _uvarint(end - begin + 1) + records + b"\0")
    return head + _uvarint(len(parts) + 1) + b"".join(parts) + b"\0"


def _uvarint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


class Holds:
    """Measures the longest time between two iterations of the event loop."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            self.longest = max(self.longest, time.perf_counter() - began - _TICK_S)


async def send(shape: Shape, *, runs: int, found: Found) -> None:
    """Measures sending the requests of a failover to all brokers, through sockets."""
    cluster = known(shape, controller=CONTROLLER, fence=Fence(1, 1))
    with sinks(shape.brokers) as ports:
        brokers = [
            Broker(number, 1000 + number, (Endpoint(LISTENER, "127.0.0.1", port),))
            for number, port in enumerate(ports, 1)
        ]
        for run in range(runs + 1):
            transport = KafkaTransport(controller_id=CONTROLLER, level=LATEST, listener_name=LISTENER)
            by_broker: dict[int, list[KafkaRequest]] = {}
            for broker, request in gathered(cluster, cluster.table.all()):
                assert isinstance(request, KafkaRequest)
                by_broker.setdefault(broker, []).append(request)
            holds = Holds()
            with undisturbed():
                watching = asyncio.create_task(holds.watch())
                await asyncio.sleep(_TICK_S)
                used, began = time.process_time(), time.perf_counter()
                async with asyncio.timeout(LIMIT_S):
                    await asyncio.gather(*(_deliver(transport, each, by_broker[each.id]) for each in brokers))
                took, used = time.perf_counter() - began, time.process_time() - used
            watching.cancel()
            if run:
                at = f"send/{shape.brokers}x{shape.partitions}"
                megabytes = sum(_size(cluster, each) for each in by_broker.values()) / 1e6
                found.add(f"{at}/total", "ms", took * 1e3)
                found.add(f"{at}/processor", "ms", used * 1e3)
                found.add(f"{at}/longest hold", "ms", holds.longest * 1e3)
                found.add(f"{at}/bytes", "MB", megabytes)
                found.add(f"{at}/rate", "MB/s", megabytes / took)


async def _deliver(transport: KafkaTransport, broker: Broker, requests: list[KafkaRequest]) -> None:
    connection = transport.connect(broker)
    try:
        for request in requests:
            await connection.deliver(request)
    finally:
        await connection.close()


def _size(cluster: Cluster, requests: list[KafkaRequest]) -> int:
    encoder = Encoder(versions_for(LATEST), client_id=str(CONTROLLER), listener_name=LISTENER)
    return sum(encoder.frame(request, 0).size for request in requests)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=numbers, help="10,000; with --full 10,000, 100,000 and 200,000")
    parser.add_argument("--brokers", type=int, default=30, help="three racks of them; at least 12")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="the sizes of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    sizes = asked.partitions or ((10_000, 100_000, 200_000) if asked.full else (10_000,))
    shapes = [Racked(size, max(1, size // PARTITIONS_OF_A_TOPIC), asked.brokers) for size in sizes]
    cluster = known(shapes[min(1, len(shapes) - 1)], controller=CONTROLLER, fence=Fence(1, 1))
    say(f"{len(cluster.table):,} partitions on {asked.brokers} brokers")
    for part in (encode, flush, answers):
        part(cluster, runs=asked.runs, found=found)
    for shape in shapes:
        await send(shape, runs=asked.runs, found=found)
    await slow_broker(shapes[0], runs=min(asked.runs, 3), found=found)


if __name__ == "__main__":
    main(module(__name__))
