"""Brokers: list, drain, and kill or restart those of this process. Summary of the cluster."""

import asyncio
from http import HTTPStatus
from typing import Final

import msgspec

from kactl.admin.audit import audited
from kactl.admin.client import caller
from kactl.admin.health_facts import limits_of, observe
from kactl.admin.problem import BrokerNotFound, Refused
from kactl.admin.route import ApiRequest
from kactl.admin.schema import (
    BrokerActed,
    BrokerAction,
    BrokerDrain,
    BrokerDrained,
    BrokerInfo,
    BrokerList,
    BrokerPath,
    ClusterInfo,
    DrainEffect,
    DrainInfo,
    EndpointInfo,
    HealthCheck,
    NoData,
    PartitionName,
    SomePartitions,
)
from kactl.admin.service import LocalBrokers, Service
from kactl.admin.tallies import Shares, shares
from kactl.decide.machines import draining
from kactl.decide.machines.explain import broker_state
from kactl.decide.messages.admin import UndrainBroker
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import RowNumbers
from kactl.model import TopicPartition
from kactl.model.errors import ActionTimedOut, BadRequest, ErrorCode
from kactl.telemetry import health

# A restart waits until the previous registration has expired: at most twice the session timeout.
RESTART_TIMEOUT_S = 120

# Users read a few names; a program that needs all of them queries the partitions.
NAMED_MAX: Final = 100
# Above this number the names are in the order of the table: sorting a hundred thousand names takes 0.2 s.
SORTED_MAX: Final = 5_000

Acting = ApiRequest[BrokerPath, NoData, BrokerAction]


