"""Formats of topics, leadership, configurations, notifications and the controllership.

Every `encode_...` returns the bytes of one record; every `decode_...` accepts them, or None for a record without data,
and raises `Malformed` for anything that Kafka would not have written. Unknown fields are ignored, and `version` is not
checked. The formats of admin requests, features and producer ids are in `admin_records`, that of brokers in
`registration`.

Source: Kafka's ZkData, 3.9.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from kactl.model import ZERO_ID, Assignment, Leadership, TopicPartition

from .json_text import EXCERPT, INT32_MAX, BrokerId, BrokerIds, Count, Leader, Malformed, decode, decoder, excerpt

__all__ = ["Malformed", "excerpt"]  # in addition to all that is defined here

ADDRESS_MAX: Final = 300  # host names have 253 characters at most
_ALL_BROKERS: Final = "brokers/<default>"  # the entity path of the default for all brokers, in a notice
_LOG_DIR_FAILED: Final = 1
_RECOVERING: Final = 1
_ID: Final = re.compile("[A-Za-z0-9_-]{22}")
_NUMBER: Final = re.compile("[0-9]{1,10}")
_TIMESTAMP: Final = re.compile("[0-9]{1,18}")


# -- the controller ----------------------------------------------------------------------------------------------------


class _OwnFields(msgspec.Struct, frozen=True):
    """What kactl adds to a node; brokers ignore it."""

    address: str = ""


class _ControllerNode(msgspec.Struct, rename={"kraft_epoch": "kraftControllerEpoch"}):
    brokerid: Leader
    version: int = 2
    timestamp: str | int = ""
    kraft_epoch: int | None = -1
    kactl: _OwnFields = _OwnFields()


def encode_controller(controller_id: int, now_ms: int, address: str = "") -> bytes:
    """Returns the node of a controller. With an address it has one object more than Kafka's."""
    # In Kafka's order, which a struct cannot have, with its required field behind others.
    node: dict[str, object] = {
        "version": 2,
        "brokerid": controller_id,
        "timestamp": str(now_ms),
        "kraftControllerEpoch": -1,
    }
    if address:
        node["kactl"] = {"address": address}
    return msgspec.json.encode(node)


def decode_controller(data: bytes | None) -> tuple[int, int | None, str]:
    """Returns the id, the time of the election in wall clock ms, None if it is missing, and the address, if any."""
    node = decode(_controller, data)
    stamp = str(node.timestamp)
    return node.brokerid, int(stamp) if _TIMESTAMP.fullmatch(stamp) else None, node.kactl.address[:ADDRESS_MAX]


def encode_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_epoch(data: bytes | None) -> int:
    text = (data or b"").decode("ascii", "replace")
    if not _NUMBER.fullmatch(text) or int(text) > INT32_MAX:
        raise Malformed(f"{text[:EXCERPT]!r} is not a controller epoch")
    return int(text)


def encode_cluster_id(cluster_id: str) -> bytes:
    return msgspec.json.encode({"version": "1", "id": cluster_id})


# -- topics ------------------------------------------------------------------------------------------------------------


class TopicNode(msgspec.Struct, omit_defaults=False):
    """A topic's stored assignment, by partition number in arbitrary order."""

    version: int = 3
    topic_id: str | msgspec.UnsetType | None = msgspec.UNSET
    partitions: dict[Count, BrokerIds] = {}
    adding_replicas: dict[Count, BrokerIds] | None = {}
    removing_replicas: dict[Count, BrokerIds] | None = {}


def encode_topic(topic_id: bytes, assignment: Mapping[int, Assignment]) -> bytes:
    numbers = sorted(assignment)
    node = TopicNode(
        topic_id=msgspec.UNSET if topic_id == ZERO_ID else encode_id(topic_id),
        partitions={number: list(assignment[number].replicas) for number in numbers},
        adding_replicas={number: list(a.adding) for number in numbers if (a := assignment[number]).adding},
        removing_replicas={number: list(a.removing) for number in numbers if (a := assignment[number]).removing},
    )
    return msgspec.json.encode(node)


def decode_topic_node(data: bytes | None) -> tuple[bytes, TopicNode]:
    """Returns the id, ZERO_ID if there is none, and the node."""
    node = decode(_topic, data)
    return decode_id(node.topic_id) if isinstance(node.topic_id, str) else ZERO_ID, node


def decode_topic(data: bytes | None) -> tuple[bytes, dict[int, Assignment]]:
    """Returns the id, ZERO_ID if there is none, and the assignment by partition number in ascending order."""
    topic_id, node = decode_topic_node(data)
    adding, removing = node.adding_replicas or {}, node.removing_replicas or {}
    return topic_id, {
        number: Assignment(tuple(replicas), tuple(adding.get(number, ())), tuple(removing.get(number, ())))
        for number, replicas in sorted(node.partitions.items())
    }


