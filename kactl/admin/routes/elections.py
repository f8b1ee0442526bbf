"""Requested elections, and records of past ones."""

import asyncio
from typing import Final, Literal, cast

from kactl.admin.audit import audited, listed
from kactl.admin.route import ApiRequest
from kactl.admin.schema import (
    ElectionAnswer,
    ElectionEvent,
    ElectionList,
    ElectionPath,
    ElectionQuery,
    ElectionRequest,
    ElectionResult,
    NoData,
    event_view,
)
from kactl.admin.service import Service
from kactl.admin.views import converted
from kactl.decide.messages.admin import ElectionKind
from kactl.decide.messages.admin import ElectionResult as Result
from kactl.model import TopicPartition
from kactl.model.errors import ActionTimedOut, BadRequest, NotFound
from kactl.security.access.role import Role

# An election waits in the queue of events, and for a store that fails temporarily.
ELECTION_TIMEOUT_S: Final = 120


def is_unclean(request: ApiRequest[NoData, NoData, ElectionRequest]) -> bool:
    """Returns whether an election may lose records."""
    return request.body.type == "unclean"


def elected(service: Service, request: ApiRequest[NoData, NoData, ElectionRequest]) -> int:
    """Returns the partitions that an election may concern."""
    names = request.body.partitions
    return len(service.cluster.table.all()) if names is None else len(names)


async def elect(service: Service, request: ApiRequest[NoData, NoData, ElectionRequest]) -> ElectionAnswer:
    """Elect leaders. Returns one result for each partition."""
    body = request.body
    if body.all == (body.partitions is not None):
        raise BadRequest("partitions", "give either partitions or all: true, not both")
    names = None
    if body.partitions is not None:
        names = [TopicPartition(name.topic, name.partition) for name in body.partitions]
    action, target = f"elect {body.type} leaders", "all partitions" if names is None else listed(names)
    is_final = body.type == "unclean"
    async with audited(service, action, target, reason=body.reason, dry_run=body.dry_run, is_final=is_final) as audit:
        try:
            async with asyncio.timeout(ELECTION_TIMEOUT_S):
                results = await service.controller.elect(ElectionKind(body.type), names, dry_run=body.dry_run)
        except TimeoutError:
            raise ActionTimedOut(f"the {body.type} election", ELECTION_TIMEOUT_S * 1000) from None
        audit.of_results([result.message for result in results if result.outcome == "failed"], total=len(results))
    as_of = service.as_of()
    return ElectionAnswer(type=body.type, dry_run=body.dry_run, results=await converted(_result, results), as_of=as_of)


async def recent(service: Service, request: ApiRequest[NoData, ElectionQuery, NoData]) -> ElectionList:
    """Returns the newest events that moved leadership, with their courses."""
    records = service.controller.elections(limit=request.query.limit)
    return ElectionList(items=tuple(map(event_view, records)), as_of=service.as_of())


async def record(service: Service, request: ApiRequest[ElectionPath, NoData, NoData]) -> ElectionEvent:
    """Returns one of them."""
    wanted = request.path.event
    for found in service.controller.elections():
        if found.because.event == wanted:
            return cast(ElectionEvent, event_view(found))
    raise NotFound("election", wanted)


def role_of(request: ApiRequest[NoData, NoData, ElectionRequest]) -> Role:
    """Returns the role for an election: an unclean one may lose records."""
    return Role.ADMIN if request.body.type == "unclean" else Role.OPERATOR


def _result(result: Result) -> ElectionResult:
    return ElectionResult(
        topic=result.topic,
        partition=result.partition,
        outcome=cast(Literal["ok", "not_needed", "failed"], result.outcome),
        error_code=result.error.value,
        error_name=result.error.name,
        message=result.message,
        leader=result.leader,
        previous=result.previous,
    )
