"""Topics and their partitions: list, create, change and delete."""

import contextlib
from http import HTTPStatus
from typing import Final, cast

import msgspec

from kactl.admin.audit import audited
from kactl.admin.past import partitions_at
from kactl.admin.route import ApiRequest, Reply
from kactl.admin.schema import (
    HandlerStatus,
    HandlerStatusName,
    NoData,
    PartitionInfo,
    PartitionPage,
    PartitionPath,
    PartitionQuery,
    ReplicaPath,
    ReplicaResetInfo,
    ReplicaResetting,
    TopicChange,
    TopicChanged,
    TopicCreated,
    TopicCreation,
    TopicDeleted,
    TopicDeletion,
    TopicDetail,
    TopicPage,
    TopicPath,
    TopicQuery,
)
from kactl.admin.service import Service
from kactl.admin.tallies import find_topics, text_of_id, topic_infos
from kactl.admin.views import PageRows, find_partition, find_partitions
from kactl.decide.messages.topic_requests import WaitFor
from kactl.decide.state.replica_reports import ReplicaReport
from kactl.model import PARTITIONS_OF_A_TOPIC_MAX, TopicKind, TopicPartition
from kactl.model.errors import ActionTimedOut, BadRequest, NotFound, StoreError
from kactl.runtime.logs import logger

log = logger(__name__)

# Participants that own the shards of a new topic may start later.
_WAIT: Final[dict[TopicKind, WaitFor]] = {"replicated": "led", "ownership": "stored"}


async def topics(service: Service, request: ApiRequest[NoData, TopicQuery, NoData]) -> TopicPage:
    """Returns one page of topics, by name."""
    items, matched, cursor = find_topics(service.cluster, request.query)
    return TopicPage(items=items, matched=matched, next_cursor=cursor, as_of=service.as_of())


async def topic(service: Service, request: ApiRequest[TopicPath, NoData, NoData]) -> TopicDetail:
    """Returns one topic with its overrides and the first page of its partitions."""
    name = request.path.topic
    infos = topic_infos(service.cluster, [name])
    if not infos:
        raise NotFound("topic", name)
    # Topic names cannot contain wildcards, so this selects exactly one topic.
    partitions = await _page(service, await _find(service, PartitionQuery(topic=[name])))
    return TopicDetail(topic=infos[0], config=await _config(service, name), partitions=partitions)


def planned(service: Service, request: ApiRequest[TopicPath | NoData, NoData, TopicCreation | TopicChange]) -> int:
    """Returns the partitions that a request creates, or names in a dry run."""
    body = request.body
    if body.assignment is not None:
        return len(body.assignment)
    return 0 if body.dry_run else max(0, min(body.partitions or 0, PARTITIONS_OF_A_TOPIC_MAX))


async def create(service: Service, request: ApiRequest[NoData, NoData, TopicCreation]) -> Reply:
    """Create a topic, or with `dry_run` check whether it can be created."""
    body = request.body
    partitions, replication_factor = body.partitions, body.replication_factor
    if body.assignment is None and body.kind == "replicated":
        defaults = service.config.kafka
        partitions = defaults.num_partitions if partitions is None else partitions
        replication_factor = defaults.default_replication_factor if replication_factor is None else replication_factor
    async with audited(service, "create topic", body.name, reason=body.reason, dry_run=body.dry_run):
        ref = await service.controller.create_topic(
            body.name,
            partitions=partitions,
            replication_factor=replication_factor,
            assignment=None if body.assignment is None else dict(enumerate(body.assignment)),
            config=body.config,
            kind=body.kind,
            standby=body.standby,
            dry_run=body.dry_run,
            wait=body.wait or _WAIT[body.kind],
            timeout_ms=body.timeout_ms,
        )
    # In a dry run the id is discarded.
    created = TopicCreated(name=ref.name, id=None if body.dry_run else text_of_id(ref.id), dry_run=body.dry_run)
    if body.dry_run:
        return Reply(created)
    return Reply(created, status=HTTPStatus.CREATED, headers={"Location": f"{service.prefix}/v1/topics/{ref.name}"})


