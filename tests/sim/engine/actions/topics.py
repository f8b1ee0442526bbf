"""Topics that are created, grown, configured and deleted, by request and by hand."""

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from kactl.decide.messages.admin import AddPartitions, CreateTopic, DeleteTopic
from kactl.model import ZERO_ID, Assignment, TopicRef
from kactl.model.errors import InternalError, KactlError, StoreError
from tests.sim.engine import selectors
from tests.sim.engine.checkers.stored import is_ownership
from tests.sim.engine.cluster import SimulatedCluster
from tests.sim.engine.selectors import Skipped

from .tasks import ask, in_store, later

Args = Mapping[str, Any]
UNCLEAN: Final = "unclean.leader.election.enable"
STANDBY: Final = "ownership.standby"


def _assignment(args: Args) -> dict[int, Assignment]:
    return {number: Assignment(tuple(replicas)) for number, replicas in enumerate(args["replicas"])}


def create(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`, `replicas` of each partition, `config`, `to`; without `to` in the store, as Kafka's tools do.

    In the store, `has_id` says whether the tool gives the topic an id. With `partitions` it is an ownership topic of so
    many partitions, with `standby` standbys.
    """
    topic, config = args["topic"], args.get("config", {})
    if not cluster.level.topic_ids and topic in cluster.removed_by_hand:
        # It cannot be distinguished from the one that was removed, of which brokers keep replicas.
        raise Skipped(f"{topic} was removed by hand, and topics have no ids")

    def answered(answer: Any) -> None:
        is_definite = not isinstance(answer, Exception) or isinstance(answer, KactlError)
        if is_definite and not isinstance(answer, StoreError | InternalError):
            cluster.creations[topic] -= 1

    cluster.creations[topic] += 1
    if "to" in args:
        request = CreateTopic(topic, config=config)
        if "partitions" in args:
            standby = {STANDBY: str(args.get("standby", 0))}
            request = replace(request, partitions=args["partitions"], config=standby, kind="ownership")
        else:
            request = replace(request, assignment=_assignment(args))
        ask(
            cluster,
            args["to"],
            request,
            operation="create topic",
            about=topic,
            then=answered,
        )
        return
    has_id = cluster.level.topic_ids and (args.get("has_id", True) or topic in cluster.removed_by_hand)
    topic_id = cluster.loop.streams["topic ids"].randbytes(16) if has_id else ZERO_ID
    created = cluster.operator_store.create_topic(TopicRef(topic, topic_id), _assignment(args), config)
    in_store(cluster, "create topic", created, then=answered)


def delete(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`, `to`."""
    topic = selectors.topic(cluster, args["topic"])
    ask(cluster, args["to"], DeleteTopic(topic), operation="delete topic", about=topic)


def mark(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`, which need not exist: mark it for deletion in the store, as Kafka's tools do."""
    in_store(cluster, "mark deletion", cluster.operator_store.mark_deletion(args["topic"]))


def vanish(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`: remove it from the store by hand. Not with participants: they have no operator who removes replicas."""
    if cluster.spec.brokers.kind == "participant":
        raise Skipped("participants keep replicas of a topic that was removed by hand")
    topic = selectors.topic(cluster, args["topic"])
    if cluster.creations[topic]:
        # A creation that arrives later could not be distinguished from the removed topic: below level 2.8 there are no
        # ids, and a client that repeats a creation after a lost answer repeats its id.
        raise Skipped(f"{topic} may be created again")
    stored = cluster.stored.topics().get(topic)
    cluster.removed_by_hand.setdefault(topic, {ZERO_ID}).add(ZERO_ID if stored is None else stored.id)
    cluster.world.remove_topic(topic)
    cluster.history.record("admin.store", operation="remove topic by hand", outcome="done", topic=topic)


def recreate(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`, `removal`: delete, mark, vanish or none; `after_ms`: create it after this time, as `create` does.

    `topic` may select any one, whose name the new topic then has.
    """
    topic = args["topic"]
    if topic.startswith("any topic "):
        topic = selectors.topic(cluster, topic)
    target = {"topic": topic, "to": "active controller"}
    match args.get("removal", "none"):
        case "delete":
            delete(cluster, target)
        case "mark":
            mark(cluster, target)
        case "vanish":
            vanish(cluster, target)
    new = {name: value for name, value in args.items() if name not in ("removal", "after_ms")} | {"topic": topic}

    def again() -> None:
        with contextlib.suppress(Skipped):
            if not cluster.is_healed:
                create(cluster, new)

    later(cluster, args.get("after_ms", 0.0), again)


def grow(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`, `replicas` of the new partition, `to`."""
    topic = selectors.topic(cluster, args["topic"])
    if topic in cluster.growing:
        # As for two tools.
        raise Skipped(f"a tool adds a partition to {topic}")
    cluster.growing_by_request[topic] += 1
    count = sum(name.topic == topic for name in cluster.stored.assignments())
    is_owned = is_ownership(cluster.stored.topics()[topic].id.hex())
    request = AddPartitions(topic, count + 1, None if is_owned else (tuple(args["replicas"]),))

    def answered(_: Any) -> None:
        cluster.growing_by_request[topic] -= 1

    ask(cluster, args["to"], request, operation="grow topic", about=topic, then=answered)


def grow_stored(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`, `replicas` of the new partition: add it in the store, as Kafka's tools do; not during a reassignment."""
    topic = selectors.topic(cluster, args["topic"])
    if topic in cluster.growing or cluster.growing_by_request[topic]:
        # The second tool would replace the new partition, and as in Kafka only added partitions are taken from a write.
        raise Skipped(f"another client adds a partition to {topic}")
    if is_ownership(cluster.stored.topics()[topic].id.hex()):
        raise Skipped(f"{topic} is an ownership topic, which Kafka's tools do not know")

    async def write() -> None:
        stored = await cluster.operator_store.assignments([topic])
        held = {name.partition: assignment for name, assignment in stored.items()}
        if held and not any(assignment.is_being_reassigned for assignment in held.values()):
            held[max(held) + 1] = Assignment(tuple(args["replicas"]))
            await cluster.operator_store.write_assignment(stored.topics[0], held, None)

    cluster.growing.add(topic)
    in_store(cluster, "add a partition", write(), then=lambda _: cluster.growing.discard(topic))


def config(cluster: SimulatedCluster, args: Args) -> None:
    """`topic`, `unclean`: allow unclean elections of a topic, or do not."""
    topic = selectors.topic(cluster, args["topic"])
    allowed = "true" if args["unclean"] else "false"
    in_store(cluster, "configure", cluster.operator_store.set_topic_config(topic, {UNCLEAN: allowed}))


VERBS: Final = {
    "create": create, "delete": delete, "mark": mark, "vanish": vanish, "recreate": recreate, "grow": grow,
    "grow stored": grow_stored, "config": config,
}  # fmt: skip
