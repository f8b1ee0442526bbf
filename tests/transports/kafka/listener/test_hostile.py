"""Hostile requests of every kind and version: all are rejected without effect or reserved memory."""

import asyncio
import struct
from typing import Any

import pytest

from kactl.transports.kafka.listener.api import Api
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.config_apis import CONFIG_APIS
from kactl.transports.kafka.listener.field_types import Elements, TooManyElements
from kactl.transports.kafka.listener.limits import SMALL_SIZE_MAX, Limits

from .client import connected, request_class
from .hostile import body, frame, hostile
from .listener_stub import ControllerStub, listening, until

pytestmark = pytest.mark.anyio

VERSIONS = [(api, version) for api in (APIS | CONFIG_APIS).values() for version in range(api.version_max + 1)]
NAMES = [f"{api.name} {version}" for api, version in VERSIONS]
INVALID_REQUEST = 42


async def answer_of(port: int, content: bytes) -> bytes:
    """Return all bytes until the connection is closed, or one whole response."""
    async with connected(port) as client, asyncio.timeout(60):
        client.writer.write(content)
        client.writer.write_eof()
        try:
            return await client.reader.read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=NAMES)
async def test_hostile_requests_are_rejected_without_effect(api: Api, version: int) -> None:
    controller = ControllerStub()
    frames = dict(hostile(api, version))
    can_answer = any(
        field.name == "error_code" and field.since <= version <= field.until for field in api.response.fields
    )
    async with listening(controller) as (listener, port):
        for defect, content in frames.items():
            before = sum(listener.counters.rejected.values())
            answer = await answer_of(port, content)
            await until(lambda before=before: sum(listener.counters.rejected.values()) > before)  # type: ignore[misc]

            assert controller.requests == [], defect
            if api.key in APIS and can_answer:
                assert struct.pack(">h", INVALID_REQUEST) in answer[8:20], defect
            else:
                assert answer == b"", defect
        async with connected(port) as client:
            await client.ask(request_class(18, 0)())
        await until(lambda: not listener.counters.connections)

    assert set(listener.counters.rejected) <= {"malformed", "elements", "length", "no_broker"}
    assert listener.held == 0


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=NAMES)
def test_hostile_table_begins_with_a_valid_request(api: Api, version: int) -> None:
    content = body(api, version)

    assert api.request.read(content, version).keys() == {field.name for field in api.request.fields}
    assert frame(api, version, content).endswith(content)


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=NAMES)
async def test_requests_in_the_other_encoding_are_rejected_or_read(api: Api, version: int) -> None:
    """Flexible bytes under a classic version, and vice versa: only a rejection leaves the listener."""
    others = [
        other
        for other in range(api.version_max + 1)
        if api.request.is_flexible(other) ^ api.request.is_flexible(version)
    ]
    controller = ControllerStub(_Refusing())
    async with listening(controller) as (listener, port):
        for other in others:
            await answer_of(port, frame(api, version, body(api, other)))
        await until(lambda: not listener.counters.connections)

    assert listener.counters.rejected["error"] == 0
    assert listener.held == 0


class _Refusing(dict[Any, Any]):
    def __missing__(self, kind: object) -> Any:
        from kactl.model.errors import BadRequest

        return lambda _: BadRequest("all of it", "nothing is done here")


@pytest.mark.parametrize("api", APIS.values(), ids=[api.name for api in APIS.values()])
async def test_oversized_request_is_rejected_before_decoding(api: Api) -> None:
    """The response has an error code and the connection stays open; without such a code it is closed."""
    size = Limits().size_max(api, is_broker=True) if api.key == 56 else Limits().size_max(api, is_broker=False)
    size = min(size, Limits().request_size_max)
    content = frame(api, api.version_max, bytes(size))
    async with listening(ControllerStub()) as (listener, port):
        answer = await answer_of(port, content)
        await until(lambda: not listener.counters.connections)

    answers = any(field.name == "error_code" for field in api.response.fields)
    assert (struct.pack(">h", INVALID_REQUEST) in answer[8:20]) == answers
    assert listener.counters.rejected == {"length": 1}


def test_request_limits_are_ordered() -> None:
    limits = Limits()
    sizes = {api.name: limits.size_max(api, is_broker=False) for api in APIS.values()}
    brokers = {api.name: limits.size_max(api, is_broker=True) for api in APIS.values()}

    assert max(sizes.values()) == limits.request_size_max
    assert sizes["AllocateProducerIds"] == sizes["ControlledShutdown"] == SMALL_SIZE_MAX
    assert {name for name in sizes if brokers[name] != sizes[name]} == {"AlterPartition"}
    assert brokers["AlterPartition"] == limits.broker_request_size_max


def test_elements_are_counted_before_creation() -> None:
    """Nested arrays share one count, and each array is charged before it is read."""
    charged: list[int] = []
    content = body(APIS[19], 0)

    APIS[19].request.read(content, 0, elements=Elements(10, charged.append))
    with pytest.raises(TooManyElements, match="at most 1 are taken"):
        APIS[19].request.read(content, 0, elements=Elements(1, charged.append))

    assert charged == [1, 1, 1, 1]
