"""Brokers: what each has, and the life of those that run in this process. And the cluster in numbers."""

import asyncio
from http import HTTPStatus
from typing import Final

from kactl.admin.audit import audited
from kactl.admin.health import limits_of, observe
from kactl.admin.problem import BrokerNotFound, Refused
from kactl.admin.route import Asked
from kactl.admin.schema import (
    BrokerActed,
    BrokerAction,
    BrokerDrain,
    BrokerDrained,
    BrokerInfo,
    BrokerList,
    BrokerPath,
    BrokerStateName,
    ClusterInfo,
    DrainEffect,
    EndpointInfo,
    HealthCheck,
    NoQuestion,
    PartitionName,
    SomePartitions,
)
from kactl.admin.service import Service
from kactl.admin.tallies import Shares, shares
from kactl.errors import ActionTimedOut, ErrorCode
from kactl.machines import draining
from kactl.messages.admin import UndrainRequested
from kactl.model import TopicPartition
from kactl.participant.group import Participants
from kactl.state.cluster import Cluster
from kactl.state.rows import RowNumbers
from kactl.telemetry import health

# A restart waits for the registration of a life before it to expire, twice the session's timeout at the most.
RESTART_TIMEOUT_S = 120

# A person reads a few names; a program that wants all asks for the partitions.
NAMED_MAX: Final = 100
# More than this are named in the order of the table: sorting a hundred thousand names takes 0.2 s of the loop.
SORTED_MAX: Final = 5_000

Acting = Asked[BrokerPath, NoQuestion, BrokerAction]


async def cluster(service: Service, asked: Asked[NoQuestion, NoQuestion, NoQuestion]) -> ClusterInfo:
    """The cluster in numbers, and its health checks; on any instance."""
    limits = limits_of(service.config.health)
    observed = await observe(service, limits)
    facts = observed.facts
    found = health.checks(facts, limits)
    known = facts.partitions
    return ClusterInfo(
        cluster=service.config.cluster,
        node_id=service.controller.node_id,
        controller_id=facts.active_id,
        is_active=facts.is_active,
        epoch=service.controller.cluster.fence.epoch,
        since_ms=service.since_ms(),
        status=health.status_of(found),
        checks=tuple(
            HealthCheck(
                name=each.name,
                result=each.result,
                value=each.value,
                limit=each.limit,
                unit=each.unit,
                names=each.names,
                detail=each.detail,
                remedy=each.remedy,
            )
            for each in found
        ),
        brokers=observed.brokers,
        brokers_dead=len(facts.dead or ()),
        topics=observed.topics,
        partitions=0 if known is None else known.total,
        offline_partitions=0 if known is None else known.offline[0],
        under_replicated_partitions=0 if known is None else known.under_replicated[0],
        under_min_isr_partitions=0 if known is None else known.under_min_isr[0],
        preferred_imbalance=0 if known is None else known.not_preferred,
        as_of=service.as_of(),
    )


async def brokers(service: Service, asked: Asked[NoQuestion, NoQuestion, NoQuestion]) -> BrokerList:
    """All that are registered, or dead and still assigned."""
    return BrokerList(items=_infos(service), as_of=service.as_of())


async def broker(service: Service, asked: Asked[BrokerPath, NoQuestion, NoQuestion]) -> BrokerInfo:
    """One of them."""
    for info in _infos(service):
        if info.id == asked.path.id:
            return info
    raise BrokerNotFound(asked.path.id)


async def kill(service: Service, asked: Acting) -> BrokerActed:
    """End a participant as SIGKILL ends a process; one that has ended already is left as it is."""
    participants = _participants(service, asked.path.id, "stop its own process")
    async with audited(service, "kill broker", asked.path.id, reason=asked.body.reason):
        await participants.kill(asked.path.id)
    return BrokerActed(broker=asked.path.id, action="kill")


async def restart(service: Service, asked: Acting) -> BrokerActed:
    """Start a participant anew; returns when it has registered."""
    id_ = asked.path.id
    participants = _participants(service, id_, "restart its own process")
    if id_ in service.restarting:
        raise Refused(
            HTTPStatus.CONFLICT,
            "Restarting already",
            f"participant {id_} is being restarted, and waits until its earlier registration has expired",
            retriable=True,
        )
    service.restarting.add(id_)
    async with audited(service, "restart broker", id_, reason=asked.body.reason) as audit:
        audit.has_begun()  # it stops before it starts
        try:
            async with asyncio.timeout(RESTART_TIMEOUT_S):
                await participants.restart(id_)
        except TimeoutError:
            raise ActionTimedOut(f"restarting participant {id_}", RESTART_TIMEOUT_S * 1000) from None
        finally:
            service.restarting.discard(id_)
    return BrokerActed(broker=id_, action="restart")


