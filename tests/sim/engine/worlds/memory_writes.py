"""Entries that each operation of the in-memory store writes, for `store.commit` events.

Each function is called before its operation, with the server's data and the operation's arguments. It returns a
function that receives the result and returns the entries written, as (key, old version, new version, value), and the
keys that were not written because another version is stored. A key names the entry in the same way for
all kinds of stores, such as `leadership/orders/0`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np

from kactl.model import (
    NO_BROKER,
    NO_VERSION,
    Assignment,
    Broker,
    Fence,
    Leadership,
    Maintenance,
    TopicPartition,
    TopicRef,
)
from kactl.stores.base import Assignments, Changed, Committed, Notification, Write
from kactl.stores.entries import leader_write
from kactl.stores.memory import MemoryState
from tests.sim.engine.worlds.written import After, Op, Written

# Entries without versions of their own.
PRESENT: Final = 0


def _always(*ops: Op) -> After:
    return lambda _: Written(list(ops), [])


def _put(key: str, existed: bool, value: dict[str, Any]) -> Op:
    return Op(key, PRESENT if existed else NO_VERSION, PRESENT, value)


def _removed(key: str) -> Op:
    return Op(key, PRESENT, NO_VERSION, None)


# -- controllership and brokers ----------------------------------------------------------------------------------------


def contest(state: MemoryState, controller_id: int, *, take_over: bool, address: str) -> After:
    had_controller = state.controller is not None

    def after(fence: Fence) -> Written:
        epoch = fence.epoch
        old = epoch - 1 if epoch > 1 else NO_VERSION
        holder = _put("controller", had_controller, {"id": controller_id, "epoch": epoch})
        return Written([Op("epoch", old, epoch, {"epoch": epoch}), holder], [])

    return after


def resign(state: MemoryState, fence: Fence) -> After:
    return _always(*([_removed("controller")] if state.controller else []))


def register(state: MemoryState, session: int, broker: Broker) -> After:
    existed = broker.id in state.brokers
    return lambda epoch: Written([_put(f"brokers/{broker.id}", existed, {"epoch": epoch})], [])


def register_remote(state: MemoryState, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> After:
    existed = broker.id in state.brokers  # the same registration then: nothing is written
    return lambda epoch: Written([] if existed else [_put(f"brokers/{broker.id}", False, {"epoch": epoch})], [])


def end_remote(state: MemoryState, broker: int, epoch: int, fence: Fence) -> After:
    known, session = state.brokers.get(broker, (None, None))
    is_removed = known is not None and known.epoch == epoch and session is None
    return _always(*([_removed(f"brokers/{broker}")] if is_removed else []))


def evict(state: MemoryState, broker: int, epoch: int, fence: Fence) -> After:
    known, _ = state.brokers.get(broker, (None, None))
    is_marked = known is not None and known.epoch == epoch and not known.evicted
    mark = _put(f"brokers/{broker}", True, {"epoch": epoch, "evicted": True})
    return _always(*([mark] if is_marked else []))


def end_of_session(state: MemoryState, session: int) -> After:
    """Entries that end with a session."""
    ops = [_removed(f"brokers/{number}") for number, (_, holder) in state.brokers.items() if holder == session]
    if state.controller and state.controller[1] == session:
        ops.append(_removed("controller"))
    return _always(*ops)


# -- topics ------------------------------------------------------------------------------------------------------------


def create_topic(
    state: MemoryState, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
) -> After:
    configs = _put(f"configs/{topic.name}", topic.name in state.configs, dict(config))
    return _always(configs, _put(f"topics/{topic.name}", False, _topic(topic, assignment)))


def create_topics(state: MemoryState, assignments: Assignments) -> After:
    held: dict[str, dict[int, Assignment]] = {topic.name: {} for topic in assignments.topics}
    for name, assignment in assignments.items():
        held[name.topic][name.partition] = assignment
    return _always(
        *(_put(f"topics/{topic.name}", False, _topic(topic, held[topic.name])) for topic in assignments.topics)
    )


def write_assignment(
    state: MemoryState, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
) -> After:
    def after(_: object) -> Written:
        value = _topic(state.topics[topic.name].ref, assignment)  # a topic written without an id keeps its id
        return Written([_put(f"topics/{topic.name}", True, value)], [])

    return after


def _topic(topic: TopicRef, assignment: Mapping[int, Assignment]) -> dict[str, Any]:
    return {
        "id": topic.id.hex(),
        "partitions": {
            str(partition): [list(held.replicas), list(held.adding), list(held.removing)]
            for partition, held in sorted(assignment.items())
        },
    }


def set_topic_config(state: MemoryState, topic: str, config: Mapping[str, str]) -> After:
    return _always(_put(f"configs/{topic}", topic in state.configs, dict(config)))


def set_default_config(state: MemoryState, config: Mapping[str, str]) -> After:
    return _always(_put("config", True, dict(config)))


def mark_deletion(state: MemoryState, topic: str) -> After:
    return _always(_put(f"deletions/{topic}", False, {}))


def unmark_deletions(state: MemoryState, topics: Collection[str], fence: Fence) -> After:
    return _always(*(_removed(f"deletions/{topic}") for topic in dict.fromkeys(topics) if topic in state.deletions))


def delete_topics(state: MemoryState, topics: Mapping[str, Any], fence: Fence) -> After:
    ops = [op for topic in topics for op in _deletion(state, topic)]
    return _always(*ops, *(_removed(f"deletions/{topic}") for topic in topics if topic in state.deletions))


def remove_topic(state: MemoryState, topic: str) -> After:
    """Entries that a removal by hand removes: everything but the deletion mark."""
    return _always(*_deletion(state, topic))


def _deletion(state: MemoryState, topic: str) -> list[Op]:
    ops = [_removed(f"configs/{topic}")] if topic in state.configs else []
    if topic in state.topics:
        ops.append(_removed(f"topics/{topic}"))
        number = state.topic_numbers[topic]
        partitions = np.array(state.entries.partitions_of(number), np.int32)
        stored = state.entries.read(np.full(len(partitions), number, np.int32), partitions)
        versions = zip(partitions.tolist(), stored.partition_epoch.tolist(), strict=True)
        ops += [Op(f"leadership/{topic}/{partition}", version, NO_VERSION, None) for partition, version in versions]
    return ops


# -- leadership --------------------------------------------------------------------------------------------------------


def commit(state: MemoryState, write: Write, fence: Fence) -> After:
    return lambda committed: _leadership(write, committed, fence.epoch)


def write_isr(state: MemoryState, name: TopicPartition, leadership: Leadership, *, expected: int) -> After:
    write = leader_write(name, leadership, expected=expected)

    def after(version: int | None) -> Written:
        if version is None:
            return Written([], [_leadership_key(name)])
        return Written([_leadership_op(write, 0, name, version, leadership.controller_epoch)], [])

    return after


def _leadership(write: Write, committed: Committed, controller_epoch: int) -> Written:
    written = Written([], [])
    rows = zip(write.names, committed.committed.tolist(), committed.version.tolist(), strict=True)
    for row, (name, is_committed, version) in enumerate(rows):
        if is_committed:
            written.ops.append(_leadership_op(write, row, name, version, controller_epoch))
        else:
            written.conflicts.append(_leadership_key(name))
    return written


def _leadership_op(write: Write, row: int, name: TopicPartition, version: int, controller_epoch: int) -> Op:
    value = {
        "leader": int(write.leader[row]),
        "leader_epoch": int(write.leader_epoch[row]),
        "isr": [member for member in write.isr[:, row].tolist() if member != NO_BROKER],
        "recovering": bool(write.recovering[row]),
        "controller_epoch": controller_epoch,
    }
    return Op(_leadership_key(name), int(write.expected[row]), version, value)


def _leadership_key(name: TopicPartition) -> str:
    return f"leadership/{name.topic}/{name.partition}"


# -- other entries -----------------------------------------------------------------------------------------------------


def set_reassignment_request(
    state: MemoryState, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence | None = None
) -> After:
    existed = state.reassignment_request is not None
    key = "requests/reassignment"
    if not targets:
        return _always(*([_removed(key)] if existed else []))
    return _always(_put(key, existed, {str(name): list(replicas) for name, replicas in targets.items()}))


def request_preferred_election(state: MemoryState, partitions: Collection[TopicPartition]) -> After:
    return _always(_put("requests/preferred", False, {"partitions": [str(name) for name in partitions]}))


def delete_preferred_election_request(state: MemoryState, fence: Fence) -> After:
    return _always(*([] if state.preferred_election_request is None else [_removed("requests/preferred")]))


def write_features(state: MemoryState, features: Any, fence: Fence) -> After:
    old = NO_VERSION if state.features is None else state.features.version
    return lambda stored: Written([Op("features", old, stored.version, {"version": stored.version})], [])


def write_maintenance(state: MemoryState, maintenance: Maintenance, fence: Fence) -> After:
    existed = state.maintenance != Maintenance()
    return _always(_put("maintenance", existed, {"drained": sorted(maintenance.drains)}))


def write_producer_ids(state: MemoryState, block: Any, *, expected: int) -> After:
    def after(is_written: bool) -> Written:
        if not is_written:
            return Written([], ["producer ids"])
        return Written([Op("producer ids", expected, expected + 1, {"first": int(block.first)})], [])

    return after


def notify(state: MemoryState, kind: Changed, partitions: Collection[TopicPartition], broker: int) -> After:
    value = {"partitions": [str(name) for name in partitions], "broker": broker}
    return lambda _: Written([_put(f"notifications/{next(reversed(state.notifications))}", False, value)], [])


def delete_notifications(state: MemoryState, notifications: Collection[Notification], fence: Fence) -> After:
    return _always(*(_removed(f"notifications/{one.key}") for one in notifications if one.key in state.notifications))


# The operations that may write, by name.
WRITES: Final[dict[str, Callable[..., After]]] = {
    "contest": contest,
    "resign": resign,
    "register": register,
    "register_remote": register_remote,
    "end_remote": end_remote,
    "evict": evict,
    "close_session": end_of_session,
    "expire_session": end_of_session,
    "create_topic": create_topic,
    "create_topics": create_topics,
    "write_assignment": write_assignment,
    "set_topic_config": set_topic_config,
    "set_default_config": set_default_config,
    "mark_deletion": mark_deletion,
    "unmark_deletions": unmark_deletions,
    "delete_topics": delete_topics,
    "commit": commit,
    "write_isr": write_isr,
    "request_reassignment": set_reassignment_request,
    "set_reassignment_request": set_reassignment_request,
    "request_preferred_election": request_preferred_election,
    "delete_preferred_election_request": delete_preferred_election_request,
    "write_features": write_features,
    "write_maintenance": write_maintenance,
    "write_producer_ids": write_producer_ids,
    "notify": notify,
    "delete_notifications": delete_notifications,
}
