"""Third part of the battery: null, empty, repeated, unknown and extreme values in the other requests, and bytes that do
not fit their version."""

import struct
from collections.abc import Iterator
from typing import Any

from kactl.transports.kafka.listener.api import Api
from kactl.transports.kafka.listener.config_apis import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from kactl.transports.kafka.listener.discovery_apis import METADATA_API
from kactl.transports.kafka.listener.partition_apis import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ALTER_USER_SCRAM_CREDENTIALS_API,
    DESCRIBE_USER_SCRAM_CREDENTIALS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    UPDATE_FEATURES_API,
)
from kactl.transports.kafka.listener.relayed_apis import (
    ALTER_CLIENT_QUOTAS_API,
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
    FIND_COORDINATOR_API,
)
from kactl.transports.kafka.listener.topic_apis import CREATE_PARTITIONS_API, CREATE_TOPICS_API, DELETE_TOPICS_API

from .battery_case import INT_MAX, LONG, NOBODY, TIMEOUT_MS, Case


def others() -> Iterator[Case]:
    for part in (_leaders, _moves, _users, _quotas, _features, _acls, _metadata):
        yield from part()


def _leaders() -> Iterator[Case]:
    def case(name: str, named: Any, kind: int = 0, version: int = 2, timeout_ms: int = TIMEOUT_MS) -> Case:
        topics = None if named is None else [{"topic": topic, "partitions": numbers} for topic, numbers in named]
        fields = {"election_type": kind, "topic_partitions": topics, "timeout_ms": timeout_ms}
        return Case(f"elect: {name}", ELECT_LEADERS_API, version, fields)

    for version in (0, 1, 2):
        yield case(f"null name, version {version}", [(None, [0])], version=version)
        yield case(f"null partitions, version {version}", [("%-placed", None)], version=version)
        yield case(f"largest partition, version {version}", [("%-placed", [INT_MAX])], version=version)
        both = [("%-placed", [0, 99]), ("%-unknown", [0])]
        yield case(f"known and unknown, version {version}", both, version=version)
    yield case("unclean, unknown topic", [("%-unknown", [0])], kind=1)
    yield case("timeout -1", [("%-placed", [0])], timeout_ms=-1)
    yield case("timeout 0, unknown topic", [("%-unknown", [0])], timeout_ms=0)
    yield case("invalid name", [("a b", [0])])
    yield case("topic twice, same partition", [("%-placed", [0])] * 2)


def _moves() -> Iterator[Case]:
    def case(name: str, topics: Any, timeout_ms: int = TIMEOUT_MS) -> Case:
        fields = {"topics": topics, "timeout_ms": timeout_ms}
        return Case(f"reassign: {name}", ALTER_PARTITION_REASSIGNMENTS_API, 0, fields)

    def topic(name: str | None, *partitions: tuple[int, Any]) -> dict[str, Any]:
        return {"name": name, "partitions": [{"partition_index": each, "replicas": to} for each, to in partitions]}

    yield case("null list of topics", None)
    yield case("null name", [topic(None, (0, [1]))])
    yield case("null partitions", [{"name": "%-placed", "partitions": None}])
    yield case("no partitions", [{"name": "%-placed", "partitions": []}])
    yield case("partition twice", [topic("%-placed", (0, [1, 2]), (0, [1, 2]))])
    yield case("partition twice, different", [topic("%-placed", (0, [1, 2]), (0, []))])
    yield case("topic twice", [topic("%-placed", (0, [1, 2])), topic("%-placed", (1, [2, 3]))])
    yield case("topic and partition twice", [topic("%-placed", (0, [1, 2]))] * 2)
    yield case("smallest broker", [topic("%-placed", (0, [-(2**31)]))])
    yield case("one of two brokers unknown", [topic("%-placed", (0, [1, NOBODY]))])
    yield case("unknown broker twice", [topic("%-placed", (0, [NOBODY, NOBODY]))])
    yield case("invalid name", [topic("a b", (0, [1]))])
    yield case("timeout 0, invalid", [topic("%-placed", (0, []))], 0)
    yield case("timeout -1, the same", [topic("%-placed", (0, [1, 2]))], -1)
    yield case("largest partition", [topic("%-placed", (INT_MAX, [1]))])
    yield case("one of each kind", [
        topic("%-placed", (0, [1, 2]), (1, [NOBODY]), (7, [1])), topic("%-unknown", (0, [1])),
        topic("%-set", (0, None)),
    ])  # fmt: skip
    for name, topics in (
        ("null name", [(None, [0])]), ("null partitions", [("%-placed", None)]),
        ("topic twice", [("%-placed", [0])] * 2), ("partition twice", [("%-placed", [0, 0])]),
        ("negative partition", [("%-placed", [-1])]), ("empty name", [("", [0])]),
    ):  # fmt: skip
        named = [{"name": each, "partition_indexes": ids} for each, ids in topics]
        for timeout_ms in (TIMEOUT_MS, -1):
            fields = {"topics": named, "timeout_ms": timeout_ms}
            yield Case(f"list reassignments: {name}, {timeout_ms} ms", LIST_PARTITION_REASSIGNMENTS_API, 0, fields)


