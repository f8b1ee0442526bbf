"""Failure simulation of the running cluster, and whether a broker can stop."""

from collections.abc import Iterable, Sequence
from typing import Final

from kactl.admin.failure_analysis import LiveSnapshot
from kactl.admin.problem import BrokerNotFound
from kactl.admin.route import ApiRequest
from kactl.admin.schema import (
    BrokerPath,
    FailureSet,
    NoData,
    ShardOutcome,
    SomePartitions,
    Stoppable,
    WhatIf,
    WhatIfRequest,
)
from kactl.admin.service import Service
from kactl.decide.machines.draining import explained, without
from kactl.decide.machines.explain import broker_state
from kactl.decide.machines.shards import shard_rows
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import RowNumbers
from kactl.decide.whatif import Kind, Scenario
from kactl.decide.whatif.analysis import answer, outcome_of
from kactl.decide.whatif.restarts import plan_restarts
from kactl.decide.whatif.topology import Topology
from kactl.model.errors import BadRequest

from .brokers import some_partitions

# Names in an error that lists what exists.
_NAMED_MAX: Final = 20


async def whatif(service: Service, request: ApiRequest[NoData, NoData, WhatIfRequest]) -> WhatIf:
    """Simulate failures of the cluster as it is now."""
    body = request.body

    def evaluated(live: LiveSnapshot) -> WhatIf:
        topology = live.engine.topology
        kills = [_scenario(topology, each, f"kill[{number}]") for number, each in enumerate(body.kill)]
        return WhatIf(
            analysis=answer(live.prepared, kills, _sweeps(body, topology), top=body.top),
            restart=None if body.restart is None else plan_restarts(live.engine, together=body.restart),
            as_of=as_of,
            shards=shards,
        )

    table = await service.read_topic_settings()
    service.require_active()
    as_of, shards = service.as_of(), _shards(service.controller.cluster, body)
    return await service.failure_analysis.evaluate(service.controller, table, evaluated)


async def stoppable(service: Service, request: ApiRequest[BrokerPath, NoData, NoData]) -> Stoppable:
    """Returns whether a broker can stop now: whether no partition would become unavailable or reject writes."""
    broker = request.path.id
    table = await service.read_topic_settings()
    service.require_active()
    cluster, as_of = service.controller.cluster, service.as_of()
    state = broker_state(cluster, broker)

    def evaluated(live: LiveSnapshot) -> tuple[str, Sequence[RowNumbers]]:
        topology = live.engine.topology
        if broker not in topology.brokers:
            raise BrokerNotFound(broker)
        scenario = topology.failing([broker])
        harmed = live.engine.harmed(topology.positions(scenario.brokers))
        rows = live.cluster.rows.index
        text = outcome_of(live.prepared, scenario).explained if scenario.brokers else f"Broker {broker} is {state}."
        return text, [rows[each] for each in (harmed.offline, harmed.lossy, harmed.under_min, harmed.lone)]

    loss, of_shards = without(cluster, [broker]), explained(cluster, [broker])
    text, (offline, lossy, under_min, lone) = await service.failure_analysis.evaluate(
        service.controller, table, evaluated
    )

    def some(rows: RowNumbers) -> SomePartitions:
        return some_partitions(cluster, rows)

    return Stoppable(
        broker=broker,
        stoppable=not (len(offline) or len(loss.unowned) or len(lossy) or len(under_min)),
        state=state,
        offline=some(offline),
        lossy=some(lossy),
        under_min_isr=some(under_min),
        last_in_sync=some(lone),
        explained=f"{text} {of_shards}".rstrip(),
        as_of=as_of,
        unowned=some(loss.unowned),
    )


def _shards(cluster: Cluster, body: WhatIfRequest) -> tuple[ShardOutcome, ...]:
    if not len(shard_rows(cluster)):
        return ()
    outcomes = []
    for failing in (FailureSet(), *body.kill):
        in_racks = (id_ for id_, broker in cluster.brokers.items() if broker.rack in failing.racks)
        brokers = tuple(sorted({*failing.brokers, *in_racks}))
        moved, unowned = (some_partitions(cluster, rows) for rows in without(cluster, brokers))
        outcomes.append(
            ShardOutcome(brokers=brokers, moved=moved, unowned=unowned, explained=explained(cluster, brokers))
        )
    return tuple(outcomes)


def _sweeps(body: WhatIfRequest, topology: Topology) -> list[Kind]:
    """Returns the requested kinds; by default brokers and pairs, and racks if they are known."""
    if body.sweeps is None:
        if body.kill or body.restart is not None:
            return []
        return [Kind.BROKERS, Kind.PAIRS, *([Kind.RACKS] if topology.racks else [])]
    for number, name in enumerate(body.sweeps):
        if name in (Kind.RACKS, Kind.RACK_AND_BROKER) and not topology.racks:
            raise BadRequest(
                f"sweeps[{number}]",
                f"{name}: no broker is registered with a rack; set broker.rack",
            )
    return [Kind(name) for name in dict.fromkeys(body.sweeps)]


def _scenario(topology: Topology, failing: FailureSet, field: str) -> Scenario:
    """Returns the scenario of a set.

    Raises:
        BadRequest: it is empty, or a broker or rack is unknown.
    """
    if not (failing.brokers or failing.racks):
        raise BadRequest(field, "is empty: name brokers or racks")
    for number, broker in enumerate(failing.brokers):
        if broker not in topology.brokers:
            known = _few(map(str, topology.brokers))
            raise BadRequest(f"{field}.brokers[{number}]", f"there is no broker {broker}; there are {known}")
    for number, rack in enumerate(failing.racks):
        if rack not in topology.racks:
            known = f"there are {_few(topology.racks)}" if topology.racks else "no broker is registered with a rack"
            raise BadRequest(f"{field}.racks[{number}]", f"there is no rack {rack!r}; {known}")
    return topology.failing(failing.brokers, dict.fromkeys(failing.racks))


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED_MAX} more" if len(listed) > _NAMED_MAX else ""
    return ", ".join(listed[:_NAMED_MAX]) + more
