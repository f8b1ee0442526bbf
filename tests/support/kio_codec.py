"""Independent codec by kio: requests between values and bytes, responses from values to bytes."""

import importlib
import io
import struct
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kactl.decide.messages.control import (
    KafkaRequest as Request,
)
from kactl.decide.messages.control import (
    KafkaResponse as Response,
)
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    PartitionStates,
    StopReplica,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.state.rows import Ints
from kactl.model import NO_BROKER, ZERO_ID, Broker, Endpoint, TopicRef
from kactl.transports.kafka.codec import Versions

PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
APIS = {4: "leader_and_isr", 5: "stop_replica", 6: "update_metadata"}


def schema(request: Request, versions: Versions, part: str) -> Any:
    """Returns kio's classes of the request or its response. Loaded by name at run time, therefore untyped."""
    name, version = {
        LeaderAndIsr: ("leader_and_isr", versions.leader_and_isr),
        UpdateMetadata: ("update_metadata", versions.update_metadata),
        StopReplica: ("stop_replica", versions.stop_replica),
    }[type(request)]
    return importlib.import_module(f"kio.schema.{name}.v{version}.{part}")


def entity_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def request_bytes(
    request: Request, versions: Versions, *, correlation_id: int, client_id: str, listener_name: str
) -> bytes:
    """Returns the whole frame, including its length."""
    kio = schema(request, versions, "request")
    entity = _entity(kio, request, listener_name)
    header = entity.__header_schema__(
        request_api_key=entity.__api_key__,
        request_api_version=entity.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    content = entity_bytes(header) + entity_bytes(entity)
    return struct.pack(">i", len(content)) + content


def response_bytes(request: Request, response: Response, versions: Versions, *, correlation_id: int) -> bytes:
    """Returns a broker's response, without its length."""
    kio = schema(request, versions, "response")
    if isinstance(response, UpdateMetadataResponse):
        entity = kio.UpdateMetadataResponse(error_code=ErrorCode(response.error))
    elif isinstance(response, LeaderAndIsrResponse):
        if versions.leader_and_isr >= 5:
            assert isinstance(request, LeaderAndIsr)
            errors = {"topics": _errors_by_id(kio, request, response.partitions)}
        else:
            errors = {"partition_errors": _errors_by_name(kio.LeaderAndIsrPartitionError, response.partitions)}
        entity = kio.LeaderAndIsrResponse(error_code=ErrorCode(response.error), **errors)
    else:
        partition_errors = _errors_by_name(kio.StopReplicaPartitionError, response.partitions)
        entity = kio.StopReplicaResponse(error_code=ErrorCode(response.error), partition_errors=partition_errors)
    return entity_bytes(entity.__header_schema__(correlation_id=correlation_id)) + entity_bytes(entity)


def read_request(data: bytes) -> tuple[int, Request]:
    """Returns the correlation id and the request of a frame without its length. All bytes must be consumed."""
    key, version = struct.unpack_from(">hh", data)
    kio: Any = importlib.import_module(f"kio.schema.{APIS[key]}.v{version}.request")
    kind = {4: "LeaderAndIsrRequest", 5: "StopReplicaRequest", 6: "UpdateMetadataRequest"}[key]
    entity_type = getattr(kio, kind)
    header, used = entity_reader(entity_type.__header_schema__)(data, 0)
    entity, body = entity_reader(entity_type)(data, used)
    assert used + body == len(data)
    return header.correlation_id, _request(entity)


def _entity(kio: Any, request: Request, listener_name: str) -> Any:
    sender = {
        "controller_id": request.controller_id,
        "controller_epoch": request.controller_epoch,
        "broker_epoch": request.broker_epoch,
    }
    if isinstance(request, StopReplica):
        cells = zip(request.partition.tolist(), request.leader_epoch.tolist(), request.delete.tolist(), strict=True)
        stopped = [
            kio.StopReplicaPartitionState(partition_index=partition, leader_epoch=epoch, delete_partition=delete)
            for partition, epoch, delete in cells
        ]
        grouped = _grouped(kio.StopReplicaTopicState, request.topics, request.topic.tolist(), stopped)
        return kio.StopReplicaRequest(**sender, topic_states=grouped)
    states = request.states
    if isinstance(request, LeaderAndIsr):
        partitions = [_leader_and_isr(kio, states, row) for row in range(len(states))]
        topics = _grouped(kio.LeaderAndIsrTopicState, states.topics, states.topic.tolist(), partitions)
        leaders = tuple(
            kio.LeaderAndIsrLiveLeader(broker_id=leader.id, host_name=endpoint.host, port=endpoint.port)
            for leader in request.live_leaders
            for endpoint in leader.endpoints
            if endpoint.listener == listener_name
        )
        kind = {"type_": 0} if "type_" in kio.LeaderAndIsrRequest.__dataclass_fields__ else {}
        return kio.LeaderAndIsrRequest(**sender, **kind, topic_states=topics, live_leaders=leaders)
    partitions = [_update_metadata(kio, states, row) for row in range(len(states))]
    topics = _grouped(kio.UpdateMetadataTopicState, states.topics, states.topic.tolist(), partitions)
    brokers = tuple(_broker(kio, broker) for broker in request.live_brokers)
    return kio.UpdateMetadataRequest(**sender, topic_states=topics, live_brokers=brokers)


def _grouped(kind: Any, topics: Sequence[TopicRef], topic: list[int], partitions: list[Any]) -> tuple[Any, ...]:
    has_ids = "topic_id" in kind.__dataclass_fields__
    groups: dict[int, list[Any]] = {}
    for at, partition in zip(topic, partitions, strict=True):
        groups.setdefault(at, []).append(partition)
    made = []
    for at, members in groups.items():
        ref = topics[at]
        named = {"topic_id": None if ref.id == ZERO_ID else uuid.UUID(bytes=ref.id)} if has_ids else {}
        made.append(kind(topic_name=ref.name, **named, partition_states=tuple(members)))
    return tuple(made)


def _leader_and_isr(kio: Any, states: PartitionStates, row: int) -> Any:
    kind = kio.LeaderAndIsrPartitionState
    recovery = {}
    if "leader_recovery_state" in kind.__dataclass_fields__:
        recovery["leader_recovery_state"] = 0 if states.recovering is None else int(states.recovering[row])
    return kind(
        partition_index=int(states.partition[row]),
        controller_epoch=int(states.controller_epoch[row]),
        leader=int(states.leader[row]),
        leader_epoch=int(states.leader_epoch[row]),
        isr=_members(states.isr, row),
        partition_epoch=int(states.partition_epoch[row]),
        replicas=_members(states.replicas, row),
        adding_replicas=_members(states.adding, row),
        removing_replicas=_members(states.removing, row),
        is_new=states.is_new is not None and bool(states.is_new[row]),
        **recovery,
    )


def _update_metadata(kio: Any, states: PartitionStates, row: int) -> Any:
    return kio.UpdateMetadataPartitionState(
        partition_index=int(states.partition[row]),
        controller_epoch=int(states.controller_epoch[row]),
        leader=int(states.leader[row]),
        leader_epoch=int(states.leader_epoch[row]),
        isr=_members(states.isr, row),
        zk_version=int(states.partition_epoch[row]),
        replicas=_members(states.replicas, row),
        offline_replicas=_members(states.offline_replicas, row),
    )


def _members(column: Ints | None, row: int) -> tuple[int, ...]:
    return () if column is None else tuple(member for member in column[:, row].tolist() if member != NO_BROKER)


def _broker(kio: Any, broker: Broker) -> Any:
    endpoints = tuple(
        kio.UpdateMetadataEndpoint(
            port=endpoint.port,
            host=endpoint.host,
            listener=endpoint.listener,
            security_protocol=PROTOCOLS.index(endpoint.protocol),
        )
        for endpoint in broker.endpoints
    )
    return kio.UpdateMetadataBroker(id_=broker.id, endpoints=endpoints, rack=broker.rack)


def _errors_by_name(kind: Any, errors: PartitionErrors) -> tuple[Any, ...]:
    cells = zip(errors.topic.tolist(), errors.partition.tolist(), errors.error.tolist(), strict=True)
    return tuple(
        kind(topic_name=errors.topics[at], partition_index=partition, error_code=ErrorCode(error))
        for at, partition, error in cells
    )


def _errors_by_id(kio: Any, request: LeaderAndIsr, errors: PartitionErrors) -> tuple[Any, ...]:
    ids = {ref.name: ref.id for ref in request.states.topics}
    groups: dict[str, list[Any]] = {}
    for at, partition, error in zip(
        errors.topic.tolist(), errors.partition.tolist(), errors.error.tolist(), strict=True
    ):
        made = kio.LeaderAndIsrPartitionError(partition_index=partition, error_code=ErrorCode(error))
        groups.setdefault(errors.topics[at], []).append(made)
    return tuple(
        kio.LeaderAndIsrTopicError(
            topic_id=None if ids[name] == ZERO_ID else uuid.UUID(bytes=ids[name]), partition_errors=tuple(members)
        )
        for name, members in groups.items()
    )


# -- back to values ----------------------------------------------------------------------------------------------------


def _request(entity: Any) -> Request:
    sender = (entity.controller_id, entity.controller_epoch, entity.broker_epoch)
    topics = tuple(
        TopicRef(str(topic.topic_name), id_.bytes if (id_ := getattr(topic, "topic_id", None)) else ZERO_ID)
        for topic in entity.topic_states
    )
    at = [number for number, topic in enumerate(entity.topic_states) for _ in topic.partition_states]
    cells = [partition for topic in entity.topic_states for partition in topic.partition_states]

    def ints(name: str) -> Ints:
        return np.array([getattr(cell, name) for cell in cells], np.int32)

    def lists(name: str) -> Ints:
        members = [getattr(cell, name) for cell in cells]
        column = np.full((max(map(len, members), default=0), len(cells)), NO_BROKER, np.int32)
        for row, some in enumerate(members):
            column[: len(some), row] = some
        return column

    topic = np.array(at, np.int32)
    kind = type(entity).__name__
    if kind == "StopReplicaRequest":
        delete = np.array([cell.delete_partition for cell in cells], np.bool_)
        return StopReplica(*sender, topics, topic, ints("partition_index"), ints("leader_epoch"), delete)
    common: Any = {
        "topics": topics,
        "topic": topic,
        "partition": ints("partition_index"),
        **{name: ints(name) for name in ("controller_epoch", "leader", "leader_epoch")},
        **{name: lists(name) for name in ("isr", "replicas")},
    }
    if kind == "LeaderAndIsrRequest":
        states = PartitionStates(
            **common,
            partition_epoch=ints("partition_epoch"),
            adding=lists("adding_replicas"),
            removing=lists("removing_replicas"),
            is_new=np.array([cell.is_new for cell in cells], np.bool_),
            recovering=np.array([getattr(cell, "leader_recovery_state", 0) for cell in cells], np.bool_),
        )
        leaders = tuple(
            Broker(leader.broker_id, NO_BROKER, (Endpoint("", str(leader.host_name), leader.port),))
            for leader in entity.live_leaders
        )
        return LeaderAndIsr(*sender, states, leaders)
    states = PartitionStates(
        **common,
        partition_epoch=ints("zk_version"),
        offline_replicas=lists("offline_replicas"),
    )
    return UpdateMetadata(*sender, states, tuple(map(_read_broker, entity.live_brokers)))


def _read_broker(broker: Any) -> Broker:
    endpoints = tuple(
        Endpoint(str(endpoint.listener), str(endpoint.host), endpoint.port, PROTOCOLS[endpoint.security_protocol])
        for endpoint in broker.endpoints
    )
    return Broker(broker.id_, NO_BROKER, endpoints, broker.rack)
