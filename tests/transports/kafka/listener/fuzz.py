"""Mutation fuzzing of all code of the Kafka listener that decodes bytes of peers.

Run as `python -m tests.transports.kafka.listener.fuzz [INPUTS] [SEED]`, or by `make fuzz`. It exits with 1 at the first
input that violates an oracle, and prints that input. An input is a valid or hostile request of one kind and version,
with random changes. The oracles:

* decoders and `claim_of` raise only MalformedMessage;
* the same bytes decode to the same values, at once and in steps;
* decoded values can be encoded, and that decodes to the same values;
* elements are charged before they are created: the decoded value has at most the charged number;
* a handler responds to every decoded request, and its response can be encoded;
* an input uses at most TIME_S of processor time.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kactl.access import AclAuthorizer, Principal
from kactl.errors import BadRequest, MalformedMessage
from kactl.transports.kafka.codec.primitive import uvarint
from kactl.transports.kafka.listener.api import Api
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.broker_handlers import BrokerHandlers
from kactl.transports.kafka.listener.config_apis import CONFIG_APIS
from kactl.transports.kafka.listener.config_handlers import ConfigHandlers
from kactl.transports.kafka.listener.discovery_handlers import DiscoveryHandlers
from kactl.transports.kafka.listener.field_types import Elements
from kactl.transports.kafka.listener.frames import Head
from kactl.transports.kafka.listener.identity import claim_of, is_broker_request
from kactl.transports.kafka.listener.partition_handlers import PartitionHandlers
from kactl.transports.kafka.listener.relayed_apis import RELAYED_APIS
from kactl.transports.kafka.listener.relayed_authorization import RELAYED_CHECKS, Check
from kactl.transports.kafka.listener.topic_handlers import TopicHandlers
from kactl.transports.kafka.listener.verdict import Peer

from .hostile import body, hostile
from .listener_stub import ControllerStub

# A request of some hundred bytes takes microseconds. Other processes of the machine are not counted.
TIME_S: Final = 0.1
ELEMENTS_MAX: Final = 500
# Larger hostile requests are covered by the tests; here they would be copied a million times.
_SEED_SIZE_MAX: Final = 600
# One in this many decoded requests is handled, and its response encoded.
_HANDLED: Final = 10
_PROGRESS: Final = 100_000

_NUMBERS: Final = tuple(
    [n.to_bytes(4, "big", signed=True) for n in (-(2**31), -2, -1, 0, 1, 2**16, 2**31 - 1)]
    + [n.to_bytes(2, "big", signed=True) for n in (-(2**15), -2, -1, 0, 1, 2**15 - 1)]
    + [uvarint(n) for n in (0, 1, 2, 127, 128, 2**14, 2**31 - 1, 2**32 - 1)]
    + [b"\xff" * 5, b"\xff" * 10, b"\x80" * 9 + b"\0"]
)


class _Refusing(dict[Any, Any]):
    def __missing__(self, kind: object) -> Any:
        return lambda _: BadRequest("all of it", "nothing is done here")


class Violation(Exception):
    """An oracle is violated."""


def seeds() -> list[tuple[Api, int, bytes]]:
    """Return a valid request of each kind and version and the small requests of the hostile table, without headers."""
    requests = []
    for api in (APIS | RELAYED_APIS | CONFIG_APIS).values():
        for version in range(api.version_max + 1):
            requests.append((api, version, body(api, version)))
            overhead = 12 + (0 if (api.key, version) == (7, 0) else 3) + api.request.is_flexible(version)
            requests += [
                (api, version, frame[overhead:]) for _, frame in hostile(api, version) if len(frame) < _SEED_SIZE_MAX
            ]
    return requests


def changed(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """Apply one to four changes: bytes, numbers at their limits, cuts, repetitions, parts of another request."""
    mutated = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        offset = chance.randint(0, len(mutated))
        match chance.randrange(10):
            case 0 | 6 | 7 | 8 | 9 if mutated:
                mutated[offset % len(mutated)] = chance.choice((0, 1, 2, 3, chance.randrange(256)))
            case 1:
                number = chance.choice(_NUMBERS)
                mutated[offset : offset + len(number)] = number
            case 2:
                mutated[offset:offset] = chance.choice(_NUMBERS)
            case 3:
                del mutated[offset : offset + chance.randint(1, 8)]
            case 4:
                mutated[offset:offset] = mutated[offset : offset + chance.randint(1, 40)] * chance.randint(1, 20)
            case _:
                begin = chance.randint(0, len(other))
                mutated[offset:] = other[begin : begin + 200]
    return bytes(mutated)


def check(api: Api, version: int, content: bytes) -> dict[str, Any] | None:
    """Return the decoded request; None if it is rejected.

    Raises:
        Violation: an oracle is violated.
    """
    elements = Elements(ELEMENTS_MAX)
    try:
        values = api.request.read(content, version, elements=elements)
    except MalformedMessage:
        values = None
    steps = api.request.reading(content, version, elements=Elements(ELEMENTS_MAX))
    again = None
    try:
        while True:
            next(steps)
    except StopIteration as end:
        again = end.value
    except MalformedMessage:
        pass
    if not _equal(again, values):
        raise Violation("it decodes differently in steps")
    if is_broker_request(api.key):
        claim_of(Head(api.key, version, 1, len(content)), content)
    if values is None:
        return None
    if _size(values) > elements.count:
        raise Violation(f"{_size(values)} elements were made, and {elements.count} charged")
    if not _equal(api.request.read(api.request.write(values, version), version), values):
        raise Violation("it does not decode to the same values once encoded")
    return values


def _equal(left: object, right: object) -> bool:
    """Return whether two decoded messages are the same. Two values that are not a number count as the same."""
    return left == right or repr(left) == repr(right)


def _size(values: dict[str, Any]) -> int:
    """Return the number of structs and strings in the arrays of a message."""
    size = 0
    for value in values.values():
        if isinstance(value, list):
            size += sum(not isinstance(member, int) for member in value)
            size += sum(_size(member) for member in value if isinstance(member, dict))
    return size


def _denied(relayed_check: Check) -> Callable[[dict[str, Any], int], Any]:
    """Return what makes the response to a request of a client without rights."""
    nobody = Peer(AclAuthorizer(), Principal("User:nobody", "127.0.0.1", is_authenticated=True))

    async def respond(values: dict[str, Any], version: int) -> Any:
        return relayed_check(nobody, values, version).complete({})

    return respond


def handlers() -> dict[int, Callable[[dict[str, Any], int], Any]]:
    controller = ControllerStub(_Refusing())
    own = DiscoveryHandlers(controller, listener_name="INTERNAL", listed_as=lambda: None)
    relayed = {key: _denied(relayed_check) for key, relayed_check in RELAYED_CHECKS.items()}
    return {
        **relayed, **BrokerHandlers(controller).handlers(), **TopicHandlers(controller).handlers(),
        **PartitionHandlers(controller).handlers(), **own.handlers(), **ConfigHandlers(controller.node_id).handlers(),
    }  # fmt: skip


async def fuzz(inputs: int, seed: int) -> Counter[str]:
    """Return the number of inputs by outcome.

    Raises:
        Violation: an oracle is violated. Any exception that a decoder or handler leaks is raised as it is.
    """
    chance, requests, counts = random.Random(seed), seeds(), Counter[str]()
    valid = [seed for seed in requests if seed[2] == body(seed[0], seed[1])]
    answers = handlers()
    longest_s = 0.0
    for number in range(inputs):
        # Half of the inputs begin as a valid request; requests that are already hostile rarely decode.
        api, version, content = chance.choice(valid if number % 2 else requests)
        mutated = changed(content, chance.choice(requests)[2], chance)
        if chance.randrange(8) == 0:
            version = chance.randint(0, api.version_max)  # the other encoding, or other fields
        begun_s = time.process_time()
        try:
            values = check(api, version, mutated)
            counts["refused" if values is None else "decoded"] += 1
            if values is not None and counts["decoded"] % _HANDLED == 0:
                api.response.write(await answers[api.key](values, version), version)
                counts["handled"] += 1
            taken_s = time.process_time() - begun_s
            if taken_s > TIME_S:
                raise Violation(f"it took {taken_s:.3f} s")
        except BaseException as error:
            error.add_note(f"input {number} of seed {seed}: {api.name} {version} {mutated.hex()}")
            raise
        longest_s = max(longest_s, taken_s)
        counts[api.name] += 1
        if (number + 1) % _PROGRESS == 0:
            print(f"{number + 1} inputs, longest {longest_s * 1000:.1f} ms", file=sys.stderr, flush=True)
    return counts


def main() -> None:
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    print(dict(asyncio.run(fuzz(inputs, seed)).most_common()))


if __name__ == "__main__":
    main()
