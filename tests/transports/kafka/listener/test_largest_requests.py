"""Processor time of the largest request of each type in one step of the event loop, in a separate process."""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kactl.model import ZERO_ID
from kactl.model.errors import ErrorCode
from kactl.transports.kafka.listener.api_keys import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_USER_SCRAM_CREDENTIALS,
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    UPDATE_FEATURES,
)
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.field_types import Elements, whole
from kactl.transports.kafka.listener.limits import Limits
from tests.support.certificates import Authority

from .attack.passwords import Session, connection
from .attack.run import WORK_MAX, Server, serving
from .attack.server import BROKERS, LISTED_PREFIX, PASSWORDS

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# A process on the same core can slow down a single step, so that a request is sent again.
ROUNDS_MAX = 3
CLIENT = "127.0.2.1"
# Requests of a fixed size, and those of UpdateFeatures, of up to 64 KiB.
SMALL = {API_VERSIONS, CONTROLLED_SHUTDOWN, ALLOCATE_PRODUCER_IDS, UPDATE_FEATURES}
NAMES = [f"{LISTED_PREFIX}{number:04x}" for number in range(16_000)]
TOPIC = LISTED_PREFIX


class Largest(NamedTuple):
    """A request of nearly as many bytes or elements as are allowed."""

    key: int
    version: int
    values: dict[str, Any]


def of_admins() -> list[Largest]:
    created = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    placed = [{"partition_index": number, "broker_ids": [1, 2, 3]} for number in range(16_000)]
    configs = [{"name": f"config-{number}", "value": "1"} for number in range(16_000)]
    validated = {"timeout_ms": 1000, "validate_only": True}
    placement = {"num_partitions": -1, "replication_factor": -1, "assignments": placed, "configs": []}
    moved = [{"partition_index": number, "replicas": [1, 2, 3]} for number in range(16_000)]
    timed = {"timeout_ms": 1000}
    by_id = [{"name": None, "topic_id": struct.pack(">qq", 1, number)} for number in range(16_000)]
    named = [{"name": name, "topic_id": ZERO_ID} for name in NAMES]
    grown = [{"name": name, "count": 5, "assignments": None} for name in NAMES]
    listed = [{"name": name, "partition_indexes": [0]} for name in NAMES]
    users = [{"name": name, "mechanism": 1} for name in NAMES]
    elected = [{"topic": name, "partitions": [0]} for name in NAMES]
    return [
        Largest(METADATA, 1, {"topics": [{"name": name} for name in NAMES]}),
        Largest(METADATA, 12, {"topics": named}),
        Largest(CREATE_TOPICS, 1, {"topics": [{"name": name, **created} for name in NAMES], **validated}),
        Largest(CREATE_TOPICS, 1, {"topics": [{"name": TOPIC, **placement}], **validated}),
        Largest(CREATE_TOPICS, 1, {"topics": [{"name": TOPIC, **created, "configs": configs}], **validated}),
        Largest(DELETE_TOPICS, 1, {"topic_names": NAMES, **timed}),
        Largest(DELETE_TOPICS, 6, {"topics": named, **timed}),
        Largest(DELETE_TOPICS, 6, {"topics": by_id, **timed}),
        Largest(ELECT_LEADERS, 1, {"election_type": 0, "topic_partitions": elected, **timed}),
        Largest(ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [{"name": TOPIC, "partitions": moved}], **timed}),
        Largest(LIST_PARTITION_REASSIGNMENTS, 0, {"topics": listed, **timed}),
        Largest(ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": users, "upsertions": []}),
        Largest(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": name} for name in NAMES]}),
        # The last one: it exceeds the user's quota.
        Largest(CREATE_PARTITIONS, 1, {"topics": grown, **timed, "validate_only": False}),
    ]


def of_broker(broker: int, epoch: int) -> Largest:
    shrunk = [
        {"partition_index": number, "leader_epoch": 1, "new_isr": [1, 2, 3], "partition_epoch": 1}
        for number in range(260_000)
    ]
    topics = [{"topic_id": ZERO_ID, "topic_name": TOPIC, "partitions": shrunk}]
    return Largest(ALTER_PARTITION, 2, {"broker_id": broker, "broker_epoch": epoch, "topics": topics})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Listener(NamedTuple):
    """A server, and the users of its peers; None without logins."""

    server: Server
    tls: ssl.SSLContext | None
    client: str | None
    broker: str | None

    @contextlib.asynccontextmanager
    async def session(self, address: str, user: str | None) -> AsyncIterator[Session]:
        async with connection(self.server.port, self.tls, address) as session:
            if user is not None:
                assert await session.log_in(user, PASSWORDS[user]) is ErrorCode.NONE
            yield session

    async def longest_step(self, session: Session, request: Largest) -> float:
        """Returns the units of processor time of the longest step during a request."""
        for _ in range(ROUNDS_MAX):
            await self.server.meters()
            async with asyncio.timeout(300):
                await session.ask(APIS[request.key], request.version, request.values)
            meters = await self.server.meters()
            assert set(meters["refused"]) <= {"denied", "quota"}
            if meters["work"] < WORK_MAX:
                break
        return float(meters["work"])


@pytest.fixture(params=[None, "client", "listed"], ids=["without logins", "of a super user", "of another user"])
async def listener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Listener]:
    if request.param is None:
        async with serving("unpaid") as server:
            yield Listener(server, None, None, None)
        return
    authority = Authority(tmp_path)
    signed = authority.sign("kactl")
    tls = ssl.create_default_context(cafile=str(authority.cert))
    async with serving("--plain", str(signed.cert), str(signed.key), "unpaid") as server:
        yield Listener(server, tls, request.param, "broker-3")


async def test_largest_requests_do_not_block_the_loop(listener: Listener) -> None:
    """Many other users have rights on all topics. Their entries must not be looked through for each topic."""
    steps = {}
    for number, request in enumerate(of_admins()):
        async with listener.session(CLIENT, listener.client) as session:
            steps[number, APIS[request.key].name] = await listener.longest_step(session, request)
    async with listener.session(BROKERS[3], listener.broker) as session:
        request = of_broker(3, listener.server.epochs[3])
        steps[-1, "AlterPartition"] = await listener.longest_step(session, request)

    assert {key: step for key, step in steps.items() if step >= WORK_MAX} == {}


def test_all_types_of_requests_have_a_largest_one() -> None:
    requests = [*of_admins(), of_broker(3, 1)]
    assert {request.key for request in requests} | SMALL == set(APIS)


@pytest.mark.parametrize("number", range(len(of_admins()) + 1))
def test_largest_requests_use_most_of_what_is_allowed(number: int) -> None:
    request = [*of_admins(), of_broker(3, 1)][number]
    api, limits, is_broker = APIS[request.key], Limits(), request.key == ALTER_PARTITION
    content = api.request.write(request.values, request.version)
    size_max, elements_max = limits.size_max(api, is_broker=is_broker), limits.elements_max(api, is_broker=is_broker)
    elements = Elements(elements_max)
    whole(api.request.reading(content, request.version, elements=elements))
    assert len(content) <= size_max
    assert max(len(content) / size_max, elements.count / elements_max) > 0.9