def encode_id(topic_id: bytes) -> str:
    """Returns 22 characters, as Kafka writes a UUID."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def decode_id(text: str) -> bytes:
    if not _ID.fullmatch(text):
        raise Malformed(f"{text[:EXCERPT]!r} is not a topic id")
    return base64.urlsafe_b64decode(text + "==")


def encode_config(config: Mapping[str, str]) -> bytes:
    return msgspec.json.encode({"version": 1, "config": dict(config)})


class _ConfigNode(msgspec.Struct):
    config: dict[str, str] = {}


def decode_config(data: bytes | None) -> dict[str, str]:
    """Returns the overrides; a node without data has none."""
    return decode(_config, data).config if data else {}


class _ConfigChangeNode(msgspec.Struct):
    entity_path: str = ""
    entity_type: str = ""
    entity_name: str = ""


def encode_config_change(name: str) -> bytes:
    """Returns a notice that the configuration of a topic changed."""
    return _encode_entity(f"topics/{name}")


def decode_config_change(data: bytes | None) -> str | None:
    """Returns the topic with the changed configuration, or None for another entity."""
    kind, _, name = _decode_entity(data).partition("/")
    return name if kind == "topics" and name else None


def encode_default_config_change() -> bytes:
    """Returns a notice that the configuration of all brokers changed."""
    return _encode_entity(_ALL_BROKERS)


def is_default_config_change(data: bytes | None) -> bool:
    return _decode_entity(data) == _ALL_BROKERS


def _encode_entity(path: str) -> bytes:
    return msgspec.json.encode({"version": 2, "entity_path": path})


def _decode_entity(data: bytes | None) -> str:
    node = decode(_config_change, data)
    return node.entity_path or f"{node.entity_type}/{node.entity_name}"


# -- leadership --------------------------------------------------------------------------------------------------------


class StateNode(msgspec.Struct, gc=False):
    """A partition's stored leadership. The version is the ZooKeeper node's and not part of it."""

    controller_epoch: Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
    leader: Leader
    leader_epoch: Count
    isr: BrokerIds
    leader_recovery_state: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0


class _StateOut(msgspec.Struct):
    controller_epoch: int
    leader: int
    version: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int | msgspec.UnsetType = msgspec.UNSET


def encode_state(
    leader: int, *, leader_epoch: int, isr: Sequence[int], controller_epoch: int, recovering: bool
) -> bytes:
    node = _StateOut(controller_epoch, leader, 1, leader_epoch, isr, _RECOVERING if recovering else msgspec.UNSET)
    return _encoder.encode(node)


def encode_leadership(state: Leadership) -> bytes:
    """Returns the node of `state`, with its own controller epoch."""
    return encode_state(
        state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        controller_epoch=state.controller_epoch,
        recovering=state.recovering,
    )


def decode_state(data: bytes | None) -> StateNode:
    return decode(_state, data)


def decode_states(lines: bytes) -> list[StateNode]:
    """Returns many decoded nodes, given one in each line."""
    return decode(_states, b"[" + lines.replace(b"\n", b",") + b"]")


# -- notifications -----------------------------------------------------------------------------------------------------


class _Named(msgspec.Struct):
    topic: str
    partition: Count


class _IsrNode(msgspec.Struct):
    partitions: list[_Named]


class _LogDirNode(msgspec.Struct):
    broker: BrokerId


def encode_isr_notification(names: Sequence[TopicPartition]) -> bytes:
    listed = [{"topic": name.topic, "partition": name.partition} for name in names]
    return msgspec.json.encode({"version": 1, "partitions": listed})


def decode_isr_notification(data: bytes | None) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name.topic, name.partition) for name in decode(_isr, data).partitions)


def encode_log_dir_notification(broker: int) -> bytes:
    return msgspec.json.encode({"version": 1, "broker": broker, "event": _LOG_DIR_FAILED})


def decode_log_dir_notification(data: bytes | None) -> int:
    return decode(_log_dir, data).broker


# -- codecs ------------------------------------------------------------------------------------------------------------

_encoder: Final = msgspec.json.Encoder()
_controller: Final = decoder(_ControllerNode)
_topic: Final = decoder(TopicNode)
_config: Final = decoder(_ConfigNode)
_config_change: Final = decoder(_ConfigChangeNode)
_state: Final = decoder(StateNode)
_states: Final = decoder(list[StateNode])
_isr: Final = decoder(_IsrNode)
_log_dir: Final = decoder(_LogDirNode)
