"""Topics and their partitions: to look at, to create, to change, to delete."""

import contextlib
from collections.abc import Mapping
from http import HTTPStatus

from kactl.admin.audit import audited
from kactl.admin.route import Asked, Reply
from kactl.admin.schema import (
    NoQuestion,
    PartitionInfo,
    PartitionPage,
    PartitionPath,
    PartitionQuery,
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
from kactl.admin.views import Found, find_partition, find_partitions
from kactl.config import topic as topic_config
from kactl.errors import ActionTimedOut, BadConfig, BadRequest, NotFound, StoreError, StoreUnavailable
from kactl.runtime.logs import logger

log = logger(__name__)


async def topics(service: Service, asked: Asked[NoQuestion, TopicQuery, NoQuestion]) -> TopicPage:
    """Some topics, by name."""
    items, matched, cursor = find_topics(service.cluster, asked.query)
    return TopicPage(items=items, matched=matched, next_cursor=cursor, as_of=service.as_of())


async def topic(service: Service, asked: Asked[TopicPath, NoQuestion, NoQuestion]) -> TopicDetail:
    """One topic with its overrides and its partitions."""
    name = asked.path.topic
    infos = topic_infos(service.cluster, [name])
    if not infos:
        raise NotFound("topic", name)
    # A name cannot hold what stands for any character, so this finds the one topic.
    partitions = await _page(service, await _find(service, PartitionQuery(topic=[name])))
    return TopicDetail(topic=infos[0], config=await _config(service, name), partitions=partitions)


async def create(service: Service, asked: Asked[NoQuestion, NoQuestion, TopicCreation]) -> Reply:
    """Create a topic, or say what would come of it."""
    body = asked.body
    partitions, replication_factor = body.partitions, body.replication_factor
    if body.assignment is None:
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
            dry_run=body.dry_run,
            timeout_ms=body.timeout_ms,
        )
    # The id of a topic that was not created is nobody's.
    created = TopicCreated(name=ref.name, id=None if body.dry_run else text_of_id(ref.id), dry_run=body.dry_run)
    if body.dry_run:
        return Reply(created)
    return Reply(created, status=HTTPStatus.CREATED, headers={"Location": f"/v1/topics/{ref.name}"})


async def change(service: Service, asked: Asked[TopicPath, NoQuestion, TopicChange]) -> TopicChanged:
    """Add partitions to a topic, change its overrides, or say what would come of it."""
    name, body, controller = asked.path.topic, asked.body, service.controller
    known = controller.cluster.table.topic(name)
    if known is None:
        raise NotFound("topic", name)
    if body.partitions is None and body.assignment is not None:
        raise BadRequest("assignment", "say in partitions how many the topic is to have then")
    if body.partitions is None and not body.config:
        raise BadRequest("partitions", "nothing is to be changed: give partitions, or config")
    config = await _changed_config(service, name, body.config)
    async with audited(service, "change topic", name, reason=body.reason, dry_run=body.dry_run) as audit:
        if body.partitions is not None:
            await controller.grow_topic(
                name, body.partitions, assignment=body.assignment, dry_run=body.dry_run, timeout_ms=body.timeout_ms
            )
            audit.has_begun()
        if config is not None and not body.dry_run:
            async with service.overrides:
                # Read again: others may have changed them since.
                config = await _changed_config(service, name, body.config)
                assert config is not None
                await controller.store.set_topic_config(name, config)
    count = body.partitions if body.partitions is not None else len(controller.cluster.table.rows_of(known))
    return TopicChanged(name=name, partitions=count, config=config, dry_run=body.dry_run)


async def delete(service: Service, asked: Asked[TopicPath, TopicDeletion, NoQuestion]) -> Reply:
    """Delete a topic. Where it takes longer than there is time it is marked, and goes on: 202."""
    name, how, controller = asked.path.topic, asked.query, service.controller
    async with audited(service, "delete topic", name, reason=how.reason, dry_run=how.dry_run) as audit:
        ref = await controller.delete_topic(name, dry_run=how.dry_run, timeout_ms=0)
        audit.outcome, audit.detail = "unfinished", "the topic is marked for deletion"
        gone = False
        if not how.dry_run and how.timeout_ms:
            with contextlib.suppress(ActionTimedOut):
                await controller.wait_deleted(ref, timeout_ms=how.timeout_ms)
                audit.outcome, audit.detail, gone = "done", "", True
    answer = TopicDeleted(name=name, id=text_of_id(ref.id), gone=gone, dry_run=how.dry_run)
    return Reply(answer, status=HTTPStatus.OK if gone or how.dry_run else HTTPStatus.ACCEPTED)


async def _changed_config(service: Service, name: str, changes: Mapping[str, str | None]) -> dict[str, str] | None:
    """The overrides as they are to be; None if they stay."""
    if not changes:
        return None
    overrides = (await service.controller.store.topic_configs([name])).get(name)
    if overrides is None:
        raise StoreUnavailable(f"the overrides of topic {name} could not be read; nothing was changed, try again")
    kept = {key: value for key, value in {**overrides, **changes}.items() if value is not None}
    unusable = topic_config.wrong(kept)
    if unusable is not None:
        raise BadConfig("config", ": ".join(unusable))
    return kept


async def partition(service: Service, asked: Asked[PartitionPath, NoQuestion, NoQuestion]) -> PartitionInfo:
    """One partition."""
    min_isr = await service.min_isr()
    info = find_partition(service.cluster, asked.path.topic, asked.path.partition, min_isr)
    if info is None:
        raise service.no_partition(asked.path.topic, asked.path.partition)
    return info


async def partitions(service: Service, asked: Asked[NoQuestion, PartitionQuery, NoQuestion]) -> PartitionPage:
    """Some partitions."""
    return await _page(service, await _find(service, asked.query))


async def _find(service: Service, query: PartitionQuery) -> Found:
    """The configurations are read first, since all of a page is of one moment."""
    min_isr = await service.min_isr()
    return find_partitions(service.cluster, query, min_isr)


async def _page(service: Service, found: Found) -> PartitionPage:
    """What was found, as of the moment when it was."""
    as_of = service.as_of()
    return PartitionPage(items=await found.infos(), matched=found.matched, next_cursor=found.next_cursor, as_of=as_of)


async def _config(service: Service, name: str) -> dict[str, str] | None:
    """A topic's overrides; None if the store could not be read now."""
    try:
        return (await service.controller.store.topic_configs([name])).get(name)
    except StoreError as error:
        log.warning("the overrides of topic %s could not be read: %s", name, error)
        return None
