"""State machines with live counts, and the history of one partition."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, cast

import numpy as np

from kactl.admin.route import ApiRequest
from kactl.admin.schema import (
    HistoryQuery,
    NoData,
    PartitionEvent,
    PartitionHistory,
    PartitionPath,
    StateCount,
    StateMachine,
    StateMachineQuery,
    StateMachines,
    TransitionCount,
    event_view,
)
from kactl.admin.service import Service
from kactl.decide.machines.diagrams import PARTITION, REPLICA, Diagram
from kactl.decide.messages.log import PARTITION_STATE_NAMES, REPLICA_STATE_NAMES
from kactl.decide.state.table import Table
from kactl.model import PartitionState, ReplicaState

# Rates over less time than this would be noise.
_RATE_MS_MIN: Final = 1000
_ABSENT: Final = "absent"


async def state_machines(service: Service, request: ApiRequest[NoData, StateMachineQuery, NoData]) -> StateMachines:
    """Returns the states with the number of partitions and replicas in them, and the rates of transitions."""
    now_ms = service.controller.clock.now_ms()
    counts, since_ms = await service.controller.history.transitions(now_ms - 1000 * request.query.window_s)
    partitions, replicas = _counts(service.cluster.table)
    seconds = max(now_ms - since_ms, _RATE_MS_MIN) / 1000
    partition = _machine(PARTITION, PARTITION_STATE_NAMES, partitions, counts.partitions, seconds)
    states = tuple(
        StateCount(
            name=each.name,
            meaning=each.meaning,
            count=each.count,
            illegal=counts.illegal[state],
            refused=counts.refused[state],
        )
        for each, state in zip(partition.states, PARTITION.meanings, strict=True)
    )
    return StateMachines(
        partition=StateMachine(states=states, transitions=partition.transitions),
        replica=_machine(REPLICA, REPLICA_STATE_NAMES, replicas, counts.replicas, seconds),
        since_ms=since_ms,
        as_of=service.as_of(),
    )


async def history(service: Service, request: ApiRequest[PartitionPath, HistoryQuery, NoData]) -> PartitionHistory:
    """Returns the events of one partition that the event log still holds; also of one that has been deleted."""
    topic, partition, limit = request.path.topic, request.path.partition, request.query.limit
    log = service.controller.history
    events = await log.of_partition(topic, partition, limit=limit + 1)
    known = service.cluster.table.topic(topic)
    if not events and (known is None or partition >= len(known.rows) or known.rows[partition] < 0):
        raise service.no_partition(topic, partition)
    return PartitionHistory(
        items=tuple(cast(PartitionEvent, event_view(event)) for event in events[-limit:]),
        since_ms=None if len(events) > limit else log.oldest_ms(),
        as_of=service.as_of(),
    )


def _counts(table: Table) -> tuple[list[int], list[int]]:
    is_used = table.column("topic") >= 0
    partitions = np.bincount(table.column("state")[is_used], minlength=len(PartitionState))
    replicas = np.bincount(table.column("replica_state")[:, is_used].ravel(), minlength=max(ReplicaState) + 1)
    return partitions.tolist(), replicas.tolist()


def _machine(
    diagram: Diagram, names: Mapping[int, str], counts: list[int], made: Counter[tuple[int, int]], seconds: float
) -> StateMachine:
    return StateMachine(
        states=tuple(
            StateCount(name=names[state], meaning=meaning, count=None if names[state] == _ABSENT else counts[state])
            for state, meaning in diagram.meanings.items()
        ),
        transitions=tuple(
            TransitionCount(
                from_state=names[each.before],
                to_state=names[each.after],
                needs=each.needs,
                count=made[each.before, each.after],
                per_second=round(made[each.before, each.after] / seconds, 3),
            )
            for each in diagram.transitions
        ),
    )
