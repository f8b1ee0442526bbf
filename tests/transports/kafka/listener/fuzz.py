"""Targets of the fuzzer for the requests of the Kafka listener, one for each kind.

An input is the version and a body: of a valid or hostile request, with random changes. Besides the oracles of
`tests.fuzz`, these hold for each input:

* decoders and `claim_of` raise only MalformedMessage;
* elements are charged before they are created: the decoded value has at most the charged number.

These hold for a part of them, which depends on the input alone:

* the same bytes decode to the same values in steps;
* decoded values can be encoded, and that decodes to the same values;
* a handler responds to a decoded request, and its response can be encoded.
"""

import functools
import zlib
from collections.abc import Callable
from typing import Any, Final

from kactl.model.errors import BadRequest, MalformedMessage
from kactl.security.access import AclAuthorizer, Principal
from kactl.security.sasl.scram import Name
from kactl.transports.kafka.listener.api import Api
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.broker_handlers import BrokerHandlers
from kactl.transports.kafka.listener.config_apis import CONFIG_APIS
from kactl.transports.kafka.listener.config_handlers import ConfigHandlers
from kactl.transports.kafka.listener.discovery_handlers import DiscoveryHandlers
from kactl.transports.kafka.listener.field_types import INTS_PER_ELEMENT, Elements
from kactl.transports.kafka.listener.frames import Head
from kactl.transports.kafka.listener.identity import claim_of, is_broker_request
from kactl.transports.kafka.listener.partition_handlers import PartitionHandlers
from kactl.transports.kafka.listener.relayed_apis import RELAYED_APIS
from kactl.transports.kafka.listener.relayed_authorization import RELAYED_CHECKS, Check
from kactl.transports.kafka.listener.topic_handlers import TopicHandlers
from kactl.transports.kafka.listener.user_handlers import UserHandlers
from kactl.transports.kafka.listener.verdict import Peer
from tests.fuzz.files import run
from tests.fuzz.target import Target, Violation

from .hostile import body, compact_or_classic, hostile
from .listener_stub import ControllerStub

ELEMENTS_MAX: Final = 500
# Larger hostile requests are covered by the tests; here they would be copied a million times.
_SEED_SIZE_MAX: Final = 600
# One in this many requests is decoded in steps, too; one in this many decoded requests is encoded; one is handled.
_STEPPED: Final = 8
_ENCODED: Final = 4
_HANDLED: Final = 16


class _Refusing(dict[Any, Any]):
    def __missing__(self, kind: object) -> Any:
        return lambda _: BadRequest("all of it", "nothing is done here")


class _Users:
    async def scram_users(self, names: object) -> dict[str, dict[Name, int]]:
        return {}

    async def alter_scram(self, username: str, changes: object) -> bool:
        return False


KINDS: Final = APIS | RELAYED_APIS | CONFIG_APIS


def targets() -> list[Target]:
    return [
        Target(f"request {api.name}", functools.partial(check, api), (MalformedMessage,), seeds(api))
        for api in KINDS.values()
    ]


def seeds(api: Api) -> list[bytes]:
    """Returns requests of each version, as inputs: as many valid ones as hostile ones, which rarely decode."""
    valid, refused = [], []
    for version in range(api.version_max + 1):
        valid += [_input(version, body(api, version)), _input(version, body(api, version, _many_numbers))]
        overhead = 12 + (0 if (api.key, version) == (7, 0) else 3) + api.request.is_flexible(version)
        refused += [
            _input(version, frame[overhead:]) for _, frame in hostile(api, version) if len(frame) < _SEED_SIZE_MAX
        ]
    return valid * -(-len(refused) // len(valid)) + refused


def _many_numbers(path: str, flexible: bool, member: bytes) -> bytes | None:
    """Return an array of more numbers than have a prepared format."""
    count = INTS_PER_ELEMENT + 1
    return compact_or_classic(count, flexible) + member * count if len(member) == 4 else None


def _input(version: int, content: bytes) -> bytes:
    return bytes([version]) + content


def check(api: Api, data: bytes) -> dict[str, Any]:
    """Returns the decoded request.

    Raises:
        MalformedMessage: it is rejected.
        Violation: an oracle is violated.
    """
    version, content = data[0] % (api.version_max + 1) if data else 0, data[1:]
    chance = zlib.crc32(data)
    elements = Elements(ELEMENTS_MAX)
    if is_broker_request(api.key):
        claim_of(Head(api.key, version, 1, len(content)), content)
    if chance % _STEPPED == 0:
        _check_steps(api, version, content)
    values = api.request.read(content, version, elements=elements)
    if _size(values) > elements.count:
        raise Violation(f"{_size(values)} elements were made, and {elements.count} charged")
    if chance >> 8 & _ENCODED - 1 == 0 and not _equal(
        api.request.read(api.request.write(values, version), version), values
    ):
        raise Violation("it does not decode to the same values once encoded")
    if chance >> 16 & _HANDLED - 1 == 0:
        api.response.write(run(handlers()[api.key](values, version)), version)
    return values


def _check_steps(api: Api, version: int, content: bytes) -> None:
    results = []
    for decode in (api.request.reading, api.request.read):
        elements = Elements(ELEMENTS_MAX)
        try:
            result: Any = decode(content, version, elements=elements)
            results.append(result if isinstance(result, dict) else _last(result))
        except MalformedMessage:
            results.append(None)
    if not _equal(*results):
        raise Violation("it decodes differently in steps")


def _last(steps: Any) -> Any:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


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
    nobody = Peer(AclAuthorizer(), Principal("User:nobody", "sasl", peer="127.0.0.1"))

    async def respond(values: dict[str, Any], version: int) -> Any:
        return relayed_check(nobody, values, version).complete({})

    return respond


@functools.cache
def handlers() -> dict[int, Callable[[dict[str, Any], int], Any]]:
    controller = ControllerStub(_Refusing())
    own = DiscoveryHandlers(controller, listener_name="INTERNAL", listed_as=lambda: None)
    relayed = {key: _denied(relayed_check) for key, relayed_check in RELAYED_CHECKS.items()}
    return {
        **relayed, **BrokerHandlers(controller).handlers(), **TopicHandlers(controller).handlers(),
        **PartitionHandlers(controller).handlers(), **UserHandlers(controller, _Users()).handlers(),
        **own.handlers(), **ConfigHandlers(controller.node_id).handlers(),
    }  # fmt: skip
