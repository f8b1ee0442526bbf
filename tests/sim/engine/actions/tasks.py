"""Tasks and requests of operators."""

from collections.abc import Callable, Coroutine
from typing import Any

from kactl.decide.messages.admin import ControllerRequest
from kactl.model.errors import KactlError
from kactl.testing.network import Unreachable
from kactl.testing.nodes import on
from tests.sim.engine import selectors
from tests.sim.engine.cluster import SimulatedCluster

# An operator's tool waits this long.
CALL_TIMEOUT_MS = 60_000.0


def begin(cluster: SimulatedCluster, work: Coroutine[Any, Any, None], *, name: str) -> None:
    """Run something in the background on the operators' node."""
    with on(cluster.operators):
        cluster.loop.create_task(work, name=name)


def later(cluster: SimulatedCluster, delay_ms: float, action: Callable[[], None]) -> None:
    """Call a function outside all nodes after some time."""
    cluster.loop.call_later(delay_ms / 1000, action)


def during(cluster: SimulatedCluster, fault: str, target: str, for_ms: float, end: Callable[[], None]) -> None:
    """Record a fault, and end it after some time unless the end of the first phase did."""
    cluster.history.record("fault.begin", fault=fault, target=target)
    end_after(cluster, fault, target, for_ms, end)


def end_after(cluster: SimulatedCluster, fault: str, target: str, for_ms: float, end: Callable[[], None]) -> None:
    """End a fault after some time unless the end of the first phase did, and record its end."""

    def ended() -> None:
        if not cluster.is_healed:
            end()
        cluster.history.record("fault.end", fault=fault, target=target)

    later(cluster, for_ms, ended)


def ask(
    cluster: SimulatedCluster,
    target: str,
    request: ControllerRequest,
    *,
    operation: str,
    about: str = "",
    then: Callable[[Any], None] = lambda _: None,
) -> None:
    """Send a request to a controller instance and record the call and its outcome.

    Args:
        target: selector of the instance.
        operation, about: the requested operation and its target, for the history.
        then: called with the answer, or with the error.

    Raises:
        Skipped: there is no such instance.
    """
    name = selectors.controller(cluster, target).name
    number = next(cluster.call_numbers)

    async def call() -> None:
        history = cluster.history
        history.record("admin.call", call=number, controller=name, operation=operation, target=about)
        answer: Any
        try:
            answer = await cluster.network.call(name, request, timeout_ms=CALL_TIMEOUT_MS)
            outcome = "done"
        except (Unreachable, KactlError) as failed:
            answer, outcome = failed, type(failed).__name__
        history.record("admin.reply", call=number, outcome=outcome)
        then(answer)

    begin(cluster, call(), name=operation)


def in_store(
    cluster: SimulatedCluster,
    operation: str,
    work: Coroutine[Any, Any, Any],
    *,
    then: Callable[[Any], None] = lambda _: None,
) -> None:
    """Use the operators' client of the store and record the outcome. `then` is called with the result or the error."""

    async def call() -> None:
        answer: Any
        try:
            answer = await work
            outcome = "done"
        except KactlError as failed:
            answer, outcome = failed, type(failed).__name__
        cluster.history.record("admin.store", operation=operation, outcome=outcome)
        then(answer)

    begin(cluster, call(), name=operation)
