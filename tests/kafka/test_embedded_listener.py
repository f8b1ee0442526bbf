"""Kafka listeners of a program that embeds a controller; the requests are those of librdkafka."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import kactl
from kactl.transports.kafka.listener.authentication import MECHANISMS
from tests.support.certificates import Authority
from tests.transports.kafka.listener.client import connected, request_class

pytestmark = pytest.mark.anyio

TOKENS = {"alices-token.x": "alice", "bobs-token.x": "bob"}
LOGIN_FAILED, DENIED = -169, 29
OPEN = kactl.kafka.ListenerSecurity()
TOPIC = kactl.kafka.ResourceType.TOPIC


async def validate(token: str) -> kactl.kafka.Bearer | None:
    return kactl.kafka.Bearer(TOKENS[token]) if token in TOKENS else None


def decide(principal: kactl.kafka.Principal, questions: Sequence[kactl.kafka.Question]) -> list[bool]:
    """Alice may do everything with topics but one; the right for all of them is one of the cluster."""
    return [
        principal.name == "User:alice" and each.resource.type is TOPIC and each.resource.name != "forbidden"
        for each in questions
    ]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    return authority.server_context()


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[kactl.Controller]:
    """Run an active controller with one participant."""
    async with contextlib.AsyncExitStack() as stack:
        hub, store = kactl.MemoryHub(), await stack.enter_async_context(kactl.MemoryStore())
        theirs = await stack.enter_async_context(store.another())
        controller = await stack.enter_async_context(kactl.Controller(9, store=store.another(), hub=hub))
        await stack.enter_async_context(kactl.Participants(1, store=theirs, hub=hub, session_timeout_ms=60_000))
        await controller.wait_active()
        yield controller


def security(tls: ssl.SSLContext) -> kactl.kafka.ListenerSecurity:
    return kactl.kafka.ListenerSecurity(
        kactl.kafka.Authentication("SASL_SSL", mechanisms=("OAUTHBEARER",), validate_token=validate),
        tls,
        kactl.kafka.DelegatedAuthorizer(decide),
    )


async def create(endpoint: kactl.kafka.Endpoint, topic: str, **settings: Any) -> int:
    """Create a topic by librdkafka. Returns its error code; -169 if the login failed."""
    failed: list[int] = []
    settings |= {
        "bootstrap.servers": f"{endpoint.host}:{endpoint.port}",
        "log_level": 0,
        "error_cb": lambda error: failed.append(error.code()),
    }
    admin = AdminClient(settings)
    admin.poll(0)
    future = admin.create_topics([NewTopic(topic)], request_timeout=60)[topic]
    async with asyncio.timeout(60):
        while not future.done() and LOGIN_FAILED not in failed:
            await asyncio.to_thread(admin.poll, 0.05)  # librdkafka calls for its token here
    if not future.done():
        return LOGIN_FAILED
    try:
        future.result()
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def token_settings(token: str, authority: Authority) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.cert),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, 4_000_000_000.0),
    }


@pytest.mark.parametrize(
    ("token", "topic", "code"),
    [
        ("alices-token.x", "orders", 0),
        ("alices-token.x", "forbidden", DENIED),
        ("bobs-token.x", "orders", DENIED),
        ("another", "orders", LOGIN_FAILED),
    ],
)
async def test_functions_of_the_program_decide(
    token: str, topic: str, code: int, tls: ssl.SSLContext, authority: Authority
) -> None:
    async with (
        cluster() as controller,
        kactl.kafka.listener(controller, {"CLIENTS://127.0.0.1:0": security(tls)}) as endpoints,
    ):
        result = await create(endpoints["CLIENTS"], topic, **token_settings(token, authority))

        assert endpoints["CLIENTS"].protocol == "SASL_SSL"
        assert result == code
        assert [ref.name for ref in controller.topics()] == ([topic] if code == 0 else [])


async def test_listeners_have_their_own_security_and_end_with_the_block(
    tls: ssl.SSLContext, authority: Authority
) -> None:
    listeners = {"OPEN://127.0.0.1:0": OPEN, "CLIENTS://127.0.0.1:0": security(tls)}
    async with cluster() as controller:
        async with kactl.kafka.listener(controller, listeners, partitions=3) as endpoints:
            assert await create(endpoints["OPEN"], "open") == 0
            settings = token_settings("alices-token.x", authority)
            assert await create(endpoints["CLIENTS"], "checked", **settings) == 0

        assert [len(controller.partitions_of(name)) for name in ("checked", "open")] == [3, 3]
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(endpoints["OPEN"].host, endpoints["OPEN"].port)


async def test_clients_find_the_advertised_address() -> None:
    async with (
        cluster() as controller,
        kactl.kafka.listener(
            controller, {"OPEN://127.0.0.1:0": OPEN}, advertised=["OPEN://kactl1.example:9095"]
        ) as endpoints,
        connected(endpoints["OPEN"].port) as client,
    ):
        metadata = await client.ask(request_class(3, 1)(topics=()))

    assert [(each.node_id, each.host, each.port) for each in metadata.brokers] == [(9, "kactl1.example", 9095)]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_connections_per_ip": 200},
        {"max_connections_per_ip": 0, "max_connections_per_ip_overrides": {"localhost": 200}},
    ],
)
async def test_many_clients_of_one_address_are_served_within_its_limit(limits: dict[str, Any]) -> None:
    """As behind NAT."""
    async with contextlib.AsyncExitStack() as stack:
        controller = await stack.enter_async_context(cluster())
        endpoints = await stack.enter_async_context(
            kactl.kafka.listener(controller, {"OPEN://127.0.0.1:0": OPEN}, **limits)
        )
        port = endpoints["OPEN"].port
        clients = [await stack.enter_async_context(connected(port)) for _ in range(200)]

        answers = await asyncio.gather(*(client.ask(request_class(3, 1)(topics=())) for client in clients))

        assert [len(answer.brokers) for answer in answers] == [1] * 200
        async with connected(port) as one_more:
            with pytest.raises((EOFError, ConnectionError)):
                await one_more.ask(request_class(3, 1)(topics=()))


async def test_override_of_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(kactl.model.errors.BadConfig, match="'no\\.such\\.invalid' has no address"):
        async with kactl.kafka.listener(
            kactl.Controller(9), {LOCAL: OPEN}, max_connections_per_ip_overrides={"no.such.invalid": 1}
        ):
            pass


def without_mechanism(tls: ssl.SSLContext) -> kactl.kafka.ListenerSecurity:
    """OAUTHBEARER without a function is not offered."""
    return kactl.kafka.ListenerSecurity(kactl.kafka.Authentication("SASL_SSL", mechanisms=("OAUTHBEARER",)), tls)


LOCAL, OTHER = "A://127.0.0.1:0", "A://0.0.0.0:0"


@pytest.mark.parametrize(
    ("listeners", "more", "message"),
    [
        ({}, {}, "is empty"),
        ({"127.0.0.1:0": OPEN}, {}, "write NAME://HOST:PORT"),
        ({LOCAL: OPEN, "A://localhost:0": OPEN}, {}, "two listeners are named 'A'"),
        ({LOCAL: OPEN}, {"advertised": ["B://localhost:1"]}, "'B' is not the name of a listener: use \"A\""),
        ({LOCAL: OPEN}, {"allow_insecure": ["kafka.A"]}, "'kafka.A' is no open listener"),
        ({LOCAL: OPEN}, {"allow_insecure": "kafka.A"}, "give a list"),
        ({LOCAL: OPEN}, {"partitions": "1"}, "is not a whole number"),
        ({LOCAL: "ssl"}, {}, "A://127.0.0.1:0 is SSL, which needs a TLS context"),
        ({LOCAL: "tls"}, {}, "A://127.0.0.1:0 is PLAINTEXT, which has none"),
        ({LOCAL: "no mechanism"}, {}, "offers no mechanism for logins"),
        ({OTHER: OPEN}, {}, 'has no TLS and no authentication and no authorizer: .*"kafka.A" in allow_insecure'),
        ({OTHER: "one-sided"}, {}, "has no authentication:"),
        ({OTHER: "no authorizer"}, {}, "has no authorizer:"),
        ({OTHER: "secure"}, {"allow_insecure": ["kafka.A"]}, "'kafka.A' is no open listener"),
    ],
)
async def test_listener_that_is_open_or_contradicts_itself_is_refused(
    listeners: dict[str, Any], more: dict[str, Any], message: str, tls: ssl.SSLContext
) -> None:
    made = {
        "ssl": kactl.kafka.ListenerSecurity(kactl.kafka.Authentication("SSL")),
        "tls": kactl.kafka.ListenerSecurity(tls=tls),
        "no mechanism": without_mechanism(tls),
        "one-sided": kactl.kafka.ListenerSecurity(kactl.kafka.Authentication("SSL"), tls, security(tls).authorizer),
        "no authorizer": kactl.kafka.ListenerSecurity(
            kactl.kafka.Authentication("SASL_SSL", mechanisms=MECHANISMS), tls
        ),
        "secure": security(tls),
    }
    given = {text: made.get(each, each) if isinstance(each, str) else each for text, each in listeners.items()}

    with pytest.raises(kactl.BadRequest, match=message):
        async with kactl.kafka.listener(kactl.Controller(9), given, **more):
            pass


async def test_open_listener_is_started_by_consent_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        cluster() as controller,
        kactl.kafka.listener(controller, {OTHER: OPEN}, allow_insecure=["kafka.A"]) as endpoints,
    ):
        assert endpoints["A"].port > 0

    assert "can be reached by others and has no TLS" in caplog.text
