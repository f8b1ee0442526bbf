"""Explanations of the state of partitions and topics."""

from typing import Final

from kactl.admin.route import ApiRequest
from kactl.admin.schema import (
    CandidateInfo,
    NoData,
    PartitionExplanation,
    PartitionPath,
    TopicExplanation,
    TopicPath,
)
from kactl.admin.service import Service
from kactl.admin.views import find_partition, name_of
from kactl.decide.machines.explain import explain_deletion
from kactl.decide.machines.reassignment import progress
from kactl.decide.messages.log import PartitionEvent
from kactl.model import TopicPartition
from kactl.model.errors import NotFound

# Events of a shard in which the change of its owner is sought.
EVENTS_MAX: Final = 200


async def partition(service: Service, request: ApiRequest[PartitionPath, NoData, NoData]) -> PartitionExplanation:
    """Explain why a partition has its present leader, or none."""
    name = TopicPartition(request.path.topic, request.path.partition)
    try:
        explanation = service.controller.explain(name)
    except NotFound:
        raise service.no_partition(name.topic, name.partition) from None
    info = find_partition(service.cluster, name.topic, name.partition)
    shard = None if info is None else info.shard
    since_ms, trigger = (None, "") if shard is None else await _change(service, name, explanation.leader)
    reassignments = progress(service.controller.cluster, [name])
    return PartitionExplanation(
        topic=explanation.topic,
        partition=explanation.partition,
        leader=explanation.leader,
        verdict=explanation.verdict,
        remedies=explanation.remedies,
        candidates=tuple(
            CandidateInfo(
                broker=candidate.broker,
                broker_state=candidate.broker_state,
                in_sync=candidate.in_sync,
                directory_failed=candidate.directory_failed,
                may_lead=candidate.may_lead,
                verdict=candidate.verdict,
                name=name_of(service.cluster, candidate.broker),
            )
            for candidate in explanation.candidates
        ),
        reassignment=reassignments[0].reason if reassignments else None,
        as_of=service.as_of(),
        shard=shard,
        since_ms=since_ms,
        trigger=trigger,
    )


async def _change(service: Service, name: TopicPartition, owner: int) -> tuple[int | None, str]:
    """Returns when a shard got its owner, or lost the former one, and the event that did it, as far as that is held."""
    since_ms, trigger = None, ""
    for event in reversed(await service.controller.history.of_partition(name.topic, name.partition, limit=EVENTS_MAX)):
        if not isinstance(event, PartitionEvent) or event.refused:
            continue
        if event.leader != owner:
            return since_ms, trigger
        since_ms, trigger = event.time_ms, "" if event.because is None else event.because.trigger
    return None, ""


async def topic(service: Service, request: ApiRequest[TopicPath, NoData, NoData]) -> TopicExplanation:
    """Explain the progress of a topic's deletion."""
    name, cluster = request.path.topic, service.controller.cluster
    if cluster.table.topic(name) is None and name not in cluster.topics_to_delete:
        raise NotFound("topic", name)
    deletion, waits_for = explain_deletion(cluster, name)
    return TopicExplanation(topic=name, deletion=deletion, waits_for=waits_for, as_of=service.as_of())
