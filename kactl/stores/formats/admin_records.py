"""Formats of admin requests, features, maintenance and producer ids; see `records` for the others and the common rules.

Source: Kafka's ZkData, 3.9: ReassignPartitionsZNode, PreferredReplicaElectionZNode, FeatureZNode, ProducerIdBlockZNode.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec

from kactl.model import Features, Maintenance, ProducerIdBlock, TopicPartition
from kactl.runtime.logs import logger

from .json_text import INT32_MAX, INT64_MAX, REPLICAS_MAX, Count, Leader, Malformed, decode, decoder

log = logger(__name__)

_ENABLED: Final = 1
_FIRST_WITH_LEVELS_ONLY: Final = 2  # earlier formats have a lowest level for each feature, too
_LOWEST: Final = 1
_NUMBER: Final = re.compile("[0-9]{1,19}")


# -- admin requests ----------------------------------------------------------------------------------------------------


# A tool may request a move to any number. One that is no broker id is the error of its partition, which the controller
# rejects, and not of the whole request.
_Requested = Annotated[int, msgspec.Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]


class _Move(msgspec.Struct):
    topic: str
    partition: Count
    replicas: Annotated[list[_Requested], msgspec.Meta(max_length=REPLICAS_MAX)]


class _Named(msgspec.Struct):
    topic: str
    partition: Count


class _Moves(msgspec.Struct):
    partitions: list[_Move]


class _Wanted(msgspec.Struct):
    partitions: list[_Named]


def encode_reassignment(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    moves = [
        {"topic": name.topic, "partition": name.partition, "replicas": list(replicas)}
        for name, replicas in targets.items()
    ]
    return msgspec.json.encode({"version": 1, "partitions": moves})


def decode_reassignment(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the requested replicas; for a partition that is named twice the last entry counts."""
    moves = decode(_moves, data).partitions
    return {TopicPartition(move.topic, move.partition): tuple(move.replicas) for move in moves}


def encode_preferred_election(partitions: Sequence[TopicPartition]) -> bytes:
    wanted = [{"topic": name.topic, "partition": name.partition} for name in partitions]
    return msgspec.json.encode({"version": 1, "partitions": wanted})


def decode_preferred_election(data: bytes | None) -> list[TopicPartition]:
    wanted = decode(_wanted, data).partitions
    return list(dict.fromkeys(TopicPartition(name.topic, name.partition) for name in wanted))


# -- features ----------------------------------------------------------------------------------------------------------

_Level = Annotated[int, msgspec.Meta(ge=_LOWEST, le=2**15 - 1)]


class _Levels(msgspec.Struct):
    max_version_level: _Level
    min_version_level: _Level = _LOWEST


class _FeatureNode(msgspec.Struct):
    version: Literal[1, 2]
    status: Literal[0, 1]
    features: dict[str, _Levels]


def encode_features(features: Features) -> bytes:
    """Returns a node in the format `features.format`; the version is the node's own and not written."""
    lowest = {} if features.format >= _FIRST_WITH_LEVELS_ONLY else {"min_version_level": _LOWEST}
    levels = {name: lowest | {"max_version_level": level} for name, level in features.levels.items()}
    return msgspec.json.encode({"version": features.format, "status": int(features.enabled), "features": levels})


def encode_maintenance(maintenance: Maintenance) -> bytes:
    return msgspec.json.encode(maintenance)


def decode_maintenance(data: bytes | None, place: str) -> Maintenance:
    """Returns the stored maintenance; a malformed one is logged, with its place in the store, and counts as none."""
    try:
        return decode(_maintenance, data)
    except Malformed as error:
        log.error(
            "%s is malformed: no broker counts as drained, and no name has an id, until it is written again: %s",
            place,
            error,
        )
        return Maintenance()


def decode_features(data: bytes | None, version: int) -> Features:
    node = decode(_features, data)
    return Features(
        levels={name: levels.max_version_level for name, levels in node.features.items()},
        enabled=node.status == _ENABLED,
        format=node.version,
        version=version,
    )


# -- producer ids ------------------------------------------------------------------------------------------------------


class _BlockNode(msgspec.Struct):
    broker: Leader
    block_start: str | int
    block_end: str | int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Returns a node; never the empty string, at which brokers of old protocol levels exit."""
    node = {"version": 1, "broker": block.broker, "block_start": str(block.first), "block_end": str(block.last)}
    return msgspec.json.encode(node)


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    """Returns the block. The empty string is malformed: ids may have been allocated before it was written."""
    node = decode(_block, data)
    first, last = _id(node.block_start), _id(node.block_end)
    if last < first:
        raise Malformed(f"the block ends at {last}, before {first}, where it begins")
    return ProducerIdBlock(node.broker, first, last - first + 1)


def _id(number: str | int) -> int:
    text = str(number)
    if not _NUMBER.fullmatch(text) or int(text) > INT64_MAX:
        raise Malformed(f"{text[:40]!r} is no producer id")
    return int(text)


_moves: Final = decoder(_Moves)
_wanted: Final = decoder(_Wanted)
_features: Final = decoder(_FeatureNode)
_maintenance: Final = decoder(Maintenance)
_block: Final = decoder(_BlockNode)
