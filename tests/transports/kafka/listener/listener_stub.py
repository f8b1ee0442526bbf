"""Listener on a free port of loopback, with a stub controller that records requests and returns prepared responses."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from kactl.decide.messages.admin import ControllerRequest, ElectionResult
from kactl.decide.state.rows import Rows
from kactl.decide.state.table import Table
from kactl.model import NO_EPOCH, Broker, Endpoint, TopicRef
from kactl.model.errors import ActionTimedOut, KactlError, NotController
from kactl.runtime.budget import Budget
from kactl.telemetry.attempts import Audit, no_audit
from kactl.transports.kafka import BrokerCredentials
from kactl.transports.kafka.listener import BoundListener, KafkaListener, ListenerSecurity, ListenerSettings
from kactl.transports.kafka.listener.limits import Limits
from kactl.transports.kafka.listener.quotas import Quotas
from kactl.transports.kafka.listener.server import OPEN

LISTENER = "INTERNAL"
KACTL = 900
NO_LIMITS = Limits()
NO_QUOTAS = Quotas()

Answers = Mapping[type[ControllerRequest], Callable[[Any], Any]]


class ControllerStub:
    """Stub of the controller, as far as a listener uses it.

    Attributes:
        requests: every request that reached it, in order.
        answers: the response to each kind of request; an exception is raised.
        table: the partitions; `named` lists its topics.
        waits: the conditions waited for, with their timeouts.
        done: whether the conditions are fulfilled. A wait ends at once in both cases.
    """

    def __init__(self, answers: Answers | None = None) -> None:
        self.node_id = KACTL
        self.active_id: int | None = KACTL
        self.is_active = True
        self.answers: Any = {} if answers is None else answers
        self.requests: list[ControllerRequest] = []
        self.waits: list[tuple[str, str, float]] = []
        self.done = True
        self.live: list[Broker] = []
        self.named: list[TopicRef] = []
        self.table = Table()
        self.budget = Budget(time.monotonic, time.thread_time)

    async def ask(self, request: ControllerRequest) -> Any:
        self.requests.append(request)
        if not self.is_active:
            raise NotController(self.active_id)
        answer = self.answers[type(request)](request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def brokers(self) -> list[Broker]:
        return self.live

    def topics(self) -> list[TopicRef]:
        return self.named

    def rows(self, topic: str) -> Rows | None:
        known = self.table.topic(topic)
        return None if known is None else self.table.rows(self.table.rows_of(known))

    def partition_count(self, topic: str) -> int:
        rows = self.rows(topic)
        return 0 if rows is None else len(rows)

    async def wait_complete(self, counts: Mapping[str, int], *, timeout_ms: float) -> dict[str, KactlError]:
        self.waits += [("complete", f"{topic}:{count}", timeout_ms) for topic, count in counts.items()]
        return {} if self.done else {topic: ActionTimedOut(f"complete {topic}", timeout_ms) for topic in counts}

    async def wait_elected(self, results: list[ElectionResult], *, timeout_ms: float) -> list[ElectionResult]:
        self.waits.append(("elected", str(len(results)), timeout_ms))
        return results

    async def wait_delivered(self, *, timeout_ms: float) -> None:
        self.waits.append(("delivered", "", timeout_ms))

    async def wait_gone(self, topic: TopicRef, *, timeout_ms: float) -> None:
        self._wait("gone", topic.name, timeout_ms)

    def _wait(self, condition: str, of: str, timeout_ms: float) -> None:
        self.waits.append((condition, of, timeout_ms))
        if not self.done:
            raise ActionTimedOut(f"{condition} {of}", timeout_ms)


@contextlib.asynccontextmanager
async def listening(
    controller: Any,
    *,
    limits: Limits = NO_LIMITS,
    partitions: int = 1,
    replication_factor: int = 1,
    security: ListenerSecurity = OPEN,
    checks_broker_addresses: bool = True,
    quotas: Quotas = NO_QUOTAS,
    relays: bool = True,
    credentials: BrokerCredentials | None = None,
    relays_unread: Callable[[], bool] = lambda: True,
    audit: Audit = no_audit,
) -> AsyncIterator[tuple[KafkaListener, int]]:
    """Run a listener. Yields the listener and its port."""
    socket = BoundListener(Endpoint(LISTENER, "127.0.0.1", 0))
    port = socket.port
    settings = ListenerSettings(
        partitions=partitions,
        replication_factor=replication_factor,
        listed_as=Broker(KACTL, NO_EPOCH, (Endpoint(LISTENER, "127.0.0.1", port),)),
        limits=limits,
        security={LISTENER: security},
        checks_broker_addresses=checks_broker_addresses,
        quotas=quotas,
        relays=relays,
        credentials=credentials,
        relays_unread=relays_unread,
        audit=audit,
    )
    async with KafkaListener(controller, {LISTENER: socket}, settings) as listener:
        yield listener, port


async def until(reached: Callable[[], bool]) -> None:
    """Run other tasks until the condition is true."""
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 - what is waited for is on the other side of a socket
            await asyncio.sleep(0.001)
