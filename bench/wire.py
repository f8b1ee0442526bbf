"""Cost of encoding and decoding messages of the tcp network.

    python -m bench.wire [--partitions 100000] [--runs 5]

* `encode`, `decode`: a LeaderAndIsr with that many partitions in 16 columns of int32, twenty partitions in each topic.
* `decode one topic`: the same with one topic, so that the columns are all of it.
* `again`: the same partitions to another broker.
* `cut`, `join`: the parts of the encoded request, and the request in the parts. Each copies all bytes.

Times are processor time; each run is the fastest of several."""

import argparse
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from bench.figures import Found
from bench.run import main, module, undisturbed
from kactl.decide.messages.control import LeaderAndIsr, PartitionStates
from kactl.model import TopicRef
from kactl.transports.tcp import wire
from kactl.transports.tcp.framing import Bounds, FrameDecoder, Kind, Message, frames_of
from kactl.transports.tcp.limits import PART_BYTES_MAX, Limits

NAME: Final = "wire"
PARTITIONS_OF_A_TOPIC: Final = 20
REPEATS: Final = 20


def request(count: int, partitions_of_a_topic: int = PARTITIONS_OF_A_TOPIC) -> LeaderAndIsr:
    """Returns a request with 16 columns of int32: six of numbers, and ten slots of replicas."""
    numbers = np.arange(count, dtype=np.int32)
    lists = np.arange(3 * count, dtype=np.int32).reshape(3, count)
    topics = tuple(TopicRef(f"topic-{at}", bytes(16)) for at in range(-(-count // partitions_of_a_topic)))
    states = PartitionStates(
        topics,
        topic=numbers // partitions_of_a_topic,
        partition=numbers,
        controller_epoch=numbers,
        leader=numbers,
        leader_epoch=numbers,
        isr=lists,
        partition_epoch=numbers,
        replicas=lists,
        adding=lists,
        removing=lists[:1],
    )
    return LeaderAndIsr(1, 2, 3, states)


def fastest_ms(call: Callable[[], object]) -> float:
    spent = []
    with undisturbed():
        for _ in range(REPEATS):
            began = time.process_time_ns()
            call()
            spent.append(time.process_time_ns() - began)
    return min(spent) / 1e6


def cut(sent: LeaderAndIsr, limits: Limits) -> list[bytes]:
    return list(frames_of(Message(Kind.ORDER, 1, pieces=wire.encode_pieces(sent)), limits.part_bytes))


def join(frames: list[bytes], limits: Limits) -> Message:
    decoder = FrameDecoder(Bounds(PART_BYTES_MAX, limits.message_bytes, limits.streams))
    message = None
    for frame in frames:
        decoder.feed(frame)
        message = decoder.next()
    assert message is not None
    return message


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)


async def measure(asked: argparse.Namespace, found: Found) -> None:
    sent, limits = request(asked.partitions), Limits()
    data = wire.encode(sent)
    found.add("size", "B", len(data))

    one_topic = wire.encode(request(asked.partitions, asked.partitions))
    frames = cut(sent, limits)

    def encode_new() -> object:
        wire.control.forget_states()
        return wire.encode_pieces(sent)

    measured: dict[str, Callable[[], object]] = {
        "encode": encode_new,
        "again": lambda: wire.encode_pieces(sent),
        "decode": lambda: wire.decode(data, wire.ORDERS),
        "decode one topic": lambda: wire.decode(one_topic, wire.ORDERS),
        "cut": lambda: cut(sent, limits),
        "join": lambda: join(frames, limits),
    }
    for run in range(asked.runs + 1):
        for name, call in measured.items():
            took = fastest_ms(call)
            if run:  # the first one is a warm-up
                found.add(name, "ms", took)


if __name__ == "__main__":
    main(module(__name__))
