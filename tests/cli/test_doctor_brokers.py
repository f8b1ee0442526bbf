"""`kactl doctor` on the brokers that are registered in a real ZooKeeper."""

import asyncio
import datetime
import json
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from kio.schema.describe_configs.v1 import request as describe_request
from kio.schema.describe_configs.v1 import response as describe_response
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.serial import entity_reader
from kio.static.primitive import i8, i32Timedelta

from kactl.cli import doctor_brokers
from kactl.cli.stores import zookeeper_store
from kactl.config.kafka_settings import KafkaConfig
from kactl.config.protocol_level import LATEST
from kactl.config.settings import Config, StoreConfig
from kactl.model import Broker, Endpoint
from kactl.transports.kafka import KafkaTransport
from tests.support.kio_codec import entity_bytes
from tests.support.zookeeper_fixtures import chroot, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer
from tests.transports.kafka.peer import listening as peer_listening

from .server import kactl

__all__ = ["chroot", "jars", "zookeeper"]

pytestmark = pytest.mark.anyio


@pytest.mark.interop
@pytest.mark.parametrize("protocol", ["SASL_SSL", "PLAINTEXT"])
async def test_differing_protocols_of_brokers_are_named(
    protocol: str, zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    """S-34."""
    file = tmp_path / "kactl.toml"
    connect = zookeeper.connect(chroot)
    file.write_text(
        f'node-id = 900\n[store]\nkind = "zookeeper"\nconnect = "{connect}"\n'
        '[kafka]\nlisteners = ["INTERNAL://127.0.0.1:9090"]\nlistener-name = "INTERNAL"\n'
    )
    async with zookeeper_store(StoreConfig(kind="zookeeper", connect=connect)) as store:
        session = await store.new_session(60_000)
        await session.register(Broker(1, 0, (Endpoint("INTERNAL", "127.0.0.1", 1, protocol),)))

        done = await anyio.to_thread.run_sync(kactl, "doctor", "--config", str(file), "-o", "json")

    (check,) = [check for check in json.loads(done.out) if check["check"] == "broker listeners"]
    if protocol == "PLAINTEXT":
        assert (check["result"], check["value"]) == ("pass", "1")
    else:
        assert (done.code, check["result"]) == (1, "FAIL")
        assert check["detail"] == (
            "listener INTERNAL is SASL_SSL on broker 1 and PLAINTEXT here: brokers will not reach kactl; "
            'set kafka.protocols.INTERNAL = "SASL_SSL"'
        )


@pytest.mark.interop
async def test_listeners_without_controller_and_mixed_racks_are_named(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    file = tmp_path / "kactl.toml"
    connect = zookeeper.connect(chroot)
    file.write_text(
        f'node-id = 900\n[store]\nkind = "zookeeper"\nconnect = "{connect}"\n'
        '[kafka]\nlisteners = ["INTERNAL://127.0.0.1:9090"]\nlistener-name = "INTERNAL"\n'
    )
    listeners = (Endpoint("INTERNAL", "127.0.0.1", 1), Endpoint("CLIENT", "127.0.0.1", 2))
    async with zookeeper_store(StoreConfig(kind="zookeeper", connect=connect)) as store:
        for number, rack in ((1, "a"), (2, None)):
            await (await store.new_session(60_000)).register(Broker(number, 0, listeners, rack))

        done = await anyio.to_thread.run_sync(kactl, "doctor", "--config", str(file), "-o", "json")

    checks = {check["check"]: (check["result"], check["detail"]) for check in json.loads(done.out)}
    assert done.code == 1
    assert checks["admin clients"][0] == "WARN"
    assert checks["admin clients"][1].startswith("listener CLIENT: admin clients find no controller there")
    assert checks["broker racks"][0] == "FAIL"
    assert checks["broker racks"][1].startswith("broker 2 without broker.rack, broker 1 with one")


# -- the authorizer of the brokers -------------------------------------------------------------------------------------

VERSIONS = KafkaTransport(controller_id=900, level=LATEST, listener_name="INTERNAL").versions
ZERO = datetime.timedelta()
ACLS = "kafka.security.authorizer.AclAuthorizer"


def config(*, authorizes: bool, listeners: tuple[str, ...] = ("INTERNAL://127.0.0.1:9090",)) -> Config:
    protocols: dict[str, Any] = {"INTERNAL": "SASL_PLAINTEXT"} if authorizes else {}
    kafka = KafkaConfig(listener_name="INTERNAL", listeners=listeners, protocols=protocols)
    return Config(node_id=900, store=StoreConfig(kind="zookeeper", connect="127.0.0.1:1"), kafka=kafka)


async def never(request: Any) -> Any:
    raise AssertionError("a request of a controller")


@pytest.mark.parametrize(
    ("name", "authorizes", "result", "detail"),
    [
        (ACLS, True, "pass", ""),
        ("", False, "pass", ""),
        (
            "org.example.Custom",
            True,
            "WARN",
            "authorizer.class.name=org.example.Custom, whose decisions kactl does not",
        ),
        (
            "org.example.Custom",
            False,
            "WARN",
            "authorizer.class.name=org.example.Custom, whose decisions kactl does not",
        ),
        ("", True, "WARN", "broker 7 has none, and kactl's listeners deny what no access control list allows"),
        (ACLS, False, "WARN", f"broker 7 has {ACLS}, and kactl's listeners allow everything"),
    ],
)
async def test_other_authorizer_than_that_of_lists_is_named(
    name: str, authorizes: bool, result: str, detail: str
) -> None:
    """S-45. The broker speaks kio's messages."""

    class Configured:
        """Answers DescribeConfigs."""

        def reply(self, writer: asyncio.StreamWriter, request: bytes) -> bytes | None:
            header, size = entity_reader(RequestHeader)(request, 0)
            asked, length = entity_reader(describe_request.DescribeConfigsRequest)(request, size)
            assert size + length == len(request)
            (resource,) = asked.resources
            assert (resource.resource_type, resource.resource_name) == (4, "7")
            assert resource.configuration_keys == ("authorizer.class.name",)
            entry = describe_response.DescribeConfigsResourceResult(
                name="authorizer.class.name",
                value=name,
                read_only=True,
                config_source=i8(4),
                is_sensitive=False,
                synonyms=(),
            )
            found = describe_response.DescribeConfigsResult(
                error_code=ErrorCode.none, error_message=None, resource_type=i8(4), resource_name="7", configs=(entry,)
            )
            body = describe_response.DescribeConfigsResponse(throttle_time=i32Timedelta.parse(ZERO), results=(found,))
            return entity_bytes(ResponseHeader(correlation_id=header.correlation_id)) + entity_bytes(body)

    settings = config(authorizes=authorizes)
    async with peer_listening(never, VERSIONS, protocol="PLAINTEXT", logins=Configured()) as peer:
        endpoint = peer.broker.endpoints[-1]
        broker = Broker(7, 0, (Endpoint("INTERNAL", endpoint.host, endpoint.port),))
        dead = Broker(6, 0, (Endpoint("INTERNAL", "127.0.0.1", 1),))
        asked, found = await doctor_brokers._authorizer_of(settings, [dead, broker])

    assert (asked, found) == (7, name)
    check = doctor_brokers._judged(settings, asked, found)
    assert check.result == result
    assert detail in check.detail


async def test_brokers_that_do_not_answer_are_a_warning() -> None:
    dead = Broker(6, 0, (Endpoint("INTERNAL", "127.0.0.1", 1),))

    (check,) = await anyio.to_thread.run_sync(
        lambda: list(doctor_brokers._authorizer(config(authorizes=False), [dead]))
    )

    assert (check.result, check.value) == ("WARN", "unknown")
    assert "broker 6" in check.detail
