"""Reassignments: to ask for, to plan, to look at, to cancel."""

import asyncio
import collections
import itertools
from collections.abc import Iterable, Mapping
from typing import Final

from kactl.admin.audit import audited, listed
from kactl.admin.route import Asked
from kactl.admin.schema import (
    AsOf,
    CompletedReassignment,
    NoQuestion,
    PlanAnswer,
    PlannedLoad,
    PlannedMove,
    PlanRequest,
    ReassignmentAnswer,
    ReassignmentCancellation,
    ReassignmentInfo,
    ReassignmentList,
    ReassignmentPath,
    ReassignmentRequest,
    ReassignmentResult,
)
from kactl.admin.service import Service
from kactl.errors import ActionTimedOut, BadRequest, ErrorCode, NotFound
from kactl.machines.reassignment import Progress, progress
from kactl.machines.reassignment_plan import Replicas, plan
from kactl.messages.admin import ReassignmentRequested
from kactl.messages.admin import ReassignmentResult as Result
from kactl.model import Broker, TopicPartition
from kactl.state.cluster import Cluster
from kactl.state.records import Names
from kactl.state.rows import Rows

# A reassignment waits for its turn among events, and for a store that fails for the moment.
REASSIGNMENT_TIMEOUT_S: Final = 120


async def reassign(service: Service, asked: Asked[NoQuestion, NoQuestion, ReassignmentRequest]) -> ReassignmentAnswer:
    """Begin moves, or cancel them; one result for each partition."""
    body = asked.body
    targets = {
        TopicPartition(each.topic, each.partition): None if each.replicas is None else tuple(each.replicas)
        for each in body.partitions
    }
    if len(targets) < len(body.partitions):
        raise BadRequest("partitions", "a partition is named twice; name each once")
    return await _ask(service, "reassign", ReassignmentRequested(targets, body.dry_run), reason=body.reason)


async def cancel(
    service: Service, asked: Asked[ReassignmentPath, ReassignmentCancellation, NoQuestion]
) -> ReassignmentAnswer:
    """Cancel the move of one partition."""
    name = TopicPartition(asked.path.topic, asked.path.partition)
    request = ReassignmentRequested({name: None}, asked.query.dry_run)
    return await _ask(service, "cancel reassignment of", request, reason=asked.query.reason)


async def reassignments(service: Service, asked: Asked[NoQuestion, NoQuestion, NoQuestion]) -> ReassignmentList:
    """All moves that are going on, and what each waits for."""
    running = progress(service.cluster)
    cluster = service.cluster
    return ReassignmentList(
        items=tuple(_info(service, each) for each in running),
        completed=cluster.completed_moves,
        last_completed=tuple(
            CompletedReassignment(topic=each.name.topic, partition=each.name.partition, completed_ms=each.time_ms)
            for each in reversed(cluster.last_moves)
        ),
        as_of=service.as_of(),
    )


async def planned(service: Service, asked: Asked[NoQuestion, NoQuestion, PlanRequest]) -> PlanAnswer:
    """Where replicas should go; computed from a copy and beside the event loop, as a large plan takes a while."""
    cluster = service.controller.cluster
    body = asked.body
    for name in sorted(set(body.topics or ())):
        if cluster.table.topic(name) is None:
            raise NotFound("topic", name)
    at = cluster.table.all()
    return await asyncio.to_thread(
        _planned,
        body,
        _allowed(cluster, body),
        cluster.table.names(at),
        cluster.table.rows(at),
        frozenset(cluster.topics_to_delete),
        service.as_of(),
    )