async def cluster(service: Service, request: ApiRequest[NoData, NoData, NoData]) -> ClusterInfo:
    """Returns a summary of the cluster and its health checks; works on any instance."""
    limits = limits_of(service.config.health)
    observed = await observe(service, limits)
    facts = observed.facts
    checks = health.checks(facts, limits)
    known = facts.partitions
    return ClusterInfo(
        cluster=service.config.cluster,
        node_id=service.controller.node_id,
        controller_id=facts.active_id,
        is_active=facts.is_active,
        epoch=service.controller.cluster.fence.epoch,
        since_ms=service.since_ms(),
        status=health.status_of(checks),
        checks=tuple(
            HealthCheck(
                name=check.name,
                result=check.result,
                value=check.value,
                limit=check.limit,
                unit=check.unit,
                names=check.names,
                detail=check.detail,
                remedy=check.remedy,
            )
            for check in checks
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
        **_shard_counts(facts.shards),
    )


def _shard_counts(shards: health.Shards | None) -> dict[str, int]:
    if shards is None:
        return {}
    failing = shards.failing[0]
    return {"shards": shards.total, "shards_without_owner": shards.unowned[0], "shards_failing": failing}


async def brokers(service: Service, request: ApiRequest[NoData, NoData, NoData]) -> BrokerList:
    """Returns all brokers that are registered, or dead with assigned replicas."""
    return BrokerList(items=_infos(service), as_of=service.as_of())


async def broker(service: Service, request: ApiRequest[BrokerPath, NoData, NoData]) -> BrokerInfo:
    """Returns one broker."""
    for info in _infos(service):
        if info.id == request.path.id:
            return info
    raise BrokerNotFound(request.path.id)


async def kill(service: Service, request: Acting) -> BrokerActed:
    """Stop a participant as SIGKILL stops a process; no effect if it has already stopped."""
    participants = _participants(service, request.path.id, "stop its own process")
    body = request.body
    async with audited(service, "kill broker", request.path.id, reason=body.reason, dry_run=body.dry_run):
        if not body.dry_run:
            await participants.kill(request.path.id)
    return BrokerActed(broker=request.path.id, action="kill", dry_run=body.dry_run)


async def restart(service: Service, request: Acting) -> BrokerActed:
    """Restart a participant; returns when it has registered."""
    id_ = request.path.id
    participants = _participants(service, id_, "restart its own process")
    if id_ in service.restarting:
        raise Refused(
            HTTPStatus.CONFLICT,
            "Restarting already",
            f"participant {id_} is being restarted, and waits until its previous registration has expired",
            retriable=True,
        )
    if request.body.dry_run:
        async with audited(service, "restart broker", id_, reason=request.body.reason, dry_run=True):
            return BrokerActed(broker=id_, action="restart", dry_run=True)
    service.restarting.add(id_)
    async with audited(service, "restart broker", id_, reason=request.body.reason) as audit:
        audit.has_begun()  # the participant stops before it starts
        try:
            async with asyncio.timeout(RESTART_TIMEOUT_S):
                await participants.restart(id_)
        except TimeoutError:
            raise ActionTimedOut(f"restarting participant {id_}", RESTART_TIMEOUT_S * 1000) from None
        finally:
            service.restarting.discard(id_)
    return BrokerActed(broker=id_, action="restart")


async def drain(service: Service, request: ApiRequest[BrokerPath, NoData, BrokerDrain]) -> BrokerDrained:
    """Move leadership away from a broker before it is stopped, or allow it to lead and follow again."""
    id_, body, controller = request.path.id, request.body, service.controller
    remaining: list[TopicPartition] = []
    effect, changed = None, True
    if body.undo and (body.until_ms is not None or body.until_restart):
        raise BadRequest("undo", "ends a drain now: leave until_ms and until_restart away")
    by = caller()
    action = "undrain broker" if body.undo else "drain broker"
    async with audited(service, action, id_, reason=body.reason, dry_run=body.dry_run) as audit:
        if body.undo:
            changed = await controller.ask(UndrainBroker(id_, dry_run=body.dry_run, by=by))
        else:
            min_isr = await service.min_isr()
            replicas = draining.held_by(controller.cluster, id_)
            least = min_isr[replicas.topic]
            effect_of = draining.preview if body.dry_run else draining.observe
            remaining = await controller.drain(
                id_,
                until_ms=body.until_ms,
                until_restart=body.until_restart,
                by=by,
                reason=body.reason,
                dry_run=body.dry_run,
            )
            # Their next owners prepare.
            remaining = [name for name in remaining if name not in controller.cluster.handovers]
            effect = _effect(controller.cluster, effect_of(controller.cluster, replicas, id_, least))
            if body.until_ms is not None or body.until_restart:
                ends = controller.cluster.maintenance.drains.get(id_)
                # The event has the user and the reason of the request itself.
                audit.detail = "" if ends is None else str(msgspec.structs.replace(ends, by="", reason=""))
        if not changed:
            audit.detail = "it was not drained"
        if remaining:
            told = f"; {audit.detail}" if audit.detail else ""
            audit.outcome, audit.detail = "partly", f"it still leads {len(remaining)} partitions{told}"
    return BrokerDrained(
        broker=id_,
        undo=body.undo,
        dry_run=body.dry_run,
        remaining=tuple(map(_name, remaining)),
        effect=effect,
        as_of=service.as_of(),
        drain=_drain_info(controller.cluster, id_),
        changed=changed,
    )


def _drain_info(cluster: Cluster, broker: int) -> DrainInfo | None:
    drain = cluster.maintenance.drains.get(broker)
    if drain is None:
        return None
    return DrainInfo(
        since_ms=drain.since_ms,
        until_ms=drain.until_ms,
        until_restart=drain.ends_with_registration,
        by=drain.by,
        reason=drain.reason,
    )


def _effect(cluster: Cluster, effect: draining.Effect) -> DrainEffect:
    return DrainEffect(
        moved=some_partitions(cluster, effect.moved),
        left_isr=some_partitions(cluster, effect.left),
        alone=some_partitions(cluster, effect.alone),
        under_min_isr=some_partitions(cluster, effect.under_min_isr),
        last_in_sync=some_partitions(cluster, effect.last_in_sync),
        shards_moved=some_partitions(cluster, effect.shards_moved),
        shards_kept=some_partitions(cluster, effect.shards_kept),
    )


def some_partitions(cluster: Cluster, rows: RowNumbers) -> SomePartitions:
    """Returns the number of rows, and the first by name. Rows of topics deleted meanwhile have no name."""
    known = rows[cluster.table.column("topic")[rows] >= 0]
    if len(known) > SORTED_MAX:
        known = known[:NAMED_MAX]
    names = sorted(cluster.table.names(known))[:NAMED_MAX]
    return SomePartitions(count=len(rows), first=tuple(map(_name, names)))


def _name(name: TopicPartition) -> PartitionName:
    return PartitionName(topic=name.topic, partition=name.partition)


def _participants(service: Service, broker: int, instead: str) -> LocalBrokers:
    """Returns the participants of this process, if `broker` is one of them.

    Raises:
        Refused: this process has no participants, or the broker runs in another process.
        BrokerNotFound: no such broker exists.
    """
    if service.participants is None or not len(service.participants):
        raise Refused(
            HTTPStatus.NOT_IMPLEMENTED,
            "No participants here",
            f"this server runs no participants; broker {broker}, if it exists, runs in another process: {instead}",
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
    """Returns every broker, by id."""
    counts = shares(service.cluster.table)
    known = service.cluster.brokers.keys() | service.cluster.maintenance.drains.keys()
    ids = sorted(known | counts.replicas.keys() | counts.leaders.keys())
    leaders_share = sum(counts.leaders.values()) / len(ids) if ids else 0
    replicas_share = sum(counts.replicas.values()) / len(ids) if ids else 0
    return tuple(_info(service, id_, counts, leaders_share=leaders_share, replicas_share=replicas_share) for id_ in ids)


def _info(service: Service, id_: int, counts: Shares, *, leaders_share: float, replicas_share: float) -> BrokerInfo:
    controller = service.controller
    known = service.cluster.brokers.get(id_)
    state = broker_state(service.cluster, id_)
    # Participants have links to the active controller only.
    link = controller.links.view(known) if known is not None and controller.is_active else None
    channels = controller.channels
    waiting, oldest_ms, last_error = 0, 0.0, ""
    if id_ in channels:
        waiting, oldest_ms, last_error = len(channels[id_]), channels[id_].oldest_ms, channels[id_].last_error
    leaders, replicas = counts.leaders.get(id_, 0), counts.replicas.get(id_, 0)
    return BrokerInfo(
        id=id_,
        state=state,
        epoch=None if known is None else known.epoch,
        rack=None if known is None else known.rack,
        endpoints=tuple(
            EndpointInfo(listener=endpoint.listener, host=endpoint.host, port=endpoint.port, protocol=endpoint.protocol)
            for endpoint in (() if known is None else known.endpoints)
        ),
        is_controller=id_ == controller.loop.active_id,
        leaders=leaders,
        leader_skew=_skew(leaders, leaders_share),
        replicas=replicas,
        replica_skew=_skew(replicas, replicas_share),
        out_of_sync=counts.out_of_sync.get(id_, 0),
        queue_size=waiting,
        queue_oldest_ms=oldest_ms,
        last_error=last_error or ("" if link is None else link.reason or link.endpoint_error),
        linked=None if link is None else link.is_linked,
        linked_since_ms=None if link is None else link.since_ms,
        participant=service.participants is not None and id_ in service.participants.ids,
        drain=_drain_info(service.cluster, id_),
        shards=counts.owners.get(id_, 0),
        standby_shards=counts.standbys.get(id_, 0),
        groups=None if known is None or known.groups is None else tuple(sorted(known.groups)),
        name="" if known is None else known.name,
    )


def _skew(has: int, share: float) -> float:
    """Returns the deviation from an even share in percent; 0 if the share is 0."""
    return round((has / share - 1) * 100, 1) if share else 0.0
