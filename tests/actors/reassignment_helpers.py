"""Helpers of the reassignment tests: requests, stored values and sent requests."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kactl.decide.messages.admin import ReassignmentResult
from kactl.decide.outbound.batch import Addressed
from kactl.model import Assignment, PartitionView, ReplicaState
from kactl.model.errors import ErrorCode
from tests.support.clocks import settle
from tests.support.cluster_seeds import tp
from tests.support.controller_harness import World
from tests.support.machine_harness import Flush
from tests.support.scripted_store import Step

Targets = Mapping[str, Sequence[int] | None]


async def reassign(w: World, targets: Targets, *, dry_run: bool = False) -> list[ErrorCode]:
    """Request reassignments, with None to cancel one. Returns the errors in order, after all consequences have
    settled."""
    return [result.error for result in await reassignment_results(w, targets, dry_run=dry_run)]


async def reassignment_results(w: World, targets: Targets, *, dry_run: bool = False) -> list[ReassignmentResult]:
    moves = {tp(name): target for name, target in targets.items() if target is not None}
    answered: list[ReassignmentResult] = []
    if moves:
        answered += await w.controller.reassign(moves, dry_run=dry_run)
    cancelled = [tp(name) for name, target in targets.items() if target is None]
    if cancelled:
        answered += await w.controller.cancel(cancelled, dry_run=dry_run)
    await settle()
    return answered


async def write_reassignment(w: World, targets: Mapping[str, Sequence[int]]) -> None:
    """Write a request into the store, as Kafka's older tools do."""
    await w.store.request_reassignment({tp(name): tuple(target) for name, target in targets.items()})
    await settle()


async def requested_reassignment(w: World) -> dict[str, tuple[int, ...]] | None:
    """Returns the request left in the store, or None."""
    requested = await w.store.reassignment_request()
    return None if requested is None else {str(name): target for name, target in requested.items()}


async def stored_assignment(w: World, name: str) -> Assignment:
    """Returns the stored assignment of a partition."""
    loaded = await w.store.assignments([tp(name).topic])
    return dict(loaded.items())[tp(name)]


async def ongoing(w: World) -> dict[str, Assignment]:
    """Returns the reassignments in progress."""
    return {str(name): held for name, held in (await w.controller.reassignments()).items()}


def replicas(view: PartitionView) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns all replicas, the added and the removed ones."""
    return view.replicas, view.adding, view.removing


def replica_states(view: PartitionView) -> dict[int, ReplicaState]:
    return dict(sorted(view.replica_states.items()))


def flushes(w: World) -> list[Flush]:
    """Record all later flushes of all senders, in order, without empty ones."""
    noted: list[Flush] = []
    real = w.controller.channels.send

    def send(requests: Iterable[Addressed]) -> None:
        flush = list(requests)
        if flush:
            noted.append(Flush(flush))
        real(flush)

    w.controller.channels.send = send  # type: ignore[method-assign]
    return noted


def script_once(w: World, method: str, *steps: Step) -> None:
    """Apply `steps` to the next calls of a method of the controller's store; later calls are normal."""
    store, waiting = w.controller.store, list(steps)
    real = getattr(store, method)

    async def call(*arguments: Any, **named: Any) -> Any:
        step = waiting.pop(0)
        if not waiting:
            setattr(store, method, real)
        return await step(real, *arguments, **named)

    setattr(store, method, call)
