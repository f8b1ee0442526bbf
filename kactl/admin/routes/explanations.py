"""Explanations of the state of partitions and topics."""

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
from kactl.errors import NotFound
from kactl.machines.explain import explain_deletion
from kactl.machines.reassignment import progress
from kactl.model import TopicPartition


async def partition(service: Service, request: ApiRequest[PartitionPath, NoData, NoData]) -> PartitionExplanation:
    """Explain why a partition has its present leader, or none."""
    name = TopicPartition(request.path.topic, request.path.partition)
    try:
        explanation = service.controller.explain(name)
    except NotFound:
        raise service.no_partition(name.topic, name.partition) from None
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
            )
            for candidate in explanation.candidates
        ),
        reassignment=reassignments[0].reason if reassignments else None,
        as_of=service.as_of(),
    )


async def topic(service: Service, request: ApiRequest[TopicPath, NoData, NoData]) -> TopicExplanation:
    """Explain the progress of a topic's deletion."""
    name, cluster = request.path.topic, service.controller.cluster
    if cluster.table.topic(name) is None and name not in cluster.topics_to_delete:
        raise NotFound("topic", name)
    deletion, waits_for = explain_deletion(cluster, name)
    return TopicExplanation(topic=name, deletion=deletion, waits_for=waits_for, as_of=service.as_of())