def _users() -> Iterator[Case]:
    def up(name: str | None, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
        key = {"salt": b"salt", "salted_password": b"k" * 32}
        return {"name": name, "mechanism": mechanism, "iterations": iterations, **key}

    for name, ups, downs in (
        ("null lists", None, None), ("null name", [up(None)], []),
        ("null name, deleted", [], [{"name": None, "mechanism": 1}]),
        ("negative mechanism", [up("%-mallory", -1)], []),
        ("most iterations of all", [up("%-mallory", 1, INT_MAX)], []),
        ("long name", [up(f"%{LONG}")], []), ("name with a line break", [up("%\n")], []),
        ("up and down, other mechanisms", [up("%-mallory")], [{"name": "%-mallory", "mechanism": 2}]),
        ("deleted twice", [], [{"name": "%-mallory", "mechanism": 1}] * 2),
        ("unknown mechanism deleted and created", [up("%-mallory", 9)], [{"name": "%-mallory", "mechanism": 9}]),
    ):  # fmt: skip
        fields = {"upsertions": ups, "deletions": downs}
        yield Case(f"users: {name}", ALTER_USER_SCRAM_CREDENTIALS_API, 0, fields)
    for name, users in (("null name", [None]), ("three times", ["%-mallory"] * 3), ("long name", [LONG])):
        fields = {"users": [{"name": user} for user in users]}
        yield Case(f"describe users: {name}", DESCRIBE_USER_SCRAM_CREDENTIALS_API, 0, fields)


def _quotas() -> Iterator[Case]:
    def quota(name: str, entity: Any, *ops: Any, times: int = 1) -> Case:
        entry = {
            "entity": [{"entity_type": kind, "entity_name": text} for kind, text in entity],
            "ops": [{"key": key, "value": value, "remove": remove} for key, value, remove in ops],
        }
        return Case(f"quota: {name}", ALTER_CLIENT_QUOTAS_API, 0, {"entries": [entry] * times, "validate_only": True})

    rate = ("producer_byte_rate", 1.0, False)
    yield quota("default user", [("user", None)], rate)
    yield quota("empty user", [("user", "")], rate)
    yield quota("user and client", [("user", "%-alice"), ("client-id", "x")], rate)
    yield quota("type twice", [("user", "%-alice"), ("user", "%-bob")], rate)
    yield quota("user and address", [("user", "%-alice"), ("ip", "127.0.0.1")], rate)
    yield quota("invalid address", [("ip", "x y")], ("connection_creation_rate", 1.0, False))
    yield quota("not a number", [("user", "%-alice")], ("producer_byte_rate", float("nan"), False))
    yield quota("zero", [("user", "%-alice")], ("producer_byte_rate", 0.0, False))
    yield quota("fraction", [("user", "%-alice")], ("producer_byte_rate", 1.5, False))
    yield quota("removed", [("user", "%-alice")], ("producer_byte_rate", 0.0, True))
    yield quota("unknown removed", [("user", "%-alice")], ("what", 0.0, True))
    yield quota("key twice", [("user", "%-alice")], rate, rate)
    yield quota("entity twice", [("user", "%-alice")], rate, times=2)
    yield quota("no operation", [("user", "%-alice")])
    for name, parts, strict in (
        ("all", [], False), ("none, strict", [], True), ("default", [("user", 1, None)], True),
        ("any", [("ip", 2, None)], False), ("unknown type", [("users", 0, "x")], False),
        ("unknown match", [("user", 9, "x")], False),
        ("null name", [("user", 0, None)], False), ("type twice", [("user", 0, "x")] * 2, False),
    ):  # fmt: skip
        components = [{"entity_type": kind, "match_type": how, "match": text} for kind, how, text in parts]
        fields = {"components": components, "strict": strict}
        yield Case(f"describe quotas: {name}", DESCRIBE_CLIENT_QUOTAS_API, 0, fields)


def _features() -> Iterator[Case]:
    def case(name: str, *updates: Any, version: int = 1, dry: bool = True, timeout_ms: int = TIMEOUT_MS) -> Case:
        entries = [
            {"feature": feature, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind == 2}
            for feature, level, kind in updates
        ]
        fields = {"timeout_ms": timeout_ms, "feature_updates": entries, "validate_only": dry}
        return Case(f"features: {name}", UPDATE_FEATURES_API, version, fields)

    for version in (0, 1):
        yield case(f"twice, version {version}", ("what", 1, 1), ("what", 1, 1), version=version)
        yield case(f"two, version {version}", ("what", 1, 1), ("metadata.version", 0, 1), version=version)
        yield case(f"null name, version {version}", (None, 1, 1), version=version)
        yield case(f"downgrade to 0, version {version}", ("what", 0, 2), version=version)
        yield case(f"largest level, version {version}", ("what", 2**15 - 1, 1), version=version)
        yield case(f"timeout 0, version {version}", ("what", 1, 1), version=version, timeout_ms=0)
    yield case("unsafe downgrade", ("what", 0, 3))
    yield case("not only checked", ("what", 1, 1), dry=False)


def _acls() -> Iterator[Case]:
    about = {"resource_type": 2, "resource_name": "%-acl", "pattern_type": 3, "principal": "User:%", "host": "*"}
    for version in (0, 1, 2):
        for name, operation, permission in (
            ("valid", 3, 3), ("unknown operation", 99, 3), ("unknown permission", 3, 9),
        ):  # fmt: skip
            fields = about | {"operation": operation, "permission_type": permission}
            filtered = {
                "resource_type_filter": 2, "resource_name_filter": "%-acl", "pattern_type_filter": 3,
                "principal_filter": "User:%", "host_filter": "*", "operation": operation, "permission_type": permission,
            }  # fmt: skip
            created = fields | {"resource_pattern_type": 3}
            yield Case(f"create rights: {name}, version {version}", CREATE_ACLS_API, version, {"creations": [created]})
            yield Case(f"describe rights: {name}, version {version}", DESCRIBE_ACLS_API, version, filtered)
            yield Case(f"delete rights: {name}, version {version}", DELETE_ACLS_API, version, {"filters": [filtered]})
    for name, key, kind in (("unknown kind", "x", 9), ("negative kind", "x", -1)):
        yield Case(f"coordinator: {name}", FIND_COORDINATOR_API, 3, {"key": key, "key_type": kind})


def _metadata() -> Iterator[Case]:
    def case(name: str, topics: Any, version: int) -> Case:
        fields = {"topics": topics, "allow_auto_topic_creation": False}
        return Case(f"metadata: {name}, version {version}", METADATA_API, version, fields)

    for version in (1, 4, 8, 9, 10, 12):
        for name, topic in (("empty", ""), ("invalid", "a b"), ("known", "%-placed")):
            yield case(f"{name} topic", [{"name": topic}], version)
        if version >= 4:  # earlier ones create the topic
            yield case("unknown topic", [{"name": "%-unknown"}], version)
        yield case("no topic", [], version)
        yield case("topic twice", [{"name": "%-placed"}] * 2, version)
    for version in (10, 12):
        yield case("unknown id", [{"name": None, "topic_id": b"\7" * 16}], version)
        yield case("neither name nor id", [{"name": None}], version)
        yield case("null name and name", [{"name": None}, {"name": "%-placed"}], version)


def malformed() -> Iterator[Case]:
    """Yields requests that brokers reject by closing the connection, and some that they read nevertheless."""
    apis: tuple[tuple[str, Api], ...] = (
        ("create", CREATE_TOPICS_API), ("delete", DELETE_TOPICS_API), ("grow", CREATE_PARTITIONS_API),
        ("alter", ALTER_CONFIGS_API), ("change", INCREMENTAL_ALTER_CONFIGS_API), ("describe", DESCRIBE_CONFIGS_API),
        ("elect", ELECT_LEADERS_API), ("reassign", ALTER_PARTITION_REASSIGNMENTS_API),
        ("list reassignments", LIST_PARTITION_REASSIGNMENTS_API), ("users", ALTER_USER_SCRAM_CREDENTIALS_API),
        ("describe users", DESCRIBE_USER_SCRAM_CREDENTIALS_API), ("features", UPDATE_FEATURES_API),
    )  # fmt: skip
    # The defaults of these name everything.
    few = {"topic_partitions": [], "topics": [], "users": [{"name": "nobody"}]}
    for label, api in apis:
        for version in {0, api.version_max}:
            content = api.request.write(few, version)
            yield Case(f"{label}: bytes after the request, version {version}", api, version, content + b"\0\0")
            yield Case(f"{label}: the last byte is missing, version {version}", api, version, content[:-1])
            yield Case(f"{label}: no content, version {version}", api, version, b"")
        yield Case(f"{label}: unknown version", api, api.version_max + 20, api.request.write(few, api.version_max))
        yield Case(f"{label}: negative version", api, -1, api.request.write(few, 0))
        newest = api.request.write(few, api.version_max)
        if api.request.is_flexible(api.version_max):
            tagged = newest[:-1] + b"\1\x63\1\0"
            yield Case(f"{label}: unknown tagged field", api, api.version_max, tagged)
        yield Case(f"{label}: endless list", api, 0, _endless(api))


def _endless(api: Api) -> bytes:
    """Returns a request that announces more elements than it has bytes."""
    return b"\xff\xff\xff\xff\x07" if api.request.is_flexible(0) else struct.pack(">i", INT_MAX)