async def drain(service: Service, asked: Asked[BrokerPath, NoQuestion, BrokerDrain]) -> BrokerDrained:
    """Lead a broker's partitions elsewhere, as before it is stopped; or let it lead and follow again."""
    id_, body, controller = asked.path.id, asked.body, service.controller
    remaining: list[TopicPartition] = []
    effect = None
    action = "undrain broker" if body.undo else "drain broker"
    async with audited(service, action, id_, reason=body.reason, dry_run=body.dry_run) as audit:
        if body.undo:
            await controller.ask(UndrainRequested(id_, dry_run=body.dry_run))
        else:
            min_isr = await service.min_isr()
            held = draining.held_by(controller.cluster, id_)
            least = min_isr[held.topic]
            look = draining.preview if body.dry_run else draining.observe
            remaining = await controller.drain(id_, dry_run=body.dry_run)
            effect = _effect(controller.cluster, look(controller.cluster, held, id_, least))
        if remaining:
            audit.outcome, audit.detail = "partly", f"it still leads {len(remaining)} partitions"
    return BrokerDrained(
        broker=id_,
        undo=body.undo,
        dry_run=body.dry_run,
        remaining=tuple(map(_name, remaining)),
        effect=effect,
        as_of=service.as_of(),
    )


def _effect(cluster: Cluster, effect: draining.Effect) -> DrainEffect:
    return DrainEffect(
        moved=_some(cluster, effect.moved),
        left_isr=_some(cluster, effect.left),
        alone=_some(cluster, effect.alone),
        under_min_isr=_some(cluster, effect.under_min_isr),
        last_in_sync=_some(cluster, effect.last_in_sync),
    )


def _some(cluster: Cluster, at: RowNumbers) -> SomePartitions:
    """Rows with the first by name; rows of topics that were deleted meanwhile are counted without a name."""
    known = at[cluster.table.column("topic")[at] >= 0]
    if len(known) > SORTED_MAX:
        known = known[:NAMED_MAX]
    names = sorted(cluster.table.names(known))[:NAMED_MAX]
    return SomePartitions(count=len(at), first=tuple(map(_name, names)))


def _name(name: TopicPartition) -> PartitionName:
    return PartitionName(topic=name.topic, partition=name.partition)


def _participants(service: Service, broker: int, instead: str) -> Participants:
    """The participants of this process, one of which is `broker`.

    Raises:
        Refused: it runs none, or this one is a broker of another process.
        BrokerNotFound: there is no such broker anywhere.
    """
    if service.participants is None or not len(service.participants):
        raise Refused(
            HTTPStatus.NOT_IMPLEMENTED,
            "No participants here",
            f"this server runs no participants: broker {broker}, if there is one, runs elsewhere; {instead}",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    if broker in service.participants.ids:
        return service.participants
    if broker in service.controller.cluster.brokers:
        raise Refused(
            HTTPStatus.CONFLICT,
            "Not a participant",
            f"broker {broker} does not run in the process of this server: {instead}",
            code=ErrorCode.INVALID_REQUEST,
        )
    raise BrokerNotFound(broker)


def _infos(service: Service) -> tuple[BrokerInfo, ...]:
    """Every broker, by id."""
    held = shares(service.cluster.table)
    ids = sorted(service.cluster.brokers.keys() | held.replicas.keys() | held.leaders.keys())
    leaders_share = sum(held.leaders.values()) / len(ids) if ids else 0
    replicas_share = sum(held.replicas.values()) / len(ids) if ids else 0
    return tuple(_info(service, id_, held, leaders_share=leaders_share, replicas_share=replicas_share) for id_ in ids)


def _info(service: Service, id_: int, held: Shares, *, leaders_share: float, replicas_share: float) -> BrokerInfo:
    controller = service.controller
    known = service.cluster.brokers.get(id_)
    state: BrokerStateName = "live" if known is not None else "dead"
    if id_ in service.cluster.shutting_down:
        state = "shutting_down"
    channels = controller.channels
    waiting, oldest_ms, last_error = 0, 0.0, ""
    if id_ in channels:
        waiting, oldest_ms, last_error = len(channels[id_]), channels[id_].oldest_ms, channels[id_].last_error
    leaders, replicas = held.leaders.get(id_, 0), held.replicas.get(id_, 0)
    return BrokerInfo(
        id=id_,
        state=state,
        epoch=None if known is None else known.epoch,
        rack=None if known is None else known.rack,
        endpoints=tuple(
            EndpointInfo(listener=each.listener, host=each.host, port=each.port, protocol=each.protocol)
            for each in (() if known is None else known.endpoints)
        ),
        is_controller=id_ == controller.loop.active_id,
        leaders=leaders,
        leader_skew=_skew(leaders, leaders_share),
        replicas=replicas,
        replica_skew=_skew(replicas, replicas_share),
        out_of_sync=held.out_of_sync.get(id_, 0),
        queue_size=waiting,
        queue_oldest_ms=oldest_ms,
        last_error=last_error,
        participant=service.participants is not None and id_ in service.participants.ids,
    )


def _skew(has: int, share: float) -> float:
    """Percent above an even share; 0 where there is nothing to share."""
    return round((has / share - 1) * 100, 1) if share else 0.0
