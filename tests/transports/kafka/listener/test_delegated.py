"""Listeners whose requests a function of the program decides about, in place of access control lists."""

import asyncio
import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.messages.admin import CreateTopic
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.security.access import CLUSTER, BrokerPrincipals, Operation, Principal, kafka_user, topic
from kactl.transports.kafka.listener import DelegatedAuthorizer, ListenerSecurity, Question, delegated

from .client import connected, request_class
from .listener_stub import ControllerStub, listening
from .test_logins import CREATED, log_in, security
from .test_topic_handlers import creation

pytestmark = pytest.mark.anyio
ALICE = kafka_user("alice", peer="127.0.0.1")
MINE = Question(Operation.CREATE, topic("mine"))
DENIED = KioError.topic_authorization_failed
Function = Callable[[Principal, Sequence[Question]], Any]


def deciding(function: Function, **settings: Any) -> ListenerSecurity:
    return security()._replace(authorizer=DelegatedAuthorizer(function, **settings))


async def created(
    controller: ControllerStub, how: ListenerSecurity, *names: str, user: str = "alice"
) -> list[KioError]:
    """Returns the error of each topic that a user creates."""
    async with listening(controller, security=how) as (_, port), connected(port) as client:
        await log_in(client, user)
        answer = await client.ask(creation(5, *names, timeout=datetime.timedelta()))
        codes = {entry.name: entry.error_code for entry in answer.topics}
        return [codes[name] for name in names]


def topics_of(controller: ControllerStub) -> list[str]:
    return [request.topic for request in controller.requests if isinstance(request, CreateTopic)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_function_decides_about_each_topic(is_async: bool) -> None:
    """S-45."""
    asked: list[tuple[str, tuple[Question, ...]]] = []

    def decide(principal: Principal, questions: Sequence[Question]) -> Sequence[bool]:
        asked.append((principal.name, tuple(questions)))
        return [question == MINE for question in questions]

    async def later(principal: Principal, questions: Sequence[Question]) -> Sequence[bool]:
        await asyncio.sleep(0)
        return decide(principal, questions)

    controller = ControllerStub(CREATED)

    codes = await created(controller, deciding(later if is_async else decide), "mine", "theirs")

    assert codes == [KioError.request_timed_out, DENIED]
    assert topics_of(controller) == ["mine"]
    everywhere = Question(Operation.CREATE, CLUSTER)
    assert asked == [("User:alice", (everywhere, MINE, Question(Operation.CREATE, topic("theirs"))))]


def raises(*_: Any) -> Any:
    raise RuntimeError("text of the program")


async def hangs(*_: Any) -> Any:
    await asyncio.Event().wait()


async def fails_later(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise OSError("text of the program")


WRONG: list[Function] = [
    raises,
    hangs,
    fails_later,
    lambda *_: None,
    lambda *_: True,
    lambda *_: "yes",
    lambda _, questions: ["yes"] * len(questions),
    lambda _, questions: [1] * len(questions),
    lambda _, questions: [True] * (len(questions) + 1),
    lambda _, questions: [],
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_failing_function_denies(
    wrong: Function, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S-06, S-45."""
    monkeypatch.setattr(delegated, "DECISION_S", 0.05)
    controller = ControllerStub(CREATED)

    assert await created(controller, deciding(wrong), "mine") == [DENIED]
    assert controller.requests == []


async def test_super_users_and_brokers_need_no_function() -> None:
    controller = ControllerStub(CREATED)
    how = deciding(raises, super_users=["User:admin"], brokers=BrokerPrincipals(pattern="User:broker-{id}"))

    assert await created(controller, how, "mine", user="admin") == [KioError.request_timed_out]
    async with listening(controller, security=how) as (_, port), connected(port) as client:
        await log_in(client, "broker-1")
        own = await client.ask(request_class(67, 0)(broker_id=1, broker_epoch=7))
        foreign = await client.ask(request_class(67, 0)(broker_id=2, broker_epoch=7))

    assert (own.error_code, foreign.error_code) == (KioError.none, KioError.cluster_authorization_failed)
    assert [request for request in controller.requests if isinstance(request, AllocateProducerIds)] == [
        AllocateProducerIds(1, 7)
    ]


async def test_decisions_are_renewed_while_a_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegated, "REFRESH_S", 0.001)
    allowed = True
    renewed = asyncio.Event()

    def decide(_: Principal, questions: Sequence[Question]) -> list[bool]:
        if not allowed:
            renewed.set()
        return [allowed] * len(questions)

    decided = delegated.Decided(DelegatedAuthorizer(decide), ALICE)
    assert not decided.allows(ALICE, *MINE)
    await decided.resolve()
    assert decided.allows(ALICE, *MINE)

    allowed = False
    task = asyncio.get_running_loop().create_task(decided.refresh())
    await asyncio.wait_for(renewed.wait(), 60)
    await asyncio.sleep(0)
    task.cancel()

    assert not decided.allows(ALICE, *MINE)
    assert decided.unknown == {}