def _planned(
    body: PlanRequest, allowed: list[Broker], names: Names, rows: Rows, deleting: frozenset[str], as_of: AsOf
) -> PlanAnswer:
    """The answer; partitions that move already are planned from where they are going."""
    wanted = None if body.topics is None else set(body.topics)
    movable, others = {}, []
    stays = (rows.assigned & ~rows.removing).T.tolist()
    for name, brokers, staying in zip(names, rows.replicas.T.tolist(), stays, strict=True):
        target = tuple(itertools.compress(brokers, staying))
        if (wanted is None or name.topic in wanted) and name.topic not in deleting:
            movable[name] = target
        else:
            others.append(target)
    moves = plan(movable, allowed, others=others, replication_factor=body.replication_factor, balance=body.balance)
    return PlanAnswer(
        items=tuple(
            PlannedMove(topic=name.topic, partition=name.partition, current=movable[name], replicas=replicas)
            for name, replicas in moves.items()
        ),
        loads=_loads(movable, moves, others, allowed),
        unchanged=len(movable) - len(moves),
        moved=sum(len(set(replicas) - set(movable[name])) for name, replicas in moves.items()),
        as_of=as_of,
    )


def _loads(
    movable: Mapping[TopicPartition, Replicas],
    moves: Mapping[TopicPartition, Replicas],
    others: Iterable[Replicas],
    allowed: list[Broker],
) -> tuple[PlannedLoad, ...]:
    """How replicas and preferred leaders are spread, now and by the plan."""
    holds, prefers, holds_then, prefers_then = (collections.Counter[int]() for _ in range(4))
    for now, then in itertools.chain(
        ((held, moves.get(name, held)) for name, held in movable.items()), ((held, held) for held in others)
    ):
        holds.update(now)
        prefers.update(now[:1])
        holds_then.update(then)
        prefers_then.update(then[:1])
    return tuple(
        PlannedLoad(
            broker=broker,
            replicas=holds[broker],
            replicas_planned=holds_then[broker],
            preferred=prefers[broker],
            preferred_planned=prefers_then[broker],
        )
        for broker in sorted({broker.id for broker in allowed} | holds.keys() | holds_then.keys())
    )


async def _ask(service: Service, action: str, request: ReassignmentRequested, *, reason: str) -> ReassignmentAnswer:
    target = listed(request.targets)
    async with audited(service, action, target, reason=reason, dry_run=request.dry_run) as audit:
        try:
            async with asyncio.timeout(REASSIGNMENT_TIMEOUT_S):
                results: list[Result] = await service.controller.ask(request)
        except TimeoutError:
            raise ActionTimedOut("the reassignment", REASSIGNMENT_TIMEOUT_S * 1000) from None
        audit.of_results([each.message for each in results if each.error is not ErrorCode.NONE], total=len(results))
    return ReassignmentAnswer(dry_run=request.dry_run, results=tuple(map(_told, results)), as_of=service.as_of())


def _told(result: Result) -> ReassignmentResult:
    begun = result.assignment
    return ReassignmentResult(
        topic=result.topic,
        partition=result.partition,
        outcome="ok" if result.error is ErrorCode.NONE else "failed",
        error_code=result.error.value,
        error_name=result.error.name,
        message=result.message,
        replicas=() if begun is None else begun.replicas,
        adding=() if begun is None else begun.adding,
        removing=() if begun is None else begun.removing,
    )


def _info(service: Service, each: Progress) -> ReassignmentInfo:
    view = service.cluster.view(TopicPartition(each.topic, each.partition))
    return ReassignmentInfo(
        topic=each.topic,
        partition=each.partition,
        replicas=each.assignment.replicas,
        adding=each.assignment.adding,
        removing=each.assignment.removing,
        leader=each.leader,
        isr=() if view is None else view.isr,
        waits_for=each.reason,
    )


def _allowed(cluster: Cluster, body: PlanRequest) -> list[Broker]:
    """The brokers that a plan may use."""
    unknown = sorted(set(body.brokers or ()) - cluster.brokers.keys())
    if unknown:
        raise BadRequest("brokers", f"{unknown} are not registered; there are {sorted(cluster.brokers)}")
    wanted = cluster.brokers.keys() - cluster.shutting_down if body.brokers is None else set(body.brokers)
    return [broker for id_, broker in cluster.brokers.items() if id_ in wanted and id_ not in body.without]
