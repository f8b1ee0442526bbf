"""Requests that wait for the controller, and rights that are removed meanwhile."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anyio
import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl import Controller, Participants
from kactl.decide.messages.log import TopicEvent
from kactl.kafka.own_controller import ListenerController
from kactl.security.access import Acl, Acls, Operation, kafka_user, topic
from kactl.security.access.authorizer import AclAuthorizer
from kactl.telemetry.attempts import Attempt
from kactl.transports.kafka.listener import ListenerSecurity, permits
from kactl.transports.kafka.listener.api_keys import CREATE_TOPICS

from .client import Client, connected, part, request_class
from .listener_stub import listening, until
from .test_logins import log_in, security

pytestmark = pytest.mark.anyio
PATIENCE_S = 60
# The code of a topic that is created, and for whose leaders the client does not wait.
CREATED = KioError.request_timed_out
MINE = ("mine-1", "mine-2", "mine-3")
ALLOWED = Acls({topic(name): [Acl("User:alice", "*", Operation.ALL)] for name in MINE})


class Time:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Waiting(NamedTuple):
    """A controller that is held within an event, and a client without special rights."""

    controller: Controller
    authorizer: AclAuthorizer
    clock: Time
    release: anyio.Event
    client: Client
    attempts: list[Attempt]

    async def create(self, *names: str) -> dict[str, int]:
        """Create topics. Returns the error code of each."""
        response = await self.client.ask(creation(*names))
        return {entry.name: int(entry.error_code) for entry in response.topics}


def creation(*names: str) -> Any:
    entry = part(CREATE_TOPICS, 5, "CreatableTopic")
    topics = [entry(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()) for name in names]
    return request_class(CREATE_TOPICS, 5)(
        topics=tuple(topics), timeout=datetime.timedelta(seconds=0), validate_only=False
    )


@pytest.fixture
async def waiting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Waiting]:
    clock, holding, release = Time(), anyio.Event(), anyio.Event()
    monkeypatch.setattr(permits, "_now_s", clock)
    attempts: list[Attempt] = []
    authorizer = AclAuthorizer(super_users=["User:admin"], acls=ALLOWED)
    own = ListenerSecurity(security().authentication, None, authorizer)
    async with (
        Controller(900, auto_balance=False) as controller,
        Participants(1, store=controller.store, hub=controller.hub),
        listening(ListenerController(controller), security=own, audit=attempts.append) as (_, port),
        connected(port) as client,
        connected(port) as other,
        contextlib.AsyncExitStack() as stack,
    ):
        await controller.wait_active()
        await until(lambda: bool(controller.brokers()))
        create = controller.store.create_topic

        async def held(*arguments: Any) -> None:
            holding.set()
            await release.wait()
            await create(*arguments)

        monkeypatch.setattr(controller.store, "create_topic", held)
        await log_in(client, "alice")
        await log_in(other, "admin")
        first = asyncio.ensure_future(other.ask(creation("first")))
        stack.callback(first.cancel)
        with anyio.fail_after(PATIENCE_S):
            await holding.wait()
        yield Waiting(controller, authorizer, clock, release, client, attempts)


async def created(waiting: Waiting, *names: str, waits_s: float, rights: Acls) -> dict[str, int]:
    """Create topics while the controller is held; meanwhile some time passes, and rights change."""
    result: dict[str, int] = {}

    async def ask() -> None:
        result.update(await waiting.create(*names))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await until(lambda: len(waiting.controller.loop.inbox) > 0)
            waiting.clock.now_s += waits_s
            waiting.authorizer.acls = rights
            waiting.release.set()
    return result


async def test_right_that_is_removed_while_a_request_waits_does_not_count(waiting: Waiting) -> None:
    assert await created(waiting, "mine-1", waits_s=5.1, rights=Acls({})) == {
        "mine-1": KioError.topic_authorization_failed
    }

    assert [ref.name for ref in waiting.controller.topics()] == ["first"]
    own = [attempt.outcome for attempt in waiting.attempts if attempt.principal.name == "User:alice"]
    assert "denied" in own
    assert "ok" not in own


async def test_request_that_waited_briefly_is_decided_once(waiting: Waiting) -> None:
    assert await created(waiting, "mine-1", waits_s=4.9, rights=Acls({})) == {"mine-1": CREATED}


async def test_request_that_waited_long_is_carried_out_with_the_rights(waiting: Waiting) -> None:
    assert await created(waiting, *MINE, waits_s=60, rights=ALLOWED) == dict.fromkeys(MINE, CREATED)


async def test_rest_of_a_request_is_denied_with_a_part(waiting: Waiting) -> None:
    rights = Acls({topic("mine-1"): [Acl("User:alice", "*", Operation.ALL)]})

    result = await created(waiting, *MINE, waits_s=6, rights=rights)

    assert set(result.values()) == {KioError.topic_authorization_failed}
    assert [ref.name for ref in waiting.controller.topics()] == ["first"]


async def test_identity_of_the_login_is_in_the_events_and_the_records(waiting: Waiting) -> None:
    # An event that reads back the topics of several requests names none of them.
    waiting.release.set()
    await until(lambda: [ref.name for ref in waiting.controller.topics()] == ["first"])
    assert await waiting.create("mine-1") == {"mine-1": CREATED}
    await until(lambda: len(waiting.controller.topics()) == 2)
    events, _ = waiting.controller.history.read(after=0, limit=1000)

    (event,) = [event for event in events if isinstance(event, TopicEvent) and event.topic == "mine-1"]
    assert event.because is not None
    assert event.because.caller == "User:alice"
    assert [attempt.principal for attempt in waiting.attempts if attempt.target == "mine-1"] == [
        kafka_user("alice", peer="127.0.0.1", method="SCRAM-SHA-256")
    ]
