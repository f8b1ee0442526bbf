"""A battery of admin requests, valid and not, in old and new versions, and what of their responses is compared.

Each request runs once under Kafka's own controller and once under kactl. `%` in a text stands for the side, so that
both have topics and users of their own.
"""

from collections.abc import Iterator
from typing import Any, Final

from kactl.transports.kafka.listener.config_apis import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from kactl.transports.kafka.listener.partition_apis import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ALTER_USER_SCRAM_CREDENTIALS_API,
    DESCRIBE_USER_SCRAM_CREDENTIALS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    UPDATE_FEATURES_API,
)
from kactl.transports.kafka.listener.relayed_apis import ALTER_CLIENT_QUOTAS_API, DESCRIBE_CLIENT_QUOTAS_API
from kactl.transports.kafka.listener.topic_apis import CREATE_PARTITIONS_API, CREATE_TOPICS_API, DELETE_TOPICS_API

from .battery_bounds import topics_and_settings
from .battery_case import BROKER, NOBODY, TIMEOUT_MS, TOPIC, Case
from .battery_others import malformed, others

SIDES: Final = ("kafkas", "kactls")


def _topic(name: str, count: int = 1, factor: int = 1, assignments: Any = (), **configs: str | None) -> dict[str, Any]:
    return {
        "name": name, "num_partitions": count, "replication_factor": factor,
        "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in assignments],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }  # fmt: skip


def _created(
    name: str, *topics: dict[str, Any], version: int = 7, dry: bool = True, timeout_ms: int = TIMEOUT_MS
) -> Case:
    fields = {"topics": list(topics), "timeout_ms": timeout_ms, "validate_only": dry}
    return Case(f"create: {name}", CREATE_TOPICS_API, version, fields)


def creations() -> Iterator[Case]:
    placed = {"count": -1, "factor": -1}
    for version in range(8):
        yield _created(f"valid, version {version}", _topic(f"%-v{version}", 2, 2), version=version, dry=False)
        yield _created(f"existing, version {version}", _topic(f"%-v{version}"), version=version, dry=False)
    yield _created("valid, checked only", _topic("%-new", 3, 3))
    yield _created("with settings", _topic("%-set", 2, 2, cleanup_policy="compact", retention_ms="5000"), dry=False)
    yield _created("default counts", _topic("%-defaults", -1, -1), dry=False)
    yield _created("default counts, version 0", _topic("%-defaults0", -1, -1), dry=False, version=0)
    yield _created("assignment", _topic("%-placed", assignments=[(0, [1, 2]), (1, [2, 3])], **placed), dry=False)  # type: ignore[arg-type]
    for name, count, factor in (
        ("no partitions", 0, 1), ("-2 partitions", -2, 1), ("no replicas", 1, 0), ("-2 replicas", 1, -2),
        ("too many replicas", 1, 4), ("neither", 0, 0), ("no partitions, too many replicas", 0, 9),
    ):  # fmt: skip
        yield _created(name, _topic("%-new", count, factor))
    for name, text in (
        ("empty name", ""), ("dot", "."), ("two dots", ".."), ("space", "a b"), ("slash", "a/b"), ("long", "x" * 249),
        ("too long", "x" * 250), ("umlaut", "\u00e4"), ("internal", "__consumer_offsets_%"), ("colliding", "%_v0"),
        ("colliding dot", "%.v0"), ("metadata of Raft", "__cluster_metadata"), ("colon", "a:b"),
    ):  # fmt: skip
        yield _created(name, _topic(text))
    for name, assignments in (
        ("gap", [(0, [1]), (2, [1])]), ("begins at 1", [(1, [1])]), ("negative partition", [(-1, [1])]),
        ("no replica", [(0, [])]), ("replica twice", [(0, [1, 1])]), ("unknown broker", [(0, [NOBODY])]),
        ("negative broker", [(0, [-1])]), ("different sizes", [(0, [1]), (1, [1, 2])]),
        ("partition twice", [(0, [1]), (0, [2])]), ("one without replicas", [(0, [1]), (1, [])]),
    ):  # fmt: skip
        yield _created(f"assignment, {name}", _topic("%-new", -1, -1, assignments))
    yield _created("assignment and counts", _topic("%-new", 1, 1, [(0, [1])]))
    yield _created("assignment and count", _topic("%-new", 1, -1, [(0, [1])]))
    yield _created("twice", _topic("%-new"), _topic("%-new"))
    yield _created("twice and another", _topic("%-new"), _topic("%-new"), _topic("%-other"))
    yield _created("one of two is invalid", _topic("%-new"), _topic("%-bad", 0))
    yield _created("none")
    yield _created("no value", _topic("%-new", retention_ms=None))
    yield _created("no value, version 0", _topic("%-new", retention_ms=None), version=0)
    yield _created("no value, existing", _topic("%-v0", retention_ms=None))
    yield _created("bad name and bad count", _topic("a b", 0))
    yield _created("bad name and bad setting", _topic("a b", retention_ms="x"))
    yield _created("bad count and bad setting", _topic("%-new", 0, retention_ms="x"))
    yield _created("existing and bad count", _topic("%-v0", 0))
    yield _created("existing and bad setting", _topic("%-v0", retention_ms="x"))
    yield _created("existing and both", _topic("%-v0", 1, 1, [(0, [1])]))
    yield _created("bad name and assignment", _topic("a b", -1, -1, [(0, [NOBODY])]))
    yield _created("bad setting and assignment", _topic("%-new", -1, -1, [(0, [NOBODY])], retention_ms="x"))
    yield _created("timeout 0", _topic("%-hasty"), dry=False, timeout_ms=0)
    yield _created("timeout -1", _topic("%-hastier"), dry=False, timeout_ms=-1)


def settings() -> Iterator[Case]:
    """Yields creations with each setting, valid and not."""
    for name, valid, wrong in (
        ("cleanup.policy", ("", "compact", "compact,delete"), ("shred", "compact,")),
        ("compression.gzip.level", ("-1", "1", "9"), ("0", "10", "99", "x")),
        ("compression.lz4.level", ("1", "17"), ("0", "18")),
        ("compression.type", ("zstd", "producer"), ("", "brotli")),
        ("compression.zstd.level", ("-131072", "22"), ("-131073", "23")),
        ("delete.retention.ms", ("0",), ("-1",)),
        ("file.delete.delay.ms", ("0",), ("-1",)),
        ("flush.messages", ("1",), ("0",)),
        ("flush.ms", ("0",), ("-1",)),
        ("follower.replication.throttled.replicas", ("", "*", "0:1,1:2"), ("1:x", "none")),
        ("index.interval.bytes", ("0",), ("-1", "2147483648")),
        ("leader.replication.throttled.replicas", ("", "*", "0:1"), ("1:x",)),
        ("local.retention.bytes", ("-2", "-1"), ("-3",)),
        ("local.retention.ms", ("-2", "5"), ("-3",)),
        ("max.compaction.lag.ms", ("1",), ("0",)),
        ("max.message.bytes", ("0",), ("-1", "1.5")),
        ("message.downconversion.enable", ("FALSE",), ("no",)),
        ("message.format.version", ("2.8-IV1", "3.9"), ("9.9", "")),
        ("message.timestamp.after.max.ms", ("0",), ("-1",)),
        ("message.timestamp.before.max.ms", ("0",), ("-1",)),
        ("message.timestamp.difference.max.ms", ("0",), ("-1",)),
        ("message.timestamp.type", ("LogAppendTime",), ("logappendtime",)),
        ("min.cleanable.dirty.ratio", ("0", "1", "1e-3", "NaN"), ("1.1", "-0.1", "x")),
        ("min.compaction.lag.ms", ("0",), ("-1",)),
        ("min.insync.replicas", ("1", "9"), ("0",)),
        ("preallocate", ("true",), ("1",)),
        ("remote.log.copy.disable", ("false",), ("true",)),
        ("remote.log.delete.on.disable", ("false",), ("true",)),
        ("remote.storage.enable", ("false",), ("true", "x")),
        ("retention.bytes", ("-5", "9223372036854775807"), ("9223372036854775808",)),
        ("retention.ms", ("-1", " 5 ", "+5"), ("-2", "", "5_000")),
        ("segment.bytes", ("14",), ("13",)),
        ("segment.index.bytes", ("4",), ("3",)),
        ("segment.jitter.ms", ("0",), ("-1",)),
        ("segment.ms", ("1",), ("0",)),
        ("unclean.leader.election.enable", ("True",), ("yes",)),
        ("retention.mss", (), ("1",)),
        ("leadership.lease", (), ("false",)),
        ("", (), ("1",)),
    ):
        for value in (*valid, *wrong):
            topic = _topic("%-new") | {"configs": [{"name": name, "value": value}]}
            yield _created(f"{name}={value!r}", topic)
    yield _created("conflicting lags", _topic("%-new", min_compaction_lag_ms="2", max_compaction_lag_ms="1"))


def growths() -> Iterator[Case]:
    def case(name: str, *topics: Any, version: int = 3, dry: bool = True) -> Case:
        entries = [
            {"name": topic, "count": count,
             "assignments": None if placed is None else [{"broker_ids": ids} for ids in placed]}
            for topic, count, placed in topics
        ]  # fmt: skip
        fields = {"topics": entries, "timeout_ms": TIMEOUT_MS, "validate_only": dry}
        return Case(f"grow: {name}", CREATE_PARTITIONS_API, version, fields)

    for version in range(4):
        yield case(f"valid, version {version}", (f"%-v{version}", 3, None), version=version, dry=False)
    for name, count in (("same", 3), ("fewer", 1), ("none", 0), ("negative", -1)):
        yield case(name, ("%-v0", count, None))
    yield case("checked only", ("%-v0", 5, None))
    yield case("unknown topic", ("%-unknown", 5, None))
    yield case("empty name", ("", 5, None))
    yield case("twice", ("%-v0", 5, None), ("%-v0", 6, None))
    yield case("no topic")
    yield case("one of two unknown", ("%-v0", 5, None), ("%-unknown", 5, None))
    for name, placed in (
        ("valid", [[1, 2], [2, 3]]), ("too few", [[1, 2]]), ("too many", [[1, 2]] * 3), ("none", []),
        ("other size", [[1], [2]]), ("unknown broker", [[1, NOBODY], [1, 2]]), ("twice", [[1, 1], [1, 2]]),
        ("empty", [[], []]), ("mixed sizes", [[1, 2], [1, 2, 3]]), ("negative broker", [[-1, 1], [1, 2]]),
    ):  # fmt: skip
        yield case(f"assignment, {name}", ("%-v0", 5, placed))


def configs() -> Iterator[Case]:
    def resource(kind: int, name: str, *entries: Any) -> dict[str, Any]:
        fields = [
            {"name": key, "config_operation": operation, "value": value}
            for key, value, operation in ((*entry, 0)[:3] for entry in entries)
        ]
        return {"resource_type": kind, "resource_name": name, "configs": fields}

    orders = "%-set"
    apis = (("alter", ALTER_CONFIGS_API, (0, 2)), ("change", INCREMENTAL_ALTER_CONFIGS_API, (0, 1)))
    for label, api, versions in apis:
        for name, resources in (
            ("valid", [resource(TOPIC, orders, ("retention.ms", "1000"))]),
            ("invalid value", [resource(TOPIC, orders, ("retention.ms", "x"))]),
            ("unknown name", [resource(TOPIC, orders, ("retention.mss", "1"))]),
            ("no value", [resource(TOPIC, orders, ("retention.ms", None))]),
            ("unknown topic", [resource(TOPIC, "%-unknown", ("retention.ms", "1"))]),
            ("invalid topic", [resource(TOPIC, "a b", ("retention.ms", "1"))]),
            ("empty topic", [resource(TOPIC, "", ("retention.ms", "1"))]),
            ("unknown type", [resource(99, orders, ("retention.ms", "1"))]),
            ("no resource", []),
            ("unknown broker", [resource(BROKER, str(NOBODY), ("log.cleaner.threads", "1"))]),
            ("broker with a bad name", [resource(BROKER, "x", ("log.cleaner.threads", "1"))]),
            ("read-only of all brokers", [resource(BROKER, "", ("zookeeper.connect", "x"))]),
            ("all brokers", [resource(BROKER, "", ("log.cleaner.threads", "1"))]),
        ):
            for version in versions:
                fields = {"resources": resources, "validate_only": name != "valid"}
                yield Case(f"{label}: {name}, version {version}", api, version, fields)
    for name, entry in (
        ("delete", ("retention.ms", None, 1)), ("append", ("cleanup.policy", "delete", 2)),
        ("subtract", ("cleanup.policy", "delete", 3)), ("append to no list", ("retention.ms", "1", 2)),
        ("unknown operation", ("retention.ms", "1", 9)),
    ):  # fmt: skip
        fields = {"resources": [resource(TOPIC, orders, entry)], "validate_only": True}
        yield Case(f"change: {name}", INCREMENTAL_ALTER_CONFIGS_API, 1, fields)
    for name, kind, text in (
        ("topic", TOPIC, orders), ("unknown topic", TOPIC, "%-unknown"), ("all brokers", BROKER, ""),
        ("bad broker", BROKER, "x"), ("unknown type", 99, "x"),
    ):  # fmt: skip
        for version in (0, 1, 4):
            described = [{"resource_type": kind, "resource_name": text, "configuration_keys": ["retention.ms"]}]
            yield Case(f"describe: {name}, version {version}", DESCRIBE_CONFIGS_API, version, {"resources": described})


def elections() -> Iterator[Case]:
    def case(name: str, named: Any, kind: int = 0, version: int = 2, timeout_ms: int = TIMEOUT_MS) -> Case:
        topics = None if named is None else [{"topic": topic, "partitions": numbers} for topic, numbers in named]
        fields = {"election_type": kind, "topic_partitions": topics, "timeout_ms": timeout_ms}
        return Case(f"elect: {name}", ELECT_LEADERS_API, version, fields)

    for version in range(3):
        yield case(f"not needed, version {version}", [("%-v0", [0])], version=version)
        yield case(f"unknown topic, version {version}", [("%-unknown", [0])], version=version)
    yield case("unclean, not needed", [("%-v0", [0])], kind=1)
    yield case("unknown partition", [("%-v0", [99])])
    yield case("negative partition", [("%-v0", [-1])])
    yield case("partition twice", [("%-v0", [0, 0])])
    yield case("topic twice", [("%-v0", [0]), ("%-v0", [1])])
    yield case("no topic", [])
    yield case("no partition", [("%-v0", [])])
    yield case("empty name", [("", [0])])
    yield case("unknown kind", [("%-v0", [0])], kind=9)
    yield case("timeout 0", [("%-v0", [0])], timeout_ms=0)


def reassignments() -> Iterator[Case]:
    def case(name: str, *moves: Any) -> Case:
        topics = [
            {"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}
            for topic, index, replicas in moves
        ]
        fields = {"topics": topics, "timeout_ms": TIMEOUT_MS}
        return Case(f"reassign: {name}", ALTER_PARTITION_REASSIGNMENTS_API, 0, fields)

    for name, replicas in (
        ("no replica", []), ("unknown broker", [NOBODY]), ("broker twice", [1, 1]), ("negative broker", [-1]),
        ("cancel what does not run", None), ("the same", [1, 2]),
    ):  # fmt: skip
        yield case(name, ("%-placed", 0, replicas))
    yield case("unknown topic", ("%-unknown", 0, [1]))
    yield case("unknown partition", ("%-placed", 9, [1]))
    yield case("negative partition", ("%-placed", -1, [1]))
    yield case("unknown topic, cancelled", ("%-unknown", 0, None))
    yield case("empty name", ("", 0, [1]))
    yield case("none")
    yield case("two of which one is invalid", ("%-placed", 0, [2, 1]), ("%-placed", 1, []))
    for name, topics in (
        ("all", None), ("none", []), ("idle", [("%-v0", [0])]), ("unknown", [("%-unknown", [0])]),
        ("unknown partition", [("%-v0", [99])]), ("no partition", [("%-v0", [])]),
    ):  # fmt: skip
        named = None if topics is None else [{"name": topic, "partition_indexes": ids} for topic, ids in topics]
        fields = {"topics": named, "timeout_ms": TIMEOUT_MS}
        yield Case(f"list reassignments: {name}", LIST_PARTITION_REASSIGNMENTS_API, 0, fields)


def users() -> Iterator[Case]:
    def up(name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt", key: bytes = b"k" * 32) -> Any:
        return {
            "name": name, "mechanism": mechanism, "iterations": iterations, "salt": salt, "salted_password": key
        }  # fmt: skip

    def down(name: str, mechanism: int = 1) -> Any:
        return {"name": name, "mechanism": mechanism}

    def case(name: str, upsertions: Any = (), deletions: Any = ()) -> Case:
        fields = {"upsertions": list(upsertions), "deletions": list(deletions)}
        return Case(f"users: {name}", ALTER_USER_SCRAM_CREDENTIALS_API, 0, fields)

    def described(name: str, *named: str, everyone: bool = False) -> Case:
        fields = {"users": None if everyone else [{"name": user} for user in named]}
        return Case(f"describe users: {name}", DESCRIBE_USER_SCRAM_CREDENTIALS_API, 0, fields)

    yield case("create", [up("%-alice"), up("%-alice", 2, 8192, key=b"k" * 64), up("%-bob")])
    yield described("two", "%-alice", "%-bob")
    yield case("change", [up("%-alice", 1, 5000)])
    yield case("create and delete", [up("%-carol")], [down("%-alice", 2)])
    yield described("after the change", "%-alice", "%-carol")
    yield case("delete", deletions=[down("%-bob")])
    yield case("delete again", deletions=[down("%-bob")])
    yield case("delete an unknown one", deletions=[down("%-dave")])
    yield case("delete another mechanism", deletions=[down("%-carol", 2)])
    yield case("delete an unknown mechanism", deletions=[down("%-carol", 9)])
    yield case("one unknown mechanism of two", [up("%-erin"), up("%-erin", 9)])
    yield described("not half changed", "%-erin")
    for name, entry in (
        ("no name", up("")), ("mechanism 0", up("%-frank", 0)), ("unknown mechanism", up("%-frank", 3)),
        ("too few iterations", up("%-frank", 1, 4095)), ("too many iterations", up("%-frank", 1, 16385)),
        ("most iterations", up("%-frank", 1, 16384)), ("negative iterations", up("%-frank", 1, -1)),
        ("no password", up("%-grace", key=b"")), ("no salt", up("%-heidi", salt=b"")),
        ("strange name", up("% =,\u00e4*+~/")), ("short key", up("%-short", key=b"k")),
        ("no name and unknown mechanism", up("", 9)), ("unknown mechanism and few iterations", up("%-frank", 9, 1)),
        ("no name and few iterations", up("", 1, 1)), ("unknown mechanism and no password", up("%-frank", 9, key=b"")),
    ):  # fmt: skip
        yield case(name, [entry])
    yield case("no name, deleted", deletions=[down("")])
    yield case("no name and unknown mechanism, deleted", deletions=[down("", 9)])
    yield case("twice", [up("%-ivan"), up("%-ivan")])
    yield case("up and down", [up("%-ivan")], [down("%-ivan")])
    yield case("twice and another", [up("%-ivan"), up("%-ivan"), up("%-judy")])
    yield case("unknown mechanism twice", [up("%-ivan", 9), up("%-ivan", 9)])
    yield case("few iterations twice", [up("%-ivan", 1, 1), up("%-ivan", 1, 1)])
    yield case("nothing")
    yield described("unknown", "%-nobody")
    yield described("twice", "%-alice", "%-alice")
    yield described("unknown twice", "%-nobody", "%-nobody")
    yield described("empty name", "")
    yield described("strange name", "% =,\u00e4*+~/")
    yield described("some", "%-alice", "%-nobody", "%-ivan", "%-judy", "%-grace", "%-heidi", "%-frank")
    yield described("all", everyone=True)
    yield described("none named")


def quotas_and_features() -> Iterator[Case]:
    def quota(name: str, entity: Any, *ops: Any) -> Case:
        entry = {
            "entity": [{"entity_type": kind, "entity_name": text} for kind, text in entity],
            "ops": [{"key": key, "value": value, "remove": False} for key, value in ops],
        }
        return Case(f"quota: {name}", ALTER_CLIENT_QUOTAS_API, 0, {"entries": [entry], "validate_only": True})

    yield quota("valid", [("user", "%-alice")], ("producer_byte_rate", 1000.0))
    yield quota("unknown key", [("user", "%-alice")], ("producer_byte_rates", 1.0))
    yield quota("negative", [("user", "%-alice")], ("producer_byte_rate", -1.0))
    yield quota("unknown entity", [("users", "%-alice")], ("producer_byte_rate", 1.0))
    yield quota("no entity", [], ("producer_byte_rate", 1.0))
    components = [{"entity_type": "user", "match_type": 0, "match": "%-nobody"}]
    fields = {"components": components, "strict": False}
    yield Case("describe quotas: none", DESCRIBE_CLIENT_QUOTAS_API, 0, fields)
    for name, feature, level, kind in (
        ("unknown", "what", 1, 1), ("metadata.version", "metadata.version", 1, 1), ("unknown, level 0", "what", 0, 1),
        ("no name", "", 1, 1), ("negative level", "what", -1, 1), ("downgrade", "what", 1, 2),
        ("unknown upgrade type", "what", 1, 9),
    ):  # fmt: skip
        update = {"feature": feature, "max_version_level": level, "upgrade_type": kind}
        fields = {"timeout_ms": TIMEOUT_MS, "feature_updates": [update], "validate_only": True}
        yield Case(f"features: {name}", UPDATE_FEATURES_API, 1, fields)
    yield Case("features: none", UPDATE_FEATURES_API, 1, {"timeout_ms": TIMEOUT_MS, "feature_updates": []})


def deletions() -> Iterator[Case]:
    def case(name: str, *topics: str, version: int = 6, timeout_ms: int = TIMEOUT_MS) -> Case:
        entries = [{"name": topic, "topic_id": bytes(16)} for topic in topics]
        fields = {"topic_names": list(topics), "topics": entries, "timeout_ms": timeout_ms}
        return Case(f"delete: {name}", DELETE_TOPICS_API, version, fields)

    for version in range(7):
        yield case(f"unknown, version {version}", "%-unknown", version=version)
        yield case(f"valid, version {version}", f"%-v{version}", version=version)
        yield case(f"again, version {version}", f"%-v{version}", version=version)
    yield case("empty name", "")
    yield case("invalid name", "a b")
    yield case("twice", "%-v7", "%-v7")
    yield case("one of two unknown", "%-defaults", "%-unknown")
    yield case("none")
    yield case("timeout 0", "%-set", timeout_ms=0)
    nothing = {"name": None, "topic_id": bytes(16)}
    unknown = {"name": None, "topic_id": b"\7" * 16}
    both = {"name": "%-placed", "topic_id": b"\7" * 16}
    for name, entries in (
        ("neither name nor id", [nothing]), ("unknown id", [unknown]), ("name and id", [both]),
        ("unknown id twice", [unknown] * 2),
    ):  # fmt: skip
        yield Case(f"delete: {name}", DELETE_TOPICS_API, 6, {"topics": entries, "timeout_ms": TIMEOUT_MS})


def cases() -> list[Case]:
    """Returns all requests in their order: later ones find what earlier ones have left."""
    parts = (
        creations, settings, growths, configs, elections, reassignments, users, quotas_and_features,
        topics_and_settings, others, malformed, deletions,
    )  # fmt: skip
    return [case for part in parts for case in part()]


def of_side(value: Any, side: str) -> Any:
    """Returns the fields of a request of one side."""
    if isinstance(value, str):
        return value.replace("%", side)
    if isinstance(value, dict):
        return {key: of_side(member, side) for key, member in value.items()}
    return [of_side(member, side) for member in value] if isinstance(value, list) else value


# Messages are in each controller's words, ids are drawn, and settings that were not requested are the brokers' own.
_LEFT_OUT: Final = (
    "error_message", "throttle_time_ms", "topic_id", "configs", "synonyms", "documentation",
    "brokers", "controller_id", "api_keys",
)  # fmt: skip


def compared(value: Any, side: str) -> Any:
    """Returns what both sides should have in common."""
    if isinstance(value, str):
        return value.replace(side, "%")
    if isinstance(value, dict):
        shown = {key: member for key, member in value.items() if key not in _LEFT_OUT}
        return {key: compared(member, side) for key, member in shown.items()}
    if isinstance(value, list):
        # Both sides have users in one ZooKeeper.
        (other,) = {*SIDES} - {side}
        own = [member for member in value if not (isinstance(member, dict) and other in str(member.get("user")))]
        return sorted((compared(member, side) for member in own), key=repr)
    return int(value) if isinstance(value, bool | int) else value
