"""What the tests of reassignments have in common: asking for them, and looking at what was stored and sent."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kactl.errors import ErrorCode
from kactl.messages.admin import ReassignmentResult
from kactl.model import Assignment, PartitionView, ReplicaState
from kactl.outbound.batch import Addressed
from tests.support.clocks import settle
from tests.support.cluster_seeds import tp
from tests.support.controller_harness import World
from tests.support.machine_harness import Flush
from tests.support.scripted_store import Step

Targets = Mapping[str, Sequence[int] | None]


async def reassign(w: World, targets: Targets, *, dry_run: bool = False) -> list[ErrorCode]:
    """Ask for reassignments, None to cancel one; the error of each, in order. What follows has come to rest."""
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
    """Leave a request in the store, as Kafka's older tools do."""
    await w.store.request_reassignment({tp(name): tuple(target) for name, target in targets.items()})
    await settle()


async def requested_reassignment(w: World) -> dict[str, tuple[int, ...]] | None:
    """What is left of it."""
    requested = await w.store.reassignment_request()
    return None if requested is None else {str(name): target for name, target in requested.items()}


async def stored_assignment(w: World, name: str) -> Assignment:
    """What is stored as the assignment of a partition."""
    loaded = await w.store.assignments([tp(name).topic])
    return dict(loaded.items())[tp(name)]


async def ongoing(w: World) -> dict[str, Assignment]:
    """Which reassignments run."""
    return {str(name): held for name, held in (await w.controller.reassignments()).items()}


def replicas(view: PartitionView) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """All replicas, those that are added and those that are removed."""
    return view.replicas, view.adding, view.removing


def replica_states(view: PartitionView) -> dict[int, ReplicaState]:
    return dict(sorted(view.replica_states.items()))


def flushes(w: World) -> list[Flush]:
    """Every flush from now on, in order, whoever sent it; empty ones are left out."""
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
    """The controller's next calls of a method of the store go as `steps` say; then all is as it was."""
    store, waiting = w.controller.store, list(steps)
    real = getattr(store, method)

    async def call(*arguments: Any, **named: Any) -> Any:
        step = waiting.pop(0)
        if not waiting:
            setattr(store, method, real)
        return await step(real, *arguments, **named)

    setattr(store, method, call)