async def change(service: Service, request: ApiRequest[TopicPath, NoData, TopicChange]) -> TopicChanged:
    """Add partitions to a topic or change its overrides, or with `dry_run` check whether that is possible."""
    name, body, controller = request.path.topic, request.body, service.controller
    known = controller.cluster.table.topic(name)
    if known is None:
        raise NotFound("topic", name)
    if body.partitions is None and body.assignment is not None:
        raise BadRequest("assignment", "give the new number of partitions too, in partitions")
    if body.partitions is None and not body.config:
        raise BadRequest("partitions", "nothing to change: give partitions or config")
    config = await controller.changed_topic_config(name, body.config) if body.config else None
    async with audited(service, "change topic", name, reason=body.reason, dry_run=body.dry_run) as audit:
        if body.partitions is not None:
            await controller.grow_topic(
                name,
                body.partitions,
                assignment=body.assignment,
                dry_run=body.dry_run,
                wait=body.wait or _WAIT[known.ref.kind],
                timeout_ms=body.timeout_ms,
            )
            audit.has_begun()
        if config is not None and not body.dry_run:
            async with service.overrides:
                # Read again: they may have changed since.
                config = await controller.changed_topic_config(name, body.config)
                await controller.store.set_topic_config(name, config)
    count = body.partitions if body.partitions is not None else len(controller.cluster.table.rows_of(known))
    return TopicChanged(name=name, partitions=count, config=config, dry_run=body.dry_run)


async def delete(service: Service, request: ApiRequest[TopicPath, TopicDeletion, NoData]) -> Reply:
    """Delete a topic. Responds 202 if the deletion continues after the timeout."""
    name, how, controller = request.path.topic, request.query, service.controller
    async with audited(service, "delete topic", name, reason=how.reason, dry_run=how.dry_run, is_final=True) as audit:
        ref = await controller.delete_topic(name, dry_run=how.dry_run, timeout_ms=0)
        audit.outcome, audit.detail = "unfinished", "the topic is marked for deletion"
        is_gone = False
        if not how.dry_run and how.timeout_ms:
            with contextlib.suppress(ActionTimedOut):
                await controller.wait_deleted(ref, timeout_ms=how.timeout_ms)
                audit.outcome, audit.detail, is_gone = "done", "", True
    answer = TopicDeleted(name=name, id=text_of_id(ref.id), gone=is_gone, dry_run=how.dry_run)
    return Reply(answer, status=HTTPStatus.OK if is_gone or how.dry_run else HTTPStatus.ACCEPTED)


async def partition(service: Service, request: ApiRequest[PartitionPath, NoData, NoData]) -> PartitionInfo:
    """Returns one partition."""
    min_isr = await service.min_isr()
    info = find_partition(service.cluster, request.path.topic, request.path.partition, min_isr)
    if info is None:
        raise service.no_partition(request.path.topic, request.path.partition)
    controller = service.controller
    if not controller.is_active:
        return info
    try:
        reports = controller.replica_status(TopicPartition(info.topic, info.partition))
    except NotFound:  # deleted since the copy was made
        return info
    now_ms = controller.clock.monotonic_ms()
    status = {broker: _status(report, now_ms) for broker, report in reports.items()}
    return msgspec.structs.replace(info, replica_status=status) if status else info


async def reset(service: Service, request: ApiRequest[ReplicaPath, NoData, ReplicaResetting]) -> ReplicaResetInfo:
    """Let a participant call a handler again now that has failed."""
    path, controller = request.path, service.controller
    name = TopicPartition(path.topic, path.partition)
    body = request.body
    what = f"{name} on {path.broker}"
    async with audited(service, "reset replica", what, reason=body.reason, dry_run=body.dry_run):
        report = await controller.reset_replica(name, path.broker, dry_run=body.dry_run)
    failure = _status(report, controller.clock.monotonic_ms())
    return ReplicaResetInfo(topic=path.topic, partition=path.partition, broker=path.broker, failure=failure)


def _status(report: ReplicaReport, now_ms: float) -> HandlerStatus:
    name = cast(HandlerStatusName, report.status.name.lower())
    next_ms = None if report.next_ms is None else round(max(report.next_ms - now_ms, 0.0), 1)
    return HandlerStatus(
        status=name,
        detail=report.detail,
        for_ms=round(now_ms - report.since_ms, 1),
        failures=report.failures,
        next_ms=next_ms,
    )


async def partitions(service: Service, request: ApiRequest[NoData, PartitionQuery, NoData]) -> PartitionPage:
    """Returns one page of partitions, as they are or as they were."""
    if request.query.at is not None:
        return await partitions_at(service, request.query)
    return await _page(service, await _find(service, request.query))


async def _find(service: Service, query: PartitionQuery) -> PageRows:
    """Select a page. The configurations are read first, because all of a page is of one moment."""
    min_isr = await service.min_isr()
    return find_partitions(service.cluster, query, min_isr)


async def _page(service: Service, rows: PageRows) -> PartitionPage:
    """Returns the selected page, as of the moment of its selection."""
    as_of = service.as_of()
    return PartitionPage(items=await rows.infos(), matched=rows.matched, next_cursor=rows.next_cursor, as_of=as_of)


async def _config(service: Service, name: str) -> dict[str, str] | None:
    """Returns a topic's overrides; None if the store cannot be read."""
    try:
        return (await service.controller.store.topic_configs([name])).get(name)
    except StoreError as error:
        log.warning("cannot read the overrides of topic %s: %s", name, error)
        return None
