"""Why things are as they are, and what would change that."""

from kactl.admin.route import Asked
from kactl.admin.schema import (
    CandidateInfo,
    NoQuestion,
    PartitionExplanation,
    PartitionPath,
    TopicExplanation,
    TopicPath,
)
from kactl.admin.service import Service
from kactl.errors import NotFound
from kactl.machines.explain import explain_deletion, explain_partition
from kactl.machines.reassignment import progress
from kactl.model import TopicPartition


async def partition(service: Service, asked: Asked[PartitionPath, NoQuestion, NoQuestion]) -> PartitionExplanation:
    """Why a partition is led by whom it is led, or by nobody."""
    name = TopicPartition(asked.path.topic, asked.path.partition)
    found = explain_partition(service.controller.cluster, name)
    if found is None:
        raise service.no_partition(name.topic, name.partition)
    moving = progress(service.controller.cluster, [name])
    return PartitionExplanation(
        topic=found.topic,
        partition=found.partition,
        leader=found.leader,
        verdict=found.verdict,
        remedies=found.remedies,
        candidates=tuple(
            CandidateInfo(
                broker=each.broker,
                broker_state=each.broker_state,
                in_sync=each.in_sync,
                directory_failed=each.directory_failed,
                may_lead=each.may_lead,
                verdict=each.verdict,
            )
            for each in found.candidates
        ),
        reassignment=moving[0].reason if moving else None,
        as_of=service.as_of(),
    )


async def topic(service: Service, asked: Asked[TopicPath, NoQuestion, NoQuestion]) -> TopicExplanation:
    """How a topic's deletion stands."""
    name, cluster = asked.path.topic, service.controller.cluster
    if cluster.table.topic(name) is None and name not in cluster.topics_to_delete:
        raise NotFound("topic", name)
    deletion, waits_for = explain_deletion(cluster, name)
    return TopicExplanation(topic=name, deletion=deletion, waits_for=waits_for, as_of=service.as_of())
