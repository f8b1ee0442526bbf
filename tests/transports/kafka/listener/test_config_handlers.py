"""Config requests: those for a kactl broker are handled here, all others are relayed to the broker."""

import asyncio
import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from .client import connected, frame, part, request_class
from .listener_stub import KACTL, ControllerStub, listening
from .upstream import broker

pytestmark = pytest.mark.anyio

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
VERSIONS = [
    (key, version) for key, last in ((DESCRIBE, 4), (ALTER, 2), (INCREMENTAL, 1)) for version in range(last + 1)
]
TOPIC, BROKER = 2, 4
THROTTLE = "leader.replication.throttled.rate"


def about(key: int, version: int, *resources: tuple[int, str], config: str = THROTTLE) -> Any:
    """Return a request that describes or alters one config of each resource."""
    kind = {DESCRIBE: "DescribeConfigsResource", ALTER: "AlterConfigsResource", INCREMENTAL: "AlterConfigsResource"}[
        key
    ]
    if key == DESCRIBE:
        values: dict[str, Any] = {"configuration_keys": (config,)}
    else:
        operation = {"config_operation": 1} if key == INCREMENTAL else {}
        values = {"configs": (part(key, version, "AlterableConfig")(name=config, value=None, **operation),)}
    entities = tuple(
        part(key, version, kind)(resource_type=type_, resource_name=name, **values) for type_, name in resources
    )
    return request_class(key, version)(resources=entities, **({} if key == DESCRIBE else {"validate_only": False}))


def results(key: int, answer: Any) -> list[Any]:
    return list(answer.results if key == DESCRIBE else answer.responses)


async def echo(frame: bytes, _: asyncio.StreamWriter) -> bytes:
    return frame[4:8] + frame


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_own_configs_are_empty_and_need_no_broker(key: int, version: int) -> None:
    async with listening(ControllerStub()) as (_, port), connected(port) as client:
        answer = await client.ask(about(key, version, (BROKER, str(KACTL))))

    (one,) = results(key, answer)
    assert (one.error_code, one.resource_type, one.resource_name) == (KioError.none, BROKER, str(KACTL))
    if key == DESCRIBE:
        assert one.configs == ()


@pytest.mark.parametrize(("key", "version"), [pair for pair in VERSIONS if pair[0] != DESCRIBE])
async def test_alteration_without_effect_is_rejected(key: int, version: int) -> None:
    async with listening(ControllerStub()) as (_, port), connected(port) as client:
        answer = await client.ask(about(key, version, (BROKER, str(KACTL)), config="num.io.threads"))

    (one,) = results(key, answer)
    assert one.error_code == KioError.invalid_config
    assert "num.io.threads" in one.error_message


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@pytest.mark.parametrize(
    "resources",
    [
        [(BROKER, "1")],
        [(TOPIC, str(KACTL))],
        [(BROKER, str(KACTL)), (TOPIC, "orders")],
        [(BROKER, "")],
        [],
    ],
    ids=str,
)
async def test_configs_of_other_brokers_are_relayed_unchanged(
    key: int, version: int, resources: list[tuple[int, str]]
) -> None:
    request = about(key, version, *resources)
    controller = ControllerStub()
    async with broker(echo) as upstream, listening(controller) as (listener, port), connected(port) as client:
        controller.live = [upstream.broker]
        client.writer.write(frame(request, 7))
        answer = await client.frame()

    assert upstream.frames == [frame(request, 7)[4:]]
    assert answer == struct.pack(">i", 7) + frame(request, 7)[4:]
    assert listener.counters.requests == {"relayed": 1}


async def test_unknown_version_is_relayed() -> None:
    content = struct.pack(">hhi", INCREMENTAL, 2, 7) + frame(about(INCREMENTAL, 1, (BROKER, str(KACTL))), 7)[12:]
    controller = ControllerStub()
    async with broker(echo) as upstream, listening(controller) as (_, port), connected(port) as client:
        controller.live = [upstream.broker]
        client.writer.write(struct.pack(">i", len(content)) + content)
        await client.frame()

    assert upstream.frames == [content]
