"""Facts for the health checks, gathered on one instance: the controller or a standby.

The controller uses its columns: a hundred thousand partitions cost about ten milliseconds. A standby uses its copy of
the cluster, and reads brokers and deletions from the store with a timeout.
"""

import asyncio
import dataclasses
from collections.abc import Collection
from typing import Final

import numpy as np

from kactl.config.settings import HealthConfig
from kactl.decide.machines.explain import Moment, handler_text, stuck_remedy
from kactl.decide.machines.shards import ShardState, shard_rows, states_of
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.min_isr import in_sync_against, offline_partitions
from kactl.decide.state.rows import Bools, BrokerSet, Ints, RowNumbers, first, preferred_imbalance, preferred_slot, some
from kactl.decide.state.table import Table
from kactl.model import Maintenance, ReplicaStatus
from kactl.model.errors import KactlError
from kactl.telemetry.health import NAMED_MAX, Channel, Facts, FailedHandler, Limits, Partitions, Shards

from .served_certificates import DAY_S
from .service import Service
from .tallies import shares

# Timeout of a standby's reads from the store.
READ_LIMIT_S: Final = 2.0


def limits_of(config: HealthConfig) -> Limits:
    """Returns the thresholds of a configuration."""
    return Limits(
        offline_partitions=config.offline_partitions,
        under_min_isr=config.under_min_isr,
        under_replicated=config.under_replicated,
        unreachable_brokers=config.unreachable_brokers,
        unreachable_after_ms=int(config.unreachable_after),
        broker_request_backlog=config.broker_request_backlog,
        event_queue_oldest_ms=int(config.event_queue_oldest),
        event_queue_stuck_ms=int(config.event_queue_stuck),
        reassignment_stuck_ms=int(config.reassignment_stuck),
        deletion_stuck_ms=int(config.deletion_stuck),
        standby_lag_ms=int(config.standby_lag),
        preferred_imbalance_percent=config.preferred_imbalance_percent,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Observed:
    """The facts, and further figures for readers. Counts are 0 if they are not known."""

    facts: Facts
    brokers: int
    topics: int


async def observe(service: Service, limits: Limits) -> Observed:
    """Gather the facts on this instance, in any role."""
    loop = service.controller.loop
    if service.controller.is_active and loop.controllership.ready:
        return await _on_controller(service, limits)
    if service.controller.is_active:
        return Observed(_facts(service, unknown="this instance is taking over"), 0, 0)
    return await _on_standby(service)


async def _on_controller(service: Service, limits: Limits) -> Observed:
    controller = service.controller
    min_isr = await service.min_isr()
    # No await from here on: all figures are of the same moment.
    cluster = controller.cluster
    table = cluster.table
    partitions = _partitions(
        table,
        offline=offline_partitions(cluster),
        under_replicated=_mask(table, table.under_replicated()),
        min_isr=min_isr,
        electable=cluster.live_brokers.electable,
        drained=cluster.maintenance.drains,
        counted=_mask(table, table.all()),
    )
    facts = _facts(
        service,
        partitions=partitions,
        shards=_shards(cluster),
        dead=_dead(table, cluster.brokers),
        drained=tuple(sorted(cluster.shutting_down | cluster.maintenance.drains.keys())),
        drains=_told(cluster.maintenance),
        held=_held(service, cluster.maintenance),
        channels=tuple(
            Channel(channel.broker.id, len(channel), channel.oldest_ms, channel.last_error)
            for channel in controller.channels.all()
        ),
        failed_handlers=_failed_handlers(cluster, Moment(controller.clock.monotonic_ms())),
        reassignments=service.progress.reassignments(cluster, limit_ms=limits.reassignment_stuck_ms),
        deletions=service.progress.deletions(cluster, limit_ms=limits.deletion_stuck_ms),
        without_id=tuple(sorted(cluster.without_id)),
    )
    return Observed(facts, len(cluster.brokers), table.topic_count())


async def _on_standby(service: Service) -> Observed:
    """Use the copy of the cluster. A leader counts as failed if its broker is not registered."""
    controller, standby = service.controller, service.controller.loop.standby
    copy = standby.copy
    if copy is None:
        reason = "this instance is a standby without a copy of the cluster: query the controller, or set warm-standby"
        return Observed(_facts(service, unknown=reason, standby_detail="there is no copy"), 0, 0)
    lag_ms = standby.lag_ms
    try:
        async with asyncio.timeout(READ_LIMIT_S):
            brokers, maintenance = await controller.store.membership()
            deleting = await controller.store.deletions()
    except (KactlError, TimeoutError) as error:
        reason = f"the store does not respond: {str(error) or 'timeout'}"
        return Observed(_facts(service, unknown=reason, standby_lag_ms=lag_ms), 0, copy.table.topic_count())
    await controller.topic_settings.refresh(copy, active=False)
    table = copy.table
    counted = _counted_on_standby(copy, deleting)
    leader = table.column("leader")
    leaderless = ~BrokerSet(brokers)[leader]
    missing = some(table.column("assigned") & ~table.column("in_sync"))
    partitions = _partitions(
        table,
        offline=counted & leaderless,
        under_replicated=counted & missing,
        min_isr=controller.topic_settings.min_isr_of_topics(table),
        electable=BrokerSet(brokers.keys() - maintenance.drains.keys()),
        drained=maintenance.drains,
        counted=counted,
    )
    detail = "" if not standby.stale else f"{standby.stale:,} topics or partitions are not read yet"
    facts = _facts(
        service,
        partitions=partitions,
        dead=_dead(table, brokers),
        drained=tuple(maintenance.drains),
        drains=_told(maintenance),
        held=_held(service, maintenance),
        standby_lag_ms=lag_ms,
        standby_detail=detail,
    )
    return Observed(facts, len(brokers), table.topic_count())


def _told(maintenance: Maintenance) -> dict[int, str]:
    return {broker: f"is drained {drain}" for broker, drain in maintenance.drains.items()}


def _held(service: Service, maintenance: Maintenance) -> dict[int, str]:
    present = maintenance.without_past(service.controller.clock.now_ms())
    return {instance: f"is held {hold}" for instance, hold in present.holds.items()}


def _counted_on_standby(copy: Cluster, deleting: Collection[str]) -> Bools:
    """Returns bool[P]: partitions with leadership, without those of topics that are marked for deletion."""
    table = copy.table
    counted: Bools = table.column("leader_epoch") >= 0
    for name in deleting:
        topic = table.topic(name)
        if topic is not None:
            counted[table.rows_of(topic)] = False
    return counted


def _partitions(
    table: Table,
    *,
    offline: Bools,
    under_replicated: Bools,
    min_isr: Ints,
    electable: BrokerSet,
    drained: Collection[int],
    counted: Bools,
) -> Partitions:
    """Count the partitions of replicated topics.

    Args:
        min_isr: by topic number.
        electable: brokers that may lead; `drained`: brokers that may not until their drains end.
        counted: rows to count.
    """
    replicated = ~_mask(table, table.owned(table.all()))
    every = counted & replicated
    against = in_sync_against(table, min_isr[table.column("topic")])
    lagging = shares(table).out_of_sync
    # As those that are queued for deletion never count.
    rows = table.rows(np.flatnonzero(every))
    elsewhere = rows.take(preferred_imbalance(rows))
    head = preferred_slot(elsewhere.assigned)
    preferred = first(elsewhere.assigned, elsewhere.replicas)
    returnable = some(head & elsewhere.in_sync & ~elsewhere.dir_offline) & electable[preferred]
    return Partitions(
        total=int(np.count_nonzero(replicated & (table.column("topic") >= 0))),
        offline=_named(table, offline & replicated),
        under_replicated=_named(table, under_replicated & replicated),
        # An offline partition may still have a leader in the table.
        under_min_isr=_named(table, (against.under | (offline & ~_is_new(table))) & every),
        min_isr_unknown=int(np.count_nonzero(against.unknown & every)),
        not_preferred=len(elsewhere),
        returnable=int(np.count_nonzero(returnable)),
        preferred_drained=tuple(sorted(set(drained) & set(preferred.tolist()))),
        lagging=tuple(sorted(lagging.items(), key=lambda item: (-item[1], item[0]))),
    )


def _shards(cluster: Cluster) -> Shards:
    table, numbers = cluster.table, shard_rows(cluster)
    states = states_of(cluster, table.rows(numbers))
    by_state = {state: _named(table, _mask(table, numbers[states == state])) for state in ShardState}
    unowned = np.unique(table.column("topic")[numbers[states == ShardState.UNOWNED]]).tolist()
    names = [table.topic_at(number).name for number in unowned]
    return Shards(
        total=len(numbers),
        unowned=by_state[ShardState.UNOWNED],
        failing=by_state[ShardState.FAILING],
        not_offered=tuple(name for name in sorted(names) if not cluster.members(name)),
    )


def _is_new(table: Table) -> Bools:
    """Returns bool[P]: partitions that never had a leader."""
    new: Bools = table.column("leader_epoch") < 0
    return new


def _named(table: Table, selected: Bools) -> tuple[int, tuple[str, ...]]:
    rows = np.flatnonzero(selected)
    return len(rows), tuple(map(str, sorted(table.names(rows[:NAMED_MAX]))))


def _failed_handlers(cluster: Cluster, moment: Moment) -> tuple[FailedHandler, ...]:
    """Returns the replicas whose handlers have failed; those that do not recover by themselves come first."""
    failed = [
        FailedHandler(
            str(name),
            broker,
            handler_text(report, moment),
            stuck_remedy(broker, report),
            noun="participant" if cluster.is_shard(name) else "broker",
        )
        for name, broker, report in cluster.reported_replicas()
        if report.status is not ReplicaStatus.BUSY
    ]
    return tuple(sorted(failed, key=lambda handler: (not handler.remedy, handler.partition, handler.broker)))


def _dead(table: Table, registered: Collection[int]) -> tuple[int, ...]:
    return tuple(sorted(shares(table).replicas.keys() - set(registered)))


def _mask(table: Table, rows: RowNumbers) -> Bools:
    mask = np.zeros(len(table.column("topic")), np.bool_)
    mask[rows] = True
    return mask


def _facts(service: Service, **known: object) -> Facts:
    """Returns the facts that every instance has, and the given ones."""
    controller = service.controller
    view = controller.queue(limit=0)
    gate = controller.channels.gate
    return Facts(
        active_id=controller.loop.active_id,
        is_active=controller.is_active,
        ready=controller.is_active and controller.loop.controllership.ready,
        queue_depth=view.depth,
        queue_oldest_ms=view.oldest_ms,
        in_hand="" if view.current is None else view.current.label,
        in_hand_ms=0.0 if view.current is None else view.current.for_ms,
        session=controller.store.trouble if gate.is_open else gate.reason,
        certificates=_certificates(service),
        listener_mismatches=None if service.security is None else service.security.mismatches,
        without_controller=None if service.security is None else service.security.without_controller,
        without_rack=None if service.security is None else service.security.without_rack,
        **known,  # type: ignore[arg-type]
    )


def _certificates(service: Service) -> tuple[tuple[str, float], ...] | None:
    """Returns a text about each certificate of the process, and the days for which it is valid; None without one."""
    if service.security is None:
        return None
    expiries = service.security.certificates.expiries(service.controller.clock.now_ms() / 1000)
    return tuple((str(expiry), expiry.left_s / DAY_S) for expiry in expiries) or None
