"""Reassignments: start, plan, list and cancel."""

import asyncio
import collections
import itertools
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from kactl.admin.audit import audited, listed
from kactl.admin.route import ApiRequest
from kactl.admin.schema import (
    AsOf,
    CompletedReassignment,
    NoData,
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
from kactl.admin.views import converted
from kactl.decide.machines.reassignment import Progress, progress
from kactl.decide.machines.reassignment_plan import Replicas, plan
from kactl.decide.messages.admin import ApiPartitionReassignment
from kactl.decide.messages.admin import ReassignmentResult as Result
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.records import Names
from kactl.decide.state.rows import Rows
from kactl.model import Broker, TopicPartition
from kactl.model.errors import ActionTimedOut, BadRequest, ErrorCode, NotFound
from kactl.runtime.threads import run_in_thread

# A reassignment waits in the queue of events, and for a store that fails temporarily.
REASSIGNMENT_TIMEOUT_S: Final = 120


def moved(service: Service, request: ApiRequest[NoData, NoData, ReassignmentRequest]) -> int:
    """Returns the partitions that a request names."""
    return len(request.body.partitions)


async def reassign(service: Service, request: ApiRequest[NoData, NoData, ReassignmentRequest]) -> ReassignmentAnswer:
    """Start or cancel reassignments. Returns one result for each partition."""
    body = request.body
    targets = {
        TopicPartition(target.topic, target.partition): None if target.replicas is None else tuple(target.replicas)
        for target in body.partitions
    }
    if len(targets) < len(body.partitions):
        counts = collections.Counter(TopicPartition(target.topic, target.partition) for target in body.partitions)
        raise BadRequest("partitions", f"{counts.most_common(1)[0][0]} is named twice; name each partition once")
    return await _ask(service, "reassign", ApiPartitionReassignment(targets, body.dry_run), reason=body.reason)


async def cancel(
    service: Service, request: ApiRequest[ReassignmentPath, ReassignmentCancellation, NoData]
) -> ReassignmentAnswer:
    """Cancel the reassignment of one partition."""
    name = TopicPartition(request.path.topic, request.path.partition)
    message = ApiPartitionReassignment({name: None}, request.query.dry_run)
    return await _ask(service, "cancel reassignment of", message, reason=request.query.reason)


async def reassignments(service: Service, request: ApiRequest[NoData, NoData, NoData]) -> ReassignmentList:
    """Returns all reassignments in progress, and what each of them waits for."""
    running = progress(service.cluster)
    cluster = service.cluster
    return ReassignmentList(
        items=tuple(_info(service, move) for move in running),
        completed=cluster.completed_moves,
        last_completed=tuple(
            CompletedReassignment(topic=move.name.topic, partition=move.name.partition, completed_ms=move.time_ms)
            for move in reversed(cluster.last_moves)
        ),
        as_of=service.as_of(),
    )


async def planned(service: Service, request: ApiRequest[NoData, NoData, PlanRequest]) -> PlanAnswer:
    """Plan an assignment. Computed from a copy and in a thread, because a large plan takes a while."""
    cluster = service.controller.cluster
    body = request.body
    for name in sorted(set(body.topics or ())):
        known = cluster.table.topic(name)
        if known is None:
            raise NotFound("topic", name)
        if known.ref.is_ownership:
            raise BadRequest(
                "topics",
                f"{name} is an ownership topic, whose owners the controller chooses and evens out: leave it "
                "out; drain a participant to move its shards",
            )
    table = cluster.table
    rows = np.setdiff1d(table.all(), table.owned(table.all()))
    return await run_in_thread(
        _planned,
        body,
        _allowed(cluster, body),
        cluster.table.names(rows),
        cluster.table.rows(rows),
        frozenset(cluster.topics_to_delete),
        service.as_of(),
    )


def _planned(
    body: PlanRequest, allowed: list[Broker], names: Names, rows: Rows, deleting: frozenset[str], as_of: AsOf
) -> PlanAnswer:
    """Returns the plan. Partitions being reassigned are planned from their target replicas."""
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
    """Returns the distribution of replicas and preferred leaders, now and after the plan."""
    replicas, preferred, replicas_planned, preferred_planned = (collections.Counter[int]() for _ in range(4))
    for now, then in itertools.chain(
        ((present, moves.get(name, present)) for name, present in movable.items()),
        ((present, present) for present in others),
    ):
        replicas.update(now)
        preferred.update(now[:1])
        replicas_planned.update(then)
        preferred_planned.update(then[:1])
    return tuple(
        PlannedLoad(
            broker=broker,
            replicas=replicas[broker],
            replicas_planned=replicas_planned[broker],
            preferred=preferred[broker],
            preferred_planned=preferred_planned[broker],
        )
        for broker in sorted({broker.id for broker in allowed} | replicas.keys() | replicas_planned.keys())
    )


async def _ask(service: Service, action: str, request: ApiPartitionReassignment, *, reason: str) -> ReassignmentAnswer:
    target = listed(request.targets)
    async with audited(service, action, target, reason=reason, dry_run=request.dry_run) as audit:
        try:
            async with asyncio.timeout(REASSIGNMENT_TIMEOUT_S):
                results: list[Result] = await service.controller.ask(request)
        except TimeoutError:
            raise ActionTimedOut("the reassignment", REASSIGNMENT_TIMEOUT_S * 1000) from None
        audit.of_results(
            [result.message for result in results if result.error is not ErrorCode.NONE], total=len(results)
        )
    as_of = service.as_of()
    return ReassignmentAnswer(dry_run=request.dry_run, results=await converted(_result, results), as_of=as_of)


def _result(result: Result) -> ReassignmentResult:
    assignment = result.assignment
    return ReassignmentResult(
        topic=result.topic,
        partition=result.partition,
        outcome="ok" if result.error is ErrorCode.NONE else "failed",
        error_code=result.error.value,
        error_name=result.error.name,
        message=result.message,
        replicas=() if assignment is None else assignment.replicas,
        adding=() if assignment is None else assignment.adding,
        removing=() if assignment is None else assignment.removing,
    )


def _info(service: Service, move: Progress) -> ReassignmentInfo:
    view = service.cluster.view(TopicPartition(move.topic, move.partition))
    return ReassignmentInfo(
        topic=move.topic,
        partition=move.partition,
        replicas=move.assignment.replicas,
        adding=move.assignment.adding,
        removing=move.assignment.removing,
        leader=move.leader,
        isr=() if view is None else view.isr,
        waits_for=move.reason,
    )


def _allowed(cluster: Cluster, body: PlanRequest) -> list[Broker]:
    """Returns the brokers that a plan may use."""
    unknown = sorted(set(body.brokers or ()) - cluster.brokers.keys())
    if unknown:
        raise BadRequest("brokers", f"{unknown} are not registered; there are {sorted(cluster.brokers)}")
    wanted = cluster.brokers.keys() - cluster.shutting_down if body.brokers is None else set(body.brokers)
    return [broker for id_, broker in cluster.brokers.items() if id_ in wanted and id_ not in body.without]
