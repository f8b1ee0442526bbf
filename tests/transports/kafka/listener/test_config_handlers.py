"""What is asked of the configs of a broker that is kactl is answered here, and of any other by that other."""

import asyncio
import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from .client import connected, frame, part, request_class
from .desk import KACTL, Desk, listening
from .upstream import broker

pytestmark = pytest.mark.anyio

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
VERSIONS = [
    (key, version) for key, last in ((DESCRIBE, 4), (ALTER, 2), (INCREMENTAL, 1)) for version in range(last + 1)
]
TOPIC, BROKER = 2, 4
THROTTLE = "leader.replication.throttled.rate"


def about(key: int, version: int, *resources: tuple[int, str], config: str = THROTTLE) -> Any:
    """A request that asks for, or sets, one config of each of those."""
    kind = {DESCRIBE: "DescribeConfigsResource", ALTER: "AlterConfigsResource", INCREMENTAL: "AlterConfigsResource"}[
        key
    ]
    if key == DESCRIBE:
        values: dict[str, Any] = {"configuration_keys": (config,)}
    else:
        operation = {"config_operation": 1} if key == INCREMENTAL else {}
        values = {"configs": (part(key, version, "AlterableConfig")(name=config, value=None, **operation),)}
    made = tuple(
        part(key, version, kind)(resource_type=type_, resource_name=name, **values) for type_, name in resources
    )
    return request_class(key, version)(resources=made, **({} if key == DESCRIBE else {"validate_only": False}))


def results(key: int, answer: Any) -> list[Any]:
    return list(answer.results if key == DESCRIBE else answer.responses)


async def echo(frame: bytes, _: asyncio.StreamWriter) -> bytes:
    return frame[4:8] + frame


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_ours_are_none_and_need_no_broker(key: int, version: int) -> None:
    async with listening(Desk()) as (_, port), connected(port) as client:
        answer = await client.ask(about(key, version, (BROKER, str(KACTL))))

    (one,) = results(key, answer)
    assert (one.error_code, one.resource_type, one.resource_name) == (KioError.none, BROKER, str(KACTL))
    if key == DESCRIBE:
        assert one.configs == ()


@pytest.mark.parametrize(("key", "version"), [pair for pair in VERSIONS if pair[0] != DESCRIBE])
async def test_what_would_have_no_effect_is_refused(key: int, version: int) -> None:
    async with listening(Desk()) as (_, port), connected(port) as client:
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
async def test_those_of_others_go_to_a_broker_as_they_are(
    key: int, version: int, resources: list[tuple[int, str]]
) -> None:
    request = about(key, version, *resources)
    desk = Desk()
    async with broker(echo) as upstream, listening(desk) as (listener, port), connected(port) as client:
        desk.live = [upstream.broker]
        client.writer.write(frame(request, 7))
        answer = await client.frame()

    assert upstream.frames == [frame(request, 7)[4:]]
    assert answer == struct.pack(">i", 7) + frame(request, 7)[4:]
    assert listener.counters.requests == {"relayed": 1}


async def test_a_version_that_is_not_known_yet_is_left_to_brokers() -> None:
    content = struct.pack(">hhi", INCREMENTAL, 2, 7) + frame(about(INCREMENTAL, 1, (BROKER, str(KACTL))), 7)[12:]
    desk = Desk()
    async with broker(echo) as upstream, listening(desk) as (_, port), connected(port) as client:
        desk.live = [upstream.broker]
        client.writer.write(struct.pack(">i", len(content)) + content)
        await client.frame()

    assert upstream.frames == [content]
